"""Queues: the named queues of one job, and the slot keys that contain their names.

``docs/guides/queues.md`` describes queues. The key of a slot is ``QUEUE|SLOT``; a key without a bar belongs to the default
queue. A host name cannot contain a bar (WHATWG URL, forbidden host code points).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

DEFAULT_QUEUE = "default"
"""Name of the queue of all requests without a queue name."""

EVERY_OTHER = "*"
"""Key in :data:`QueueQuotas` for every queue that is not named."""

QueueQuotas = Mapping[str, int]
"""Maximum number of requests that a worker takes from each queue. A queue without an entry is not served, unless
:data:`EVERY_OTHER` has an entry."""

BAR = "|"
"""Separates the queue from the slot in a slot key."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

NAME_RULE = "use 1 to 64 letters, digits, dashes and underscores"


def is_queue_name(name: object) -> bool:
    """Return whether a text is a valid name of a queue."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def slot_in(queue: str, slot: str) -> str:
    """Return the key of a slot in a queue. ``slot`` is the key of its host; an empty queue is the default queue."""
    return slot if not queue or queue == DEFAULT_QUEUE else f"{queue}{BAR}{slot}"


def queue_of(slot: str) -> str:
    """Return the queue of a slot."""
    queue, bar, _ = slot.partition(BAR)
    return queue if bar else DEFAULT_QUEUE


def without_queue(slot: str) -> str:
    """Return the slot of the same host in the default queue."""
    return slot.rpartition(BAR)[2]


def quota_of(quotas: QueueQuotas | None, queue: str, limit: int) -> int:
    """Return the maximum number of leases of one queue, for ``limit`` leases in total. ``quotas``: ``None`` sets no limit per queue."""
    return limit if quotas is None else min(limit, quotas.get(queue, quotas.get(EVERY_OTHER, 0)))
