"""QueueCapacity: how many new requests the frontier has room for (``max_queued``), as its last answer said."""

from __future__ import annotations

import asyncio
import tempfile
from collections import deque
from collections.abc import Sequence

import msgspec

from skitter.frontier.records import Outcome


class QueueCapacity:
    """What a worker may send to the frontier now. Without a limit there is always room, at no cost."""

    def __init__(self) -> None:
        self._left: int | None = None
        self._there_is_some = asyncio.Event()
        self._there_is_some.set()

    def told(self, left: int | None) -> None:
        """Take note of an answer of the frontier; ``None``: there is no limit."""
        self._left = left
        if left is None or left > 0:
            self._there_is_some.set()
        else:
            self._there_is_some.clear()

    def take(self, amount: int) -> bool:
        """Use some of the room. What is not there at all is refused; what is too much for it is let through once.

        So a page with more links than there is room for finds its turn.
        """
        if self._left is None or amount == 0:
            return True
        if self._left <= 0:
            return False
        self.told(self._left - amount)
        return True

    async def wait(self) -> None:
        """Return when there is some."""
        await self._there_is_some.wait()


_IN_MEMORY = 16 << 20
"""Bytes of a segment that stay in memory; more go to a temporary file."""
_SEGMENT = 64 << 20
"""Bytes after which a new segment is begun; one that is read goes from the disk."""
_LENGTH_BYTES = 4


class SpilledPage(msgspec.Struct, array_like=True, frozen=True):
    """A page that is done but for its commit."""

    url: str
    outcome: Outcome


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(SpilledPage).decode


class _Segment:
    def __init__(self) -> None:
        # Closed when it is read, or with the process: it has no name that could be left behind.
        self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - lives longer than a block
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
        page = _decode(self._file.read(length))
        self._read_at = self._file.tell()
        return page

    @property
    def is_read(self) -> bool:
        return self._read_at == self.size

    def close(self) -> None:
        self._file.close()


class Overflow:
    """First in, first out; memory is bounded, the disk is not."""

    def __init__(self) -> None:
        self._segments: deque[_Segment] = deque()
        self._next: SpilledPage | None = None
        self._count = 0

    def __len__(self) -> int:
        return self._count

    async def put(self, pages: Sequence[SpilledPage]) -> None:
        """Keep pages."""
        await asyncio.to_thread(self._append, pages)
        self._count += len(pages)

    def _append(self, pages: Sequence[SpilledPage]) -> None:
        if not self._segments or self._segments[-1].size >= _SEGMENT:
            self._segments.append(_Segment())
        self._segments[-1].append(pages)

    async def first(self) -> SpilledPage:
        """Return the page that was put first; it stays. Only if there is one."""
        if self._next is None:
            self._next = await asyncio.to_thread(self._read)
        return self._next

    def _read(self) -> SpilledPage:
        page = self._segments[0].next()
        if self._segments[0].is_read:
            self._segments.popleft().close()
        return page

    def drop_first(self) -> None:
        """Forget the page that :meth:`first` gave."""
        self._next = None
        self._count -= 1

    def close(self) -> None:
        """Forget everything."""
        while self._segments:
            self._segments.popleft().close()
        self._next, self._count = None, 0
