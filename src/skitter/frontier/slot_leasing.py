"""Leases of named slots: what a frontier offers besides the contract so that a message broker can decide the order.

The state behind a broker frontier implements :class:`SlotLeasing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Protocol

import msgspec

from skitter.frontier.contract import Frontier
from skitter.frontier.records import AddResult, Entry, FetchReport, LeaseResult, Outcome, SeedProgress
from skitter.queues import QueueQuotas


class SlotAnswer(Enum):
    """The answer to the offer of one slot, if it is not the time until the slot is ready."""

    LEASED = "leased"
    LATER = "later"
    """No request waits in the slot, but a leased or delayed request may return to it."""
    EMPTY = "empty"
    """No request waits in the slot, and none can return to it."""


class SlotLeases(msgspec.Struct, frozen=True):
    """Answer to an offer of slots."""

    result: LeaseResult
    answers: list[SlotAnswer | float]
    """One for each offered slot, in order. A number: seconds until the slot is ready; 0 if it has no free place."""
    has_more: bool
    """Whether more requests could be leased now if their slots were offered."""


class SlotLeasing(Frontier, Protocol):
    """A frontier that leases from named slots, and reports which entries it accepted."""

    async def add_reported(
        self, entries: Sequence[Entry], seeds: SeedProgress | None = None
    ) -> tuple[AddResult, list[bool]]:
        """Add as :meth:`Frontier.add`. Return also, for each entry, whether it was new and was accepted."""
        ...

    async def commit_reported(self, outcomes: Sequence[Outcome]) -> tuple[list[bool], list[list[bool]]]:
        """Commit as :meth:`Frontier.commit`. Return also, for each outcome, which of its entries were accepted."""
        ...

    async def lease_slots(
        self,
        worker: str,
        slots: Sequence[str],
        limit: int,
        reports: Sequence[FetchReport] = (),
        quotas: QueueQuotas | None = None,
    ) -> SlotLeases:
        """Lease at most ``limit`` requests: for each offered slot, in order, its first waiting request if it is ready.

        A slot that is offered twice may yield two requests. ``quotas``: the queues to which ``has_more`` refers;
        ``None``: all.
        """
        ...

    async def stranded_slots(self, seconds: float) -> list[tuple[str, int]]:
        """List slots that have been ready for at least ``seconds``, each with its number of waiting requests."""
        ...


def split_report(
    outcomes: Sequence[Outcome], accepted: Sequence[bool], report: Sequence[bool]
) -> list[list[bool]]:
    """Split the report of one commit by outcome. It covers the entries of accepted outcomes only."""
    left = iter(report)
    return [
        [is_accepted and next(left) for _ in outcome.entries]
        for outcome, is_accepted in zip(outcomes, accepted, strict=True)
    ]
