"""Parquet files: a column for each field, with a type that fits the values of all items. Needs pyarrow.

The lines are read twice: first to find the type of each field, then to write. So all row groups have the same schema,
even if a field first appears late or changes its type during the crawl.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa
from pyarrow.parquet import ParquetWriter

ROWS = 20_000
"""Maximum number of rows in a row group."""
ROW_BYTES = 16 << 20
"""Bytes of JSON after which a row group is complete, regardless of its number of rows. Limits the memory in use."""
_MAX_KEYS = 500
"""An object with more different keys is treated as a mapping, not as a record, and written as JSON text."""

_MAX_DEPTH = 20
"""Lists and objects with more levels are written as JSON text. Readers of Parquet refuse files with more than 100 levels."""

_EXACT, _INT64 = 2**53, 2**63
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode

_SCALARS = {
    "": pa.null(),
    "bool": pa.bool_(),
    "int": pa.int64(),
    "long": pa.int64(),
    "float": pa.float64(),
    "text": pa.string(),
    "json": pa.string(),
}
_JOINED = {frozenset({"int", "long"}): "long", frozenset({"int", "float"}): "float"}


class Column:
    """The type of a field, inferred from its values. Lists and objects contain further columns.

    A kind is a key of ``_SCALARS``, ``list`` or ``struct``. Values without a common type have the kind ``json``:
    strings are written unchanged, other values as JSON text.
    """

    __slots__ = ("depth", "fields", "inner", "kind")

    def __init__(self, depth: int = 0) -> None:
        self.depth = depth
        self.kind = ""
        self.inner: Column | None = None
        self.fields: dict[str, Column] = {}

    def take(self, value: Any) -> None:
        """Widen the type so that it also fits this value."""
        kind = _kind_of(value)
        if self.depth >= _MAX_DEPTH and kind in {"list", "struct"}:
            kind = "json"
        if kind != self.kind:
            if not kind or self.kind == "json":
                return
            self._widen(kind)
        if kind == "list" == self.kind:
            self.inner = self.inner or Column(self.depth + 1)
            for element in value:
                self.inner.take(element)
        elif kind == "struct" == self.kind:
            self._take_fields(value)

    def _widen(self, kind: str) -> None:
        self.kind = _JOINED.get(frozenset({self.kind, kind}), "json") if self.kind else kind
        if self.kind == "json":
            self.inner, self.fields = None, {}

    def _take_fields(self, value: dict[str, Any]) -> None:
        for name, inner in value.items():
            column = self.fields.get(name)
            if column is None:
                column = self.fields[name] = Column(self.depth + 1)
            column.take(inner)
        if len(self.fields) > _MAX_KEYS:
            self._widen("json")

    @property
    def as_text(self) -> bool:
        """Whether values are written as text: no common type, or an object without keys, which Parquet does not support."""
        return self.kind == "json" or (self.kind == "struct" and not self.fields)

    def type(self) -> Any:
        """Return the type for pyarrow."""
        if self.as_text:
            return pa.string()
        if self.kind == "list":
            return pa.list_(self.inner.type() if self.inner else pa.null())
        if self.kind == "struct":
            return pa.struct([(name, column.type()) for name, column in self.fields.items()])
        return _SCALARS[self.kind]

    def has_text_inside(self) -> bool:
        """Whether values must be converted before they are written."""
        inner = [self.inner] if self.inner else list(self.fields.values())
        return self.as_text or any(column.has_text_inside() for column in inner)

    def convert(self, value: Any) -> Any:
        """Return a value in the form in which it is written to the file."""
        if value is None or isinstance(value, str):
            return value
        if self.as_text:
            return _encode(value).decode()
        if self.inner:
            return [self.inner.convert(element) for element in value]
        if self.fields:
            return {name: self.fields[name].convert(inner) for name, inner in value.items()}
        return value


def write_parquet(file: BinaryIO, lines: Callable[[], Iterable[bytes]]) -> None:
    """Write JSON lines to an open file; ``lines`` is called twice. Memory is bounded by one row group."""
    record = Column()
    record.kind = "struct"
    for line in lines():
        for name, value in _decode(line).items():
            column = record.fields.get(name)
            if column is None:
                column = record.fields[name] = Column()
            column.take(value)
    schema = pa.schema([(name, column.type()) for name, column in record.fields.items()])
    converted = {name: column for name, column in record.fields.items() if column.has_text_inside()}
    with ParquetWriter(file, schema, compression="zstd") as writer:
        for rows in _row_groups(lines()):
            for name, column in converted.items():
                for row in rows:
                    if name in row:
                        row[name] = column.convert(row[name])
            writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=schema), row_group_size=ROWS)


def _row_groups(lines: Iterable[bytes]) -> Iterator[list[dict[str, Any]]]:
    rows: list[dict[str, Any]] = []
    size = 0
    for line in lines:
        rows.append(_decode(line))
        size += len(line)
        if len(rows) >= ROWS or size >= ROW_BYTES:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows


def _kind_of(value: Any) -> str:
    kind = value.__class__
    if kind is int:
        return "int" if -_EXACT <= value <= _EXACT else "long" if -_INT64 <= value < _INT64 else "json"
    return _KIND_OF_CLASS[kind]


_KIND_OF_CLASS: dict[type, str] = {
    str: "text",
    float: "float",
    bool: "bool",
    type(None): "",
    list: "list",
    dict: "struct",
}
