"""The state frontier: what a frontier must offer, besides the contract, to stand behind a broker."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextvars import ContextVar
from enum import Enum
from typing import Any, Protocol

import msgspec

from skitter.frontier.contract import DeadLetters, Frontier
from skitter.frontier.records import AddResult, Entry, FetchReport, LeaseResult, Outcome, SeedProgress
from skitter.queues import QueueQuotas


class Fate(Enum):
    """What becomes of a turn that need not come again after a known time."""

    GRANTED = "granted"
    LATER = "later"
    """Nothing waits in the slot now, but something on lease or delayed may come back to it."""
    GONE = "gone"
    """Nothing is left that the turn could be for."""


class TurnResult(msgspec.Struct, frozen=True):
    """What became of turns that were asked for."""

    result: LeaseResult
    fates: list[Fate | float]
    """For each turn, in order; a number: seconds until the slot is ready. 0: it has no place free."""
    starving: bool
    """More could be leased now, if a turn for it were offered."""


class StateFrontier(Frontier, Protocol):
    """A frontier that leases by turns, and tells what it has taken."""

    async def add_told(
        self, entries: Sequence[Entry], seeds: SeedProgress | None = None
    ) -> tuple[AddResult, list[bool]]:
        """Add, and tell for each entry whether it was taken."""
        ...

    async def commit_told(self, outcomes: Sequence[Outcome]) -> tuple[list[bool], list[list[bool]]]:
        """Commit, and tell for each outcome which of its entries were taken."""
        ...

    async def take_turns(
        self,
        worker: str,
        slots: Sequence[str],
        limit: int,
        landed: Sequence[FetchReport],
        shares: QueueQuotas | None = None,
    ) -> TurnResult:
        """Lease, for each turn, the first request that waits in its slot, if the slot is ready.

        ``shares``: the queues of which the answer is to tell when more may be leased; ``None``: all.
        """
        ...

    async def stranded(self, seconds: float) -> list[tuple[str, int]]:
        """List slots that have been ready for so many seconds, and how many requests wait in each."""
        ...


class Turns:
    """Turns of one call while a frontier's own ``lease`` is at work on them."""

    def __init__(self, slots: Sequence[str]) -> None:
        self.slots = slots
        self.fates: list[Fate | float] = [Fate.LATER] * len(slots)
        self.starving = False
        self.next = 0
        """The first turn that was not tried since the last look from the beginning."""

    def open_places(self) -> list[int]:
        """Return the places of the turns that were not granted."""
        return [place for place, fate in enumerate(self.fates) if fate is not Fate.GRANTED]


current_turns: ContextVar[Turns | None] = ContextVar("current_turns", default=None)
"""Turns that the lease in progress is limited to."""
current_told: ContextVar[list[bool] | None] = ContextVar("current_told", default=None)
"""Where the call in progress notes which entries were taken."""


class Telling:
    """What states have in common: whatever they add meanwhile notes in :data:`current_told` what it has taken."""

    async def add_told(
        self: Frontier, entries: Sequence[Entry], seeds: SeedProgress | None = None
    ) -> tuple[AddResult, list[bool]]:
        """Add, and tell for each entry whether it was taken."""
        told: list[bool] = []
        token = current_told.set(told)
        try:
            result = await self.add(entries, seeds)
        finally:
            current_told.reset(token)
        return result, told or [False] * len(entries)

    async def commit_told(self: Frontier, outcomes: Sequence[Outcome]) -> tuple[list[bool], list[list[bool]]]:
        """Commit, and tell for each outcome which of its entries were taken."""
        told: list[bool] = []
        token = current_told.set(told)
        try:
            accepted = await self.commit(outcomes)
        finally:
            current_told.reset(token)
        return accepted, _masks_of(outcomes, accepted, told)


def _masks_of(
    outcomes: Sequence[Outcome], accepted: Sequence[bool], told: Sequence[bool]
) -> list[list[bool]]:
    """Share out what was told among the outcomes: a refused outcome has no entries taken."""
    left = deque(told)
    return [
        [left.popleft() if taken else False for _ in outcome.entries]
        for outcome, taken in zip(outcomes, accepted, strict=True)
    ]


class _DeadLetters:
    """Those of the state, replayed through the broker."""

    def __init__(self, frontier: Any, letters: DeadLetters) -> None:
        self._frontier = frontier
        self._letters = letters
        self.list, self.drop = letters.list, letters.drop

    async def replay(self, ids: Sequence[int] | None = None) -> int:
        """Put dead letters back in the queue."""
        count: int = await self._frontier.replay(ids)
        return count


class OverState:
    """A frontier over a state: whatever stands not in it is the state's own."""

    _state: StateFrontier
    partitions = None

    @property
    def dead_letters(self) -> Any:
        """Those of the state, replayed through the broker."""
        return _DeadLetters(self, self._state.dead_letters)

    @property
    def control(self) -> Any:
        """That of the state."""
        return self._state.control

    @property
    def notes(self) -> Any:
        """Those of the state."""
        return self._state.notes

    @property
    def reports(self) -> Any:
        """Those of the state."""
        return self._state.reports

    @property
    def shared(self) -> bool:
        """Whether every process opens it by its URL: as its state."""
        return self._state.shared

    @property
    def seed_keys(self) -> Any:
        """Those of the state."""
        return self._state.seed_keys

    @property
    def catalog(self) -> Any:
        """That of the state."""
        return self._state.catalog

    @property
    def politeness(self) -> Any:
        """Those of the state."""
        return self._state.politeness

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)
