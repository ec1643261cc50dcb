"""Redis as the state behind a broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from skitter.brokers.state import Fate, TurnResult
from skitter.frontier.records import AddResult, Entry, FetchReport, Outcome, SeedProgress, SlotDecision
from skitter.frontier.redis.frontier import RedisFrontier
from skitter.queues import QueueQuotas

_FATES = {SlotDecision.LEASED: Fate.GRANTED, SlotDecision.LATER: Fate.LATER, SlotDecision.EMPTY: Fate.GONE}


class RedisState(RedisFrontier):
    """Transitional: the methods of a state by their old names."""

    shared: ClassVar[bool] = True

    async def add_told(
        self, entries: Sequence[Entry], seeds: SeedProgress | None = None
    ) -> tuple[AddResult, list[bool]]:
        """Add, and tell for each entry whether it was taken."""
        return await self.add_reported(entries, seeds)

    async def commit_told(self, outcomes: Sequence[Outcome]) -> tuple[list[bool], list[list[bool]]]:
        """Commit, and tell for each outcome which of its entries were taken."""
        return await self.commit_reported(outcomes)

    async def take_turns(
        self,
        worker: str,
        slots: Sequence[str],
        limit: int,
        landed: Sequence[FetchReport],
        shares: QueueQuotas | None = None,
    ) -> TurnResult:
        """Lease, for each turn, the first request that waits in its slot, if the slot is ready."""
        leases = await self.lease_slots(worker, slots, limit, landed, shares)
        fates = [
            _FATES[answer] if isinstance(answer, SlotDecision) else answer for answer in leases.decisions
        ]
        return TurnResult(leases.result, fates, leases.more_ready)

    async def stranded(self, seconds: float) -> list[tuple[str, int]]:
        """List slots that have been ready for so long, and how many requests wait in each."""
        return await self.overdue_slots(seconds)
