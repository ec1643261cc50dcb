"""Small computations that every backend does in the same way."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from math import inf

from skitter.frontier.options import QueueOrder
from skitter.frontier.records import Lease
from skitter.item import OutputRange

MAX_WAIT = 0.1
"""Seconds after which a worker asks again at the latest, because other workers may have added requests."""


def rank_of(order: QueueOrder, priority: int, sequence: int) -> int:
    """Return the number by which the requests of a slot are sorted, low first, before the sequence number."""
    if order == "priority":
        return ~priority  # not the negative: that of the smallest 64-bit integer does not fit in 64 bits
    if order == "lifo":
        return -sequence
    return random.getrandbits(62) if order == "random" else 0


def wait_for(ready_at: float | None, delayed_until: float, now: float, leases: Sequence[Lease]) -> float:
    """Return the seconds after which a worker should ask again."""
    soonest = min(now + MAX_WAIT, delayed_until)
    # If nothing was leased although a slot is ready, the job waits for a pause or a limit and not for time to pass.
    if ready_at is not None and (leases or ready_at > now):
        soonest = min(soonest, ready_at)
    return max(0.0, soonest - now)


def time_left(until: float, now: float) -> float:
    """Return the seconds until a time; 0 if it has passed, or is infinite."""
    return max(0.0, until - now) if until < inf else 0.0


def extend_ranges(ranges: list[tuple[int, int]], written: OutputRange) -> None:
    """Add a committed range. It is joined to the last range if it continues it."""
    if ranges and ranges[-1][1] == written.start:
        ranges[-1] = (ranges[-1][0], written.end)
    else:
        ranges.append((written.start, written.end))


def retry_delay_after_loss(lost: int) -> float:
    """Return the seconds for which a request waits after it was lost with ``lost`` workers.

    The delays spread suspects over time, so that a request that crashes workers does not cost the others attempts.
    """
    return random.uniform(0.0, 2.0**lost) if lost > 1 else 0.0


def lost_error(lost: int) -> str:
    """Return the error of a request that becomes a dead letter because it was lost with ``lost`` workers."""
    workers = "1 worker was" if lost == 1 else f"{lost} workers were"
    return f"lost: {workers} lost with this request"


def steady_clock() -> Callable[[], float]:
    """Return a clock of Unix time that never jumps: it reads the wall clock once, then the monotonic clock."""
    offset = time.time() - time.monotonic()
    return lambda: offset + time.monotonic()
