"""The backlog: the queues of all slots, the first requests of each in memory and the rest in the file.

Every queued request has a row in the file. The first requests of each slot, its head, are also in memory: all rows up
to ``slot.head_end`` that are not leased. ``slot.on_disk`` counts the rows after it. ``head_end`` is ``None`` exactly if
``on_disk`` is 0. A frontier in memory keeps all requests in the heads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from heapq import heapify

from skitter.frontier.embedded.journal import SqliteJournal
from skitter.frontier.embedded.scheduler import Slot, SlotScheduler
from skitter.frontier.embedded.tables import RequestRow

MAX_HEAD_SIZE = 256
MIN_HEAD_SIZE = 8
MAX_REQUESTS_IN_MEMORY = 20_000
"""Number of requests in all heads together, about 10 MB."""
START = (-(2**63), 0)
"""Comes before the rank and sequence number of every request."""


class Backlog:
    """Adds requests to their slots, and reads heads back from the file when they become empty."""

    def __init__(self, file: SqliteJournal | None, slots: SlotScheduler) -> None:
        self._file = file
        """``None``: all requests stay in memory."""
        self._slots = slots
        self._empty_heads: dict[Slot, int] = {}
        """Slots with an empty head and more requests in the file, with their numbers in the file."""
        self._arrivals: dict[Slot, list[RequestRow]] | None = None
        """Requests that were added after the head of each slot while heads are being read."""
        self.reading = asyncio.Lock()
        """Held while heads are read or requests are searched in the file: no row comes into memory meanwhile."""
        self.leased: set[int] = set()
        """Sequence numbers of leased rows, which must not be read into a head."""

    def _head_size(self) -> int:
        return max(MIN_HEAD_SIZE, min(MAX_HEAD_SIZE, MAX_REQUESTS_IN_MEMORY // (len(self._slots) or 1)))

    def add(self, slot: Slot, row: RequestRow) -> None:
        """Add a request whose row is in the journal."""
        if self._file is None:
            self._slots.push(slot, (row.rank, row.seq, row))
            return
        key = (row.rank, row.seq)
        if slot.head_end is None:
            if len(slot.waiting) < self._head_size() or key < max(slot.waiting)[:2]:
                self._push(slot, row)
                return
            slot.head_end = max(slot.waiting)[:2]
        if key <= slot.head_end:
            self._push(slot, row)
            return
        slot.on_disk += 1
        if self._arrivals is not None and slot in self._arrivals:
            self._arrivals[slot].append(row)
        self.note_empty_head(slot, row.slot)

    def _push(self, slot: Slot, row: RequestRow) -> None:
        self._slots.push(slot, (row.rank, row.seq, row))
        size = self._head_size()
        if len(slot.waiting) > 2 * size:
            slot.waiting.sort()
            slot.on_disk += len(slot.waiting) - size
            del slot.waiting[size:]
            slot.head_end = slot.waiting[-1][:2]

    def note_empty_head(self, slot: Slot, number: int) -> None:
        """Remember a slot if its head is empty and more of its requests are in the file."""
        if not slot.waiting and slot.on_disk:
            self._empty_heads[slot] = number

    def restore(self, slot: Slot, number: int, count: int) -> None:
        """Add a slot whose requests are all in the file."""
        slot.on_disk, slot.head_end = count, START
        self._empty_heads[slot] = number

    def drop(self, slot: Slot) -> int:
        """Drop the waiting requests of a slot. Return their number. The caller removes the rows from the file."""
        count = slot.queued
        slot.waiting.clear()
        slot.on_disk, slot.head_end = 0, None
        self._empty_heads.pop(slot, None)
        self._slots.reschedule(slot)
        return count

    def drop_some(self, slot: Slot, number: int, on_disk: int, in_memory: set[int]) -> None:
        """Drop some requests of a slot: ``on_disk`` requests of the file, and those in memory by their numbers."""
        slot.on_disk -= on_disk
        slot.waiting[:] = [entry for entry in slot.waiting if entry[1] not in in_memory]
        heapify(slot.waiting)
        if not slot.on_disk:
            slot.head_end = None
            self._empty_heads.pop(slot, None)
        self.note_empty_head(slot, number)
        self._slots.reschedule(slot)

    async def refill(self) -> bool:
        """Read empty heads from the file. Return ``False`` if there are none."""
        if not self._empty_heads or self._file is None:
            return False
        async with self.reading:
            empty, self._empty_heads = self._empty_heads, {}
            self._arrivals = {slot: [] for slot in empty}
            leased = self.leased.copy()
            size = self._head_size()
            starts = [(number, *(slot.head_end or START), size) for slot, number in empty.items()]
            try:
                heads = await self._file.read(lambda tables: tables.read_heads(starts))
                for (slot, number), start, rows in zip(empty.items(), starts, heads, strict=True):
                    if slot.head_end == start[1:3]:
                        self._fill_head(slot, number, rows, leased, complete=len(rows) < size)
                    else:  # so many requests arrived meanwhile that the head was cut: the rows are out of date
                        self.note_empty_head(slot, number)
            finally:
                self._arrivals = None
        return True

    def _fill_head(
        self, slot: Slot, number: int, rows: list[RequestRow], leased: set[int], *, complete: bool
    ) -> None:
        assert self._arrivals is not None
        if rows and not complete:
            slot.head_end = (rows[-1].rank, rows[-1].seq)
        # A row that was leased from an earlier head and lies after its end was in the file, but not waiting. If its
        # lease ended meanwhile, the row is gone or among the arrivals.
        head = {row.seq: row for row in rows if row.seq not in leased}
        for row in self._arrivals[slot]:
            if complete or (row.rank, row.seq) <= (slot.head_end or START):
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
        self.note_empty_head(slot, number)


class BacklogSearch:
    """Removes some requests from a backlog. The caller holds ``reading`` from before the creation until :meth:`drop`.

    The file is searched while the job continues. The rows that are only in the file are therefore determined at the
    start: those after the end of their slot's head, except the leased ones. Until heads are read again, the end of a
    head only moves towards its start.
    """

    def __init__(self, backlog: Backlog, slots: SlotScheduler) -> None:
        self._backlog = backlog
        self._slots = slots
        self._head_ends = {slot.key: slot.head_end for slot in slots if slot.head_end is not None}
        self._leased = backlog.leased.copy()
        self._found: dict[str, list[int]] = {}

    def add(self, key: str, rank: int, seq: int) -> None:
        """Add a matching row of the file, unless it is in memory too, or leased."""
        end = self._head_ends.get(key)
        if end is not None and (rank, seq) > end and seq not in self._leased:
            self._found.setdefault(key, []).append(seq)

    def drop(self, matches: Callable[[RequestRow], bool], numbers: Mapping[str, int]) -> list[int]:
        """Drop the added rows, and the matching requests in memory. Return the numbers of the rows to remove.

        ``numbers``: the number of each slot in the file.
        """
        dropped: list[int] = []
        for slot in self._slots:
            on_disk = self._found.get(slot.key, [])
            in_memory = {seq for _, seq, row in slot.waiting if matches(row)}
            if on_disk or in_memory:
                self._backlog.drop_some(slot, numbers[slot.key], len(on_disk), in_memory)
                dropped += [*on_disk, *in_memory]
        return dropped
