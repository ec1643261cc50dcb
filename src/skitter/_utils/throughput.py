"""Throughput: measures the current speed of a crawl."""

from __future__ import annotations

from collections import deque

_WINDOW = 10.0
"""Length in seconds of the interval that is measured."""


class Throughput:
    """Number of pages per second during the last ten seconds."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, int]] = deque()

    def note(self, seconds: float, pages: int) -> float:
        """Record the current number of pages, and return the current speed."""
        readings = self._readings
        readings.append((seconds, pages))
        while len(readings) > 2 and readings[1][0] <= seconds - _WINDOW:
            readings.popleft()
        began, before = readings[0]
        return (pages - before) / (seconds - began) if seconds > began else 0.0
