"""Items per second and memory of the stores, on real servers of this machine.

    python benchmarks/stores.py              # every store side by side, databases plain beside buffered
    python benchmarks/stores.py --million    # a million items into each store, with the largest memory in use

Needs the servers of the dependency group `services`, PostgreSQL and MariaDB. A round writes a slice to one store after the other, many times
over, so that what else the machine does meets all of them; a ratio is the median of those of the rounds. Figures are those of the store
alone: no fetching, no frontier. The exit status is 1 if MongoDB buffered is not 10 times plain, or if a store does not hold each item.
"""

import argparse
import asyncio
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src")]

ROUNDS = 9
SLICES = 5
"""Of a round: what takes the processor for a moment takes it from all."""
GOAL = 10
"""Items per second of MongoDB buffered, in those of plain."""
PAGE_ITEMS = 10
KINDS = {
    "mongodb, plain": ("mongodb", "buffer=1"),
    "mongodb, buffered": ("mongodb", "buffer=1000"),
    "postgresql, plain": ("postgresql", "buffer=1"),
    "postgresql, buffered": ("postgresql", "buffer=1000"),
    "postgresql, jsonb": ("postgresql", "buffer=1000&layout=jsonb"),
    "mysql, plain": ("mysql", "buffer=1"),
    "mysql, buffered": ("mysql", "buffer=1000"),
    "mysql, json": ("mysql", "buffer=1000&layout=json"),
    "s3, jsonl": ("s3", ""),
    "redis, list": ("redis", "type=list"),
    "redis, stream": ("redis", "type=stream"),
    "sqlite": ("file", "items.db"),
    "jsonl": ("file", "items.jsonl"),
    "csv": ("file", "items.csv"),
    "parquet": ("file", "items.parquet"),
}


def groups(first, count):
    from skitter.store.contract import ItemGroup

    return [
        ItemGroup(
            number.to_bytes(16, "big"),
            [
                {
                    "url": f"https://shop.example/products/{number}/{index}",
                    "title": f"Product {index} of page {number}",
                    "price": number % 1000 + 0.25,
                    "stock": index,
                    "tags": ["new", "blue"],
                    "text": "Lorem ipsum dolor sit amet, consectetur adipiscing elit. " * 3,
                }
                for index in range(PAGE_ITEMS)
            ],
        )
        for number in range(first, first + count // PAGE_ITEMS)
    ]


def place_of(kind, folder):
    server, options = KINDS[kind]
    if server == "file":
        return str(Path(folder) / options)
    if server == "redis":
        from services.redis_servers import running

        return f"{running('valkey').url}/t{uuid.uuid4().hex[:10]}?{options}"
    from services.store_servers import running

    name = f"t{uuid.uuid4().hex[:10]}"
    if server == "mongodb":
        return f"{running(server).url}/bench/{name}?{options}"
    if server in ("postgresql", "mysql"):
        return f"{running(server).url}?table={name}&{options}"
    return running("s3").place(f"{name}/items.jsonl")


class Run:
    """One output with one worker."""

    def __init__(self, place, folder):
        from skitter.store.contract import OutputContext
        from skitter.store.outputs import open_output

        self.place = place
        self.output = open_output(place)
        self.context = OutputContext("bench", folder)
        self.ranges = {}
        self.written = 0

    async def open(self):
        from skitter.store.contract import StoreContext

        await self.output.check(self.context)
        self.store = self.output.store()
        await self.store.open(StoreContext("bench", f"w{uuid.uuid4().hex[:8]}", self.context.directory))

    async def write(self, items):
        """Write a number of items. Return how many seconds that takes."""
        batch = groups(self.written // PAGE_ITEMS, items)
        began = time.perf_counter()
        for mark in await self.store.write(batch):
            if mark is not None:
                ranges = self.ranges.setdefault(mark.part, [(mark.start, mark.start)])
                ranges[-1] = (ranges[-1][0], mark.end)
        self.written += items
        return time.perf_counter() - began

    async def close(self):
        await self.store.close()


async def side_by_side(kinds, items):
    runs = {}
    for kind in kinds:
        folder = tempfile.mkdtemp()
        place = await asyncio.to_thread(place_of, kind, folder)
        runs[kind] = Run(place, folder)
        await runs[kind].open()
    speeds = {kind: [] for kind in kinds}
    for _ in range(ROUNDS):
        seconds = dict.fromkeys(kinds, 0.0)
        for _ in range(SLICES):
            for kind, run in runs.items():
                seconds[kind] += await run.write(share(kind, items) // SLICES)
        for kind in kinds:
            speeds[kind].append(share(kind, items) / seconds[kind])
    for run in runs.values():
        await run.close()
    print(f"\n{'':24}{'items/s':>10}  median of {ROUNDS} rounds; lowest to highest")
    for kind, found in speeds.items():
        print(f"{kind:24}{statistics.median(found):>10,.0f}  {min(found):,.0f} to {max(found):,.0f}")
    return is_met(speeds)


def share(kind, items):
    """Return how many items a round writes: fewer of those that are written one by one."""
    return items // 10 if "plain" in kind else items


def is_met(speeds):
    """Show what buffering brings; returns whether MongoDB's is enough."""
    met = True
    for server in ("mongodb", "postgresql", "mysql"):
        plain, buffered = speeds.get(f"{server}, plain"), speeds.get(f"{server}, buffered")
        if plain and buffered:
            ratios = [fast / slow for slow, fast in zip(plain, buffered, strict=True)]
            ratio = statistics.median(ratios)
            print(f"{server}: buffered is {ratio:.1f} x plain ({min(ratios):.1f} to {max(ratios):.1f})")
            met = met and (server != "mongodb" or ratio >= GOAL)
    return met


async def fill(kind, items, folder):
    run = Run(await asyncio.to_thread(place_of, kind, folder), folder)
    await run.open()
    began = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    while run.written < items:
        await run.write(1000)
    wrote = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await run.close()
    await run.output.merge(run.context, run.ranges)
    seconds = time.perf_counter() - began
    merged = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    held = await asyncio.to_thread(count, kind, run)
    print(
        f"{kind:24}{held:>11,}{items / seconds:>10,.0f}{wrote:>9.1f} s{seconds - wrote:>9.1f} s"
        f"{before // 1024:>8} MB{after // 1024:>8} MB{merged // 1024:>8} MB",
        flush=True,
    )
    return held == items


def count(kind, run):
    """Ask, not by skitter, how many items are there."""
    server, _ = KINDS[kind]
    if server == "file":
        return count_in_file(Path(run.place))
    place, _, options = run.place.partition("?")
    if server == "mongodb":
        from pymongo import MongoClient

        uri, _, collection = place.rpartition("/")
        with MongoClient(uri) as client:
            return client.get_default_database()[collection].count_documents({})
    if server == "postgresql":
        import asyncpg

        async def ask():
            connection = await asyncpg.connect(place)
            table = options.partition("&")[0].removeprefix("table=")
            found = await connection.fetchval(f"SELECT count(*) FROM {table}")
            await connection.close()
            return found

        return asyncio.run(ask())
    if server == "mysql":
        from services.store_items import mysql_connection, table_of

        with mysql_connection(run.place) as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT count(*) AS held FROM {table_of(run.place)}")
            return cursor.fetchone()["held"]
    if server == "redis":
        from redis import Redis

        uri, _, key = place.rpartition("/")
        with Redis.from_url(uri) as client:
            return client.llen(key) if options == "type=list" else client.xlen(key)
    from services.store_items import bucket_files

    with bucket_files(options).open(place.removeprefix("s3://"), "rb") as file:
        return lines_in(file)


def count_in_file(path):
    if path.suffix == ".db":
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute("SELECT count(*) FROM items").fetchone()[0]
    if path.suffix == ".parquet":
        from pyarrow import parquet

        return parquet.ParquetFile(path).metadata.num_rows
    with path.open("rb") as file:
        return lines_in(file) - (path.suffix == ".csv")


def lines_in(file):
    return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--items", type=int, help="items a round, or in all with --million")
    parser.add_argument("--only", help="part of a kind's name")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        with tempfile.TemporaryDirectory() as folder:
            return asyncio.run(fill(options.one, options.items or 1_000_000, folder))
    kinds = [kind for kind in KINDS if not options.only or options.only in kind]
    if not options.million:
        return asyncio.run(side_by_side(kinds, options.items or 5000))
    print(
        f"{'':24}{'held':>11}{'items/s':>10}{'write':>11}{'merge':>11}{'start':>11}{'written':>11}{'merged':>11}",
        flush=True,
    )
    exact = True
    for kind in kinds:
        if "plain" not in kind:  # a process for each: the largest memory is of its whole life
            command = [sys.executable, __file__, "--one", kind, "--items", str(options.items or 1_000_000)]
            exact &= subprocess.run(command, check=False).returncode == 0
    return exact


if __name__ == "__main__":
    sys.exit(not main())
