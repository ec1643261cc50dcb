"""The types, names and literals of the columns of a MySQL or MariaDB table."""

from __future__ import annotations

import datetime as dt
import decimal
import unicodedata
from collections.abc import Mapping
from typing import Any

import xxhash

from skitter.item import encode_item, without_surrogates
from skitter.store.columns import ID_COLUMN
from skitter.store.table_columns import ColumnRules, kind_of

_MAX_NAME = 64
_DECIMAL = decimal.Context(prec=65, traps=[decimal.Inexact, decimal.InvalidOperation])
_SMALLEST = decimal.Decimal("1e-30")
_LARGEST = decimal.Decimal(10) ** 35
_FIRST_YEAR = 1000
"""Dates before it are outside the range that the servers document."""

BOOLEAN, BIGINT, DOUBLE, DECIMAL = "tinyint(1)", "bigint", "double", "decimal(65,30)"
TEXT, BYTES, JSON = "longtext", "longblob", "json"
LOCAL, UTC, DATE = "datetime(6)", "datetime(6) COMMENT 'UTC'", "date"
"""Neither server has a type for times with a time zone, and JSON is a plain text in MariaDB: comments mark such columns."""
_TYPE_FOR = {
    "bool": BOOLEAN,
    "int": BIGINT,
    "long": BIGINT,
    "huge": DECIMAL,
    "float": DOUBLE,
    "fraction": DOUBLE,
    "decimal": DECIMAL,
    "text": TEXT,
    "bytes": BYTES,
    "moment": UTC,
    "local": LOCAL,
    "date": DATE,
    "json": f"{JSON} COMMENT 'JSON'",
}
RULES = ColumnRules(
    type_for=_TYPE_FOR,
    takes={
        BOOLEAN: frozenset({"bool"}),
        BIGINT: frozenset({"bool", "int", "long"}),
        DOUBLE: frozenset({"bool", "int", "float", "fraction"}),
        DECIMAL: frozenset({"bool", "int", "long", "huge", "float", "decimal"}),
        UTC: frozenset({"moment"}),
        LOCAL: frozenset({"local"}),
        DATE: frozenset({"date"}),
        _TYPE_FOR["json"]: frozenset({"json"}),
        TEXT: frozenset(_TYPE_FOR) - {"bytes"},
        BYTES: frozenset(_TYPE_FOR),
    },
    wider=(BIGINT, DOUBLE, DECIMAL, TEXT, BYTES),
    max_columns=1017,  # limit of InnoDB
    layout="json",
)


def type_of(shown: str, comment: str) -> str:
    """Return the type of a column in the form of :data:`RULES`, from the output of ``SHOW FULL COLUMNS``."""
    shown = BIGINT if shown.startswith("bigint(") and "unsigned" not in shown else shown
    if comment == "UTC" and shown == LOCAL:
        return UTC
    return _TYPE_FOR["json"] if comment == "JSON" and shown in {TEXT, JSON} else shown


def literal(value: Any) -> tuple[str, str]:
    """Return the kind of a value that is not null, and the value in SQL (with the mode ``NO_BACKSLASH_ESCAPES``).

    The literal is right for each type to which the column of such a value may be widened.
    """
    kind = kind_of(value)
    if kind in ("int", "long", "bool"):
        return kind, str(int(value))
    if kind == "float":
        return "float" if _is_exact(decimal.Decimal(repr(value))) else "fraction", repr(value)
    if kind == "bytes":
        return kind, f"X'{value.hex()}'"
    if kind in ("huge", "decimal"):
        number = decimal.Decimal(value)
        return (kind, f"{number:f}") if _is_exact(number) else ("text", quoted_text(str(value)))
    if kind == "json":
        text = encode_item({"": value})[4:-1].decode()
    elif kind == "text":
        text = value
    elif value.year < _FIRST_YEAR:
        kind, text = "text", value.isoformat()
    elif kind == "date":
        text = value.isoformat()
    else:
        moment = value.astimezone(dt.UTC).replace(tzinfo=None) if kind == "moment" else value
        text = moment.isoformat(" ", "microseconds")
    return kind, quoted_text(text)


def _is_exact(number: decimal.Decimal) -> bool:
    """Return whether a column of type ``decimal(65,30)`` stores a number without a change of its value."""
    if not number.is_finite() or abs(number) >= _LARGEST:
        return False
    try:
        return _DECIMAL.quantize(number, _SMALLEST) == number
    except decimal.DecimalException:
        return False


def quoted_text(text: str) -> str:
    """Return a text as a literal for a session with the mode ``NO_BACKSLASH_ESCAPES``."""
    try:
        text.encode()
    except UnicodeEncodeError:
        text = str(without_surrogates(text))
    return "'" + text.replace("'", "''") + "'"


def legal_name(field: str) -> str:
    """Return the name of a field, or a name with a hash if a column cannot have it."""
    name = str(without_surrogates(field))
    legal = "".join("\ufffd" if char == "\0" or char > "\uffff" else char for char in name).rstrip(" ")
    if legal == name and name and len(name) <= _MAX_NAME:
        return name
    return f"{legal[: _MAX_NAME - 9]}_{xxhash.xxh32_hexdigest(name.encode())}"


def column_for(name: str, folded_columns: Mapping[str, str]) -> str:
    """Return the column of a field, among the columns of a table by their folded names.

    The servers do not distinguish ``Name`` from ``name``. The second one, and a field that is called like the column of
    the ids, gets a name with a hash.
    """
    if folded_columns.get(folded(name), name) == name and folded(name) != ID_COLUMN:
        return name
    return f"{name[: _MAX_NAME - 5]}_{xxhash.xxh32_intdigest(name.encode()) & 0xFFFF:04x}"


def folded(name: str) -> str:
    """Fold case and accents, as the servers do when they compare the names of columns."""
    plain = "".join(char for char in unicodedata.normalize("NFKD", name) if not unicodedata.combining(char))
    return plain.casefold()
