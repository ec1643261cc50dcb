"""Reports of a job in partitions: counts per worker, host and group, committed outputs, visits, announced workers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from heapq import nlargest
from itertools import chain

import msgspec

from skitter.frontier.cluster.background import BackgroundTasks, gather_all
from skitter.frontier.cluster.partitions import PartitionMap
from skitter.frontier.records import SlotStatus, VisitsPart, joined_spans
from skitter.frontier.stats import OTHERS, StatsDimension, StatsRow, in_order
from skitter.frontier.workers import WorkerReport, WorkerStatus

_NO_LIMIT = 1_000_000_000


class ClusterReports:
    """Implements :class:`~skitter.frontier.contract.Reports`."""

    def __init__(self, partitions: PartitionMap, tasks: BackgroundTasks) -> None:
        self._partitions = partitions
        self._tasks = tasks

    async def stats(self, dimension: StatsDimension, limit: int = 100) -> list[StatsRow]:
        found = await gather_all(
            client.frontier.reports.stats(dimension, _NO_LIMIT) for client in self._partitions.clients
        )
        return _aggregate_stats(found, self._partitions.first.job.options.stats_max_keys, limit)

    async def slots(self, limit: int) -> list[SlotStatus]:
        """Return the slots with queued or leased requests, most queued first. Each belongs to one partition."""
        found = await gather_all(client.frontier.reports.slots(limit) for client in self._partitions.clients)
        return nlargest(limit, chain.from_iterable(found), key=lambda slot: slot.queued)

    async def outputs(self) -> dict[str, list[tuple[int, int]]]:
        found = await gather_all(client.frontier.reports.outputs() for client in self._partitions.clients)
        ranges: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for part in found:
            for name, spans in part.items():
                ranges[name] += spans
        return {name: joined_spans(spans) for name, spans in ranges.items()}

    async def visits(self, cursor: str = "", limit: int = 1000) -> VisitsPart:
        """Return some of the remembered pages, partition by partition.

        The cursor begins with the number of the partition.
        """
        number, _, part_cursor = (cursor or "0:").partition(":")
        client = self._partitions.clients[int(number)]
        part = await client.frontier.reports.visits(part_cursor, limit)
        following = int(number) + (not part.cursor)
        is_last = following == len(self._partitions)
        return VisitsPart(part.pages, "" if is_last else f"{following}:{part.cursor}")

    async def announce(self, report: WorkerReport, ttl: float) -> None:
        """Register a worker as alive. Does nothing while the first partition is unavailable."""
        first = self._partitions.first
        if not first.is_unavailable:
            await self._tasks.run([(first, first.frontier.reports.announce(report, ttl))])

    async def workers(self) -> list[WorkerStatus]:
        return await self._partitions.first.frontier.reports.workers()


def _aggregate_stats(found: Iterable[Sequence[StatsRow]], max_keys: int, limit: int) -> list[StatsRow]:
    """Add up the rows of all partitions by key. Beyond ``max_keys``, the smallest rows become one."""
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    for rows in found:
        for row in rows:
            sums[row.key].update(
                {name: value for name, value in msgspec.structs.asdict(row).items() if name != "key"}
            )
    ranked = sorted(
        sums.keys() - {OTHERS}, key=lambda key: sums[key]["pages"] + sums[key]["failed"], reverse=True
    )
    for key in ranked[max_keys:]:
        sums[OTHERS].update(sums.pop(key))
    return in_order((StatsRow(key, **amounts) for key, amounts in sums.items()), limit)
