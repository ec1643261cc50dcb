"""Letters: the dead letters and the shared notes of a job on a server."""

from __future__ import annotations

from collections.abc import Sequence

from skitter.frontier.records import DeadLetter
from skitter.frontier.redis.batches import LEASES_AT_ONCE
from skitter.frontier.redis.job import RedisJob
from skitter.frontier.redis.records import encode, known_numbers, read_letter, to_bytes


class LettersOnRedis:
    """What is kept beside the queue: requests given up, and small notes."""

    _job: RedisJob

    async def recall(self, key: str) -> bytes | None:
        """Read a shared note."""
        note: bytes | None = await self._job.run("recall", to_bytes(key))
        return note

    async def remember(self, key: str, value: bytes, ttl: float) -> None:
        """Keep a shared note."""
        await self._job.run("remember", to_bytes(key), value, ttl)

    async def swap(self, key: str, old: bytes | None, new: bytes, ttl: float) -> bool:
        """Keep a shared note if it is as it was read."""
        arguments = (to_bytes(key), int(old is not None), old or b"", new, ttl)
        return bool(await self._job.run("swap", *arguments))

    async def list_dead_letters(self, after: int = 0, limit: int = 100) -> list[DeadLetter]:
        """List requests given up, oldest first."""
        return [read_letter(data) for data in await self._job.run("letters", after, limit)]

    async def replay(self, ids: Sequence[int] | None = None) -> int:
        """Put dead letters back in the queue."""
        return await self._exhume("replay", ids)

    async def drop(self, ids: Sequence[int] | None = None) -> int:
        """Forget dead letters."""
        return await self._exhume("drop", ids)

    async def _exhume(self, script: str, ids: Sequence[int] | None) -> int:
        """Return what came of the letters that the script took out, which it tells after their number."""
        if ids is None:
            return await self._exhume_all(script)
        numbers = known_numbers(ids)
        settled = 0
        for start in range(0, len(numbers), LEASES_AT_ONCE):
            chosen = encode(numbers[start : start + LEASES_AT_ONCE])
            settled += int((await self._job.run_once(script, chosen, "")).split()[1])
        return settled

    async def _exhume_all(self, script: str) -> int:
        """Take out all that is dead now, not what fails again meanwhile."""
        last = int(await self._job.run("last_letter"))
        settled = 0
        while True:
            exhumed, count = map(int, (await self._job.run_once(script, "", last)).split())
            if not exhumed:
                return settled
            settled += count
