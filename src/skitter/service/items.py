"""Items: where the service keeps the items of a run, so that every node can give them out page by page.

They go through the store contract as to any database: written under their ids before their page is committed, so each
is there once, whoever dies. A crawled page is one entry: its items one JSON text a line, under a number that tells the order
in which pages first came.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import msgspec

from skitter._utils.executor import SingleThreadExecutor
from skitter.errors import SkitterError, StoreError
from skitter.frontier.redis.connect import server_for
from skitter.item import encode_item
from skitter.store.contract import OutputAddress, StoreContext
from skitter.store.database import BufferOptions, DatabaseOutput, Encoded, PageItems

_PAGES_AT_ONCE = 200
_FILE = "file:"
_PUT = """
-- KEYS: order, pages, counter, lists of tasks, order in the list of a task. ARGV: task or '', pairs of page and its items
for i = 2, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    redis.call('HDEL', KEYS[2], ARGV[i])
    redis.call('ZREM', KEYS[1], ARGV[i])
    redis.call('ZREM', KEYS[5], ARGV[i])
  else
    local number = redis.call('ZSCORE', KEYS[1], ARGV[i])
    if not number then
      number = redis.call('INCR', KEYS[3])
      redis.call('ZADD', KEYS[1], number, ARGV[i])
    end
    redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1])
    if ARGV[1] ~= '' then
      redis.call('SADD', KEYS[4], ARGV[1])
      redis.call('ZADD', KEYS[5], number, ARGV[i])
    end
  end
end
return (#ARGV - 1) / 2
"""
_READ = """
-- KEYS: order, pages. ARGV: least number, pages wanted. Returns numbers and items in turn.
local found, answer = redis.call('ZRANGEBYSCORE', KEYS[1], ARGV[1], '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[2]), {}
for i = 1, #found, 2 do
  answer[#answer + 1] = found[i + 1]
  answer[#answer + 1] = redis.call('HGET', KEYS[2], found[i]) or ''
end
return answer
"""


STORE = "SKITTER_SERVICE_ITEMS"
"""Variable that tells a process of a run where its items are kept: it may hold a password, so no file names it."""


class Pages(Protocol):
    """The kept pages of one run, or those of one of its tasks that has a list of its own."""

    async def read(self, first: int, limit: int) -> list[tuple[int, bytes]]:
        """Return up to so many pages from a number on, each with its number."""
        ...

    async def erase(self) -> None:
        """Forget all of them."""
        ...


class ItemPage(msgspec.Struct):
    """Some items of a run."""

    items: list[msgspec.Raw]
    next: str | None
    """Where the items after these begin; ``None``: there are none now."""


async def read_items(pages: Pages, after: tuple[int, int], limit: int) -> ItemPage:
    """Return up to ``limit`` items after a place: the number of a page, and how many of its items were read."""
    found: list[msgspec.Raw] = []
    while True:
        rows = await pages.read(after[0], _PAGES_AT_ONCE)
        for number, packed in rows:
            lines = packed.split(b"\n")
            skipped = after[1] if number == after[0] else 0
            taken = lines[skipped : skipped + limit - len(found)]
            found += [msgspec.Raw(line) for line in taken]
            after = (number, skipped + len(taken))
            if len(found) >= limit:
                return ItemPage(found, f"{after[0]}.{after[1]}")
        if len(rows) < _PAGES_AT_ONCE:
            return ItemPage(found, None if not found else f"{after[0]}.{after[1]}")
        after = (after[0] + 1, 0)


def _packed(page: PageItems) -> bytes:
    return b"\n".join(item.data for item in page.items)


class RedisPages:
    """The pages of a run on a Valkey or Redis server or Cluster; also the driver of the store that writes them."""

    def __init__(self, url: str, run: str = "", task: str = "") -> None:
        self._url = url
        self._task = task
        self._serve(run)
        self.name = f"items on {self._server.where}"

    def _serve(self, run: str) -> None:
        """Have the server that has the keys of a run."""
        self._run = run
        self._server = server_for(self._url, self._keys(run)[0])

    def _keys(self, run: str) -> list[str]:
        names = ("order", "pages", "counter", "tasks", f"order:{self._task}")
        return [f"{{skitter-service:{run}}}:{name}" for name in names]

    async def open(self, context: StoreContext) -> None:
        """Connect."""
        self._serve(context.job)
        await self._server.connect(patient=True)

    def encode(self, item: Any) -> Encoded:
        """Encode an item as JSON, which holds no line break."""
        return Encoded(encode_item(item))

    async def put(self, pages: Sequence[PageItems]) -> list[str]:
        """Make the store hold exactly these items of these pages."""
        given = [part for page in pages for part in (page.prefix, _packed(page))]
        try:
            keys = self._keys(self._run)
            await self._server.command("EVAL", _PUT, len(keys), *keys, self._task, *given)
        except SkitterError as error:
            raise StoreError(str(error), remedy=error.remedy) from error
        return [""] * len(pages)

    async def check(self, job: str) -> None:
        """Nothing: that it is open tells all."""

    async def clear(self, job: str) -> None:
        """Forget the items of a run."""
        keys = self._keys(job)
        lists = await self._server.command("SMEMBERS", keys[3])
        await self._server.command("UNLINK", *keys, *(f"{keys[0]}:{task.decode()}" for task in lists))

    async def close(self) -> None:
        """Disconnect."""
        await self._server.close()

    async def read(self, first: int, limit: int) -> list[tuple[int, bytes]]:
        """Return pages in the order in which they came."""
        await self._server.connect(patient=False)
        try:
            order, pages, _, _, own_order = self._keys(self._run)
            order = own_order if self._task else order
            found = await self._server.command("EVAL", _READ, 2, order, pages, first, limit)
        finally:
            await self._server.close()
        return [(int(number), data) for number, data in zip(found[::2], found[1::2], strict=True)]

    async def erase(self) -> None:
        """Forget the run's items."""
        await self._server.connect(patient=False)
        try:
            await self.clear(self._run)
        finally:
            await self._server.close()


class SqlitePages:
    """The pages of a run in a file; also the driver of the store that writes them."""

    def __init__(self, path: str | Path, task: str = "") -> None:
        self._path = Path(path)
        self._task = task
        self.name = f"items in {self._path.name}"
        self._thread: SingleThreadExecutor | None = None
        self._file: sqlite3.Connection | None = None

    async def open(self, context: StoreContext) -> None:
        """Open or make the file."""
        del context
        self._thread = SingleThreadExecutor("items")
        await self._thread.run(self._open)

    def _open(self) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = sqlite3.connect(
                self._path, timeout=30, isolation_level=None, check_same_thread=False
            )
            self._file.execute("PRAGMA journal_mode=WAL")
            self._file.execute("PRAGMA synchronous=NORMAL")
            self._file.execute(
                "CREATE TABLE IF NOT EXISTS pages"
                " (number INTEGER PRIMARY KEY AUTOINCREMENT, page TEXT UNIQUE, items BLOB)"
            )
            self._file.execute(
                "CREATE TABLE IF NOT EXISTS lists (task TEXT, number INTEGER, PRIMARY KEY (task, number)) WITHOUT ROWID"
            )
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"{self._path} cannot be used: {error}", remedy="check the folder") from error

    def encode(self, item: Any) -> Encoded:
        """Encode an item as JSON, which holds no line break."""
        return Encoded(encode_item(item))

    async def put(self, pages: Sequence[PageItems]) -> list[str]:
        """Make the file hold exactly these items of these pages."""
        assert self._thread is not None
        await self._thread.run(self._put, pages)
        return [""] * len(pages)

    def _put(self, pages: Sequence[PageItems]) -> None:
        assert self._file is not None
        try:
            self._file.execute("BEGIN IMMEDIATE")
            for page in pages:
                if page.items:
                    self._file.execute(
                        "INSERT INTO pages (page, items) VALUES (?, ?)"
                        " ON CONFLICT (page) DO UPDATE SET items = excluded.items",
                        (page.prefix, _packed(page)),
                    )
                    if self._task:
                        self._file.execute(
                            "INSERT OR IGNORE INTO lists SELECT ?, number FROM pages WHERE page = ?",
                            (self._task, page.prefix),
                        )
                else:
                    self._file.execute("DELETE FROM pages WHERE page = ?", (page.prefix,))
            self._file.execute("COMMIT")
        except sqlite3.Error as error:
            if self._file.in_transaction:
                self._file.execute("ROLLBACK")
            raise StoreError(f"{self._path} cannot be written: {error}", remedy="check the disk") from error

    async def check(self, job: str) -> None:
        """Nothing: that it is open tells all."""

    async def clear(self, job: str) -> None:
        """Forget all pages."""
        del job
        assert self._thread is not None
        assert self._file is not None
        await self._thread.run(self._file.execute, "DELETE FROM pages")

    async def close(self) -> None:
        """Close the file."""
        if self._thread is not None:
            if self._file is not None:
                await self._thread.run(self._file.close)
            self._thread.stop()

    async def read(self, first: int, limit: int) -> list[tuple[int, bytes]]:
        """Return pages in the order in which they came."""
        thread = SingleThreadExecutor("items")
        try:
            return await thread.run(self._read, first, limit)
        finally:
            thread.stop()

    def _read(self, first: int, limit: int) -> list[tuple[int, bytes]]:
        if not self._path.exists():
            return []
        try:
            with closing(sqlite3.connect(self._path, timeout=30)) as file:
                query = "SELECT number, items FROM pages WHERE number >= ? ORDER BY number LIMIT ?"
                if not self._task:
                    return file.execute(query, (first, limit)).fetchall()
                query = (
                    "SELECT number, items FROM lists JOIN pages USING (number) WHERE task = ? AND number >= ?"
                )
                query += " ORDER BY number LIMIT ?"
                return file.execute(query, (self._task, first, limit)).fetchall()
        except sqlite3.Error as error:
            if "no such table" in str(error):  # it is being made
                return []
            raise StoreError(f"{self._path} cannot be read: {error}", remedy="check the disk") from error

    async def erase(self) -> None:
        """Nothing: the file goes with the folder of its run."""


def redis_items(address: OutputAddress) -> DatabaseOutput:
    """Return the output ``skitter.service.items:redis_items:URL``."""
    return DatabaseOutput("service", address.target, lambda: RedisPages(address.rest), BufferOptions())


def sqlite_items(address: OutputAddress) -> DatabaseOutput:
    """Return the output ``skitter.service.items:sqlite_items:PATH``."""
    return DatabaseOutput("service", address.target, lambda: SqlitePages(address.rest), BufferOptions())


def task_items(address: OutputAddress) -> DatabaseOutput:
    """Return the output ``skitter.service.items:task_items:TASK``, TASK in hexadecimal: its list among those of the run."""
    task, store = bytes.fromhex(address.rest).decode(), os.environ.get(STORE, "")
    if not store:
        raise StoreError(f"{STORE} is not set", remedy="leave this output to the nodes of a service")
    if store.startswith(_FILE):
        path = store.removeprefix(_FILE)
        return DatabaseOutput("service", address.target, lambda: SqlitePages(path, task), BufferOptions())
    return DatabaseOutput("service", address.target, lambda: RedisPages(store, task=task), BufferOptions())


def task_target(task: str) -> str:
    """Return the name of the output that is the list of a task."""
    return f"{__name__}:task_items:{task.encode().hex()}"


def store_of(url: str, path: Path) -> str:
    """Return what :data:`STORE` says: the URL of the server, or, without one, the file of the run."""
    return url or f"{_FILE}{path}"
