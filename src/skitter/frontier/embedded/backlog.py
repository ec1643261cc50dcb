"""Backlog: the queues of all slots, their heads in memory and the rest on disk.

Every queued request has a row on disk. The head of each slot's queue is also in memory: all rows up to
``slot.bound`` that are not leased; ``slot.beyond`` counts the rows after it, which are on disk only.
``bound`` is ``None`` exactly when nothing is beyond.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping
from heapq import heapify
from typing import NamedTuple

from skitter.frontier.embedded.journal import Journal
from skitter.frontier.embedded.scheduler import Slot, SlotTable

_LARGEST_HEAD = 256
_SMALLEST_HEAD = 8
_HEADS_TOGETHER = 20_000
"""Requests that all heads together may hold in memory, about 10 MB."""
BEFORE_ALL = (-(2**63), 0)

_NEXT_ROWS = """
SELECT seq, slot, rank, fingerprint, url, record, priority, dedup, attempt, lost FROM queue
WHERE slot = ? AND (rank, seq) > (?, ?) ORDER BY rank, seq LIMIT ?
"""


class Row(NamedTuple):
    """A request as it stands in the file."""

    seq: int
    slot: int
    rank: int
    fingerprint: bytes
    url: str
    record: bytes
    priority: int
    dedup: int
    attempt: int
    lost: int


class Backlog:
    """Places requests in their slots and brings heads back from disk as they empty."""

    def __init__(self, journal: Journal, slots: SlotTable) -> None:
        self._journal = journal
        self._slots = slots
        self._hungry: dict[Slot, int] = {}
        """Slots with an empty head and more on disk, with their number in the file."""
        self._arrivals: dict[Slot, list[Row]] | None = None
        """What was placed beyond the bound of each slot while rows are being read."""
        self.filling = asyncio.Lock()
        """Held while heads are read, or requests are looked for on disk: no row comes into memory meanwhile."""
        self.leased: set[int] = set()
        """Sequence numbers of rows on lease: on disk, but not to be read into a head."""

    def _head_size(self) -> int:
        return max(_SMALLEST_HEAD, min(_LARGEST_HEAD, _HEADS_TOGETHER // (len(self._slots) or 1)))

    def place(self, slot: Slot, row: Row) -> None:
        """Let a request wait whose row is, or is about to be, on disk."""
        key = (row.rank, row.seq)
        if slot.bound is None:
            if len(slot.waiting) < self._head_size() or key < max(slot.waiting)[:2]:
                self._push(slot, row)
                return
            slot.bound = max(slot.waiting)[:2]
        if key <= slot.bound:
            self._push(slot, row)
            return
        slot.beyond += 1
        if self._arrivals is not None and slot in self._arrivals:
            self._arrivals[slot].append(row)
        self.note_empty(slot, row.slot)

    def _push(self, slot: Slot, row: Row) -> None:
        self._slots.push(slot, (row.rank, row.seq, row))
        size = self._head_size()
        if len(slot.waiting) > 2 * size:
            slot.waiting.sort()
            slot.beyond += len(slot.waiting) - size
            del slot.waiting[size:]
            slot.bound = slot.waiting[-1][:2]

    def note_empty(self, slot: Slot, slot_number: int) -> None:
        """Remember to read more of a slot whose head ran empty."""
        if not slot.waiting and slot.beyond:
            self._hungry[slot] = slot_number

    def start_on_disk(self, slot: Slot, slot_number: int, count: int) -> None:
        """Take over a slot whose requests are all on disk."""
        slot.beyond, slot.bound = count, BEFORE_ALL
        self._hungry[slot] = slot_number

    def drop(self, slot: Slot) -> int:
        """Forget all that waits in a slot, here and on disk, where its rows are still to be removed."""
        count = len(slot.waiting) + slot.beyond
        slot.waiting.clear()
        slot.beyond, slot.bound = 0, None
        self._hungry.pop(slot, None)
        self._slots.arm(slot)
        return count

    def cut(self, slot: Slot, number: int, beyond: int, met: set[int]) -> None:
        """Forget some requests of a slot: so many that are on disk only, and those in memory of these numbers."""
        slot.beyond -= beyond
        slot.waiting[:] = [place for place in slot.waiting if place[1] not in met]
        heapify(slot.waiting)
        if not slot.beyond:
            slot.bound = None
            self._hungry.pop(slot, None)
        self.note_empty(slot, number)
        self._slots.arm(slot)

    async def refill(self) -> bool:
        """Read the heads that ran empty; returns whether there was anything to read."""
        if not self._hungry:
            return False
        async with self.filling:
            hungry, self._hungry = self._hungry, {}
            self._arrivals = {slot: [] for slot in hungry}
            in_hand = self.leased.copy()
            size = self._head_size()
            questions = [(number, *(slot.bound or BEFORE_ALL), size) for slot, number in hungry.items()]
            try:
                answers = await self._journal.read(lambda file: _read_heads(file, questions))
                for (slot, number), asked, rows in zip(hungry.items(), questions, answers, strict=True):
                    if slot.bound == asked[1:3]:
                        self._take_head(slot, number, rows, in_hand, complete=len(rows) < size)
                    else:  # so much arrived meanwhile that the head was cut: what was read is no answer
                        self.note_empty(slot, number)
            finally:
                self._arrivals = None
        return True

    def _take_head(
        self, slot: Slot, number: int, rows: list[Row], in_hand: set[int], *, complete: bool
    ) -> None:
        assert self._arrivals is not None
        if rows and not complete:
            slot.bound = (rows[-1].rank, rows[-1].seq)
        # A row that was leased from an earlier head and lies after the bound was on disk, but not waiting.
        # If its lease ended meanwhile it is gone, or it has arrived again.
        head = {row.seq: row for row in rows if row.seq not in in_hand}
        for row in self._arrivals[slot]:
            if complete or (row.rank, row.seq) <= (slot.bound or BEFORE_ALL):
                head[row.seq] = row
        slot.beyond -= len(head)
        for row in head.values():
            self._slots.push(slot, (row.rank, row.seq, row))
        if complete:
            assert slot.beyond == 0, f"slot {slot.key}: {slot.beyond} requests are neither here nor on disk"
        if not slot.beyond:
            slot.bound = None
        self.note_empty(slot, number)


class Dropping:
    """Removes some requests from a backlog whose ``filling`` is held from before this is made until :meth:`drop`.

    What is on disk is looked for while the job goes on. So it is settled at the beginning which rows are only there:
    those after the bound of their slot, but for those on lease. Until the backlog is filled a bound only moves nearer.
    """

    def __init__(self, backlog: Backlog, slots: SlotTable) -> None:
        self._backlog = backlog
        self._slots = slots
        self._bounds = {slot.key: slot.bound for slot in slots if slot.bound is not None}
        self._leased = backlog.leased.copy()
        self._beyond: dict[str, list[int]] = {}

    def take(self, key: str, rank: int, seq: int) -> None:
        """Take a row of the file that is meant, unless it is in memory too, or on lease."""
        bound = self._bounds.get(key)
        if bound is not None and (rank, seq) > bound and seq not in self._leased:
            self._beyond.setdefault(key, []).append(seq)

    def drop(self, is_meant: Callable[[Row], bool], numbers: Mapping[str, int]) -> list[int]:
        """Forget what was taken, and what is meant in memory; returns their numbers, to be removed from the file.

        ``numbers``: of the slots in the file.
        """
        dropped: list[int] = []
        for slot in self._slots:
            beyond = self._beyond.get(slot.key, [])
            met = {seq for _, seq, row in slot.waiting if is_meant(row)}
            if beyond or met:
                self._backlog.cut(slot, numbers[slot.key], len(beyond), met)
                dropped += [*beyond, *met]
        return dropped


def _read_heads(file: sqlite3.Connection, questions: list[tuple[int, int, int, int]]) -> list[list[Row]]:
    return [[Row(*row) for row in file.execute(_NEXT_ROWS, question)] for question in questions]
