"""LargePageLimiter: limits the memory of the large pages that a worker processes at the same time."""

from __future__ import annotations

import asyncio
from collections import deque

from skitter.html.limits import largest_tree, return_freed_memory
from skitter.response import Response

LARGE = 256 * 1024
"""Size in bytes above which a page is decoded and parsed in a thread, so that it does not block the event loop. Pages
with few tags, and pages that take little time, stay on the event loop."""
_ON_LOOP = 0.015
"""Seconds of CPU time for which a page is parsed on the event loop before it is passed to a thread. Passing it to a
thread costs 3 ms, and ordinary pages of 1 MB take 8 ms."""


class LargePageLimiter:
    """Admits large pages within a memory limit.

    ``memory``: bytes that all admitted pages may take together. A page reserves the memory that it may need before its
    fetch counts as ended. A host that sends large pages faster than they are processed therefore has to wait. When the
    page is parsed, only its actual memory counts.
    """

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._taken = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def acquire(self, response: Response) -> int:
        """Wait until there is enough memory for a page. Return the number of bytes to pass to :meth:`release`."""
        reserved = largest_tree(len(response.body), self._memory)
        if self._waiting or not self._fits(reserved):
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append((reserved, turn))
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled():  # the page was admitted at the moment of the cancellation
                    self.release(reserved)
                raise
        else:
            self._taken += reserved
        return reserved

    async def prepare(self, response: Response, reserved: int) -> int:
        """Decode and parse a page, in a thread if it takes long.

        ``reserved``: what :meth:`acquire` returned. Return the memory that the page actually takes, to pass to :meth:`release`.
        """
        response.max_memory = self._memory
        used = response.prepare_within(_ON_LOOP)
        if used is None:
            used = await asyncio.to_thread(_prepare, response)
        used = min(reserved, used)
        self.release(reserved - used)
        return used

    def release(self, reserved: int) -> None:
        """Return memory, and admit the next pages."""
        if not reserved:
            return
        self._taken -= reserved
        while self._waiting and self._fits(self._waiting[0][0]):
            wanted, turn = self._waiting.popleft()
            if not turn.cancelled():
                self._taken += wanted
                turn.set_result(None)

    def _fits(self, reserved: int) -> bool:
        return not self._taken or self._taken + reserved <= self._memory


def _prepare(response: Response) -> int:
    return_freed_memory()
    return response.prepare()
