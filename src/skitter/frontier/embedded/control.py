"""Control of an embedded frontier: state of the job, pauses, delays, bans, drops and changed settings."""

from __future__ import annotations

import msgspec

from skitter.frontier.embedded.job import EmbeddedJob
from skitter.frontier.embedded.journal import Journal
from skitter.frontier.embedded.reports import EmbeddedReports
from skitter.frontier.embedded.requests import RequestTable
from skitter.frontier.embedded.scheduler import Slot, SlotScheduler
from skitter.frontier.options import SettingsChanges
from skitter.frontier.records import JobState, TaskFilter
from skitter.politeness import Politeness


class EmbeddedControl:
    """Changes the course of a job. Implements :class:`~skitter.frontier.contract.Control`."""

    def __init__(
        self,
        journal: Journal,
        job: EmbeddedJob,
        slots: SlotScheduler,
        requests: RequestTable,
        reports: EmbeddedReports,
        politeness: Politeness,
    ) -> None:
        self._journal = journal
        self._job = job
        self._slots = slots
        self._requests = requests
        self._reports = reports
        self._politeness = politeness

    async def set_state(self, state: JobState) -> JobState:
        self._job.state = state
        self._job.write()
        await self._journal.flush()
        return self._requests.current_state()

    async def pause_slot(self, slot: str, seconds: float) -> None:
        paused = self._slots.get(slot)
        self._slots.pause(paused, self._job.clock() + seconds)
        await self._write_limits(paused)

    async def set_delay(self, slot: str, seconds: float) -> None:
        slowed = self._slots.get(slot)
        self._slots.set_min_delay(slowed, seconds, self._job.clock())
        await self._write_limits(slowed)

    async def _write_limits(self, slot: Slot) -> None:
        self._requests.write_limits(slot)
        await self._journal.flush()

    async def settings_changes(self) -> SettingsChanges:
        return self._job.changes

    async def change_settings(self, changes: SettingsChanges, *, reset: bool = False) -> SettingsChanges:
        self.apply(changes if reset else changes.over(self._job.changes))
        self._journal.put("set_changes", 1, (1, msgspec.msgpack.encode(self._job.changes)))
        await self._journal.flush()
        return self._job.changes

    def apply(self, changes: SettingsChanges) -> None:
        """Put changed settings into force."""
        self._job.apply(changes)
        self._slots.set_policies(changes.of_politeness(self._politeness).limits_of, self._job.clock())

    async def drop_slot(self, slot: str, *, ban: bool = False) -> int:
        if ban:
            await self._set_ban(slot, banned=True)
        return await self._requests.drop_slot(slot)

    async def drop_task(self, task: str) -> int:
        return await self._requests.drop_task(TaskFilter(task))

    async def unban(self, slot: str) -> bool:
        was_banned = slot in self._job.banned
        if was_banned:
            await self._set_ban(slot, banned=False)
        return was_banned

    async def _set_ban(self, slot: str, *, banned: bool) -> None:
        if banned:
            self._job.banned.add(slot)
        else:
            self._job.banned.discard(slot)
            self._job.revision += 1
        self._journal.put("set_ban", slot, (slot, int(banned)))
        await self._journal.flush()

    async def banned(self) -> list[str]:
        return sorted(self._job.banned)

    async def recrawl(self) -> bool:
        async with self._requests.adding:  # requests that are added in the meantime belong to the new pass
            if self._requests.current_state() is not JobState.FINISHED:
                return False
            await self._begin_pass(self._job.pass_number + 1)
        await self._journal.flush()
        return True

    async def _begin_pass(self, number: int) -> None:
        forgets = self._job.options.visited_ttl is None
        remembers = self._job.options.changes is not None
        if forgets:
            await self._requests.seen.stop()
        await self._journal.change(
            lambda tables: tables.begin_pass(number, forget_fingerprints=forgets, forget_outputs=remembers)
        )
        self._job.pass_number = number
        self._job.revision += 1
        if forgets:
            self._requests.seen.clear()
        if remembers:
            self._reports.forget_outputs()
        self._job.seeds.restart()
        self._job.write()
