"""The two interfaces of a broker frontier: the :class:`Broker` that carries messages, and the state behind it.

A third broker implements :class:`Broker` and :class:`Delivery`, or :class:`~skitter.brokers.polling.PolledQueue`, and
offers a factory as an entry point; see :mod:`skitter.brokers`. :class:`StateFrontier` is implemented by the embedded and the Redis frontier.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from skitter.frontier.contract import Frontier
from skitter.frontier.records import AddResult, Entry, FetchReport, Outcome, SeedProgress, SlotLeases
from skitter.queues import QueueQuotas

__all__ = ["Broker", "Delivery", "OutgoingMessage", "StateFrontier"]


class OutgoingMessage(msgspec.Struct, frozen=True, gc=False):
    """A message to publish."""

    body: bytes
    delay: float = 0.0
    """Seconds before which the message is of no use. This is only a hint: the broker may deliver the message
    immediately."""


class Delivery(Protocol):
    """A message that was delivered to this worker and must be acknowledged.

    :meth:`finish` or :meth:`requeue` acknowledges a delivery, once. An unacknowledged message is delivered again after
    the broker's message timeout, to any worker. No method waits or raises: a lost acknowledgement leads to another delivery,
    which is harmless.
    """

    @property
    def body(self) -> bytes:
        """The published bytes."""

    @property
    def attempts(self) -> int:
        """The number of deliveries of this message, including this one."""

    def finish(self) -> None:
        """Delete the message from the broker."""

    def requeue(self, seconds: float, /) -> None:
        """Return the message, to be delivered again after ``seconds``."""

    def touch(self) -> None:
        """Restart the message timeout of this delivery."""


class Broker(Protocol):
    """At-least-once delivery of the messages of one topic, each to one of many workers.

    The broker promises one thing: a published message is delivered until a worker finishes it. Messages may arrive
    twice, late and in any order. Even a lost message does no lasting harm, because the state knows every request and
    the frontier publishes requests without a message again (see ``docs/design/brokers.md``).

    All methods are called on one event loop. When a worker crashes, nothing is called: the broker delivers the
    messages of that worker to others after its message timeout. That timeout should be about ``lease_seconds`` of
    the job's :class:`~skitter.frontier.options.FrontierSettings`; :meth:`Delivery.touch` is called each time a lease
    is renewed.
    """

    async def open(self) -> None:
        """Connect, and create the topic and the job's subscription if they do not exist.

        Raises :class:`~skitter.errors.FrontierError` with a remedy if the broker is unavailable or refuses. Once open, a
        broker waits and reconnects instead, whenever the connection is lost. :meth:`open` may be called again after
        a failure.
        """

    async def close(self) -> None:
        """Return every unacknowledged message to the broker, and disconnect. Also called after a failed open."""

    async def publish(self, messages: Sequence[OutgoingMessage]) -> None:
        """Publish messages. Return when the broker has stored them.

        Wait for a broker that is unavailable. Raises :class:`~skitter.errors.FrontierError` if it refuses the messages, or
        stays unavailable longer than an hour; the run ends then. A message may be published twice if its confirmation is
        lost.
        """

    @property
    def is_receiving(self) -> bool:
        """Whether messages can be delivered now: there is a connection with a subscription.

        While it is false, requests whose messages do not arrive are not published again.
        """

    def allow(self, count: int) -> None:
        """Allow at most ``count`` unacknowledged messages, including those received already.

        Called often, also with an unchanged or smaller count; messages above a smaller count are kept.
        """

    def receive(self) -> Sequence[Delivery]:
        """Return the messages that have arrived since the last call, without waiting."""

    async def wait(self, seconds: float) -> bool:
        """Wait at most ``seconds`` until :meth:`receive` has a message. Return whether it has one."""


class StateFrontier(Frontier, Protocol):
    """A frontier that can be the state of a broker frontier.

    It leases from the slots that the messages name, and reports which entries were new, so that only these are
    published.
    """

    async def lease_slots(
        self,
        worker: str,
        slots: Sequence[str],
        limit: int,
        reports: Sequence[FetchReport],
        quotas: QueueQuotas | None = None,
    ) -> SlotLeases:
        """Lease the first waiting request of each slot in ``slots`` that is ready, at most ``limit`` requests.

        A slot that is named twice may yield two requests. ``quotas`` limits the queues that
        :attr:`SlotLeases.more_ready` considers; ``None``: all queues.
        """

    async def add_reported(
        self, entries: Sequence[Entry], seeds: SeedProgress | None = None
    ) -> tuple[AddResult, list[bool]]:
        """Add requests like :meth:`Frontier.add`. Also return which of ``entries`` were added."""

    async def commit_reported(self, outcomes: Sequence[Outcome]) -> tuple[list[bool], list[list[bool]]]:
        """Commit like :meth:`Frontier.commit`. Also return, for each outcome, which of its entries were added."""

    async def overdue_slots(self, seconds: float) -> list[tuple[str, int]]:
        """List the slots that have been ready for at least ``seconds``, and the number of requests waiting in each."""
