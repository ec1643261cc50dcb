"""Transitional: what both states share until the frontiers have the methods themselves."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextvars import ContextVar

from skitter.frontier.contract import Frontier
from skitter.frontier.records import AddResult, Entry, Outcome, SeedProgress, SlotDecision


class Turns:
    """Turns of one call while a frontier's own ``lease`` is at work on them."""

    def __init__(self, slots: Sequence[str]) -> None:
        self.slots = slots
        self.fates: list[SlotDecision | float] = [SlotDecision.LATER] * len(slots)
        self.starving = False
        self.next = 0
        """The first turn that was not tried since the last look from the beginning."""

    def open_places(self) -> list[int]:
        """Return the places of the turns that were not granted."""
        return [place for place, fate in enumerate(self.fates) if fate is not SlotDecision.LEASED]


current_turns: ContextVar[Turns | None] = ContextVar("current_turns", default=None)
"""Turns that the lease in progress is limited to."""
current_told: ContextVar[list[bool] | None] = ContextVar("current_told", default=None)
"""Where the call in progress notes which entries were taken."""


class Telling:
    """What states have in common: whatever they add meanwhile notes in :data:`current_told` what it has taken."""

    async def add_reported(
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

    async def commit_reported(
        self: Frontier, outcomes: Sequence[Outcome]
    ) -> tuple[list[bool], list[list[bool]]]:
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
