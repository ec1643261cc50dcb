"""Packing: how the bytes of a merged file are compressed."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Literal, Protocol, cast

import msgspec
from isal import igzip

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

Compression = Literal["", "gz", "zst"]


class Sink(Protocol):
    """What takes bytes."""

    def write(self, data: bytes, /) -> int:
        """Take all of the bytes."""
        ...


@contextmanager
def compressed(raw: BinaryIO, packing: Compression) -> Iterator[Sink]:
    """Give a sink that compresses into ``raw``; the end of the block ends the stream, not the file.

    The same bytes always give the same file: no time and no name is stored.
    """
    if packing == "gz":
        open_gzip: Any = igzip.IGzipFile
        with open_gzip(filename="", fileobj=raw, mode="wb", mtime=0) as sink:
            yield cast("Sink", sink)
    elif packing == "zst":
        options: dict[int, int] = {zstd.CompressionParameter.checksum_flag: 1}
        with zstd.ZstdFile(raw, "w", options=options) as writer:  # closing it leaves ``raw`` open
            yield cast("Sink", writer)
    else:
        yield raw


_PIECE = 1 << 18  # characters held in memory at a time, and one row

_decode_item = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode


def csv_chunks(lines: Callable[[], Iterable[bytes]]) -> Iterator[bytes]:
    """Turn JSON lines into UTF-8 CSV; ``lines`` is called twice, for the columns and for the rows.

    Columns stand in the order in which they are first seen. ``None`` and a field that an item lacks are
    empty; a text stands as it is; numbers, booleans, lists and objects stand as their JSON text. No items,
    no header: the result is empty.
    """
    columns: dict[str, None] = {}
    empty = True
    for line in lines():
        empty = False
        columns.update(dict.fromkeys(_decode_item(line)))
    if empty:
        return
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer)
    writer.writerow(columns)
    for line in lines():
        fields = _decode_item(line)
        writer.writerow([_cell(fields[column]) if column in fields else "" for column in columns])
        if buffer.tell() > _PIECE:
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
