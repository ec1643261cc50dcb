"""LargePages: keeps the large pages that a worker processes at a time within a limit of memory."""

from __future__ import annotations

import asyncio
from collections import deque

from skitter.html.limits import largest_tree, return_freed_memory
from skitter.response import Response

LARGE = 256 * 1024
"""Bytes. A larger page is decoded and parsed in a thread, so that it does not block the event loop."""


class LargePages:
    """Admits large pages one after the other. ``memory``: bytes that one page may take, or several together.

    A page takes the room that it might need before its fetch counts as ended. So a host that sends large pages faster than
    they are processed has to wait, and not the memory. When the page is parsed, only its actual memory counts.
    """

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._taken = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, response: Response) -> int:
        """Wait until there is room for a page. Return the number of bytes to :meth:`give` back."""
        share = largest_tree(len(response.body), self._memory)
        if self._waiting or not self._fits(share):
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append((share, turn))
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled():  # it was admitted at the same time
                    self.give(share)
                raise
        else:
            self._taken += share
        return share

    async def prepare(self, response: Response, share: int) -> int:
        """Decode and parse a page in a thread. Return its new share, by its actual memory."""
        response.max_memory = self._memory
        used = min(share, await asyncio.to_thread(_prepare, response))
        self.give(share - used)
        return used

    def give(self, share: int) -> None:
        """Return room, and admit the next pages."""
        if not share:
            return
        self._taken -= share
        while self._waiting and self._fits(self._waiting[0][0]):
            wanted, turn = self._waiting.popleft()
            if not turn.cancelled():
                self._taken += wanted
                turn.set_result(None)

    def _fits(self, share: int) -> bool:
        return not self._taken or self._taken + share <= self._memory


def _prepare(response: Response) -> int:
    return_freed_memory()
    return response.prepare()
