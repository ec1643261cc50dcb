"""SQLite as the state behind a broker, for the workers of one machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

from skitter.brokers.state import Telling, Turns, current_told, current_turns
from skitter.frontier.embedded.frontier import SqliteFrontier
from skitter.frontier.embedded.scheduler import HeapEntry, Slot
from skitter.frontier.records import AddResult, Entry, FetchReport, SlotDecision, SlotLeases
from skitter.queues import QueueQuotas


class SqliteState(SqliteFrontier, Telling):
    """An embedded frontier that leases by turns."""

    shared: ClassVar[bool] = False

    def _insert(self, entries: Sequence[Entry], now: float) -> AddResult:
        told = current_told.get()
        if told is None:
            return super()._insert(entries, now)
        results = [super(SqliteState, self)._insert([entry], now) for entry in entries]
        told += [bool(result.added) for result in results]
        return AddResult(
            sum(result.added for result in results),
            sum(result.known for result in results),
            sum(result.banned for result in results),
        )

    async def lease_slots(
        self,
        worker: str,
        slots: Sequence[str],
        limit: int,
        landed: Sequence[FetchReport],
        shares: QueueQuotas | None = None,
    ) -> SlotLeases:
        """Lease, for each turn, the first request that waits in its slot, if the slot is ready."""
        turns = Turns(slots)
        token = current_turns.set(turns)
        try:
            result = await self.lease(worker, limit, landed, shares)
        finally:
            current_turns.reset(token)
        now = self._clock()
        leased = Counter(held.slot.key for held in self._leases)
        for place in turns.open_places():
            turns.fates[place] = self._fate(self._slots.find(slots[place]), leased, now)
        ready_at = self._slots.next_at(self._slots.shares(shares, max(limit, 1)))
        may_come = ready_at is not None and ready_at <= now
        starving = may_come and len(result.leases) < limit and self._may_lease()
        return SlotLeases(result, turns.fates, starving)

    def _fate(self, slot: Slot | None, leased: Counter[str], now: float) -> SlotDecision | float:
        if slot is not None and (slot.waiting or slot.beyond):
            return max(0.0, slot.ready_at() - now)
        may_return = self._delayed or (slot is not None and leased[slot.key])
        return SlotDecision.LATER if may_return else SlotDecision.EMPTY

    def _take(self, now: float, shares: dict[str, int] | None) -> tuple[Slot, HeapEntry] | None:
        turns = current_turns.get()
        if turns is None:
            return super()._take(now, shares)
        while turns.next < len(turns.slots):
            place, turns.next = turns.next, turns.next + 1
            slot = self._slots.find(turns.slots[place])
            if turns.fates[place] is SlotDecision.LEASED or slot is None:
                continue
            taken = self._slots.take_from(slot, now)
            if taken is not None:
                turns.fates[place] = SlotDecision.LEASED
                return taken
        turns.next = 0  # more may be read from the file, and then all are tried again
        return None

    async def overdue_slots(self, seconds: float) -> list[tuple[str, int]]:
        """List slots that have been ready for so long, and how many requests wait in each."""
        since = self._clock() - seconds
        return [
            (slot.key, len(slot.waiting) + slot.beyond)
            for slot in self._slots
            if (slot.waiting or slot.beyond) and slot.has_place and slot.ready_at() <= since
        ]
