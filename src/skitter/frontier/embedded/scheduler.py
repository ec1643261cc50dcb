"""The scheduler of the embedded frontier: which request may be fetched next, and when.

Slots are kept in a heap by their next allowed time, so that no worker holds a request of a slow host while it waits.
All times are in seconds, by the frontier's clock.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from heapq import heapify, heappop, heappush, nlargest
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any

from skitter.frontier.records import FetchReport, SlotDecision, SlotStatus
from skitter.frontier.scheduling import MAX_WAIT
from skitter.politeness import DEFAULT_CONCURRENCY_PER_SLOT, HostLimits
from skitter.queues import DEFAULT_QUEUE, QueueQuotas, queue_of, quota_of

ADAPTIVE_SHARE = 0.5
"""Adapted delay as a share of the server's latency: about two concurrent fetches on average."""
MAX_ADAPTIVE_DELAY = 60.0
MIN_BACKOFF = 1.0
MAX_BACKOFF = 300.0
"""Seconds for which a slot is paused after the first 429 or 503 response, and at most after repeated ones."""
CONNECTIONS_PER_GRACE = 2.0
"""The grace period is at least this many times the connection time of the host."""
MIN_GRACE = 0.02
MAX_GRACE = 1.0
"""Limits of the grace period in seconds, unless the host needs more time to connect."""
CONNECT_TIME_DECAY = 0.98
"""Factor applied to the longest known connection time at each response, because hosts get faster, too."""
MAX_CONNECT_TIME = 10.0
"""Upper limit of the connection time that is assumed, in seconds."""
AFFINITY_SHARE = 0.1
MAX_AFFINITY = 1.0
"""Time for which a ready slot is kept for the worker that got the last response: as a share of the delay, and the maximum in
seconds."""
MIN_AFFINE_DELAY = 0.2
"""Delay from which a slot is kept for one worker. With a shorter one, the connections of all workers stay in use."""
LOW_HEAD = 16
"""Waiting requests of a slot in memory at which more are read from the file, before they are needed."""
MIN_EVICTION_SIZE = 10_000
"""Number of slots above which idle slots are evicted."""
MAX_DORMANT_RANKS = 16
"""Maximum number of ranks of dormant slots in one queue, because each step searches for the best one."""
_ORDER_CHECK_INTERVAL = 64
"""Changes of the order of slots between two checks whether it has too many outdated entries."""
_RECOUNT_SHARE = 4
"""The largest slots are searched again when one slot in this number may have changed."""

HeapEntry = tuple[int, int, Any]
"""A waiting request: rank (low first), sequence number, payload."""


class FetchCounts:
    """Numbers of fetches in progress of one queue."""

    __slots__ = ("all", "new")

    def __init__(self) -> None:
        self.all = 0
        self.new = 0
        """Fetches from hosts that have not responded yet. Any of them may take long."""


class Slot:
    """One unit of politeness and its waiting requests."""

    __slots__ = (
        "adapted_delay", "backoff", "concurrency", "connect_time", "counts", "granted_at", "grants", "has_responded", "head_end", "in_flight", "is_paced", "jitter", "key",
        "last_worker", "leased", "min_delay", "next_at", "on_disk", "pages_left", "paused_until", "policy", "queue", "rates", "refused_at", "stamp", "waiting",
    )  # fmt: skip

    def __init__(self, key: str, policy: HostLimits, counts: FetchCounts | None = None) -> None:
        """Create a slot without requests.

        ``counts``: the fetches of its queue; ``None``: they are not counted together.
        """
        self.key = key
        self.counts = FetchCounts() if counts is None else counts
        self.queue = queue_of(key)
        self.min_delay = 0.0
        """Minimum delay, from robots.txt. See :meth:`set_min_delay`."""
        self._set_policy(policy)
        self.waiting: list[HeapEntry] = []
        """Heap of the requests that can be leased."""
        self.on_disk = 0
        """Number of further requests, after ``head_end``, that are only in the file."""
        self.head_end: tuple[int, int] | None = None
        """Rank and sequence number up to which all requests are in memory; ``None`` if all requests of the slot are in
        memory."""
        self.has_responded = False
        """Whether the host has responded since the job was opened."""
        self.in_flight = 0
        self.leased = 0
        self.pages_left = math.inf
        """Pages that the budget of the slot still allows, including leased ones."""
        self.next_at = 0.0
        self.granted_at = 0.0
        """Time of the grant that determined ``next_at``; 0 if not only a grant determined it."""
        self.last_worker = ""
        """The worker that got the last response, if the slot is kept for it; otherwise empty."""
        self.paused_until = 0.0
        self.adapted_delay = 0.0
        self.backoff = 0.0
        self.refused_at = 0.0
        self.connect_time = 0.0
        """The longest recent connection time, in seconds."""
        self.grants: tuple[deque[float], ...] = tuple(deque(maxlen=rate.count) for rate in self.rates)
        """For each rate, the times by which the last requests have been sent."""
        self.stamp = 0
        """Identifies the valid entry of this slot in the heaps of the scheduler. 0: the slot has no entry."""

    def set_policy(self, policy: HostLimits, now: float) -> None:
        """Apply a new policy."""
        before = self.delay
        history = max(self.grants, key=len, default=deque[float]())
        self._set_policy(policy)
        self.grants = tuple(deque(history, maxlen=rate.count) for rate in self.rates)
        again = now + self.delay + self.jitter + (self.start_within or 0.0)
        self.next_at = max(self.next_at, again) if self.delay > before else min(self.next_at, again)
        self.granted_at = 0.0

    @property
    def queued(self) -> int:
        """Number of waiting requests, in memory and in the file."""
        return len(self.waiting) + self.on_disk

    def _set_policy(self, policy: HostLimits) -> None:
        self.policy = policy
        self.jitter = policy.jitter or 0.0
        self.concurrency = policy.concurrency_per_slot or DEFAULT_CONCURRENCY_PER_SLOT
        self.rates = policy.parsed_rates()
        self.set_min_delay(self.min_delay)

    def set_min_delay(self, seconds: float) -> None:
        """Set the minimum delay, from robots.txt."""
        self.min_delay = seconds
        self.is_paced = bool(seconds or self.jitter or self.rates) or self.policy.delay != 0

    @property
    def delay(self) -> float:
        """Seconds between two fetches: the policy's or adapted delay, but at least ``min_delay``."""
        delay = self.policy.delay
        return max(self.adapted_delay if delay is None else delay, self.min_delay)

    @property
    def has_capacity(self) -> bool:
        """Whether the concurrency limit and the budget allow one more fetch."""
        return self.in_flight < self.concurrency and self.leased < self.pages_left

    @property
    def start_within(self) -> float | None:
        """Grace, in seconds, within which a leased request must be sent; ``None`` if no delay is promised.

        Grants are spaced by the delay plus this grace. Two requests that are each sent within their grace therefore
        keep the delay. An adapted delay is not a promise, so it has no grace. The grace is a tenth of the delay, but
        long enough to open a connection.
        """
        if not self.is_paced or not (self.rates or self.min_delay or self.policy.delay):
            return None
        promised = [rate.per / rate.count for rate in self.rates]
        distance = max(self.policy.delay or 0.0, self.min_delay)
        if distance:
            promised.append(distance)
        return max(MIN_GRACE, min(MAX_GRACE, 0.1 * min(promised)), CONNECTIONS_PER_GRACE * self.connect_time)

    @property
    def affinity(self) -> float:
        """Seconds for which the slot, when it is ready, is kept for ``last_worker``, which may have a connection to the host."""
        delay = self.delay
        if delay < MIN_AFFINE_DELAY or not self.last_worker:
            return 0.0
        return min(MAX_AFFINITY, AFFINITY_SHARE * delay)

    def ready_at(self) -> float:
        """Return the earliest time of the next fetch."""
        at = max(self.next_at, self.paused_until)
        if self.rates:
            for rate, grants in zip(self.rates, self.grants, strict=True):
                if len(grants) == rate.count:
                    at = max(at, grants[0] + rate.per)
        return at

    def is_idle(self, now: float) -> bool:
        """Return whether the slot has neither requests nor state that must be kept."""
        if self.waiting or self.on_disk or self.leased or self.in_flight or self.min_delay or self.backoff:
            return False
        if max(self.next_at, self.paused_until) > now:
            return False
        rated = zip(self.rates, self.grants, strict=True)
        return not any(grants and grants[-1] + rate.per > now for rate, grants in rated)

    def status(self, leased: int, now: float) -> SlotStatus:
        """Return the slot's line in a status report."""
        return SlotStatus(self.key, self.queued, leased, self.delay, max(0.0, self.paused_until - now))

    def grant(self, now: float) -> None:
        """Count one fetch that may start now."""
        self.in_flight += 1
        self.counts.all += 1
        if not self.has_responded:
            self.counts.new += 1
        self.granted_at = now
        if not self.is_paced:
            self.next_at = now
            return
        grace = self.start_within
        sent_by = now + (grace or 0.0)
        distance = self.delay
        if distance or self.jitter:
            jitter = random.uniform(0.0, self.jitter) if self.jitter else 0.0
            # An adapted delay is an average, not a promise, so a late grant does not postpone the next one.
            since = max(self.next_at, now - distance) if grace is None else sent_by
            self.next_at = since + distance + jitter
        else:
            self.next_at = now
        for grants in self.grants:
            grants.append(sent_by)

    def end_fetch(self, now: float, granted_at: float, report: FetchReport, worker: str = "") -> None:
        """Record the end of a fetch, adapt the delay, and back off if the server asked for it.

        ``worker``: the one for which the slot is kept if there was a response; empty: for none.
        """
        self.end_unreported_fetch()
        if not report.sent and granted_at == self.granted_at:
            self._undo_grant(granted_at)
        latency = report.latency
        if report.refused:
            self._back_off(now, granted_at, report.retry_after)
        elif latency is not None:
            self.last_worker = worker
            if not self.has_responded:
                self.has_responded = True
                self.counts.new -= self.in_flight
            if granted_at > self.refused_at:
                self.backoff = self.backoff / 2 if self.backoff > MIN_BACKOFF else 0.0
            if self.policy.delay is None:
                target = min(latency * ADAPTIVE_SHARE, MAX_ADAPTIVE_DELAY)
                self.adapted_delay = (self.adapted_delay + target) / 2 if self.adapted_delay else target
        if self.connect_time or report.connecting:
            kept = self.connect_time if latency is None else self.connect_time * CONNECT_TIME_DECAY
            self.connect_time = min(MAX_CONNECT_TIME, max(report.connecting, kept))
        if not self.in_flight and not self.jitter and (self.policy.delay or self.min_delay):
            # All granted requests have been sent by now, so the rest of the last grace is not needed.
            self.next_at = min(self.next_at, now + self.delay)

    def _undo_grant(self, granted_at: float) -> None:
        """Undo the last grant, because its request was not sent: another one may be sent now."""
        self.next_at = granted_at
        for grants in self.grants:
            if grants:
                grants.pop()

    def end_unreported_fetch(self) -> None:
        """Record the end of a fetch without a report."""
        self.in_flight -= 1
        self.counts.all -= 1
        if not self.has_responded:
            self.counts.new -= 1

    def _back_off(self, now: float, granted_at: float, retry_after: float | None) -> None:
        # If eight concurrent fetches are all refused, the pause is doubled once and not eight times.
        if granted_at > self.refused_at or not self.backoff:
            self.backoff = min(max(MIN_BACKOFF, self.backoff * 2), MAX_BACKOFF)
            self.refused_at = now
        # Retry-After: 0 does not disable the backoff.
        self.paused_until = max(self.paused_until, now + max(self.backoff, retry_after or 0.0))


SlotHeap = list[tuple[float, int, int, int, Slot]]
"""Slots by the time at which they are ready, then rank and sequence number of their first request.

The fourth value is the stamp of the entry, which is valid while it equals the slot's stamp.
"""
_NEW_SHARE = 4
"""Hosts that have not responded yet get one in this number of leases while others are ready as well, and may always have
one in this number of fetches.
"""
_FETCHES_PER_RESPONSIVE_HOST = 2
"""Number of concurrent fetches of a host with an adapted delay, see :data:`ADAPTIVE_SHARE`."""


class SlotOrder:
    """The slots of one queue, in the order in which they may be fetched.

    A page may link to 50,000 hosts that do not exist. Hosts that have responded do not wait until all of these were
    tried, and the worker has capacity for them when they are ready: a fetch from a host that has not responded may take
    long.

    A host with a long delay stays with one worker, so that the others need no connection to it. Another worker may have
    its slot only :attr:`Slot.affinity` seconds after it is ready: the last worker is busy then, or has ended.
    """

    __slots__ = ("_kept", "_new", "_responsive", "_turn", "counts")

    def __init__(self) -> None:
        self.counts = FetchCounts()
        self._responsive: SlotHeap = []
        """Slots by the time at which any worker may lease from them."""
        self._kept: dict[str, SlotHeap] = {}
        """Some of these slots once more, by worker: those that are kept for it, by the time at which they are ready."""
        self._new: SlotHeap = []
        """Slots whose hosts have not responded yet."""
        self._turn = 0
        """Counts the leases for which both kinds were ready, see :data:`_NEW_SHARE`."""

    def __len__(self) -> int:
        """Return the number of entries, including outdated ones."""
        return len(self._responsive) + len(self._new) + sum(map(len, self._kept.values()))

    def push(self, slot: Slot, stamp: int) -> None:
        """Add the entry of a slot with waiting requests, in memory or in the file."""
        rank, sequence = slot.waiting[0][:2] if slot.waiting else slot.head_end or (0, 0)
        ready_at = slot.ready_at()
        heap = self._responsive if slot.has_responded else self._new
        if slot.waiting and (affinity := slot.affinity):
            heappush(self._kept.setdefault(slot.last_worker, []), (ready_at, rank, sequence, stamp, slot))
            ready_at += affinity
        heappush(heap, (ready_at, rank, sequence, stamp, slot))

    def drop_invalid(self) -> None:
        """Remove outdated entries."""
        for heap in (self._responsive, self._new, *self._kept.values()):
            heap[:] = [entry for entry in heap if entry[3] == entry[4].stamp]
            heapify(heap)
        self._kept = {worker: heap for worker, heap in self._kept.items() if heap}

    def has_enough_new(self, rank: int, amount: int) -> bool:
        """Return whether there are ``amount`` entries of new hosts, and the first of them has at most ``rank``."""
        return _prune(self._new) and len(self._new) >= amount and self._new[0][1] <= rank

    @property
    def has_new(self) -> bool:
        """Whether slots of hosts that have not responded yet are waiting."""
        return _prune(self._new)

    def first(
        self, worker: str = "", *, only_responsive: bool = False
    ) -> tuple[float, int, int, int, Slot] | None:
        """Return the entry of the slot that is ready first for a worker, if there is one."""
        heap = self._responsive_for(worker)
        responsive = heap[0] if heap else None
        if only_responsive or not _prune(self._new):
            return responsive
        return self._new[0] if responsive is None else min(responsive, self._new[0])

    def _responsive_for(self, worker: str) -> SlotHeap:
        """Return the heap whose first slot is the next one, of those that have responded, from which a worker may lease."""
        has_responsive, kept = _prune(self._responsive), self._kept.get(worker)
        if kept and _prune(kept) and not (has_responsive and self._responsive[0] < kept[0]):
            return kept
        return self._responsive

    def take(
        self,
        now: float,
        worker_capacity: float = math.inf,
        worker: str = "",
        *,
        only_responsive: bool = False,
    ) -> Slot | None:
        """Remove the entry of the next slot from which a worker may fetch, and return the slot, if there is one.

        ``worker_capacity``: number of further requests that the worker can fetch. Some of this capacity is reserved for hosts
        that have responded.
        """
        responsive, new = self._responsive_for(worker), self._new
        takes_responsive = bool(responsive) and responsive[0][0] <= now
        takes_new = not only_responsive and _prune(new) and new[0][0] <= now
        if takes_new and responsive:
            takes_new = self.has_room_for_new(now + MAX_WAIT, worker_capacity, worker)
        if takes_responsive and takes_new:
            self._turn = (self._turn + 1) % _NEW_SHARE
            takes_responsive = self._turn != 0
        if takes_responsive:
            return heappop(responsive)[4]
        return heappop(new)[4] if takes_new else None

    def has_room_for_new(self, until: float, worker_capacity: float, worker: str = "") -> bool:
        """Return whether a request to a host that has not responded yet may be leased, although others have responded.

        For each host that has responded and is ready by a time, two fetches are reserved. New hosts may always have a
        quarter of all fetches.
        """
        most = self.counts.all + worker_capacity
        if most == math.inf:
            return True
        enough = most * (_NEW_SHARE - 1) / _NEW_SHARE
        found: set[int] = set()
        for stamp in chain(_stamps(self._kept.get(worker, []), until), _stamps(self._responsive, until)):
            found.add(stamp)  # a slot may be in both heaps
            if _FETCHES_PER_RESPONSIVE_HOST * len(found) >= enough:
                break
        return self.counts.new < max(most / _NEW_SHARE, most - _FETCHES_PER_RESPONSIVE_HOST * len(found))


def _prune(heap: SlotHeap) -> bool:
    """Remove outdated entries from the top. Return whether an entry is left."""
    while heap and heap[0][3] != heap[0][4].stamp:
        heappop(heap)
    return bool(heap)


def _stamps(heap: SlotHeap, until: float) -> Iterator[int]:
    """Yield the stamps of the valid entries up to a time."""
    indexes = [0]
    while indexes:
        index = indexes.pop()
        if index < len(heap) and heap[index][0] <= until:  # otherwise all entries below it are later, too
            if heap[index][3] == heap[index][4].stamp:
                yield heap[index][3]
            indexes += (2 * index + 1, 2 * index + 2)


class DormantSlots:
    """Slots whose requests are all in the file, and whose hosts have had no fetch: a count of requests for each.

    A crawl may know millions of hosts without a fetch. With its entries in the heaps, a slot takes 700 bytes.
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._usual_rank = 0
        self._other_ranks: dict[str, int] = {}
        """Rank of the first request, if it is not the usual one."""
        self._turns: dict[str, dict[int, deque[str]]] = {}
        """Slots in the order of their arrival, by queue and rank. Some are no longer dormant."""
        self._largest: list[str] = []
        self._changes = 0
        """Number of changes since the largest slots were searched."""

    def __len__(self) -> int:
        return len(self._counts)

    def __contains__(self, key: str) -> bool:
        return key in self._counts

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter(self._counts.items())

    def rank_of(self, key: str) -> int:
        """Return the rank of the first request of a dormant slot."""
        return self._other_ranks.get(key, self._usual_rank)

    def add(self, key: str, rank: int, amount: int) -> bool:
        """Add a slot. Return ``False`` if there are already :data:`MAX_DORMANT_RANKS` other ranks."""
        ranks = self._turns.setdefault(queue_of(key), {})
        if rank not in ranks and len(ranks) >= MAX_DORMANT_RANKS:
            return False
        if not self._counts:
            self._usual_rank = rank
        elif rank != self._usual_rank:
            self._other_ranks[key] = rank
        self._counts[key] = amount
        self._changes += 1
        ranks.setdefault(rank, deque()).append(key)
        return True

    def grow(self, key: str, rank: int, amount: int) -> bool:
        """Count more requests of a slot.

        Return ``False`` if it is not dormant, or if one of them precedes its first.
        """
        count = self._counts.get(key)
        if count is None or rank < self.rank_of(key):
            return False
        self._counts[key] = count + amount
        self._changes += 1
        return True

    def take(self, key: str) -> tuple[int, int] | None:
        """Remove a slot. Return the rank of its first request and their number; ``None`` if it is not dormant."""
        count = self._counts.pop(key, None)
        if count is None:
            return None
        self._changes += 1
        return self._other_ranks.pop(key, self._usual_rank), count

    def first(self, queue: str) -> tuple[int, str] | None:
        """Return the rank and the key of the slot of a queue whose turn is next; ``None`` if there is none."""
        ranks = self._turns.get(queue)
        while ranks:
            rank = min(ranks)
            keys = ranks[rank]
            while keys:
                if keys[0] in self._counts and self.rank_of(keys[0]) == rank:
                    return rank, keys[0]
                keys.popleft()
            del ranks[rank]
        return None

    def largest(self, amount: int) -> list[tuple[str, int]]:
        """Return some of the slots with the most requests.

        Among many slots, one that grew since the last search may be missing: a search takes 0.1 s per million.
        """
        if self._changes > len(self._counts) // _RECOUNT_SHARE or len(self._largest) < amount:
            self._changes = 0
            self._largest = [key for key, _ in nlargest(2 * amount, self._counts.items(), key=itemgetter(1))]
        found = ((key, self._counts.get(key, 0)) for key in self._largest)
        return nlargest(amount, (pair for pair in found if pair[1]), key=itemgetter(1))


class SlotScheduler:
    """All slots of a job by queue, in the order in which they may be fetched."""

    def __init__(
        self,
        limits_of: Callable[[str], HostLimits],
        pages_left_of: Callable[[str], float] = lambda _: math.inf,
    ) -> None:
        self._limits_of = limits_of
        self._pages_left_of = pages_left_of
        self._slots: dict[str, Slot] = {}
        self.dormant = DormantSlots()
        """Slots that are not in use yet. Each slot is either dormant or an object."""
        self._opened_at = 0.0
        self._is_old: Callable[[str], bool] = lambda _: False
        """Whether an earlier run may have fetched from a slot."""
        self._order = SlotOrder()
        """Order of the default queue."""
        self._orders: dict[str, SlotOrder] = {DEFAULT_QUEUE: self._order}
        self._unread: dict[str, SlotOrder] = {DEFAULT_QUEUE: SlotOrder()}
        self.in_memory = 0
        """Number of requests that wait in memory, in all slots together."""
        self.low: dict[Slot, None] = {}
        """Slots with few requests left in memory and further ones in the file."""
        self._last_stamp = 0
        self._evict_at = MIN_EVICTION_SIZE

    def __len__(self) -> int:
        return len(self._slots)

    def __iter__(self) -> Iterator[Slot]:
        return iter(self._slots.values())

    def get(self, key: str) -> Slot:
        """Return the slot of a key. Create it with its policy on the first call. A dormant slot wakes up."""
        slot = self._slots.get(key)
        if slot is None:
            queue = queue_of(key)
            self._create_order(queue)
            slot = self._slots[key] = Slot(key, self._limits_of(key), self._orders[queue].counts)
            slot.pages_left = self._pages_left_of(key)
            if self._is_old(key) and (grace := slot.start_within) is not None:
                slot.next_at = self._opened_at + slot.delay + grace  # the last fetch may be recent
            if (waiting := self.dormant.take(key)) is not None:
                rank, slot.on_disk = waiting
                slot.head_end = (rank, 0)
                self.reschedule(slot)
        return slot

    def resume(self, now: float, is_old: Callable[[str], bool]) -> None:
        """Keep the distance to the last fetches of an earlier run.

        ``is_old``: whether it may have fetched from a slot.
        """
        self._opened_at, self._is_old = now, is_old

    def _create_order(self, queue: str) -> None:
        if queue not in self._orders:
            self._orders[queue] = SlotOrder()
            self._unread[queue] = SlotOrder()

    def find(self, key: str) -> Slot | None:
        """Return the slot of a key if it exists. A dormant slot wakes up."""
        return self.get(key) if key in self.dormant else self._slots.get(key)

    def active(self, key: str) -> Slot | None:
        """Return the slot of a key if it exists and is not dormant."""
        return self._slots.get(key)

    def add_unread(self, key: str, rank: int, amount: int, *, create: bool) -> bool:
        """Count requests that are only in the file, and leave their slot dormant.

        ``create``: whether the slot may be new. Return ``False`` if the slot is not dormant, or has to wake up for
        them.
        """
        if self.dormant.grow(key, rank, amount):
            return True
        if not create or key in self._slots or key in self.dormant or not self.dormant.add(key, rank, amount):
            return False
        self._create_order(queue_of(key))
        return True

    def wake_all(self) -> None:
        """Wake up all dormant slots."""
        for key in [key for key, _ in self.dormant]:
            self.get(key)

    def _wake_next(self, queue: str, amount: int) -> None:
        """Wake slots of a queue up, until there are ``amount`` entries of hosts that have not responded."""
        order = self._unread[queue]
        while (first := self.dormant.first(queue)) is not None and not order.has_enough_new(first[0], amount):
            self.get(first[1])

    def busiest(self, amount: int, leased: Mapping[str, int], now: float) -> list[SlotStatus]:
        """Return the state of the slots with the most waiting requests. ``leased``: number of leases by slot."""
        active = [slot for slot in self._slots.values() if slot.queued or leased.get(slot.key)]
        found = [(slot.queued, slot) for slot in nlargest(amount, active, key=attrgetter("queued"))]
        for key, count in self.dormant.largest(amount):
            slot = Slot(key, self._limits_of(key))
            slot.on_disk = count
            found.append((count, slot))
        found.sort(key=lambda pair: -pair[0])
        return [slot.status(leased.get(slot.key, 0), now) for _, slot in found[:amount]]

    def allowances(self, quotas: QueueQuotas | None, limit: int) -> dict[str, int] | None:
        """Return the number of requests that may be leased from each queue; ``None``: any number from any queue."""
        if quotas is None:
            return None
        allowed = {queue: quota_of(quotas, queue, limit) for queue in self._orders}
        return {queue: count for queue, count in allowed.items() if count > 0}

    def queued(self) -> dict[str, int]:
        """Return the number of waiting requests of each queue; empty if the job has only the default queue."""
        if len(self._orders) == 1:
            return {}
        counts = dict.fromkeys(self._orders, 0)
        for key, count in self.dormant:
            counts[queue_of(key)] += count
        for slot in self._slots.values():
            counts[slot.queue] += slot.queued
        return counts

    def push(self, slot: Slot, entry: HeapEntry) -> None:
        """Add a request to the waiting requests of a slot."""
        waiting = slot.waiting
        heappush(waiting, entry)
        self.in_memory += 1
        if waiting[0] is entry:
            self.reschedule(slot)

    def reschedule(self, slot: Slot) -> None:
        """Compute the position of a slot in the order again, after any change that may move it."""
        if not (slot.waiting or slot.on_disk) or not slot.has_capacity:
            slot.stamp = 0
            return
        self._last_stamp = slot.stamp = self._last_stamp + 1
        order = self._orders[slot.queue] if slot.waiting else self._unread[slot.queue]
        if not self._last_stamp % _ORDER_CHECK_INTERVAL and len(order) > 2 * len(self._slots) + 1024:
            order.drop_invalid()
        order.push(slot, self._last_stamp)

    def unread(
        self,
        until: float,
        limit: int,
        allowances: dict[str, int] | None = None,
        *,
        only_responsive: bool = False,
        worker_capacity: float = math.inf,
    ) -> list[Slot]:
        """Return slots that are ready by a time and whose next requests must be read from the file, in order.

        ``allowances``: consider only queues with an allowance left. ``only_responsive``: only hosts that have responded.
        ``worker_capacity``: as for :meth:`take`.
        """
        orders = []
        for queue, order in self._unread.items():
            is_empty = not len(order) and not len(self.dormant)
            if is_empty or (allowances is not None and allowances.get(queue, 0) <= 0):
                continue
            skips_new = only_responsive or not self._orders[queue].has_room_for_new(until, worker_capacity)
            if not skips_new:
                self._wake_next(queue, limit)
            orders.append((order, skips_new))
        found: list[Slot] = []
        while orders and len(found) < limit:  # one slot of each queue in turn
            taken = [
                (order, skips_new, order.take(until, only_responsive=skips_new))
                for order, skips_new in orders
            ]
            found += [slot for *_, slot in taken if slot is not None]
            orders = [(order, skips_new) for order, skips_new, slot in taken if slot is not None]
        for slot in found:
            self.reschedule(slot)  # a slot counts as ready until it has been read
        return found

    def take(
        self,
        now: float,
        allowances: dict[str, int] | None = None,
        worker_capacity: float = math.inf,
        worker: str = "",
    ) -> tuple[Slot, HeapEntry] | None:
        """Take the next request that a worker may fetch now, if there is one.

        ``allowances``: as returned by :meth:`allowances`; the taken request is subtracted. ``worker_capacity``: number of
        further requests that the worker can fetch.
        """
        if allowances is None and len(self._orders) == 1:
            order: SlotOrder | None = self._order
        else:
            firsts = (
                (first, order)
                for first, order in self._firsts(self._orders, allowances, now, worker_capacity, worker)
                if first[0] <= now
            )
            _, order = min(firsts, default=(None, None), key=lambda found: found[0])
        slot = None if order is None else order.take(now, worker_capacity, worker)
        if slot is None:
            return None
        if allowances is not None:
            allowances[slot.queue] -= 1
        return slot, self._grant(slot, now)

    def _firsts(
        self,
        orders: dict[str, SlotOrder],
        allowances: dict[str, int] | None,
        now: float,
        worker_capacity: float,
        worker: str,
    ) -> Iterator[tuple[tuple[float, int, int, int, Slot], SlotOrder]]:
        """Yield the first entry of each queue that has requests and an allowance, with the order of the queue."""
        for queue, order in orders.items():
            if allowances is None or allowances.get(queue, 0) > 0:
                room = not order.has_new or self._orders[queue].has_room_for_new(
                    now + MAX_WAIT, worker_capacity, worker
                )
                first = order.first(worker, only_responsive=not room)
                if first is not None:
                    yield first, order

    def take_from(self, slot: Slot, now: float) -> tuple[Slot, HeapEntry] | None:
        """Take the next request of one slot, if it may be fetched now."""
        if not slot.waiting or not slot.has_capacity or slot.ready_at() > now:
            return None
        return slot, self._grant(slot, now)

    def _grant(self, slot: Slot, now: float) -> HeapEntry:
        entry = heappop(slot.waiting)
        self.in_memory -= 1
        if slot.on_disk and len(slot.waiting) == LOW_HEAD:
            self.low[slot] = None
        slot.grant(now)
        self.reschedule(slot)
        return entry

    def next_at(
        self,
        allowances: dict[str, int] | None = None,
        now: float = 0.0,
        worker_capacity: float = math.inf,
        worker: str = "",
    ) -> float | None:
        """Return when the next slot becomes ready for a worker; ``None`` if no slot waits only for its time.

        ``allowances``: consider only queues with an allowance left. ``worker_capacity``: number of further requests that the
        worker can fetch. Capacity that is reserved for hosts that have responded is not available to others.
        """
        if len(self.dormant):
            for queue, order in self._unread.items():
                if order.first() is None:
                    self._wake_next(queue, 1)
        times = [
            first[0]
            for orders in (self._orders, self._unread)
            for first, _ in self._firsts(orders, allowances, now, worker_capacity, worker)
        ]
        return min(times, default=None)

    def pause(self, slot: Slot, until: float) -> None:
        """Lease nothing from a slot before a time."""
        slot.paused_until = max(slot.paused_until, until)
        self.reschedule(slot)

    def set_min_delay(self, slot: Slot, seconds: float, now: float) -> None:
        """Set the minimum delay of a slot (Crawl-delay), counted from the robots.txt that was just fetched."""
        is_longer = seconds > slot.min_delay
        slot.set_min_delay(seconds)
        if is_longer:
            slot.next_at = max(slot.next_at, now + seconds + (slot.start_within or 0.0))
            slot.granted_at = 0.0
        self.reschedule(slot)

    def set_policies(self, limits_of: Callable[[str], HostLimits], now: float) -> None:
        """Apply new policies to all slots."""
        self._limits_of = limits_of
        for slot in self._slots.values():
            policy = limits_of(slot.key)
            if policy != slot.policy:
                slot.set_policy(policy, now)
                self.reschedule(slot)

    def evict_idle(self, now: float) -> None:
        """Remove idle slots whenever the number of slots has doubled."""
        if len(self._slots) < self._evict_at:
            return
        self._slots = {key: slot for key, slot in self._slots.items() if not slot.is_idle(now)}
        self._evict_at = max(MIN_EVICTION_SIZE, 2 * len(self._slots))


class NamedSlots:
    """The slots from which one call may lease: from each slot as many times as it is named."""

    def __init__(self, scheduler: SlotScheduler, keys: list[str]) -> None:
        self._scheduler = scheduler
        self._keys = keys
        self._next = 0
        """Index of the slot that is tried next."""
        self.decisions: list[SlotDecision | float] = [SlotDecision.LATER] * len(keys)

    def take(
        self,
        now: float,
        _allowances: dict[str, int] | None = None,
        _worker_capacity: float = math.inf,
        _worker: str = "",
    ) -> tuple[Slot, HeapEntry] | None:
        """Take the next request like :meth:`SlotScheduler.take`, but only from the named slots."""
        while self._next < len(self._keys):
            index, self._next = self._next, self._next + 1
            slot = self._scheduler.find(self._keys[index])
            if self.decisions[index] is SlotDecision.LEASED or slot is None:
                continue
            taken = self._scheduler.take_from(slot, now)
            if taken is not None:
                self.decisions[index] = SlotDecision.LEASED
                return taken
        self._next = 0  # the caller may read more requests from the file, and then all slots are tried again
        return None

    def unread(
        self,
        until: float,
        limit: int,
        _allowances: dict[str, int] | None = None,
        *,
        worker_capacity: float = math.inf,  # noqa: ARG002 - the slots are named
    ) -> list[Slot]:
        """Return slots to read like :meth:`SlotScheduler.unread`, but only named ones."""
        named = {
            key: self._scheduler.find(key)
            for key, decision in zip(self._keys, self.decisions, strict=True)
            if decision is not SlotDecision.LEASED
        }
        return [
            slot
            for slot in named.values()
            if slot is not None
            and slot.on_disk
            and not slot.waiting
            and slot.has_capacity
            and slot.ready_at() <= until
        ][:limit]

    def decide(self, decision_of: Callable[[Slot | None], SlotDecision | float]) -> None:
        """Fill in the decisions for the slots from which nothing was leased."""
        for index, key in enumerate(self._keys):
            if self.decisions[index] is not SlotDecision.LEASED:
                self.decisions[index] = decision_of(self._scheduler.find(key))
