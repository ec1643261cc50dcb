"""RunLog: where the service keeps the log of a run, so that every node can give it out, and no more of it than it may have.

Lines are numbered from 1 on in the order in which they were kept. When there are too many the oldest go; numbers are
never used again, so a reader who asks for those after a number misses none and gets none twice.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Protocol

from skitter._utils.executor import SingleThreadExecutor
from skitter.errors import StoreError
from skitter.frontier.redis.connect import server_for
from skitter.frontier.redis.server import RedisServer

_BESIDE = 32
"""Bytes that a line takes besides its own, about: it counts, so that short lines are bounded, too."""
_KEEP = """
-- KEYS: lines, their state. ARGV: bytes in all, node, number of this call of the node, bytes beside a line, lines
-- A call that is repeated because its answer was lost does nothing.
local done = redis.call('HGET', KEYS[2], 'node:' .. ARGV[2])
if done and tonumber(done) >= tonumber(ARGV[3]) then return 0 end
local size = tonumber(redis.call('HGET', KEYS[2], 'size') or 0)
for i = 5, #ARGV do
  redis.call('RPUSH', KEYS[1], ARGV[i])
  size = size + #ARGV[i] + ARGV[4]
end
while size > tonumber(ARGV[1]) and redis.call('LLEN', KEYS[1]) > 1 do
  size = size - #redis.call('LPOP', KEYS[1]) - ARGV[4]
  redis.call('HINCRBY', KEYS[2], 'gone', 1)
end
redis.call('HSET', KEYS[2], 'size', size, 'node:' .. ARGV[2], ARGV[3])
return 1
"""
_READ = """
-- KEYS: lines, their state. ARGV: number of the line before, lines wanted. Returns how many are gone, and lines.
local gone = tonumber(redis.call('HGET', KEYS[2], 'gone') or 0)
local first = math.max(tonumber(ARGV[1]) - gone, 0)
return {gone, redis.call('LRANGE', KEYS[1], first, first + ARGV[2] - 1)}
"""


class RunLog(Protocol):
    """The kept lines of one run. Errors are :class:`~skitter.errors.SkitterError`: the store is away, full or broken."""

    async def keep(self, lines: Sequence[bytes], call: int) -> None:
        """Keep lines. ``call`` is higher than that of any call before of this node; one that is repeated does nothing."""
        ...

    async def read(self, after: int, limit: int) -> list[tuple[int, bytes]]:
        """Return up to so many lines that come after a number, each with its own."""
        ...

    async def erase(self) -> None:
        """Forget all of them."""
        ...

    async def close(self) -> None:
        """Let go."""
        ...


class RedisLog:
    """The log of a run on a Valkey or Redis server or Cluster: a list, and a hash that counts."""

    def __init__(self, url: str, run: str, largest: int, node: str = "") -> None:
        tag = f"{{skitter-service:{run}}}"
        self._keys = (f"{tag}:log", f"{tag}:log-state")
        self._largest = largest
        self._node = node
        # Nobody waits for it in vain: who keeps a log tries again, who reads one is told.
        self._server: RedisServer = server_for(url, self._keys[0], patience=0.0)
        self._is_open = False

    async def _open(self) -> None:
        if not self._is_open:
            await self._server.connect(patient=False)
            self._is_open = True

    async def keep(self, lines: Sequence[bytes], call: int) -> None:
        """Keep lines, and forget the oldest."""
        await self._open()
        await self._server.command(
            "EVAL", _KEEP, 2, *self._keys, self._largest, self._node, call, _BESIDE, *lines
        )

    async def read(self, after: int, limit: int) -> list[tuple[int, bytes]]:
        """Return lines in the order in which they came."""
        await self._open()
        gone, found = await self._server.command("EVAL", _READ, 2, *self._keys, after, limit)
        return list(enumerate(found, max(after, gone) + 1))

    async def erase(self) -> None:
        """Forget all."""
        await self._open()
        await self._server.command("UNLINK", *self._keys)

    async def close(self) -> None:
        """Disconnect."""
        self._is_open = False
        await self._server.close()


class SqliteLog:
    """The log of a run in a file of the one node that there is."""

    def __init__(self, path: Path, largest: int) -> None:
        self._path = path
        self._largest = largest
        self._thread = SingleThreadExecutor("log")
        self._file: sqlite3.Connection | None = None
        self._size = 0

    async def keep(self, lines: Sequence[bytes], call: int) -> None:
        """Keep lines, and forget the oldest."""
        del call  # what a transaction has done is known
        await self._thread.run(self._keep, lines)

    def _keep(self, lines: Sequence[bytes]) -> None:
        try:
            file = self._opened()
            file.execute("BEGIN IMMEDIATE")
            file.executemany("INSERT INTO lines (data) VALUES (?)", [(line,) for line in lines])
            size = self._trimmed(file, self._size + sum(len(line) + _BESIDE for line in lines))
            file.execute("COMMIT")
            self._size = size
        except (sqlite3.Error, OSError) as error:
            self._let_go()
            raise StoreError(f"{self._path} cannot be written: {error}", remedy="check the disk") from error

    def _opened(self) -> sqlite3.Connection:
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = sqlite3.connect(self._path, timeout=5, isolation_level=None, check_same_thread=False)
            self._file = file
            file.execute("PRAGMA journal_mode=WAL")
            file.execute("PRAGMA synchronous=NORMAL")
            file.execute(
                "CREATE TABLE IF NOT EXISTS lines (number INTEGER PRIMARY KEY AUTOINCREMENT, data BLOB)"
            )
            query = f"SELECT coalesce(sum(length(data) + {_BESIDE}), 0) FROM lines"  # noqa: S608 - a number of ours
            self._size = file.execute(query).fetchone()[0]
        return self._file

    def _trimmed(self, file: sqlite3.Connection, size: int) -> int:
        """Forget the oldest lines but the last one, while there is too much; return what is left."""
        if size <= self._largest:
            return size
        last, until = file.execute("SELECT max(number) FROM lines").fetchone()[0], 0
        for number, length in file.execute("SELECT number, length(data) FROM lines ORDER BY number"):
            if size <= self._largest or number == last:
                break
            size -= length + _BESIDE
            until = number
        file.execute("DELETE FROM lines WHERE number <= ?", (until,))
        return size

    def _let_go(self) -> None:
        """Close the file, which rolls back what was begun; the next call tries anew."""
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    async def read(self, after: int, limit: int) -> list[tuple[int, bytes]]:
        """Return lines in the order in which they came."""
        return await self._thread.run(self._read, after, limit)

    def _read(self, after: int, limit: int) -> list[tuple[int, bytes]]:
        if not self._path.exists():
            return []
        try:
            with closing(sqlite3.connect(self._path, timeout=5)) as file:
                query = "SELECT number, data FROM lines WHERE number > ? ORDER BY number LIMIT ?"
                return file.execute(query, (after, limit)).fetchall()
        except sqlite3.Error as error:
            if "no such table" in str(error):  # it is being made
                return []
            raise StoreError(f"{self._path} cannot be read: {error}", remedy="check the disk") from error

    async def erase(self) -> None:
        """Nothing: the node removes the file when no job names its run."""

    async def close(self) -> None:
        """Close the file."""
        await self._thread.run(self._let_go)
        self._thread.stop()
