"""The seen set on disk, for jobs whose known URLs outgrow memory.

A Bloom filter tells most new keys without a look-up and is never believed when it says "known"; the keys
met last answer most of the rest. Memory: about 4 bytes a key for the filter, and the recent keys.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

from rbloom import Bloom

from skitter.frontier.embedded.journal import Journal
from skitter.frontier.embedded.seen import FOREVER, MemorySeen, TimedSeen

_RECENT = 200_000
"""Keys in each of the two generations kept in memory."""
_SMALLEST_FILTER = 1_000_000
_FALSE_POSITIVES = 1e-4
_KEYS_AT_ONCE = 500


class DiskSeen:
    """Known keys in the table ``seen_keys`` of the frontier's file."""

    def __init__(self, journal: Journal, count: int) -> None:
        self._journal = journal
        self._count = count
        self._capacity = 0
        self._filter = self._new_filter()
        self._recent: dict[bytes, float] = {}
        self._older: dict[bytes, float] = {}
        self._answers: dict[bytes, float] = {}
        """What is known of the keys prepared last, whatever the generations let go meanwhile."""

    def _new_filter(self) -> Bloom:
        self._capacity = max(_SMALLEST_FILTER, 2 * self._count)
        return Bloom(self._capacity, _FALSE_POSITIVES, hash_func=_hash)

    @classmethod
    async def open(cls, journal: Journal) -> DiskSeen:
        """Read all keys once to fill the filter."""
        (count,) = await journal.read(lambda file: file.execute("SELECT count(*) FROM seen_keys").fetchone())
        seen = cls(journal, count)
        await seen._fill()
        return seen

    async def _fill(self) -> None:
        fresh = self._new_filter()
        await self._journal.read(lambda file: fresh.update(_all_keys(file)))
        self._filter = fresh

    async def prepare(self, fingerprints: Sequence[bytes]) -> None:
        """Look up what neither the recent keys nor the filter can answer."""
        if self._count > self._capacity:
            await self._fill()
        answers: dict[bytes, float] = {}
        self._answers = answers
        ask = []
        for key in fingerprints:
            until = self._recently(key)
            if until is not None:
                answers[key] = until
            elif key in self._filter:
                ask.append(key)
        if ask:
            found = await self._journal.read(lambda file: _look_up(file, ask))
            for key, until in found.items():
                if key not in answers:  # nothing newer was said of it while the file was read
                    answers[key] = until
                    self._note(key, until)

    def _recently(self, key: bytes) -> float | None:
        until = self._recent.get(key)
        return self._older.get(key) if until is None else until

    def _note(self, key: bytes, until: float) -> None:
        if len(self._recent) >= _RECENT:
            self._older, self._recent = self._recent, {}
        self._recent[key] = until

    def known(self, fingerprint: bytes, now: float) -> bool:
        """Tell whether a fingerprint that was prepared is known now."""
        return self._answers.get(fingerprint, 0.0) > now

    def add(self, fingerprint: bytes) -> None:
        """Make a fingerprint known without end."""
        self._filter.add(fingerprint)
        self._count += 1
        self.visited(fingerprint, FOREVER)

    def visited(self, fingerprint: bytes, until: float) -> None:
        """Let a fingerprint be known until a time."""
        self._answers[fingerprint] = until
        self._note(fingerprint, until)
        self._journal.put("know_key", fingerprint, (fingerprint, until))

    def forget(self, fingerprint: bytes) -> None:
        """Make a fingerprint unknown."""
        self.visited(fingerprint, 0.0)

    def __len__(self) -> int:
        return self._count


def _hash(key: bytes) -> int:
    return int.from_bytes(key, "big", signed=True)  # a fingerprint is a good hash of itself


def _all_keys(file: sqlite3.Connection) -> Iterator[bytes]:
    return (key for (key,) in file.execute("SELECT fingerprint FROM seen_keys"))


def _look_up(file: sqlite3.Connection, keys: Sequence[bytes]) -> dict[bytes, float]:
    found: dict[bytes, float] = {}
    for start in range(0, len(keys), _KEYS_AT_ONCE):
        some = keys[start : start + _KEYS_AT_ONCE]
        marks = ", ".join("?" * len(some))
        query = f"SELECT fingerprint, until FROM seen_keys WHERE fingerprint IN ({marks})"  # noqa: S608 - marks
        found.update(file.execute(query, some))
    return found


async def move_to_disk(seen: MemorySeen | TimedSeen, journal: Journal) -> DiskSeen:
    """Write all keys to the table, in their order, in one step with the end of the log."""

    def move(file: sqlite3.Connection) -> None:
        file.execute("BEGIN IMMEDIATE")
        for keys in seen.sorted_shards():
            file.executemany("INSERT OR REPLACE INTO seen_keys VALUES (?, ?)", keys)
        file.execute("DELETE FROM seen_log")
        file.execute("UPDATE job SET seen_on_disk = 1")
        file.execute("COMMIT")

    await journal.read(move)
    return await DiskSeen.open(journal)
