"""PartitionClient: one partition, and what this worker knows of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from skitter.frontier.cluster.partition import Partition
from skitter.frontier.records import FetchReport, JobState, Lease, LeaseResult
from skitter.queues import QueueQuotas, queue_of, share_of


class PartitionClient:
    """The way to one partition. ``clock``: the one that all partitions agree on more or less."""

    def __init__(self, number: int, partition: Partition, clock: Callable[[], float]) -> None:
        self.number = number
        self.partition = partition
        self._clock = clock
        self.due = float("-inf")
        """When asking it for leases may give some."""
        self.state: JobState | None = None
        """What it said last of itself, ``FINISHED`` if it was quiet; ``None`` if that may have changed since."""
        self.landings: list[FetchReport] = []
        self.asking: asyncio.Task[Any] | None = None
        self.revision = 0
        """Of the settings, as it said last."""
        self.is_fruitful = False
        """Whether it gave all it was asked for last."""
        self._answers: list[tuple[str, float, LeaseResult]] = []

    def touch(self) -> None:
        """Take note that there may be something new in it."""
        self.due = min(self.due, self._clock())
        self.state = None

    def is_free(self) -> bool:
        """Tell whether it can be asked: not while it still owes an answer."""
        return self.asking is None or self.asking.done()

    async def ask(self, worker: str, wanted: int, shares: QueueQuotas | None = None) -> None:
        """Ask for leases; :meth:`collect` gives them."""
        landings, self.landings = self.landings, []
        asked = asyncio.get_running_loop().time()
        self.due, self.state = float("inf"), None
        result = await self.partition.lease(worker, wanted, landings, shares)
        self._answers.append((worker, asked, result))
        self.revision = result.revision
        self.is_fruitful = len(result.leases) == wanted > 0
        if self.due == float("inf"):  # nothing new came meanwhile
            self.state = result.state
            may_have_more = self.is_fruitful or not wanted or _gave_all_of_a_queue(result.leases, shares)
            self.due = self._clock() + (0.0 if may_have_more else result.ask_again)

    def collect(self, worker: str, since: float, room: int) -> tuple[list[Lease], list[int], bool]:
        """Take what has come for a worker: leases to hand out, ids of those that came too late, whether a setback.

        ``since``: loop time at which the present call began. Whoever gets a lease measures from there.
        """
        leases: list[Lease] = []
        spent: list[int] = []
        had_data_loss = False
        waiting, self._answers = self._answers, []
        for asker, asked, result in waiting:
            if asker != worker or len(leases) + len(result.leases) > max(room, 0):
                self._answers.append((asker, asked, result))
                continue
            had_data_loss |= result.data_loss
            for lease in result.leases:
                within = lease.start_within
                if within is not None and asked < since:
                    within -= since - asked
                if within is not None and within < 0:
                    spent.append(lease.id)
                else:
                    leases.append(msgspec.structs.replace(lease, start_within=within))
        return leases, spent, had_data_loss


def _gave_all_of_a_queue(leases: list[Lease], shares: QueueQuotas | None) -> bool:
    """Tell whether what was to be taken of a queue was there, so that there may be more."""
    if shares is None:
        return False
    counts = Counter(queue_of(lease.slot) for lease in leases)
    return any(count >= share_of(shares, queue, count + 1) for queue, count in counts.items())
