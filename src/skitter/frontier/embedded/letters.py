"""SQLite letters: the dead letters and the shared notes of an embedded frontier."""

from __future__ import annotations

from collections.abc import Sequence

from skitter.frontier.embedded import queries
from skitter.frontier.embedded.backlog import Row
from skitter.frontier.embedded.rows import SqliteRows
from skitter.frontier.records import DeadLetter


class SqliteLetters(SqliteRows):
    """What is kept beside the queue: requests given up, and small notes."""

    async def recall(self, key: str) -> bytes | None:
        """Read a shared note."""
        return await self._journal.read(lambda file: queries.note(file, key, self._clock()))

    async def swap(self, key: str, old: bytes | None, new: bytes, ttl: float) -> bool:
        """Keep a shared note if it is as it was read."""
        async with self._swapping:  # one owner: nobody else writes between the reading and the writing
            if await self.recall(key) != old:
                return False
            await self.remember(key, new, ttl)
            return True

    async def remember(self, key: str, value: bytes, ttl: float) -> None:
        """Keep a shared note."""
        now = self._clock()
        self._journal.put("note", key, (key, value, now + ttl))
        await self._journal.flush()
        if self._note_sweeps.is_due():
            self._note_sweeps.done(0)  # for those who come while the file is swept
            self._note_sweeps.done(await self._journal.read(lambda file: queries.sweep_notes(file, now)))

    async def list_dead_letters(self, after: int = 0, limit: int = 100) -> list[DeadLetter]:
        """List requests given up, oldest first."""
        keys = self._slot_keys
        return await self._journal.read(lambda file: queries.dead_letters(file, keys, after, limit))

    async def replay(self, ids: Sequence[int] | None = None) -> int:
        """Put dead letters back in the queue with fresh attempts."""
        rows = await self._exhume(ids)
        now = self._clock()
        async with self._deciding:
            await self._seen.prepare([row.fingerprint for row in rows if row.dedup == queries.FORGOTTEN])
            replayed = sum(self._revive(row, now) for row in rows)
        self._note_job()
        await self._journal.flush()
        return replayed

    def _revive(self, row: Row, now: float) -> bool:
        """Queue a request that was given up; ``False`` if it was added again since."""
        if row.dedup == queries.FORGOTTEN and self._seen.known(row.fingerprint, now):
            self._added -= 1
            self._count({"refused/duplicate": 1})
            return False
        if not self._take_away(row):
            if row.dedup:
                self._seen.add(row.fingerprint)
                self._log_seen("+", now, row.fingerprint)
            self._place(row._replace(attempt=0, lost=0, dedup=min(row.dedup, 1)), now, now)
        return True

    async def drop(self, ids: Sequence[int] | None = None) -> int:
        """Forget dead letters."""
        rows = await self._exhume(ids)
        self._added -= len(rows)
        self._note_job()
        await self._journal.flush()
        return len(rows)

    async def _exhume(self, ids: Sequence[int] | None) -> list[Row]:
        async with self._deciding:  # a second call has to see what the first one took
            found = await self._journal.read(lambda file: queries.find_dead(file, ids))
            self._dead -= len(found)
            for letter_id, _ in found:
                self._journal.append("unbury", (letter_id,))
        return [row for _, row in found]
