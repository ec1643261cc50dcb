"""Budget: the limits of a job over all its partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from skitter.frontier.cluster.partition import PartitionStatus
from skitter.frontier.options import CrawlLimits, FrontierOptions


class Budget:
    """What is left of a job's limits, as read from all partitions.

    Two workers that read at the same time may both take what is left, so that a limit of pages can be passed by what
    workers take within one reading. It is never missed.
    """

    def __init__(self, options: FrontierOptions) -> None:
        self._options = options
        self.is_needed = options.limits != CrawlLimits()
        self.bounds_queue = options.max_queued is not None

    def reached(self, pulses: Sequence[PartitionStatus]) -> str:
        """Name the limit that is reached; empty if none is."""
        return self._options.limits.reached(_counters(pulses), sum(pulse.failed for pulse in pulses))

    def may_lease(self, pulses: Sequence[PartitionStatus], wanted: int) -> int:
        """Return how many requests may be leased."""
        return self._options.limits.remaining(
            _counters(pulses), sum(pulse.leased for pulse in pulses), wanted
        )

    def capacity(self, pulses: Sequence[PartitionStatus]) -> int | None:
        """Return how many new requests may be sent; ``None``: any number."""
        queued, delayed, leased = (
            sum(getattr(pulse, name) for pulse in pulses) for name in ("queued", "delayed", "leased")
        )
        return self._options.capacity(queued, delayed, leased, _counters(pulses))


def _counters(pulses: Sequence[PartitionStatus]) -> Counter[str]:
    total: Counter[str] = Counter()
    for pulse in pulses:
        total.update(pulse.counters)
    return total
