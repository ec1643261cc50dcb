"""Leasing: one question for leases becomes a few to partitions, in turn, together, and only where it is worth while."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

import msgspec

from skitter.frontier.cluster.background import BackgroundTasks
from skitter.frontier.cluster.client import PartitionClient
from skitter.frontier.cluster.partition_map import PartitionMap
from skitter.frontier.records import JobState, Lease
from skitter.queues import QueueQuotas, queue_of, share_of

_SHORTEST = 0.002
_LONGEST = 0.5
"""Seconds between two questions while nothing is there."""


class Taken:
    """What the partitions gave for one question."""

    def __init__(self) -> None:
        self.leases: list[Lease] = []
        self.had_data_loss = False


class Leasing:
    """Asks the partitions of a job for leases."""

    def __init__(
        self,
        parts: PartitionMap,
        errands: BackgroundTasks,
        clock: Callable[[], float],
    ) -> None:
        self._parts = parts
        self._lanes = parts.lanes
        self._errands = errands
        self._clock = clock
        self._taking = asyncio.Lock()

    async def take(self, worker: str, limit: int, queues: QueueQuotas | None = None) -> Taken:
        """Take at most ``limit`` leases.

        Those that may have some are asked for equal shares, beginning with the one that is due for the longest time;
        what some could not give is asked of the rest. ``queues``: how many at most of each queue; where that is fewer
        than ``limit`` the lanes are asked one after the other, beginning with any: each may have all of the queue.
        """
        async with self._taking:
            taken = Taken()
            begun = asyncio.get_running_loop().time()
            self._collect(taken, worker, begun, limit)
            if queues is None or all(share >= limit for share in queues.values()):
                by_due = sorted(self._lanes, key=lambda lane: (round(lane.due, 3), lane.number))
                await self._take(taken, worker, begun, limit, by_due, queues)
                return taken
            for lane in random.sample(self._lanes, len(self._lanes)):
                left = _left(queues, taken.leases, limit)
                is_served = any(share > 0 for share in left.values())
                await self._take(taken, worker, begun, limit if is_served else 0, [lane], left)
                if any(share > 0 >= left[queue] for queue, share in queues.items()):
                    lane.touch()  # it was not asked for all that the next question may be for
            return taken

    async def _take(
        self,
        taken: Taken,
        worker: str,
        begun: float,
        limit: int,
        candidates: list[PartitionClient],
        queues: QueueQuotas | None,
    ) -> None:
        while True:
            short = limit - len(taken.leases)
            now = self._clock()
            asked = [
                lane
                for lane in candidates
                if lane.is_free() and (lane.landings or (short > 0 and lane.due <= now))
            ]
            shares = _shares(short, asked, now)
            tasks = {}
            for lane, share in zip(asked, shares, strict=True):
                if share or lane.landings:
                    lane.asking = self._errands.start(lane.ask(worker, share, queues))
                    tasks[lane.asking] = lane.partition
            if not tasks:
                return
            await self._errands.wait(tasks)
            self._collect(taken, worker, begun, limit)
            candidates = [
                lane for lane, share in zip(asked, shares, strict=True) if not share or lane.is_fruitful
            ]

    def _collect(self, taken: Taken, worker: str, begun: float, limit: int) -> None:
        for lane in self._lanes:
            leases, spent, had_data_loss = lane.collect(worker, begun, limit - len(taken.leases))
            taken.leases += [
                msgspec.structs.replace(lease, id=self._parts.outer(lane.number, lease.id))
                for lease in leases
            ]
            taken.had_data_loss |= had_data_loss
            if spent:
                self._errands.start(lane.partition.release(spent))

    def state(self) -> JobState | None:
        """Return the state that the partitions agree on; ``None`` if all were quiet when they were last asked."""
        known = {lane.state for lane in self._lanes}
        for state in (JobState.STOPPING, JobState.PAUSED):
            if state in known:
                return state
        return None if known == {JobState.FINISHED} else JobState.RUNNING

    def ask_again(self) -> float:
        """Return the seconds after which asking again may give more."""
        now = self._clock()
        soonest = min((lane.due - now for lane in self._lanes if lane.is_free()), default=_LONGEST)
        return min(max(soonest, _SHORTEST), _LONGEST)


def _left(queues: QueueQuotas, taken: Sequence[Lease], limit: int) -> QueueQuotas:
    """Return what may still be taken of each queue."""
    left = dict(queues)
    for lease in taken:
        queue = queue_of(lease.slot)
        left[queue] = share_of(left, queue, limit) - 1
    return left


def _shares(wanted: int, lanes: Sequence[PartitionClient], now: float) -> list[int]:
    """Divide what is wanted among those that may have some."""
    ready = sum(lane.due <= now for lane in lanes)
    if wanted <= 0 or not ready:
        return [0] * len(lanes)
    each, more = divmod(wanted, ready)
    shares = []
    for lane in lanes:
        share = 0
        if lane.due <= now:
            share = each + (more > 0)
            more -= 1
        shares.append(share)
    return shares
