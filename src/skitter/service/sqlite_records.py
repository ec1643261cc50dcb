"""SqliteRecords: the records of a service of one node, in a file."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from skitter._utils.executor import SingleThreadExecutor
from skitter.errors import FrontierError

_T = TypeVar("_T")
_TABLES = """
CREATE TABLE IF NOT EXISTS records (kind TEXT, name TEXT, data BLOB, PRIMARY KEY (kind, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS leases (duty TEXT PRIMARY KEY, owner TEXT, until REAL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS nodes (node TEXT PRIMARY KEY, note BLOB, until REAL) WITHOUT ROWID;
"""


class SqliteRecords:
    """Tables of one SQLite database. Several processes of one machine may share it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = SingleThreadExecutor("records")
        self._file: sqlite3.Connection | None = None

    async def open(self) -> None:
        """Open or make the file. Raises :class:`~skitter.errors.FrontierError`."""
        await self._run(self._open)

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = sqlite3.connect(self._path, timeout=30, isolation_level=None, check_same_thread=False)
        self._file.execute("PRAGMA journal_mode=WAL")
        self._file.executescript(_TABLES)

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
                f"{self._path} cannot be used: {error}", remedy="check the folder and its permissions"
            ) from error

    @property
    def _db(self) -> sqlite3.Connection:
        assert self._file is not None
        return self._file

    async def get(self, kind: str, name: str) -> bytes | None:
        """Read a record."""
        return await self._run(self._get, kind, name)

    def _get(self, kind: str, name: str) -> bytes | None:
        query = "SELECT data FROM records WHERE kind = ? AND name = ?"
        row = self._db.execute(query, (kind, name)).fetchone()
        return None if row is None else row[0]

    async def all(self, kind: str) -> dict[str, bytes]:
        """Read all records of a kind."""
        query = "SELECT name, data FROM records WHERE kind = ? ORDER BY name"
        return await self._run(lambda: dict(self._db.execute(query, (kind,)).fetchall()))

    async def swap(self, kind: str, name: str, old: bytes | None, new: bytes | None) -> bool:
        """Change a record if it is as it was read."""
        return await self._run(self._swap, kind, name, old, new)

    def _swap(self, kind: str, name: str, old: bytes | None, new: bytes | None) -> bool:
        with _transaction(self._db):
            now = self._get(kind, name)
            if now != old:
                return now == new
            if new is None:
                self._db.execute("DELETE FROM records WHERE kind = ? AND name = ?", (kind, name))
            else:
                self._db.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?)", (kind, name, new))
            return True

    async def hold(self, duty: str, owner: str, seconds: float) -> bool:
        """Take or renew the lease of a duty."""
        return await self._run(self._hold, duty, owner, seconds)

    def _hold(self, duty: str, owner: str, seconds: float) -> bool:
        with _transaction(self._db):
            now = time.time()
            row = self._db.execute("SELECT owner, until FROM leases WHERE duty = ?", (duty,)).fetchone()
            if row is not None and row[0] != owner and row[1] > now:
                return False
            self._db.execute("INSERT OR REPLACE INTO leases VALUES (?, ?, ?)", (duty, owner, now + seconds))
            return True

    async def announce(self, node: str, note: bytes, seconds: float) -> None:
        """Tell that a node is there."""
        await self._run(self._announce, node, note, seconds)

    def _announce(self, node: str, note: bytes, seconds: float) -> None:
        with _transaction(self._db):
            now = time.time()
            self._db.execute("DELETE FROM nodes WHERE until <= ? OR node = ?", (now, node))
            if seconds > 0:
                self._db.execute("INSERT INTO nodes VALUES (?, ?, ?)", (node, note, now + seconds))

    async def nodes(self) -> dict[str, bytes]:
        """Return the notes of the nodes that are there."""
        query = "SELECT node, note FROM nodes WHERE until > ? ORDER BY node"
        return await self._run(lambda: dict(self._db.execute(query, (time.time(),)).fetchall()))


class _transaction:  # noqa: N801 - used as a statement
    """A transaction that writes: begun at once, so that what it reads is what it changes."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._db.execute("COMMIT" if kind is None else "ROLLBACK")
