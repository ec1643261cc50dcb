"""Room: how many new requests the frontier has room for (``max_queued``), as its last answer said."""

from __future__ import annotations

import asyncio


class Room:
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
