"""Steering: what people and workers tell a job in partitions, and ask of it, beside its requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from skitter.frontier.cluster.aggregate import whole_letters, whole_outputs, whole_tallies
from skitter.frontier.cluster.background import BackgroundTasks, gather_all
from skitter.frontier.cluster.client import PartitionClient
from skitter.frontier.cluster.partition import Partition
from skitter.frontier.cluster.partition_map import PartitionMap
from skitter.frontier.options import SettingsChanges
from skitter.frontier.records import DeadLetter
from skitter.frontier.stats import StatsGroup, StatsRow
from skitter.frontier.workers import WorkerReport, WorkerStatus

_ALL = 1_000_000_000


class PartitionedSteering:
    """Each call goes to the partition that has its slot, to the first one, or to all."""

    _parts: PartitionMap
    _errands: BackgroundTasks

    # --- one slot, or one note ---------------------------------------------------------------------------

    async def hold(self, slot: str, seconds: float) -> None:
        """Give out nothing of a slot for so long."""
        await self._parts.of_slot(slot).partition.control.pause_slot(slot, seconds)

    async def set_delay(self, slot: str, seconds: float) -> None:
        """Set the smallest delay of one slot."""
        lane = self._parts.of_slot(slot)
        await lane.partition.control.set_delay(slot, seconds)
        lane.touch()

    async def drop_slot(self, slot: str, ban: bool = False) -> int:
        """Remove what waits in a slot."""
        lane = self._parts.of_slot(slot)
        dropped = await lane.partition.control.drop_slot(slot, ban)
        lane.touch()
        return dropped

    async def unban(self, slot: str) -> bool:
        """Take requests for a slot again."""
        return await self._parts.of_slot(slot).partition.control.unban(slot)

    async def banned(self) -> list[str]:
        """List the banned slots."""
        lists = await gather_all(lane.partition.control.banned() for lane in self._parts.lanes)
        return sorted(slot for banned in lists for slot in banned)

    async def recall(self, key: str) -> bytes | None:
        """Read a shared note; none is found where a partition is away."""
        lane = self._parts.of_note(key)
        if lane.partition.is_away:
            return None
        task = self._errands.start(lane.partition.notes.get(key))
        await self._errands.wait({task: lane.partition})
        note: bytes | None = task.result() if task.done() else None
        return note

    async def remember(self, key: str, value: bytes, ttl: float) -> None:
        """Keep a shared note."""
        lane = self._parts.of_note(key)
        task = self._errands.start(lane.partition.notes.put(key, value, ttl))
        await self._errands.wait({task: lane.partition})

    async def swap(self, key: str, old: bytes | None, new: bytes, ttl: float) -> bool:
        """Keep a shared note if it is as it was read."""
        return await self._parts.of_note(key).partition.notes.compare_and_swap(key, old, new, ttl)

    # --- the job as a whole --------------------------------------------------------------------------------

    async def announce(self, report: WorkerReport, ttl: float) -> None:
        """Tell that a worker is there. Not waited for where the first partition is away."""
        home = self._parts.home
        if not home.is_away:
            await self._errands.wait({self._errands.start(home.reports.announce(report, ttl)): home})

    async def workers(self) -> list[WorkerStatus]:
        """List the workers alive."""
        return await self._parts.home.reports.workers()

    async def changes(self) -> SettingsChanges:
        """Return the settings that were changed while the job ran."""
        return await self._parts.home.control.settings_changes()

    async def change(self, changes: SettingsChanges, reset: bool = False) -> SettingsChanges:
        """Change settings at once, in the first partition and then in the others as they are there."""
        changed = await self._parts.home.control.change_settings(changes, reset)
        await gather_all(
            lane.partition.control.change_settings(changed, reset=True) for lane in self._parts.lanes[1:]
        )
        self._parts.touch()
        return changed

    async def drop_task(self, task: str) -> int:
        """Remove what waits of a task in every partition; what is on its way to another one is left."""
        counts = await gather_all(lane.partition.control.drop_group(task) for lane in self._parts.lanes)
        self._parts.touch()
        return sum(counts)

    async def tallies(self, group: StatsGroup, limit: int = 100) -> list[StatsRow]:
        """Read what was counted per worker, host or task."""
        found = await gather_all(lane.partition.reports.stats(group, _ALL) for lane in self._parts.lanes)
        return whole_tallies(found, self._parts.home.options.stats_max_keys, limit)

    async def outputs(self) -> dict[str, list[tuple[int, int]]]:
        """Return committed byte ranges of each part file."""
        return whole_outputs(await gather_all(lane.partition.reports.outputs() for lane in self._parts.lanes))

    # --- dead letters --------------------------------------------------------------------------------------

    async def list_dead_letters(self, after: int = 0, limit: int = 100) -> list[DeadLetter]:
        """List requests given up by their ids: those of one partition oldest first, those of all in turn."""
        size = len(self._parts)
        lists = await gather_all(
            lane.partition.dead_letters.list(max(0, (after - lane.number) // size), limit)
            for lane in self._parts.lanes
        )
        return whole_letters(self._parts, lists, limit)

    async def replay(self, ids: Sequence[int] | None = None) -> int:
        """Put dead letters back in the queue."""
        return await self._exhume(ids, lambda partition, inner: partition.dead_letters.replay(inner))

    async def drop(self, ids: Sequence[int] | None = None) -> int:
        """Forget dead letters."""
        return await self._exhume(ids, lambda partition, inner: partition.dead_letters.drop(inner))

    async def _exhume(
        self, ids: Sequence[int] | None, exhume: Callable[[Partition, list[int] | None], Awaitable[int]]
    ) -> int:
        chosen: dict[PartitionClient, list[int] | None] = dict.fromkeys(self._parts.lanes)
        if ids is not None:
            chosen = dict(self._parts.by_lane(ids))
        counts = await gather_all(exhume(lane.partition, inner) for lane, inner in chosen.items())
        self._parts.touch()
        return sum(counts)
