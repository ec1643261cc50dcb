"""The storage of a service: one key-value store and one append-only log, each for SQLite and for Valkey or Redis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

ENTRY_OVERHEAD = 64
"""Approximate size of an entry in addition to its data, in bytes. It counts towards the maximum size of a log."""


class KeyValueStore(Protocol):
    """What the nodes of a service share: records, leases of duties, and the statuses of live nodes.

    A record is a sequence of bytes, stored under a kind and a name. Records change only by :meth:`compare_and_swap`, so a
    change that two nodes make at the same time is made only once, without a leader.

    Every method raises :class:`~skitter.errors.FrontierError` if the store is unavailable or damaged.
    """

    async def open(self) -> None:
        """Connect to the store, or create it."""

    async def close(self) -> None:
        """Disconnect."""

    async def get(self, kind: str, name: str) -> bytes | None:
        """Return a record, or ``None`` if it does not exist."""

    async def size(self, kind: str, name: str) -> int:
        """Return the length of a record in bytes, without reading it; 0 if it does not exist."""

    async def all(self, kind: str) -> dict[str, bytes]:
        """Return all records of a kind, sorted by name."""

    async def compare_and_swap(self, kind: str, name: str, old: bytes | None, new: bytes | None) -> bool:
        """Atomically replace a record by ``new`` if it equals ``old``. ``None`` means that the record does not exist.

        Returns ``True`` as well if the record equals ``new`` already, so a call whose reply was lost can be repeated.
        """

    async def acquire_lease(self, duty: str, owner: str, seconds: float) -> bool:
        """Acquire or renew the lease of a duty. Return ``False`` if another owner holds it."""

    async def announce(self, node: str, status: bytes, seconds: float) -> None:
        """Publish the status of a node. It expires after ``seconds``; 0 removes the node."""

    async def nodes(self) -> dict[str, bytes]:
        """Return the statuses that have not expired, sorted by node."""


class AppendLog(Protocol):
    """Entries at increasing positions, starting at 1. Positions are never reused, so a reader misses and repeats nothing.

    A log holds either plain entries (:meth:`append`, up to a maximum size) or entries with keys (:meth:`put`).

    Every method raises a :class:`~skitter.errors.SkitterError` if the store is unavailable, full or damaged.
    """

    name: str
    """Name of the log in messages, without passwords."""

    async def open(self) -> None:
        """Wait until the store is available. The other methods open the log if needed, without waiting."""

    async def close(self) -> None:
        """Disconnect. A closed log can be used again."""

    async def append(self, entries: Sequence[bytes], batch: int) -> None:
        """Append entries, then drop the oldest entries until the log is within its maximum size.

        ``batch`` increases with each call of a writer. A repeated call, with the same batch, changes nothing.
        """

    async def put(self, entries: Sequence[tuple[str, bytes]], group: str = "") -> None:
        """Set the entries of some keys. An existing key keeps its position; an empty entry removes the key.

        ``group`` names a subset of the log that the entries are added to.
        """

    async def read(self, after: int, limit: int, group: str = "") -> list[tuple[int, bytes]]:
        """Return the first entries after a position, each with its position.

        ``group`` restricts the result to one subset. Fewer entries than ``limit`` mean that there are no more.
        """

    async def erase(self) -> None:
        """Remove all entries."""
