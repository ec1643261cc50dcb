"""CSV and compression: how a merged file is written."""

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
    """A writable stream of bytes."""

    def write(self, data: bytes, /) -> int:
        """Write all of the bytes."""
        ...


@contextmanager
def compressed(raw: BinaryIO, compression: Compression) -> Iterator[Sink]:
    """Yield a sink that compresses into ``raw``. Leaving the block ends the stream but does not close the file.

    The result is deterministic: no time and no name is stored.
    """
    if compression == "gz":
        open_gzip: Any = igzip.IGzipFile
        with open_gzip(filename="", fileobj=raw, mode="wb", mtime=0) as sink:
            yield cast("Sink", sink)
    elif compression == "zst":
        options: dict[int, int] = {zstd.CompressionParameter.checksum_flag: 1}
        with zstd.ZstdFile(raw, "w", options=options) as writer:  # closing it leaves ``raw`` open
            yield cast("Sink", writer)
    else:
        yield raw


_CHUNK_SIZE = 1 << 18  # characters; memory is bounded by this and one row

_decode_item = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode


def csv_chunks(lines: Callable[[], Iterable[bytes]]) -> Iterator[bytes]:
    """Convert JSON lines to UTF-8 CSV. ``lines`` is called twice: for the columns and for the rows.

    Columns are in order of first appearance. ``None`` and missing fields are empty cells, strings are written as they
    are, and all other values as JSON text. Without items the result is empty: not even a header is written.
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
