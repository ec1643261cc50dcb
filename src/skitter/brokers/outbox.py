"""Outbox: publishes what was added, and answers the messages of the parents when their children are out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from skitter.brokers.contract import Broker, OutgoingMessage

FULL = 10_000
"""Postings that may wait before those who add more have to wait too."""

Then = Callable[[], None]


class Outbox:
    """Messages on their way to the broker. While some are sent the next ones gather.

    What is lost here with the process is known to the state, and published again in time.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._postings: list[OutgoingMessage] = []
        self._then: list[Then] = []
        self._arrived = asyncio.Event()
        self._changed = asyncio.Condition()
        self._sending = 0
        self.failure: BaseException | None = None
        """Why nothing is sent any more."""

    def __len__(self) -> int:
        return len(self._postings) + self._sending

    def put(self, postings: Sequence[OutgoingMessage], then: Then | None = None) -> None:
        """Send messages, and then do something; at once if there is nothing to send."""
        if not postings:
            if then is not None:
                then()
            return
        self._postings += postings
        if then is not None:
            self._then.append(then)
        self._arrived.set()

    async def run(self) -> None:
        """Send for ever. Raises what the broker raises: it has waited long enough by then."""
        try:
            while True:
                await self._arrived.wait()
                self._arrived.clear()
                await self._send()
        except Exception as error:
            self.failure = error
            async with self._changed:
                self._changed.notify_all()
            raise

    async def _send(self) -> None:
        postings, self._postings = self._postings, []
        then, self._then = self._then, []
        self._sending = len(postings)
        if postings:
            await self._broker.publish(postings)
        self._sending = 0
        for answer in then:
            answer()
        async with self._changed:
            self._changed.notify_all()

    async def wait_below(self, count: int) -> None:
        """Wait until fewer than so many messages are on their way. Raises what has ended :meth:`run`."""
        if len(self) < count and self.failure is None:
            return
        async with self._changed:
            await self._changed.wait_for(lambda: len(self) < count or self.failure is not None)
        if self.failure is not None:
            raise self.failure
