"""PendingMessages: the messages that this worker holds and whose turn has not come, and where they go meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from skitter.brokers.contract import Delivery
from skitter.brokers.message import QueueMessage, to_text
from skitter.brokers.state import Fate

LONGEST_DEFERRAL = 900.0
"""Seconds: a message of a slow host comes by to be put back once in so long, whatever waits before it."""
_AGAIN = 0.05
"""Seconds after which the state is asked again for a turn whose slot had no place."""
_LONGEST_DOUBT = 15.0
_MOST_SLOTS = 20_000
_LONGEST_GAP = 0.25
_SOONEST = 0.2
"""Seconds for which a message is put back at least."""
_EARLY = 0.5


class BrokerTuning(msgspec.Struct, frozen=True):
    """How patient a broker frontier is; seconds."""

    hold: float = 0.5
    """A message whose slot will be ready so soon is kept here; brokers are slow to deliver what was put back."""
    room: int = 16
    """Messages kept here at most, beyond those that are asked for."""
    again: float = _AGAIN
    """Shortest time between two questions for one turn."""
    dry_after: float = 3.0
    """If no new message has come for so long although some slot is ready, its messages may have been lost."""
    ready_for: float = 3.0
    """A slot that has been ready for so long, and had no message, has lost some."""
    patience: float = 0.0
    """How long a call for leases waits for messages."""


class PendingMessage(msgspec.Struct, gc=False):
    """A message in hand."""

    delivery: Delivery
    ticket: QueueMessage
    slot: str
    arrived: float
    again_at: float = 0.0
    """Not to be offered before."""
    asked: int = 0
    """The last call in which it was offered."""
    is_crowded: bool = False
    """Whether only a place is missing in its slot."""


class _Queue(msgspec.Struct):
    """What is known here of a slot's pace."""

    horizon: float = 0.0
    """When the last message that was put back will come."""
    granted_at: float = 0.0
    interval: float = 0.02
    """Seconds between two grants here, on average."""
    longest_wait: float = 0.0
    """That the state has asked for: about the slot's delay."""


class PendingMessages:
    """Messages whose turn has not come, in order of arrival. Times are the event loop's."""

    def __init__(self, pace: BrokerTuning) -> None:
        self._pace = pace
        self._held: list[PendingMessage] = []
        self._queues: dict[str, _Queue] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[PendingMessage]:
        return iter(self._held)

    @property
    def unoffered(self) -> int:
        """How many messages the state was never asked for."""
        return sum(not held.asked for held in self._held)

    def take(self, delivery: Delivery, ticket: QueueMessage, now: float) -> None:
        """Keep a message until its turn."""
        self._held.append(PendingMessage(delivery, ticket, to_text(ticket.slot), now))

    def take_back(self, held: PendingMessage, seconds: float, now: float) -> None:
        """Keep a message whose request is to be worked on again, after so many seconds, or put it back."""
        if seconds > self._pace.hold:
            held.delivery.requeue(seconds)
            return
        held.arrived, held.again_at, held.is_crowded = now, now + seconds if self._pace.again else 0.0, False
        self._held.append(held)

    def clear(self) -> list[PendingMessage]:
        """Give everything away."""
        held, self._held = self._held, []
        return held

    def offers(self, call: int, limit: int, now: float) -> list[PendingMessage]:
        """Return messages to ask the state for, none of them twice in a call."""
        chosen: list[PendingMessage] = []
        for held in self._held:
            if held.asked != call and held.again_at <= now:
                held.asked = call
                chosen.append(held)
                if len(chosen) == limit:
                    break
        return chosen

    def has_unasked(self, call: int, now: float) -> bool:
        """Tell whether there is a message that was not offered yet in a call."""
        return any(held.asked != call and held.again_at <= now for held in self._held)

    def next_offer(self) -> float:
        """Return when a message is to be offered next; infinity if there is none."""
        return min((held.again_at for held in self._held), default=float("inf"))

    def places_are_free(self) -> None:
        """Offer again what found its slot without a place: a fetch has ended here."""
        for held in self._held:
            if held.is_crowded:
                held.again_at, held.is_crowded = 0.0, False

    def remove(self, gone: Sequence[PendingMessage]) -> None:
        """Let go of messages."""
        if gone:
            ids = {id(held) for held in gone}
            self._held = [held for held in self._held if id(held) not in ids]

    def note_grants(self, granted: Sequence[PendingMessage], now: float) -> None:
        """Learn how fast the slots are served here."""
        for held in granted:
            queue = self._queue(held.slot)
            if queue.granted_at:
                # A longer gap is one in which nothing came, and says nothing of the slot's pace.
                gap = min(now - queue.granted_at, max(_LONGEST_GAP, 4 * queue.longest_wait))
                queue.interval += 0.2 * (gap - queue.interval)
            queue.granted_at = now

    def postpone(self, held: PendingMessage, fate: Fate | float, now: float) -> None:
        """Keep a message for a moment, or put it back until its turn is likely."""
        pace = self._pace
        if fate is Fate.LATER:
            wait = min(_LONGEST_DOUBT, 0.25 * 2.0 ** min(held.delivery.attempts, 10))
        else:
            assert not isinstance(fate, Fate)
            wait = fate
        if now + wait <= held.arrived + pace.hold or pace.hold == float("inf"):
            held.is_crowded = wait == 0.0
            held.again_at = now + max(wait, pace.again) if pace.again else 0.0
            return
        self._held.remove(held)
        self._put_back(held, wait, now)

    def trim(self, now: float) -> None:
        """Put back what is too much to keep, the newest first: the oldest have their turn soonest.

        What was not offered yet came because it is needed, and is not put back.
        """
        if len(self._held) <= self._pace.room:
            return
        too_many = [held for held in self._held if held.asked][self._pace.room :]
        self.remove(too_many)
        for held in reversed(too_many):
            self._put_back(held, 0.0, now)

    def _put_back(self, held: PendingMessage, wait: float, now: float) -> None:
        """Put a message back behind those of its slot that were put back before, as far as this worker knows."""
        queue = self._queue(held.slot)
        queue.longest_wait = max(queue.longest_wait, wait)
        # Rather somewhat early than late: who comes early is put back once more, a slot without messages stands still.
        soonest = now + max(wait, _SOONEST)
        queue.horizon = max(queue.horizon + _EARLY * queue.interval, soonest)
        held.delivery.requeue(min(queue.horizon - now, LONGEST_DEFERRAL))

    def forget_pace(self) -> None:
        """Begin anew with what is known of the slots: messages that were put back for too long were missed."""
        self._queues.clear()

    def _queue(self, slot: str) -> _Queue:
        queue = self._queues.get(slot)
        if queue is None:
            if len(self._queues) >= _MOST_SLOTS:
                self._queues.clear()
            queue = self._queues[slot] = _Queue()
        return queue
