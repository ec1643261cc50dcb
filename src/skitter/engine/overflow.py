"""Overflow: fetched pages whose links find no room in the frontier, kept on this machine until they do.

Their leases are kept in force meanwhile: if this worker dies the pages are fetched again, and nothing is lost.
``docs/redis-frontier.md`` says why it is done so.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import deque
from collections.abc import Sequence

import msgspec

from skitter.frontier.records import Outcome

_IN_MEMORY = 16 << 20
"""Bytes of a segment that stay in memory; more go to a temporary file."""
_SEGMENT = 64 << 20
"""Bytes after which a new segment is begun; one that is read goes from the disk."""
_LENGTH_BYTES = 4


class Aside(msgspec.Struct, array_like=True, frozen=True):
    """A page that is done but for its commit."""

    url: str
    outcome: Outcome


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Aside).decode


class _Segment:
    def __init__(self) -> None:
        # Closed when it is read, or with the process: it has no name that could be left behind.
        self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - lives longer than a block
        self._read_at = 0
        self.size = 0

    def append(self, pages: Sequence[Aside]) -> None:
        self._file.seek(self.size)
        for page in pages:
            record = _encode(page)
            self._file.write(len(record).to_bytes(_LENGTH_BYTES, "big") + record)
        self.size = self._file.tell()

    def next(self) -> Aside:
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
        self._next: Aside | None = None
        self._count = 0

    def __len__(self) -> int:
        return self._count

    async def put(self, pages: Sequence[Aside]) -> None:
        """Keep pages."""
        await asyncio.to_thread(self._append, pages)
        self._count += len(pages)

    def _append(self, pages: Sequence[Aside]) -> None:
        if not self._segments or self._segments[-1].size >= _SEGMENT:
            self._segments.append(_Segment())
        self._segments[-1].append(pages)

    async def first(self) -> Aside:
        """Return the page that was put first; it stays. Only if there is one."""
        if self._next is None:
            self._next = await asyncio.to_thread(self._read)
        return self._next

    def _read(self) -> Aside:
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
