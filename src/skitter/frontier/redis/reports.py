"""Reports of a Redis frontier: counts per worker, host and group, committed outputs, visits, announced workers."""

from __future__ import annotations

from skitter.frontier.records import SlotStatus, VisitsPart
from skitter.frontier.redis.job import RedisJob
from skitter.frontier.redis.records import (
    SLOTS_BATCH,
    encode,
    read_ranges,
    read_slot,
    read_stats_row,
    read_visit,
    read_worker,
    text,
)
from skitter.frontier.stats import StatsDimension, StatsRow, in_order
from skitter.frontier.workers import WorkerReport, WorkerStatus
from skitter.frontier.workers import in_order as workers_in_order

_SLOTS_AT_ONCE = 500
"""Slots that one script reads, in a few milliseconds."""


class RedisReports:
    """Implements :class:`~skitter.frontier.contract.Reports`."""

    def __init__(self, job: RedisJob) -> None:
        self._job = job

    async def stats(self, dimension: StatsDimension, limit: int = 100) -> list[StatsRow]:
        found = await self._job.command("HGETALL", self._job.key(f"by_{dimension.value}"))
        return in_order((read_stats_row(key, packed) for key, packed in found.items()), limit)

    async def slots(self, limit: int) -> list[SlotStatus]:
        """Return the slots with queued or leased requests, most queued first, some hundred per script."""
        if limit < 1:
            return []
        fullest = await self._job.command("ZRANGE", self._job.key("busy"), 0, limit - 1, "REV")
        names = [text(name) for name in fullest]
        found: list[SlotStatus] = []
        for start in range(0, len(names), _SLOTS_AT_ONCE):
            reply = await self._job.run("slots", encode(names[start : start + _SLOTS_AT_ONCE]))
            found += [read_slot(slot) for slot in reply]
        return found

    async def outputs(self) -> dict[str, list[tuple[int, int]]]:
        return read_ranges(await self._job.run("outputs"))

    async def visits(self, cursor: str = "", limit: int = 1000) -> VisitsPart:
        following, *found = await self._job.run("visits", cursor or "0", min(limit, SLOTS_BATCH))
        pages = [read_visit(key, packed) for key, packed in zip(found[::2], found[1::2], strict=True)]
        return VisitsPart(pages, "" if following == b"0" else following.decode())

    async def announce(self, report: WorkerReport, ttl: float) -> None:
        await self._job.run("announce", report.name, encode(report), ttl)

    async def workers(self) -> list[WorkerStatus]:
        return workers_in_order(read_worker(packed) for packed in await self._job.run("workers"))
