"""The interface of one partition of a job, and its records.

``docs/design/cluster-frontier.md`` explains the protocol.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from skitter.frontier.contract import Frontier
from skitter.frontier.options import FrontierSettings
from skitter.frontier.records import AddResult, Entry, JobInfo, JobState, Outcome, SeedProgress


class ForwardedRequest(msgspec.Struct, frozen=True):
    """A request on its way from the partition in which it was found to the partition of its slot."""

    id: bytes
    """Unique."""
    target: int
    """Number of the partition of its slot."""
    entry: Entry
    is_seed: bool = False
    """Whether ``max_queued_per_slot`` does not apply."""


class PartitionStatus(msgspec.Struct, frozen=True):
    """The contents of one partition at one moment."""

    queued: int
    delayed: int
    leased: int
    outbox: int
    """Forwarded requests that may not be safe in their partitions yet."""
    expects_seeds: bool
    """Whether its seed keys contain seeds, or the job still waits for seeds (``wait_for_seeds``)."""
    seeds_done: bool
    state: JobState
    """The requested state; never ``FINISHED``."""
    changes: tuple[int, int]
    """The last number given to a request or dead letter, and the number of completed requests. Two readings of a quiet
    partition have equal pairs only if it was quiet all the time between them."""
    failed: int
    counters: dict[str, int]
    """The counters that have limits."""
    revision: int
    """Grows with each change of settings."""

    @property
    def left(self) -> int:
        """Number of requests that are not done yet."""
        return self.queued + self.delayed + self.leased


class ReplicationOffset(msgspec.Struct, frozen=True):
    """The replication offsets of the node of a partition."""

    node: bytes
    """Identifier of the node. It changes when the node restarts, when its number of replicas changes, or when another
    node serves the partition."""
    written: int
    """Bytes that the node has written to its replication log."""
    copied: int | None
    """Number of these bytes that every replica has; ``None`` without replicas."""


class PartitionJob(Protocol):
    """What a partition knows about the job."""

    @property
    def options(self) -> FrontierSettings:
        """The options of the job."""

    generation: bytes
    """Distinguishes this job from a later one of the same name."""
    is_complete: bool
    """In the first partition: whether all other partitions existed before."""
    recrawls: int
    """Number of recrawls of the partition that this worker knows of."""


class Partition(Protocol):
    """One partition of a job."""

    @property
    def frontier(self) -> Frontier:
        """The requests of the partition, as a frontier."""

    @property
    def is_unavailable(self) -> bool:
        """Whether the node is unavailable, so that calls wait for it."""

    @property
    def run_id(self) -> bytes:
        """Identifier of the server process that replied last. It changes when the node restarts or is replaced."""

    @property
    def job(self) -> PartitionJob:
        """What the partition knows about the job. Set by :meth:`join`."""

    async def join(self, first: Partition | None) -> JobInfo:
        """Create or join the partition. ``first``: the first partition of the job, joined before."""

    async def complete(self) -> None:
        """Record in the first partition that all others exist."""

    async def recrawl(self, others: int) -> bool:
        """Start the next pass in the first partition. Return ``False`` if it is not finished.

        ``others``: the highest number of recrawls of the other partitions. After a failover, it may be higher than the
        number of the first partition.
        """

    async def follow_recrawl(self, recrawls: int) -> None:
        """Start the pass that the first partition has started, unless it was started before. 0: only read the number of recrawls.

        Forget the known fingerprints, except those of unfinished requests: these were added after the start of the pass.
        """

    async def add(self, entries: Sequence[Entry], recrawls: int) -> AddResult:
        """Add requests of this partition, after :meth:`follow_recrawl` in the same step."""

    async def add_seeds(
        self, entries: Sequence[Entry], seeds: SeedProgress, forwarded: Sequence[ForwardedRequest]
    ) -> AddResult | None:
        """Add the seeds of this partition, and keep the seeds of others. Return ``None`` if the claim was lost."""

    async def settle_seeds(
        self,
        token: int,
        entries: Sequence[Entry],
        rejected: Sequence[tuple[Entry, str]],
        forwarded: Sequence[ForwardedRequest],
    ) -> bool:
        """Settle a batch like :meth:`~skitter.frontier.contract.SeedSource.settle`, and keep the requests of other partitions."""

    async def commit(
        self, outcomes: Sequence[Outcome], forwarded: Mapping[int, Sequence[ForwardedRequest]]
    ) -> list[bool]:
        """Commit, and keep the new requests of other partitions, by lease id, in the outbox in the same step."""

    async def deliver(
        self, forwarded: Sequence[ForwardedRequest], recrawls: int, *, again: bool
    ) -> AddResult:
        """Add requests from other partitions, after :meth:`follow_recrawl` in the same step.

        Idempotent. ``again``: they may have been delivered before.
        """

    async def outbox(self, limit: int, age: float) -> list[ForwardedRequest]:
        """Read some requests that have been in the outbox for at least ``age`` seconds."""

    async def clear_outbox(self, ids: Sequence[bytes]) -> None:
        """Remove requests from the outbox that are safe in their partitions."""

    async def partition_status(self) -> PartitionStatus:
        """Read the contents of the partition."""

    async def replication_offset(self) -> ReplicationOffset:
        """Read the replication offsets of the node."""

    async def prompt_replicas(self) -> None:
        """Ask the replicas of the node to report now which changes they have. Otherwise they report once a second."""
