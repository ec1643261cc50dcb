"""The seam for brokers: what a message broker must be able to do to carry a frontier's queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec


class OutgoingMessage(msgspec.Struct, frozen=True, gc=False):
    """A message to be published."""

    body: bytes
    delay: float = 0.0
    """Seconds before which it need not be delivered: a hint, a broker may deliver it at once."""


class Delivery(Protocol):
    """A message in hand. It comes again if it is not answered within the broker's patience.

    None of the answers waits or fails: one that is lost leads to another delivery, which is harmless.
    """

    @property
    def body(self) -> bytes:
        """What was published."""
        ...

    @property
    def attempts(self) -> int:
        """How often it was delivered, this time included."""
        ...

    def finish(self) -> None:
        """Let the broker forget it."""
        ...

    def requeue(self, seconds: float, /) -> None:
        """Put it back, to be delivered again after so many seconds."""
        ...

    def touch(self) -> None:
        """Ask for as much patience again."""
        ...


class Broker(Protocol):
    """At-least-once delivery of messages, each to one of many workers."""

    async def open(self) -> None:
        """Connect. Raises :class:`~skitter.errors.FrontierError` with a remedy; later it waits for the broker."""
        ...

    async def close(self) -> None:
        """Put back what is in hand, and disconnect."""
        ...

    async def publish(self, postings: Sequence[OutgoingMessage]) -> None:
        """Publish messages; returns when the broker has them. Waits for a broker that is away."""
        ...

    def allow(self, count: int) -> None:
        """Have at most so many messages delivered and not answered."""
        ...

    def receive(self) -> Sequence[Delivery]:
        """Return the messages that have arrived since, without waiting."""
        ...

    async def wait(self, seconds: float) -> bool:
        """Wait until a message is there to be received, at most so many seconds; returns whether one is."""
        ...
