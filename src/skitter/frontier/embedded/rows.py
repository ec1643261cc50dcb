"""SQLite rows: the state of an embedded frontier, in memory and in its file, and how requests move through it.

What a call decides is written to memory at once and to the journal; :mod:`~skitter.frontier.embedded.frontier` is the
contract over it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from skitter.frontier.embedded import queries
from skitter.frontier.embedded.backlog import Backlog, Row
from skitter.frontier.embedded.base import Embedded
from skitter.frontier.embedded.clock import steady_clock
from skitter.frontier.embedded.journal import Journal
from skitter.frontier.embedded.leases import LeaseTable
from skitter.frontier.embedded.lock import OwnerLock
from skitter.frontier.embedded.restore import restore
from skitter.frontier.embedded.scheduler import Slot
from skitter.frontier.embedded.seen import MemorySeen, Seen, TimedSeen
from skitter.frontier.embedded.seen_disk import DiskSeen, move_to_disk
from skitter.frontier.options import FrontierOptions, SettingsChanges
from skitter.frontier.records import AddResult, Entry, JobState
from skitter.frontier.scheduling import extend_ranges, lost_too_often, rank_of, seconds_apart
from skitter.item import OutputRange
from skitter.politeness import Politeness
from skitter.request import FINGERPRINT_VERSION

_WOKEN_AT_ONCE = 1_000
_BEYOND_THE_FORGOTTEN = 1 << 20
"""So many numbers are passed over after a kill: the last leases of the old life may not be in the file, and no
number is given twice."""
_OWNER = 0
"""Number of the batch, without leases, that stands in the file while an owner has it open."""


class Batch:
    """Leases handed out together; they share one row in the file."""

    __slots__ = ("id", "members")

    def __init__(self, batch_id: int, rows: Sequence[Row]) -> None:
        self.id = batch_id
        self.members = {row.seq: (row.seq, row.attempt, row.lost) for row in rows}


class Leased(msgspec.Struct):
    """A request on lease."""

    row: Row
    batch: Batch | None = None


class SqliteRows(Embedded):
    """Requests of one job: queued, delayed, leased, done, failed."""

    def __init__(
        self,
        path: str | Path,
        politeness: Politeness | None = None,
        options: FrontierOptions | None = None,
        *,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.path = Path(path)
        super().__init__(politeness, options, clock if clock is not None else steady_clock())
        self._lock = OwnerLock(self.path)
        self._journal = Journal(self.path, self._options.durability)
        self._backlog = Backlog(self._journal, self._slots)
        self._leases: LeaseTable[Leased] = LeaseTable(self._slots, self._options.lease_seconds)
        self._seen: Seen = MemorySeen()
        self._deciding = asyncio.Lock()
        self._swapping = asyncio.Lock()
        self._waking = asyncio.Lock()
        """Held while delayed rows of the file are moved."""
        self._slot_numbers: dict[str, int] = {}
        self._slot_keys: dict[int, str] = {}
        self._outputs: dict[str, list[tuple[int, int]]] = {}
        self._added = self._queued = self._delayed = self._done = self._dead = 0
        self._next_delayed = float("inf")
        self._sequence = 0
        self._fingerprint_seed = 0
        self._careful = False
        """Whether each lease is in the file before it is given: after an owner that was killed, perhaps by a page."""

    async def _load(self, *, fresh: bool) -> None:
        past = await self._journal.read(lambda file: restore(file, self._options, self._clock()))
        self._fingerprint_seed = past.fingerprint_seed
        self._state = past.state
        self._added, self._done, self._dead = past.added, past.done, past.dead
        self._delayed, self._next_delayed = past.delayed, past.next_delayed
        self._sequence = past.sequence + (_BEYOND_THE_FORGOTTEN if past.killed else 0)
        self._seeds.position, self._seeds.is_done = past.seed_position, past.seeds_done
        self._outputs, self._counters = past.outputs, past.counters
        self._banned = past.banned
        self._careful = past.killed
        self._journal.put("note_lease", _OWNER, (_OWNER, msgspec.msgpack.encode([])))
        self._tallies.load(past.tallies)
        if past.changes:
            self._obey(msgspec.msgpack.decode(past.changes, type=SettingsChanges))
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

    def _insert(self, entries: Sequence[Entry], now: float) -> AddResult:
        fresh: list[bytes] = []
        added = known = banned = 0
        self._active_at = now
        for entry in entries:
            if self._banned and self._is_banned(entry.slot):
                banned += 1
                continue
            if entry.dedup:
                if self._seen.known(entry.fingerprint, now):
                    known += 1
                    continue
                self._seen.add(entry.fingerprint)
                fresh.append(entry.fingerprint)
            self._sequence += 1
            number = self._number_of(entry.slot)
            rank = rank_of(self._options.queue_order, entry.priority, self._sequence)
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
        if banned:
            self._count({"refused/banned": banned})
        return AddResult(added, known, banned)

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

    def _take_away(self, row: Row) -> bool:
        """Drop a request that comes back to a slot banned meanwhile; ``False`` if its slot is not."""
        if not self._is_banned(self._slot_keys[row.slot]):
            return False
        self._dequeue(row.seq)
        self._added -= 1
        self._count({"refused/banned": 1})
        self._note_job()
        return True

    def _queue(self, row: Row) -> None:
        self._queued += 1
        self._backlog.place(self._slots.get(self._slot_keys[row.slot]), row)

    def _end(self, lease_id: int, now: float, *, may_return: bool = False) -> Row | None:
        """End a lease and return its request, which is then in no state until it is placed.

        ``may_return``: with the same counts, by which a crash would take it for still in hand.
        """
        held = self._leases.end(lease_id)
        if held is None:
            return None
        self._active_at = now
        batch = held.request.batch
        if batch is not None:
            del batch.members[held.request.row.seq]
            if not batch.members:
                self._journal.append("end_lease", (batch.id,))
            elif may_return:
                self._note_batch(batch)
        self._backlog.leased.discard(held.request.row.seq)
        return held.request.row

    def _note_end(self) -> None:
        """Let the file say that its owner has closed it."""
        self._journal.append("end_lease", (_OWNER,))

    def _note_batch(self, batch: Batch) -> None:
        members = msgspec.msgpack.encode(list(batch.members.values()))
        self._journal.put("note_lease", batch.id, (batch.id, members))

    async def _wake(self, now: float) -> None:
        """Take back leases that ran out, and queue what was delayed until now."""
        for lease_id in self._leases.expired(now):
            self._lose(lease_id, now)
        if self._next_delayed <= now:
            async with self._waking:
                await self._wake_delayed(now)

    async def _wake_delayed(self, now: float) -> None:
        while self._next_delayed <= now:
            self._next_delayed = float("inf")
            rows, following = await self._journal.read(lambda file: queries.wake(file, now, _WOKEN_AT_ONCE))
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
        if row.lost > self._options.max_worker_crashes:
            self._bury(row, lost_too_often(row.lost), now)
        else:
            self._move(row, now + seconds_apart(row.lost), now)

    def _move(self, row: Row, at: float, now: float) -> None:
        """Place a request that already has a row in the queue."""
        if self._banned and self._take_away(row):
            return
        if at > now:
            self._dequeue(row.seq)
        self._place(row, at, now)

    def _dequeue(self, seq: int) -> None:
        self._journal.withdraw("enqueue", seq)  # which a group would run after what is removed
        self._journal.append("dequeue", (seq,))

    def _bury(self, row: Row, error: str, now: float) -> None:
        self._sequence += 1
        self._dead += 1
        self._dequeue(row.seq)
        is_forgotten = bool(row.dedup) and self._options.refetch_failed
        buried = row._replace(attempt=row.attempt + 1, dedup=queries.FORGOTTEN if is_forgotten else row.dedup)
        self._journal.append("bury", (self._sequence, *buried, error, now))
        if is_forgotten:
            self._seen.forget(row.fingerprint)
            self._log_seen("-", now, row.fingerprint)
        self._note_job()

    def _finish(self, row: Row, now: float) -> None:
        self._done += 1
        self._dequeue(row.seq)
        if self._options.visited_ttl is not None and row.dedup:
            self._seen.visited(row.fingerprint, now + self._options.visited_ttl)
            self._log_seen("v", now, row.fingerprint)

    def _mark(self, mark: OutputRange) -> None:
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
            1, self._state.value, self._added, self._done, self._sequence, self._seeds.position,
            int(self._seeds.is_done), signed, FINGERPRINT_VERSION, int(isinstance(self._seen, DiskSeen)),
        )  # fmt: skip
        self._journal.put("job", 1, row)

    def _note_limits(self, slot: Slot) -> None:
        number = self._number_of(slot.key)
        self._journal.put("limit_slot", number, (number, slot.key, slot.floor, slot.held_until))

    def current_state(self) -> JobState:
        """Return what the fleet is to do now."""
        idle = not (self._queued or self._delayed or len(self._leases))
        return self._state_now(idle=idle, failed=self._dead)

    def _limit_reached(self) -> str:
        return self._limit(self._dead)

    async def _bound_seen(self) -> None:
        """Move the seen set to disk once it is larger than may be in memory."""
        if (
            isinstance(self._seen, (MemorySeen, TimedSeen))
            and self._sequence >= self._options.seen_memory_limit
        ):
            async with self._deciding:
                if (
                    isinstance(self._seen, (MemorySeen, TimedSeen))
                    and len(self._seen) > self._options.seen_memory_limit
                ):
                    self._seen = await move_to_disk(self._seen, self._journal)
                    self._note_job()
                    await self._journal.flush()
