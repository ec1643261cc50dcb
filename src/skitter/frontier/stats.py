"""Counts per worker, per host (slot) and per request group.

An outcome is counted in the step that commits it, so that a rerun counts nothing twice. At most
``FrontierSettings.stats_max_keys`` keys of each kind are counted separately. Beyond that limit, the keys with the fewest
pages and dead letters are added up under :data:`OTHERS`, so that the sum over all keys stays exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from operator import add
from typing import Any

import msgspec

from skitter.frontier.records import Outcome, Resolution

OTHERS = ""
"""Key under which the smallest counts are added up."""
FETCH_TIME = "time/fetch/us"
"""Counter with the time to the first byte of a response, in microseconds (:mod:`skitter.worker.timings`)."""


class StatsDimension(StrEnum):
    """What outcomes are counted by."""

    WORKER = "worker"
    HOST = "host"
    """Slots: hosts that share their politeness are counted together."""
    GROUP = "group"
    """Request groups: values of ``Outcome.group``."""


class StatsRow(msgspec.Struct, frozen=True):
    """The counts of one key."""

    key: str
    pages: int = 0
    items: int = 0
    bytes: int = 0
    """Size of the response bodies."""
    failed: int = 0
    """Dead letters, including those that were replayed since."""
    retried: int = 0
    """Failed attempts that were retried."""
    responses: int = 0
    """Responses whose time was measured, of all statuses."""
    fetch_us: int = 0
    """Sum of their times to the first byte, in microseconds."""

    @property
    def fetch_time(self) -> float | None:
        """Mean time to the first byte of a response in seconds; ``None`` if none was measured."""
        return self.fetch_us / self.responses / 1e6 if self.responses else None


_WORKER, _HOST, _GROUP = (dimension.value for dimension in StatsDimension)
"""The members themselves are slow to look up, and outcomes are many."""
_FAILED, _RETRY = Resolution.FAILED, Resolution.RETRY
_WIDTH = len(StatsRow.__struct_fields__) - 1


def amounts_of(outcomes: Sequence[Outcome], counters: Mapping[str, int]) -> tuple[int, ...]:
    """Return the amounts that outcomes add, in the order of the fields of :class:`StatsRow`.

    ``counters``: the sum of their counters.
    """
    return (
        counters.get("pages", 0),
        counters.get("items", 0),
        counters.get("bytes", 0),
        sum([outcome.resolution is _FAILED for outcome in outcomes]),
        sum([outcome.resolution is _RETRY and not outcome.free for outcome in outcomes]),
        sum([FETCH_TIME in outcome.counters for outcome in outcomes]),
        counters.get(FETCH_TIME, 0),
    )


StatsKey = tuple[str, str]
"""Dimension and key."""
OutcomeOrigin = tuple[str, str, str]
"""Worker, slot and request group of an outcome: the keys under which it is counted."""


class StatsTable:
    """The counts of one job in the memory of its owner."""

    def __init__(self, kept: int, *, keep_hosts: bool = False) -> None:
        """``keep_hosts``: never add up hosts, because their budgets need exact counts."""
        self._kept = max(2, kept)
        self._folded = [
            dimension.value
            for dimension in StatsDimension
            if not (keep_hosts and dimension is StatsDimension.HOST)
        ]
        self._counts: dict[str, dict[str, list[int]]] = {dimension.value: {} for dimension in StatsDimension}

    def load(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Load the counts of earlier runs: dimension, key, amounts."""
        for dimension, key, *amounts in rows:
            self._counts[dimension][key] = list(amounts)

    def count(self, origin: OutcomeOrigin, amounts: Sequence[int]) -> list[StatsKey]:
        """Add the amounts of outcomes. Return the keys that changed."""
        if not any(amounts):
            return []
        worker, slot, group = origin
        places = [(_WORKER, worker), (_HOST, slot)]
        if group:
            places.append((_GROUP, group))
        for dimension, key in places:
            kept = self._counts[dimension]
            counts = kept.get(key)
            kept[key] = list(amounts if counts is None else map(add, counts, amounts))
        return places

    def fold(self) -> list[StatsKey]:
        """Add up the smaller half of a dimension that is too large. Return the removed keys."""
        gone: list[StatsKey] = []
        for dimension in self._folded:
            counts = self._counts[dimension]
            if len(counts) > self._kept:
                gone += [(dimension, key) for key in self._fold(counts)]
        return gone

    def _fold(self, counts: dict[str, list[int]]) -> list[str]:
        others = counts.setdefault(OTHERS, [0] * _WIDTH)
        keys = sorted(
            (key for key in counts if key != OTHERS), key=lambda key: counts[key][0] + counts[key][3]
        )
        folded = keys[: len(counts) - self._kept // 2]
        for key in folded:
            for index, amount in enumerate(counts.pop(key)):
                others[index] += amount
        return folded

    def used(self, slot: str) -> tuple[int, int]:
        """Return the pages and bytes of a slot."""
        amounts = self._counts[_HOST].get(slot)
        return (0, 0) if amounts is None else (amounts[0], amounts[2])

    def row(self, place: StatsKey) -> tuple[str | int, ...] | None:
        """Return dimension, key and amounts of a key; ``None`` if it was added to the others."""
        dimension, key = place
        amounts = self._counts[dimension].get(key)
        return None if amounts is None else (dimension, key, *amounts)

    def read(self, dimension: StatsDimension, limit: int) -> list[StatsRow]:
        """Return the counts of a dimension, most pages first, :data:`OTHERS` last."""
        return in_order(
            (StatsRow(key, *amounts) for key, amounts in self._counts[dimension.value].items()), limit
        )


def in_order(rows: Iterable[StatsRow], limit: int) -> list[StatsRow]:
    """Sort counts: most pages first, then by key; :data:`OTHERS` last."""
    return sorted(rows, key=lambda row: (row.key == OTHERS, -row.pages, -row.items, row.key))[:limit]
