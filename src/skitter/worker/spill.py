"""SpillQueue: stores pages on disk while their links exceed the capacity of the queue (``max_queued``)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import cache

import msgspec

from skitter.frontier.records import Outcome

_MAX_IN_MEMORY = 16 << 20
"""Maximum size in bytes of a segment in memory. A larger segment is moved to a temporary file."""
_SEGMENT_SIZE = 64 << 20
"""Bytes after which a new segment starts. A segment is deleted when all of it has been read."""
_LENGTH_BYTES = 4


class SpilledPage(msgspec.Struct, array_like=True, frozen=True):
    """A finished page that waits for its commit."""

    url: str
    outcome: Outcome


_encode = msgspec.msgpack.Encoder().encode


@cache
def _decoder() -> msgspec.msgpack.Decoder[SpilledPage]:
    """Return the decoder. Few crawls spill, and making it takes 0.4 ms."""
    return msgspec.msgpack.Decoder(SpilledPage)


class _Segment:
    def __init__(self) -> None:
        import tempfile  # noqa: PLC0415 - few crawls exceed the capacity of their queue

        # The file has no name, so the system removes it if the process dies.
        self._file = tempfile.SpooledTemporaryFile(_MAX_IN_MEMORY)  # noqa: SIM115 - it outlives a block
        self._read_at = 0
        self.size = 0

    def append(self, pages: Sequence[SpilledPage]) -> None:
        self._file.seek(self.size)
        for page in pages:
            record = _encode(page)
            self._file.write(len(record).to_bytes(_LENGTH_BYTES, "big") + record)
        self.size = self._file.tell()

    def next(self) -> SpilledPage:
        self._file.seek(self._read_at)
        length = int.from_bytes(self._file.read(_LENGTH_BYTES), "big")
        page = _decoder().decode(self._file.read(length))
        self._read_at = self._file.tell()
        return page

    @property
    def is_read(self) -> bool:
        return self._read_at == self.size

    def close(self) -> None:
        self._file.close()


class SpillQueue:
    """A first-in, first-out queue with bounded memory and unbounded disk usage."""

    def __init__(self) -> None:
        self._segments: deque[_Segment] = deque()
        self._next: SpilledPage | None = None
        self._count = 0

    def __len__(self) -> int:
        return self._count

    async def put(self, pages: Sequence[SpilledPage]) -> None:
        """Append pages."""
        await asyncio.to_thread(self._append, pages)
        self._count += len(pages)

    def _append(self, pages: Sequence[SpilledPage]) -> None:
        if not self._segments or self._segments[-1].size >= _SEGMENT_SIZE:
            self._segments.append(_Segment())
        self._segments[-1].append(pages)

    async def first(self) -> SpilledPage:
        """Return the oldest page without removing it. The queue must not be empty."""
        if self._next is None:
            self._next = await asyncio.to_thread(self._read)
        return self._next

    def _read(self) -> SpilledPage:
        page = self._segments[0].next()
        if self._segments[0].is_read:
            self._segments.popleft().close()
        return page

    def drop_first(self) -> None:
        """Remove the page that :meth:`first` returned."""
        self._next = None
        self._count -= 1

    def close(self) -> None:
        """Remove all pages."""
        while self._segments:
            self._segments.popleft().close()
        self._next, self._count = None, 0
