"""Seen sets: which fingerprints a job has met.

Exact always. While they fit, all keys are in memory (about 0.1 GB a million); see
:mod:`skitter.frontier.embedded.seen_disk` for what happens beyond that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

FOREVER = float("inf")
_SHARDS = 256


class Seen(Protocol):
    """Fingerprints and until when each is known; ``FOREVER`` while pending or where no TTL is set."""

    async def prepare(self, fingerprints: Sequence[bytes]) -> None:
        """Make ready to answer :meth:`known` for these without waiting."""
        ...

    def known(self, fingerprint: bytes, now: float) -> bool:
        """Tell whether a fingerprint is known now."""
        ...

    def add(self, fingerprint: bytes) -> None:
        """Make a fingerprint known without end."""
        ...

    def visited(self, fingerprint: bytes, until: float) -> None:
        """Let a fingerprint be known until a Unix time."""
        ...

    def forget(self, fingerprint: bytes) -> None:
        """Make a fingerprint unknown."""
        ...

    def __len__(self) -> int: ...


class MemorySeen:
    """Keys known for ever, in 256 sets: one set of five million keys would stall at each growth."""

    def __init__(self) -> None:
        self._shards: list[set[bytes]] = [set() for _ in range(_SHARDS)]

    async def prepare(self, fingerprints: Sequence[bytes]) -> None:
        """Nothing to do: all keys are here."""

    def known(self, fingerprint: bytes, now: float) -> bool:  # noqa: ARG002 - known for ever
        """Tell whether a fingerprint is known."""
        return fingerprint in self._shards[fingerprint[0]]

    def add(self, fingerprint: bytes) -> None:
        """Make a fingerprint known."""
        self._shards[fingerprint[0]].add(fingerprint)

    def visited(self, fingerprint: bytes, until: float) -> None:
        """Nothing changes: what was visited stays known."""

    def forget(self, fingerprint: bytes) -> None:
        """Make a fingerprint unknown."""
        self._shards[fingerprint[0]].discard(fingerprint)

    def __len__(self) -> int:
        return sum(map(len, self._shards))

    def load(self, packed: bytes) -> None:
        """Add many fingerprints, given as one run of 16-byte keys."""
        shards = self._shards
        for start in range(0, len(packed), 16):
            key = packed[start : start + 16]
            shards[key[0]].add(key)

    def sorted_shards(self) -> Iterator[list[tuple[bytes, float]]]:
        """Give all keys in ascending order, one shard at a time."""
        for shard in self._shards:
            yield [(key, FOREVER) for key in sorted(shard)]


class TimedSeen:
    """Keys with the time until which each is known, for jobs with a visited TTL."""

    def __init__(self) -> None:
        self._shards: list[dict[bytes, float]] = [{} for _ in range(_SHARDS)]

    async def prepare(self, fingerprints: Sequence[bytes]) -> None:
        """Nothing to do: all keys are here."""

    def known(self, fingerprint: bytes, now: float) -> bool:
        """Tell whether a fingerprint is known now."""
        return self._shards[fingerprint[0]].get(fingerprint, 0.0) > now

    def add(self, fingerprint: bytes) -> None:
        """Make a fingerprint known without end."""
        self._shards[fingerprint[0]][fingerprint] = FOREVER

    def visited(self, fingerprint: bytes, until: float) -> None:
        """Let a fingerprint be known until a time."""
        self._shards[fingerprint[0]][fingerprint] = until

    def forget(self, fingerprint: bytes) -> None:
        """Make a fingerprint unknown."""
        self._shards[fingerprint[0]].pop(fingerprint, None)

    def __len__(self) -> int:
        return sum(map(len, self._shards))

    def load(self, packed: bytes, until: float = FOREVER) -> None:
        """Add many fingerprints, given as one run of 16-byte keys."""
        for start in range(0, len(packed), 16):
            key = packed[start : start + 16]
            self._shards[key[0]][key] = until

    def sorted_shards(self) -> Iterator[list[tuple[bytes, float]]]:
        """Give all keys in ascending order, one shard at a time."""
        for shard in self._shards:
            yield sorted(shard.items())
