"""Dead letters and notes of a Redis frontier."""

from __future__ import annotations

from collections.abc import Sequence

from skitter.frontier.records import DeadLetter
from skitter.frontier.redis.job import RedisJob
from skitter.frontier.redis.records import LEASES_BATCH, encode, known_numbers, read_dead_letter, to_bytes


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
        """Return the number of replayed or deleted letters: the second number of the script's reply."""
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
