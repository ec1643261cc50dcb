"""Partition: what it offers beside the contract of a frontier, and the records of that.

``docs/cluster-frontier.md`` explains the protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from skitter.frontier.contract import Frontier
from skitter.frontier.options import FrontierOptions
from skitter.frontier.records import AddResult, Entry, JobInfo, JobState, Outcome, SeedProgress
from skitter.politeness import Politeness


class ForwardedRequest(msgspec.Struct, frozen=True):
    """A request on its way from the partition in which it was found to its own."""

    id: bytes
    """Never used twice."""
    target: int
    """Number of its partition."""
    entry: Entry


class PartitionStatus(msgspec.Struct, frozen=True):
    """What one partition holds at one moment."""

    queued: int
    delayed: int
    leased: int
    outbox: int
    """Requests for other partitions that may not be safe there yet."""
    waits: bool
    """Whether it waits for seeds from outside, or has some."""
    seeds_done: bool
    state: JobState
    """As it was asked for; never ``FINISHED``."""
    changes: tuple[int, int]
    """Equal in two readings only if the partition was quiet at both or at neither, or nothing was added between."""
    failed: int
    counters: dict[str, int]
    """Those that limits are measured by."""

    revision: int
    """Grows with each change of settings."""

    @property
    def left(self) -> int:
        """Requests that are not at their end."""
        return self.queued + self.delayed + self.leased


class ReplicationOffset(msgspec.Struct, frozen=True):
    """How far the copies of a partition's node are."""

    life: bytes
    """Changes with each life of the node, and if another one serves the partition."""
    written: int
    """Bytes of its log of changes so far."""
    copied: int | None
    """How many of them every replica has; ``None`` if there is no replica."""


class Partition(Frontier, Protocol):
    """A frontier that is one of several of a job."""

    @property
    def is_away(self) -> bool:
        """Whether its node is being waited for."""
        ...

    @property
    def life(self) -> bytes:
        """As in :class:`ReplicationOffset`, at the last answer."""
        ...

    @property
    def options(self) -> FrontierOptions:
        """How the job is kept. Known once it was joined."""
        ...

    @property
    def politeness(self) -> Politeness:
        """Which slot a host is in. Known once it was joined."""
        ...

    @property
    def generation(self) -> bytes:
        """Tells this job from one of the same name that was begun later. Known once it was joined."""
        ...

    @property
    def is_complete(self) -> bool:
        """Of the first partition: whether all the others were there before. Known once it was joined."""
        ...

    @property
    def recrawls(self) -> int:
        """How often the job was begun again. Known once it was joined, and after :meth:`recrawl`."""
        ...

    async def join(self, first: Partition | None) -> JobInfo:
        """Open or create it; ``first`` is the first partition of the job, joined before."""
        ...

    async def complete(self) -> None:
        """Note in the first partition that all the others are there."""
        ...

    async def advance(self, recrawls: int) -> None:
        """Forget what is known, if the job was begun again since."""
        ...

    async def add_seeds(
        self, entries: Sequence[Entry], seeds: SeedProgress, parcels: Sequence[ForwardedRequest]
    ) -> AddResult | None:
        """Add seeds of this partition and keep those of others; ``None`` if they were not taken."""
        ...

    async def commit_with(
        self, outcomes: Sequence[Outcome], parcels: Mapping[int, Sequence[ForwardedRequest]]
    ) -> list[bool]:
        """Commit; what was found for other partitions, by lease id, is kept in the outbox in the same step."""
        ...

    async def deliver(self, parcels: Sequence[ForwardedRequest], *, again: bool) -> AddResult:
        """Add requests that came from other partitions. Does nothing twice; ``again``: they may have come before."""
        ...

    async def outbox(self, limit: int, age: float) -> list[ForwardedRequest]:
        """Read some of the outbox, of what is in it for at least so many seconds."""
        ...

    async def take_out(self, ids: Sequence[bytes]) -> None:
        """Forget what is safe in its partition."""
        ...

    async def pulse(self) -> PartitionStatus:
        """Read what it holds."""
        ...

    async def position(self) -> ReplicationOffset:
        """Read how far the copies of its node are."""
        ...

    async def erase(self) -> None:
        """Forget it for good."""
        ...


def total(results: Iterable[AddResult]) -> AddResult:
    """Add up what several partitions have taken."""
    added = known = banned = 0
    for result in results:
        added, known, banned = added + result.added, known + result.known, banned + result.banned
    return AddResult(added, known, banned)
