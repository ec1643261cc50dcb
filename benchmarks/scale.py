"""Fill an embedded frontier with millions of waiting URLs, and measure what it costs. See docs/design/embedded-frontier-experiments.md.

Hosts have Zipf sizes, as in ``simulation.py``. Each step runs in a process of its own, so that its memory is its own:
*fill* adds the URLs, ten new links of a page at a time; *reopen* opens the file; *work* leases and commits
pages of this file, each with four new links, and the same number of pages in a new frontier. With ``--against``, another
checkout does the same: its processes and ours take turns of a few hundred pages, so that other work on the machine
affects all of them alike.
"""

import argparse
import array
import asyncio
import gc
import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles

from measure import peak_mb, resident_mb
from simulation import Web, name_of

from skitter.frontier.embedded.frontier import EmbeddedFrontier
from skitter.frontier.options import FrontierSettings
from skitter.frontier.records import Entry, FetchReport, Outcome, Resolution
from skitter.politeness import HostLimits, Politeness
from skitter.request import Request, encode_request, fingerprint_of_url
from skitter.run.process import run_async

LINKS = 10
"""New links of a page, which share one record."""
NEW_LINKS = 4
"""New links of each page in *work*."""
LEASES = 16
PAUSE = 0.001
"""Seconds between two calls for leases, in which the frontier may read the next requests from its file."""
_CALLS_PER_CHUNK = 32
"""Calls for leases in each part of *work* whose CPU is measured on its own."""
_BATCH = 500
"""Pages that one call adds."""
_SECTIONS = ("news", "products", "articles", "archive", "forum", "blog", "help", "events")


def web_of(count, hosts):
    """Return a web with this number of hosts and about this number of pages."""
    low, high = 1, count
    while low < high:
        middle = (low + high) // 2
        if Web(hosts, middle).pages < count:
            low = middle + 1
        else:
            high = middle
    return Web(hosts, low)


def links_of(rank, page, amount, seed, *, kind="page", priority=0):
    """Return new links of a page of a host, all in the frontier's form."""
    host = name_of(rank)
    folder = f"https://{host}/{_SECTIONS[rank % len(_SECTIONS)]}/{2000 + page % 25}"
    referer = f"{folder}/index-{page}.html"
    record = encode_request(Request("", callback="parse_page", depth=4, referer=referer))
    urls = [f"{folder}/{kind}-{page * amount + number}-of-many.html" for number in range(amount)]
    return [Entry(fingerprint_of_url(url, seed), host, url, record, priority) for url in urls]


def politeness():
    return Politeness(HostLimits(delay=0))


async def fill(path, seen_limit, count, hosts):
    """Add about ``count`` URLs of hosts in random order."""
    web = web_of(count, hosts)
    pages = array.array("Q")
    for rank in range(1, hosts + 1):
        size = web.size(rank)
        pages.extend(
            rank << 40 | start // LINKS << 8 | min(LINKS, size - start) for start in range(0, size, LINKS)
        )
    random.Random(1).shuffle(pages)
    before = resident_mb()
    frontier = EmbeddedFrontier(politeness(), FrontierSettings(seen_memory_limit=seen_limit), path=path)
    job = await frontier.open()
    added, begin, slowest = 0, time.monotonic(), 0.0
    for first in range(0, len(pages), _BATCH):
        entries = []
        for packed in pages[first : first + _BATCH]:
            rank, page, amount = packed >> 40, packed >> 8 & 0xFFFFFFFF, packed & 0xFF
            entries += links_of(rank, page, LINKS, job.fingerprint_seed)[:amount]
        called = time.monotonic()
        added += (await frontier.add(entries)).added
        slowest = max(slowest, time.monotonic() - called)
    await frontier.close()
    seconds = time.monotonic() - begin
    return {
        "urls": added, "hosts": hosts, "seconds": seconds, "us_per_url": seconds / added * 1e6, "slowest_add_s": slowest,
        "resident_mb": resident_mb() - before, "peak_mb": peak_mb() - before, **sizes(path, added),
    }  # fmt: skip


def sizes(path, count):
    """Return the bytes of a file for each URL: all of them, by table, and of the URL itself."""
    with closing(sqlite3.connect(path)) as file:
        (text,) = file.execute("SELECT avg(length(url)) FROM (SELECT url FROM queue LIMIT 10000)").fetchone()
        tables = file.execute(
            "SELECT name, sum(pgsize) FROM dbstat GROUP BY name ORDER BY 2 DESC LIMIT 4"
        ).fetchall()
    return {
        "bytes_per_url": path.stat().st_size / count,
        "url_column": text,
        "tables": {name: round(size / count, 1) for name, size in tables},
    }


async def reopen(path, seen_limit):
    before, begin, cpu = resident_mb(), time.monotonic(), time.process_time()
    frontier = EmbeddedFrontier(politeness(), FrontierSettings(seen_memory_limit=seen_limit), path=path)
    await frontier.open()
    opened = {
        "seconds": time.monotonic() - begin,
        "cpu_s": time.process_time() - cpu,
        "resident_mb": resident_mb() - before,
    }
    await frontier.close()
    return {**opened, "peak_mb": peak_mb() - before}


async def work(path, seen_limit, pages, active, in_step=0):
    """Lease and commit pages of the ``active`` largest hosts, as one worker does: the next leases while the last pages are
    committed.

    One page of each host comes first. As hosts that have responded are preferred, all other pages are theirs, too.
    ``in_step``: wait for a line of input after each part.
    """
    before = resident_mb()
    frontier = EmbeddedFrontier(politeness(), FrontierSettings(seen_memory_limit=seen_limit), path=path)
    job = await frontier.open()
    await frontier.add(
        [
            entry
            for rank in range(1, active + 1)
            for entry in links_of(rank, 0, 1, job.fingerprint_seed, kind="first", priority=1)
        ]
    )
    await frontier.lease("w", 0)
    opened = resident_mb() - before
    waits, done, reports, outcomes, pending = [], 0, [], [], None
    gc.freeze()  # as in an owner
    cpu, begin = time.process_time(), time.monotonic()
    first, marks = None, []
    while done < pages:
        if len(waits) % _CALLS_PER_CHUNK == 0:
            marks.append((done, time.process_time()))
            if in_step:
                print(json.dumps(marks[-1]), flush=True)
                sys.stdin.readline()
        asked = time.perf_counter()
        result = await frontier.lease("w", LEASES, reports)
        waits.append(time.perf_counter() - asked)
        first = waits[0] if first is None else first
        if pending is not None:
            await pending
        # After the call that reported the ends of their fetches.
        pending = asyncio.create_task(frontier.commit(outcomes))
        outcomes = []
        for lease in result.leases:
            rank = int(lease.slot[len("www.site") : -len(".example")])
            done += 1
            links = links_of(rank, done, NEW_LINKS, job.fingerprint_seed, kind="new")
            known = await frontier.unknown([link.fingerprint for link in links])
            outcomes.append(
                Outcome(
                    lease.id, Resolution.DONE, [link for link, new in zip(links, known, strict=True) if new]
                )
            )
        reports = [FetchReport(lease.id, 0.01) for lease in result.leases]
        await asyncio.sleep(PAUSE)
    await pending
    await frontier.commit(outcomes)
    cpu, wall = time.process_time() - cpu, time.monotonic() - begin
    cuts = quantiles(waits, n=100)
    chunks = [(after - before) / (end - start) for (start, before), (end, after) in pairwise(marks)]
    report = {
        "pages": done, "cpu_us_per_page": cpu / done * 1e6, "cpu_us_median": median(chunks) * 1e6, "cpu_us_max": max(chunks) * 1e6, "wall_us_per_page": wall / done * 1e6, "first_lease_ms": first * 1e3,
        "lease_ms_50": cuts[49] * 1e3, "lease_ms_99": cuts[98] * 1e3, "lease_ms_max": max(waits) * 1e3,
        "opened_mb": opened, "resident_mb": resident_mb() - before, "peak_mb": peak_mb() - before,
    }  # fmt: skip
    await frontier.close()
    return report


STEPS = {"fill": fill, "reopen": reopen, "work": work}


def run(step, path, *numbers, checkout=None):
    """Run a step in a process of its own and print its figures."""
    command = command_of(step, path, *numbers)
    found = json.loads(
        subprocess.run(command, stdout=subprocess.PIPE, check=True, env=environment(checkout)).stdout
    )
    print(
        f"{step} {path.stem}: " + ", ".join(f"{name} {_shown(value)}" for name, value in found.items()),
        flush=True,
    )
    return found


def command_of(step, path, *numbers):
    return [sys.executable, __file__, "--step", step, str(path), *map(str, numbers)]


def environment(checkout):
    return None if checkout is None else {**os.environ, "PYTHONPATH": str(checkout / "src")}


def work_in_step(files, *numbers):
    """Do the same work on several files, given with the checkout for each, in turns. Return the CPU of a page of each in us."""
    workers, marks = {}, {path: [] for path in files}
    for path, checkout in files.items():
        workers[path] = subprocess.Popen(
            command_of("work", path, *numbers, 1), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=environment(checkout), text=True,
        )  # fmt: skip
    for path, worker in workers.items():
        marks[path].append(json.loads(worker.stdout.readline()))
    working = list(files)
    while working:
        for path in list(working):
            workers[path].stdin.write("\n")
            workers[path].stdin.flush()
            found = json.loads(workers[path].stdout.readline())
            if isinstance(found, list):
                marks[path].append(found)
            else:
                working.remove(path)
                assert workers[path].wait() == 0
    return {
        path: (some[-1][1] - some[0][1]) / (some[-1][0] - some[0][0]) * 1e6 for path, some in marks.items()
    }


def compare_checkouts(options, folder, limit):
    """Fill a file with each checkout, and work on them and on new ones in step."""
    full = {}
    for name, checkout in (("now", None), ("other", options.against)):
        full[name] = folder / f"full-{name}.db"
        if "fill" in options.steps:
            run("fill", full[name], limit, options.urls, options.hosts, checkout=checkout)
    for number in range(options.rounds):
        empty = {name: folder / f"empty-{name}{number}.db" for name in full}
        files = {}
        for name, checkout in (("other", options.against), ("now", None)):
            files |= {empty[name]: checkout, full[name]: checkout}
        cpu = work_in_step(files, limit, options.pages, options.active)
        for name in ("other", "now"):
            none, many = cpu[empty[name]], cpu[full[name]]
            print(f"{name}: empty {none:.1f} us, full {many:.1f} us, {many / none:.2f} times", flush=True)
            empty[name].unlink()


def _shown(value):
    return (
        f"{value:,.2f}"
        if isinstance(value, float)
        else f"{value:,}"
        if isinstance(value, int)
        else str(value)
    )


def _compare(title, name, rounds):
    ratios = sorted(many[name] / none[name] for none, many in rounds)
    print(f"{title}: {median(ratios):.2f} times ({', '.join(f'{ratio:.2f}' for ratio in ratios)})")


def main():
    if sys.argv[1:2] == ["--step"]:
        step, path, *numbers = sys.argv[2:]
        print(json.dumps(run_async(STEPS[step](Path(path), *map(int, numbers)))))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--urls", type=int, default=1_000_000)
    parser.add_argument("--hosts", type=int, default=50_000)
    parser.add_argument("--pages", type=int, default=5_000, help="in work")
    parser.add_argument("--active", type=int, default=300, help="hosts that are crawled in work")
    parser.add_argument("--rounds", type=int, default=1, help="of work")
    parser.add_argument("--seen-limit", type=int, default=10_000_000, help="the setting seen_memory_limit")
    parser.add_argument("--steps", default="fill,reopen,work")
    parser.add_argument("--folder", type=Path, help="keeps the frontier (default: none is kept)")
    parser.add_argument(
        "--against", type=Path, metavar="DIR", help="another checkout, which takes turns in work"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="skitter-scale-") as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(exist_ok=True)
        full = folder / "full.db"
        steps, limit = options.steps.split(","), options.seen_limit
        if options.against is not None:
            compare_checkouts(options, folder, limit)
            return
        if "fill" in steps:
            run("fill", full, limit, options.urls, options.hosts)
        if "reopen" in steps:
            run("reopen", full, limit)
        if "work" in steps:
            rounds = [
                (
                    run("work", Path(temporary, f"empty{number}.db"), limit, options.pages, options.active),
                    run("work", full, limit, options.pages, options.active),
                )
                for number in range(options.rounds)
            ]
            _compare("CPU per page beside an empty frontier", "cpu_us_per_page", rounds)
            _compare(
                f"medians of parts of {_CALLS_PER_CHUNK * LEASES} pages, without bursts",
                "cpu_us_median",
                rounds,
            )


if __name__ == "__main__":
    main()
