"""Memory frontier: the contract in its most readable form.

Nothing survives the process; everything else holds. It is the twin against which the other backends are
read and tested, and it serves unit tests of spiders.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

from skitter.frontier.embedded.memory_control import MemoryControl
from skitter.frontier.embedded.memory_letters import MemoryLetters
from skitter.frontier.embedded.memory_rows import FOREVER, Waiting
from skitter.frontier.embedded.scheduler import Slot
from skitter.frontier.options import FrontierContext
from skitter.frontier.records import (
    AddResult,
    Entry,
    FetchReport,
    FrontierStatus,
    JobInfo,
    JobState,
    Lease,
    LeaseResult,
    Outcome,
    Resolution,
    SeedClaim,
    SeedProgress,
)
from skitter.frontier.scheduling import extend_ranges, wait_for
from skitter.queues import QueueQuotas
from skitter.request import FINGERPRINT_VERSION


class MemoryFrontier(MemoryControl, MemoryLetters):
    """A frontier in the memory of one process."""

    shared: ClassVar[bool] = False

    @classmethod
    def from_url(cls, _url: str, context: FrontierContext) -> MemoryFrontier:
        """Build the frontier that ``memory:`` names."""
        return cls(context.politeness, context.options)

    async def open(self) -> JobInfo:
        """Return what a worker must know."""
        return JobInfo(self._fingerprint_seed, FINGERPRINT_VERSION, self._options.lease_seconds)

    async def erase(self) -> None:
        """Do nothing: a memory frontier that is not open has no job."""

    async def close(self) -> None:
        """Keep everything: a memory frontier can be opened again while the object lives."""

    async def unknown(self, fingerprints: Sequence[bytes]) -> list[bool]:
        """Tell which fingerprints are new."""
        now = self._clock()
        return [not self._is_known(fingerprint, now) for fingerprint in fingerprints]

    async def add(self, entries: Sequence[Entry], seeds: SeedProgress | None = None) -> AddResult:
        """Add requests with de-duplication; count them as seeds if they are."""
        if seeds is not None and not self._seeds.advance(seeds, self._clock()):
            return AddResult(0, len(entries))
        return self._insert(entries, self._clock())

    async def claim_seeds(self, worker: str) -> SeedClaim | None:
        """Take the duty of loading the seeds."""
        now = self._clock()
        if not self._seeds.is_free(now):
            return None
        self._sequence += 1
        self._seeds.claim(self._sequence, worker, now)
        return SeedClaim(self._sequence, self._seeds.position)

    async def lease(
        self, worker: str, limit: int, landed: Sequence[FetchReport] = (), shares: QueueQuotas | None = None
    ) -> LeaseResult:
        """Hand out what may be fetched now."""
        now = self._clock()
        self._leases.land(landed, now)
        self._wake(now)
        self._slots.tidy(now)
        state = self._current_state()
        leases: list[Lease] = []
        left = self._slots.shares(shares, limit)
        if state is JobState.RUNNING:
            limit = self._options.limits.remaining(self._counters, len(self._leases), limit)
            while len(leases) < limit and (taken := self._slots.take(now, left)) is not None:
                leases.append(self._grant(taken[0], taken[1][2], worker, now))
        capacity = self._options.capacity(self._queued, len(self._delayed), len(self._leases), self._counters)
        return LeaseResult(
            leases,
            state,
            self._ask_again(now, leases, left),
            self._limit_reached(),
            revision=self._revision,
            capacity=capacity,
        )

    def _grant(self, slot: Slot, waiting: Waiting, worker: str, now: float) -> Lease:
        self._queued -= 1
        self._sequence += 1
        held = self._leases.grant(self._sequence, waiting, slot, worker, now)
        entry = waiting.entry
        return Lease(
            self._sequence, entry.fingerprint, entry.slot, entry.url, entry.record,
            waiting.attempt, waiting.lost, held.deadline, slot.start_within,
        )  # fmt: skip

    def _ask_again(self, now: float, leases: list[Lease], left: dict[str, int] | None) -> float:
        delayed_until = self._delayed[0][0] if self._delayed else FOREVER
        return wait_for(self._slots.next_at(left), delayed_until, now, leases)

    async def renew(self, worker: str, lease_ids: Sequence[int]) -> list[int]:
        """Extend leases; return those that are gone."""
        now = self._clock()
        self._wake(now)
        self._seeds.renew(worker, now)
        return self._leases.renew(worker, lease_ids, now)

    async def commit(self, outcomes: Sequence[Outcome]) -> list[bool]:
        """Close leases, each as a whole or not at all."""
        now = self._clock()
        self._wake(now)
        accepted = [self._settle(outcome, now) for outcome in outcomes]
        self._tallies.fold()
        return accepted

    def _settle(self, outcome: Outcome, now: float) -> bool:
        held = self._leases.end(outcome.lease_id)
        if held is None:
            return False
        waiting = held.request
        if outcome.resolution is Resolution.DONE:
            self._done += 1
            self._remember_visit(waiting.entry, now)
        elif outcome.resolution is Resolution.FAILED:
            self._bury(waiting, outcome.error, now)
        else:
            self._retry(waiting, outcome, now)
        self._insert(outcome.entries, now)
        self._tallies.count(held.worker, held.slot.key, outcome)
        self._counters.update(outcome.counters)
        for mark in outcome.outputs:
            extend_ranges(self._outputs.setdefault(mark.part, []), mark)
        return True

    def _remember_visit(self, entry: Entry, now: float) -> None:
        if self._options.visited_ttl is not None and entry.dedup:
            self._seen[entry.fingerprint] = now + self._options.visited_ttl

    def _retry(self, waiting: Waiting, outcome: Outcome, now: float) -> None:
        waiting.attempt += not outcome.free
        if outcome.record is not None:
            waiting.entry = with_record(waiting.entry, outcome.record)
        self._place(waiting, now + outcome.after, now)

    async def release(self, lease_ids: Sequence[int]) -> None:
        """Hand leases back untouched."""
        now = self._clock()
        for lease_id in lease_ids:
            held = self._leases.end(lease_id)
            if held is not None:
                self._place(held.request, now, now)

    async def abandon(self, worker: str) -> int:
        """Take back what a dead worker held."""
        now = self._clock()
        self._seeds.abandon(worker)
        self._roster.forget(worker)
        lost = self._leases.of(worker)
        for lease_id in lost:
            self._lose(lease_id, now)
        return len(lost)

    async def status(self) -> FrontierStatus:
        """Read all counts at one moment."""
        now = self._clock()
        self._wake(now)
        leased = Counter(held.slot.key for held in self._leases)
        busy = [slot for slot in self._slots if slot.waiting or leased[slot.key]]
        busy.sort(key=lambda slot: -len(slot.waiting))
        return FrontierStatus(
            state=self._current_state(),
            added=self._added, queued=self._queued, delayed=len(self._delayed), leased=len(self._leases),
            done=self._done, failed=len(self._dead), seeds_loading=not self._seeds.is_done,
            counters=dict(self._counters), slots=len(busy),
            busiest=[slot.status(len(slot.waiting), leased[slot.key], now) for slot in busy[:20]],
            oldest_lease=self._leases.oldest(now), reason=self._limit_reached(), queues=self._slots.queued(),
        )  # fmt: skip

    async def recrawl(self) -> bool:
        """Begin a finished job again."""
        if self._current_state() is not JobState.FINISHED:
            return False
        if self._options.visited_ttl is None:
            self._seen.clear()
            for _, waiting in self._dead.values():
                waiting.forgotten = waiting.entry.dedup
        self._seeds.start_again()
        return True

    async def outputs(self) -> dict[str, list[tuple[int, int]]]:
        """Return committed byte ranges of each part file."""
        return {part: sorted(ranges) for part, ranges in self._outputs.items()}


def with_record(entry: Entry, record: bytes) -> Entry:
    """Return the entry with another stored request."""
    return Entry(
        entry.fingerprint, entry.slot, entry.url, record, entry.priority, dedup=entry.dedup
    )  # fmt: skip
