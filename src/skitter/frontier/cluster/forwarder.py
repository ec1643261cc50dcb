"""Forwards requests from the partition in which they were found to the partition of their slot.

A request stays in the outbox of the first partition until it is safe in the second one: stored by its node and by all
replicas of the node. Requests that a dying node loses are therefore delivered again.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Sequence

import msgspec

from skitter.frontier.cluster.background import BackgroundTasks
from skitter.frontier.cluster.partition import ForwardedRequest, ReplicationOffset
from skitter.frontier.cluster.partitions import PartitionClient, PartitionMap
from skitter.frontier.records import AddResult

POLL_INTERVAL = 0.25
"""Seconds between two checks whether delivered requests are safe."""
ABANDONED_AFTER = 10.0
"""Seconds after which a request in an outbox counts as left behind by a dead worker."""
BATCH_SIZE = 1_000


class _Delivery(msgspec.Struct):
    """Requests that were delivered to one partition and may not be safe there yet."""

    source: int
    """Number of the partition in whose outbox the requests are."""
    ids: list[bytes]
    run_id: bytes
    """:attr:`Partition.run_id` of the target after the delivery."""
    written: int | None = None
    """Replication offset of the target at some moment after the delivery; ``None`` if it was not read yet."""


class Forwarder:
    """Delivers the requests that this worker finds, and those of workers that have died."""

    def __init__(self, partitions: PartitionMap, tasks: BackgroundTasks) -> None:
        self._partitions = partitions
        self._tasks = tasks
        self._deliveries: dict[int, list[_Delivery]] = defaultdict(list)
        """Unconfirmed deliveries, by the number of the target."""
        self._offsets: dict[int, ReplicationOffset] = {}
        """The offset of each target that was read last."""
        self._confirming: dict[int, asyncio.Task[None]] = {}
        self._loop: asyncio.Task[None] | None = None
        self.undelivered = 0
        """Number of requests that wait for an unavailable target."""

    # --- delivering --------------------------------------------------------------------------------------

    async def send(self, found: Sequence[tuple[int, ForwardedRequest]]) -> AddResult:
        """Deliver requests, each given with the number of its source.

        If a target is unavailable, return before all are delivered; undelivered requests then count as added.
        """
        results = await self._tasks.run(
            (target.partition, self._deliver(target, group, again=False))
            for target, group in self._by_target(found).items()
        )
        delivered = sum((task.result() for task in results if task.done()), AddResult(0, 0))
        accounted = delivered.added + delivered.known + delivered.banned + delivered.over_budget
        undelivered = len(found) - accounted
        return delivered + AddResult(undelivered, 0)

    def _by_target(
        self, found: Sequence[tuple[int, ForwardedRequest]]
    ) -> dict[PartitionClient, list[tuple[int, ForwardedRequest]]]:
        groups: dict[PartitionClient, list[tuple[int, ForwardedRequest]]] = defaultdict(list)
        for source, request in found:
            groups[self._partitions.clients[request.target]].append((source, request))
        return groups

    async def _deliver(
        self, target: PartitionClient, group: Sequence[tuple[int, ForwardedRequest]], *, again: bool
    ) -> AddResult:
        self.undelivered += len(group)
        try:
            recrawls = self._partitions.recrawls_for(target)
            result = await target.partition.deliver([request for _, request in group], recrawls, again=again)
        finally:
            self.undelivered -= len(group)
        target.touch()
        by_source: dict[int, list[bytes]] = defaultdict(list)
        for source, request in group:
            by_source[source].append(request.id)
        run_id = target.partition.run_id
        self._deliveries[target.number] += [
            _Delivery(source, ids, run_id) for source, ids in by_source.items()
        ]
        return result

    async def redeliver(self, source: PartitionClient, age: float) -> None:
        """Deliver the requests again that have been in an outbox for at least ``age`` seconds."""
        requests = await source.partition.outbox(BATCH_SIZE, age)
        groups = self._by_target([(source.number, request) for request in requests])
        for target, group in groups.items():
            if not target.partition.is_unavailable:
                await self._deliver(target, group, again=True)

    # --- confirming --------------------------------------------------------------------------------------

    async def confirm(self, *, prompt: bool = False) -> None:
        """Remove the requests from the outboxes that are stored durably in their own partitions.

        ``prompt``: let replicas report at once which requests they have.
        """
        tasks = {}
        for target in [number for number, deliveries in self._deliveries.items() if deliveries]:
            client = self._partitions.clients[target]
            task = self._confirming.get(target)
            if task is None or task.done():
                task = self._confirming[target] = self._tasks.start(self._confirm(client, prompt=prompt))
            tasks[task] = client.partition
        await self._tasks.wait(tasks)

    async def _confirm(self, target: PartitionClient, *, prompt: bool = False) -> None:
        deliveries, self._deliveries[target.number] = self._deliveries[target.number], []
        if prompt:
            await target.partition.prompt_replicas()
        offset = await target.partition.replication_offset()
        before = self._offsets.setdefault(target.number, offset)
        self._offsets[target.number] = offset
        safe: dict[int, list[bytes]] = defaultdict(list)
        for delivery in deliveries:
            if before.node != offset.node or delivery.run_id != target.partition.run_id:
                continue  # the target may have lost the requests: they stay in the outbox, and are delivered again
            delivery.written = offset.written if delivery.written is None else delivery.written
            if offset.copied is None or offset.copied >= delivery.written:
                safe[delivery.source] += delivery.ids
            else:
                self._deliveries[target.number].append(delivery)
        for source, ids in safe.items():
            client = self._partitions.clients[source]
            await client.partition.clear_outbox(ids)
            client.touch()

    # --- in the background -------------------------------------------------------------------------------

    def start(self) -> None:
        """Start forwarding the requests in all outboxes."""
        if self._loop is None:
            self._loop = self._tasks.start(self._run())
            # To know the number of replicas before anything is delivered.
            for client in self._partitions.clients:
                self._confirming[client.number] = self._tasks.start(self._confirm(client))

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        collecting: dict[int, asyncio.Task[None]] = {}
        next_collection = loop.time() + ABANDONED_AFTER * random.random()
        while True:
            await asyncio.sleep(POLL_INTERVAL)
            await self.confirm()
            if loop.time() < next_collection:
                continue
            next_collection = loop.time() + ABANDONED_AFTER * random.uniform(0.5, 1.0)
            for client in self._partitions.clients:
                task = collecting.get(client.number)
                if task is None or task.done():
                    collecting[client.number] = self._tasks.start(self.redeliver(client, ABANDONED_AFTER))
