"""The budgets of slots in an embedded frontier: what each slot has used, and which requests it refuses.

What a slot has used is in the statistics of hosts, which a commit changes in the same step as everything else.
``docs/design/traps.md`` explains the design.
"""

from __future__ import annotations

from collections import Counter

from skitter.frontier.embedded.scheduler import Slot, SlotScheduler
from skitter.frontier.options import SlotBudgets
from skitter.frontier.stats import StatsTable


class SlotUsage:
    """What the slots of one job have used of their budgets."""

    def __init__(self, budgets: SlotBudgets, stats: StatsTable) -> None:
        self._budgets = budgets
        self._stats = stats
        self.is_limited = budgets.are_set
        self.delayed: Counter[int] = Counter()
        """Number of delayed requests by slot number."""

    def pages_left(self, slot: str) -> float:
        """Return how many more pages a slot may have."""
        return self._budgets.pages_left(self._stats.used(slot)[0])

    def spent(self, slot: str) -> str:
        """Return the counter of requests that a used up slot refuses; empty if it is not used up."""
        return self._budgets.spent(*self._stats.used(slot)) if self._budgets.limits_use else ""

    def is_full(self, slot: Slot, number: int) -> bool:
        """Return whether a slot accepts no further links."""
        return self._budgets.is_full(slot.queued + slot.leased + self.delayed[number])

    def update(self, slot: Slot, slots: SlotScheduler) -> None:
        """Apply the budget to a slot after one of its leases has ended."""
        slot.pages_left = self.pages_left(slot.key)
        slots.reschedule(slot)
