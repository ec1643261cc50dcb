"""Reckoning: the small sums that every backend has to do in the same way."""

from __future__ import annotations

import random

from skitter.frontier.options import QueueOrder
from skitter.frontier.records import Lease
from skitter.item import OutputRange

LONGEST_WAIT = 0.1
"""Seconds after which a worker asks again at the latest: others may have found work meanwhile."""


def rank_of(order: QueueOrder, priority: int, sequence: int) -> int:
    """Return the number by which a slot's queue is sorted, low first, before the sequence number."""
    if order == "priority":
        return ~priority  # and not its negative: that of the lowest 64-bit integer has no place in 64 bits
    if order == "lifo":
        return -sequence
    return random.getrandbits(62) if order == "random" else 0


def wait_for(ready_at: float | None, delayed_until: float, now: float, leases: list[Lease]) -> float:
    """Return the seconds after which a worker does well to ask again."""
    soonest = min(now + LONGEST_WAIT, delayed_until)
    # Where nothing was handed out although a slot is ready, a pause or a limit is in the way, not time.
    if ready_at is not None and (leases or ready_at > now):
        soonest = min(soonest, ready_at)
    return max(0.0, soonest - now)


def extend_ranges(ranges: list[tuple[int, int]], mark: OutputRange) -> None:
    """Record a committed range; one that continues the last is joined to it."""
    if ranges and ranges[-1][1] == mark.start:
        ranges[-1] = (ranges[-1][0], mark.end)
    else:
        ranges.append((mark.start, mark.end))


def seconds_apart(lost: int) -> float:
    """Return how long a request waits that so many workers were lost with.

    Suspects spread out in time, so that the one that kills workers does not take the rest along.
    """
    return random.uniform(0.0, 2.0**lost) if lost > 1 else 0.0


def lost_too_often(lost: int) -> str:
    """Return the error of a request that is given up because so many workers were lost with it."""
    return f"lost: {lost} workers were lost with this request"
