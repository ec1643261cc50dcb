"""SqliteOutput: a table of a SQLite database that holds the items of one job or several."""

from __future__ import annotations

import asyncio
import os
from contextlib import closing
from pathlib import Path

import xxhash

from skitter.errors import StoreError
from skitter.store.columns import ID_COLUMN, quoted
from skitter.store.contract import OutputContext, type_of_ranges
from skitter.store.sqlite import SqliteStore, explained, open_database, transaction


class SqliteOutput:
    """``items.db`` or ``sqlite:PATH?table=NAME``; the table is called ``items`` unless named.

    Raises, when made, :class:`~skitter.errors.StoreError` for a name of no file or no table.
    """

    def __init__(self, target: str, path: Path, table: str = "items") -> None:
        if str(path) in {"", ".", ":memory:"}:
            raise StoreError(
                f"output {target!r} names no file", remedy="name one, such as -o sqlite:items.db"
            )
        if not table or "\0" in table or table.lower().startswith("sqlite_"):
            raise StoreError(f"{table!r} cannot be the name of a table", remedy="use letters and underscores")
        self.target = target
        self._path = path
        self._table = table
        place = xxhash.xxh3_64_hexdigest(os.fsencode(os.path.normpath(path)) + b"\0" + table.encode())
        self.stream = f"sqlite-{place}"

    async def check(self, context: OutputContext) -> None:
        """Make the database and the table, so that workers find them ready."""
        await asyncio.to_thread(self._check, context)

    async def occupied(self, context: OutputContext) -> bool:  # noqa: ARG002 - ids keep jobs apart
        """Never: a table is shared, and items of other jobs stay."""
        return False

    async def clear(self, context: OutputContext) -> None:
        """Delete the rows of this job: a fresh start gives its pages other fingerprints."""
        await asyncio.to_thread(self._clear, context)

    def store(self) -> SqliteStore:
        """Return a new connection for one worker."""
        return SqliteStore(self._path, self._table)

    async def emit(self, context: OutputContext, ranges: type_of_ranges) -> bool:  # noqa: ARG002 - see Output
        """Nothing: the rows are there."""
        return True

    async def merge(self, context: OutputContext, ranges: type_of_ranges) -> None:  # noqa: ARG002 - keyed
        """Fold the write-ahead log in, also that of killed workers: the file alone is the output."""
        await asyncio.to_thread(self._fold, context)

    def _check(self, context: OutputContext) -> None:
        open_database(self._path, self._table, context.durability).close()

    def _clear(self, context: OutputContext) -> None:
        prefix = f"{context.job}:"
        with (
            closing(open_database(self._path, self._table, context.durability)) as connection,
            explained(self._path),
            transaction(connection),
        ):
            connection.execute(
                f"DELETE FROM {quoted(self._table)} WHERE {ID_COLUMN} > ? AND {ID_COLUMN} < ?"  # noqa: S608 - quoted
                # Not those of a job whose name begins with this one's and a colon.
                f" AND length(rtrim({ID_COLUMN}, '0123456789')) = ?",
                (prefix, prefix[:-1] + ";", len(prefix) + 33),
            )

    def _fold(self, context: OutputContext) -> None:
        with (
            closing(open_database(self._path, self._table, context.durability)) as connection,
            explained(self._path),
        ):
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
