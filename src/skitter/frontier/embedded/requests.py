"""The requests of a job: in memory, in the journal, and their transitions from state to state."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from itertools import groupby

import msgspec

from skitter.errors import FrontierError
from skitter.frontier.embedded.backlog import Backlog, BacklogSearch
from skitter.frontier.embedded.job import EmbeddedJob, VisitTable
from skitter.frontier.embedded.journal import Journal, SqliteJournal
from skitter.frontier.embedded.leases import HeldLease, LeaseBatch, LeaseTable
from skitter.frontier.embedded.packs import MAX_PACK_SIZE, MIN_PACK_SIZE, Values, pack
from skitter.frontier.embedded.scheduler import Slot, SlotScheduler
from skitter.frontier.embedded.seen import SeenSet
from skitter.frontier.embedded.tables import FORGOTTEN, OWNER, RequestRow, SqliteTables, StoredJob
from skitter.frontier.options import REFUSED_FULL, SlotBudgets
from skitter.frontier.records import (
    AddResult,
    Entry,
    JobState,
    Lease,
    LinkBatch,
    Outcome,
    Resolution,
    TaskFilter,
)
from skitter.frontier.scheduling import lost_error, rank_of, retry_delay_after_loss
from skitter.frontier.stats import StatsTable
from skitter.queues import without_queue

_DONE, _FAILED = Resolution.DONE, Resolution.FAILED


class SlotUsage:
    """The used part of the budgets of the slots of one job (``docs/design/traps.md``)."""

    def __init__(self, budgets: SlotBudgets, stats: StatsTable) -> None:
        self._budgets = budgets
        self._stats = stats
        self.is_limited = budgets.are_set
        self.delayed: Counter[int] = Counter()
        """Number of delayed requests by slot number."""

    def pages_left(self, slot: str) -> float:
        """Return the number of further pages that a slot may have."""
        return self._budgets.pages_left(self._stats.used(slot)[0])

    def spent(self, slot: str) -> str:
        """Return the counter for refused requests if the budget of a slot is used up; otherwise an empty string."""
        return self._budgets.spent(*self._stats.used(slot)) if self._budgets.limits_use else ""

    def is_full(self, slot: Slot, number: int) -> bool:
        """Return whether a slot accepts no further links."""
        return self._budgets.is_full(slot.queued + slot.leased + self.delayed[number])

    def update(self, slot: Slot, slots: SlotScheduler) -> None:
        """Apply the budget to a slot after one of its leases has ended."""
        slot.pages_left = self.pages_left(slot.key)
        slots.reschedule(slot)


DUE_BATCH_SIZE = 1_000
DUE_STEP = 0.05
"""Minimum time in seconds between two moves of due requests to the queue, so that each move serves several."""
REMOVE_BATCH_SIZE = 5_000
SEARCH_BATCH_SIZE = 20_000
"""Number of requests that are searched for a task in one step, so that other calls do not wait long."""
_PACKED_ORDERS = ("priority", "fifo")
UNPACK_BATCH_SIZE = 100


class Packing:
    """Collects new requests of one call in packs.

    Requests of one slot keep their order. ``active``: whether it accepts requests.
    """

    def __init__(self, requests: RequestTable, *, active: bool) -> None:
        self._requests = requests
        self._active = active
        self._open: dict[str, list[Entry]] = {}
        """The requests of the next pack, by slot."""

    def try_add(self, entry: Entry) -> bool:
        """Accept a request.

        Return ``False`` for a request that needs a separate row, and close the pack of its slot, which precedes it.
        """
        if not self._active:
            return False
        is_plain = entry.dedup and not entry.delay and not entry.not_before and entry.url.isascii()
        packed = self._open.get(entry.slot)
        if packed is not None:
            first = packed[0]
            is_alike = entry.record == first.record and entry.priority == first.priority
            if is_plain and is_alike and len(packed) < MAX_PACK_SIZE:
                packed.append(entry)
                return True
            self._close(self._open.pop(entry.slot))
        if not is_plain or not self._requests.is_behind_head(entry.slot, entry.priority):
            return False
        self._open[entry.slot] = [entry]
        return True

    def finish(self) -> None:
        """Queue all accepted requests."""
        for entries in self._open.values():
            self._close(entries)
        self._open.clear()

    def _close(self, entries: list[Entry]) -> None:
        if len(entries) < MIN_PACK_SIZE:
            for entry in entries:
                self._requests.add_row(entry, 0.0)
        else:
            first = entries[0]
            urls, fingerprints = [entry.url for entry in entries], [entry.fingerprint for entry in entries]
            self._requests.add_pack(first.slot, first.priority, first.record, urls, fingerprints)


class RequestTable:
    """The requests of one job, each of them queued, delayed, leased, done or failed."""

    def __init__(
        self,
        journal: Journal,
        file: SqliteJournal | None,
        job: EmbeddedJob,
        slots: SlotScheduler,
        usage: SlotUsage,
    ) -> None:
        self._journal = journal
        self._usage = usage
        self._file = file
        """``None``: all requests stay in memory."""
        self._job = job
        self._slots = slots
        self.backlog = Backlog(file, slots, self.slot_number)
        self.leases = LeaseTable(slots, job.options.lease_seconds)
        self.seen = SeenSet(journal, file, job.options)
        self.visits = VisitTable(journal, job)
        self.adding = asyncio.Lock()
        """Held from the lookup of fingerprints until it is known which requests are new."""
        self._open_batch: LeaseBatch | None = None
        """The leases that are written next."""
        self.moving = asyncio.Lock()
        """Held while waiting requests are moved or dropped, in the file and in memory. Acquired before :attr:`adding`."""
        self._mover: asyncio.Task[None] | None = None
        """Moves delayed requests that are due to the queue."""
        self._slot_numbers: dict[str, int] = {}
        self._last_slot_number = 0
        self.slot_keys: dict[int, str] = {}
        """The key of each slot by its number in the file."""
        self._first_due = float("inf")
        """Time at which the first delayed request is due."""
        self._moved_at = 0.0
        """Time at which due requests were last moved to the queue."""

    async def restore(self, stored: StoredJob) -> None:
        """Load the requests of an earlier run."""
        self._first_due = stored.next_due
        self._journal.put("put_leases", OWNER, (OWNER, msgspec.msgpack.encode([])))
        await self.seen.restore()
        now = self._job.clock()
        last = self._last_slot_number = max(stored.slot_keys, default=0)
        self.slot_keys = stored.slot_keys
        self._slot_numbers = {key: number for number, key in stored.slot_keys.items()}
        self._slots.resume(now, lambda key: self._slot_numbers.get(key, last + 1) <= last)
        for number, limits in stored.limits.items():
            slot = self._slots.get(self.slot_keys[number])
            slot.set_min_delay(limits.min_delay)
            slot.paused_until = limits.paused_until
            for grants, stored_grants in zip(slot.grants, limits.grants, strict=False):
                grants.extend(stored_grants)
            if (grace := slot.start_within) is not None:
                slot.next_at = now + slot.delay + grace
        self._usage.delayed.update(stored.delayed_by_slot)
        for number, (count, first_rank) in stored.queued.items():
            self._job.queued += count
            self.backlog.restore(self.slot_keys[number], first_rank, count)

    def write_end(self) -> None:
        """Record in the journal that the owner has closed the job."""
        self._journal.append("remove_leases", (OWNER,))

    # --- adding ------------------------------------------------------------------------------------------

    def add(
        self,
        entries: Sequence[Entry],
        now: float,
        accepted: list[bool] | None = None,
        *,
        limited: bool = False,
    ) -> AddResult:
        """Add the new requests among some entries. ``accepted`` receives which entries were added.

        ``limited``: ``max_queued_per_slot`` applies.
        """
        new: list[bytes] = []
        added = 0
        refused: dict[str, int] = {}
        job, seen, has_budgets = self._job, self.seen.keys, self._usage.is_limited
        is_known = seen.known
        job.touch(now)
        packing = Packing(self, active=self._packs)
        for entry in entries:
            if job.banned and job.is_banned(entry.slot):
                refusal = "refused/banned"
            elif entry.dedup and is_known(entry.fingerprint, now):
                refusal = "refused/duplicate"
            else:
                refusal = self._over_budget(entry.slot, limited=limited) if has_budgets else ""
            if refusal:
                refused[refusal] = refused.get(refusal, 0) + 1
            elif entry.dedup:
                seen.add(entry.fingerprint)
                new.append(entry.fingerprint)
            if accepted is not None:
                accepted.append(not refusal)
            if refusal:
                continue
            added += 1
            if not packing.try_add(entry):
                self.add_row(entry, now)
        packing.finish()
        job.added += added
        job.count(refused)
        if new:
            self.seen.log_added(new, now)
        known, banned = refused.get("refused/duplicate", 0), refused.get("refused/banned", 0)
        return AddResult(added, known, banned, len(entries) - added - known - banned)

    def add_batch(
        self, batch: LinkBatch, now: float, accepted: list[bool] | None = None, *, limited: bool = False
    ) -> AddResult:
        """Add the new requests of a batch, with the same result as :meth:`add` for its entries."""
        job, common = self._job, batch.template
        if not self._packs or job.banned or common.delay or common.not_before:
            return self.add(batch.entries(), now, accepted, limited=limited)
        job.touch(now)
        new = self.seen.keys.add_new(batch.fingerprints, now)
        known = len(batch) - len(new)
        if accepted is not None:
            marks = [False] * len(batch)
            for index in new:
                marks[index] = True
            accepted += marks
        if known:
            job.count({"refused/duplicate": known})
        if new:
            batch = batch.select(new)
            self.seen.log_added(batch.fingerprints, now)
            job.added += len(batch)
            self._queue_batch(batch, now)
        return AddResult(len(new), known)

    def _queue_batch(self, batch: LinkBatch, now: float) -> None:
        """Queue requests that may be fetched now: those of a slot in their order, in packs behind its head."""
        if len(set(batch.slots)) == 1 and len(set(batch.penalties)) == 1:
            self._queue_alike(batch, now)
            return
        by_slot: dict[str, list[int]] = defaultdict(list)
        for index, slot in enumerate(batch.slots):
            by_slot[slot].append(index)
        for indexes in by_slot.values():
            for _, alike in groupby(indexes, batch.penalties.__getitem__):
                self._queue_alike(batch.select(list(alike)), now)

    def _queue_alike(self, batch: LinkBatch, now: float) -> None:
        """Queue requests that have the same slot and priority."""
        slot, record = batch.slots[0], batch.template.record
        priority = batch.template.priority + batch.penalties[0]
        start, amount = 0, len(batch)
        while start < amount:
            end = min(start + MAX_PACK_SIZE, amount)
            if end - start >= MIN_PACK_SIZE and self.is_behind_head(slot, priority):
                urls, fingerprints = batch.urls[start:end], batch.fingerprints[start:end]
                self.add_pack(slot, priority, record, urls, fingerprints)
                start = end
            else:
                self.add_row(Entry(batch.fingerprints[start], slot, batch.urls[start], record, priority), now)
                start += 1

    @property
    def _packs(self) -> bool:
        """Whether requests may wait in packs."""
        # Budgets count each request. In the other queue orders, each request has a different rank.
        is_ranked = self._job.options.queue_order in _PACKED_ORDERS
        return self._file is not None and is_ranked and not self._usage.is_limited

    def is_behind_head(self, slot: str, priority: int) -> bool:
        """Return whether a request that may be fetched now waits behind the head of its slot."""
        return self.backlog.is_behind_head(slot, rank_of(self._job.options.queue_order, priority, 0))

    def add_pack(
        self, slot: str, priority: int, record: bytes, urls: Sequence[str], fingerprints: Sequence[bytes]
    ) -> None:
        """Queue requests behind the head of their slot that differ only in URL and fingerprint."""
        amount = len(urls)
        first, number = self._job.next_number(amount), self.slot_number(slot)
        rank = rank_of(self._job.options.queue_order, priority, first)
        self._journal.append("pack", pack(first, number, rank, priority, record, urls, fingerprints))
        self._job.queued += amount
        self.backlog.add_packed(slot, rank, amount)

    def add_row(self, entry: Entry, now: float) -> None:
        """Queue or delay a request in a separate row."""
        sequence = self._job.next_number()
        number = self.slot_number(entry.slot)
        rank = rank_of(self._job.options.queue_order, entry.priority, sequence)
        row = RequestRow(
            sequence, number, rank, entry.fingerprint, entry.url, entry.record,
            entry.priority, int(entry.dedup), 0, 0,
        )  # fmt: skip
        self._queue_or_delay(row, max(entry.not_before, now + entry.delay), now)

    def _over_budget(self, key: str, *, limited: bool) -> str:
        """Return the counter for a new request that the budget of its slot refuses; empty if it is accepted."""
        if refusal := self._usage.spent(key):
            return refusal
        is_full = limited and self._usage.is_full(self._slots.get(key), self.slot_number(key))
        return REFUSED_FULL if is_full else ""

    async def write_seen_if_large(self) -> None:
        """Start to move known URLs to the file once there are more than ``seen_memory_limit``."""
        if self._job.last_number >= self._job.options.seen_memory_limit:
            await self.seen.write_if_large()

    def slot_number(self, key: str) -> int:
        """Return the number of a slot in the file."""
        number = self._slot_numbers.get(key)
        if number is None:
            number = self._last_slot_number = self._last_slot_number + 1
            self._slot_numbers[key], self.slot_keys[number] = number, key
            self._journal.append("add_slot", (number, key))
        return number

    def write_limits(self, slot: Slot) -> None:
        """Write the minimum delay and the pause of a slot."""
        number = self.slot_number(slot.key)
        self._journal.put("set_slot_limits", number, (number, slot.key, slot.min_delay, slot.paused_until))

    def _queue_or_delay(self, row: RequestRow, at: float, now: float) -> None:
        """Queue a request, or delay it until its time."""
        if at > now:
            self._journal.append("delay", (at, *row))
            self._job.delayed += 1
            self._usage.delayed[row.slot] += 1
            self._first_due = min(self._first_due, at)
            return
        self._journal.put("enqueue", row.seq, row)
        self._enqueue(row)

    def _enqueue(self, row: RequestRow) -> None:
        self._job.queued += 1
        self.backlog.add(self.slot_keys[row.slot], row)

    # --- leases ------------------------------------------------------------------------------------------

    def grant(self, slot: Slot, row: RequestRow, worker: str, now: float) -> HeldLease:
        """Lease a request that was taken from its slot."""
        self.backlog.leased.add(row.seq)
        self._job.queued -= 1
        held = self.leases.grant(self._job.next_number(), row, slot, worker, now)
        if slot.grants:
            packed = msgspec.msgpack.encode([list(grants) for grants in slot.grants])
            self._journal.put("set_slot_grants", row.slot, (row.slot, slot.key, packed))
        return held

    def write_leases(self, leases: Sequence[HeldLease]) -> None:
        """Write leases that were granted."""
        if self._file is None:
            return
        if self._open_batch is None:
            self._open_batch = LeaseBatch(self._job.next_number())
            self._journal.put_latest("put_leases", self._close_batch)
        for held in leases:
            self._open_batch.add(held)

    def _close_batch(self) -> Values | None:
        """Return the row of the open batch, which is about to be written; ``None`` if all of its leases have ended."""
        batch, self._open_batch = self._open_batch, None
        return batch.row() if batch is not None and batch.members else None

    def rewrite_leases(self) -> None:
        """Remove ended leases from the file, after dead letters were replayed.

        A replayed request has the same counts as at its first lease. If the file still had that lease, the request would
        count as leased after a crash.
        """
        batches = {held.batch.id: held.batch for held in self.leases if held.batch is not None}
        for number, batch in batches.items():
            if batch is not self._open_batch:
                self._journal.put("put_leases", number, batch.row())

    def _end_lease(self, lease_id: int, now: float, *, may_return: bool = False) -> HeldLease | None:
        """End a lease and return it. The caller then queues, delays or removes its request.

        ``may_return``: the request may be queued again with the same counts. The lease must then be removed from the
        file, because after a restart the request would count as leased.
        """
        held = self.leases.end(lease_id)
        if held is None:
            return None
        self._job.touch(now)
        batch = held.batch
        if batch is not None:
            del batch.members[held.row.seq]
            if batch is not self._open_batch:
                if not batch.members:
                    self._journal.append("remove_leases", (batch.id,))
                elif may_return:
                    self._journal.put("put_leases", batch.id, batch.row())
        self.backlog.leased.discard(held.row.seq)
        return held

    def release(self, lease_id: int, now: float) -> None:
        """Return a leased request to its place in the queue."""
        held = self._end_lease(lease_id, now, may_return=True)
        if held is not None and not self.drop_if_refused(held.row):
            self._enqueue(held.row)

    def end_with(self, outcome: Outcome, now: float) -> HeldLease | None:
        """End a lease with an outcome, and return it; ``None`` if it is not in force."""
        may_return = outcome.free or outcome.resolution is _FAILED
        held = self._end_lease(outcome.lease_id, now, may_return=may_return)
        if held is None:
            return None
        row = held.row
        if outcome.resolution is _DONE:
            self._job.done += 1
            self._remove(row.seq)
            if row.dedup:
                self.seen.visit(row.fingerprint, now)
        elif outcome.resolution is _FAILED:
            self._mark_dead(row, outcome.error, now)
        else:
            record = row.record if outcome.record is None else outcome.record
            row = row._replace(attempt=row.attempt + (not outcome.free), record=record)
            self._requeue(row, now + outcome.after, now)
        if outcome.visit is not None:
            self.visits.write(row, outcome)
        return held

    @property
    def next_due(self) -> float:
        """Time of the next move of delayed requests to the queue; infinite if there are none."""
        return max(self._first_due, self._moved_at + DUE_STEP)

    async def requeue_due(self, now: float) -> None:
        """Queue the requests of expired leases, and the delayed requests that are due.

        Raises the error of an earlier write that failed: a caller that waits for requests would otherwise wait forever.
        """
        self._journal.raise_failure()
        for lease_id in self.leases.expired(now):
            self.requeue_lost(lease_id, now)
        if self._moved_at > now:  # the clock was set back
            self._moved_at = 0.0
        while self.next_due <= now:
            if self._mover is None:
                self._mover = asyncio.create_task(self._move_due(now))
            # A caller that is cancelled must not stop the move after the file has changed, and before the memory has.
            await asyncio.shield(self._mover)

    async def _move_due(self, now: float) -> None:
        try:
            async with self.moving:
                await self._enqueue_due(now)
        finally:
            self._mover = None

    async def stop(self) -> None:
        """Wait for the running reads and moves."""
        await self.backlog.stop()
        if self._mover is not None:
            with contextlib.suppress(FrontierError):  # its callers raise the error
                await asyncio.shield(self._mover)
        await self.seen.stop()

    async def _enqueue_due(self, now: float) -> None:
        self._moved_at = now
        while self._first_due <= now:
            self._first_due = float("inf")
            rows, following = await self._journal.change(lambda tables: tables.take_due(now, DUE_BATCH_SIZE))
            self._job.delayed -= len(rows)
            for row in rows:
                self._usage.delayed[row.slot] -= 1
                if not self.drop_if_refused(row):
                    self._enqueue(row)
            self._first_due = min(self._first_due, following)

    def requeue_lost(self, lease_id: int, now: float) -> None:
        """Queue a request whose lease expired or whose worker died.

        A request that was lost too often becomes a dead letter.
        """
        held = self._end_lease(lease_id, now)
        if held is None:
            return
        self._job.count({"leases/lost": 1})
        row = held.row._replace(lost=held.row.lost + 1)
        if row.lost > self._job.options.max_worker_crashes:
            self._job.count({"failed/lost": 1})
            self._mark_dead(row, lost_error(row.lost), now)
        else:
            self._requeue(row, now + retry_delay_after_loss(row.lost), now)

    def _requeue(self, row: RequestRow, at: float, now: float) -> None:
        """Queue or delay a request that was leased, in a separate row."""
        if self.drop_if_refused(row):
            return
        if at > now:
            self._remove(row.seq)
        else:
            self._journal.append("unpack", (row.seq,))
        self._queue_or_delay(row, at, now)

    def _remove(self, seq: int) -> None:
        """Remove a queued or leased request from the queue and from its pack."""
        self._journal.withdraw("enqueue", seq)  # a group would run it after the removal
        self._journal.withdraw("cancel_removal", seq)
        self._journal.append("dequeue", (seq,))

    def drop_if_refused(self, row: RequestRow) -> bool:
        """Drop a request whose slot was banned, or reached its budget, while it was leased, delayed or dead.

        Return ``False`` if the slot accepts it.
        """
        refusal = self._refusal_of(self.slot_keys[row.slot])
        if not refusal:
            return False
        self._remove(row.seq)
        self._job.added -= 1
        self._job.count({refusal: 1})
        self._job.write()
        return True

    def _refusal_of(self, key: str) -> str:
        """Return the counter for requests of a slot that is banned or over its budget; otherwise an empty string."""
        is_banned = bool(self._job.banned) and self._job.is_banned(key)
        return "refused/banned" if is_banned else self._usage.spent(key)

    def _mark_dead(self, row: RequestRow, error: str, now: float) -> None:
        self._job.failed += 1
        self._remove(row.seq)
        is_forgotten = bool(row.dedup) and self._job.options.refetch_failed
        dead = row._replace(attempt=row.attempt + 1, dedup=FORGOTTEN if is_forgotten else row.dedup)
        self._journal.append("add_dead", (self._job.next_number(), *dead, error, now))
        if is_forgotten:
            self.seen.forget(row.fingerprint, now)
        self.visits.mark_dead(row)
        self._job.write()

    def revive(self, row: RequestRow, now: float) -> bool:
        """Queue the request of a dead letter with fresh attempts.

        Return ``False`` if its URL has been added again since.
        """
        if row.dedup == FORGOTTEN and self.seen.keys.known(row.fingerprint, now):
            self._job.added -= 1
            self._job.count({"refused/duplicate": 1})
            return False
        if not self.drop_if_refused(row):
            if row.dedup:
                self.seen.keys.add(row.fingerprint)
                self.seen.log_added([row.fingerprint], now)
            self._journal.append("unpack", (row.seq,))  # the removal from its pack may not be applied yet
            self._journal.put("cancel_removal", row.seq, (row.seq,))
            self._queue_or_delay(row._replace(attempt=0, lost=0, dedup=min(row.dedup, 1)), now, now)
        return True

    # --- dropping ----------------------------------------------------------------------------------------

    async def drop_slot(self, slot: str) -> int:
        """Drop the waiting requests of a slot, or of a host in all queues. Return their number."""
        found = [
            (key, number) for key, number in self._slot_numbers.items() if slot in {key, without_queue(key)}
        ]
        dropped = sum([await self._drop_slot(key, number) for key, number in found])
        if dropped:
            self._job.count({"refused/dropped": dropped})
        self._job.write()
        await self._journal.flush()
        return dropped

    async def drop_refused(self, slots: Sequence[str]) -> None:
        """Drop the waiting requests of slots that are banned or whose budget is used up."""
        for key in slots:
            number = self._slot_numbers.get(key)
            refusal = self._refusal_of(key) if number is not None else ""
            if number is None or not refusal:
                continue
            slot = self._slots.find(key)
            if self._usage.delayed[number] or (slot is not None and slot.queued):
                self._job.count({refusal: await self._drop_slot(key, number)})
                self._job.write()

    async def _drop_slot(self, key: str, number: int) -> int:
        # Read no head until the requests are removed from the file as well: they would come back.
        async with self.moving, self.backlog.reading:
            dropped = self.backlog.drop(self._slots.get(key))
            self._job.queued -= dropped
            self._job.added -= dropped
            last = self._job.last_number
            leased = [held.row.seq for held in self.leases if held.row.slot == number]
            delayed, following = await self._journal.change(
                lambda tables: tables.drop_slot(number, last, leased)
            )
            self._job.delayed -= delayed
            self._usage.delayed[number] -= delayed
            self._job.added -= delayed
            self._first_due = min(self._first_due, following)
        return dropped + delayed

    async def drop_task(self, task: TaskFilter) -> int:
        """Drop the waiting requests of a task: search the file, then remove them from it, some at a time."""
        async with self.moving, self.backlog.reading:
            dropped = await self._search(task)
            for start in range(0, len(dropped), REMOVE_BATCH_SIZE):
                batch = dropped[start : start + REMOVE_BATCH_SIZE]
                for seq in batch:
                    self._remove(seq)
                self._job.queued -= len(batch)
                await self._count_dropped(len(batch))
            delayed, following = await self._journal.change(lambda tables: tables.drop_delayed(task))
            if delayed:
                delayed_by_slot = await self._journal.read(lambda tables: tables.delayed_by_slot())
                self._usage.delayed = Counter(delayed_by_slot)
            self._job.delayed -= delayed
            self._first_due = min(self._first_due, following)
            await self._count_dropped(delayed)
        return len(dropped) + delayed

    async def _search(self, task: TaskFilter) -> list[int]:
        """Drop the waiting requests of a task from the backlog. Return the numbers of the rows to remove."""
        last = self._job.last_number
        search = BacklogSearch(self.backlog, self._slots, task, last)
        try:
            if self._file is not None:
                await self._search_file(self._file, search, task.trace, last)
            return search.drop()
        finally:
            search.end()

    async def _search_file(
        self, file: SqliteJournal, search: BacklogSearch, pattern: bytes, last: int
    ) -> None:
        after, unpacked = 0, True
        while unpacked:
            after = await file.change(
                partial(
                    SqliteTables.unpack_some, pattern=pattern, after=after, last=last, limit=UNPACK_BATCH_SIZE
                )
            )
            unpacked = after > 0
        while True:
            rows, after = await file.change(
                partial(
                    SqliteTables.find_waiting,
                    pattern=pattern,
                    after=after,
                    last=last,
                    limit=SEARCH_BATCH_SIZE,
                )
            )
            for seq, number, rank, record in rows:
                search.add(self.slot_keys[number], rank, seq, record)
            if not after:
                break

    async def _count_dropped(self, count: int) -> None:
        if count:
            self._job.added -= count
            self._job.count({"refused/dropped": count})
        self._job.write()
        await self._journal.flush()

    def current_state(self) -> JobState:
        """Return the state in force."""
        return self._job.state_now(len(self.leases))

    def lease_of(self, held: HeldLease) -> Lease:
        """Return the record of a lease for its worker."""
        row, slot = held.row, held.slot
        return Lease(
            held.id, row.fingerprint, slot.key, row.url, row.record, row.attempt, row.lost,
            held.deadline, slot.start_within,
        )  # fmt: skip
