"""Counts per worker, per host (slot) and per request group.

An outcome is counted in the step that commits it, so that a rerun counts nothing twice. At most
``FrontierOptions.stats_max_keys`` keys of each kind are counted separately. Beyond that limit, the keys with the fewest
pages are added up under :data:`OTHERS`, so that the sum over all keys stays exact.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from skitter.frontier.records import Outcome, Resolution

OTHERS = ""
"""Key under which the smallest counts are added up."""


class StatsGroup(StrEnum):
    """The kinds of keys by which outcomes are counted."""

    WORKER = "worker"
    HOST = "host"
    """Slots: hosts that share their politeness are counted together."""
    TASK = "task"
    """Request groups: values of ``Outcome.group``."""


class StatsRow(msgspec.Struct, frozen=True):
    """The counts of one key."""

    key: str
    pages: int = 0
    items: int = 0
    bytes: int = 0
    """Size of the response bodies."""
    failed: int = 0
    """Dead letters, also those that were replayed since."""
    retried: int = 0
    """Failed attempts that were retried."""


def amounts_of(outcome: Outcome) -> tuple[int, ...]:
    """Return the amounts that an outcome adds, in the order of the fields of :class:`StatsRow`."""
    counters = outcome.counters
    return (
        counters.get("pages", 0),
        counters.get("items", 0),
        counters.get("bytes", 0),
        int(outcome.resolution is Resolution.FAILED),
        int(outcome.resolution is Resolution.RETRY and not outcome.free),
    )


StatsKey = tuple[str, str]
"""Group and key."""


class StatsTable:
    """The counts of one job in the memory of its owner."""

    def __init__(self, kept: int, *, keep_hosts: bool = False) -> None:
        """``keep_hosts``: never add up hosts, because their budgets need exact counts."""
        self._kept = max(2, kept)
        self._folded = [group.value for group in StatsGroup if not (keep_hosts and group is StatsGroup.HOST)]
        self._groups: dict[str, dict[str, list[int]]] = {group.value: {} for group in StatsGroup}

    def load(self, rows: Iterable[tuple[str, str, int, int, int, int, int]]) -> None:
        """Load the counts of earlier runs: group, key, amounts."""
        for group, key, *amounts in rows:
            self._groups[group][key] = list(amounts)

    def count(self, worker: str, slot: str, outcome: Outcome) -> list[StatsKey]:
        """Count an outcome. Return the keys that changed."""
        amounts = amounts_of(outcome)
        if not any(amounts):
            return []
        places = [(StatsGroup.WORKER.value, worker), (StatsGroup.HOST.value, slot)]
        if outcome.group:
            places.append((StatsGroup.TASK.value, outcome.group))
        for group, key in places:
            known = self._groups[group].get(key)
            if known is None:
                self._groups[group][key] = list(amounts)
            else:
                for index, amount in enumerate(amounts):
                    known[index] += amount
        return places

    def fold(self) -> list[StatsKey]:
        """Add up the smaller half of a group that is too large. Return the removed keys."""
        gone: list[StatsKey] = []
        for group in self._folded:
            known = self._groups[group]
            if len(known) > self._kept:
                gone += [(group, key) for key in self._fold(known)]
        return gone

    def _fold(self, known: dict[str, list[int]]) -> list[str]:
        others = known.setdefault(OTHERS, [0] * 5)
        keys = sorted((key for key in known if key != OTHERS), key=lambda key: known[key][0])
        folded = keys[: len(known) - self._kept // 2]
        for key in folded:
            for index, amount in enumerate(known.pop(key)):
                others[index] += amount
        return folded

    def used(self, slot: str) -> tuple[int, int]:
        """Return the pages and bytes of a slot."""
        amounts = self._groups[StatsGroup.HOST.value].get(slot)
        return (0, 0) if amounts is None else (amounts[0], amounts[2])

    def row(self, place: StatsKey) -> tuple[str | int, ...] | None:
        """Return group, key and amounts of a key; ``None`` if it was added to the others."""
        group, key = place
        amounts = self._groups[group].get(key)
        return None if amounts is None else (group, key, *amounts)

    def read(self, group: StatsGroup, limit: int) -> list[StatsRow]:
        """Return the counts of a group, most pages first, :data:`OTHERS` last."""
        return in_order(
            (StatsRow(key, *amounts) for key, amounts in self._groups[group.value].items()), limit
        )


def in_order(rows: Iterable[StatsRow], limit: int) -> list[StatsRow]:
    """Sort counts: most pages first, then by key; :data:`OTHERS` last."""
    return sorted(rows, key=lambda row: (row.key == OTHERS, -row.pages, -row.items, row.key))[:limit]
