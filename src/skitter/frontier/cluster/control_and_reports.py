"""The control and the reports of a job in partitions, with its notes and its dead letters.

Each call goes to the partition of its slot or note, to the first partition, or to all partitions.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from heapq import nlargest
from itertools import chain

import msgspec

from skitter._utils.notes import DECISIVE
from skitter.frontier.cluster.background import BackgroundTasks, gather_all
from skitter.frontier.cluster.partitions import PartitionClient, PartitionMap
from skitter.frontier.cluster.state import ClusterState
from skitter.frontier.contract import DeadLetters
from skitter.frontier.options import SettingsChanges
from skitter.frontier.records import DeadLetter, JobState, SlotStatus, VisitsPart, joined_spans
from skitter.frontier.stats import OTHERS, StatsDimension, StatsRow, in_order
from skitter.frontier.workers import WorkerReport, WorkerStatus

_NO_LIMIT = 1_000_000_000


class ClusterControl:
    """Implements :class:`~skitter.frontier.contract.Control`."""

    def __init__(self, partitions: PartitionMap, state: ClusterState) -> None:
        self._partitions = partitions
        self._state = state

    async def set_state(self, state: JobState) -> JobState:
        """Request a state of the job, in every partition."""
        await gather_all(client.frontier.control.set_state(state) for client in self._partitions.clients)
        self._partitions.touch()
        return await self._state.job_state()

    async def pause_slot(self, slot: str, seconds: float) -> None:
        await self._partitions.of_slot(slot).frontier.control.pause_slot(slot, seconds)

    async def set_delay(self, slot: str, seconds: float) -> None:
        client = self._partitions.of_slot(slot)
        await client.frontier.control.set_delay(slot, seconds)
        client.touch()

    async def settings_changes(self) -> SettingsChanges:
        return await self._partitions.first.frontier.control.settings_changes()

    async def change_settings(self, changes: SettingsChanges, reset: bool = False) -> SettingsChanges:
        """Change settings in the first partition, then set the result in the others."""
        first, *others = self._partitions.clients
        changed = await first.frontier.control.change_settings(changes, reset)
        await gather_all(client.frontier.control.change_settings(changed, reset=True) for client in others)
        self._partitions.touch()
        return changed

    async def drop_slot(self, slot: str, ban: bool = False) -> int:
        client = self._partitions.of_slot(slot)
        dropped = await client.frontier.control.drop_slot(slot, ban)
        client.touch()
        return dropped

    async def drop_task(self, task: str) -> int:
        """Remove the waiting requests of a task in every partition; forwarded requests stay."""
        counts = await gather_all(
            client.frontier.control.drop_task(task) for client in self._partitions.clients
        )
        self._partitions.touch()
        return sum(counts)

    async def unban(self, slot: str) -> bool:
        return await self._partitions.of_slot(slot).frontier.control.unban(slot)

    async def banned(self) -> list[str]:
        lists = await gather_all(client.frontier.control.banned() for client in self._partitions.clients)
        return sorted(slot for banned in lists for slot in banned)

    async def recrawl(self) -> bool:
        """Start a finished job again, in the first partition; the others follow, at the latest when the job is opened."""
        if await self._state.job_state() is not JobState.FINISHED:
            return False
        first, *others = (client.partition for client in self._partitions.clients)
        await gather_all(partition.follow_recrawl(0) for partition in others)
        if not await first.recrawl(max((partition.job.recrawls for partition in others), default=0)):
            return False
        await gather_all(partition.follow_recrawl(first.job.recrawls) for partition in others)
        self._partitions.touch()
        return True


class ClusterNotes:
    """Implements :class:`~skitter.frontier.contract.Notes`."""

    def __init__(self, partitions: PartitionMap, tasks: BackgroundTasks) -> None:
        self._partitions = partitions
        self._tasks = tasks

    async def get(self, key: str) -> bytes | None:
        """Return a note; ``None`` also while its partition is unavailable.

        For :data:`~skitter._utils.notes.DECISIVE` notes, the call waits until it is available: if a worker concluded that
        such a note does not exist, it would for example refuse requests to networks that a seed has opened.
        """
        client = self._partitions.of_key(key)
        if key in DECISIVE:
            return await client.frontier.notes.get(key)
        if client.partition.is_away:
            return None
        (task,) = await self._tasks.run([(client.partition, client.frontier.notes.get(key))])
        return task.result() if task.done() else None

    async def put(self, key: str, value: bytes, ttl: float) -> None:
        client = self._partitions.of_key(key)
        await self._tasks.run([(client.partition, client.frontier.notes.put(key, value, ttl))])

    async def compare_and_swap(self, key: str, old: bytes | None, new: bytes, ttl: float) -> bool:
        return await self._partitions.of_key(key).frontier.notes.compare_and_swap(key, old, new, ttl)


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
        if not first.is_away:
            await self._tasks.run([(first, first.frontier.reports.announce(report, ttl))])

    async def workers(self) -> list[WorkerStatus]:
        return await self._partitions.first.frontier.reports.workers()


class ClusterDeadLetters:
    """Implements :class:`~skitter.frontier.contract.DeadLetters`.

    Ids contain the partition. The dead letters of one partition are listed oldest first, those of several partitions
    alternately.
    """

    def __init__(self, partitions: PartitionMap) -> None:
        self._partitions = partitions

    async def list(self, after: int = 0, limit: int = 100) -> list[DeadLetter]:
        size = len(self._partitions)
        lists = await gather_all(
            client.frontier.dead_letters.list(max(0, (after - client.number) // size), limit)
            for client in self._partitions.clients
        )
        letters = [
            msgspec.structs.replace(letter, id=self._partitions.global_id(number, letter.id))
            for number, found in enumerate(lists)
            for letter in found
        ]
        return sorted(letters, key=lambda letter: letter.id)[:limit]

    async def replay(self, ids: Sequence[int] | None = None) -> int:
        return await self._take(ids, lambda letters, local_ids: letters.replay(local_ids))

    async def drop(self, ids: Sequence[int] | None = None) -> int:
        return await self._take(ids, lambda letters, local_ids: letters.drop(local_ids))

    async def drop_superseded(self) -> int:
        return await self._take(None, lambda letters, _: letters.drop_superseded())

    async def _take(
        self,
        ids: Sequence[int] | None,
        take: Callable[[DeadLetters, Sequence[int] | None], Awaitable[int]],
    ) -> int:
        chosen: Mapping[PartitionClient, Sequence[int] | None] = dict.fromkeys(self._partitions.clients)
        if ids is not None:
            chosen = self._partitions.local_ids(ids)
        counts = await gather_all(
            take(client.frontier.dead_letters, local_ids) for client, local_ids in chosen.items()
        )
        self._partitions.touch()
        return sum(counts)


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
