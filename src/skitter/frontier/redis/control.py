"""Steering: what people and workers tell a job on a server, and ask of it, beside its requests."""

from __future__ import annotations

from skitter.frontier.group_filter import GroupFilter
from skitter.frontier.options import SettingsChanges
from skitter.frontier.records import JobState
from skitter.frontier.redis.job import RedisJob
from skitter.frontier.redis.keys import BANNED, JOB, TALLIES
from skitter.frontier.redis.records import (
    encode,
    read_tally,
    read_worker,
    record_of,
    text,
    to_bytes,
    to_words,
)
from skitter.frontier.redis.server import RedisServer
from skitter.frontier.stats import StatsGroup, StatsRow, in_order
from skitter.frontier.workers import WorkerReport, WorkerStatus
from skitter.frontier.workers import in_order as workers_in_order
from skitter.queues import slot_in, without_queue


class Steering:
    """State, slots, workers, tallies, changed settings and banned hosts of a job."""

    _job: RedisJob
    _server: RedisServer

    async def set_state(self, state: JobState) -> JobState:
        """Set what the fleet is to do."""
        return JobState((await self._job.run("control", state.value)).decode())

    async def hold(self, slot: str, seconds: float) -> None:
        """Give out nothing of a slot for so long."""
        await self._job.run("hold", to_bytes(slot), self._job.config.policy_of(slot), seconds)

    async def set_delay(self, slot: str, seconds: float) -> None:
        """Set the smallest delay of one slot."""
        await self._job.run("set_delay", to_bytes(slot), self._job.config.policy_of(slot), seconds)

    async def tallies(self, group: StatsGroup, limit: int = 100) -> list[StatsRow]:
        """Read what was counted per worker, host or task."""
        found = await self._server.command("HGETALL", self._job.keys[TALLIES[group]])
        return in_order((read_tally(key, packed) for key, packed in found.items()), limit)

    async def announce(self, report: WorkerReport, ttl: float) -> None:
        """Tell that a worker is there."""
        await self._job.run("announce", report.name, encode(report), ttl)

    async def workers(self) -> list[WorkerStatus]:
        """List the workers alive."""
        return workers_in_order(read_worker(packed) for packed in await self._job.run("workers"))

    async def changes(self) -> SettingsChanges:
        """Return the settings that were changed while the job ran."""
        return await self._job.changes()

    async def change(self, changes: SettingsChanges, reset: bool = False) -> SettingsChanges:
        """Change settings at once."""
        return await self._job.change(changes, reset=reset)

    async def drop_slot(self, slot: str, ban: bool = False) -> int:
        """Remove what waits in a slot, some hundred requests a script."""
        if ban:
            await self._job.run_once("ban", to_bytes(slot), "1")
        names = [slot]
        if without_queue(slot) == slot:
            names += [slot_in(queue, slot) for queue in await self._queues()]
        return sum([await self._drop(name) for name in names])

    async def _queues(self) -> list[str]:
        """Return the names of all queues that the job ever had beside the default one."""
        names = await self._server.command("HGET", self._job.keys[JOB], "queues")
        return [name.decode() for name in (names or b"").split(b",") if name]

    async def _drop(self, slot: str) -> int:
        dropped, cursor, more = 0, b"0", b"1"
        while more == b"1":
            answer = await self._job.run_once("drop_slot", to_bytes(slot), cursor)
            count, cursor, more = answer.split()
            dropped += int(count)
        return dropped

    async def drop_task(self, task: str) -> int:
        """Remove what waits of a task. The server finds what may be meant, here it is read."""
        mark, dropped = GroupFilter(task), 0
        for part in ("queue", "delayed"):
            place, is_begun = b"", False
            while place or not is_begun:
                is_begun = True
                place, found = await self._job.run("sift", part, place, mark.trace)
                meant = [text(request) for request in found if mark.is_on(record_of(request))]
                if meant:
                    dropped += int(await self._job.run_once("take_away", encode(meant)))
        return dropped

    async def unban(self, slot: str) -> bool:
        """Take requests for a slot again."""
        return await self._job.run_once("ban", to_bytes(slot), "0") == b"1"

    async def banned(self) -> list[str]:
        """List the banned slots."""
        return sorted(
            to_words(slot) for slot in await self._server.command("SMEMBERS", self._job.keys[BANNED])
        )
