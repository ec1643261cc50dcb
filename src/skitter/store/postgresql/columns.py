"""The columns that a PostgreSQL table needs for the items, and their types."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Iterable, Mapping
from typing import Any

import xxhash

from skitter.item import without_surrogates
from skitter.store.columns import ID_COLUMN, FieldLimitError

MAX_COLUMNS = 1600
"""Limit of PostgreSQL (appendix K of its manual)."""
_MAX_NAME_BYTES = 63
_INT64 = 2**63
_EXACT = 2**53
"""Integers up to this value are exact as floating-point numbers."""

RowShape = tuple[tuple[str, ...], tuple[str, ...]]
"""Names of an item's columns, and the kind of each value (``""`` for a null value)."""

_TYPE_FOR = {
    "bool": "boolean",
    "int": "bigint",
    "long": "bigint",
    "huge": "numeric",
    "float": "double precision",
    "decimal": "numeric",
    "text": "text",
    "bytes": "bytea",
    "moment": "timestamp with time zone",
    "local": "timestamp without time zone",
    "date": "date",
    "json": "jsonb",
}
_TAKES: dict[str, set[str]] = {
    "boolean": {"bool"},
    "bigint": {"int", "long"},
    "double precision": {"float", "int"},
    "numeric": {"int", "long", "huge", "float", "decimal"},
    "bytea": {"bytes"},
    "timestamp with time zone": {"moment"},
    "timestamp without time zone": {"local"},
    "date": {"date"},
    "text": set(_TYPE_FOR) - {"json"},
    "jsonb": set(_TYPE_FOR),
}
"""The kinds that a column of each type stores without changing a value. Columns of other types are the user's own."""
_NUMBERS = {"bigint", "double precision", "numeric"}


def kind_of(value: Any) -> str:
    """Return the kind of an item's value."""
    kind = value.__class__
    if kind is str:
        return "text"
    if kind is int:
        return "int" if -_EXACT <= value <= _EXACT else "long" if -_INT64 <= value < _INT64 else "huge"
    if kind is dt.datetime:
        return "local" if value.tzinfo is None else "moment"
    return _KIND_OF_CLASS.get(kind, "json")


_KIND_OF_CLASS: dict[type, str] = {
    bool: "bool",
    float: "float",
    type(None): "",
    bytes: "bytes",
    dt.date: "date",
    decimal.Decimal: "decimal",
}


def column_of(field: str) -> str:
    """Return the column of a field: its own name, or a name with a hash if PostgreSQL does not allow it."""
    name = without_surrogates(field)
    if "\0" not in name and name and name != ID_COLUMN and len(name.encode()) <= _MAX_NAME_BYTES:
        return str(name)
    short = name.replace("\0", "\ufffd").encode()[: _MAX_NAME_BYTES - 9].decode(errors="ignore")
    return f"{short}_{xxhash.xxh32_hexdigest(name.encode())}"


class PostgresColumns:
    """The known columns of a table. Other workers and the user may change the table too."""

    def __init__(self) -> None:
        self.types: dict[str, str] = {}
        self._fitting: set[RowShape] = set()

    def forget(self) -> None:
        """Read the table again before the next write, because another process has changed it."""
        self.types.clear()
        self._fitting.clear()

    def learn(self, types: Mapping[str, str]) -> None:
        """Record the current columns."""
        self.types = dict(types)
        self._fitting.clear()

    def misfits(self, shapes: Iterable[RowShape]) -> dict[str, str]:
        """Return the columns that items of these shapes lack, or that are too narrow, with the types they need.

        Raises :class:`~skitter.store.columns.FieldLimitError`.
        """
        needed: dict[str, str] = {}
        unknown = [shape for shape in shapes if shape not in self._fitting]
        for columns, kinds in unknown:
            for column, kind in zip(columns, kinds, strict=True):
                present = needed.get(column) or self.types.get(column)
                wanted = _widened(present, kind) if kind else present
                if wanted is not None and wanted != present:
                    needed[column] = wanted
        if len(self.types.keys() | needed.keys()) > MAX_COLUMNS:
            raise FieldLimitError(
                f"the table would need more than {MAX_COLUMNS} columns; move fields with variable names into one nested"
                " field, or use ?layout=jsonb"
            )
        if not needed:
            self._fitting.update(unknown)
        return needed


def _widened(present: str | None, kind: str) -> str:
    """Return the narrowest type for a value of a kind and all values that a column of the present type may hold."""
    if present is None:
        return _TYPE_FOR[kind]
    if present not in _TAKES or kind in _TAKES[present]:
        return present
    if kind == "json":
        return "jsonb"
    if present in _NUMBERS and kind in _TAKES["numeric"]:
        return "numeric"
    return "text"
