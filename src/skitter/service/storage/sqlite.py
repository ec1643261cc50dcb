"""Storage of a service that has one node: a key-value store and append-only logs in SQLite files."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from skitter._utils.concurrency import SingleThreadExecutor
from skitter.errors import FrontierError, SkitterError, StoreError
from skitter.service.storage import ENTRY_OVERHEAD
from skitter.store.sqlite import BUSY_SECONDS, transaction, use_write_ahead_log

_T = TypeVar("_T")
_RECORD_TABLES = """
CREATE TABLE IF NOT EXISTS records (kind TEXT, name TEXT, data BLOB, PRIMARY KEY (kind, name));
CREATE TABLE IF NOT EXISTS leases (duty TEXT PRIMARY KEY, owner TEXT, until REAL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS nodes (node TEXT PRIMARY KEY, status BLOB, until REAL) WITHOUT ROWID;
"""
_LOG_TABLES = """
CREATE TABLE IF NOT EXISTS entries (position INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT, data BLOB);
CREATE UNIQUE INDEX IF NOT EXISTS entry_keys ON entries (key) WHERE key IS NOT NULL;
CREATE TABLE IF NOT EXISTS groups (name TEXT, position INTEGER, PRIMARY KEY (name, position)) WITHOUT ROWID;
"""
_SIZE = f"SELECT coalesce(sum(length(data) + {ENTRY_OVERHEAD}), 0) FROM entries"  # noqa: S608 - a constant
_PUT = """
INSERT INTO entries (key, data) VALUES (?, ?) ON CONFLICT (key) WHERE key IS NOT NULL DO UPDATE SET data = excluded.data
"""
_READ = "SELECT position, data FROM entries WHERE position > ? ORDER BY position LIMIT ?"
_READ_GROUP = """
SELECT position, data FROM groups JOIN entries USING (position) WHERE name = ? AND position > ? ORDER BY position LIMIT ?
"""


class _SqliteFile:
    """A file that one thread reads and writes. It is opened on first use, and reopened after an error."""

    def __init__(self, path: Path, tables: str, error: type[SkitterError]) -> None:
        self.path = path
        self._tables = tables
        self._error = error
        self._thread: SingleThreadExecutor | None = None
        self._db: sqlite3.Connection | None = None

    async def run(self, call: Callable[[sqlite3.Connection], _T]) -> _T:
        """Run a call on the open file."""
        self._thread = self._thread or SingleThreadExecutor("service-file")
        return await self._thread.run(self._run, call)

    def _run(self, call: Callable[[sqlite3.Connection], _T]) -> _T:
        try:
            return call(self._db or self._open())
        except (sqlite3.Error, OSError) as error:
            self._close()  # which rolls back an open transaction
            raise self._error(
                f"cannot use {self.path}: {error}", remedy="check the disk, the folder and its permissions"
            ) from error

    def _open(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(
            self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        use_write_ahead_log(self._db)
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.executescript(self._tables)
        return self._db

    def _close(self) -> None:
        if self._db is not None:
            db, self._db = self._db, None
            db.close()

    async def close(self) -> None:
        """Close the file."""
        if self._thread is not None:
            await self._thread.run(self._close)
            self._thread.stop()
            self._thread = None


class SqliteKeyValueStore:
    """Records in one file. Several processes of one machine may share it.

    Implements :class:`~skitter.service.storage.KeyValueStore`.
    """

    def __init__(self, path: Path) -> None:
        self._file = _SqliteFile(path, _RECORD_TABLES, FrontierError)

    async def open(self) -> None:
        await self._file.run(lambda _: None)

    async def close(self) -> None:
        await self._file.close()

    async def get(self, kind: str, name: str) -> bytes | None:
        return await self._file.run(lambda db: _record(db, kind, name))

    async def size(self, kind: str, name: str) -> int:
        # The table has row ids. In a table WITHOUT ROWID, SQLite would read the whole record for its length.
        query = "SELECT coalesce(max(length(data)), 0) FROM records WHERE kind = ? AND name = ?"
        return await self._file.run(lambda db: int(db.execute(query, (kind, name)).fetchone()[0]))

    async def all(self, kind: str) -> dict[str, bytes]:
        query = "SELECT name, data FROM records WHERE kind = ? ORDER BY name"
        return await self._file.run(lambda db: dict(db.execute(query, (kind,)).fetchall()))

    async def compare_and_swap(self, kind: str, name: str, old: bytes | None, new: bytes | None) -> bool:
        def swap(db: sqlite3.Connection) -> bool:
            with transaction(db):
                current = _record(db, kind, name)
                if current != old:
                    return current == new
                if new is None:
                    db.execute("DELETE FROM records WHERE kind = ? AND name = ?", (kind, name))
                else:
                    db.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?)", (kind, name, new))
                return True

        return await self._file.run(swap)

    async def acquire_lease(self, duty: str, owner: str, seconds: float) -> bool:
        def acquire(db: sqlite3.Connection) -> bool:
            with transaction(db):
                now = time.time()
                row = db.execute("SELECT owner, until FROM leases WHERE duty = ?", (duty,)).fetchone()
                if row is not None and row[0] != owner and row[1] > now:
                    return False
                db.execute("INSERT OR REPLACE INTO leases VALUES (?, ?, ?)", (duty, owner, now + seconds))
                return True

        return await self._file.run(acquire)

    async def announce(self, node: str, status: bytes, seconds: float) -> None:
        def publish(db: sqlite3.Connection) -> None:
            with transaction(db):
                now = time.time()
                db.execute("DELETE FROM nodes WHERE until <= ? OR node = ?", (now, node))
                if seconds > 0:
                    db.execute("INSERT INTO nodes VALUES (?, ?, ?)", (node, status, now + seconds))

        await self._file.run(publish)

    async def nodes(self) -> dict[str, bytes]:
        query = "SELECT node, status FROM nodes WHERE until > ? ORDER BY node"
        return await self._file.run(lambda db: dict(db.execute(query, (time.time(),)).fetchall()))


def _record(db: sqlite3.Connection, kind: str, name: str) -> bytes | None:
    row = db.execute("SELECT data FROM records WHERE kind = ? AND name = ?", (kind, name)).fetchone()
    return None if row is None else row[0]


class SqliteAppendLog:
    """A log in one file. Several processes of one machine may share it. Implements :class:`~skitter.service.storage.AppendLog`.

    ``path``: the file. The first write creates it.
    ``max_bytes``: maximum size; 0 means no limit. A log with a limit has one writer at a time.
    """

    def __init__(self, path: Path, max_bytes: int = 0) -> None:
        self.name = path.name
        self._file = _SqliteFile(path, _LOG_TABLES, StoreError)
        self._max_bytes = max_bytes
        self._size: int | None = None
        """Size of a log with a limit; ``None`` if it has to be computed."""

    async def open(self) -> None:
        await self._file.run(lambda _: None)

    async def close(self) -> None:
        await self._file.close()

    async def append(self, entries: Sequence[bytes], batch: int) -> None:
        """Append entries and drop the oldest ones. A failed transaction changes nothing, so ``batch`` is not needed."""
        del batch

        def append(db: sqlite3.Connection) -> None:
            size, self._size = self._size, None  # unknown until the transaction is committed
            with transaction(db):
                if size is None and self._max_bytes:
                    size = db.execute(_SIZE).fetchone()[0]
                db.executemany("INSERT INTO entries (data) VALUES (?)", [(entry,) for entry in entries])
                if size is not None:
                    size += sum(len(entry) + ENTRY_OVERHEAD for entry in entries)
                    size = self._drop_oldest(db, size)
            self._size = size

        await self._file.run(append)

    def _drop_oldest(self, db: sqlite3.Connection, size: int) -> int:
        """Drop the oldest entries, but never the last one, until the log is within its maximum size. Return the new size."""
        if size > self._max_bytes:
            last, until = db.execute("SELECT max(position) FROM entries").fetchone()[0], 0
            for position, length in db.execute(
                "SELECT position, length(data) FROM entries ORDER BY position"
            ):
                if size <= self._max_bytes or position == last:
                    break
                size -= length + ENTRY_OVERHEAD
                until = position
            db.execute("DELETE FROM entries WHERE position <= ?", (until,))
        return size

    async def put(self, entries: Sequence[tuple[str, bytes]], group: str = "") -> None:
        def put(db: sqlite3.Connection) -> None:
            with transaction(db):
                for key, data in entries:
                    if not data:
                        db.execute("DELETE FROM entries WHERE key = ?", (key,))
                        continue
                    db.execute(_PUT, (key, data))
                    if group:
                        query = "INSERT OR IGNORE INTO groups SELECT ?, position FROM entries WHERE key = ?"
                        db.execute(query, (group, key))

        await self._file.run(put)

    async def read(self, after: int, limit: int, group: str = "") -> list[tuple[int, bytes]]:
        if not await asyncio.to_thread(self._file.path.exists):
            return []
        query, values = (_READ_GROUP, (group, after, limit)) if group else (_READ, (after, limit))
        return await self._file.run(lambda db: db.execute(query, values).fetchall())

    async def erase(self) -> None:
        """Remove all entries. The node removes the file, together with the other files of the run."""

        def erase(db: sqlite3.Connection) -> None:
            with transaction(db):
                db.execute("DELETE FROM entries")
                db.execute("DELETE FROM groups")
            self._size = None

        await self._file.run(erase)
