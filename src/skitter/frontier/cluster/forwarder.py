"""Forwarder: brings requests from the partition in which they were found to their own.

A request stays in the outbox of the one until it is safe in the other: there, and in all copies of it. So whatever a
node loses when it dies is delivered again.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Sequence

import msgspec

from skitter.frontier.cluster.background import BackgroundTasks
from skitter.frontier.cluster.client import PartitionClient
from skitter.frontier.cluster.partition import ForwardedRequest, ReplicationOffset, total
from skitter.frontier.records import AddResult

_LOOK_EVERY = 0.25
"""Seconds between two looks at what may be safe by now."""
_ABANDONED_AFTER = 10.0
"""Seconds after which what is in an outbox still is taken for the work of a dead worker."""
_AT_ONCE = 1_000


class _Sent(msgspec.Struct):
    """What was delivered to one partition, and is not known to be safe there."""

    source: int
    ids: list[bytes]
    life: bytes
    """Of the target, when it had taken it."""
    written: int | None = None
    """ReplicationOffset of the target at some moment after."""


class Forwarder:
    """Delivers for one worker, and for those that have died."""

    def __init__(self, lanes: Sequence[PartitionClient], errands: BackgroundTasks) -> None:
        self._lanes = lanes
        self._errands = errands
        self._sent: dict[int, list[_Sent]] = defaultdict(list)
        """By target."""
        self._positions: dict[int, ReplicationOffset] = {}
        """As they were read last."""
        self._confirming: dict[int, asyncio.Task[None]] = {}
        self._rounds: asyncio.Task[None] | None = None
        self.on_the_way = 0
        """Parcels that wait for a target which is away."""

    # --- delivering --------------------------------------------------------------------------------------

    async def send(self, parcels: Sequence[tuple[int, ForwardedRequest]]) -> AddResult:
        """Deliver what was found, each with the number of its source.

        Returns before all is there if a target is away; what is on its way then passes for added.
        """
        by_target: dict[int, list[tuple[int, ForwardedRequest]]] = defaultdict(list)
        for source, parcel in parcels:
            by_target[parcel.target].append((source, parcel))
        tasks = {
            self._errands.start(self._deliver(self._lanes[target], group, again=False)): self._lanes[
                target
            ].partition
            for target, group in by_target.items()
        }
        await self._errands.wait(tasks)
        results = [task.result() for task in tasks if task.done()]
        arrived = total(results)
        on_the_way = len(parcels) - arrived.added - arrived.known - arrived.banned
        return total([arrived, AddResult(on_the_way, 0)])

    async def _deliver(
        self, target: PartitionClient, group: Sequence[tuple[int, ForwardedRequest]], *, again: bool
    ) -> AddResult:
        self.on_the_way += len(group)
        try:
            result = await target.partition.deliver([parcel for _, parcel in group], again=again)
        finally:
            self.on_the_way -= len(group)
        target.touch()
        by_source: dict[int, list[bytes]] = defaultdict(list)
        for source, parcel in group:
            by_source[source].append(parcel.id)
        life = target.partition.life
        self._sent[target.number] += [_Sent(source, ids, life) for source, ids in by_source.items()]
        return result

    async def collect(self, source: PartitionClient, age: float) -> None:
        """Deliver again what has been in an outbox for so long."""
        parcels = await source.partition.outbox(_AT_ONCE, age)
        by_target: dict[int, list[tuple[int, ForwardedRequest]]] = defaultdict(list)
        for parcel in parcels:
            by_target[parcel.target].append((source.number, parcel))
        for target, group in by_target.items():
            if not self._lanes[target].partition.is_away:
                await self._deliver(self._lanes[target], group, again=True)

    # --- confirming --------------------------------------------------------------------------------------

    async def confirm(self) -> None:
        """Take out of the outboxes what is safe by now."""
        tasks = {}
        for target in [number for number, sent in self._sent.items() if sent]:
            task = self._confirming.get(target)
            if task is None or task.done():
                task = self._confirming[target] = self._errands.start(self._confirm(self._lanes[target]))
            tasks[task] = self._lanes[target].partition
        await self._errands.wait(tasks)

    async def _confirm(self, target: PartitionClient) -> None:
        sent, self._sent[target.number] = self._sent[target.number], []
        position = await target.partition.position()
        before = self._positions.setdefault(target.number, position)
        self._positions[target.number] = position
        safe: dict[int, list[bytes]] = defaultdict(list)
        for item in sent:
            if before.life != position.life or item.life != target.partition.life:
                continue  # what it took may be lost: it is still in the outbox, and comes again
            item.written = position.written if item.written is None else item.written
            if position.copied is None or position.copied >= item.written:
                safe[item.source] += item.ids
            else:
                self._sent[target.number].append(item)
        for source, ids in safe.items():
            await self._lanes[source].partition.take_out(ids)
            self._lanes[source].touch()

    # --- going round -------------------------------------------------------------------------------------

    def go_round(self) -> None:
        """Look after all outboxes from now on."""
        if self._rounds is None:
            self._rounds = self._errands.start(self._go_round())
            for lane in self._lanes:  # to know how many copies there are before anything is delivered
                self._confirming[lane.number] = self._errands.start(self._confirm(lane))

    async def _go_round(self) -> None:
        loop = asyncio.get_running_loop()
        collecting: dict[int, asyncio.Task[None]] = {}
        next_collection = loop.time() + _ABANDONED_AFTER * random.random()
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            await self.confirm()
            if loop.time() < next_collection:
                continue
            next_collection = loop.time() + _ABANDONED_AFTER * random.uniform(0.5, 1.0)
            for lane in self._lanes:
                task = collecting.get(lane.number)
                if task is None or task.done():
                    collecting[lane.number] = self._errands.start(self.collect(lane, _ABANDONED_AFTER))
