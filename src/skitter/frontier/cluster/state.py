"""The state, the limits and the end of a job, combined from the parts that the partitions know."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from skitter.frontier.cluster.background import BackgroundTasks, gather_all
from skitter.frontier.cluster.forwarder import Forwarder
from skitter.frontier.cluster.partition import PartitionStatus
from skitter.frontier.cluster.partitions import PartitionClient, PartitionMap
from skitter.frontier.options import (
    FrontierSettings,
    has_limits,
    queue_capacity,
    reached_limit,
    remaining_pages,
)
from skitter.frontier.records import BUSIEST_SLOTS, FrontierStatus, JobState
from skitter.queues import DEFAULT_QUEUE

DELIVERY_TIMEOUT = 2.0
"""Seconds within which delivered requests are normally safe: without replicas they are on disk after two seconds."""
POLL_INTERVAL = 0.05


class ClusterBudget:
    """The limits of a job over all its partitions.

    Workers that read the counts at the same time may each lease the remaining requests. The job can therefore exceed a
    page limit by the leases that its workers take within one reading. It never overlooks a limit.
    """

    def __init__(self, options: FrontierSettings) -> None:
        self._options = options
        self.has_limits = has_limits(options)
        self.bounds_queue = options.max_queued is not None

    def reached(self, parts: Sequence[PartitionStatus]) -> str:
        """Return the name of the limit that is reached, or an empty string."""
        return reached_limit(self._options, _counters(parts), sum(part.failed for part in parts))

    def remaining(self, parts: Sequence[PartitionStatus], limit: int) -> int:
        """Return how many requests may be leased."""
        return remaining_pages(self._options, _counters(parts), sum(part.leased for part in parts), limit)

    def capacity(self, parts: Sequence[PartitionStatus]) -> int | None:
        """Return how many new requests may be sent; ``None``: any number."""
        return queue_capacity(
            self._options,
            sum(part.queued for part in parts),
            sum(part.delayed for part in parts),
            sum(part.leased for part in parts),
            _counters(parts),
        )


def _counters(parts: Sequence[PartitionStatus]) -> Counter[str]:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part.counters)
    return total


class ClusterState:
    """State, limits and settings of the job over all partitions."""

    def __init__(self, partitions: PartitionMap, tasks: BackgroundTasks, forwarder: Forwarder) -> None:
        self._partitions = partitions
        self._tasks = tasks
        self._forwarder = forwarder
        self.budget = ClusterBudget(FrontierSettings())
        self.revision = 0
        """Sum of the revisions of all partitions, because a ban is lifted in one partition only."""

    async def read(self) -> list[PartitionStatus]:
        """Read all partitions, each at some moment within the call."""
        return await read_all(self._partitions.clients)

    async def load_settings(self, revision: int) -> None:
        """Take the limits in force from the first partition, if the settings have changed since."""
        first = self._partitions.first
        if revision > self.revision and not first.is_unavailable:
            changes = await first.frontier.control.settings_changes()
            self.budget = ClusterBudget(changes.of_options(first.job.options))
            self.revision = revision

    async def job_state(self, reason: str = "") -> JobState:
        """Return the state of the job. ``reason``: the limit that was reached."""
        if any(client.partition.is_unavailable for client in self._partitions.clients):
            return JobState.STOPPING if reason else JobState.RUNNING
        parts = await self.read()
        if parts[0].seeds_done and not any(part.left or part.expects_seeds for part in parts):
            parts = await self._wait_for_deliveries(parts)
            if await is_finished(self._partitions.clients, parts):
                return JobState.FINISHED
        return JobState.STOPPING if reason else parts[0].state

    async def _wait_for_deliveries(self, parts: list[PartitionStatus]) -> list[PartitionStatus]:
        """Deliver forwarded requests if nothing else is left. Return the contents after that."""
        loop = asyncio.get_running_loop()
        until = loop.time() + DELIVERY_TIMEOUT
        while any(part.outbox for part in parts) and loop.time() < until:
            await self._forwarder.confirm(prompt=True)
            parts = await self.read()
            for client, part in zip(self._partitions.clients, parts, strict=True):
                if part.outbox:
                    await self._forwarder.redeliver(client, DELIVERY_TIMEOUT)
            if any(part.left for part in parts):
                break
            if any(part.outbox for part in parts):
                await asyncio.sleep(POLL_INTERVAL)
        return parts

    async def status(self) -> FrontierStatus:
        """Read all counts: of each partition at one moment, of all partitions at almost the same moment."""
        self._tasks.check()
        statuses = await gather_all(client.frontier.status() for client in self._partitions.clients)
        parts = await self.read()
        await self.load_settings(sum(part.revision for part in parts))
        reason = self.budget.reached(parts)
        return aggregate_status(statuses, await self.job_state(reason), reason)


_SUMMED = ("added", "queued", "delayed", "leased", "done", "failed", "slots", "fetchable")


def aggregate_status(parts: Sequence[FrontierStatus], state: JobState, reason: str) -> FrontierStatus:
    """Add up the counts of all partitions."""
    counters: Counter[str] = Counter()
    queues: Counter[str] = Counter()
    for part in parts:
        counters.update(part.counters)
        queues.update(part.queues or {DEFAULT_QUEUE: part.queued})
    busiest = sorted((slot for part in parts for slot in part.busiest), key=lambda slot: -slot.queued)
    sums = {name: sum(getattr(part, name) for part in parts) for name in _SUMMED}
    return FrontierStatus(
        **sums,
        state=state,
        seeds_loading=parts[0].seeds_loading,
        counters=dict(counters),
        busiest=busiest[:BUSIEST_SLOTS],
        oldest_lease=max(part.oldest_lease for part in parts),
        reason=reason,
        queues=dict(queues) if any(part.queues for part in parts) else {},
        next_due=min((part.next_due for part in parts if part.delayed), default=0.0),
        pass_number=parts[0].pass_number,
    )


async def read_all(clients: Sequence[PartitionClient]) -> list[PartitionStatus]:
    """Read all partitions, each at some moment within the call."""
    return await gather_all(client.partition.partition_status() for client in clients)


def is_quiet(parts: Sequence[PartitionStatus]) -> bool:
    """Return whether every partition was quiet when it was read: without unfinished and forwarded requests.

    The first partition knows whether all seeds are loaded.
    """
    return parts[0].seeds_done and not any(part.left or part.outbox or part.expects_seeds for part in parts)


async def is_finished(clients: Sequence[PartitionClient], first: Sequence[PartitionStatus]) -> bool:
    """Return whether the job is finished: whether a second reading of all partitions equals the first one.

    The second reading starts after the first has ended. A partition that was quiet in both readings with equal
    ``changes`` was quiet all the time between them, so between the two readings all partitions were quiet at once.
    A forwarded request stays in the outbox of its source until it is in its target, so none can appear later.
    """
    if not is_quiet(first):
        return False
    second = await read_all(clients)
    return is_quiet(second) and all(
        early.changes == late.changes for early, late in zip(first, second, strict=True)
    )
