"""Slots: who may be fetched next, and when. The scheduling core of the embedded frontiers.

A heap of slots by their next allowed time stands in for sleeping workers: nobody waits holding a request
of a slow host. All times are the frontier's clock, in seconds.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

from skitter.frontier.records import FetchReport, SlotStatus
from skitter.politeness import DEFAULT_CONCURRENCY_PER_SLOT, HostLimits
from skitter.queues import DEFAULT_QUEUE, QueueQuotas, queue_of, share_of

ADAPTIVE_SHARE = 0.5
"""Adapted delay as a share of the server's latency: about two fetches in flight on average."""
ADAPTIVE_CAP = 60.0
FIRST_BACKOFF = 1.0
LONGEST_BACKOFF = 300.0
"""Seconds a slot is held after the first, and at most after repeated, 429 or 503 answers."""
CONNECTIONS_PER_GRACE = 2.0
"""A grace is at least so many times what making a connection to the host takes."""
CONNECTING_KEPT = 0.98
"""What is left, after each answer, of the longest that a connection has taken: hosts get faster, too."""
LONGEST_CONNECTING = 10.0

_FIRST_TIDY = 10_000
"""Slots that may be kept before idle ones are let go."""

HeapEntry = tuple[int, int, Any]
"""A waiting request: rank (low first), sequence number, payload."""


class Slot:
    """One unit of politeness with what waits for it."""

    __slots__ = (
        "adapted", "backoff", "beyond", "bound", "concurrency", "connecting", "floor", "grants", "held_until", "in_flight",
        "jitter", "key", "next_at", "policy", "queue", "rates", "refused_at", "stamp", "waiting",
    )  # fmt: skip

    def __init__(self, key: str, policy: HostLimits) -> None:
        self.key = key
        self.queue = queue_of(key)
        self._set_policy(policy)
        self.waiting: list[HeapEntry] = []
        """Heap of what may be handed out."""
        self.beyond = 0
        """How many more requests wait elsewhere, after ``bound``; none in the memory frontier."""
        self.bound: tuple[int, int] | None = None
        self.in_flight = 0
        self.next_at = 0.0
        self.held_until = 0.0
        self.floor = 0.0
        """Smallest delay, from robots.txt."""
        self.adapted = 0.0
        self.backoff = 0.0
        self.refused_at = 0.0
        self.connecting = 0.0
        """Seconds that making a connection took at most, lately."""
        self.grants: list[deque[float]] = [deque(maxlen=rate.count) for rate in self.rates]
        """For each rate, until when the last requests may have been sent."""
        self.stamp = 0
        """Which entry of the table's heap is the valid one; 0: none."""

    def follow(self, policy: HostLimits, now: float) -> None:
        """Obey other limits from now on."""
        before = self.delay
        history = max(self.grants, key=len, default=deque[float]())
        self._set_policy(policy)
        self.grants = [deque(history, maxlen=rate.count) for rate in self.rates]
        again = now + self.delay + self.jitter + (self.start_within or 0.0)
        self.next_at = max(self.next_at, again) if self.delay > before else min(self.next_at, again)

    def _set_policy(self, policy: HostLimits) -> None:
        self.policy = policy
        self.jitter = policy.jitter or 0.0
        self.concurrency = policy.concurrency_per_slot or DEFAULT_CONCURRENCY_PER_SLOT
        self.rates = policy.parsed_rates()

    @property
    def delay(self) -> float:
        """Seconds between two fetches that hold now."""
        own = self.policy.delay
        return max(self.adapted if own is None else own, self.floor)

    @property
    def has_place(self) -> bool:
        """Whether its limit lets one more fetch be in flight."""
        return self.in_flight < self.concurrency

    @property
    def start_within(self) -> float | None:
        """Grace in which the request of a granted fetch must be sent, where a distance is promised.

        Grants are spaced by the delay *plus* this grace, so that two requests that are sent anywhere
        within theirs still keep the delay. An adapted delay is no promise and has no grace. A tenth of the
        distance, but never so short that no new connection could be made in it.
        """
        promised = [rate.per / rate.count for rate in self.rates]
        distance = max(self.policy.delay or 0.0, self.floor)
        if distance:
            promised.append(distance)
        if not promised:
            return None
        return max(min(0.25, max(0.02, 0.1 * min(promised))), CONNECTIONS_PER_GRACE * self.connecting)

    def ready_at(self) -> float:
        """Return the earliest time at which the next fetch may begin."""
        at = max(self.next_at, self.held_until)
        for rate, grants in zip(self.rates, self.grants, strict=True):
            if len(grants) == rate.count:
                at = max(at, grants[0] + rate.per)
        return at

    def is_idle(self, now: float) -> bool:
        """Tell whether nothing waits, nothing runs, and nothing is to be remembered."""
        if self.waiting or self.beyond or self.in_flight or self.floor or self.backoff:
            return False
        if max(self.next_at, self.held_until) > now:
            return False
        rated = zip(self.rates, self.grants, strict=True)
        return not any(grants and grants[-1] + rate.per > now for rate, grants in rated)

    def status(self, queued: int, leased: int, now: float) -> SlotStatus:
        """Describe it for people."""
        return SlotStatus(self.key, queued, leased, self.delay, max(0.0, self.held_until - now))

    def grant(self, now: float) -> None:
        """Count one fetch that may begin now."""
        self.in_flight += 1
        begun_by = now + (self.start_within or 0.0)
        distance = self.delay
        if distance or self.jitter:
            jitter = random.uniform(0.0, self.jitter) if self.jitter else 0.0
            self.next_at = begun_by + distance + jitter
        else:
            self.next_at = now
        for grants in self.grants:
            grants.append(begun_by)

    def land(self, now: float, granted_at: float, landing: FetchReport) -> None:
        """Take note of how a fetch ended: free its place, adapt, back off."""
        self.free()
        latency = landing.latency
        if landing.refused:
            self._back_off(now, granted_at, landing.retry_after)
        elif latency is not None:
            if granted_at > self.refused_at:
                self.backoff = self.backoff / 2 if self.backoff > FIRST_BACKOFF else 0.0
            if self.policy.delay is None:
                target = min(latency * ADAPTIVE_SHARE, ADAPTIVE_CAP)
                self.adapted = (self.adapted + target) / 2 if self.adapted else target
        if self.connecting or landing.connecting:
            kept = self.connecting if latency is None else self.connecting * CONNECTING_KEPT
            self.connecting = min(LONGEST_CONNECTING, max(landing.connecting, kept))
        if not self.in_flight and not self.jitter and (self.policy.delay or self.floor):
            # Whatever was granted has been sent by now: what is left of the last grace need not be waited for.
            self.next_at = min(self.next_at, now + self.delay)

    def free(self) -> None:
        """Free the place of a fetch of which nothing is known, not even whether it has ended."""
        self.in_flight -= 1

    def _back_off(self, now: float, granted_at: float, retry_after: float | None) -> None:
        # Eight fetches in flight that are all refused are one refusal, not eight doublings.
        if granted_at > self.refused_at or not self.backoff:
            self.backoff = min(max(FIRST_BACKOFF, self.backoff * 2), LONGEST_BACKOFF)
            self.refused_at = now
        # Retry-After: 0 does not switch the back-off off.
        self.held_until = max(self.held_until, now + max(self.backoff, retry_after or 0.0))


_Heap = list[tuple[float, int, int, int, Slot]]
"""Slots of one queue by the time at which they are ready, rank and sequence number of their first request; and the
stamp that is the slot's as long as the entry is valid."""


class SlotTable:
    """All slots of a job, in the order in which they may be fetched, by queue."""

    def __init__(self, policy_of: Callable[[str], HostLimits]) -> None:
        self._policy_of = policy_of
        self._slots: dict[str, Slot] = {}
        self._heap: _Heap = []
        """Of the default queue."""
        self._heaps: dict[str, _Heap] = {DEFAULT_QUEUE: self._heap}
        self._stamps = 0
        self._tidy_at = _FIRST_TIDY

    def __len__(self) -> int:
        return len(self._slots)

    def __iter__(self) -> Any:
        return iter(self._slots.values())

    def get(self, key: str) -> Slot:
        """Return the slot of a key, made with its policy at the first call."""
        slot = self._slots.get(key)
        if slot is None:
            slot = self._slots[key] = Slot(key, self._policy_of(key))
            self._heaps.setdefault(slot.queue, [])
        return slot

    @property
    def has_queues(self) -> bool:
        """Whether there was ever a slot of another queue than the default one."""
        return len(self._heaps) > 1

    def shares(self, shares: QueueQuotas | None, limit: int) -> dict[str, int] | None:
        """Return how many requests may be taken of each queue that is served; ``None``: any number of any."""
        if shares is None:
            return None
        found = {queue: share_of(shares, queue, limit) for queue in self._heaps}
        return {queue: share for queue, share in found.items() if share > 0}

    def queued(self) -> dict[str, int]:
        """Return how many requests wait in each queue, if there was ever another one than the default one."""
        if not self.has_queues:
            return {}
        counts = dict.fromkeys(self._heaps, 0)
        for slot in self._slots.values():
            counts[slot.queue] += len(slot.waiting) + slot.beyond
        return counts

    def find(self, key: str) -> Slot | None:
        """Return the slot of a key if there is one."""
        return self._slots.get(key)

    def push(self, slot: Slot, place: HeapEntry) -> None:
        """Let a request wait in its slot."""
        waiting = slot.waiting
        heappush(waiting, place)
        if waiting[0] is place:
            self.arm(slot)

    def arm(self, slot: Slot) -> None:
        """Put a slot in order anew, after anything that may move its next time."""
        if not slot.waiting or slot.in_flight >= slot.concurrency:
            slot.stamp = 0
            return
        self._stamps += 1
        slot.stamp = self._stamps
        rank, sequence, _ = slot.waiting[0]
        heap = self._heaps[slot.queue]
        if len(heap) > 2 * len(self._slots) + 1024:
            heap[:] = [entry for entry in heap if entry[3] == entry[4].stamp]
            heapify(heap)
        heappush(heap, (slot.ready_at(), rank, sequence, self._stamps, slot))

    def take(self, now: float, shares: dict[str, int] | None = None) -> tuple[Slot, HeapEntry] | None:
        """Hand out the next request that may be fetched now, if there is one.

        ``shares``: as :meth:`shares` gave it; what is handed out is taken off.
        """
        if shares is None and len(self._heaps) == 1:
            return self._take(self._heap, now)
        heap = min(self._served(shares), default=None, key=lambda heap: heap[0])
        taken = None if heap is None else self._take(heap, now)
        if taken is not None and shares is not None:
            shares[taken[0].queue] -= 1
        return taken

    def _served(self, shares: dict[str, int] | None) -> list[_Heap]:
        """Return the heaps that are not empty, and whose queues may give something."""
        heaps = [heap for queue, heap in self._heaps.items() if shares is None or shares.get(queue, 0) > 0]
        for heap in heaps:
            while heap and heap[0][3] != heap[0][4].stamp:
                heappop(heap)
        return [heap for heap in heaps if heap]

    def _take(self, heap: _Heap, now: float) -> tuple[Slot, HeapEntry] | None:
        while heap:
            at, _, _, stamp, slot = heap[0]
            if stamp != slot.stamp:
                heappop(heap)
                continue
            if at > now:
                return None
            heappop(heap)
            place = heappop(slot.waiting)
            slot.grant(now)
            self.arm(slot)
            return slot, place
        return None

    def take_from(self, slot: Slot, now: float) -> tuple[Slot, HeapEntry] | None:
        """Hand out the next request of one slot, if it may be fetched now."""
        if not slot.waiting or not slot.has_place or slot.ready_at() > now:
            return None
        place = heappop(slot.waiting)
        slot.grant(now)
        self.arm(slot)
        return slot, place

    def next_at(self, shares: dict[str, int] | None = None) -> float | None:
        """Return when the next slot becomes ready; ``None`` if no slot waits for time alone.

        ``shares``: only of queues of which there is something left to take.
        """
        return min((heap[0][0] for heap in self._served(shares)), default=None)

    def hold(self, slot: Slot, until: float) -> None:
        """Give out nothing of a slot before a time."""
        slot.held_until = max(slot.held_until, until)
        self.arm(slot)

    def set_floor(self, slot: Slot, seconds: float, now: float) -> None:
        """Set the smallest delay of a slot (Crawl-delay), counted from the robots.txt just read."""
        if seconds > slot.floor:
            slot.floor = seconds
            slot.next_at = max(slot.next_at, now + seconds + (slot.start_within or 0.0))
        slot.floor = seconds
        self.arm(slot)

    def follow(self, policy_of: Callable[[str], HostLimits], now: float) -> None:
        """Give every slot other limits."""
        self._policy_of = policy_of
        for slot in self._slots.values():
            policy = policy_of(slot.key)
            if policy != slot.policy:
                slot.follow(policy, now)
                self.arm(slot)

    def tidy(self, now: float) -> None:
        """Let go of idle slots, whenever the number of slots has doubled."""
        if len(self._slots) < self._tidy_at:
            return
        self._slots = {key: slot for key, slot in self._slots.items() if not slot.is_idle(now)}
        self._tidy_at = max(_FIRST_TIDY, 2 * len(self._slots))
