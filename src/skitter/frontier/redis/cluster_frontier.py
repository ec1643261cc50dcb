"""A frontier on a Valkey or Redis Cluster, in partitions on all of its nodes."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import xxhash
from redis.crc import key_slot

from skitter.errors import FrontierError
from skitter.frontier.cluster.frontier import ClusterFrontier
from skitter.frontier.options import FrontierContext, FrontierSettings
from skitter.frontier.redis.address import DEFAULT_PARTITIONS, parse_cluster
from skitter.frontier.redis.cluster import ClusterClient, PartitionConnection, partition_server
from skitter.frontier.redis.frontier import RedisFrontier
from skitter.frontier.redis.job import keys_of
from skitter.frontier.redis.partition import RedisPartition
from skitter.frontier.redis.records import to_words
from skitter.politeness import Politeness


class RedisClusterFrontier(ClusterFrontier):
    """A frontier on the cluster of a URL. The number of partitions is fixed when the job is created.

    Raises :class:`~skitter.errors.FrontierError` for an invalid URL.
    """

    def __init__(
        self, url: str, context: FrontierContext, *, clock: Callable[[], float] | None = None
    ) -> None:
        cluster = ClusterClient(parse_cluster(url))
        source = RedisPartitions(cluster, context, clock)
        super().__init__(source, RedisClusterCatalog(cluster), clock=clock, attach=context.attach)


class RedisPartitions:
    """The partitions of a job on a cluster. Implements :class:`~skitter.frontier.cluster.frontier.PartitionSource`."""

    def __init__(
        self, cluster: ClusterClient, context: FrontierContext, clock: Callable[[], float] | None
    ) -> None:
        self._cluster = cluster
        self._context = context
        self._clock = clock

    async def partitions(self) -> list[RedisPartition]:
        self._check_keys(self._context.options)
        count = self._cluster.address.partitions or await self._count() or DEFAULT_PARTITIONS
        return [self._partition(number, count) for number in range(count)]

    def _partition(self, number: int, count: int) -> RedisPartition:
        job, options = f"{self._context.job}/{number}", self._context.options
        if number:  # the seed keys are on the node of the first partition
            options = msgspec.structs.replace(options, seed_keys=())
        connection = PartitionConnection(self._cluster, keys_of(job)[0])
        frontier = RedisFrontier(
            partition_server(self._cluster, connection),
            msgspec.structs.replace(self._context, job=job, options=options),
            clock=self._clock,
        )
        frontier.job.title = self._context.job
        # A lease id has 63 bits together with the number of its partition.
        frontier.job.lease_id_heads //= count
        return RedisPartition(frontier, connection, f"{number}/{count} {_unit(frontier.politeness)}")

    def _check_keys(self, options: FrontierSettings) -> None:
        job = self._context.job
        first = keys_of(f"{job}/0")[0]
        for key in options.seed_keys:
            if key_slot(key.encode()) != key_slot(first.encode()):
                raise FrontierError(
                    f"seed key {key!r} may be on another node than the first partition of the job",
                    remedy=f"put {{{job}/0}} into the name of every seed key, as in {{{job}/0}}:{key}",
                    field="seed_keys",
                )
        if options.group_counter_prefix is not None:
            raise FrontierError(
                "group_counter_prefix does not work on a cluster: a commit cannot write counters on other nodes",
                remedy="leave group_counter_prefix unset and run `skitter stats JOB --by group`, or use a single server",
                field="group_counter_prefix",
            )

    async def _count(self) -> int:
        """Return the number of partitions of an existing job, 0 if there is none."""
        key = keys_of(f"{self._context.job}/0")[0]
        server = partition_server(self._cluster, PartitionConnection(self._cluster, key))
        await server.connect(patient=self._context.joining)
        if await server.command("TYPE", key) != b"hash":
            return 0
        shape = await server.command("HGET", key, "shape")
        return int(shape.partition(b" ")[0].partition(b"/")[2]) if shape else 0

    async def close(self) -> None:
        await self._cluster.close()

    async def erase(self) -> None:
        """Delete the job from all nodes: the first partition, which knows the number of partitions, comes last."""
        try:
            count = max(self._cluster.address.partitions or 1, await self._count())
            for number in reversed(range(count)):
                await self._partition(number, count).frontier.erase()
        finally:
            await self._cluster.close()


class RedisClusterCatalog:
    """Implements :class:`~skitter.frontier.contract.Catalog`."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    async def jobs(self) -> list[str]:
        pattern = keys_of("*/0")[0]
        head, tail = (part.encode() for part in pattern.split("*"))
        try:
            keys = await self._cluster.keys_like(pattern)
        finally:
            await self._cluster.close()
        return sorted({to_words(key[len(head) : -len(tail)]) for key in keys})


def _unit(politeness: Politeness) -> str:
    """Return the unit of politeness: a text that changes if URLs may get into other slots than before."""
    if all(rule.unit == politeness.unit for rule in politeness.rules):
        return politeness.unit
    kinds = [(rule.domain_glob, rule.domain_regexp, rule.unit) for rule in politeness.rules]
    return f"{politeness.unit}/{xxhash.xxh3_64_hexdigest(repr(kinds).encode())}"
