"""The messages that a worker has received and not yet used: decides which to offer to the state, keep or requeue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from skitter.brokers.contract import Delivery
from skitter.brokers.message import QueueMessage
from skitter.frontier.records import SlotDecision

MAX_REQUEUE_DELAY = 900.0
"""Maximum delay in seconds with which a message is requeued, even if its slot has a long queue."""
_MIN_REQUEUE_DELAY = 0.2
"""Minimum delay in seconds with which a message is requeued."""
_MAX_LATER_DELAY = 15.0
"""Maximum delay in seconds of a message whose slot is currently empty."""
_MAX_TRACKED_SLOTS = 20_000
"""Maximum number of slots whose pace is known. At this number, all paces are measured again."""
_MAX_LEASE_GAP = 0.25
"""Longest gap in seconds between two leases of a slot that counts as its pace, unless the slot's delay is longer."""
_SPACING = 0.5
"""Spacing of requeued messages of a slot, as a multiple of the interval between its leases."""


class BrokerTuning(msgspec.Struct, frozen=True):
    """Times and amounts of a broker frontier. Times in seconds."""

    hold: float = 0.5
    """Keep a message if its slot is ready within this time, because brokers are slow to deliver a requeued message."""
    max_pending: int = 16
    """Maximum number of messages that are kept in addition to those that the worker has requested."""
    offer_interval: float = 0.05
    """Minimum time between two offers of a message to the state."""
    dry_after: float = 3.0
    """If no new message has come for this time although a slot is ready, search for lost messages."""
    overdue_after: float = 3.0
    """A slot that has been ready for this time without a message has lost some."""
    max_wait: float = 0.0
    """Seconds for which a call for leases waits for messages."""
    settling_time: float = 0.0
    """For this time after the start, the broker may deliver requeued messages late, so the worker keeps more messages."""


class PendingMessage(msgspec.Struct, gc=False, eq=False):
    """A delivered message."""

    delivery: Delivery
    message: QueueMessage
    slot: str
    arrived: float
    offer_at: float = 0.0
    """Earliest time of the next offer."""
    offered_in: int = 0
    """Number of the last call in which the message was offered; 0: none yet."""
    awaits_capacity: bool = False
    """Whether the slot is only at its concurrency limit."""


class _SlotPace(msgspec.Struct):
    """The pace at which this worker leases from a slot."""

    last_requeued_for: float = 0.0
    """Time at which the last requeued message is delivered again."""
    leased_at: float = 0.0
    interval: float = 0.02
    """Average seconds between two leases."""
    longest_wait: float = 0.0
    """Longest delay that the state has requested, about the delay of the slot."""


class PendingMessages:
    """The unused messages of one topic in order of arrival. All times are event loop times."""

    def __init__(self, tuning: BrokerTuning) -> None:
        self._tuning = tuning
        self._messages: list[PendingMessage] = []
        self._settled_at = 0.0
        self._paces: dict[str, _SlotPace] = {}

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[PendingMessage]:
        return iter(self._messages)

    @property
    def never_offered(self) -> int:
        """The number of messages that were never offered to the state."""
        return sum(not pending.offered_in for pending in self._messages)

    def open(self, now: float) -> None:
        """Record that messages arrive from now on."""
        self._settled_at = now + self._tuning.settling_time

    def put(self, delivery: Delivery, message: QueueMessage, now: float) -> None:
        """Keep a new message."""
        self._messages.append(PendingMessage(delivery, message, message.slot_key, now))

    def add_again(self, pending: PendingMessage, seconds: float, now: float) -> None:
        """Keep or requeue a message whose request is to be leased again after ``seconds``."""
        if seconds > self._tuning.hold and now + seconds > self._settled_at:
            pending.delivery.requeue(seconds)
            return
        pending.arrived, pending.awaits_capacity = now, False
        pending.offer_at = now + seconds if self._tuning.offer_interval else 0.0
        self._messages.append(pending)

    def clear(self) -> list[PendingMessage]:
        """Remove and return all messages."""
        messages, self._messages = self._messages, []
        return messages

    def choose(self, call: int, limit: int, now: float) -> list[PendingMessage]:
        """Return at most ``limit`` messages to offer now, each at most once in one call for leases."""
        chosen: list[PendingMessage] = []
        for pending in self._messages:
            if pending.offered_in != call and pending.offer_at <= now:
                pending.offered_in = call
                chosen.append(pending)
                if len(chosen) == limit:
                    break
        return chosen

    def has_choice(self, call: int, now: float) -> bool:
        """Return whether :meth:`choose` would find a message."""
        return any(pending.offered_in != call and pending.offer_at <= now for pending in self._messages)

    def next_offer(self) -> float:
        """Return the time of the next offer; infinity if there is no message."""
        return min((pending.offer_at for pending in self._messages), default=float("inf"))

    def offer_waiting_for_capacity(self) -> None:
        """After a fetch has ended, offer the messages again whose slots were at their concurrency limit."""
        for pending in self._messages:
            if pending.awaits_capacity:
                pending.offer_at, pending.awaits_capacity = 0.0, False

    def remove(self, removed: Sequence[PendingMessage]) -> None:
        """Remove messages without acknowledging them."""
        if removed:
            ids = {id(pending) for pending in removed}
            self._messages = [pending for pending in self._messages if id(pending) not in ids]

    def record_leased(self, leased: Sequence[PendingMessage], now: float) -> None:
        """Update the pace of the slots of these messages."""
        for pending in leased:
            pace = self._pace_of(pending.slot)
            if pace.leased_at:
                # During a longer gap, no message arrived, so it says nothing about the slot's pace.
                gap = min(now - pace.leased_at, max(_MAX_LEASE_GAP, 4 * pace.longest_wait))
                pace.interval += 0.2 * (gap - pace.interval)
            pace.leased_at = now

    def postpone(self, pending: PendingMessage, decision: SlotDecision | float, now: float) -> None:
        """Keep a message that yielded no lease, or requeue it if it would have to wait for long."""
        tuning = self._tuning
        if isinstance(decision, SlotDecision):
            wait = min(_MAX_LATER_DELAY, 0.25 * 2.0 ** min(pending.delivery.attempts, 10))
        else:
            wait = decision
        keep_until = max(pending.arrived + tuning.hold, self._settled_at)
        if now + wait <= keep_until or tuning.hold == float("inf"):
            pending.awaits_capacity = wait == 0.0
            pending.offer_at = now + max(wait, tuning.offer_interval) if tuning.offer_interval else 0.0
            return
        self._messages.remove(pending)
        self._requeue(pending, wait, now)

    def trim(self, wanted: int, now: float) -> None:
        """Requeue the newest messages beyond ``max_pending``, because the oldest are leased first.

        Messages that were never offered stay, because the worker has requested them. At the start, ``wanted`` more messages
        stay.
        """
        most = self._tuning.max_pending + (wanted if now < self._settled_at else 0)
        if len(self._messages) <= most:
            return
        excess = [pending for pending in self._messages if pending.offered_in][most:]
        self.remove(excess)
        for pending in reversed(excess):
            self._requeue(pending, 0.0, now)

    def _requeue(self, pending: PendingMessage, wait: float, now: float) -> None:
        """Requeue a message so that it is delivered after the messages of its slot that were requeued before."""
        pace = self._pace_of(pending.slot)
        pace.longest_wait = max(pace.longest_wait, wait)
        # Better too early than too late: an early message is requeued once more, but a slot without messages stalls.
        earliest = now + max(wait, _MIN_REQUEUE_DELAY)
        pace.last_requeued_for = max(pace.last_requeued_for + _SPACING * pace.interval, earliest)
        pending.delivery.requeue(min(pace.last_requeued_for - now, MAX_REQUEUE_DELAY))

    def reset_pace(self) -> None:
        """Measure the pace of all slots again, because messages were requeued for too long."""
        self._paces.clear()

    def _pace_of(self, slot: str) -> _SlotPace:
        pace = self._paces.get(slot)
        if pace is None:
            if len(self._paces) >= _MAX_TRACKED_SLOTS:
                self._paces.clear()
            pace = self._paces[slot] = _SlotPace()
        return pace
