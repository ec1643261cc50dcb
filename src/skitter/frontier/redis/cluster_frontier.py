"""Cluster frontier: one job on a Valkey or Redis Cluster, in partitions that lie on all of its nodes."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import xxhash

from skitter.frontier.base import FrontierContext, FrontierOptions, Limits
from skitter.frontier.partitions.frontier import PartitionedFrontier
from skitter.frontier.redis.cluster import Cluster
from skitter.frontier.redis.cluster_address import parse_cluster
from skitter.frontier.redis.partition import RedisPartition
from skitter.politeness import Politeness


class RedisClusterFrontier(PartitionedFrontier):
    """A frontier on a cluster; the number of partitions is fixed when the job is begun.

    ``patient``: also :meth:`open` waits for nodes that are away, as every other call does.
    """

    def __init__(
        self,
        url: str,
        job: str,
        politeness: Politeness | None = None,
        options: FrontierOptions | None = None,
        *,
        clock: Callable[[], float] | None = None,
        patient: bool = False,
    ) -> None:
        politeness = politeness if politeness is not None else Politeness()
        options = options if options is not None else FrontierOptions()
        address = parse_cluster(url)
        self._cluster = Cluster(address)
        # A partition cannot know what the others have used of a limit.
        own = msgspec.structs.replace(options, limits=Limits())

        def partition(number: int) -> RedisPartition:
            shape = f"{number}/{address.partitions} {_slots_of(politeness)}"
            return RedisPartition(
                self._cluster, job, number, shape, politeness, own, clock=clock, patient=patient
            )

        self._partition = partition
        self._parts = [partition(number) for number in range(address.partitions)]
        super().__init__(self._parts, options, clock=clock)

    @classmethod
    def from_url(cls, url: str, context: FrontierContext) -> RedisClusterFrontier:
        """Build the frontier that ``redis+cluster:`` or ``rediss+cluster:`` names."""
        return cls(url, context.job, context.politeness, context.options, patient=context.joining)

    async def close(self) -> None:
        """Disconnect. Leases stay what they are."""
        await super().close()
        await self._cluster.close()

    async def erase(self) -> None:
        """Remove the job from all nodes, before it is opened; the first partition, which tells how many, comes last."""
        try:
            shape = await self._parts[0].shape_there()
            count = max(len(self._parts), int(shape.partition(" ")[0].partition("/")[2] or 0))
            for number in reversed(range(count)):
                await self._partition(number).erase()
        finally:
            await self._cluster.close()


def _slots_of(politeness: Politeness) -> str:
    """Return what changes if URLs may come into other slots, and so into other partitions, than before."""
    if all(rule.unit == politeness.unit for rule in politeness.rules):
        return politeness.unit
    kinds = [(rule.domain_glob, rule.domain_regexp, rule.unit) for rule in politeness.rules]
    return f"{politeness.unit}/{xxhash.xxh3_64_hexdigest(repr(kinds).encode())}"
