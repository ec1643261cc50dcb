"""StatsRow: what was counted per worker, per host (slot) and per task of the user.

Counted in the step that commits an outcome, so that a rerun counts nothing twice. Bounded: of each group so
many keys are kept by themselves (``FrontierOptions.stats_max_keys``); beyond that those with the fewest pages
are added up under :data:`OTHERS`, so that the sum over a group stays exact.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from skitter.frontier.records import Outcome, Resolution

OTHERS = ""
"""Key under which the smallest are added up."""


class StatsGroup(StrEnum):
    """By what is counted."""

    WORKER = "worker"
    HOST = "host"
    """Slots, to be exact: what shares its politeness is counted together."""
    TASK = "task"
    """Values of ``Outcome.group``."""


class StatsRow(msgspec.Struct, frozen=True):
    """What was counted under one key."""

    key: str
    pages: int = 0
    items: int = 0
    bytes: int = 0
    """Of bodies."""
    failed: int = 0
    """Dead letters; one that is tried again later stays counted here."""
    retried: int = 0
    """Attempts that failed and were tried again."""


def amounts_of(outcome: Outcome) -> tuple[int, ...]:
    """Return what an outcome adds to a tally, in the order of the fields of :class:`StatsRow`."""
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
    """The tallies of one job in the memory of its owner. Shared by the embedded frontiers."""

    def __init__(self, kept: int) -> None:
        self._kept = max(2, kept)
        self._groups: dict[str, dict[str, list[int]]] = {group.value: {} for group in StatsGroup}

    def load(self, rows: Iterable[tuple[str, str, int, int, int, int, int]]) -> None:
        """Take over what an earlier life has counted: group, key, amounts."""
        for group, key, *amounts in rows:
            self._groups[group][key] = list(amounts)

    def count(self, worker: str, slot: str, outcome: Outcome) -> list[StatsKey]:
        """Count an outcome; returns what has changed."""
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
        """Add up the smaller half of a group that has grown too large; returns what is gone."""
        gone: list[StatsKey] = []
        for group, known in self._groups.items():
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

    def row(self, place: StatsKey) -> tuple[str | int, ...] | None:
        """Return group, key and amounts of a place; ``None`` if it was folded."""
        group, key = place
        amounts = self._groups[group].get(key)
        return None if amounts is None else (group, key, *amounts)

    def read(self, group: StatsGroup, limit: int) -> list[StatsRow]:
        """Return the tallies of a group, those with the most pages first, :data:`OTHERS` last."""
        return in_order(
            (StatsRow(key, *amounts) for key, amounts in self._groups[group.value].items()), limit
        )


def in_order(tallies: Iterable[StatsRow], limit: int) -> list[StatsRow]:
    """Return tallies as they are read: the most pages first, then by key; :data:`OTHERS` last."""
    return sorted(tallies, key=lambda tally: (tally.key == OTHERS, -tally.pages, -tally.items, tally.key))[
        :limit
    ]
