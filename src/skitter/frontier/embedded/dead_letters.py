"""Dead letters and notes of an embedded frontier."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

from skitter.frontier.embedded.job import EmbeddedJob
from skitter.frontier.embedded.journal import Journal
from skitter.frontier.embedded.requests import RequestTable
from skitter.frontier.embedded.tables import FORGOTTEN, RequestRow
from skitter.frontier.records import SETTLED, DeadLetter

MIN_CLEANUP_SIZE = 1_000
"""Minimum number of puts between two removals of expired notes."""
_BATCH = 10_000
"""Number of dead letters that are read at a time."""
Letter = tuple[int, RequestRow, str]
"""Id, request and error of a dead letter."""


class EmbeddedDeadLetters:
    """Failed requests that are no longer retried. Implements :class:`~skitter.frontier.contract.DeadLetters`."""

    def __init__(self, journal: Journal, job: EmbeddedJob, requests: RequestTable) -> None:
        self._journal = journal
        self._job = job
        self._requests = requests

    async def list(self, after: int = 0, limit: int = 100) -> list[DeadLetter]:
        keys = self._requests.slot_keys
        return await self._journal.read(lambda tables: tables.dead_letters(keys, after, limit))

    async def replay(self, ids: Sequence[int] | None = None) -> int:
        now = self._job.clock()
        # A concurrent replay must not find the same dead letters, and a concurrent drop_slot must not remove only
        # their rows.
        async with self._requests.moving, self._requests.adding:
            found = await self._find(ids)
            await self._requests.seen.keys.prepare(
                [row.fingerprint for _, row, _ in found if row.dedup == FORGOTTEN]
            )
            # In one step, so that no group of changes contains only the removal: a kill would then lose the requests.
            self._remove(found)
            replayed = sum(self._requests.revive(row, now) for _, row, _ in found)
            self._requests.rewrite_leases()
            self._job.write()
        await self._journal.flush()
        return replayed

    async def drop(self, ids: Sequence[int] | None = None) -> int:
        async with self._requests.adding:
            found = await self._find(ids)
            self._remove(found)
            self._job.added -= len(found)
            self._job.write()
        await self._journal.flush()
        return len(found)

    async def drop_superseded(self) -> int:
        seen, now = self._requests.seen, self._job.clock()
        dropped = after = 0
        async with self._requests.adding:
            while found := await self._forgotten(after):
                after = found[-1][0]
                await seen.keys.prepare([row.fingerprint for _, row, _ in found])
                superseded = [letter for letter in found if seen.keys.known(letter[1].fingerprint, now)]
                self._remove(superseded)
                dropped += len(superseded)
        self._job.added -= dropped
        self._job.write()
        await self._journal.flush()
        return dropped

    async def _forgotten(self, after: int) -> Sequence[Letter]:
        return await self._journal.read(lambda tables: tables.find_forgotten(after, _BATCH))

    async def _find(self, ids: Sequence[int] | None) -> Sequence[Letter]:
        return await self._journal.read(lambda tables: tables.find_dead(ids))

    def _remove(self, letters: Sequence[Letter]) -> None:
        self._job.failed -= len(letters)
        for letter_id, _, _ in letters:
            self._journal.append("remove_dead", (letter_id,))
        self._job.count(Counter(f"{SETTLED}/{error.partition(':')[0]}" for _, _, error in letters))


class EmbeddedNotes:
    """Small values that the workers share. Implements :class:`~skitter.frontier.contract.Notes`."""

    def __init__(self, journal: Journal, clock: Callable[[], float]) -> None:
        self._journal = journal
        self._clock = clock
        self._puts_left = MIN_CLEANUP_SIZE
        """Number of puts until expired notes are removed: as many as the last cleanup kept, so that the table holds at
        most twice as many notes as were valid then (plus :data:`MIN_CLEANUP_SIZE`)."""
        self._swapping = asyncio.Lock()

    async def get(self, key: str) -> bytes | None:
        return await self._journal.read(lambda tables: tables.note(key, self._clock()))

    async def put(self, key: str, value: bytes, ttl: float) -> None:
        self._journal.put("put_note", key, (key, value, self._clock() + ttl))
        await self._journal.flush()
        self._puts_left -= 1
        if self._puts_left <= 0:
            await self.clean_up()

    async def compare_and_swap(self, key: str, old: bytes | None, new: bytes, ttl: float) -> bool:
        async with self._swapping:  # this process is the only owner, so no one else writes in between
            if await self.get(key) != old:
                return False
            await self.put(key, new, ttl)
            return True

    async def clean_up(self) -> None:
        """Remove expired notes."""
        now = self._clock()
        self._puts_left = MIN_CLEANUP_SIZE  # so that concurrent calls do not clean up, too
        kept = await self._journal.change(lambda tables: tables.remove_expired_notes(now))
        self._puts_left = max(MIN_CLEANUP_SIZE, kept)
