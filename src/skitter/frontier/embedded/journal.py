"""The journal of an embedded frontier: writes to a SQLite file in group commits, or keeps data in memory.

The frontier decides in memory and appends the changes to its journal.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from skitter._utils.concurrency import SingleThreadExecutor
from skitter.errors import FrontierError
from skitter.frontier.embedded.damage import finish_repair, take_checksum, write_checksum
from skitter.frontier.embedded.lock import OwnerLock
from skitter.frontier.embedded.packs import CACHED_STATEMENTS, Values, execute_rows
from skitter.frontier.embedded.tables import (
    SqliteTables,
    check_format,
    check_owner,
    create_tables,
    explain_error,
    remove_file,
    remove_rows,
)
from skitter.frontier.scripts import named_statements

log = logging.getLogger("skitter.frontier")

CHECKPOINT_BYTES = 80_000_000
"""Size of the write-ahead log at which it is merged into the file: measured to cost 1.7 times less than SQLite's
default of 4 MB."""
_SHORT_GROUP = 2_000
"""Rows that may be written on the event loop, if no write is synchronized with the disk. They take about 5 ms."""
_SIZE_CHECK_INTERVAL = 32
"""Groups between two checks of the size of the log."""
_REMOVALS = 500
"""Number of rows of the queue that are removed in one batch. That takes a millisecond."""
CACHE_BYTES = 8 * 2**20
MAX_CACHE_BYTES = 64 * 2**20
_CACHED_SHARE = 32
"""Size of the file divided by the size of SQLite's cache, within these bounds. Requests of slots that take turns lie on
many pages of a large file."""
FLUSH_DELAY = 0.02
"""Maximum delay in seconds of changes for which no caller waits."""
_STATEMENTS = named_statements("transitions.sql")
_READ_BACK = {"delay", "add_dead", "remove_dead", "put_note", "put_visit", "mark_visit", "update_visit"}
"""Statements whose rows a frontier does not hold in memory itself."""

ResultT = TypeVar("ResultT")


class SqliteJournal:
    """Group commits to, and reads from, one SQLite file that this process owns.

    One transaction takes all changes that were collected while the last one was written. Short transactions run on the
    event loop, all other work with the file in a thread; see :meth:`SingleThreadExecutor.run_short
    <skitter._utils.concurrency.SingleThreadExecutor.run_short>`. Each statement carries many rows, because the thread
    releases the interpreter lock at every step, and a busy event loop returns it late.
    """

    def __init__(self, path: Path, durability: str, job: str = "") -> None:
        self.path = path
        self._job = job
        self._durability = durability
        self._lock = OwnerLock(path)
        self._thread = SingleThreadExecutor("journal")
        self._tables: SqliteTables | None = None
        self._pending: dict[str, dict[Any, Values]] = {}
        self._latest: dict[str, Callable[[], Values | None]] = {}
        """Functions that return the rows of :meth:`put_latest`, by statement."""
        self._waiters: list[asyncio.Future[None]] = []
        self._writer: asyncio.Task[None] | None = None
        self._flush_timer: asyncio.TimerHandle | None = None
        self._failure: FrontierError | None = None
        self._removals = 0
        """Number of rows that were removed since the last batch."""
        self._groups = 0
        """Number of groups that were written."""
        self._begins_log = True
        """Whether the next group may be the first one of the log. SQLite synchronizes the start of the log with the
        disk."""

    async def open(self) -> None:
        """Open or create the file.

        Raises :class:`~skitter.errors.FrontierError` if another process owns the file, if it is not a frontier, if it
        has another format or belongs to another job, or if it cannot be written.
        """
        await asyncio.to_thread(self._lock.acquire)
        try:
            await asyncio.to_thread(_finish_repair, self.path)
            await asyncio.to_thread(check_owner, self.path, self._job)
            await asyncio.to_thread(take_checksum, self.path)
            self._tables = SqliteTables(await self._thread.run(self._connect))
        except BaseException:
            await asyncio.to_thread(self._lock.release)
            raise

    def _connect(self) -> sqlite3.Connection:
        try:
            connection = sqlite3.connect(
                self.path,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=CACHED_STATEMENTS,
            )
            try:
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
        except sqlite3.Error as error:
            raise explain_error(error, self.path) from error
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        is_new = check_format(connection, self.path)
        connection.execute("PRAGMA journal_mode = WAL")
        level = "FULL" if self._durability == "machine" else "NORMAL"
        connection.execute(f"PRAGMA synchronous = {level}")
        connection.execute("PRAGMA wal_autocheckpoint = 0")  # it would block the event loop
        # When the log restarts, its file keeps nearly all of its size: overwriting costs less than appending. The size
        # still shows when the log must be merged.
        connection.execute(f"PRAGMA journal_size_limit = {CHECKPOINT_BYTES * 9 // 10}")
        # Otherwise a statement that changes many pages saves them in a temporary file.
        connection.execute("PRAGMA temp_store = MEMORY")
        self._size_cache(connection)
        if is_new:
            create_tables(connection)

    def _size_cache(self, connection: sqlite3.Connection) -> None:
        share = self.path.stat().st_size // _CACHED_SHARE
        kib = min(max(CACHE_BYTES, share), MAX_CACHE_BYTES) // 1024
        connection.execute(f"PRAGMA cache_size = -{kib}")

    async def erase(self) -> None:
        """Delete the file, before it is opened; see :func:`~skitter.frontier.embedded.tables.remove_file`."""
        await asyncio.to_thread(remove_file, self.path, self._job)

    def append(self, statement: str, row: Values) -> None:
        """Append a row for a statement of ``scripts/transitions.sql``."""
        rows = self._pending.setdefault(statement, {})
        rows[len(rows)] = row

    def put(self, statement: str, key: Any, row: Values) -> None:
        """Append a row that replaces an earlier one with the same key in the same group.

        A statement is used with either ``append`` or ``put``, never with both.
        """
        self._pending.setdefault(statement, {})[key] = row

    def put_latest(self, statement: str, row: Callable[[], Values | None]) -> None:
        """Put a row that is only known when the next group begins: ``row`` then returns it, or ``None`` for no row."""
        self._latest[statement] = row

    def withdraw(self, statement: str, key: Any) -> None:
        """Remove a row that was put and is not being written yet."""
        self._pending.get(statement, {}).pop(key, None)

    async def flush(self) -> None:
        """Return when everything that was appended is durable.

        Raises :class:`~skitter.errors.FrontierError` if this or an earlier write failed. The memory is then ahead of
        the file and nothing more is written: the next run continues from the file.
        """
        self.raise_failure()
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        if self._writer is None:
            self._writer = asyncio.create_task(self._write_groups())
        await waiter

    def raise_failure(self) -> None:
        """Raise the error of an earlier write that failed, if there was one."""
        if self._failure is not None:
            raise self._failure

    def flush_soon(self) -> None:
        """Write everything that was appended within :data:`FLUSH_DELAY`. The next :meth:`flush` raises any error."""
        if self._flush_timer is None:
            self._flush_timer = asyncio.get_running_loop().call_later(FLUSH_DELAY, self._flush_now)

    def _flush_now(self) -> None:
        self._flush_timer = None
        if (self._pending or self._latest) and self._writer is None and self._failure is None:
            self._writer = asyncio.create_task(self._write_groups())

    async def _write_groups(self) -> None:
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        while True:
            waiters, self._waiters = self._waiters, []
            try:
                if pending := self._take_pending():
                    await self._write_group(pending)
            except Exception as error:  # noqa: BLE001 - such as a MemoryError: callers of flush would wait forever
                self._failure = error if isinstance(error, FrontierError) else explain_error(error, self.path)
                waiters += self._waiters
                self._waiters = []
                _fail_all(waiters, self._failure)
                break
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self._groups += 1
            if not self._groups % _SIZE_CHECK_INTERVAL:
                self._begins_log = await self._thread.run(self._merge_large_log)
            if not self._waiters:
                break
        self._writer = None

    def _take_pending(self) -> dict[str, dict[Any, Values]]:
        """Start a group: return all rows that were appended."""
        pending, self._pending = self._pending, {}
        latest, self._latest = self._latest, {}
        for statement, make_row in latest.items():
            if (row := make_row()) is not None:
                pending.setdefault(statement, {})[None] = row
        return pending

    async def _write_group(self, pending: dict[str, dict[Any, Values]]) -> None:
        is_short = self._durability == "process" and sum(map(len, pending.values())) <= _SHORT_GROUP
        run = self._thread.run_short if is_short and not self._begins_log else self._thread.run
        self._begins_log = False
        await run(self._write, pending)

    def _merge_large_log(self) -> bool:
        """Merge the log into the file if it is large. Return whether that was tried.

        An error is ignored, because the next write reports it: nothing is lost.
        """
        assert self._tables is not None, "the journal is not open"
        with contextlib.suppress(OSError, sqlite3.Error):
            if self.path.with_name(f"{self.path.name}-wal").stat().st_size > CHECKPOINT_BYTES:
                self._tables.file.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                self._size_cache(self._tables.file)
                return True
        return False

    async def read(self, query: Callable[[SqliteTables], ResultT]) -> ResultT:
        """Run a query in the journal's thread. It sees everything that was appended."""
        await self.flush()
        return await self.peek(query)

    async def change(self, query: Callable[[SqliteTables], ResultT]) -> ResultT:
        """Run a query like :meth:`read`, one that changes the file directly.

        If it fails, nothing more is written, as after a failed write, because the memory relies on the change.
        """
        try:
            return await self.read(query)
        except Exception as error:
            if self._failure is None:
                self._failure = error if isinstance(error, FrontierError) else explain_error(error, self.path)
            raise

    async def peek(self, query: Callable[[SqliteTables], ResultT]) -> ResultT:
        """Run a query in the journal's thread. It needs no flush, but may miss rows appended since the last one."""
        return await self._thread.run(self._query, query)

    def _query(self, query: Callable[[SqliteTables], ResultT]) -> ResultT:
        assert self._tables is not None, "the journal is not open"
        try:
            return query(self._tables)
        except (sqlite3.Error, msgspec.DecodeError) as error:
            raise explain_error(error, self.path) from error

    def _write(self, pending: dict[str, dict[Any, Values]]) -> None:
        assert self._tables is not None, "the journal is not open"
        connection = self._tables.file
        try:
            connection.execute("BEGIN IMMEDIATE")
            for name, statement in _STATEMENTS.items():
                if name in pending:
                    execute_rows(connection, statement, list(pending[name].values()))
            self._removals += len(pending.get("dequeue", ()))
            if self._removals >= _REMOVALS:
                remove_rows(connection)
                self._removals = 0
            connection.execute("COMMIT")
        except Exception as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise explain_error(error, self.path) from error

    async def close(self) -> None:
        """Write all changes, merge the log into the file, close it and release the lock."""
        if self._flush_timer is not None:
            self._flush_timer.cancel()
        try:
            if self._tables is not None:
                await self._close_file(self._tables)
        finally:
            self._thread.stop()
            await asyncio.to_thread(self._lock.release)

    async def _close_file(self, tables: SqliteTables) -> None:
        try:
            if self._failure is None:
                await self.flush()
                await self._thread.run(self._query, SqliteTables.apply_removals)
        finally:
            await self._thread.run(tables.file.close)
            self._tables = None
        if self._failure is None:
            await self._thread.run(write_checksum, self.path)


def _finish_repair(path: Path) -> None:
    repair = finish_repair(path)
    if repair is not None:
        log.warning("%s: finished a repair that was interrupted; requests lost: %d", path, repair.lost)


def _fail_all(waiters: list[asyncio.Future[None]], error: FrontierError) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_exception(error)


class MemoryJournal:
    """Keeps delayed requests, dead letters, notes and visits in a database in memory: the frontier reads them back."""

    def __init__(self) -> None:
        file = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        weakref.finalize(self, file.close)
        create_tables(file)
        self._tables = SqliteTables(file)

    async def open(self) -> None:
        """Keep the job: a frontier in memory can be opened again as long as the object exists."""

    async def close(self) -> None:
        """Keep the job."""

    async def erase(self) -> None:
        """Do nothing: a frontier in memory that is not open has no job."""

    def append(self, statement: str, row: Values) -> None:
        """Keep a row if it is read back."""
        if statement in _READ_BACK:
            self._tables.file.execute(_STATEMENTS[statement], row)

    def put(self, statement: str, key: Any, row: Values) -> None:  # noqa: ARG002 - only a file has groups
        """Keep a row if it is read back."""
        self.append(statement, row)

    def put_latest(self, statement: str, row: Callable[[], Values | None]) -> None:
        """Do nothing: the frontier itself holds its state."""

    def withdraw(self, statement: str, key: Any) -> None:
        """Do nothing: no statement that is withdrawn is kept."""

    async def flush(self) -> None:
        """Return immediately."""

    def raise_failure(self) -> None:
        """Do nothing: no write fails."""

    def flush_soon(self) -> None:
        """Return immediately."""

    async def read(self, query: Callable[[SqliteTables], ResultT]) -> ResultT:
        """Run a query."""
        result = query(self._tables)
        self._tables.file.execute("DELETE FROM queue")  # the frontier itself holds the moved rows
        return result

    change = peek = read


Journal = SqliteJournal | MemoryJournal
"""The storage to which an embedded frontier writes its changes, and from which it reads data that it does not keep."""
