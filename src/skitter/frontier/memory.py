"""Memory frontier: the contract in its most readable form.

Nothing survives the process; everything else holds. It is the twin against which the other backends are
read and tested, and it serves unit tests of spiders.
"""

from __future__ import annotations

import random
import secrets
import time
from collections import Counter
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from typing import ClassVar

from skitter.frontier.changes import Changes
from skitter.frontier.embedded import Embedded
from skitter.frontier.leases import LeaseBook
from skitter.frontier.options import FrontierContext, FrontierOptions
from skitter.frontier.reckoning import extend_ranges, rank_of, wait_for
from skitter.frontier.records import (
    AddResult,
    DeadLetter,
    Entry,
    FrontierStatus,
    JobInfo,
    JobState,
    Landing,
    Lease,
    LeaseResult,
    Outcome,
    Resolution,
    SeedClaim,
    SeedMark,
)
from skitter.frontier.slots import Slot
from skitter.politeness import Politeness
from skitter.queues import Shares, without_queue
from skitter.request import FINGERPRINT_VERSION
from skitter.task_mark import TaskMark

FOREVER = float("inf")


class Waiting:
    """A request of the job, wherever it is: queued, delayed or leased."""

    __slots__ = ("attempt", "entry", "forgotten", "lost", "rank", "sequence")

    def __init__(self, entry: Entry, rank: int, sequence: int) -> None:
        self.forgotten = False
        """Whether its fingerprint was forgotten when it was given up, so that it may have been added again."""
        self.entry = entry
        self.rank = rank
        self.sequence = sequence
        self.attempt = 0
        self.lost = 0


class MemoryFrontier(Embedded):
    """A frontier in the memory of one process."""

    shared: ClassVar[bool] = False

    def __init__(
        self,
        politeness: Politeness | None = None,
        options: FrontierOptions | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(politeness, options, clock)
        self._seen: dict[bytes, float] = {}
        self._delayed: list[tuple[float, int, Waiting]] = []
        self._leases: LeaseBook[Waiting] = LeaseBook(self._slots, self._options.lease_seconds)
        self._dead: dict[int, tuple[DeadLetter, Waiting]] = {}
        self._notes: dict[str, tuple[bytes, float]] = {}
        self._outputs: dict[str, list[tuple[int, int]]] = {}
        self._added = self._queued = self._done = 0
        self._sequence = 0
        self._fingerprint_seed = secrets.randbits(64)

    @classmethod
    def from_url(cls, _url: str, context: FrontierContext) -> MemoryFrontier:
        """Build the frontier that ``memory:`` names."""
        return cls(context.politeness, context.options)

    async def open(self) -> JobInfo:
        """Return what a worker must know."""
        return JobInfo(self._fingerprint_seed, FINGERPRINT_VERSION, self._options.lease_seconds)

    async def close(self) -> None:
        """Keep everything: a memory frontier can be opened again while the object lives."""

    async def unknown(self, fingerprints: Sequence[bytes]) -> list[bool]:
        """Tell which fingerprints are new."""
        now = self._clock()
        return [not self._is_known(fingerprint, now) for fingerprint in fingerprints]

    def _is_known(self, fingerprint: bytes, now: float) -> bool:
        return self._seen.get(fingerprint, 0.0) > now

    async def add(self, entries: Sequence[Entry], seeds: SeedMark | None = None) -> AddResult:
        """Add requests with de-duplication; count them as seeds if they are."""
        if seeds is not None and not self._seeds.advance(seeds, self._clock()):
            return AddResult(0, len(entries))
        return self._insert(entries, self._clock())

    def _insert(self, entries: Sequence[Entry], now: float) -> AddResult:
        added = banned = 0
        self._active_at = now
        for entry in entries:
            if self._banned and self._is_banned(entry.slot):
                banned += 1
                continue
            if entry.dedup:
                if self._is_known(entry.fingerprint, now):
                    self._counters["refused/duplicate"] += 1
                    continue
                self._seen[entry.fingerprint] = FOREVER
            self._sequence += 1
            rank = rank_of(self._options.order, entry.priority, self._sequence)
            waiting = Waiting(entry, rank, self._sequence)
            self._place(waiting, max(entry.not_before, now + entry.delay), now)
            added += 1
        self._added += added
        if banned:
            self._counters["refused/banned"] += banned
        return AddResult(added, len(entries) - added - banned, banned)

    def _place(self, waiting: Waiting, at: float, now: float) -> None:
        if self._banned and self._is_banned(
            waiting.entry.slot
        ):  # it was on lease, or dead, when its slot was banned
            self._added -= 1
            self._counters["refused/banned"] += 1
            return
        if at > now:
            heappush(self._delayed, (at, waiting.sequence, waiting))
            return
        self._queued += 1
        slot = self._slots.get(waiting.entry.slot)
        self._slots.push(slot, (waiting.rank, waiting.sequence, waiting))

    async def claim_seeds(self, worker: str) -> SeedClaim | None:
        """Take the duty of loading the seeds."""
        now = self._clock()
        if not self._seeds.is_free(now):
            return None
        self._sequence += 1
        self._seeds.claim(self._sequence, worker, now)
        return SeedClaim(self._sequence, self._seeds.position)

    async def lease(
        self, worker: str, limit: int, landed: Sequence[Landing] = (), shares: Shares | None = None
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
            limit = self._options.limits.room(self._counters, len(self._leases), limit)
            while len(leases) < limit and (taken := self._slots.take(now, left)) is not None:
                leases.append(self._grant(taken[0], taken[1][2], worker, now))
        room = self._options.room(self._queued, len(self._delayed), len(self._leases), self._counters)
        return LeaseResult(
            leases,
            state,
            self._ask_again(now, leases, left),
            self._limit_reached(),
            revision=self._revision,
            room=room,
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

    def _wake(self, now: float) -> None:
        """Queue what was delayed until now and take back leases that ran out."""
        while self._delayed and self._delayed[0][0] <= now:
            self._place(heappop(self._delayed)[2], now, now)
        for lease_id in self._leases.expired(now):
            self._lose(lease_id, now)

    def _current_state(self) -> JobState:
        idle = not (self._queued or self._delayed or self._leases)
        return self._state_now(idle=idle, failed=len(self._dead))

    def _limit_reached(self) -> str:
        return self._limit(len(self._dead))

    def _ask_again(self, now: float, leases: list[Lease], left: dict[str, int] | None) -> float:
        delayed_until = self._delayed[0][0] if self._delayed else FOREVER
        return wait_for(self._slots.next_at(left), delayed_until, now, leases)

    def _lose(self, lease_id: int, now: float) -> None:
        held = self._leases.end(lease_id)
        if held is None:
            return
        self._active_at = now
        waiting = held.request
        waiting.lost += 1
        self._counters["leases/lost"] += 1
        if waiting.lost > self._options.max_lost:
            self._bury(waiting, f"lost: {waiting.lost} workers were lost with this request", now)
        else:
            # Suspects spread out in time, so that the one that kills workers does not take the rest along.
            apart = random.uniform(0.0, 2.0**waiting.lost) if waiting.lost > 1 else 0.0
            self._place(waiting, now + apart, now)

    def _bury(self, waiting: Waiting, error: str, now: float) -> None:
        entry = waiting.entry
        self._sequence += 1
        letter = DeadLetter(
            self._sequence, entry.fingerprint, entry.slot, entry.url, entry.record,
            error, waiting.attempt + 1, waiting.lost, now,
        )  # fmt: skip
        self._dead[letter.id] = (letter, waiting)
        if not self._options.failed_stay_known and entry.dedup:
            self._seen.pop(entry.fingerprint, None)
            waiting.forgotten = True

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

    async def control(self, state: JobState) -> JobState:
        """Set what the fleet is to do."""
        self._state = state
        return self._current_state()

    async def hold(self, slot: str, seconds: float) -> None:
        """Give out nothing of a slot for so long."""
        self._slots.hold(self._slots.get(slot), self._clock() + seconds)

    async def set_delay(self, slot: str, seconds: float) -> None:
        """Set the smallest delay of one slot."""
        self._slots.set_floor(self._slots.get(slot), seconds, self._clock())

    async def change(self, changes: Changes, reset: bool = False) -> Changes:
        """Change settings at once."""
        self._obey(changes if reset else changes.over(self._changes))
        return self._changes

    async def drop_slot(self, slot: str, ban: bool = False) -> int:
        """Remove what waits in a slot."""
        if ban:
            self._banned.add(slot)
        dropped = 0
        for entry in [one for one in self._slots if slot in {one.key, without_queue(one.key)}]:
            dropped += len(entry.waiting)
            entry.waiting.clear()
            self._slots.arm(entry)
        self._queued -= dropped
        kept = [
            one for one in self._delayed if slot not in {one[2].entry.slot, without_queue(one[2].entry.slot)}
        ]
        dropped += len(self._delayed) - len(kept)
        self._delayed = kept
        heapify(self._delayed)
        return self._note_dropped(dropped)

    async def drop_task(self, task: str) -> int:
        """Remove what waits of a task."""
        mark = TaskMark(task)
        before = self._queued + len(self._delayed)
        for slot in self._slots:
            kept = [place for place in slot.waiting if not mark.is_on(place[2].entry.record)]
            if len(kept) < len(slot.waiting):
                self._queued -= len(slot.waiting) - len(kept)
                slot.waiting[:] = kept
                heapify(slot.waiting)
                self._slots.arm(slot)
        self._delayed = [one for one in self._delayed if not mark.is_on(one[2].entry.record)]
        heapify(self._delayed)
        return self._note_dropped(before - self._queued - len(self._delayed))

    def _note_dropped(self, dropped: int) -> int:
        if dropped:
            self._added -= dropped
            self._counters["refused/dropped"] += dropped
        return dropped

    async def unban(self, slot: str) -> bool:
        """Take requests for a slot again."""
        was_banned = slot in self._banned
        self._banned.discard(slot)
        return was_banned

    async def recall(self, key: str) -> bytes | None:
        """Read a shared note."""
        value, until = self._notes.get(key, (None, 0.0))
        return value if until > self._clock() else None

    async def remember(self, key: str, value: bytes, ttl: float) -> None:
        """Keep a shared note."""
        now = self._clock()
        self._notes[key] = (value, now + ttl)
        if self._note_sweeps.is_due():
            self._notes = {key: note for key, note in self._notes.items() if note[1] > now}
            self._note_sweeps.done(len(self._notes))

    async def swap(self, key: str, old: bytes | None, new: bytes, ttl: float) -> bool:
        """Keep a shared note if it is as it was read."""
        if await self.recall(key) != old:
            return False
        await self.remember(key, new, ttl)
        return True

    async def dead_letters(self, after: int = 0, limit: int = 100) -> list[DeadLetter]:
        """List requests given up, oldest first."""
        return [letter for letter, _ in self._dead.values() if letter.id > after][:limit]

    async def replay(self, ids: Sequence[int] | None = None) -> int:
        """Put dead letters back in the queue."""
        now = self._clock()
        replayed = 0
        for letter_id in self._letters(ids):
            _, waiting = self._dead.pop(letter_id)
            if waiting.forgotten and self._is_known(waiting.entry.fingerprint, now):
                self._added -= 1  # it was added again since
                self._counters["refused/duplicate"] += 1
                continue
            replayed += 1
            waiting.attempt, waiting.lost, waiting.forgotten = 0, 0, False
            if waiting.entry.dedup and not self._is_banned(waiting.entry.slot):
                self._seen[waiting.entry.fingerprint] = FOREVER
            self._place(waiting, now, now)
        return replayed

    async def drop(self, ids: Sequence[int] | None = None) -> int:
        """Forget dead letters."""
        chosen = self._letters(ids)
        for letter_id in chosen:
            del self._dead[letter_id]
        self._added -= len(chosen)
        return len(chosen)

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

    def _letters(self, ids: Sequence[int] | None) -> list[int]:
        return [i for i in (list(self._dead) if ids is None else dict.fromkeys(ids)) if i in self._dead]

    async def outputs(self) -> dict[str, list[tuple[int, int]]]:
        """Return committed byte ranges of each part file."""
        return {part: sorted(ranges) for part, ranges in self._outputs.items()}


def with_record(entry: Entry, record: bytes) -> Entry:
    """Return the entry with another stored request."""
    return Entry(
        entry.fingerprint, entry.slot, entry.url, record, entry.priority, dedup=entry.dedup
    )  # fmt: skip
