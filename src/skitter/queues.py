"""Queues: the named queues of one job, and how a slot tells which of them it belongs to.

``docs/queues.md`` explains what a queue is. A slot of a queue is written ``QUEUE|SLOT``; a slot without a bar is one
of the default queue. No host name can hold a bar (WHATWG URL, forbidden host code points).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

DEFAULT_QUEUE = "default"
"""Name of the queue of all requests that name none."""

EVERY_OTHER = "*"
"""In :data:`QueueQuotas`: each queue that is not named."""

QueueQuotas = Mapping[str, int]
"""How many requests a worker takes of each queue at most. A queue that is neither named nor meant by
:data:`EVERY_OTHER` is not served."""

_BAR = "|"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

NAME_RULE = "a name of a queue has 1 to 64 letters, digits, dashes and underscores"


def is_queue_name(name: object) -> bool:
    """Tell whether a queue may be called so."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def slot_in(queue: str, slot: str) -> str:
    """Return the key of a slot in a queue. ``slot`` is the one of its host; an empty queue is the default one."""
    return slot if not queue or queue == DEFAULT_QUEUE else f"{queue}{_BAR}{slot}"


def queue_of(slot: str) -> str:
    """Return the queue that a slot belongs to."""
    queue, bar, _ = slot.partition(_BAR)
    return queue if bar else DEFAULT_QUEUE


def without_queue(slot: str) -> str:
    """Return the slot of the same host in the default queue."""
    return slot.rpartition(_BAR)[2]


def share_of(shares: QueueQuotas | None, queue: str, limit: int) -> int:
    """Return how many requests of a queue may be leased, of ``limit`` in all; ``None``: any number of any queue."""
    if shares is None:
        return limit
    share = shares.get(queue)
    return min(limit, shares.get(EVERY_OTHER, 0) if share is None else share)
