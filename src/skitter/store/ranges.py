"""RangeSet: which bytes of a file have been dealt with."""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class RangeSet:
    """A set of byte positions, kept as few disjoint ranges: neighbours grow together."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> list[tuple[int, int]]:
        """Add ``start <= position < end``; returns the ranges of it that were not in the set."""
        if start >= end:
            return []
        first = bisect_left(self._ends, start)
        last = bisect_right(self._starts, end)
        gaps: list[tuple[int, int]] = []
        position = start
        for known_start, known_end in zip(self._starts[first:last], self._ends[first:last], strict=True):
            if position < known_start:
                gaps.append((position, known_start))
            position = max(position, known_end)
        if position < end:
            gaps.append((position, end))
        if first < last:
            start = min(start, self._starts[first])
            end = max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]
        return gaps
