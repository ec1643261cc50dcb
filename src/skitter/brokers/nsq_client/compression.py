"""Compression of a connection: deflate by the standard library, snappy by the package ``python-snappy``."""

from __future__ import annotations

import zlib
from typing import Protocol

from skitter.brokers.nsq_client.errors import NsqError


class CompressionMissing(NsqError):
    """Snappy was asked for, and the package ``python-snappy`` is not installed."""


class Codec(Protocol):
    """Both directions of one connection."""

    def compress(self, data: bytes) -> bytes:
        """Return what is to be sent now for these bytes."""
        ...

    def decompress(self, data: bytes) -> bytes:
        """Return what can be read so far."""
        ...


class Deflate:
    """Raw deflate (RFC 1951) at a level from 1 to 9; each write is flushed."""

    def __init__(self, level: int) -> None:
        self._out = zlib.compressobj(level, wbits=-zlib.MAX_WBITS)
        self._in = zlib.decompressobj(wbits=-zlib.MAX_WBITS)

    def compress(self, data: bytes) -> bytes:
        """Return what is to be sent now for these bytes."""
        return self._out.compress(data) + self._out.flush(zlib.Z_SYNC_FLUSH)

    def decompress(self, data: bytes) -> bytes:
        """Return what can be read so far. Raises :class:`NsqError` for what is no deflate."""
        try:
            return self._in.decompress(data)
        except zlib.error as error:
            raise NsqError(f"what arrives is no deflate: {error}") from error


class Snappy:
    """Snappy's framing format. Raises, when made, :class:`CompressionMissing`."""

    def __init__(self) -> None:
        try:
            import snappy  # noqa: PLC0415 - an optional package
        except ImportError as error:
            raise CompressionMissing("snappy needs a package: pip install python-snappy") from error
        self._out = snappy.StreamCompressor()
        self._in = snappy.StreamDecompressor()

    def compress(self, data: bytes) -> bytes:
        """Return what is to be sent now for these bytes."""
        sent: bytes = self._out.compress(data)
        return sent

    def decompress(self, data: bytes) -> bytes:
        """Return what can be read so far. Raises :class:`NsqError` for what is no snappy."""
        try:
            read: bytes = self._in.decompress(data)
        except Exception as error:
            raise NsqError(f"what arrives is no snappy: {error}") from error
        return read
