"""Storage of a service that has one node: a key-value store and append-only logs in SQLite files."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

from skitter._utils.executor import SingleThreadExecutor
from skitter.errors import FrontierError, StoreError
from skitter.service.storage import ENTRY_OVERHEAD

_T = TypeVar("_T")
_LOCK_TIMEOUT = 30
"""How long to wait for another process that writes to the same file, in seconds."""
_RECORD_TABLES = """
CREATE TABLE IF NOT EXISTS records (kind TEXT, name TEXT, data BLOB, PRIMARY KEY (kind, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS leases (duty TEXT PRIMARY KEY, owner TEXT, until REAL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS nodes (node TEXT PRIMARY KEY, status BLOB, until REAL) WITHOUT ROWID;
"""
_LOG_TABLES = """
CREATE TABLE IF NOT EXISTS entries (position INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT, data BLOB);
CREATE UNIQUE INDEX IF NOT EXISTS entry_keys ON entries (key) WHERE key IS NOT NULL;
CREATE TABLE IF NOT EXISTS groups (name TEXT, position INTEGER, PRIMARY KEY (name, position)) WITHOUT ROWID;
"""
_PUT = """
INSERT INTO entries (key, data) VALUES (?, ?) ON CONFLICT (key) WHERE key IS NOT NULL DO UPDATE SET data = excluded.data
"""


def _open(path: Path, tables: str) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    db = sqlite3.connect(path, timeout=_LOCK_TIMEOUT, isolation_level=None, check_same_thread=False)
    try:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        db.executescript(tables)
    except BaseException:
        db.close()
        raise
    return db


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Run a transaction that locks the file before its first read."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


class SqliteKeyValueStore:
    """A key-value store in one file. Several processes of one machine may share it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = SingleThreadExecutor("records")
        self._file: sqlite3.Connection | None = None

    async def open(self) -> None:
        """Open or create the file."""
        self._file = await self._run(_open, self._path, _RECORD_TABLES)

    async def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            await self._thread.run(self._file.close)
        self._thread.stop()

    async def _run(self, call: Callable[..., _T], /, *arguments: object) -> _T:
        try:
            return await self._thread.run(call, *arguments)
        except (sqlite3.Error, OSError) as error:
            raise FrontierError(
                f"cannot use {self._path}: {error}", remedy="check the folder and its permissions"
            ) from error

    @property
    def _db(self) -> sqlite3.Connection:
        assert self._file is not None
        return self._file

    async def get(self, kind: str, name: str) -> bytes | None:
        """Return a record."""
        return await self._run(self._get, kind, name)

    def _get(self, kind: str, name: str) -> bytes | None:
        query = "SELECT data FROM records WHERE kind = ? AND name = ?"
        row = self._db.execute(query, (kind, name)).fetchone()
        return None if row is None else row[0]

    async def all(self, kind: str) -> dict[str, bytes]:
        """Return all records of a kind."""
        query = "SELECT name, data FROM records WHERE kind = ? ORDER BY name"
        return await self._run(lambda: dict(self._db.execute(query, (kind,)).fetchall()))

    async def compare_and_swap(self, kind: str, name: str, old: bytes | None, new: bytes | None) -> bool:
        """Replace a record if it is unchanged."""
        return await self._run(self._compare_and_swap, kind, name, old, new)

    def _compare_and_swap(self, kind: str, name: str, old: bytes | None, new: bytes | None) -> bool:
        with _transaction(self._db):
            current = self._get(kind, name)
            if current != old:
                return current == new
            if new is None:
                self._db.execute("DELETE FROM records WHERE kind = ? AND name = ?", (kind, name))
            else:
                self._db.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?)", (kind, name, new))
            return True

    async def acquire_lease(self, duty: str, owner: str, seconds: float) -> bool:
        """Acquire or renew the lease of a duty."""
        return await self._run(self._acquire_lease, duty, owner, seconds)

    def _acquire_lease(self, duty: str, owner: str, seconds: float) -> bool:
        with _transaction(self._db):
            now = time.time()
            row = self._db.execute("SELECT owner, until FROM leases WHERE duty = ?", (duty,)).fetchone()
            if row is not None and row[0] != owner and row[1] > now:
                return False
            self._db.execute("INSERT OR REPLACE INTO leases VALUES (?, ?, ?)", (duty, owner, now + seconds))
            return True

    async def announce(self, node: str, status: bytes, seconds: float) -> None:
        """Publish the status of a node."""
        await self._run(self._announce, node, status, seconds)

    def _announce(self, node: str, status: bytes, seconds: float) -> None:
        with _transaction(self._db):
            now = time.time()
            self._db.execute("DELETE FROM nodes WHERE until <= ? OR node = ?", (now, node))
            if seconds > 0:
                self._db.execute("INSERT INTO nodes VALUES (?, ?, ?)", (node, status, now + seconds))

    async def nodes(self) -> dict[str, bytes]:
        """Return the statuses that have not expired."""
        query = "SELECT node, status FROM nodes WHERE until > ? ORDER BY node"
        return await self._run(lambda: dict(self._db.execute(query, (time.time(),)).fetchall()))


class SqliteAppendLog:
    """An append-only log in one file. Several processes of one machine may share it.

    :param path: the file; it is created by the first write
    :param max_bytes: bound of the size; 0 means no bound. A bounded log has one writer at a time.
    """

    def __init__(self, path: Path, max_bytes: int = 0) -> None:
        self.name = path.name
        self._path = path
        self._max_bytes = max_bytes
        self._thread: SingleThreadExecutor | None = None
        self._file: sqlite3.Connection | None = None
        self._size = 0

    async def _run(self, call: Callable[..., _T], /, *arguments: object) -> _T:
        self._thread = self._thread or SingleThreadExecutor("log")
        return await self._thread.run(call, *arguments)

    async def open(self) -> None:
        """Open or create the file."""
        await self._run(self._write, lambda _: None)

    async def close(self) -> None:
        """Close the file."""
        if self._thread is not None:
            await self._thread.run(self._close)
            self._thread.stop()
            self._thread = None

    def _close(self) -> None:
        """Close the file, which rolls back an open transaction; the next write opens it again."""
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    def _write(self, change: Callable[[sqlite3.Connection], None]) -> None:
        try:
            if self._file is None:
                self._file = _open(self._path, _LOG_TABLES)
                if self._max_bytes:
                    query = f"SELECT coalesce(sum(length(data) + {ENTRY_OVERHEAD}), 0) FROM entries"  # noqa: S608 - a constant
                    self._size = self._file.execute(query).fetchone()[0]
            with _transaction(self._file):
                change(self._file)
        except (sqlite3.Error, OSError) as error:
            self._close()
            raise StoreError(
                f"cannot write {self._path}: {error}", remedy="check the disk and the folder"
            ) from error

    async def append(self, entries: Sequence[bytes], batch: int) -> None:
        """Append entries and drop the oldest ones. A failed transaction changes nothing, so ``batch`` is not needed."""
        del batch
        await self._run(self._append, entries)

    def _append(self, entries: Sequence[bytes]) -> None:
        def change(db: sqlite3.Connection) -> None:
            db.executemany("INSERT INTO entries (data) VALUES (?)", [(entry,) for entry in entries])
            if self._max_bytes:
                size = self._size + sum(len(entry) + ENTRY_OVERHEAD for entry in entries)
                self._size = self._drop_oldest(db, size)

        self._write(change)

    def _drop_oldest(self, db: sqlite3.Connection, size: int) -> int:
        """Drop the oldest entries, but never the last one, until the size fits; return the size."""
        if size <= self._max_bytes:
            return size
        last, until = db.execute("SELECT max(position) FROM entries").fetchone()[0], 0
        for position, length in db.execute("SELECT position, length(data) FROM entries ORDER BY position"):
            if size <= self._max_bytes or position == last:
                break
            size -= length + ENTRY_OVERHEAD
            until = position
        db.execute("DELETE FROM entries WHERE position <= ?", (until,))
        return size

    async def put(self, entries: Sequence[tuple[str, bytes]], group: str = "") -> None:
        """Set the entries of some keys."""

        def change(db: sqlite3.Connection) -> None:
            for key, data in entries:
                if not data:
                    db.execute("DELETE FROM entries WHERE key = ?", (key,))
                    continue
                db.execute(_PUT, (key, data))
                if group:
                    query = "INSERT OR IGNORE INTO groups SELECT ?, position FROM entries WHERE key = ?"
                    db.execute(query, (group, key))

        await self._run(self._write, change)

    async def read(self, after: int, limit: int, group: str = "") -> list[tuple[int, bytes]]:
        """Return entries by position."""
        return await self._run(self._read, after, limit, group)

    def _read(self, after: int, limit: int, group: str) -> list[tuple[int, bytes]]:
        if not self._path.exists():
            return []
        where, values = ("groups JOIN entries USING (position) WHERE name = ? AND", (group,)) if group else ("entries WHERE", ())  # fmt: skip
        query = f"SELECT position, data FROM {where} position > ? ORDER BY position LIMIT ?"  # noqa: S608 - two constants
        try:
            with closing(sqlite3.connect(self._path, timeout=_LOCK_TIMEOUT)) as db:
                return db.execute(query, (*values, after, limit)).fetchall()
        except sqlite3.Error as error:
            if "no such table" in str(error):  # another process is creating the file
                return []
            raise StoreError(
                f"cannot read {self._path}: {error}", remedy="check the disk and the folder"
            ) from error

    async def erase(self) -> None:
        """Remove all entries. The file is removed by the node, together with other files of its run."""

        def change(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM entries")
            db.execute("DELETE FROM groups")
            self._size = 0

        await self._run(self._write, change)
