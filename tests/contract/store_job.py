"""A job with one output, without engine and frontier, for the tests of what every output promises."""

import asyncio
import csv
import gzip
import io
import json
import os
import sqlite3
import uuid
from contextlib import closing
from functools import cache
from pathlib import Path

import zstandard

from services.store_servers import BUCKET, running, s3_options
from skitter.store.base import GroupError, ItemGroup, OutputContext, StoreContext
from skitter.store.outputs import open_output
from skitter.store.stdout import StdoutOutput

RANGED_FILES = ["items.jsonl", "items.jsonl.gz", "items.jsonl.zst", "items.csv", "items.parquet"]
LOCAL_RANGED = [*RANGED_FILES, "-"]
REMOTE = ["s3:items.jsonl.gz", "s3:items.csv"]
RANGED = [*LOCAL_RANGED, *REMOTE]
DATABASES = ["mongodb", "mongodb?buffer=1", "postgresql", "postgresql?layout=jsonb"]
KEYED = ["items.db", *DATABASES]
EVERY = [*RANGED, *KEYED]


class Job:
    """One job with one output: what the engine does with stores, and a frontier that is a plain dict."""

    def __init__(self, folder: Path, target: str) -> None:
        self.folder = folder / "job"
        self.folder.mkdir(parents=True)
        self.target = target
        self.keyed = target in KEYED
        self.place = place_for(target, folder)
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

    def tear(self, worker: str, torn: bytes) -> None:
        """Leave behind what a worker leaves that is killed while it writes to its part."""
        if self.target in REMOTE:
            bucket_files().pipe_file(
                f"{self.place.removeprefix('s3://').partition('?')[0]}.parts/quotes/{worker}/{2**40:020d}",
                torn,
            )
        for part in (self.folder / "parts").glob(f"items/{worker}.jsonl"):
            with part.open("ab") as file:
                file.write(torn)

    async def result(self) -> list[dict]:
        await self.output.merge(self.context, self.ranges)
        return await asyncio.to_thread(self._read)

    def _read(self) -> list[dict]:
        kind = self.target.partition("?")[0]
        if kind in _READERS:
            return _READERS[kind](self.place)
        data = s3_bytes(self.place) if self.target in REMOTE else self.place.read_bytes()
        return read_file(self.target, data)


def place_for(target: str, folder: Path):
    """A place of its own for a target; a server that it needs is started."""
    kind, _, options = target.partition("?")
    name = f"t{uuid.uuid4().hex[:12]}"
    if kind == "mongodb":
        return f"{running('mongodb').url}/tests/{name}" + (f"?{options}" if options else "")
    if kind == "postgresql":
        return f"{running('postgresql').url}?table={name}" + (f"&{options}" if options else "")
    if target.startswith("s3:"):
        return f"s3://{BUCKET}/{name}/{target[3:]}?{s3_options()}"
    return folder / ("stdout" if target == "-" else target)


def read_file(name: str, data: bytes) -> list[dict]:
    """The items of a file."""
    if name.endswith(".gz"):
        data = gzip.decompress(data)
    if name.endswith(".zst"):
        data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
    if ".csv" in name:
        return list(csv.DictReader(io.StringIO(data.decode(), newline=""), strict=True))
    if name.endswith(".parquet"):
        from pyarrow import parquet

        return parquet.ParquetFile(io.BytesIO(data)).read().to_pylist()
    assert data.endswith(b"\n") or not data
    return [json.loads(line) for line in data.splitlines()]


def _read_sqlite(place) -> list[dict]:
    with closing(sqlite3.connect(place)) as connection:
        connection.row_factory = sqlite3.Row
        return _without_id(map(dict, connection.execute("SELECT * FROM items ORDER BY rowid")))


def _read_mongodb(place) -> list[dict]:
    from pymongo import MongoClient

    uri, _, collection = place.partition("?")[0].rpartition("/")
    with MongoClient(uri) as client:
        return _without_id(client.get_default_database()[collection].find())


def _read_postgresql(place) -> list[dict]:
    import asyncpg

    async def read():
        dsn, _, options = place.partition("?")
        connection = await asyncpg.connect(dsn)
        try:
            await connection.set_type_codec(
                "jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog"
            )
            table = options.partition("&")[0].removeprefix("table=")
            return [dict(row) for row in await connection.fetch(f"SELECT * FROM {table}")]
        finally:
            await connection.close()

    rows = _without_id(asyncio.run(read()))
    return [row["item"] for row in rows] if "layout=jsonb" in place else rows


_READERS = {"items.db": _read_sqlite, "mongodb": _read_mongodb, "postgresql": _read_postgresql}


def _without_id(rows) -> list[dict]:
    return [{name: value for name, value in row.items() if name != "_id"} for row in rows]


@cache
def bucket_files():
    """The bucket of the tests, as a file system."""
    import s3fs

    return s3fs.S3FileSystem(**running("s3").options, skip_instance_cache=True, use_listings_cache=False)


def s3_bytes(place) -> bytes:
    return bucket_files().cat_file(place.removeprefix("s3://").partition("?")[0])


def page(number: int, *items) -> ItemGroup:
    return ItemGroup(number.to_bytes(16, "big"), items or ({"page": number},))


async def pages_in(job: Job) -> list[int]:
    return sorted(int(item["page"]) for item in await job.result())
