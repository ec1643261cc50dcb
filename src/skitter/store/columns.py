"""The mapping of item fields to columns of a SQL table."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

import xxhash

ID_COLUMN = "_id"


class FieldLimitError(ValueError):
    """The items have more different fields than a table can have columns."""


def quoted(name: str) -> str:
    """Return a name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


class Columns:
    """The columns of one table. New fields add columns; other processes may add columns too.

    A field is stored in the column of its own name. SQL does not distinguish ``Name`` from ``name``: the second one,
    and a field called ``_id``, gets a column with a short hash of its name, such as ``name_1c3f``, so that all processes
    choose the same column.
    """

    def __init__(self, connection: sqlite3.Connection, table: str) -> None:
        self._connection = connection
        self._table = quoted(table)
        self._column_of: dict[str, str] = {}
        self._inserts: dict[tuple[str, ...], str] = {}

    def forget(self) -> None:
        """Read the table again before the next statement, because a change was rolled back."""
        self._column_of.clear()
        self._inserts.clear()

    def insert_for(self, fields: tuple[str, ...]) -> str:
        """Return the statement that inserts an item: its id, then the values of its fields.

        Call it inside a write transaction, because it adds missing columns. Raises :class:`FieldLimitError`.
        """
        statement = self._inserts.get(fields)
        if statement is None:
            if any(field not in self._column_of for field in fields):
                self._learn(fields)
            names = [ID_COLUMN, *(self._column_of[field] for field in fields)]
            statement = (
                f"INSERT OR REPLACE INTO {self._table} ({', '.join(map(quoted, names))})"  # noqa: S608 - quoted
                f" VALUES ({', '.join('?' * len(names))})"
            )
            self._inserts[fields] = statement
        return statement

    def _learn(self, fields: Iterable[str]) -> None:
        rows = self._connection.execute(f"PRAGMA table_info({self._table})")
        columns = {_folded(name): name for _, name, *_ in rows}
        chosen: dict[str, str] = {}
        missing: list[str] = []
        for field in fields:
            column = chosen[field] = _column_for(field, columns)
            if _folded(column) not in columns:
                missing.append(column)
                columns[_folded(column)] = column
        limit = self._connection.getlimit(sqlite3.SQLITE_LIMIT_COLUMN)
        if len(columns) > limit:
            raise FieldLimitError(
                f"the table would need {len(columns)} columns, but can have at most {limit};"
                " move fields with variable names into one nested field"
            )
        for column in missing:
            self._connection.execute(f"ALTER TABLE {self._table} ADD COLUMN {quoted(column)}")
        self._column_of.update(chosen)


def _column_for(field: str, columns: dict[str, str]) -> str:
    existing = columns.get(_folded(field), field)
    if existing == field and _folded(field) != ID_COLUMN:
        return field
    return f"{field}_{xxhash.xxh32_intdigest(field.encode()) & 0xFFFF:04x}"


def _folded(name: str) -> str:
    """Fold ASCII letters only, as SQLite does when it compares names."""
    return name.encode().lower().decode()
