"""Journal: the SQLite file of an embedded frontier, written in group commits by one thread.

The frontier decides in memory and appends what changed; one transaction takes all that gathered while the
last one was written. Each statement carries many rows, because the writing thread gives the interpreter
lock away at every step and a busy event loop returns it late.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from skitter._utils.executor import SingleThreadExecutor
from skitter.errors import FrontierError
from skitter.frontier.embedded.file_format import APPLICATION_ID, FORMAT_VERSION, check_format, explained
from skitter.frontier.scripts import named_statements, script

_CHECKPOINT_PAGES = 20_000
"""Pages in the write-ahead log (80 MB) before it is folded into the file: measured 1.7 times cheaper
than the default of 1,000."""
_CACHE_KIB = 8 * 1024
_ROWS_AT_ONCE = (64, 16)
"""What is left of these is written in one step more. Each number of rows is a statement of its own."""
_STATEMENTS_KEPT = 512
_SOON = 0.005
"""Seconds within which what nobody waits for is written, if no other group takes it along."""
_STATEMENTS = named_statements("transitions.sql")

Answer = TypeVar("Answer")
Row = Sequence[Any]


class Journal:
    """Group commits to, and reads from, one SQLite file."""

    def __init__(self, path: Path, durability: str) -> None:
        self.path = path
        self._durability = durability
        self._thread = SingleThreadExecutor("journal")
        self._connection: sqlite3.Connection | None = None
        self._pending: dict[str, dict[Any, Row]] = {}
        self._waiters: list[asyncio.Future[None]] = []
        self._writer: asyncio.Task[None] | None = None
        self._soon: asyncio.TimerHandle | None = None
        self._failure: FrontierError | None = None

    async def open(self) -> bool:
        """Open or create the file; returns whether it is new."""
        return await self._thread.run(self._open)

    def _open(self) -> bool:
        try:
            connection = sqlite3.connect(
                self.path,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=_STATEMENTS_KEPT,
            )
            fresh = check_format(connection, self.path)
            connection.execute("PRAGMA journal_mode = WAL")
            level = "FULL" if self._durability == "machine" else "NORMAL"
            connection.execute(f"PRAGMA synchronous = {level}")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            if fresh:
                self._create(connection)
        except sqlite3.Error as error:
            raise explained(error, self.path) from error
        self._connection = connection
        return fresh

    def _create(self, connection: sqlite3.Connection) -> None:
        connection.executescript(
            f"BEGIN;{script('schema.sql')}"
            f"PRAGMA application_id = {APPLICATION_ID};PRAGMA user_version = {FORMAT_VERSION};COMMIT;"
        )

    def append(self, statement: str, row: Row) -> None:
        """Let a named statement be part of the next group commit."""
        rows = self._pending.setdefault(statement, {})
        rows[len(rows)] = row

    def put(self, statement: str, key: Any, row: Row) -> None:
        """Append a row that takes the place of an earlier one of the same key in the same group.

        A statement is used with either ``append`` or ``put``, never with both.
        """
        self._pending.setdefault(statement, {})[key] = row

    def withdraw(self, statement: str, key: Any) -> None:
        """Take back a row that was put and is not yet being written."""
        self._pending.get(statement, {}).pop(key, None)

    async def flush(self) -> None:
        """Return when all that was appended until now is durable.

        Raises :class:`~skitter.errors.FrontierError` if this or an earlier write failed; the memory
        is then ahead of the file and nothing more is written: a new start continues from the file.
        """
        if self._failure is not None:
            raise self._failure
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        if self._writer is None:
            self._writer = asyncio.create_task(self._write_groups())
        await waiter

    def flush_soon(self) -> None:
        """See that what was appended is written within :data:`_SOON`. A failure shows at the next :meth:`flush`."""
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(_SOON, self._write_what_waits)

    def _write_what_waits(self) -> None:
        self._soon = None
        if self._pending and self._writer is None and self._failure is None:
            self._writer = asyncio.create_task(self._write_groups())

    async def _write_groups(self) -> None:
        while True:
            pending, self._pending = self._pending, {}
            waiters, self._waiters = self._waiters, []
            try:
                if pending:
                    await self._thread.run(self._write, pending)
            except FrontierError as error:
                self._failure = error
                waiters += self._waiters
                self._waiters = []
                _fail_all(waiters, error)
                break
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
            if not self._waiters:
                break
        self._writer = None

    async def read(self, query: Callable[[sqlite3.Connection], Answer]) -> Answer:
        """Run a query that sees everything appended before."""
        await self.flush()
        return await self._thread.run(self._query, query)

    def _query(self, query: Callable[[sqlite3.Connection], Answer]) -> Answer:
        assert self._connection is not None, "the journal is not open"
        try:
            return query(self._connection)
        except sqlite3.Error as error:
            raise explained(error, self.path) from error

    def _write(self, pending: dict[str, dict[Any, Row]]) -> None:
        connection = self._connection
        assert connection is not None, "the journal is not open"
        try:
            connection.execute("BEGIN IMMEDIATE")
            for name, statement in _STATEMENTS.items():
                if name in pending:
                    _execute_rows(connection, statement, list(pending[name].values()))
            connection.execute("COMMIT")
        except (sqlite3.Error, OverflowError, UnicodeError) as error:  # the last two: no value for a file
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise explained(error, self.path) from error

    async def close(self) -> None:
        """Write what is left, fold the log into the file and close it."""
        if self._soon is not None:
            self._soon.cancel()
        if self._connection is None:
            self._thread.stop()
            return
        try:
            if self._failure is None:
                await self.flush()
        finally:
            await self._thread.run(self._connection.close)
            self._connection = None
            self._thread.stop()


def _fail_all(waiters: list[asyncio.Future[None]], error: FrontierError) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_exception(error)


def _execute_rows(connection: sqlite3.Connection, statement: str, rows: list[Row]) -> None:
    """Run a statement for many rows in few steps: at each the interpreter's lock goes from thread to thread."""
    start, count = 0, len(rows)
    while start < count:
        left = count - start
        size = next((size for size in _ROWS_AT_ONCE if size < left), left)
        chunk = rows[start : start + size]
        connection.execute(_for_rows(statement, size), [value for row in chunk for value in row])
        start += size


@lru_cache(maxsize=_STATEMENTS_KEPT)
def _for_rows(statement: str, rows: int) -> str:
    head, marks, tail = _split(statement)
    return head + ", ".join([marks] * rows) + tail


def _split(statement: str) -> tuple[str, str, str]:
    """Split a statement at its group of marks ``(?, ?)``."""
    begin = statement.index("(?")
    end = statement.index(")", begin) + 1
    return statement[:begin], statement[begin:end], statement[end:]
