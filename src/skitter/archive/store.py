"""Writing an archive: the store of a worker's part, and a fetcher that records the files of sites."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

from skitter.archive.records import encode_capture
from skitter.fetch.contract import (
    UNCONDITIONAL,
    Fetcher,
    HeaderHook,
    SendPermit,
    WrappingFetcher,
    fetch_with_hook,
)
from skitter.item import OutputRange
from skitter.request import Request
from skitter.response import Response
from skitter.store.contract import Buffering, Capture, GroupError, ItemGroup, StoreContext


class PartWriter(Protocol):
    """Writes a part, to a file or to objects on a server."""

    @property
    def buffering(self) -> Buffering | None:
        """See :class:`~skitter.store.contract.Store`."""

    async def open(self, context: StoreContext) -> None:
        """Prepare to write."""

    async def write_blocks(
        self, blocks: Sequence[bytes | GroupError | None]
    ) -> list[OutputRange | GroupError | None]:
        """Append blocks, and return the range of each."""

    async def close(self) -> None:
        """Release all resources."""


class CaptureStore:
    """The store of an archive. ``part``: receives the records.

    Implements :class:`~skitter.store.contract.Store` and :class:`~skitter.store.contract.ArchiveStore`.
    """

    def __init__(self, part: PartWriter) -> None:
        self._part = part
        self._request_headers: Mapping[str, str] = {}

    @property
    def buffering(self) -> Buffering | None:
        return self._part.buffering

    async def open(self, context: StoreContext) -> None:
        self._request_headers = context.request_headers
        await self._part.open(context)

    def encode(self, capture: Capture) -> bytes:
        return encode_capture(capture, self._request_headers)

    async def write(self, groups: Sequence[ItemGroup]) -> list[OutputRange | GroupError | None]:
        """Append the records of each response. Captures that are not encoded yet are encoded in a thread."""
        is_encoded = all(isinstance(item, bytes) for group in groups for item in group.items)
        blocks = self._blocks(groups) if is_encoded else await asyncio.to_thread(self._blocks, groups)
        return await self._part.write_blocks(blocks)

    async def close(self) -> None:
        await self._part.close()

    def _blocks(self, groups: Sequence[ItemGroup]) -> list[bytes | None]:
        return [
            b"".join(item if isinstance(item, bytes) else self.encode(item) for item in group.items) or None
            for group in groups
        ]


class RecordingFetcher(WrappingFetcher):
    """Fetches robots.txt and tdmrep.json, which belong to no page, with another fetcher. Passes all responses to ``record``."""

    def __init__(self, fetcher: Fetcher, record: Callable[[Capture], None]) -> None:
        super().__init__(fetcher)
        self._record = record

    def fetch(
        self,
        request: Request,
        *,
        permit: SendPermit = UNCONDITIONAL,
        on_headers: HeaderHook | None = None,
    ) -> Coroutine[Any, Any, Response]:
        """Fetch one request. Raises what the other fetcher raises."""
        return self._recorded(fetch_with_hook(self._fetcher, request, permit, on_headers))

    async def _recorded(self, fetching: Coroutine[Any, Any, Response]) -> Response:
        began = time.time()
        response = await fetching
        self._record(Capture(response, began))
        return response
