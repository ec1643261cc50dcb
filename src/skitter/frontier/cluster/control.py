"""Control of a job in partitions: state of the job, pauses, delays, bans, drops and changed settings."""

from __future__ import annotations

from skitter.frontier.cluster.background import gather_all
from skitter.frontier.cluster.partitions import PartitionMap
from skitter.frontier.cluster.state import ClusterState
from skitter.frontier.options import SettingsChanges
from skitter.frontier.records import JobState


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

    async def change_settings(self, changes: SettingsChanges, *, reset: bool = False) -> SettingsChanges:
        """Change settings in the first partition, then set the result in the others."""
        first, *others = self._partitions.clients
        changed = await first.frontier.control.change_settings(changes, reset=reset)
        await gather_all(client.frontier.control.change_settings(changed, reset=True) for client in others)
        self._partitions.touch()
        return changed

    async def drop_slot(self, slot: str, *, ban: bool = False) -> int:
        client = self._partitions.of_slot(slot)
        dropped = await client.frontier.control.drop_slot(slot, ban=ban)
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
