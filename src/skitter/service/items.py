"""Items: where the service keeps the items of a run, so that every node can give them out page by page.

They go through the store contract as to any database: written under their ids before their page is committed, so each
is there once, whoever dies. A crawled page is one entry: its items one JSON text a line, under a number that tells the order
in which pages first came.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import msgspec

from skitter.errors import SkitterError, StoreError
from skitter.frontier.redis.serving import server_for
from skitter.item import encode_item
from skitter.own_thread import OwnThread
from skitter.store.address import Address
from skitter.store.base import StoreContext
from skitter.store.database import BufferTerms, Encoded, PageItems
from skitter.store.database_output import DatabaseOutput

_PAGES_AT_ONCE = 200
_PUT = """
-- KEYS: order, pages, counter. ARGV: pairs of page and its items
for i = 1, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    redis.call('HDEL', KEYS[2], ARGV[i])
    redis.call('ZREM', KEYS[1], ARGV[i])
  else
    if not redis.call('ZSCORE', KEYS[1], ARGV[i]) then
      redis.call('ZADD', KEYS[1], redis.call('INCR', KEYS[3]), ARGV[i])
    end
    redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1])
  end
end
return #ARGV / 2
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


class Pages(Protocol):
    """The kept pages of one run."""

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

    def __init__(self, url: str, run: str = "") -> None:
        self._url = url
        self._serve(run)
        self.name = f"items on {self._server.where}"

    def _serve(self, run: str) -> None:
        """Have the server that has the keys of a run."""
        self._run = run
        self._server = server_for(self._url, self._keys(run)[0])

    def _keys(self, run: str) -> list[str]:
        return [f"{{skitter-service:{run}}}:{name}" for name in ("order", "pages", "counter")]

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
            await self._server.command("EVAL", _PUT, 3, *self._keys(self._run), *given)
        except SkitterError as error:
            raise StoreError(str(error), remedy=error.remedy) from error
        return [""] * len(pages)

    async def check(self, job: str) -> None:
        """Nothing: that it is open tells all."""

    async def clear(self, job: str) -> None:
        """Forget the items of a run."""
        await self._server.command("UNLINK", *self._keys(job))

    async def close(self) -> None:
        """Disconnect."""
        await self._server.close()

    async def read(self, first: int, limit: int) -> list[tuple[int, bytes]]:
        """Return pages in the order in which they came."""
        await self._server.connect(patient=False)
        try:
            keys = self._keys(self._run)[:2]
            found = await self._server.command("EVAL", _READ, 2, *keys, first, limit)
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

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self.name = f"items in {self._path.name}"
        self._thread: OwnThread | None = None
        self._file: sqlite3.Connection | None = None

    async def open(self, context: StoreContext) -> None:
        """Open or make the file."""
        del context
        self._thread = OwnThread("items")
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
        thread = OwnThread("items")
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
                return file.execute(query, (first, limit)).fetchall()
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):  # it is being made
                return []
            raise StoreError(f"{self._path} cannot be read: {error}", remedy="check the disk") from error

    async def erase(self) -> None:
        """Nothing: the file goes with the folder of its run."""


def redis_items(address: Address) -> DatabaseOutput:
    """Return the output ``skitter.service.items:redis_items:URL``."""
    return DatabaseOutput("service", address.target, lambda: RedisPages(address.rest), BufferTerms())


def sqlite_items(address: Address) -> DatabaseOutput:
    """Return the output ``skitter.service.items:sqlite_items:PATH``."""
    return DatabaseOutput("service", address.target, lambda: SqlitePages(address.rest), BufferTerms())
