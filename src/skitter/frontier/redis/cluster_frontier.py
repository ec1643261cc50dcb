"""ClusterClient frontier: one job on a Valkey or Redis ClusterClient, in partitions that lie on all of its nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import xxhash
from redis.crc import key_slot

from skitter.errors import FrontierError
from skitter.frontier.cluster.frontier import PartitionedFrontier
from skitter.frontier.flat import optional
from skitter.frontier.options import FrontierOptions
from skitter.frontier.records import Entry, JobInfo, SeedBatch
from skitter.frontier.redis.by_url import ByUrl
from skitter.frontier.redis.cluster import ClusterClient, PartitionServer
from skitter.frontier.redis.cluster_address import PARTITIONS, parse_cluster
from skitter.frontier.redis.keys import keys_of
from skitter.frontier.redis.partition import RedisPartition
from skitter.frontier.redis.records import to_words
from skitter.politeness import Politeness


class RedisClusterFrontier(ByUrl, PartitionedFrontier):
    """A frontier on a cluster; the number of partitions is fixed when the job is begun.

    ``patient``: also :meth:`open` waits for nodes that are away, as every other call does. ``attach``: take
    the job as it is, its options included, and refuse to begin one.
    """

    seed_keys = optional("seed_keys")
    catalog = optional("catalog")

    def __init__(
        self,
        url: str,
        job: str,
        politeness: Politeness | None = None,
        options: FrontierOptions | None = None,
        *,
        clock: Callable[[], float] | None = None,
        patient: bool = False,
        attach: bool = False,
    ) -> None:
        super().__init__(clock, attach=attach)
        self._address = parse_cluster(url)
        self._cluster = ClusterClient(self._address)
        self._job = job
        self._rules = politeness if politeness is not None else Politeness()
        self._options = options if options is not None else FrontierOptions()
        self._given_clock = clock
        self._patient = patient
        self._partitions: list[RedisPartition] = []

    def _partition(self, number: int, partitions: int) -> RedisPartition:
        options = self._options if number == 0 else msgspec.structs.replace(self._options, seed_keys=())
        return RedisPartition(
            self._cluster, self._job, number, partitions, _slots_of(self._rules), self._rules, options,
            clock=self._given_clock, patient=self._patient, attach=self._attach,
        )  # fmt: skip

    # --- opening and closing ---------------------------------------------------------------------------

    async def open(self) -> JobInfo:
        """Create the job on the cluster, or join it. Raises :class:`~skitter.errors.FrontierError`."""
        try:
            self._check_keys()
            count = self._address.partitions or await self._partitions_there() or PARTITIONS
            self._partitions = [self._partition(number, count) for number in range(count)]
            self._arrange(self._partitions)
            return await super().open()
        except BaseException:
            await self.close()
            raise

    def _check_keys(self) -> None:
        home = keys_of(f"{self._job}/0")[0]
        for key in self._options.seed_keys:
            if key_slot(key.encode()) != key_slot(home.encode()):
                raise FrontierError(
                    f"seed key {key!r} may lie on another node than the head of the job",
                    remedy=f"put {{{self._job}/0}} into the name of every seed key, as in {{{self._job}/0}}:{key}",
                )
        if self._options.group_counter_prefix is not None:
            raise FrontierError(
                "plain counters per task would lie on all nodes of a cluster, out of reach of a commit",
                remedy="leave group_counter_prefix out, and see `skitter counters JOB --by task`, or use a server that stands alone",
            )

    async def _partitions_there(self) -> int:
        """Return how many partitions the job has, 0 if there is none."""
        head = keys_of(f"{self._job}/0")[0]
        server = PartitionServer(self._cluster, head)
        await server.connect(patient=self._patient)
        if await server.command("TYPE", head) != b"hash":
            return 0
        shape = await server.command("HGET", head, "shape")
        return int(shape.partition(b" ")[0].partition(b"/")[2]) if shape else 0

    async def close(self) -> None:
        """Disconnect. Leases stay what they are."""
        if self._partitions:
            await super().close()
        await self._cluster.close()

    async def erase(self) -> None:
        """Remove the job from all nodes, before it is opened; the first partition, which tells how many, comes last."""
        try:
            count = max(self._address.partitions or 1, await self._partitions_there())
            for number in reversed(range(count)):
                await self._partition(number, count).erase()
        finally:
            await self._cluster.close()

    async def jobs(self) -> list[str]:
        """List all jobs of the cluster, by name; the frontier need not be open."""
        head, tail = (part.encode() for part in keys_of("*/0")[0].split("*"))
        found: set[str] = set()
        try:
            for key in await self._cluster.keys_like(keys_of("*/0")[0]):
                found.add(to_words(key[len(head) : -len(tail)]))
        finally:
            await self._cluster.close()
        return sorted(found)

    # --- seeds from outside --------------------------------------------------------------------------------

    async def take_seeds(self, limit: int) -> SeedBatch | None:
        """Take elements out of the seed keys, which lie beside the first partition."""
        return await self._partitions[0].take_seeds(limit)

    async def settle_seeds(
        self, token: int, entries: Sequence[Entry], rejected: Sequence[tuple[Entry, str]]
    ) -> bool:
        """Turn a batch into requests and dead letters."""
        own, parcels = self._parted(entries, 0)
        settled = await self._partitions[0].settle_with(token, own, rejected, parcels)
        self._parts.touch()
        if settled:
            await self._courier.send([(0, parcel) for parcel in parcels])
        return settled


def _slots_of(politeness: Politeness) -> str:
    """Return what changes if URLs may come into other slots than before."""
    if all(rule.unit == politeness.unit for rule in politeness.rules):
        return politeness.unit
    kinds = [(rule.domain_glob, rule.domain_regexp, rule.unit) for rule in politeness.rules]
    return f"{politeness.unit}/{xxhash.xxh3_64_hexdigest(repr(kinds).encode())}"
