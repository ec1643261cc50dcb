"""The types and names of the columns of a PostgreSQL table."""

from __future__ import annotations

import xxhash

from skitter.item import without_surrogates
from skitter.store.columns import ID_COLUMN
from skitter.store.table_columns import ColumnRules

_MAX_NAME_BYTES = 63
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
RULES = ColumnRules(
    type_for=_TYPE_FOR,
    takes={
        "boolean": frozenset({"bool"}),
        "bigint": frozenset({"int", "long"}),
        "double precision": frozenset({"float", "int"}),
        "numeric": frozenset({"int", "long", "huge", "float", "decimal"}),
        "bytea": frozenset({"bytes"}),
        "timestamp with time zone": frozenset({"moment"}),
        "timestamp without time zone": frozenset({"local"}),
        "date": frozenset({"date"}),
        "text": frozenset(_TYPE_FOR) - {"json"},
        "jsonb": frozenset(_TYPE_FOR),
    },
    wider=("numeric", "text", "jsonb"),
    max_columns=1600,  # appendix K of PostgreSQL's manual
    layout="jsonb",
)


def column_of(field: str) -> str:
    """Return the column of a field: its own name, or a name with a hash if PostgreSQL does not allow it."""
    name = without_surrogates(field)
    if "\0" not in name and name and name != ID_COLUMN and len(name.encode()) <= _MAX_NAME_BYTES:
        return str(name)
    short = name.replace("\0", "\ufffd").encode()[: _MAX_NAME_BYTES - 9].decode(errors="ignore")
    return f"{short}_{xxhash.xxh32_hexdigest(name.encode())}"
