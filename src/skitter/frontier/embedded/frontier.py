"""SQLite frontier: one file a job, one owner process, decisions in memory, every change on disk.

``docs/embedded-frontier.md`` explains why it is built so. State transitions stand in
``scripts/transitions.sql``; the scheduling is shared with the memory frontier (:mod:`~skitter.frontier.embedded.scheduler`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

import msgspec

from skitter.frontier.embedded import queries
from skitter.frontier.embedded.backlog import Row
from skitter.frontier.embedded.control import SqliteControl
from skitter.frontier.embedded.file_format import file_of
from skitter.frontier.embedded.leases import HeldLease
from skitter.frontier.embedded.letters import SqliteLetters
from skitter.frontier.embedded.removal import remove_file
from skitter.frontier.embedded.rows import Batch, Leased
from skitter.frontier.embedded.scheduler import HeapEntry as Waiting
from skitter.frontier.embedded.scheduler import Slot
from skitter.frontier.embedded.seen import MemorySeen, TimedSeen
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
from skitter.frontier.scheduling import wait_for
from skitter.frontier.stats import OTHERS, StatsKey
from skitter.queues import QueueQuotas
from skitter.request import FINGERPRINT_VERSION


class SqliteFrontier(SqliteLetters, SqliteControl):
    """A frontier in one SQLite file, owned by this process."""

    shared: ClassVar[bool] = False

    @classmethod
    def from_url(cls, url: str, context: FrontierContext) -> SqliteFrontier:
        """Build the frontier that ``sqlite:`` (in the job's folder) or ``sqlite:PATH`` names."""
        return cls(file_of(url, context.directory), context.politeness, context.options)

    async def erase(self) -> None:
        """Delete the file, before it is opened; see :func:`~skitter.frontier.embedded.removal.remove_file`."""
        await asyncio.to_thread(remove_file, self.path)

    # --- opening and closing ---------------------------------------------------------------------------

    async def open(self) -> JobInfo:
        """Open or create the file and rebuild the memory from it.

        Raises :class:`~skitter.errors.FrontierError` if another process owns the file, or it is no
        frontier, of another format, or cannot be written.
        """
        await asyncio.to_thread(self._lock.acquire)
        try:
            fresh = await self._journal.open()
            self._seen = MemorySeen() if self._options.visited_ttl is None else TimedSeen()
            await self._load(fresh=fresh)
            await self._journal.flush()
            if not fresh:  # many short runs would otherwise never come to it
                now = self._clock()
                self._note_sweeps.done(await self._journal.read(lambda file: queries.sweep_notes(file, now)))
        except BaseException:
            await self._journal.close()
            await asyncio.to_thread(self._lock.release)
            raise
        return JobInfo(self._fingerprint_seed, FINGERPRINT_VERSION, self._options.lease_seconds)

    async def close(self) -> None:
        """Hand all leases back, write what is left and give the file free."""
        try:
            await self.release([held.id for held in self._leases])
            self._note_end()
        finally:
            await self._journal.close()
            await asyncio.to_thread(self._lock.release)

    # --- adding ------------------------------------------------------------------------------------------

    async def unknown(self, fingerprints: Sequence[bytes]) -> list[bool]:
        """Tell which fingerprints are new."""
        now = self._clock()
        seen = self._seen
        async with self._deciding:
            await seen.prepare(fingerprints)
            return [not seen.known(fingerprint, now) for fingerprint in fingerprints]

    async def add(self, entries: Sequence[Entry], seeds: SeedProgress | None = None) -> AddResult:
        """Add requests with atomic de-duplication; durable when it returns."""
        async with self._deciding:
            await self._seen.prepare([entry.fingerprint for entry in entries if entry.dedup])
            if seeds is not None and not self._seeds.advance(seeds, self._clock()):
                return AddResult(0, len(entries))
            result = self._insert(entries, self._clock())
        self._note_job()
        await self._journal.flush()
        await self._bound_seen()
        return result

    # --- seeds -------------------------------------------------------------------------------------------

    async def claim_seeds(self, worker: str) -> SeedClaim | None:
        """Take the duty of loading the seeds, if nobody has it."""
        now = self._clock()
        if not self._seeds.is_free(now):
            return None
        self._sequence += 1
        self._seeds.claim(self._sequence, worker, now)
        return SeedClaim(self._sequence, self._seeds.position)

    # --- leases ------------------------------------------------------------------------------------------

    async def lease(
        self, worker: str, limit: int, landed: Sequence[FetchReport] = (), shares: QueueQuotas | None = None
    ) -> LeaseResult:
        """Hand out what may be fetched now; see :meth:`_must_be_noted` for when it is on disk."""
        now = self._clock()
        resting = self._leases.land(landed, now)
        for slot in resting:
            self._note_limits(slot)
        await self._wake(now)
        self._slots.tidy(now)
        leases: list[Lease] = []
        held: list[HeldLease[Leased]] = []
        left = self._slots.shares(shares, limit)
        while len(leases) < limit and self._may_lease():
            taken = self._take(now, left)
            if taken is None:
                if await self._backlog.refill():
                    continue
                break
            leases.append(self._grant(taken[0], taken[1][2], worker, now, held))
        if held:
            self._note_leases(held)
            self._note_job()
        if resting or (held and self._must_be_noted(held)):
            await self._journal.flush()
        elif held:
            self._journal.flush_soon()
        capacity = self._options.capacity(self._queued, self._delayed, len(self._leases), self._counters)
        return LeaseResult(
            leases,
            self.current_state(),
            self._ask_again(now, leases, left),
            self._limit_reached(),
            revision=self._revision,
            capacity=capacity,
        )

    def _take(self, now: float, shares: dict[str, int] | None) -> tuple[Slot, Waiting] | None:
        return self._slots.take(now, shares)

    def _grant(self, slot: Slot, row: Row, worker: str, now: float, batch: list[HeldLease[Leased]]) -> Lease:
        self._backlog.note_empty(slot, row.slot)
        self._backlog.leased.add(row.seq)
        self._queued -= 1
        self._sequence += 1
        held = self._leases.grant(self._sequence, Leased(row), slot, worker, now)
        batch.append(held)
        if slot.grants:
            packed = msgspec.msgpack.encode([list(grants) for grants in slot.grants])
            self._journal.put("grant_slot", row.slot, (row.slot, slot.key, packed))
        return Lease(
            held.id, row.fingerprint, slot.key, row.url, row.record, row.attempt, row.lost,
            held.deadline, slot.start_within,
        )  # fmt: skip

    def _note_leases(self, leases: list[HeldLease[Leased]]) -> None:
        self._sequence += 1
        batch = Batch(self._sequence, [held.request.row for held in leases])
        for held in leases:
            held.request.batch = batch
        self._note_batch(batch)

    def _must_be_noted(self, held: list[HeldLease[Leased]]) -> bool:
        """Tell whether leases are to be in the file before they are given, not only soon after.

        A crash forgets what is not there: that they were in hand, and when their slots granted them.
        """
        return self._careful or any(lease.slot.start_within is not None for lease in held)

    def _may_lease(self) -> bool:
        room = self._options.limits.remaining(self._counters, len(self._leases), 1)
        return room > 0 and self.current_state() is JobState.RUNNING

    def _ask_again(self, now: float, leases: list[Lease], left: dict[str, int] | None) -> float:
        return wait_for(self._slots.next_at(left), self._next_delayed, now, leases)

    async def renew(self, worker: str, lease_ids: Sequence[int]) -> list[int]:
        """Extend leases; return those that are gone."""
        now = self._clock()
        await self._wake(now)
        self._seeds.renew(worker, now)
        return self._leases.renew(worker, lease_ids, now)

    async def release(self, lease_ids: Sequence[int]) -> None:
        """Hand leases back untouched."""
        now = self._clock()
        for lease_id in lease_ids:
            row = self._end(lease_id, now, may_return=True)
            if row is not None and not (self._banned and self._take_away(row)):
                self._queue(row)
        await self._journal.flush()

    async def abandon(self, worker: str) -> int:
        """Take back what a dead worker held."""
        now = self._clock()
        self._seeds.abandon(worker)
        self._roster.forget(worker)
        lost = self._leases.of(worker)
        for lease_id in lost:
            self._lose(lease_id, now)
        self._note_job()
        await self._journal.flush()
        return len(lost)

    # --- committing --------------------------------------------------------------------------------------

    async def commit(self, outcomes: Sequence[Outcome]) -> list[bool]:
        """Close leases, each as a whole or not at all; durable when it returns."""
        now = self._clock()
        await self._wake(now)
        async with self._deciding:
            await self._seen.prepare([e.fingerprint for o in outcomes for e in o.entries if e.dedup])
            counts: dict[str, int] = {}
            tallied: set[StatsKey] = set()
            accepted = [self._settle(outcome, now, counts, tallied) for outcome in outcomes]
            self._count(counts)
            self._note_tallies(tallied)
        self._note_job()
        await self._journal.flush()
        await self._bound_seen()
        return accepted

    def _settle(self, outcome: Outcome, now: float, counts: dict[str, int], tallied: set[StatsKey]) -> bool:
        may_return = outcome.free or outcome.resolution is Resolution.FAILED
        held = self._leases.find(outcome.lease_id)
        row = self._end(outcome.lease_id, now, may_return=may_return)
        if row is None or held is None:
            return False
        tallied.update(self._tallies.count(held.worker, held.slot.key, outcome))
        if outcome.resolution is Resolution.DONE:
            self._finish(row, now)
        elif outcome.resolution is Resolution.FAILED:
            self._bury(row, outcome.error, now)
        else:
            record = row.record if outcome.record is None else outcome.record
            row = row._replace(attempt=row.attempt + (not outcome.free), record=record)
            self._move(row, now + outcome.after, now)
        if outcome.entries:
            self._insert(outcome.entries, now)
        if outcome.counters:
            for name, amount in outcome.counters.items():
                counts[name] = counts.get(name, 0) + amount
        for mark in outcome.outputs:
            self._mark(mark)
        return True

    def _note_tallies(self, changed: set[StatsKey]) -> None:
        gone = self._tallies.fold()
        for group, key in gone:
            self._journal.withdraw("tally", (group, key))
            self._journal.append("drop_tally", (group, key))
        changed.update((group, OTHERS) for group, _ in gone)
        for place in changed:
            row = self._tallies.row(place)
            if row is not None:
                self._journal.put("tally", place, row)

    # --- reading and control -----------------------------------------------------------------------------

    async def status(self) -> FrontierStatus:
        """Read all counts at one moment."""
        now = self._clock()
        await self._wake(now)
        leased = Counter(held.slot.key for held in self._leases)
        busy = [slot for slot in self._slots if slot.waiting or slot.beyond or leased[slot.key]]
        busy.sort(key=lambda slot: -(len(slot.waiting) + slot.beyond))
        return FrontierStatus(
            state=self.current_state(),
            added=self._added, queued=self._queued, delayed=self._delayed, leased=len(self._leases),
            done=self._done, failed=self._dead, seeds_loading=not self._seeds.is_done,
            counters=dict(self._counters), slots=len(busy),
            busiest=[
                slot.status(len(slot.waiting) + slot.beyond, leased[slot.key], now) for slot in busy[:20]
            ],
            oldest_lease=self._leases.oldest(now), reason=self._limit_reached(), queues=self._slots.queued(),
        )  # fmt: skip

    async def recrawl(self) -> bool:
        """Begin a finished job again."""
        if self.current_state() is not JobState.FINISHED:
            return False
        if self._options.visited_ttl is None:
            await self._journal.read(queries.forget_visits)
            self._seen = MemorySeen()
        self._seeds.start_again()
        self._note_job()
        await self._journal.flush()
        return True

    async def outputs(self) -> dict[str, list[tuple[int, int]]]:
        """Return committed byte ranges of each part file: those that are durable, no later ones."""
        ranges = {part: sorted(known) for part, known in self._outputs.items()}
        await self._journal.flush()
        return ranges
