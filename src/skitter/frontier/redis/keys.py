"""Keys: what a job is called on the server. ``docs/redis-frontier.md`` has the table."""

from __future__ import annotations

from skitter.frontier.stats import StatsGroup

FORMAT_VERSION = "2"

_NAMES = (
    "job", "queue", "delayed", "ready", "slots", "busy", "grants", "leases", "deadlines", "granted", "seen",
    "dead", "counters", "outputs", "notes", "answers", "workers", "by_worker", "by_host", "by_task", "banned",
    "claimed", "outbox", "delivered", "ready_by_queue",
)  # fmt: skip
"""In the order in which the scripts expect them."""


def keys_of(tag: str) -> list[str]:
    """Return all keys under a hash tag: a job, or one part of it."""
    return [f"skitter:{{{tag}}}:{name}" for name in _NAMES]


def is_of_a_job(key: str) -> bool:
    """Tell whether a key is one of those, of whatever job."""
    head, _, name = key.rpartition("}:")
    return head.startswith("skitter:{") and name in _NAMES


JOB = _NAMES.index("job")
SLOTS = _NAMES.index("slots")
BANNED = _NAMES.index("banned")
TALLIES = {group: _NAMES.index(f"by_{group.value}") for group in StatsGroup}
