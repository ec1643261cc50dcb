"""The backlog: the queues of all slots, the first requests of each in memory and the rest in the file.

Every queued request is in the file, in a row or in a pack. The first requests of each slot, its head, are also in
memory: all requests up to ``slot.head_end`` that are not leased. ``slot.on_disk`` counts the requests after it.
``head_end`` is ``None`` exactly if ``on_disk`` is 0. A head is read when its slot is ready, or soon will be, so a
million waiting slots have no requests in memory. A frontier in memory keeps all requests in the heads.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from heapq import heapify
from typing import Protocol

from skitter.errors import FrontierError
from skitter.frontier.embedded.journal import SqliteJournal
from skitter.frontier.embedded.scheduler import LOW_HEAD, HeapEntry, Slot, SlotScheduler
from skitter.frontier.embedded.tables import RequestRow
from skitter.frontier.records import TaskFilter
from skitter.frontier.scheduling import MAX_WAIT

MAX_HEAD_SIZE = 4_096
"""Requests of a slot that are kept in memory. A crawl of a small site never reads its requests from the file."""
MAX_LONG_HEAD_SIZE = 256
"""Requests of a slot that are kept in memory if their URLs are long. Also the number of requests of a slot that are read
from the file in one step."""
LONG_URL = 256
"""Number of characters from which a URL counts as long."""
MIN_HEAD_SIZE = 8
MAX_REQUESTS_IN_MEMORY = 20_000
"""Number of requests in all heads together, about 10 MB, above which new ones stay only in the file. When requests are
read, the limit is one and a half times as high. Slots share it: reading one request at a time would cost several times as
much."""
READ_SLOTS = 64
READ_REQUESTS = 1_024
"""Slots and requests that are read from the file in one step."""


class RequestSource(Protocol):
    """Decides which request is leased next: the scheduler, or the slots that a call names."""

    def take(
        self, now: float, allowances: dict[str, int] | None, worker_capacity: float, worker: str, /
    ) -> tuple[Slot, HeapEntry] | None:
        """Take the next request that a worker may fetch now, if there is one.

        ``worker_capacity``: number of further requests that the worker can fetch.
        """

    def unread(
        self, until: float, limit: int, allowances: dict[str, int] | None, /, *, worker_capacity: float = ...
    ) -> list[Slot]:
        """Return slots that are ready by a time and whose next requests must be read from the file first."""


class Backlog:
    """Adds requests to their slots, and reads heads back from the file when they become empty."""

    def __init__(
        self, file: SqliteJournal | None, slots: SlotScheduler, number_of: Callable[[str], int]
    ) -> None:
        self._file = file
        """``None``: all requests stay in memory."""
        self._slots = slots
        self._number_of = number_of
        """Returns the number of a slot in the file."""
        self._arrivals: dict[Slot, list[RequestRow]] | None = None
        """Requests that were added after the head of each slot while heads are being read."""
        self.reading = asyncio.Lock()
        """Held while heads are read or requests are searched in the file, so that no row enters memory in the
        meantime."""
        self._reader: asyncio.Task[None] | None = None
        """Reads heads ahead."""
        self.leased: set[int] = set()
        """Sequence numbers of leased rows, which must not be read into a head."""
        self.search: BacklogSearch | None = None
        """The search that is in progress, if there is one."""

    def add(self, slot_key: str, row: RequestRow) -> None:
        """Add a request whose row is in the journal."""
        if self._file is None:
            self._slots.push(self._slots.get(slot_key), (row.rank, row.seq, row))
            return
        is_full = self._slots.in_memory >= MAX_REQUESTS_IN_MEMORY
        if self._slots.add_unread(slot_key, row.rank, 1, create=is_full):
            return
        slot, key = self._slots.get(slot_key), (row.rank, row.seq)
        if slot.head_end is None:
            if len(slot.waiting) < self._head_size(row, 0):
                self._push(slot, row)
                return
            if slot.waiting and key < max(slot.waiting)[:2]:
                self._push(slot, row)
                if slot.head_end is None:  # from now on, the end of the head is known
                    self._cut(slot, len(slot.waiting) - 1)
                return
            slot.head_end = max(slot.waiting)[:2] if slot.waiting else (row.rank, row.seq - 1)
        if key <= slot.head_end:
            self._push(slot, row)
            return
        slot.on_disk += 1
        if self._arrivals is not None and slot in self._arrivals:
            self._arrivals[slot].append(row)
        if not slot.stamp:
            self._slots.reschedule(slot)

    def is_behind_head(self, slot_key: str, rank: int) -> bool:
        """Return whether a new request of a slot is only needed after the requests of its head."""
        slot = self._slots.active(slot_key)
        if slot is None:
            return slot_key in self._slots.dormant and rank >= self._slots.dormant.rank_of(slot_key)
        if slot.head_end is None or rank < slot.head_end[0]:
            return False
        return self._arrivals is None or slot not in self._arrivals

    def add_packed(self, slot_key: str, rank: int, amount: int) -> None:
        """Add requests behind the head of a slot whose pack is in the journal."""
        if self._slots.add_unread(slot_key, rank, amount, create=False):
            return
        slot = self._slots.get(slot_key)
        slot.on_disk += amount
        if not slot.stamp:
            self._slots.reschedule(slot)

    def _push(self, slot: Slot, row: RequestRow) -> None:
        self._slots.push(slot, (row.rank, row.seq, row))
        size = self._head_size(row, MIN_HEAD_SIZE)
        if len(slot.waiting) > 2 * size:
            self._cut(slot, size)

    def _head_size(self, row: RequestRow, full: int) -> int:
        """Return the number of requests in memory from which on a head accepts no further row such as this one.

        ``full``: the result if the heads of all slots together have too many requests.
        """
        if self._slots.in_memory >= MAX_REQUESTS_IN_MEMORY:
            return full
        return MAX_HEAD_SIZE if len(row.url) < LONG_URL else MAX_LONG_HEAD_SIZE

    def _cut(self, slot: Slot, size: int) -> None:
        """Remove the last requests of a head from memory; they stay in the file."""
        slot.waiting.sort()
        cut = len(slot.waiting) - size
        if self.search is not None:
            self.search.add_cut(slot, slot.waiting[size:])
        slot.on_disk += cut
        self._slots.in_memory -= cut
        del slot.waiting[size:]
        slot.head_end = slot.waiting[-1][:2]

    def restore(self, slot_key: str, first_rank: int, count: int) -> None:
        """Add a slot whose requests are all in the file."""
        if not self._slots.add_unread(slot_key, first_rank, count, create=True):
            slot = self._slots.get(slot_key)
            slot.on_disk, slot.head_end = count, (first_rank, 0)
            self._slots.reschedule(slot)

    def drop(self, slot: Slot) -> int:
        """Drop the waiting requests of a slot. Return their number. The caller removes the rows from the file."""
        count = slot.queued
        self._slots.in_memory -= len(slot.waiting)
        slot.waiting.clear()
        slot.on_disk, slot.head_end = 0, None
        self._slots.reschedule(slot)
        return count

    def drop_some(self, slot: Slot, on_disk: int, in_memory: set[int]) -> None:
        """Drop some requests of a slot: ``on_disk`` requests of the file, and those in memory by their numbers."""
        slot.on_disk -= on_disk
        self._slots.in_memory -= len(in_memory)
        slot.waiting[:] = [entry for entry in slot.waiting if entry[1] not in in_memory]
        heapify(slot.waiting)
        if not slot.on_disk:
            slot.head_end = None
        self._slots.reschedule(slot)

    async def refill(
        self, source: RequestSource, now: float, allowances: dict[str, int] | None, worker_capacity: float
    ) -> bool:
        """Read some empty heads of slots that are ready, or will be before a worker asks again.

        Return ``False`` if none of them is ready now.
        """
        if self._file is None:
            return False
        if self._reader is not None:
            await asyncio.shield(self._reader)
            return True
        was_reading = self.reading.locked()
        async with self.reading:
            if was_reading:  # the requests that were read may be enough
                return True
            slots = source.unread(now + MAX_WAIT, READ_SLOTS, allowances, worker_capacity=worker_capacity)
            await self._read(self._file, slots)
        return any(slot.ready_at() <= now for slot in slots)

    def read_ahead(self, now: float, allowances: dict[str, int] | None) -> None:
        """Start to read the heads that will soon be needed, so that no lease waits for the file."""
        if self._file is None or self._reader is not None or self.reading.locked():
            return
        low = [slot for slot in self._slots.low if slot.on_disk and 0 < len(slot.waiting) <= LOW_HEAD]
        self._slots.low.clear()
        has_many = self._slots.in_memory >= READ_REQUESTS // 2
        low += self._slots.unread(now + MAX_WAIT, READ_SLOTS, allowances, only_responsive=has_many)
        if low:
            self._reader = asyncio.create_task(self._read_ahead(self._file, low))

    async def _read_ahead(self, file: SqliteJournal, slots: list[Slot]) -> None:
        try:
            with contextlib.suppress(FrontierError):  # the next call that needs the file raises the error
                async with self.reading:
                    await self._read(file, slots)
        finally:
            self._reader = None

    async def stop(self) -> None:
        """Wait for the running read."""
        if self._reader is not None:
            await asyncio.shield(self._reader)

    async def _read(self, file: SqliteJournal, slots: list[Slot]) -> None:
        # The other slots were dropped in the meantime.
        slots = [slot for slot in slots if slot.head_end is not None]
        if not slots:
            return
        self._arrivals = {slot: [] for slot in slots}
        leased = self.leased.copy()
        room = MAX_REQUESTS_IN_MEMORY * 3 // 2 - self._slots.in_memory
        size = max(1, min(MAX_LONG_HEAD_SIZE, READ_REQUESTS // len(slots), room // len(self._slots)))
        starts = [(self._number_of(slot.key), *_head_end(slot)) for slot in slots]
        try:
            heads = await file.read(lambda tables: tables.read_heads(starts, size))
            for slot, start, rows in zip(slots, starts, heads, strict=True):
                if slot.head_end == start[1:]:
                    self._fill_head(slot, rows, leased, complete=len(rows) < size)
        finally:
            self._arrivals = None

    def _fill_head(self, slot: Slot, rows: list[RequestRow], leased: set[int], *, complete: bool) -> None:
        assert self._arrivals is not None
        if rows and not complete:
            slot.head_end = (rows[-1].rank, rows[-1].seq)
        # A row that was leased from an earlier head and lies after its end was in the file, but not waiting. If its
        # lease ended meanwhile, the row is gone or among the arrivals.
        head = {row.seq: row for row in rows if row.seq not in leased}
        for row in self._arrivals[slot]:
            if complete or (row.rank, row.seq) <= _head_end(slot):
                head[row.seq] = row
        slot.on_disk -= len(head)
        for row in head.values():
            self._slots.push(slot, (row.rank, row.seq, row))
        if complete:
            assert slot.on_disk == 0, (
                f"slot {slot.key}: {slot.on_disk} requests are neither in memory nor in the file"
            )
        if not slot.on_disk:
            slot.head_end = None


def _head_end(slot: Slot) -> tuple[int, int]:
    assert slot.head_end is not None, f"slot {slot.key} has no requests in the file"
    return slot.head_end


class BacklogSearch:
    """Removes the requests of a task from a backlog. The caller holds ``reading`` from before the creation until :meth:`end`.

    ``last``: the last number of a request before the search. Later ones stay.

    The file is searched while the job continues. The rows that are only in the file are therefore determined at the
    start: those after the end of their slot's head, except the leased ones. Until heads are read again, the end of a
    head only moves toward its start: the requests that leave memory are added as well.
    """

    def __init__(self, backlog: Backlog, slots: SlotScheduler, task: TaskFilter, last: int) -> None:
        self._backlog = backlog
        self._slots = slots
        self._task = task
        self._last = last
        slots.wake_all()
        self._head_ends = {slot.key: slot.head_end for slot in slots if slot.head_end is not None}
        self._leased = backlog.leased.copy()
        self._found: dict[str, list[int]] = {}
        backlog.search = self

    def add(self, key: str, rank: int, seq: int, record: bytes) -> None:
        """Add a row of the file if it matches, unless it is in memory too, or leased."""
        end = self._head_ends.get(key)
        if end is not None and (rank, seq) > end and seq not in self._leased and self._task.matches(record):
            self._found.setdefault(key, []).append(seq)

    def add_cut(self, slot: Slot, entries: Sequence[HeapEntry]) -> None:
        """Add the matching requests among some that leave the head of a slot."""
        if cut := self._matching(entries):
            self._found.setdefault(slot.key, []).extend(cut)

    def _matching(self, entries: Sequence[HeapEntry]) -> list[int]:
        return [seq for _, seq, row in entries if seq <= self._last and self._task.matches(row.record)]

    def drop(self) -> list[int]:
        """Drop the added rows, and the matching requests in memory. Return the numbers of the rows to remove."""
        dropped: list[int] = []
        for slot in self._slots:
            on_disk = self._found.get(slot.key, [])
            in_memory = set(self._matching(slot.waiting))
            if on_disk or in_memory:
                self._backlog.drop_some(slot, len(on_disk), in_memory)
                dropped += [*on_disk, *in_memory]
        return dropped

    def end(self) -> None:
        """End the search."""
        self._backlog.search = None
