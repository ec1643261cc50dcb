"""Packing: how the bytes of a merged file are compressed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Literal, Protocol, cast

from isal import igzip

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

type_of_packing = Literal["", "gz", "zst"]


class Sink(Protocol):
    """What takes bytes."""

    def write(self, data: bytes, /) -> int:
        """Take all of the bytes."""
        ...


@contextmanager
def packed(raw: BinaryIO, packing: type_of_packing) -> Iterator[Sink]:
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
