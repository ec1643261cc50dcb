"""A job with one output, without workers and frontier, for the contract tests of outputs."""

import asyncio
import os
import uuid
from pathlib import Path

import redis

from services.redis_servers import running as redis_server
from services.store_items import bucket_files, read_file, read_served, read_sqlite
from services.store_servers import running
from skitter.store.contract import GroupError, ItemGroup, OutputContext, StoreContext
from skitter.store.outputs import open_output
from skitter.store.stdout import StdoutOutput

RANGED_FILES = ["items.jsonl", "items.jsonl.gz", "items.jsonl.zst", "items.csv", "items.parquet"]
LOCAL_RANGED = [*RANGED_FILES, "-"]
REMOTE = ["s3:items.jsonl.gz", "s3:items.csv"]
SHARED = ["shared:items.csv"]
"""Files whose parts are on a Redis server."""
RANGED = [*LOCAL_RANGED, *REMOTE, *SHARED]
MYSQL = ["mysql", "mysql?layout=json&buffer=1"]
MONGODB = ["mongodb", "mongodb?buffer=1", "ferretdb"]
DATABASES = [*MONGODB, "postgresql", "postgresql?layout=jsonb", *MYSQL, "opensearch"]
KEYED = ["items.db", *DATABASES]
EVERY = [*RANGED, *KEYED]


class Job:
    """A job with one output. It uses stores as a worker does, and its frontier is a plain dict."""

    def __init__(self, folder: Path, target: str, server=None, port=None) -> None:
        self.folder = folder / "job"
        self.folder.mkdir(parents=True)
        self.target = target
        self.keyed = target in KEYED
        self.place = place_for(target, folder, server)
        """Location of the items. ``port``: the port of a relay through which the job connects."""
        self._relay = port
        self.ranges: dict[str, list[tuple[int, int]]] = {}
        self.context = OutputContext("quotes", str(self.folder))
        self.output = self.run_again()

    def run_again(self):
        """Simulate a new parent process: earlier output is gone, as with ``> file`` in a shell."""
        if self.target == "-":
            output = StdoutOutput(os.open(self.place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
        else:
            output = open_output(self._name())
        return output

    def _name(self) -> str:
        place = str(self.place)
        return place.replace(f":{server_port(self.target)}/", f":{self._relay}/") if self._relay else place

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
        """Simulate a worker that was killed while it wrote to its part."""
        if self.target in REMOTE:
            path, _, options = self.place.removeprefix("s3://").partition("?")
            bucket_files(options).pipe_file(f"{path}.parts/quotes/{worker}/{2**40:020d}", torn)
        if self.target in SHARED:
            with redis.Redis.from_url(self.place.partition("?parts=")[2].rpartition("/")[0]) as client:
                for key in client.keys(f"{self.place.rpartition('/')[2]}:staged:quotes/*/{worker}"):
                    client.hset(key, 2**40, torn)  # a worker without items has no part
        for part in (self.folder / "parts").glob(f"items/{worker}.jsonl"):
            with part.open("ab") as file:
                file.write(torn)

    async def result(self) -> list[dict]:
        await self.output.merge(self.context, self.ranges)
        return await asyncio.to_thread(self._read)

    def _read(self) -> list[dict]:
        if self.target in SHARED:
            path = self.place.partition("?")[0]
            return read_file(path, Path(path).read_bytes())
        if isinstance(self.place, str):
            return read_served(self.place)
        return (
            read_sqlite(self.place)
            if self.target == "items.db"
            else read_file(self.target, self.place.read_bytes())
        )


def server_port(target: str) -> int:
    return running(target.partition("?")[0]).port


def place_for(target: str, folder: Path, server=None):
    """Return an unused location for a target. Starts the required server unless one is given."""
    kind, _, options = target.partition("?")
    name = f"t{uuid.uuid4().hex[:12]}"
    if kind in ("mongodb", "ferretdb"):
        return f"{(server or running(kind)).url}/tests/{name}" + (f"?{options}" if options else "")
    if kind in ("postgresql", "mysql"):
        return f"{(server or running(kind)).url}?table={name}" + (f"&{options}" if options else "")
    if kind == "opensearch":
        return (server or running("opensearch")).place(name) + (f"?{options}" if options else "")
    if target in SHARED:
        return f"{folder / target.partition(':')[2]}?parts={redis_server('valkey').url}/{name}"
    if target.startswith("s3:"):
        return (server or running("s3")).place(f"{name}/{target[3:]}")
    return folder / ("stdout" if target == "-" else target)


def page(number: int, *items) -> ItemGroup:
    return ItemGroup(number.to_bytes(16, "big"), items or ({"page": number},))


async def pages_in(job: Job) -> list[int]:
    return sorted(int(item["page"]) for item in await job.result())
