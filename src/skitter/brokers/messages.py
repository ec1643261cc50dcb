"""Messages: those of this worker on their way in and out, and how long it waits for them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

from skitter.brokers.contract import Broker, OutgoingMessage
from skitter.brokers.message import bare_ticket, read_ticket, ticket_of
from skitter.brokers.outbox import Outbox
from skitter.brokers.pending import BrokerTuning, PendingMessages
from skitter.errors import SkitterError
from skitter.frontier.records import Entry

_LARGEST = 512 << 10
"""Bytes: nsqd and NATS take a megabyte as they are set. A larger request stays with the state alone."""
_LAST_POSTINGS = 10.0
"""Seconds for which closing waits for messages on their way."""


class Messages:
    """The broker as one worker sees it: an outbox, and a hand of messages whose turn has not come."""

    def __init__(self, broker: Broker, pace: BrokerTuning, clock: Callable[[], float]) -> None:
        self._broker = broker
        self._pace = pace
        self._clock = clock
        self._mark = b""
        self._sending: asyncio.Task[None] | None = None
        self.hand = PendingMessages(pace)
        self.outbox = Outbox(broker)
        self.fresh_at = 0.0
        """Loop time at which a message came that was never delivered before, or none could have come."""

    async def open(self, mark: bytes) -> None:
        """Connect. ``mark`` tells this life of the job from others."""
        await self._broker.open()
        self._mark = mark
        self._sending = asyncio.create_task(self.outbox.run())
        self.fresh_at = self.now

    async def close(self, *, is_over: bool) -> None:
        """Send what is on its way, put back what is in hand or, if the job is over, let go of it."""
        with contextlib.suppress(TimeoutError, SkitterError):
            async with asyncio.timeout(_LAST_POSTINGS):
                await self.outbox.wait_below(1)
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
        for held in self.hand.clear():
            if is_over:
                held.delivery.finish()
            else:
                held.delivery.requeue(0.0)
        await self._broker.close()

    @property
    def now(self) -> float:
        """Time of the event loop."""
        return asyncio.get_running_loop().time()

    def postings(self, entries: Sequence[Entry], told: Sequence[bool]) -> list[OutgoingMessage]:
        """Return the messages of the entries that were taken."""
        return [self._posting(entry) for entry, is_taken in zip(entries, told, strict=True) if is_taken]

    def _posting(self, entry: Entry) -> OutgoingMessage:
        due = delay = 0.0
        if entry.delay or entry.not_before:
            now = self._clock()
            due = max(entry.not_before, now + entry.delay)
            delay = due - now if due - now > self._pace.hold else 0.0
        body = ticket_of(self._mark, entry, due)
        return OutgoingMessage(body if len(body) <= _LARGEST else bare_ticket(self._mark, entry.slot), delay)

    def bare_posting(self, slot: str) -> OutgoingMessage:
        """Return a message for whatever waits in a slot."""
        return OutgoingMessage(bare_ticket(self._mark, slot))

    def allow(self, count: int) -> None:
        """Have at most so many messages, besides those in hand."""
        self._broker.allow(len(self.hand) + count)

    def receive(self) -> int:
        """Take what has arrived in hand; returns how many messages that were."""
        now = self.now
        deliveries = self._broker.receive()
        for delivery in deliveries:
            ticket = read_ticket(delivery.body, self._mark)
            if ticket is None:
                delivery.finish()  # of another job, or an earlier life of this one
                continue
            if delivery.attempts == 1:
                self.fresh_at = now
            early = ticket.due - self._clock() if ticket.due else 0.0
            if early > self._pace.hold:
                delivery.requeue(early)
            else:
                self.hand.take(delivery, ticket, now)
        return len(deliveries)

    async def wait(self, seconds: float) -> bool:
        """Wait until a message is there to be received, at most so long; returns whether one is."""
        return await self._broker.wait(seconds)


class MessageWaiter:
    """Waits for messages within one call for leases: for those on their way, and those published again."""

    def __init__(
        self, messages: Messages, pace: BrokerTuning, call: int, sweep: Callable[[], Awaitable[int]]
    ) -> None:
        self._messages = messages
        self._dry_after = pace.dry_after
        self._call = call
        self._sweep = sweep
        self._deadline = messages.now + pace.patience if pace.patience else 0.0
        self._coming: int | None = None
        """How many messages are to come that were published again; ``None``: none were yet."""

    async def more(self) -> bool:
        """Return whether there are messages that were not offered yet in this call."""
        messages = self._messages
        if messages.hand.has_unasked(self._call, messages.now):
            return True
        while (left := self._deadline - messages.now) > 0:
            if await messages.wait(left if self._coming else min(left, self._dry_after)):
                received = messages.receive()
                # Other messages may have come instead of them: then it is looked for lost ones once more.
                self._coming = max(0, (self._coming or 0) - received) or None
                return True
            if not self._coming:  # others than those may have come in their place
                self._coming = await self._sweep()
                if not self._coming:
                    return False
        return False
