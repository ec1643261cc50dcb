"""What a crawl costs its Valkey or Redis server: memory per URL; commands, bytes and CPU per page. See README.md."""

import argparse
import asyncio
import json
import sys
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import psutil

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))  # its server fixtures

from services.redis_servers import server_of
from skitter.frontier.options import FrontierContext, FrontierSettings
from skitter.frontier.records import Entry, JobState, Outcome, Resolution
from skitter.frontier.redis.frontier import RedisFrontier
from skitter.item import OutputRange
from skitter.politeness import HostLimits, Politeness
from skitter.request import Request, encode_request, fingerprint_of_url

PER_HOST = 50
PAGES = 3_200
IDLE_CALLS = 2_000
NEW = 1
"""New links a page: the queue stays as long as it is. Others are asked about."""
COUNTERS = {"pages": 1, "items": 1, "links": 50, "bytes": 20_000, "status/200": 1, "refused/duplicate": 30}


class Figures(NamedTuple):
    kind: str
    filter: str
    queued: int
    queued_bytes: float
    seen_bytes: float
    host_bytes: float
    total_bytes: float
    commands: float
    bytes_in: float
    bytes_out: float
    server_us: float
    client_us: float
    idle_us: float
    """CPU of the server for a lease request that finds no work."""
    resident_mb: float
    """Memory of the server's process at the end."""


def url_of(number):
    host = f"www.site{number // PER_HOST}.example"
    return host, f"http://{host}/section/{number % 7}/article-{number}.html"


def entry_of(number):
    host, url = url_of(number)
    _, parent = url_of(number - number % PER_HOST)
    record = encode_request(Request(url, depth=3, referer=parent))
    return Entry(fingerprint_of_url(url, 1), host, url, record)


async def fill(frontier, count):
    for start in range(0, count, 2_000):
        await frontier.add([entry_of(number) for number in range(start, min(count, start + 2_000))])


async def crawl(frontier, first_new, links, batch):
    """Lease, ask and commit as workers do."""
    position = 0
    for _ in range(PAGES // batch):
        leases = (await frontier.lease("bench", batch)).leases
        fingerprints = [lease.fingerprint for lease in leases for _ in range(links - NEW)]
        new = [entry_of(first_new + n) for n in range(len(leases))]
        first_new += len(leases)
        await frontier.unknown([*fingerprints, *(entry.fingerprint for entry in new)])
        outcomes = []
        for lease, entry in zip(leases, new, strict=True):
            marks = [OutputRange("items.bench.part", position, position + 200)]
            outcomes.append(Outcome(lease.id, Resolution.DONE, [entry], COUNTERS, marks))
            position += 200
        if not all(await frontier.commit(outcomes)):
            sys.exit("a commit was refused")


def used(server):
    """Bytes of memory, or of the disk where the server keeps everything there."""
    memory = info(server, "memory")
    if "used_memory" in memory:
        return memory["used_memory"]
    server.ask("COMPACT")  # writes out what it still holds in memory, too
    server.wait_for(lambda: info(server, "rocksdb")["is_compacting"] == "no", 600)
    return info(server, "keyspace")["used_db_size"]


def info(server, section):
    lines = server.ask("INFO", section).decode().splitlines()
    return {name: _number(value) for name, _, value in (line.partition(":") for line in lines) if value}


def _number(value):
    try:
        return float(value)
    except ValueError:
        return value


def cpu_of(server):
    cpu = info(server, "cpu")
    if "used_memory" in info(server, "memory"):
        return cpu["used_cpu_user"] + cpu["used_cpu_sys"]
    times = psutil.Process(server.process.pid).cpu_times()  # the others tell whole seconds
    return times.user + times.system


def load_of(server):
    stats = info(server, "stats")
    return {
        "cpu": cpu_of(server),
        "commands": stats["total_commands_processed"],
        "in": stats["total_net_input_bytes"],
        "out": stats["total_net_output_bytes"],
    }


async def measure(kind, queued, options, append, links, batch):
    server = server_of(
        kind, *(("--appendonly", "yes", "--appendfsync", "everysec") if append else ())
    ).start()
    try:
        frontier = RedisFrontier(
            server.url,
            FrontierContext(
                "bench",
                politeness=Politeness(HostLimits(delay=0.0, concurrency_per_slot=100)),
                options=FrontierSettings(**options),
            ),
        )
        await frontier.open()
        before = used(server)
        await fill(frontier, queued)
        total = used(server) - before

        def size(*names):
            keys = [f"skitter:{{bench}}:{name}" for name in names]
            exact = () if kind == "kvrocks" else ("SAMPLES", 0)
            return sum(server.ask("MEMORY", "USAGE", key, *exact) or 0 for key in keys)

        sizes = [size("queue"), size("seen"), size("slots", "ready", "busy", "grants")]
        await crawl(frontier, queued, links, batch)  # warms up scripts and buffers
        first, began = load_of(server), perf_counter()
        await crawl(frontier, 2 * queued, links, batch)
        last, seconds = load_of(server), perf_counter() - began
        await frontier.control.set_state(JobState.PAUSED)
        for _ in range(IDLE_CALLS):
            await frontier.lease("bench", batch)
        resident = psutil.Process(server.process.pid).memory_info().rss / 1e6
        idle = (load_of(server)["cpu"] - last["cpu"]) / IDLE_CALLS
        await frontier.close()
    finally:
        server.stop()
    pages = PAGES // batch * batch
    spent = {name: (last[name] - first[name]) / pages for name in last}
    hosts = -(-queued // PER_HOST)
    return Figures(
        kind, options.get("seen_filter", "exact"), queued, sizes[0] / queued, sizes[1] / queued, sizes[2] / hosts,
        total / queued, spent["commands"], spent["in"], spent["out"], spent["cpu"] * 1e6,
        seconds / pages * 1e6 - spent["cpu"] * 1e6, idle * 1e6, resident,
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", default="redis,valkey")
    parser.add_argument("--queued", default="10000,100000,1000000")
    parser.add_argument("--set", default="{}", help="options of the frontier, as JSON")
    parser.add_argument("--links", type=int, default=20, help="links a page that the frontier is asked about")
    parser.add_argument("--batch", type=int, default=32, help="pages leased and committed together")
    parser.add_argument("--append", action="store_true", help="with appendonly yes, everysec")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    for kind in options.kinds.split(","):
        for queued in map(int, options.queued.split(",")):
            rows.append(
                asyncio.run(
                    measure(
                        kind, queued, json.loads(options.set), options.append, options.links, options.batch
                    )
                )
            )
            print("  ".join(f"{name} {value:.0f}" if isinstance(value, float) else f"{name} {value}"
                            for name, value in rows[-1]._asdict().items()), flush=True)  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps([row._asdict() for row in rows], indent=1))


if __name__ == "__main__":
    main()
