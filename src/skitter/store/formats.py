"""CSV, JSON, XML and compression: how a merged file is written."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol, cast

import msgspec

from skitter._utils.visible import visible

Compression = Literal["", "gz", "zst"]


class Sink(Protocol):
    """A writable stream of bytes."""

    def write(self, data: bytes, /) -> int:
        """Write all of the bytes."""


@contextmanager
def compressed(raw: BinaryIO, compression: Compression) -> Iterator[Sink]:
    """Yield a sink that compresses into ``raw``. Leaving the block ends the stream, but does not close the file.

    The result is deterministic, because it contains neither a time nor a name.
    """
    if compression == "gz":
        from isal import igzip  # noqa: PLC0415 - most outputs are not compressed

        open_gzip: Any = igzip.IGzipFile
        with open_gzip(filename="", fileobj=raw, mode="wb", mtime=0) as sink:
            yield cast("Sink", sink)
    elif compression == "zst":
        zstd = _zstd()
        options: dict[int, int] = {zstd.CompressionParameter.checksum_flag: 1}
        with zstd.ZstdFile(raw, "w", options=options) as writer:  # closing it leaves ``raw`` open
            yield cast("Sink", writer)
    else:
        yield raw


def open_compressed(file: Path, compression: Compression) -> BinaryIO:
    """Open a file that :func:`compressed` has written, for reading."""
    if compression == "gz":
        from isal import igzip  # noqa: PLC0415 - most outputs are not compressed

        open_gzip: Any = igzip.open
        return cast("BinaryIO", open_gzip(file, "rb"))
    if compression == "zst":
        return cast("BinaryIO", _zstd().open(file, "rb"))
    return file.open("rb")


def _zstd() -> Any:
    if sys.version_info >= (3, 14):
        from compression import zstd  # noqa: PLC0415 - most outputs are not compressed
    else:
        from backports import zstd  # noqa: PLC0415 - most outputs are not compressed
    return zstd


CsvCells = Literal["json", "scrapy"]
"""Form of the cells of a CSV file whose values are not texts."""
_CHUNK_SIZE = 1 << 18  # characters; memory is limited by this size and one row

_MAX_SHOWN = 50
"""Maximum number of fields that a warning lists."""

_decode_item = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode


_FORMULA = "\\s*[=+\\-@\uff1d\uff0b\uff0d\uff20]|\t|\r"
"""First characters of cells that a spreadsheet takes for formulas (OWASP, "CSV Injection"). Some accept full-width signs."""
_NUMBER = r"[+-]?[0-9]+(?:[.,:][0-9]+)*(?:[eE][+-]?[0-9]+)?%?"  # both are compiled at their first use


def csv_chunks(
    lines: Callable[[], Iterable[bytes]],
    fields: Sequence[str] = (),
    *,
    spreadsheet: bool = False,
    delimiter: str = ",",
    cells: CsvCells = "json",
) -> Iterator[bytes]:
    """Convert JSON lines to UTF-8 CSV. ``lines`` is called once for the columns, unless they are given, and once for the rows.

    Columns are the given ``fields``, or all fields in order of first appearance. ``None`` and missing fields are empty
    cells, strings are written as they are, and all other values as JSON text. Without items and ``fields`` the result is
    empty: not even a header is written.

    ``spreadsheet``: write the file for use in a spreadsheet. A text that a spreadsheet would take for a formula gets an
    apostrophe in front, control and bidirectional characters are escaped as in JSON, and the file begins with a byte order
    mark, without which Excel does not recognize UTF-8.

    ``delimiter``: the character between cells.

    ``cells="scrapy"``: cells as Scrapy's exporter writes them. The texts of a list are joined by commas, and values that are
    not texts have the form of Python, such as ``True``.
    """
    import csv  # noqa: PLC0415 - other formats need none of it

    cell = _scrapy_cell if cells == "scrapy" else _cell
    columns = dict.fromkeys(fields)
    if not fields:
        empty = True
        for line in lines():
            empty = False
            columns.update(dict.fromkeys(_decode_item(line)))
        if empty:
            return
    buffer = io.StringIO(newline="")
    buffer.write("\ufeff" if spreadsheet else "")
    writer = csv.writer(buffer, delimiter=delimiter)
    writer.writerow(map(_harmless, columns) if spreadsheet else columns)
    for line in lines():
        item = _decode_item(line)
        row = (cell(item[column]) if column in item else "" for column in columns)
        writer.writerow(map(_harmless, row) if spreadsheet else row)
        if buffer.tell() > _CHUNK_SIZE:
            yield _take(buffer)
    yield _take(buffer)


def _take(buffer: io.StringIO) -> bytes:
    text = buffer.getvalue()
    buffer.seek(0)
    buffer.truncate()
    return text.encode()


def _cell(value: msgspec.Raw) -> str:
    text = bytes(value)
    if text.startswith(b'"'):
        return _decode_text(text)
    return "" if text == b"null" else text.decode()


def _scrapy_cell(value: msgspec.Raw) -> str:
    data = msgspec.json.decode(value)
    if isinstance(data, list) and all(isinstance(text, str) for text in data):
        return ",".join(data)
    return "" if data is None else str(data)


def _harmless(text: str) -> str:
    text = visible(text)
    return f"'{text}" if re.match(_FORMULA, text) and not re.fullmatch(_NUMBER, text) else text


class ChosenFields:
    """Reduces items to chosen fields, and records chosen fields that no item has."""

    def __init__(self, fields: Sequence[str]) -> None:
        self._fields = fields
        self._absent = dict.fromkeys(fields)
        """The chosen fields that no item has had so far."""
        self._known: dict[str, None] = {}
        """Some fields of the items, for a warning. Collected while a chosen field is absent."""

    def select(self, line: bytes) -> bytes:
        """Return an item as a JSON line with only the chosen fields, in their order. Missing fields are left out."""
        item = _decode_item(line)
        if self._absent:
            for name in item:
                self._absent.pop(name, None)
            if len(self._known) < _MAX_SHOWN:
                self._known.update(dict.fromkeys(item))
        return msgspec.json.encode({name: item[name] for name in self._fields if name in item})

    def problem(self) -> str:
        """Describe the chosen fields that no item had; empty if there are no such fields, or no items."""
        if not self._absent or not self._known:
            return ""
        shown = list(self._known)[:_MAX_SHOWN]
        return f"no item has the field {', '.join(self._absent)}; items have the fields {', '.join(shown)}"


def json_chunks(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Convert JSON lines to one JSON array, with one item per line."""
    separator = b"["
    for line in lines:
        yield separator + b"\n" + line
        separator = b","
    yield b"[]\n" if separator == b"[" else b"\n]\n"


def xml_chunks(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Convert JSON lines to XML in the form of Scrapy's exporter: ``items``, ``item``, an element for each field.

    The elements of a list are called ``value``. An empty value is an empty element. Characters that XML does not allow
    are replaced: by an underscore in names, and by U+FFFD in texts.
    """
    yield b'<?xml version="1.0" encoding="utf-8"?>\n<items>\n'
    for line in lines:
        yield f"{_xml_element('item', msgspec.json.decode(line))}\n".encode()
    yield b"</items>\n"


_NAME_START = (
    "A-Z_a-z\xc0-\xd6\xd8-\xf6\xf8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c-\u200d\u2070-\u218f\u2c00-\u2fef"
    "\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff"
)
_NAME_REST = "-.0-9\xb7\u0300-\u036f\u203f-\u2040"
# NameStartChar and NameChar of XML 1.0 (fifth edition, 2.3), without the colon.
_BAD_IN_NAME = f"[^{_NAME_START}{_NAME_REST}]|^(?=[{_NAME_REST}])"
_BAD_IN_XML = "[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
# Not compiled at import: such large ranges take 10 ms, which other formats do not need.


_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def _xml_element(name: str, value: Any) -> str:
    """Return an element. Uses a stack of its own, because items may be nested deeper than calls of Python."""
    parts: list[str] = []
    waiting: list[str | tuple[str, Any]] = [
        (name, value)
    ]  # end tags, and elements that are still to be written
    while waiting:
        latest = waiting.pop()
        if isinstance(latest, str):
            parts.append(latest)
            continue
        tag, content = latest
        if isinstance(content, dict):
            inner = [(re.sub(_BAD_IN_NAME, "_", key) or "_", element) for key, element in content.items()]
        elif isinstance(content, list):
            inner = [("value", element) for element in content]
        else:
            parts.append(f"<{tag}>{_xml_text(content)}</{tag}>")
            continue
        parts.append(f"<{tag}>")
        waiting.append(f"</{tag}>")
        waiting.extend(reversed(inner))
    return "".join(parts)


def _xml_text(value: Any) -> str:
    if isinstance(value, str):
        return re.sub(_BAD_IN_XML, "\ufffd", value).translate(_ESCAPES)
    return "" if value is None else msgspec.json.encode(value).decode()
