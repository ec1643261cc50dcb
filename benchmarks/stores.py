"""Items per second and memory of the stores, on real servers of this machine.

    python benchmarks/stores.py              # MongoDB plain beside buffered, side by side, then every other store
    python benchmarks/stores.py --million    # a million items into each store, with the largest memory in use

Needs the servers of the dependency group `services` and PostgreSQL; those that are missing are left out. A round writes to one store
after the other, so that what else the machine does meets all of them. Figures are those of the store alone: no fetching, no frontier.
"""

import argparse
import asyncio
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src")]

ROUNDS = 5
PAGE_ITEMS = 10
KINDS = {
    "mongodb, plain": ("mongodb", "buffer=1"),
    "mongodb, buffered": ("mongodb", "buffer=1000"),
    "postgresql, plain": ("postgresql", "buffer=1"),
    "postgresql, buffered": ("postgresql", "buffer=1000"),
    "postgresql, jsonb": ("postgresql", "buffer=1000&layout=jsonb"),
    "s3, jsonl": ("s3", ""),
    "sqlite": ("file", "items.db"),
    "jsonl": ("file", "items.jsonl"),
    "csv": ("file", "items.csv"),
    "parquet": ("file", "items.parquet"),
}


def groups(first, count):
    from skitter.store.base import ItemGroup

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
    from services.store_servers import running

    name = f"t{uuid.uuid4().hex[:10]}"
    if server == "mongodb":
        return f"{running(server).url}/bench/{name}?{options}"
    if server == "postgresql":
        return f"{running(server).url}?table={name}&{options}"
    return running("s3").place(f"{name}/items.jsonl")


class Run:
    """One output with one worker."""

    def __init__(self, place, folder):
        from skitter.store.base import OutputContext
        from skitter.store.outputs import open_output

        self.output = open_output(place)
        self.context = OutputContext("bench", folder)
        self.ranges = {}
        self.written = 0

    async def open(self):
        from skitter.store.base import StoreContext

        await self.output.check(self.context)
        self.store = self.output.store()
        await self.store.open(StoreContext("bench", f"w{uuid.uuid4().hex[:8]}", self.context.directory))

    async def write(self, items):
        """Write so many items; returns how many a second."""
        batch = groups(self.written // PAGE_ITEMS, items)
        began = time.perf_counter()
        for mark in await self.store.write(batch):
            if mark is not None:
                ranges = self.ranges.setdefault(mark.part, [(mark.start, mark.start)])
                ranges[-1] = (ranges[-1][0], mark.end)
        self.written += items
        return items / (time.perf_counter() - began)

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
        for kind, run in runs.items():
            speeds[kind].append(await run.write(items if "plain" not in kind else items // 10))
    for run in runs.values():
        await run.close()
    middle = {kind: statistics.median(found) for kind, found in speeds.items()}
    print(f"\n{'':24}{'items/s':>10}  median of {ROUNDS} rounds; lowest to highest")
    for kind, found in speeds.items():
        print(f"{kind:24}{middle[kind]:>10,.0f}  {min(found):,.0f} to {max(found):,.0f}")
    for server in ("mongodb", "postgresql"):
        plain, buffered = middle.get(f"{server}, plain"), middle.get(f"{server}, buffered")
        if plain and buffered:
            print(f"{server}: buffered is {buffered / plain:.1f} x plain")


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
    whole = time.perf_counter() - began
    merged = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"{kind:24}{items:>11,}{wrote:>9.1f} s{whole - wrote:>9.1f} s{before // 1024:>8} MB{after // 1024:>8} MB{merged // 1024:>8} MB",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--items", type=int, help="items a round, or in all with --million")
    parser.add_argument("--only", help="part of a kind's name")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(fill(given.one, given.items or 1_000_000, folder))
        return
    kinds = [kind for kind in KINDS if not given.only or given.only in kind]
    if not given.million:
        asyncio.run(side_by_side(kinds, given.items or 5000))
        return
    print(f"{'':24}{'items':>11}{'write':>11}{'merge':>11}{'start':>11}{'written':>11}{'merged':>11}")
    for kind in kinds:
        if "plain" not in kind:  # a process for each: the largest memory is of its whole life
            command = [sys.executable, __file__, "--one", kind, "--items", str(given.items or 1_000_000)]
            subprocess.run(command, check=False)


if __name__ == "__main__":
    main()
