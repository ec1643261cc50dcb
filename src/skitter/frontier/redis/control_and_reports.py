"""The control and the reports of a Redis frontier, with its notes, its dead letters and the liveness of its workers."""

from __future__ import annotations

from collections.abc import Sequence

from skitter.errors import FrontierError
from skitter.frontier.options import SettingsChanges
from skitter.frontier.records import DeadLetter, JobState, SlotStatus, TaskFilter, VisitsPart
from skitter.frontier.redis.job import RedisJob
from skitter.frontier.redis.records import (
    LEASES_BATCH,
    SLOTS_BATCH,
    encode,
    known_numbers,
    read_dead_letter,
    read_ranges,
    read_slot,
    read_stats_row,
    read_visit,
    read_worker,
    record_of,
    text,
    to_bytes,
    to_words,
)
from skitter.frontier.redis.server import RedisServer
from skitter.frontier.stats import StatsDimension, StatsRow, in_order
from skitter.frontier.workers import LIVENESS_SECONDS, SUSPICION_SECONDS, WorkerReport, WorkerStatus
from skitter.frontier.workers import in_order as workers_in_order
from skitter.queues import slot_in, without_queue

_SLOTS_AT_ONCE = 500
"""Slots that one script reads, in a few milliseconds."""


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

    async def change_settings(self, changes: SettingsChanges, reset: bool = False) -> SettingsChanges:
        return await self._job.change(changes, reset=reset)

    async def drop_slot(self, slot: str, ban: bool = False) -> int:
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
            answer = await self._job.run_once("drop_slot", to_bytes(slot), cursor)
            count, cursor, more = answer.split()
            dropped += int(count)
        return dropped

    async def drop_task(self, task: str) -> int:
        """Remove the waiting requests of a task. The server returns candidates; the exact match is made here."""
        task_filter, dropped = TaskFilter(task), 0
        for part in ("queue", "delayed"):
            cursor, is_started = b"", False
            while cursor or not is_started:
                is_started = True
                cursor, found = await self._job.run("find_requests", part, cursor, task_filter.trace)
                matches = [text(request) for request in found if task_filter.matches(record_of(request))]
                if matches:
                    dropped += int(await self._job.run_once("remove_requests", encode(matches)))
        return dropped

    async def unban(self, slot: str) -> bool:
        return await self._job.run_once("ban", to_bytes(slot), "0") == b"1"

    async def banned(self) -> list[str]:
        return sorted(to_words(slot) for slot in await self._job.command("SMEMBERS", self._job.key("banned")))

    async def recrawl(self) -> bool:
        return await self._job.recrawl()


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
            answer = await self._job.run("slots", encode(names[start : start + _SLOTS_AT_ONCE]))
            found += [read_slot(slot) for slot in answer]
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


class RedisNotes:
    """Implements :class:`~skitter.frontier.contract.Notes`."""

    def __init__(self, job: RedisJob) -> None:
        self._job = job

    async def get(self, key: str) -> bytes | None:
        note: bytes | None = await self._job.run("get_note", to_bytes(key))
        return note

    async def put(self, key: str, value: bytes, ttl: float) -> None:
        await self._job.run("put_note", to_bytes(key), value, ttl)

    async def compare_and_swap(self, key: str, old: bytes | None, new: bytes, ttl: float) -> bool:
        arguments = (to_bytes(key), int(old is not None), old or b"", new, ttl)
        return bool(await self._job.run("compare_and_swap_note", *arguments))


class RedisDeadLetters:
    """Implements :class:`~skitter.frontier.contract.DeadLetters`."""

    def __init__(self, job: RedisJob) -> None:
        self._job = job

    async def list(self, after: int = 0, limit: int = 100) -> list[DeadLetter]:
        return [read_dead_letter(data) for data in await self._job.run("dead_letters", after, limit)]

    async def replay(self, ids: Sequence[int] | None = None) -> int:
        return await self._take("replay", ids)

    async def drop(self, ids: Sequence[int] | None = None) -> int:
        return await self._take("drop_dead_letters", ids)

    async def drop_superseded(self) -> int:
        dropped, last = 0, b"0"
        while True:
            last, count = (await self._job.run_once("drop_superseded", last)).split()
            if last == b"0":
                return dropped
            dropped += int(count)

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
        """Take the present dead letters, not those that are added during the call."""
        last = int(await self._job.run("last_dead_letter"))
        settled = 0
        while True:
            taken, count = map(int, (await self._job.run_once(script, "", last)).split())
            if not taken:
                return settled
            settled += count


_SUSPECT = b"?"


class RedisLiveness:
    """Implements :class:`~skitter.frontier.contract.Liveness`."""

    def __init__(self, job: RedisJob) -> None:
        self._job = job
        self._server: RedisServer | None = None
        self._since: bytes | str = "-inf"
        """Time of the last heartbeat. Workers that expired before it have been handled."""

    async def open(self) -> None:
        server = self._job.twin_server()
        await server.connect(patient=False)
        self._since = "-inf"  # the server may have lost its last second
        self._server = server

    async def close(self) -> None:
        if self._server is not None:
            server, self._server = self._server, None
            await server.close()

    async def beat(self, worker: str) -> list[str]:
        job = self._job
        keys = [job.key("job"), job.key("alive")]
        arguments = job.generation, job.now, worker, LIVENESS_SECONDS, SUSPICION_SECONDS, self._since
        answer = await self._open_server.run("beat", keys, arguments, patient=False)
        self._since, *dead = answer
        return [name.decode() for name in dead]

    async def workers(self) -> list[str]:
        names = await self._open_server.command("ZRANGE", self._job.key("alive"), 0, -1)
        return [name.removeprefix(_SUSPECT).decode() for name in names]

    @property
    def _open_server(self) -> RedisServer:
        if self._server is None:
            raise FrontierError("the liveness of the workers is not open", remedy="call open() first")
        return self._server
