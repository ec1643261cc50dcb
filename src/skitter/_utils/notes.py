"""The protocol of shared notes, for packages that may not import the frontier."""

from typing import Protocol

OPENED_NETWORKS = "skitter:opened-networks"
"""Key of the note with the networks that seeds have allowed."""
WRITTEN = "skitter:written"
"""Key of the note with the end positions of the parts that were written to outputs."""
WRITERS = "skitter:writers"
"""Key of the note with the machines that will still write their items."""
STOP_REASON = "skitter:stop-reason"
"""Key of the note with the reason why a callback or a hook has stopped the job."""
BLOCKED = "skitter:blocked"
"""Key of the note with the sessions and proxies that callbacks have reported as blocked."""
LAST_REPLAY = "skitter:last-replay"
"""Key of the note with a random value that changes when a run retries all dead letters at its end."""
RETRY_DUE = "skitter:retry-due"
"""Key of the note that is not empty while a run still has to retry all dead letters at its end."""
SPIDER = "skitter:spider"
"""Key of the note with the name of the spider that has run the job last."""
DECISIVE = frozenset({LAST_REPLAY, RETRY_DUE, OPENED_NETWORKS, WRITTEN, WRITERS})
"""Keys of notes that the behaviour of the job depends on. Other notes only save work."""
NOTE_TTL = 10 * 365 * 86_400.0
"""Lifetime of notes that must not expire before their job is erased, in seconds."""


class Notes(Protocol):
    """Small values that the workers of a job share, such as the robots.txt of a host."""

    async def get(self, key: str) -> bytes | None:
        """Return a note, or ``None`` if it does not exist or has expired."""

    async def put(self, key: str, value: bytes, ttl: float) -> None:
        """Store a note for ``ttl`` seconds."""

    async def compare_and_swap(self, key: str, old: bytes | None, new: bytes, ttl: float) -> bool:
        """Atomically replace a note if its value is ``old`` (``None``: it does not exist). It is kept for ``ttl`` seconds.

        Return ``False`` if the value is a different one: read it and try again. If a call was repeated because its
        reply was lost, the different value may be the caller's own.
        """
