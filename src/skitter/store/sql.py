"""Columns of SQL tables: their names, and on a database server their types and how types are widened."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import xxhash

from skitter.item import without_surrogates

ID_COLUMN = "_id"


class ItemRefusedError(ValueError):
    """A table cannot hold the items, or the server rejected them."""


def quoted(name: str) -> str:
    """Return a name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def encodable(text: str) -> str:
    """Replace lone surrogates as :func:`~skitter.item.encode_item` does: UTF-8 cannot represent them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return str(without_surrogates(text))
    return text


def column_for(
    field: str, columns: Mapping[str, str], fold: Callable[[str], str], longest: int | None = None
) -> str:
    """Return the column of a field, among the columns of a table by their folded names.

    SQL does not distinguish ``Name`` from ``name``. The second of them, or a field called ``_id``, gets a column with a
    short hash of its name, such as ``name_1c3f``, so that all processes choose the same column. ``fold``: returns the same
    value for names that the server does not distinguish. ``longest``: maximum number of characters in a name.
    """
    if columns.get(fold(field), field) == field and fold(field) != ID_COLUMN:
        return field
    suffix = f"_{xxhash.xxh32_intdigest(field.encode()) & 0xFFFF:04x}"
    return field[: longest and longest - len(suffix)] + suffix


INT64 = 2**63
_EXACT = 2**53
"""Integers up to this value are exact as floating-point numbers."""


RowShape = tuple[tuple[str, ...], tuple[str, ...]]
"""Names of an item's columns, and the kind of each value (``""`` for a null value)."""


class ColumnRules(msgspec.Struct, frozen=True):
    """The column types of one kind of database."""

    type_for: Mapping[str, str]
    """The type of a new column, by the kind of its first value."""
    takes: Mapping[str, frozenset[str]]
    """The kinds that a column of each type stores without changing a value. Columns of other types were made by the user."""
    wider: tuple[str, ...]
    """The types to which a column may be changed, in order of preference."""
    max_columns: int
    layout: str
    """The value of the option ``layout`` that needs one column only, for the error message."""

    def widened(self, present: str | None, kind: str) -> str:
        """Return the type for a value of a kind and for all values that a column of the present type may hold."""
        if present is None:
            return self.type_for[kind]
        if present not in self.takes or kind in self.takes[present]:
            return present
        wanted = self.takes[present] | {kind}
        return next(wider for wider in self.wider if self.takes[wider] >= wanted)


def kind_of(value: Any) -> str:
    """Return the kind of an item's value."""
    kind = value.__class__
    if kind is str:
        return "text"
    if kind is int:
        return "int" if -_EXACT <= value <= _EXACT else "long" if -INT64 <= value < INT64 else "huge"
    if kind is dt.datetime:
        return "local" if value.tzinfo is None else "moment"
    return _KIND_OF_CLASS.get(kind, "json")


KEPT = (bytes, dt.datetime, dt.date, decimal.Decimal)
"""Types of values with their own kind; see :func:`skitter.item.item_fields`."""
_KIND_OF_CLASS: dict[type, str] = {
    bool: "bool",
    float: "float",
    type(None): "",
    bytes: "bytes",
    dt.date: "date",
    decimal.Decimal: "decimal",
}


class TableColumns:
    """The known columns of a table. Other workers and the user may also change the table."""

    def __init__(self, rules: ColumnRules) -> None:
        self._rules = rules
        self.types: dict[str, str] = {}
        """The columns that items may fill."""
        self._filled: frozenset[str] = frozenset()
        self._fitting: set[RowShape] = set()

    def forget(self) -> None:
        """Read the table again before the next write, because another process has changed it."""
        self.types.clear()
        self._fitting.clear()

    def learn(self, types: Mapping[str, str], filled: Iterable[str]) -> None:
        """Record the current columns. ``filled``: the columns that the database fills itself."""
        self.types = dict(types)
        self._filled = frozenset(filled)
        self._fitting.clear()

    def misfits(self, shapes: Iterable[RowShape]) -> dict[str, str]:
        """Return the columns that items of these shapes lack, or that are too narrow, with the types they need.

        Raises :class:`ItemRefusedError` if there are too many columns, or if the database fills one of them itself.
        """
        needed: dict[str, str] = {}
        unknown = [shape for shape in shapes if shape not in self._fitting]
        for columns, kinds in unknown:
            for column, kind in zip(columns, kinds, strict=True):
                present = needed.get(column) or self.types.get(column)
                if kind and column in self._filled:
                    raise ItemRefusedError(
                        f"the database fills the column {column!r} itself, which has a default value; rename the field,"
                        f" or remove the default"
                    )
                wanted = self._rules.widened(present, kind) if kind else present
                if wanted is not None and wanted != present:
                    needed[column] = wanted
        if len(self.types.keys() | needed.keys()) > self._rules.max_columns:
            raise ItemRefusedError(
                f"the table would need more than {self._rules.max_columns} columns; move fields with variable names"
                f" into one nested field, or use ?layout={self._rules.layout}"
            )
        if not needed:
            self._fitting.update(unknown)
        return needed
