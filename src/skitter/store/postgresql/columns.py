"""PostgresColumns: which columns a table needs for the items, and of what type."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Iterable, Mapping
from typing import Any

import xxhash

from skitter.item import without_surrogates
from skitter.store.columns import ID_COLUMN, FieldLimitError

MOST_COLUMNS = 1600
"""PostgreSQL's limit (appendix K of its manual)."""
_LONGEST_NAME = 63
_INT64 = 2**63
_EXACT = 2**53
"""Integers up to here are exact as floating-point numbers."""

RowShape = tuple[tuple[str, ...], tuple[str, ...]]
"""Names of the columns of an item, and the kind of each value; ``""``: nothing."""

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
"""What a column of each type takes without changing a value. Columns of other types are the user's own."""
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
    """Return the column of a field: its own name, or one with a hash of it where PostgreSQL cannot have that."""
    fit = without_surrogates(field)
    if "\0" not in fit and fit and fit != ID_COLUMN and len(fit.encode()) <= _LONGEST_NAME:
        return str(fit)
    short = fit.replace("\0", "\ufffd").encode()[: _LONGEST_NAME - 9].decode(errors="ignore")
    return f"{short}_{xxhash.xxh32_hexdigest(fit.encode())}"


class PostgresColumns:
    """What is known of the columns of a table, which other workers and the user may change too."""

    def __init__(self) -> None:
        self.types: dict[str, str] = {}
        self._fitting: set[RowShape] = set()

    def forget(self) -> None:
        """Be told again: somebody changed the table."""
        self.types.clear()
        self._fitting.clear()

    def learn(self, types: Mapping[str, str]) -> None:
        """Take note of the columns as they are now."""
        self.types = dict(types)
        self._fitting.clear()

    def misfits(self, shapes: Iterable[RowShape]) -> dict[str, str]:
        """Return the columns that items of these shapes lack, or whose type is too narrow, with the type they need.

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
        if len(self.types.keys() | needed.keys()) > MOST_COLUMNS:
            raise FieldLimitError(
                f"its fields would make more than {MOST_COLUMNS} columns; put varying keys into one nested"
                " field, or use ?layout=jsonb"
            )
        if not needed:
            self._fitting.update(unknown)
        return needed


def _widened(present: str | None, kind: str) -> str:
    """Return the narrowest type that takes a value of a kind and all that a column of a type holds."""
    if present is None:
        return _TYPE_FOR[kind]
    if present not in _TAKES or kind in _TAKES[present]:
        return present
    if kind == "json":
        return "jsonb"
    if present in _NUMBERS and kind in _TAKES["numeric"]:
        return "numeric"
    return "text"
