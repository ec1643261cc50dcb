"""Queue state: the state of a job as the broker frontier of one of its queues sees it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from skitter.brokers.state import StateFrontier, TurnResult
from skitter.frontier.records import AddResult, Entry, FetchReport, JobInfo, Outcome, SeedProgress
from skitter.queues import queue_of


class QueueState:
    """One queue of a state that somebody else opens and closes.

    What is added to other queues is given to ``publish``, and passes here for not taken: its messages belong to
    other topics. That is before the answer, so that the message of a parent outlives those of its children.
    """

    def __init__(
        self,
        state: StateFrontier,
        queue: str,
        info: JobInfo,
        publish: Callable[[Sequence[Entry]], Awaitable[None]],
    ) -> None:
        self._state = state
        self._queue = queue
        self._info = info
        self._publish = publish

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)

    async def open(self) -> JobInfo:
        """Return what was learnt when the state was opened."""
        return self._info

    async def close(self) -> None:
        """Leave the state open."""

    async def add_told(
        self, entries: Sequence[Entry], seeds: SeedProgress | None = None
    ) -> tuple[AddResult, list[bool]]:
        """Add, and tell for each entry whether it was taken into this queue."""
        result, told = await self._state.add_told(entries, seeds)
        (mask,) = await self._pass_on([entries], [told])
        return result, mask

    async def commit_told(self, outcomes: Sequence[Outcome]) -> tuple[list[bool], list[list[bool]]]:
        """Commit, and tell for each outcome which of its entries were taken into this queue."""
        accepted, told = await self._state.commit_told(outcomes)
        return accepted, await self._pass_on([outcome.entries for outcome in outcomes], told)

    async def _pass_on(
        self, groups: Sequence[Sequence[Entry]], told: Sequence[Sequence[bool]]
    ) -> list[list[bool]]:
        masks: list[list[bool]] = []
        others: list[Entry] = []
        for entries, taken in zip(groups, told, strict=True):
            own = [queue_of(entry.slot) == self._queue for entry in entries]
            masks.append([is_own and is_taken for is_own, is_taken in zip(own, taken, strict=True)])
            others += [
                entry
                for entry, is_own, is_taken in zip(entries, own, taken, strict=True)
                if is_taken and not is_own
            ]
        if others:
            await self._publish(others)
        return masks

    async def take_turns(
        self, worker: str, slots: Sequence[str], limit: int, landed: Sequence[FetchReport]
    ) -> TurnResult:
        """Lease, for each turn, the first request that waits in its slot, if the slot is ready."""
        return await self._state.take_turns(worker, slots, limit, landed, {self._queue: limit})

    async def stranded(self, seconds: float) -> list[tuple[str, int]]:
        """List slots of this queue that have been ready for so long, and how many requests wait in each."""
        found = await self._state.stranded(seconds)
        return [(slot, count) for slot, count in found if queue_of(slot) == self._queue]
