"""The seen set: the fingerprints that a job knows.

A seen set is always exact. All keys are in memory (about 0.1 GB per million) up to ``seen_memory_limit``; beyond it
they move to disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from rbloom import Bloom

from skitter.frontier.embedded.journal import Journal, SqliteJournal
from skitter.frontier.embedded.tables import SqliteTables
from skitter.frontier.options import FrontierSettings

FOREVER = float("inf")
SHARDS = 256
RECENT_KEYS = 200_000
"""Keys in each of the two generations that a set on disk keeps in memory."""
MIN_FILTER_CAPACITY = 1_000_000
FALSE_POSITIVE_RATE = 1e-4


class SeenKeys(Protocol):
    """Fingerprints, each with the time until which it is known: ``FOREVER`` while pending, or if there is no TTL."""

    async def prepare(self, fingerprints: Sequence[bytes]) -> None:
        """Get ready to answer :meth:`known` for these fingerprints without waiting."""
        ...

    def known(self, fingerprint: bytes, now: float) -> bool:
        """Return whether a fingerprint is known now."""
        ...

    def add(self, fingerprint: bytes) -> None:
        """Make a fingerprint known without limit."""
        ...

    def visited(self, fingerprint: bytes, until: float) -> None:
        """Make a fingerprint known until a Unix time."""
        ...

    def forget(self, fingerprint: bytes) -> None:
        """Make a fingerprint unknown."""
        ...

    def __len__(self) -> int: ...


class MemorySeen:
    """Keys without a TTL, in 256 sets: one set of five million keys would stall each time it grows."""

    def __init__(self) -> None:
        self._shards: list[set[bytes]] = [set() for _ in range(SHARDS)]

    async def prepare(self, fingerprints: Sequence[bytes]) -> None:
        """Return at once."""

    def known(self, fingerprint: bytes, now: float) -> bool:  # noqa: ARG002 - keys do not expire
        """Return whether a fingerprint is known."""
        return fingerprint in self._shards[fingerprint[0]]

    def add(self, fingerprint: bytes) -> None:
        """Make a fingerprint known."""
        self._shards[fingerprint[0]].add(fingerprint)

    def visited(self, fingerprint: bytes, until: float) -> None:
        """Do nothing: the fingerprint is and stays known."""

    def forget(self, fingerprint: bytes) -> None:
        """Make a fingerprint unknown."""
        self._shards[fingerprint[0]].discard(fingerprint)

    def __len__(self) -> int:
        return sum(map(len, self._shards))

    def load(self, packed: bytes) -> None:
        """Add many fingerprints, given as one sequence of 16-byte keys."""
        shards = self._shards
        for start in range(0, len(packed), 16):
            key = packed[start : start + 16]
            shards[key[0]].add(key)

    def sorted_shards(self) -> Iterator[list[tuple[bytes, float]]]:
        """Return all keys in ascending order, one shard at a time."""
        for shard in self._shards:
            yield [(key, FOREVER) for key in sorted(shard)]


class TimedSeen:
    """Keys with the time until which each is known, for jobs with a ``visited_ttl``."""

    def __init__(self) -> None:
        self._shards: list[dict[bytes, float]] = [{} for _ in range(SHARDS)]

    async def prepare(self, fingerprints: Sequence[bytes]) -> None:
        """Return at once."""

    def known(self, fingerprint: bytes, now: float) -> bool:
        """Return whether a fingerprint is known now."""
        return self._shards[fingerprint[0]].get(fingerprint, 0.0) > now

    def add(self, fingerprint: bytes) -> None:
        """Make a fingerprint known without limit."""
        self._shards[fingerprint[0]][fingerprint] = FOREVER

    def visited(self, fingerprint: bytes, until: float) -> None:
        """Make a fingerprint known until a time."""
        self._shards[fingerprint[0]][fingerprint] = until

    def forget(self, fingerprint: bytes) -> None:
        """Make a fingerprint unknown."""
        self._shards[fingerprint[0]].pop(fingerprint, None)

    def __len__(self) -> int:
        return sum(map(len, self._shards))

    def load(self, packed: bytes, until: float = FOREVER) -> None:
        """Add many fingerprints, given as one sequence of 16-byte keys."""
        for start in range(0, len(packed), 16):
            key = packed[start : start + 16]
            self._shards[key[0]][key] = until

    def sorted_shards(self) -> Iterator[list[tuple[bytes, float]]]:
        """Return all keys in ascending order, one shard at a time."""
        for shard in self._shards:
            yield sorted(shard.items())


class DiskSeen:
    """Keys in the table ``seen_keys`` of the frontier file.

    A Bloom filter recognizes most new keys without a look-up, but is not trusted when it reports a key as known. Recent
    keys in memory answer most other questions. The filter takes about 4 bytes per key.
    """

    def __init__(self, journal: SqliteJournal, count: int) -> None:
        self._journal = journal
        self._count = count
        self._capacity = 0
        self._filter = self._new_filter()
        self._recent: dict[bytes, float] = {}
        self._older: dict[bytes, float] = {}
        self._prepared: dict[bytes, float] = {}
        """The prepared keys that are known, even if they have left the generations meanwhile."""

    def _new_filter(self) -> Bloom:
        self._capacity = max(MIN_FILTER_CAPACITY, 2 * self._count)
        return Bloom(self._capacity, FALSE_POSITIVE_RATE, hash_func=_hash)

    @classmethod
    async def open(cls, journal: SqliteJournal) -> DiskSeen:
        """Read all keys once to fill the filter."""
        seen = cls(journal, await journal.read(lambda tables: tables.count("seen_keys")))
        await seen._fill()
        return seen

    async def _fill(self) -> None:
        new = self._new_filter()
        await self._journal.read(lambda tables: new.update(tables.seen_keys()))
        self._filter = new

    async def prepare(self, fingerprints: Sequence[bytes]) -> None:
        """Look up the keys for which neither the recent keys nor the filter has an answer."""
        if self._count > self._capacity:
            await self._fill()
        prepared: dict[bytes, float] = {}
        self._prepared = prepared
        unsure = []
        for key in fingerprints:
            until = self._find_recent(key)
            if until is not None:
                prepared[key] = until
            elif key in self._filter:
                unsure.append(key)
        if unsure:
            found = await self._journal.read(lambda tables: tables.find_seen(unsure))
            for key, until in found.items():
                if key not in prepared:  # the key did not change while the file was read
                    prepared[key] = until
                    self._remember(key, until)

    def _find_recent(self, key: bytes) -> float | None:
        until = self._recent.get(key)
        return self._older.get(key) if until is None else until

    def _remember(self, key: bytes, until: float) -> None:
        if len(self._recent) >= RECENT_KEYS:
            self._older, self._recent = self._recent, {}
        self._recent[key] = until

    def known(self, fingerprint: bytes, now: float) -> bool:
        """Return whether a prepared fingerprint is known now."""
        return self._prepared.get(fingerprint, 0.0) > now

    def add(self, fingerprint: bytes) -> None:
        """Make a fingerprint known without limit."""
        self._filter.add(fingerprint)
        self._count += 1
        self.visited(fingerprint, FOREVER)

    def visited(self, fingerprint: bytes, until: float) -> None:
        """Make a fingerprint known until a time."""
        self._prepared[fingerprint] = until
        self._remember(fingerprint, until)
        self._journal.put("put_seen_key", fingerprint, (fingerprint, until))

    def forget(self, fingerprint: bytes) -> None:
        """Make a fingerprint unknown."""
        self.visited(fingerprint, 0.0)

    def __len__(self) -> int:
        return self._count


def _hash(key: bytes) -> int:
    return int.from_bytes(key, "big", signed=True)  # a fingerprint is a good hash of itself


async def move_to_disk(seen: MemorySeen | TimedSeen, journal: SqliteJournal) -> DiskSeen:
    """Write all keys to the table, in order, in the transaction that deletes the log."""
    await journal.read(lambda tables: tables.move_seen_to_disk(seen.sorted_shards()))
    return await DiskSeen.open(journal)


class SeenSet:
    """The seen set of a job: keys in memory with a log in the journal, or on disk."""

    def __init__(self, journal: Journal, file: SqliteJournal | None, options: FrontierSettings) -> None:
        self._journal = journal
        self._file = file
        """``None``: the keys stay in memory."""
        self._ttl = options.visited_ttl
        self._limit = options.seen_memory_limit
        self._in_memory: MemorySeen | TimedSeen | None = self._new()
        self.keys: SeenKeys = self._in_memory

    def _new(self) -> MemorySeen | TimedSeen:
        return MemorySeen() if self._ttl is None else TimedSeen()

    async def restore(self, *, on_disk: bool) -> None:
        """Load the keys that an earlier run left in the file."""
        if self._file is None:
            return
        if on_disk:
            self._in_memory, self.keys = None, await DiskSeen.open(self._file)
        else:
            self._in_memory = await self._file.read(self._replay)
            self.keys = self._in_memory

    def _replay(self, tables: SqliteTables) -> MemorySeen | TimedSeen:
        seen = self._new()
        for kind, at, fingerprints in tables.seen_log():
            if kind == "+":
                seen.load(fingerprints)
            elif kind == "-":
                seen.forget(fingerprints)
            elif self._ttl is not None:
                seen.visited(fingerprints, at + self._ttl)
        return seen

    def log_added(self, fingerprints: Sequence[bytes], now: float) -> None:
        """Write keys that were added to :attr:`keys` to the journal, many in one row."""
        if self._file is not None:
            self._log("+", now, b"".join(fingerprints))

    def _log(self, kind: str, now: float, fingerprints: bytes) -> None:
        if self._in_memory is not None:  # a set on disk writes its own table
            self._journal.append("log_seen", (kind, now, fingerprints))

    def visit(self, fingerprint: bytes, now: float) -> None:
        """Record that a page was visited: it is known until ``visited_ttl`` has passed."""
        if self._ttl is not None:
            self.keys.visited(fingerprint, now + self._ttl)
            self._log("v", now, fingerprint)

    def forget(self, fingerprint: bytes, now: float) -> None:
        """Make a fingerprint unknown."""
        self.keys.forget(fingerprint)
        self._log("-", now, fingerprint)

    def clear(self) -> None:
        """Forget every fingerprint, after the journal has done so."""
        self._in_memory = self._new()
        self.keys = self._in_memory

    @property
    def is_too_large(self) -> bool:
        """Whether the keys should move to disk."""
        return self._file is not None and self._in_memory is not None and len(self._in_memory) > self._limit

    async def move_to_disk(self) -> None:
        """Move the keys from memory to disk."""
        if self._file is not None and self._in_memory is not None:
            on_disk = await move_to_disk(self._in_memory, self._file)
            self._in_memory, self.keys = None, on_disk
