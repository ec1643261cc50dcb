"""Memory letters: the dead letters and the shared notes of a memory frontier."""

from __future__ import annotations

from collections.abc import Sequence

from skitter.frontier.embedded.memory_rows import FOREVER, MemoryRows
from skitter.frontier.records import DeadLetter


class MemoryLetters(MemoryRows):
    """What is kept beside the queue: requests given up, and small notes."""

    async def recall(self, key: str) -> bytes | None:
        """Read a shared note."""
        value, until = self._notes.get(key, (None, 0.0))
        return value if until > self._clock() else None

    async def remember(self, key: str, value: bytes, ttl: float) -> None:
        """Keep a shared note."""
        now = self._clock()
        self._notes[key] = (value, now + ttl)
        if self._note_sweeps.is_due():
            self._notes = {key: note for key, note in self._notes.items() if note[1] > now}
            self._note_sweeps.done(len(self._notes))

    async def swap(self, key: str, old: bytes | None, new: bytes, ttl: float) -> bool:
        """Keep a shared note if it is as it was read."""
        if await self.recall(key) != old:
            return False
        await self.remember(key, new, ttl)
        return True

    async def list_dead_letters(self, after: int = 0, limit: int = 100) -> list[DeadLetter]:
        """List requests given up, oldest first."""
        return [letter for letter, _ in self._dead.values() if letter.id > after][:limit]

    async def replay(self, ids: Sequence[int] | None = None) -> int:
        """Put dead letters back in the queue."""
        now = self._clock()
        replayed = 0
        for letter_id in self._letters(ids):
            _, waiting = self._dead.pop(letter_id)
            if waiting.forgotten and self._is_known(waiting.entry.fingerprint, now):
                self._added -= 1  # it was added again since
                self._counters["refused/duplicate"] += 1
                continue
            replayed += 1
            waiting.attempt, waiting.lost, waiting.forgotten = 0, 0, False
            if waiting.entry.dedup and not self._is_banned(waiting.entry.slot):
                self._seen[waiting.entry.fingerprint] = FOREVER
            self._place(waiting, now, now)
        return replayed

    async def drop(self, ids: Sequence[int] | None = None) -> int:
        """Forget dead letters."""
        chosen = self._letters(ids)
        for letter_id in chosen:
            del self._dead[letter_id]
        self._added -= len(chosen)
        return len(chosen)

    def _letters(self, ids: Sequence[int] | None) -> list[int]:
        return [i for i in (list(self._dead) if ids is None else dict.fromkeys(ids)) if i in self._dead]
