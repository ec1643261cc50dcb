"""Control of a Redis frontier: state of the job, pauses, delays, bans, drops and changed settings."""

from __future__ import annotations

from skitter.frontier.options import SettingsChanges
from skitter.frontier.records import JobState, TaskFilter
from skitter.frontier.redis.job import RedisJob
from skitter.frontier.redis.records import encode, record_of, text, to_bytes, to_words
from skitter.queues import slot_in, without_queue


class RedisControl:
    """Implements :class:`~skitter.frontier.contract.Control`."""

    def __init__(self, job: RedisJob) -> None:
        self._job = job

    async def set_state(self, state: JobState) -> JobState:
        return JobState((await self._job.run("set_state", state.value)).decode())

    async def pause_slot(self, slot: str, seconds: float) -> None:
        await self._job.run("pause_slot", to_bytes(slot), self._job.config.policy_of(slot), seconds)

    async def set_delay(self, slot: str, seconds: float) -> None:
        await self._job.run("set_delay", to_bytes(slot), self._job.config.policy_of(slot), seconds)

    async def settings_changes(self) -> SettingsChanges:
        return await self._job.changes()

    async def change_settings(self, changes: SettingsChanges, *, reset: bool = False) -> SettingsChanges:
        return await self._job.change(changes, reset=reset)

    async def drop_slot(self, slot: str, *, ban: bool = False) -> int:
        """Remove the waiting requests of a slot, some hundred per script."""
        if ban:
            await self._job.run_once("ban", to_bytes(slot), "1")
        names = [slot]
        if without_queue(slot) == slot:
            # All queues that the job ever had, without the default queue.
            queues = await self._job.command("HGET", self._job.key("job"), "queues") or b""
            names += [slot_in(queue.decode(), slot) for queue in queues.split(b",") if queue]
        return sum([await self._drop(name) for name in names])

    async def _drop(self, slot: str) -> int:
        dropped, cursor, more = 0, b"0", b"1"
        while more == b"1":
            reply = await self._job.run_once("drop_slot", to_bytes(slot), cursor)
            count, cursor, more = reply.split()
            dropped += int(count)
        return dropped

    async def drop_task(self, task: str) -> int:
        """Remove the waiting requests of a task. The server returns candidates; the exact match is made here."""
        task_filter, dropped = TaskFilter(task), 0
        for part in ("queue", "delayed"):
            cursor = b""
            while True:
                cursor, found = await self._job.run("find_requests", part, cursor, task_filter.trace)
                matches = [text(request) for request in found if task_filter.matches(record_of(request))]
                if matches:
                    dropped += int(await self._job.run_once("remove_requests", encode(matches)))
                if not cursor:
                    break
        return dropped

    async def unban(self, slot: str) -> bool:
        return await self._job.run_once("ban", to_bytes(slot), "0") == b"1"

    async def banned(self) -> list[str]:
        return sorted(to_words(slot) for slot in await self._job.command("SMEMBERS", self._job.key("banned")))

    async def recrawl(self) -> bool:
        return await self._job.recrawl()
