"""Throughput: how fast a crawl is just now."""

from __future__ import annotations

from collections import deque

_WINDOW = 10.0
"""Seconds over which the present pace is taken."""


class Throughput:
    """Pages a second, over the last ten seconds."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, int]] = deque()

    def note(self, seconds: float, pages: int) -> float:
        """Take a reading of the pages so far and return the present pace."""
        readings = self._readings
        readings.append((seconds, pages))
        while len(readings) > 2 and readings[1][0] <= seconds - _WINDOW:
            readings.popleft()
        began, before = readings[0]
        return (pages - before) / (seconds - began) if seconds > began else 0.0
