"""A keyed store in a SQLite table: one row per item, one column per field."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import xxhash

from skitter._utils.backoff import Backoff
from skitter._utils.concurrency import SingleThreadExecutor
from skitter.errors import StoreError
from skitter.item import encode_item, item_fields
from skitter.store.contract import (
    GroupError,
    ItemGroup,
    Output,
    OutputContext,
    RangesByPart,
    StoreContext,
    encode_items,
    item_id,
)
from skitter.store.sql import ID_COLUMN, ItemRefusedError, column_for, encodable, quoted

log = logging.getLogger("skitter.store")

SqliteRow = tuple[tuple[str, ...], list[Any]]

BUSY_SECONDS = 30.0
"""Seconds for which a process waits for the writes of others."""

_WAL_LIMIT = 64 << 20
_LARGEST_INTEGER = 2**63
# Errors caused by the values of an item, or by the user's own constraints on the table.
_ITEM_ERRORS = (
    sqlite3.DataError,
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    ValueError,
    OverflowError,
)


class SqliteStore:
    """Writes each item under its id, so that writing a page again replaces its rows. Implements :class:`Store`.

    Values of type ``int``, ``float``, ``str``, ``bytes`` and ``None`` keep their types. A ``bool`` is stored as 0 or 1,
    an integer of more than 64 bits as text, lists and dicts as JSON text with bytes in base64. If a page now has fewer
    items than at an earlier visit, the surplus rows are deleted.

    ``fields``: the fields to store, in the order of their columns. Empty: all fields.
    """

    buffering = None

    def __init__(self, path: Path, table: str, fields: Sequence[str] = ()) -> None:
        self._path = path
        self._table = table
        self._fields = tuple(fields)
        self._thread = SingleThreadExecutor("store")
        self._job = ""
        self._connection: sqlite3.Connection | None = None
        self._columns: Columns | None = None

    async def open(self, context: StoreContext) -> None:
        self._job = context.job
        await self._thread.run(self._open, context.durability)

    async def write(self, groups: Sequence[ItemGroup]) -> list[GroupError | None]:
        """Write all groups in one transaction; see :meth:`skitter.store.contract.Store.write`."""
        rows = [encode_items(group, partial(_row_of, self._fields)) for group in groups]
        return await self._thread.run(self._write, groups, rows)

    async def close(self) -> None:
        try:
            await self._thread.run(self._close)
        finally:
            self._thread.stop()

    def _open(self, durability: str) -> None:
        self._connection = open_database(self._path, self._table, durability)
        self._columns = Columns(self._connection, self._table)

    def _close(self) -> None:
        if self._connection:
            self._connection.close()
            self._connection = None

    def _write(
        self, groups: Sequence[ItemGroup], rows: Sequence[list[SqliteRow] | GroupError]
    ) -> list[GroupError | None]:
        good = [
            (group, row) for group, row in zip(groups, rows, strict=True) if not isinstance(row, GroupError)
        ]
        with translated_errors(self._path):
            try:
                self._put(good)
                problems: Iterator[GroupError | None] = iter([None] * len(good))
            except _ITEM_ERRORS:
                problems = iter([self._put_separately(group, row) for group, row in good])
            self._truncate_log()
        return [row if isinstance(row, GroupError) else next(problems) for row in rows]

    def _put(self, batch: Sequence[tuple[ItemGroup, list[SqliteRow]]]) -> None:
        assert self._connection
        assert self._columns
        table = quoted(self._table)
        try:
            with transaction(self._connection):
                for group, rows in batch:
                    prefix = item_id(self._job, group.fingerprint, 0)[:-1]
                    for index, (fields, values) in enumerate(rows):
                        self._connection.execute(
                            self._columns.insert_for(fields), [f"{prefix}{index}", *values]
                        )
                    self._connection.execute(
                        f"DELETE FROM {table} WHERE {ID_COLUMN} > ? AND {ID_COLUMN} < ?"  # noqa: S608 - quoted
                        f" AND CAST(substr({ID_COLUMN}, ?) AS INTEGER) >= ?",
                        (prefix, prefix[:-1] + ";", len(prefix) + 1, len(rows)),
                    )
        except BaseException:
            self._columns.forget()
            raise

    def _put_separately(self, group: ItemGroup, rows: list[SqliteRow]) -> GroupError | None:
        try:
            self._put([(group, rows)])
        except _ITEM_ERRORS as error:
            return GroupError(f"the table rejects the page's items: {error}")
        return None

    def _truncate_log(self) -> None:
        """Truncate a long write-ahead log, because SQLite never resets it while others write continuously."""
        assert self._connection
        write_ahead_log = Path(f"{self._path}-wal")
        if write_ahead_log.exists() and write_ahead_log.stat().st_size > _WAL_LIMIT:
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def open_database(path: Path, table: str, durability: str) -> sqlite3.Connection:
    """Open a database for several writing processes, and create the table if it does not exist.

    Raises :class:`~skitter.errors.StoreError` if the file is not a database or not writable, or the table has another key.
    """
    with translated_errors(path):
        connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            use_write_ahead_log(connection)
            connection.execute(f"PRAGMA synchronous={'FULL' if durability == 'machine' else 'NORMAL'}")
            with transaction(connection):
                connection.execute(
                    f"CREATE TABLE IF NOT EXISTS {quoted(table)} ({ID_COLUMN} TEXT PRIMARY KEY NOT NULL)"
                )
                _check_table(connection, path, table)
        except BaseException:
            connection.close()
            raise
    return connection


def use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Switch to a write-ahead log. This statement alone ignores SQLite's busy timeout, so it is retried here."""
    deadline = time.monotonic() + BUSY_SECONDS
    backoff = Backoff(first=0.01, maximum=0.1)
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(backoff.next_delay())
        else:
            return


def _check_table(connection: sqlite3.Connection, path: Path, table: str) -> None:
    keys = [
        name for _, name, _, _, _, key in connection.execute(f"PRAGMA table_info({quoted(table)})") if key
    ]
    if keys != [ID_COLUMN]:
        raise StoreError(
            f"table {table!r} in {path} was not created by skitter: its primary key is not {ID_COLUMN}",
            remedy=f"name another table, such as -o 'sqlite:{path}?table=crawled'",
            field="table",
        )


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run the block as one transaction, which is rolled back if the block raises an error."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


_REMEDIES = {
    "SQLITE_FULL": "free some space, then run the same command again: nothing that was committed is lost",
    "SQLITE_IOERR": "check the disk and its free space, then run the same command again",
    "SQLITE_BUSY": "end the program that locks the database, then run the same command again",
    "SQLITE_READONLY": "choose a file and a folder with write permission",
    "SQLITE_CANTOPEN": "create its folder first, or choose a folder with write permission",
    "SQLITE_NOTADB": "name another file: this one is not a SQLite database",
    "SQLITE_CORRUPT": "restore the file from a backup, or name another file",
}


@contextmanager
def translated_errors(path: Path) -> Iterator[None]:
    """Convert a database error to a :class:`~skitter.errors.StoreError` with a remedy."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        name = getattr(error, "sqlite_errorname", "")
        remedy = next(
            (text for start, text in _REMEDIES.items() if name.startswith(start)),
            "fix the cause, then run the same command again",
        )
        raise StoreError(f"cannot write {path}: {error}", remedy=remedy) from error


def _row_of(chosen: tuple[str, ...], item: Any) -> SqliteRow:
    fields = item_fields(item)
    if chosen:
        fields = {name: fields.get(name) for name in chosen}
    is_mapping = isinstance(item, Mapping)
    values = [
        _value(value, item.get(field) if is_mapping else getattr(item, field, None))
        for field, value in fields.items()
    ]
    return tuple(map(encodable, fields)), values


def _value(value: Any, original: Any) -> Any:
    kind = value.__class__
    if kind is str:
        # JSON has no type for bytes, but SQL has one.
        return original if original.__class__ is bytes else encodable(value)
    if kind is int:
        return value if -_LARGEST_INTEGER <= value < _LARGEST_INTEGER else str(value)
    if kind is float or kind is bool or value is None:
        return value
    return encode_item({"": value})[4:-1].decode()


class Columns:
    """The columns of one table. New fields add columns, and other processes may also add columns.

    A field is stored in the column of the same name; see :func:`~skitter.store.sql.column_for`.
    """

    def __init__(self, connection: sqlite3.Connection, table: str) -> None:
        self._connection = connection
        self._table = table
        self._column_of: dict[str, str] = {}
        self._inserts: dict[tuple[str, ...], str] = {}

    def forget(self) -> None:
        """Read the table again before the next statement, because a change was rolled back."""
        self._column_of.clear()
        self._inserts.clear()

    def insert_for(self, fields: tuple[str, ...]) -> str:
        """Return the statement that inserts an item: its id, then the values of its fields.

        Call it inside a write transaction, because it adds missing columns. Raises
        :class:`~skitter.store.sql.ItemRefusedError`.
        """
        statement = self._inserts.get(fields)
        if statement is None:
            if any(field not in self._column_of for field in fields):
                self._learn(fields)
            names = [ID_COLUMN, *(self._column_of[field] for field in fields)]
            statement = (
                f"INSERT OR REPLACE INTO {quoted(self._table)} ({', '.join(map(quoted, names))})"  # noqa: S608 - quoted
                f" VALUES ({', '.join('?' * len(names))})"
            )
            self._inserts[fields] = statement
        return statement

    def _learn(self, fields: Iterable[str]) -> None:
        columns = _columns_of(self._connection, self._table)
        chosen: dict[str, str] = {}
        missing: list[str] = []
        for field in fields:
            column = chosen[field] = column_for(field, columns, _folded)
            if _folded(column) not in columns:
                missing.append(column)
                columns[_folded(column)] = column
        limit = self._connection.getlimit(sqlite3.SQLITE_LIMIT_COLUMN)
        if len(columns) > limit:
            raise ItemRefusedError(
                f"the table would need {len(columns)} columns, but can have at most {limit};"
                " move fields with variable names into one nested field"
            )
        for column in missing:
            self._connection.execute(f"ALTER TABLE {quoted(self._table)} ADD COLUMN {quoted(column)}")
        self._column_of.update(chosen)


def _columns_of(connection: sqlite3.Connection, table: str) -> dict[str, str]:
    """Return the columns of a table by their folded names."""
    rows = connection.execute(f"PRAGMA table_info({quoted(table)})")
    return {_folded(name): name for _, name, *_ in rows}


def _folded(name: str) -> str:
    """Fold ASCII letters only, as SQLite does when it compares names."""
    return name.encode().lower().decode()


class SqliteOutput(Output):
    """``items.db`` or ``sqlite:PATH?table=NAME&fields=NAME,NAME``. The default table is ``items``.

    ``fields``: as in :class:`SqliteStore`. The constructor raises :class:`~skitter.errors.StoreError` for an invalid file or
    table name.
    """

    is_keyed = True

    def __init__(self, target: str, path: Path, table: str = "items", fields: Sequence[str] = ()) -> None:
        if str(path) in {"", ".", ":memory:"}:
            raise StoreError(
                f"output {target!r} does not name a file",
                remedy="name one, such as -o sqlite:items.db",
                field="output",
            )
        if not table or "\0" in table or table.lower().startswith("sqlite_"):
            raise StoreError(
                f"invalid table name: {table!r}", remedy="use letters, digits and underscores", field="table"
            )
        self.target = target
        self._path = path
        self._table = table
        self._fields = fields
        digest = xxhash.xxh3_64_hexdigest(os.fsencode(os.path.normpath(path)) + b"\0" + table.encode())
        self.stream = f"sqlite-{digest}"

    async def check(self, context: OutputContext) -> None:
        """Create the database and the table before the workers start."""
        await asyncio.to_thread(lambda: open_database(self._path, self._table, context.durability).close())

    async def clear(self, context: OutputContext) -> None:
        """Delete the rows of this job, because its pages have other fingerprints after a fresh start."""
        await asyncio.to_thread(self._clear, context)

    def store(self) -> SqliteStore:
        """Return a new connection for one worker."""
        return SqliteStore(self._path, self._table, self._fields)

    async def merge(self, context: OutputContext, ranges: RangesByPart) -> None:  # noqa: ARG002 - keyed
        """Merge the write-ahead log, even of killed workers, into the file, so that the file alone is the output.

        Chosen fields in which no item of the job has a value are logged.
        """
        if absent := await asyncio.to_thread(self._fold, context):
            log.warning(
                "%s: no item has a value in the field %s; check the names in the option fields",
                self.target, ", ".join(absent),
            )  # fmt: skip

    def _clear(self, context: OutputContext) -> None:
        condition, values = _rows_of(context.job)
        with (
            closing(open_database(self._path, self._table, context.durability)) as connection,
            translated_errors(self._path),
            transaction(connection),
        ):
            connection.execute(f"DELETE FROM {quoted(self._table)} WHERE {condition}", values)  # noqa: S608 - quoted

    def _fold(self, context: OutputContext) -> list[str]:
        """Fold the write-ahead log. Return the chosen fields without a value in any row of the job, if it has rows."""
        with (
            closing(open_database(self._path, self._table, context.durability)) as connection,
            translated_errors(self._path),
        ):
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            condition, values = _rows_of(context.job)
            rows = f"SELECT 1 FROM {quoted(self._table)} WHERE {condition}"  # noqa: S608 - quoted
            if not self._fields or connection.execute(f"{rows} LIMIT 1", values).fetchone() is None:
                return []
            found = _columns_of(connection, self._table)
            columns = {field: column_for(encodable(field), found, _folded) for field in self._fields}
            return [
                field
                for field, column in columns.items()
                if _folded(column) not in found
                or connection.execute(f"{rows} AND {quoted(column)} IS NOT NULL LIMIT 1", values).fetchone()
                is None
            ]


def _rows_of(job: str) -> tuple[str, tuple[str, str, int]]:
    """Return the condition for the rows of a job, and its values."""
    prefix = f"{job}:"
    # The length excludes jobs whose name starts with this job's name and a colon.
    condition = f"{ID_COLUMN} > ? AND {ID_COLUMN} < ? AND length(rtrim({ID_COLUMN}, '0123456789')) = ?"
    return condition, (prefix, prefix[:-1] + ";", len(prefix) + 33)
