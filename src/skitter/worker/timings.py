"""Histograms of times, stored as counters of pages, and the current speed. Spans of traces report the same times.

Like all counters, they are committed with their page, so they never decrease and count nothing twice.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the buckets in seconds. One more bucket has no bound."""


class Histogram:
    """The counters of one histogram: ``time/NAME/BUCKET`` (index of the bucket) and ``time/NAME/us`` (sum in microseconds)."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._buckets = [f"time/{name}/{index}" for index in range(len(BOUNDS) + 1)]
        self._sum = f"time/{name}/us"

    def observe(self, counters: dict[str, int], seconds: float) -> None:
        """Count a time. The counters must not have a time of this histogram yet: a page has at most one."""
        counters[self._buckets[bisect_left(BOUNDS, seconds)]] = 1
        if seconds:  # most waits take no time
            counters[self._sum] = int(seconds * 1e6)

    def read(self, counters: Mapping[str, int]) -> list[int]:
        """Return the number of times in each bucket."""
        return [counters.get(name, 0) for name in self._buckets]

    def seconds(self, counters: Mapping[str, int]) -> float:
        """Return the sum of the times in seconds."""
        return counters.get(self._sum, 0) / 1e6


def quantile(buckets: Sequence[int], share: float) -> float | None:
    """Return a quantile in seconds; ``None`` if there are no times. ``share``: from 0 to 1.

    Computed like Prometheus' ``histogram_quantile``: linear within a bucket, and at most the last bound.
    """
    rank = share * sum(buckets)
    if not rank:
        return None
    before = 0
    for (lower, upper), count in zip(pairwise((0.0, *BOUNDS)), buckets, strict=False):
        if before + count >= rank:
            return lower + (upper - lower) * (rank - before) / count
        before += count
    return BOUNDS[-1]


WAIT = Histogram("wait")
"""Time before each fetch for which the worker had capacity, but politeness allowed no fetch."""
FETCH = Histogram("fetch")
"""Time to the first byte of a response."""
CALLBACK = Histogram("callback")
"""Time that a callback took to yield its results."""
STORE = Histogram("store")
"""Time that it took to write the items of a page, together with those of other pages in the batch."""
COMMIT = Histogram("commit")
"""Time of a commit of one or more pages. It is counted with the next commit of the worker."""


_WINDOW = 10.0
"""Length of the measured interval in seconds."""


class Throughput:
    """Number of pages per second during the last ten seconds."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, int]] = deque()

    def record(self, seconds: float, pages: int) -> float:
        """Record the current number of pages, and return the current speed."""
        readings = self._readings
        readings.append((seconds, pages))
        while len(readings) > 2 and readings[1][0] <= seconds - _WINDOW:
            readings.popleft()
        began, before = readings[0]
        return (pages - before) / (seconds - began) if seconds > began else 0.0
