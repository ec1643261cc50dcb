"""Keys: what a job is called on the server. ``docs/redis-frontier.md`` has the table."""

from __future__ import annotations

FORMAT_VERSION = "1"

_NAMES = (
    "job", "queue", "delayed", "ready", "slots", "busy", "grants", "leases", "deadlines", "granted", "seen",
    "dead", "counters", "outputs", "notes", "answers",
)  # fmt: skip
"""In the order in which the scripts expect them."""


def keys_of(tag: str) -> list[str]:
    """Return all keys under a hash tag: a job, or one part of it."""
    return [f"skitter:{{{tag}}}:{name}" for name in _NAMES]


SLOTS = _NAMES.index("slots")
