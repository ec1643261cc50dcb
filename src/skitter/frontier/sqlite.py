"""SQLite frontier: one file a job, one owner process, decisions in memory, every change on disk.

``docs/embedded-frontier.md`` explains why it is built so. State transitions stand in
``scripts/transitions.sql``; the scheduling is shared with the memory frontier (:mod:`~skitter.frontier.slots`).
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import msgspec

from skitter.frontier import letters
from skitter.frontier.backlog import Backlog, Row
from skitter.frontier.base import (
    AddResult,
    DeadLetter,
    Entry,
    FrontierContext,
    FrontierOptions,
    FrontierStatus,
    JobInfo,
    JobState,
    Landing,
    Lease,
    LeaseResult,
    Outcome,
    OutputMark,
    Resolution,
    SeedClaim,
    SeedMark,
    steady_clock,
)
from skitter.frontier.file_format import file_of
from skitter.frontier.journal import Journal
from skitter.frontier.leases import HeldLease, LeaseBook
from skitter.frontier.memory import extend_ranges, rank_of, slot_status, wait_for
from skitter.frontier.ownership import OwnerLock
from skitter.frontier.removal import remove_file
from skitter.frontier.restore import restore
from skitter.frontier.seen import MemorySeen, Seen, TimedSeen
from skitter.frontier.seen_disk import DiskSeen, move_to_disk
from skitter.frontier.slots import Place, Slot, SlotTable
from skitter.politeness import Politeness
from skitter.request import FINGERPRINT_VERSION

_WOKEN_AT_ONCE = 1_000


class _Batch:
    """Leases handed out together; they share one row in the file."""

    __slots__ = ("id", "members")

    def __init__(self, batch_id: int, rows: Sequence[Row]) -> None:
        self.id = batch_id
        self.members = {row.seq: (row.seq, row.attempt, row.lost) for row in rows}


class _Leased(msgspec.Struct):
    """A request on lease."""

    row: Row
    batch: _Batch | None = None


class SqliteFrontier:
    """A frontier in one SQLite file, owned by this process."""

    shared: ClassVar[bool] = False

    def __init__(
        self,
        path: str | Path,
        politeness: Politeness | None = None,
        options: FrontierOptions | None = None,
        *,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.path = Path(path)
        self._options = options if options is not None else FrontierOptions()
        self._clock = clock if clock is not None else steady_clock()
        self._lock = OwnerLock(self.path)
        self._journal = Journal(self.path, self._options.durability)
        self._slots = SlotTable((politeness if politeness is not None else Politeness()).policy_of)
        self._backlog = Backlog(self._journal, self._slots)
        self._leases: LeaseBook[_Leased] = LeaseBook(self._slots, self._options.lease_seconds)
        self._seen: Seen = MemorySeen()
        self._deciding = asyncio.Lock()
        self._slot_numbers: dict[str, int] = {}
        self._slot_keys: dict[int, str] = {}
        self._outputs: dict[str, list[tuple[int, int]]] = {}
        self._counters: Counter[str] = Counter()
        self._state = JobState.RUNNING
        self._added = self._queued = self._delayed = self._done = self._dead = 0
        self._next_delayed = float("inf")
        self._sequence = 0
        self._seeds_done = False
        self._seed_position = 0
        self._seed_claim: tuple[int, str, float] | None = None
        self._fingerprint_seed = 0

    @classmethod
    def from_url(cls, url: str, context: FrontierContext) -> SqliteFrontier:
        """Build the frontier that ``sqlite:`` (in the job's folder) or ``sqlite:PATH`` names."""
        return cls(file_of(url, context.directory), context.politeness, context.options)

    async def erase(self) -> None:
        """Delete the file, before it is opened; see :func:`~skitter.frontier.removal.remove_file`."""
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
        except BaseException:
            await self._journal.close()
            await asyncio.to_thread(self._lock.release)
            raise
        return JobInfo(self._fingerprint_seed, FINGERPRINT_VERSION, self._options.lease_seconds)

    async def _load(self, *, fresh: bool) -> None:
        past = await self._journal.read(lambda file: restore(file, self._options, self._clock()))
        self._fingerprint_seed = past.fingerprint_seed
        self._state = past.state
        self._added, self._done, self._dead = past.added, past.done, past.dead
        self._delayed, self._next_delayed = past.delayed, past.next_delayed
        self._sequence = past.sequence
        self._seed_position, self._seeds_done = past.seed_position, past.seeds_done
        self._outputs, self._counters = past.outputs, past.counters
        self._seen = past.seen if past.seen is not None else await DiskSeen.open(self._journal)
        now = self._clock()
        for number, kept in past.slots.items():
            self._slot_numbers[kept.key], self._slot_keys[number] = number, kept.key
            slot = self._slots.get(kept.key)
            slot.floor, slot.held_until = kept.floor, kept.held_until
            for grants, past_grants in zip(slot.grants, kept.grants, strict=False):
                grants.extend(past_grants)
            if not fresh and (grace := slot.start_within) is not None:
                slot.next_at = now + slot.delay + grace  # the last fetch of the old life may be just past
            if kept.queued:
                self._queued += kept.queued
                self._backlog.start_on_disk(slot, number, kept.queued)
        self._note_job()

    async def close(self) -> None:
        """Hand all leases back, write what is left and give the file free."""
        try:
            await self.release([held.id for held in self._leases])
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

    async def add(self, entries: Sequence[Entry], seeds: SeedMark | None = None) -> AddResult:
        """Add requests with atomic de-duplication; durable when it returns."""
        async with self._deciding:
            await self._seen.prepare([entry.fingerprint for entry in entries if entry.dedup])
            if seeds is not None and not self._advance_seeds(seeds):
                return AddResult(0, len(entries))
            added = self._insert(entries, self._clock())
        self._note_job()
        await self._journal.flush()
        await self._bound_seen()
        return AddResult(added, len(entries) - added)

    def _insert(self, entries: Sequence[Entry], now: float) -> int:
        fresh: list[bytes] = []
        added = known = 0
        for entry in entries:
            if entry.dedup:
                if self._seen.known(entry.fingerprint, now):
                    known += 1
                    continue
                self._seen.add(entry.fingerprint)
                fresh.append(entry.fingerprint)
            self._sequence += 1
            number = self._number_of(entry.slot)
            rank = rank_of(self._options.order, entry.priority, self._sequence)
            row = Row(
                self._sequence, number, rank, entry.fingerprint, entry.url, entry.record,
                entry.priority, int(entry.dedup), 0, 0,
            )  # fmt: skip
            self._place(row, max(entry.not_before, now + entry.delay), now)
            added += 1
        self._added += added
        if known:
            self._count({"refused/duplicate": known})
        if fresh:
            self._log_seen("+", now, b"".join(fresh))
        return added

    def _log_seen(self, kind: str, now: float, fingerprints: bytes) -> None:
        if not isinstance(self._seen, DiskSeen):  # which writes its own table
            self._journal.append("log_seen", (kind, now, fingerprints))

    def _number_of(self, key: str) -> int:
        number = self._slot_numbers.get(key)
        if number is None:
            number = len(self._slot_numbers) + 1
            self._slot_numbers[key], self._slot_keys[number] = number, key
            self._journal.append("new_slot", (number, key))
        return number

    def _place(self, row: Row, at: float, now: float) -> None:
        """Write a request to the queue or among the delayed ones, and let it wait there."""
        if at > now:
            self._journal.append("delay", (at, *row))
            self._delayed += 1
            self._next_delayed = min(self._next_delayed, at)
            return
        self._journal.put("enqueue", row.seq, row)
        self._queue(row)

    def _queue(self, row: Row) -> None:
        self._queued += 1
        self._backlog.place(self._slots.get(self._slot_keys[row.slot]), row)

    # --- seeds -------------------------------------------------------------------------------------------

    async def claim_seeds(self, worker: str) -> SeedClaim | None:
        """Take the duty of loading the seeds, if nobody has it."""
        now = self._clock()
        if self._seeds_done or (self._seed_claim is not None and self._seed_claim[2] > now):
            return None
        self._sequence += 1
        self._seed_claim = (self._sequence, worker, now + self._options.lease_seconds)
        return SeedClaim(self._sequence, self._seed_position)

    def _advance_seeds(self, mark: SeedMark) -> bool:
        if self._seed_claim is None or self._seed_claim[0] != mark.token:
            return False
        deadline = self._clock() + self._options.lease_seconds
        self._seed_claim = None if mark.done else (mark.token, self._seed_claim[1], deadline)
        self._seed_position = mark.position
        self._seeds_done = mark.done
        return True

    # --- leases ------------------------------------------------------------------------------------------

    async def lease(self, worker: str, limit: int, landed: Sequence[Landing] = ()) -> LeaseResult:
        """Hand out what may be fetched now; the leases are noted on disk when they are given."""
        now = self._clock()
        resting = self._leases.land(landed, now)
        for slot in resting:
            self._note_limits(slot)
        await self._wake(now)
        self._slots.tidy(now)
        leases: list[Lease] = []
        held: list[HeldLease[_Leased]] = []
        while len(leases) < limit and self._may_lease():
            taken = self._take(now)
            if taken is None:
                if await self._backlog.refill():
                    continue
                break
            leases.append(self._grant(taken[0], taken[1][2], worker, now, held))
        if held:
            self._note_leases(held)
            self._note_job()
        if held or resting:
            await self._journal.flush()
        return LeaseResult(leases, self.current_state(), self._ask_again(now, leases), self._limit_reached())

    def _take(self, now: float) -> tuple[Slot, Place] | None:
        return self._slots.take(now)

    def _grant(self, slot: Slot, row: Row, worker: str, now: float, batch: list[HeldLease[_Leased]]) -> Lease:
        self._backlog.note_empty(slot, row.slot)
        self._backlog.leased.add(row.seq)
        self._queued -= 1
        self._sequence += 1
        held = self._leases.grant(self._sequence, _Leased(row), slot, worker, now)
        batch.append(held)
        if slot.grants:
            packed = msgspec.msgpack.encode([list(grants) for grants in slot.grants])
            self._journal.put("grant_slot", row.slot, (row.slot, slot.key, packed))
        return Lease(
            held.id, row.fingerprint, slot.key, row.url, row.record, row.attempt, row.lost,
            held.deadline, slot.start_within,
        )  # fmt: skip

    def _note_leases(self, leases: list[HeldLease[_Leased]]) -> None:
        self._sequence += 1
        batch = _Batch(self._sequence, [held.request.row for held in leases])
        for held in leases:
            held.request.batch = batch
        self._note_batch(batch)

    def _note_batch(self, batch: _Batch) -> None:
        members = msgspec.msgpack.encode(list(batch.members.values()))
        self._journal.put("note_lease", batch.id, (batch.id, members))

    def _end(self, lease_id: int, now: float, *, may_return: bool = False) -> Row | None:
        """End a lease and return its request, which is then in no state until it is placed.

        ``may_return``: with the same counts, by which a crash would take it for still in hand.
        """
        held = self._leases.end(lease_id, now)
        if held is None:
            return None
        batch = held.request.batch
        if batch is not None:
            del batch.members[held.request.row.seq]
            if not batch.members:
                self._journal.append("end_lease", (batch.id,))
            elif may_return:
                self._note_batch(batch)
        self._backlog.leased.discard(held.request.row.seq)
        return held.request.row

    async def _wake(self, now: float) -> None:
        """Take back leases that ran out, and queue what was delayed until now."""
        for lease_id in self._leases.expired(now):
            self._lose(lease_id, now)
        while self._next_delayed <= now:
            self._next_delayed = float("inf")
            rows, following = await self._journal.read(lambda file: letters.wake(file, now, _WOKEN_AT_ONCE))
            self._delayed -= len(rows)
            for row in rows:
                self._queue(row)
            self._next_delayed = min(self._next_delayed, following)

    def _lose(self, lease_id: int, now: float) -> None:
        row = self._end(lease_id, now)
        if row is None:
            return
        self._count({"leases/lost": 1})
        row = row._replace(lost=row.lost + 1)
        if row.lost > self._options.max_lost:
            self._bury(row, f"lost: {row.lost} workers were lost with this request", now)
        else:
            # Suspects spread out in time, so that the one that kills workers does not take the rest along.
            apart = random.uniform(0.0, 2.0**row.lost) if row.lost > 1 else 0.0
            self._move(row, now + apart, now)

    def _move(self, row: Row, at: float, now: float) -> None:
        """Place a request that already has a row in the queue."""
        if at > now:
            self._dequeue(row)
        self._place(row, at, now)

    def _dequeue(self, row: Row) -> None:
        self._journal.withdraw("enqueue", row.seq)  # which a group would run after what is removed
        self._journal.append("dequeue", (row.seq,))

    def _bury(self, row: Row, error: str, now: float) -> None:
        self._sequence += 1
        self._dead += 1
        self._dequeue(row)
        buried = row._replace(attempt=row.attempt + 1)
        self._journal.append("bury", (self._sequence, *buried, error, now))
        if not self._options.failed_stay_known and row.dedup:
            self._seen.forget(row.fingerprint)
            self._log_seen("-", now, row.fingerprint)
        self._note_job()

    def current_state(self) -> JobState:
        """Return what the fleet is to do now."""
        idle = not (self._queued or self._delayed or len(self._leases))
        if idle and self._seeds_done:
            return JobState.FINISHED
        return JobState.STOPPING if self._limit_reached() else self._state

    def _may_lease(self) -> bool:
        room = self._options.limits.room(self._counters, len(self._leases), 1)
        return room > 0 and self.current_state() is JobState.RUNNING

    def _limit_reached(self) -> str:
        return self._options.limits.reached(self._counters, self._dead)

    def _ask_again(self, now: float, leases: list[Lease]) -> float:
        return wait_for(self._slots.next_at(), self._next_delayed, now, leases)

    async def renew(self, worker: str, lease_ids: Sequence[int]) -> list[int]:
        """Extend leases; return those that are gone."""
        now = self._clock()
        await self._wake(now)
        if self._seed_claim is not None and self._seed_claim[1] == worker:
            self._seed_claim = (self._seed_claim[0], worker, now + self._options.lease_seconds)
        return self._leases.renew(worker, lease_ids, now)

    async def release(self, lease_ids: Sequence[int]) -> None:
        """Hand leases back untouched."""
        now = self._clock()
        for lease_id in lease_ids:
            row = self._end(lease_id, now, may_return=True)
            if row is not None:
                self._queue(row)
        await self._journal.flush()

    async def abandon(self, worker: str) -> int:
        """Take back what a dead worker held."""
        now = self._clock()
        if self._seed_claim is not None and self._seed_claim[1] == worker:
            self._seed_claim = None
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
            accepted = [self._settle(outcome, now, counts) for outcome in outcomes]
            self._count(counts)
        self._note_job()
        await self._journal.flush()
        await self._bound_seen()
        return accepted

    def _settle(self, outcome: Outcome, now: float, counts: dict[str, int]) -> bool:
        may_return = outcome.free or outcome.resolution is Resolution.FAILED
        row = self._end(outcome.lease_id, now, may_return=may_return)
        if row is None:
            return False
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

    def _finish(self, row: Row, now: float) -> None:
        self._done += 1
        self._dequeue(row)
        if self._options.visited_ttl is not None and row.dedup:
            self._seen.visited(row.fingerprint, now + self._options.visited_ttl)
            self._log_seen("v", now, row.fingerprint)

    def _mark(self, mark: OutputMark) -> None:
        ranges = self._outputs.setdefault(mark.part, [])
        extend_ranges(ranges, mark)
        start, stop = ranges[-1]
        self._journal.put("mark_output", (mark.part, start), (mark.part, start, stop))

    def _count(self, counters: dict[str, int]) -> None:
        for name, amount in counters.items():
            self._counters[name] += amount
            self._journal.put("count", name, (name, self._counters[name]))

    def _note_job(self) -> None:
        seed = self._fingerprint_seed
        signed = seed - 2**64 if seed >= 2**63 else seed
        row = (
            1, self._state.value, self._added, self._done, self._sequence, self._seed_position,
            int(self._seeds_done), signed, FINGERPRINT_VERSION, int(isinstance(self._seen, DiskSeen)),
        )  # fmt: skip
        self._journal.put("job", 1, row)

    async def _bound_seen(self) -> None:
        """Move the seen set to disk once it is larger than may be in memory."""
        if isinstance(self._seen, (MemorySeen, TimedSeen)) and self._sequence >= self._options.seen_in_memory:
            async with self._deciding:
                if (
                    isinstance(self._seen, (MemorySeen, TimedSeen))
                    and len(self._seen) > self._options.seen_in_memory
                ):
                    self._seen = await move_to_disk(self._seen, self._journal)
                    self._note_job()
                    await self._journal.flush()

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
            done=self._done, failed=self._dead, seeds_loading=not self._seeds_done,
            counters=dict(self._counters), slots=len(busy),
            busiest=[
                slot_status(slot, len(slot.waiting) + slot.beyond, leased[slot.key], now) for slot in busy[:20]
            ],
            oldest_lease=self._leases.oldest(now), reason=self._limit_reached(),
        )  # fmt: skip

    async def control(self, state: JobState) -> JobState:
        """Set what the fleet is to do."""
        self._state = state
        self._note_job()
        await self._journal.flush()
        return self.current_state()

    async def hold(self, slot: str, seconds: float) -> None:
        """Give out nothing of a slot for so long."""
        entry = self._slots.get(slot)
        self._slots.hold(entry, self._clock() + seconds)
        await self._keep_limits(entry)

    async def set_delay(self, slot: str, seconds: float) -> None:
        """Set the smallest delay of one slot."""
        entry = self._slots.get(slot)
        self._slots.set_floor(entry, seconds, self._clock())
        await self._keep_limits(entry)

    async def _keep_limits(self, slot: Slot) -> None:
        self._note_limits(slot)
        await self._journal.flush()

    def _note_limits(self, slot: Slot) -> None:
        number = self._number_of(slot.key)
        self._journal.put("limit_slot", number, (number, slot.key, slot.floor, slot.held_until))

    async def recall(self, key: str) -> bytes | None:
        """Read a shared note."""
        return await self._journal.read(lambda file: letters.note(file, key, self._clock()))

    async def remember(self, key: str, value: bytes, ttl: float) -> None:
        """Keep a shared note."""
        self._journal.put("note", key, (key, value, self._clock() + ttl))
        await self._journal.flush()

    async def dead_letters(self, after: int = 0, limit: int = 100) -> list[DeadLetter]:
        """List requests given up, oldest first."""
        keys = self._slot_keys
        return await self._journal.read(lambda file: letters.dead_letters(file, keys, after, limit))

    async def replay(self, ids: Sequence[int] | None = None) -> int:
        """Put dead letters back in the queue with fresh attempts."""
        rows = await self._exhume(ids)
        now = self._clock()
        for row in rows:
            if row.dedup:
                self._seen.add(row.fingerprint)
                self._log_seen("+", now, row.fingerprint)
            self._place(row._replace(attempt=0, lost=0), now, now)
        self._note_job()
        await self._journal.flush()
        return len(rows)

    async def drop(self, ids: Sequence[int] | None = None) -> int:
        """Forget dead letters."""
        rows = await self._exhume(ids)
        self._added -= len(rows)
        self._note_job()
        await self._journal.flush()
        return len(rows)

    async def _exhume(self, ids: Sequence[int] | None) -> list[Row]:
        async with self._deciding:  # a second call has to see what the first one took
            found = await self._journal.read(lambda file: letters.find_dead(file, ids))
            self._dead -= len(found)
            for letter_id, _ in found:
                self._journal.append("unbury", (letter_id,))
        return [row for _, row in found]

    async def recrawl(self) -> bool:
        """Begin a finished job again."""
        if self.current_state() is not JobState.FINISHED:
            return False
        if self._options.visited_ttl is None:
            await self._journal.read(letters.forget_visits)
            self._seen = MemorySeen()
        self._seeds_done = False
        self._seed_position = 0
        self._note_job()
        await self._journal.flush()
        return True

    async def outputs(self) -> dict[str, list[tuple[int, int]]]:
        """Return committed byte ranges of each part file: those that are durable, no later ones."""
        ranges = {part: sorted(known) for part, known in self._outputs.items()}
        await self._journal.flush()
        return ranges
