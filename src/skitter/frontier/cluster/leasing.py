"""Requests leases from those partitions of a job that may have some, several partitions at a time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

import msgspec

from skitter.frontier.cluster.background import BackgroundTasks
from skitter.frontier.cluster.partitions import PartitionClient, PartitionMap
from skitter.frontier.records import JobState, Lease
from skitter.queues import QueueQuotas, queue_of, quota_of

MIN_WAIT = 0.002
MAX_WAIT = 0.5
"""Seconds between two requests while there is nothing to lease."""


class ClusterLeases(msgspec.Struct):
    """The leases and news that the partitions returned for one request."""

    worker: str
    limit: int
    began: float
    """Loop time."""
    leases: list[Lease] = []
    data_loss: bool = False

    @property
    def missing(self) -> int:
        """Number of leases that are still missing."""
        return self.limit - len(self.leases)


class ClusterLeasing:
    """Requests leases from the partitions."""

    def __init__(self, partitions: PartitionMap, tasks: BackgroundTasks, clock: Callable[[], float]) -> None:
        self._partitions = partitions
        self._tasks = tasks
        self._clock = clock
        self._lock = asyncio.Lock()

    async def take(self, worker: str, limit: int, quotas: QueueQuotas | None = None) -> ClusterLeases:
        """Take at most ``limit`` leases.

        The partitions that may have leases are asked for equal shares, starting with the partition that has been due for the
        longest time. The other partitions are asked for the missing leases. If a quota is smaller than ``limit``, the
        partitions are asked one after the other in random order, because each may have all requests of the queue.
        """
        async with self._lock:
            taken = ClusterLeases(worker, limit, asyncio.get_running_loop().time())
            clients = self._partitions.clients
            self._collect(taken)
            if quotas is None or all(quota >= limit for quota in quotas.values()):
                by_due = sorted(clients, key=lambda client: (round(client.due, 3), client.number))
                await self._ask(taken, by_due, limit, quotas)
                return taken
            for client in random.sample(clients, len(clients)):
                quotas_left = _left(quotas, taken.leases, limit)
                is_served = any(quota > 0 for quota in quotas_left.values())
                await self._ask(taken, [client], limit if is_served else 0, quotas_left)
                if any(quota > 0 >= quotas_left[queue] for queue, quota in quotas.items()):
                    client.touch()  # it was not asked for all queues that the next request may ask for
            return taken

    async def _ask(
        self,
        taken: ClusterLeases,
        candidates: list[PartitionClient],
        limit: int,
        quotas: QueueQuotas | None,
    ) -> None:
        """Ask ``candidates`` until there are ``limit`` leases in all, or no candidate has more."""
        while True:
            missing = limit - len(taken.leases)
            now = self._clock()
            clients = [
                client
                for client in candidates
                if client.is_free() and (client.reports or (missing > 0 and client.due <= now))
            ]
            shares = _equal_shares(missing, clients, now)
            tasks = {}
            for client, share in zip(clients, shares, strict=True):
                if share or client.reports:
                    client.request = self._tasks.start(client.ask(taken.worker, share, quotas))
                    tasks[client.request] = client.partition
            if not tasks:
                return
            await self._tasks.wait(tasks)
            self._collect(taken)
            candidates = [
                client for client, share in zip(clients, shares, strict=True) if not share or client.gave_all
            ]

    def _collect(self, taken: ClusterLeases) -> None:
        for client in self._partitions.clients:
            arrived = client.collect(taken.worker, taken.began, taken.missing)
            taken.leases += [
                msgspec.structs.replace(lease, id=self._partitions.global_id(client.number, lease.id))
                for lease in arrived.leases
            ]
            taken.data_loss |= arrived.data_loss
            if arrived.late:
                self._tasks.start(client.frontier.release(arrived.late))

    def state(self) -> JobState | None:
        """Return the common state of the partitions; ``None`` if all were quiet at the last request (see :func:`~skitter.frontier.cluster.state.is_quiet`)."""
        states = {client.state for client in self._partitions.clients}
        for state in (JobState.STOPPING, JobState.PAUSED):
            if state in states:
                return state
        return None if states == {JobState.FINISHED} else JobState.RUNNING

    def ask_again(self) -> float:
        """Return the seconds after which another request may return leases."""
        now = self._clock()
        waits = (client.due - now for client in self._partitions.clients if client.is_free())
        return min(max(min(waits, default=MAX_WAIT), MIN_WAIT), MAX_WAIT)


def _left(quotas: QueueQuotas, taken: Sequence[Lease], limit: int) -> QueueQuotas:
    """Return how many requests of each queue may still be leased."""
    quotas_left = dict(quotas)
    for lease in taken:
        queue = queue_of(lease.slot)
        quotas_left[queue] = quota_of(quotas_left, queue, limit) - 1
    return quotas_left


def _equal_shares(limit: int, clients: Sequence[PartitionClient], now: float) -> list[int]:
    """Divide a number of leases among the partitions that are due; the others get 0."""
    due = sum(client.due <= now for client in clients)
    if limit <= 0 or not due:
        return [0] * len(clients)
    per_client, more = divmod(limit, due)
    shares = []
    for client in clients:
        share = 0
        if client.due <= now:
            share = per_client + (more > 0)
            more -= 1
        shares.append(share)
    return shares
