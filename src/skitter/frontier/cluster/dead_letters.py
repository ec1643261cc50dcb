"""Dead letters and notes of a job in partitions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from skitter._utils.notes import DECISIVE
from skitter.frontier.cluster.background import BackgroundTasks, gather_all
from skitter.frontier.cluster.partitions import PartitionClient, PartitionMap
from skitter.frontier.contract import DeadLetters
from skitter.frontier.records import DeadLetter


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


class ClusterNotes:
    """Implements :class:`~skitter.frontier.contract.Notes`."""

    def __init__(self, partitions: PartitionMap, tasks: BackgroundTasks) -> None:
        self._partitions = partitions
        self._tasks = tasks

    async def get(self, key: str) -> bytes | None:
        """Return a note; ``None`` if it does not exist, or while its partition is unavailable.

        For :data:`~skitter._utils.notes.DECISIVE` notes, the call waits until it is available: if a worker concluded that
        such a note does not exist, it would for example refuse requests to networks that a seed has opened.
        """
        client = self._partitions.of_key(key)
        if key in DECISIVE:
            return await client.frontier.notes.get(key)
        if client.partition.is_unavailable:
            return None
        (task,) = await self._tasks.run([(client.partition, client.frontier.notes.get(key))])
        return task.result() if task.done() else None

    async def put(self, key: str, value: bytes, ttl: float) -> None:
        client = self._partitions.of_key(key)
        await self._tasks.run([(client.partition, client.frontier.notes.put(key, value, ttl))])

    async def compare_and_swap(self, key: str, old: bytes | None, new: bytes, ttl: float) -> bool:
        return await self._partitions.of_key(key).frontier.notes.compare_and_swap(key, old, new, ttl)
