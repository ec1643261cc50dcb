"""Compression of a connection: deflate from the standard library, snappy from the package ``python-snappy``."""

from __future__ import annotations

import zlib
from typing import Protocol

from skitter.brokers.nsq_client.protocol import NsqError


class CompressionMissing(NsqError):
    """Snappy needs the package ``python-snappy``, which is not installed."""


class Codec(Protocol):
    """Compresses and decompresses the two directions of a connection."""

    def compress(self, data: bytes) -> bytes:
        """Return the bytes to send."""

    def decompress(self, data: bytes) -> bytes:
        """Return the bytes that can be read so far. Raises :class:`NsqError` for invalid input."""


class Deflate:
    """Raw deflate (RFC 1951) at a level from 1 to 9; each write is flushed. Implements :class:`Codec`."""

    def __init__(self, level: int) -> None:
        self._out = zlib.compressobj(level, wbits=-zlib.MAX_WBITS)
        self._in = zlib.decompressobj(wbits=-zlib.MAX_WBITS)

    def compress(self, data: bytes) -> bytes:
        return self._out.compress(data) + self._out.flush(zlib.Z_SYNC_FLUSH)

    def decompress(self, data: bytes) -> bytes:
        try:
            return self._in.decompress(data)
        except zlib.error as error:
            raise NsqError(f"invalid deflate data: {error}") from error


class Snappy:
    """Snappy's framing format. Implements :class:`Codec`. The constructor raises :class:`CompressionMissing`."""

    def __init__(self) -> None:
        try:
            import snappy  # noqa: PLC0415 - an optional package
        except ImportError as error:
            raise CompressionMissing("snappy needs a package: pip install python-snappy") from error
        self._out = snappy.StreamCompressor()
        self._in = snappy.StreamDecompressor()

    def compress(self, data: bytes) -> bytes:
        sent: bytes = self._out.compress(data)
        return sent

    def decompress(self, data: bytes) -> bytes:
        try:
            read: bytes = self._in.decompress(data)
        except Exception as error:
            raise NsqError(f"invalid snappy data: {error}") from error
        return read
