"""A job with one output, without engine and frontier, for the tests of what every output promises."""

import asyncio
import csv
import gzip
import io
import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import zstandard

from skitter.store.base import GroupError, ItemGroup, OutputContext, StoreContext
from skitter.store.outputs import open_output
from skitter.store.stdout import StdoutOutput

RANGED_FILES = ["items.jsonl", "items.jsonl.gz", "items.jsonl.zst", "items.csv"]
RANGED = [*RANGED_FILES, "-"]
EVERY = [*RANGED, "items.db"]


class Job:
    """One job with one output: what the engine does with stores, and a frontier that is a plain dict."""

    def __init__(self, folder: Path, target: str) -> None:
        self.folder = folder / "job"
        self.folder.mkdir(parents=True)
        self.target = target
        self.place = folder / ("stdout" if target == "-" else target)
        self.ranges: dict[str, list[tuple[int, int]]] = {}
        self.context = OutputContext("quotes", str(self.folder))
        self.output = self.run_again()

    def run_again(self):
        """A new parent process: what it printed before is gone, as with ``> file`` in a shell."""
        if self.target == "-":
            output = StdoutOutput(os.open(self.place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
        else:
            output = open_output(str(self.place))
        return output

    async def worker(self, name: str):
        store = self.output.store()
        await store.open(StoreContext("quotes", name, str(self.folder)))
        return store

    def commit(self, marks) -> None:
        for mark in marks:
            if mark is not None:
                assert not isinstance(mark, GroupError), mark
                self.ranges.setdefault(mark.part, []).append((mark.start, mark.end))

    async def visit(self, store, *groups: ItemGroup) -> None:
        self.commit(await store.write(groups))

    async def result(self) -> list[dict]:
        await self.output.merge(self.context, self.ranges)
        return await asyncio.to_thread(self._read)

    def _read(self) -> list[dict]:
        if self.target == "items.db":
            with closing(sqlite3.connect(self.place)) as connection:
                connection.row_factory = sqlite3.Row
                rows = map(dict, connection.execute("SELECT * FROM items ORDER BY rowid"))
                return [{name: value for name, value in row.items() if name != "_id"} for row in rows]
        data = self.place.read_bytes()
        if self.target.endswith(".gz"):
            data = gzip.decompress(data)
        if self.target.endswith(".zst"):
            data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
        if self.target == "items.csv":
            return list(csv.DictReader(io.StringIO(data.decode(), newline=""), strict=True))
        assert data.endswith(b"\n") or not data
        return [json.loads(line) for line in data.splitlines()]


def page(number: int, *items) -> ItemGroup:
    return ItemGroup(number.to_bytes(16, "big"), items or ({"page": number},))


async def pages_in(job: Job) -> list[int]:
    return sorted(int(item["page"]) for item in await job.result())
