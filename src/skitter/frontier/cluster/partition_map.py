"""PartitionMap: the partitions of a job, and which of them has what."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import xxhash

from skitter.frontier.cluster.client import PartitionClient
from skitter.frontier.cluster.partition import Partition
from skitter.queues import without_queue


class PartitionMap:
    """All lanes of one frontier, by number. The first partition also has what belongs to the job as a whole."""

    def __init__(self, partitions: Sequence[Partition], clock: Callable[[], float]) -> None:
        self.lanes = [
            PartitionClient(number, partition, clock) for number, partition in enumerate(partitions)
        ]
        self.home = partitions[0]

    def __len__(self) -> int:
        return len(self.lanes)

    def outer(self, lane: int, inner: int) -> int:
        """Return the id, for others, of a lease or a dead letter of a partition."""
        return inner * len(self.lanes) + lane

    def by_lane(self, ids: Iterable[int]) -> dict[PartitionClient, list[int]]:
        """Return ids as their partitions know them."""
        sorted_ids: dict[PartitionClient, list[int]] = defaultdict(list)
        for number in ids:
            inner, lane = divmod(number, len(self.lanes))
            sorted_ids[self.lanes[lane]].append(inner)
        return sorted_ids

    def of_slot(self, slot: str) -> PartitionClient:
        """Return the lane of a slot. A host is in one lane, whatever queue: there it is known whether it is banned."""
        return self.of_note(without_queue(slot))

    def of_note(self, key: str) -> PartitionClient:
        """Return the lane of a note."""
        # A change of this function is a change of the format.
        digest = xxhash.xxh3_64_intdigest(key.encode("utf-8", "surrogatepass"))
        return self.lanes[digest % len(self.lanes)]

    def touch(self) -> None:
        """Take note that there may be something new in any of them."""
        for lane in self.lanes:
            lane.touch()
