"""Inflater: decodes gzip and deflate data that arrives in parts, such as a file that is stored while it is received."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from isal import isal_zlib

CODINGS = frozenset({"gzip", "x-gzip", "deflate"})
"""The content codings that :class:`Inflater` decodes."""
MAX_STREAMS = 4_096
"""Maximum number of gzip members or zstd frames in one body. A body of 32 MiB
from ``bgzip`` has 512."""
GZIP_MAGIC = b"\x1f\x8b"
GZIP, ZLIB, RAW = 31, 15, -15
"""The formats, as values of ``wbits``."""
_BROKEN: type[Exception] = isal_zlib.IsalError  # type: ignore[assignment]  # the stub declares the class as an instance
_MAX_PART = 1 << 16
_WINDOW = 32 * 1024


class InflateError(ValueError):
    """Invalid data, or too many streams."""


def is_zlib(data: bytes) -> bool:
    """Return whether data starts like the zlib format, which "deflate" means. Many servers send raw deflate data instead."""
    return len(data) > 1 and data[0] & 15 == 8 and (data[0] << 8 | data[1]) % 31 == 0


class Inflater:
    """Decodes gzip or deflate data that arrives in parts. Consecutive gzip members are one body; data after them is ignored.

    ``coding``: one of :data:`CODINGS`.
    """

    def __init__(self, coding: str) -> None:
        self._is_gzip = coding != "deflate"
        self._stream: Any = None
        """The stream that is being decoded; ``None`` between two streams."""
        self._streams = 0
        self._has_ended = False
        self._start = b""
        """The first byte of a stream, until the second one arrives."""

    @property
    def is_complete(self) -> bool:
        """Whether the data so far ends with a complete stream."""
        return self._stream is None and self._streams > 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the decoded data in parts of at most 64 KiB.

        Raises :class:`InflateError` for invalid data, and for more than ``MAX_STREAMS`` members.
        """
        for position in range(0, len(data), _WINDOW):  # each decompressor copies the data after its stream
            window = self._start + data[position : position + _WINDOW]
            self._start = b""
            while window and not self._has_ended:
                if self._stream is None:
                    if len(window) == 1:
                        self._start = window
                        break
                    if self._streams and not (self._is_gzip and window.startswith(GZIP_MAGIC)):
                        self._has_ended = True
                        break
                    self._open(window)
                yield from self._expand_window(window)
                if not self._stream.eof:
                    break
                window, self._stream = self._stream.unused_data, None

    def _open(self, start: bytes) -> None:
        self._streams += 1
        if self._streams > MAX_STREAMS:
            raise InflateError(f"too many gzip streams in one body: more than {MAX_STREAMS}")
        self._stream = isal_zlib.decompressobj(GZIP if self._is_gzip else ZLIB if is_zlib(start) else RAW)

    def _expand_window(self, window: bytes) -> Iterator[bytes]:
        while True:
            try:
                part = self._stream.decompress(window, max_length=_MAX_PART)
            except _BROKEN as error:
                raise InflateError(f"invalid compressed data: {error}") from error
            if part:
                yield part
            window = self._stream.unconsumed_tail
            if self._stream.eof or (not window and len(part) < _MAX_PART):
                return
