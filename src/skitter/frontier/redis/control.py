"""The parts of a Redis frontier other than the queue: control, reports, notes and dead letters."""

from __future__ import annotations

from collections.abc import Sequence

from skitter.frontier.group_filter import GroupFilter
from skitter.frontier.options import SettingsChanges
from skitter.frontier.records import DeadLetter, JobState
from skitter.frontier.redis.job import RedisJob
from skitter.frontier.redis.records import (
    LEASES_BATCH,
    encode,
    known_numbers,
    read_dead_letter,
    read_ranges,
    read_stats_row,
    read_worker,
    record_of,
    text,
    to_bytes,
    to_words,
)
from skitter.frontier.stats import StatsGroup, StatsRow, in_order
from skitter.frontier.workers import WorkerReport, WorkerStatus
from skitter.frontier.workers import in_order as workers_in_order
from skitter.queues import slot_in, without_queue


class RedisControl:
    """Implements :class:`~skitter.frontier.contract.Control`."""

    def __init__(self, job: RedisJob) -> None:
        self._job = job

    async def set_state(self, state: JobState) -> JobState:
        """Request a state of the job."""
        return JobState((await self._job.run("set_state", state.value)).decode())

    async def pause_slot(self, slot: str, seconds: float) -> None:
        """Lease nothing from a slot for some time."""
        await self._job.run("pause_slot", to_bytes(slot), self._job.config.policy_of(slot), seconds)

    async def set_delay(self, slot: str, seconds: float) -> None:
        """Set the minimum delay of one slot."""
        await self._job.run("set_delay", to_bytes(slot), self._job.config.policy_of(slot), seconds)

    async def settings_changes(self) -> SettingsChanges:
        """Return the settings that were changed while the job ran."""
        return await self._job.changes()

    async def change_settings(self, changes: SettingsChanges, reset: bool = False) -> SettingsChanges:
        """Change settings at once."""
        return await self._job.change(changes, reset=reset)

    async def drop_slot(self, slot: str, ban: bool = False) -> int:
        """Remove the waiting requests of a slot, some hundred per script."""
        if ban:
            await self._job.run_once("ban", to_bytes(slot), "1")
        names = [slot]
        if without_queue(slot) == slot:
            names += [slot_in(queue, slot) for queue in await self._queues()]
        return sum([await self._drop(name) for name in names])

    async def _queues(self) -> list[str]:
        """Return the names of all queues that the job ever had, without the default queue."""
        names = await self._job.command("HGET", self._job.key("job"), "queues")
        return [name.decode() for name in (names or b"").split(b",") if name]

    async def _drop(self, slot: str) -> int:
        dropped, cursor, more = 0, b"0", b"1"
        while more == b"1":
            answer = await self._job.run_once("drop_slot", to_bytes(slot), cursor)
            count, cursor, more = answer.split()
            dropped += int(count)
        return dropped

    async def drop_group(self, group: str) -> int:
        """Remove the waiting requests of a group. The server returns candidates; the exact match is made here."""
        group_filter, dropped = GroupFilter(group), 0
        for part in ("queue", "delayed"):
            cursor, is_started = b"", False
            while cursor or not is_started:
                is_started = True
                cursor, found = await self._job.run("find_requests", part, cursor, group_filter.trace)
                matches = [text(request) for request in found if group_filter.is_on(record_of(request))]
                if matches:
                    dropped += int(await self._job.run_once("remove_requests", encode(matches)))
        return dropped

    async def unban(self, slot: str) -> bool:
        """Accept requests for a slot again."""
        return await self._job.run_once("ban", to_bytes(slot), "0") == b"1"

    async def banned(self) -> list[str]:
        """List the banned slots."""
        return sorted(to_words(slot) for slot in await self._job.command("SMEMBERS", self._job.key("banned")))

    async def recrawl(self) -> bool:
        """Start a finished job again."""
        recrawls = int(await self._job.run_once("recrawl"))
        if recrawls:
            self._job.recrawls = recrawls
        return recrawls > 0


class RedisReports:
    """Implements :class:`~skitter.frontier.contract.Reports`."""

    def __init__(self, job: RedisJob) -> None:
        self._job = job

    async def stats(self, group: StatsGroup, limit: int = 100) -> list[StatsRow]:
        """Return the counts per worker, host or request group."""
        found = await self._job.command("HGETALL", self._job.key(f"by_{group.value}"))
        return in_order((read_stats_row(key, packed) for key, packed in found.items()), limit)

    async def outputs(self) -> dict[str, list[tuple[int, int]]]:
        """Return the committed byte ranges of each part file."""
        return read_ranges(await self._job.run("outputs"))

    async def announce(self, report: WorkerReport, ttl: float) -> None:
        """Register a worker as alive."""
        await self._job.run("announce", report.name, encode(report), ttl)

    async def workers(self) -> list[WorkerStatus]:
        """List the live workers."""
        return workers_in_order(read_worker(packed) for packed in await self._job.run("workers"))


class RedisNotes:
    """Implements :class:`~skitter.frontier.contract.Notes`."""

    def __init__(self, job: RedisJob) -> None:
        self._job = job

    async def get(self, key: str) -> bytes | None:
        """Return a note."""
        note: bytes | None = await self._job.run("get_note", to_bytes(key))
        return note

    async def put(self, key: str, value: bytes, ttl: float) -> None:
        """Store a note."""
        await self._job.run("put_note", to_bytes(key), value, ttl)

    async def compare_and_swap(self, key: str, old: bytes | None, new: bytes, ttl: float) -> bool:
        """Store a note if the present one is ``old``."""
        arguments = (to_bytes(key), int(old is not None), old or b"", new, ttl)
        return bool(await self._job.run("compare_and_swap_note", *arguments))


class RedisDeadLetters:
    """Implements :class:`~skitter.frontier.contract.DeadLetters`."""

    def __init__(self, job: RedisJob) -> None:
        self._job = job

    async def list(self, after: int = 0, limit: int = 100) -> list[DeadLetter]:
        """List dead letters, oldest first."""
        return [read_dead_letter(data) for data in await self._job.run("dead_letters", after, limit)]

    async def replay(self, ids: Sequence[int] | None = None) -> int:
        """Put dead letters back in the queue."""
        return await self._take("replay", ids)

    async def drop(self, ids: Sequence[int] | None = None) -> int:
        """Delete dead letters."""
        return await self._take("drop_dead_letters", ids)

    async def _take(self, script: str, ids: Sequence[int] | None) -> int:
        """Return the number of replayed or deleted letters: the second number of the script's answer."""
        if ids is None:
            return await self._take_all(script)
        numbers = known_numbers(ids)
        settled = 0
        for start in range(0, len(numbers), LEASES_BATCH):
            chosen = encode(numbers[start : start + LEASES_BATCH])
            settled += int((await self._job.run_once(script, chosen, "")).split()[1])
        return settled

    async def _take_all(self, script: str) -> int:
        """Take the dead letters of this moment, not those that come during the call."""
        last = int(await self._job.run("last_dead_letter"))
        settled = 0
        while True:
            taken, count = map(int, (await self._job.run_once(script, "", last)).split())
            if not taken:
                return settled
            settled += count
