"""Budget: the limits of a job over all its partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from skitter.frontier.base import Limits
from skitter.frontier.partitions.base import Pulse


class Budget:
    """What is left of a job's limits, as read from all partitions.

    Two workers that read at the same time may both take what is left, so that a limit of pages can be passed by what
    workers take within one reading. It is never missed.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.is_needed = limits != Limits()

    def reached(self, pulses: Sequence[Pulse]) -> str:
        """Name the limit that is reached; empty if none is."""
        return self._limits.reached(_sum(pulses), sum(pulse.failed for pulse in pulses))

    def room(self, pulses: Sequence[Pulse], wanted: int) -> int:
        """Return how many requests may be leased."""
        return self._limits.room(_sum(pulses), sum(pulse.leased for pulse in pulses), wanted)


def _sum(pulses: Sequence[Pulse]) -> Counter[str]:
    total: Counter[str] = Counter()
    for pulse in pulses:
        total.update(pulse.counters)
    return total
