"""A broker over a queue that must be polled for messages: a list, a database table, an HTTP API."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Protocol

import msgspec

from skitter._utils.concurrency import wait_until_set
from skitter.brokers.contract import Delivery, OutgoingMessage
from skitter.brokers.waiting import publish_patiently
from skitter.errors import FrontierError

__all__ = ["PolledQueue", "PollingBroker", "ReceivedMessage"]

log = logging.getLogger("skitter.frontier")


class ReceivedMessage(msgspec.Struct, frozen=True, gc=False):
    """A message that was received."""

    key: bytes | str | int
    """Identifies the message in :meth:`PolledQueue.delete` and :meth:`PolledQueue.delay`."""
    body: bytes
    attempts: int = 1
    """The number of deliveries of this message, including this one; 1 if the queue does not count them."""


class PolledQueue(Protocol):
    """A message queue that is polled. Any method may raise one of the errors in :attr:`unavailable`."""

    unavailable: tuple[type[Exception], ...]
    """The errors that mean "try again later"."""

    async def open(self) -> None:
        """Connect. May be called again after a failure."""

    async def close(self) -> None:
        """Disconnect. Also called after a failed open."""

    async def put(self, messages: Sequence[OutgoingMessage]) -> None:
        """Store messages. Return when they are stored."""

    async def take(self, count: int) -> Sequence[ReceivedMessage]:
        """Return at most ``count`` messages, without waiting, and hide them from all workers for the lease time."""

    async def delete(self, key: bytes | str | int, /) -> None:
        """Delete a message that was taken."""

    async def delay(self, key: bytes | str | int, seconds: float, /) -> None:
        """Hide a message that was taken for ``seconds`` from now, then show it again. Do not restore a deleted message."""


class PollingBroker:
    """Polls a :class:`PolledQueue` for messages. Implements :class:`~skitter.brokers.contract.Broker`."""

    def __init__(self, queue: PolledQueue, lease_seconds: float, *, interval: float = 0.02) -> None:
        self._queue = queue
        self._lease_seconds = lease_seconds
        self._interval = interval
        """Seconds between two calls of :meth:`PolledQueue.take` while nothing arrives."""
        self._inbox: list[Delivery] = []
        self._unacknowledged: set[_PolledDelivery] = set()
        self._acks: set[asyncio.Future[None]] = set()
        self._allowed = 0
        self._arrived = asyncio.Event()
        self._wake = asyncio.Event()
        self._is_closing = False
        self._polling: asyncio.Task[None] | None = None
        self.is_receiving = False

    async def open(self) -> None:
        try:
            await self._queue.open()
        except self._queue.unavailable as error:
            raise FrontierError(
                f"cannot use the broker: {error}", field="frontier", remedy="start it, or name another one"
            ) from error
        self._is_closing = False
        self._polling = asyncio.create_task(self._poll())

    async def close(self) -> None:
        self._is_closing = True
        self._wake.set()
        if self._polling is not None:
            await asyncio.gather(self._polling, return_exceptions=True)
        for delivery in list(self._unacknowledged):
            delivery.requeue(0.0)
        await asyncio.gather(*self._acks, return_exceptions=True)
        with contextlib.suppress(*self._queue.unavailable):
            await self._queue.close()

    async def publish(self, messages: Sequence[OutgoingMessage]) -> None:
        await publish_patiently(partial(self._queue.put, messages), self._queue.unavailable)
        self._wake.set()

    def allow(self, count: int) -> None:
        if count > self._allowed:
            self._wake.set()
        self._allowed = count

    def receive(self) -> Sequence[Delivery]:
        arrived, self._inbox = self._inbox, []
        return arrived

    async def wait(self, seconds: float) -> bool:
        """Wait for a message. Raises the unexpected error that ended the polling."""
        if self._polling is not None and self._polling.done() and not self._is_closing:
            self._polling.result()
        self._arrived.clear()
        if not self._inbox:
            await wait_until_set(self._arrived, seconds)
        return bool(self._inbox)

    def close_delivery(self, delivery: _PolledDelivery, ack: Awaitable[None]) -> None:
        """Send the last acknowledgement of a delivery, which makes room for another."""
        self._unacknowledged.discard(delivery)
        self._wake.set()
        self.send_ack(ack)

    def send_ack(self, ack: Awaitable[None]) -> None:
        """Send an acknowledgement without waiting. If it is lost, the message is delivered again."""
        task = asyncio.ensure_future(ack)
        self._acks.add(task)
        task.add_done_callback(self._on_ack_done)

    def _on_ack_done(self, task: asyncio.Future[None]) -> None:
        self._acks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.debug("the acknowledgement of a message is lost: %s", error)

    async def _poll(self) -> None:
        while not self._is_closing:
            self._wake.clear()
            room = self._allowed - len(self._unacknowledged)
            taken: Sequence[ReceivedMessage] = ()
            try:
                if room > 0:
                    taken = await self._queue.take(room)
                self.is_receiving = True
            except self._queue.unavailable:
                self.is_receiving = False
            new = [_PolledDelivery(self, self._queue, message, self._lease_seconds) for message in taken]
            self._inbox += new
            self._unacknowledged.update(new)
            if new:
                self._arrived.set()
            await wait_until_set(self._wake, self._interval)


class _PolledDelivery:
    """A delivered message."""

    __slots__ = ("_broker", "_key", "_lease_seconds", "_queue", "attempts", "body")

    def __init__(
        self, broker: PollingBroker, queue: PolledQueue, message: ReceivedMessage, lease_seconds: float
    ) -> None:
        self._broker = broker
        self._queue = queue
        self._key = message.key
        self._lease_seconds = lease_seconds
        self.body = message.body
        self.attempts = message.attempts

    def finish(self) -> None:
        self._broker.close_delivery(self, self._queue.delete(self._key))

    def requeue(self, seconds: float) -> None:
        """Show the message again after ``seconds``."""
        self._broker.close_delivery(self, self._queue.delay(self._key, seconds))

    def touch(self) -> None:
        """Hide the message for another lease time."""
        self._broker.send_ack(self._queue.delay(self._key, self._lease_seconds))
