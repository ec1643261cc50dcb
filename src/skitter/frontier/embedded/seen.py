"""The seen set: the fingerprints that a job knows.

A seen set is always exact. All keys are in memory (35 MB per million) up to ``seen_memory_limit``. Beyond it they
move to sorted runs in the file, and only the newest are in memory. Shards of the keys move one after the other, in
short steps: little work is lost when the process ends, no step takes long, and the file never holds many keys twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from functools import partial
from operator import attrgetter

from skitter.errors import FrontierError
from skitter.frontier.embedded.journal import Journal, SqliteJournal
from skitter.frontier.embedded.runs import (
    FOREVER,
    KEYS_PER_STEP,
    MARKER,
    REMOVED_ROWS,
    Run,
    RunWriter,
    ShardKeys,
    find_keys,
    last_marker,
    load_runs,
    possible_keys,
    remove_blocks,
    remove_log,
    split_keys,
)
from skitter.frontier.embedded.tables import SqliteTables
from skitter.frontier.options import FrontierSettings

SHARDS = 256
"""Number of parts into which the keys are divided, by their first byte."""
WRITES_PER_KEY = 6
"""Keys that may be written to runs for each key that is added. That suffices for 100 million keys. With more keys, more
of them stay in memory, and each is rewritten less often."""
_MAX_STEPS = 16
"""Maximum number of steps in one transaction. There are several if many keys are added at once."""
_MAX_ALLOWED = 65_536
"""If more keys than this may be written, new keys wait until some of them have been written."""
FOUND_KEYS = 200_000
"""Maximum number of keys in each of the two generations of cached lookups."""
PARTS_OF_LIMIT = 5
"""A set on disk has a fifth of ``seen_memory_limit`` in memory."""
MIN_MEMORY = 10_000
"""Minimum number of keys in memory of a set on disk."""
UNTIL = "u"
"""Kind of a row of the log: fingerprints that are known until a time."""

log = logging.getLogger("skitter.frontier")


class MemorySeen:
    """Keys in 256 shards, because one set of five million keys would block each time it grows."""

    def __init__(self) -> None:
        self.shards = [ShardKeys() for _ in range(SHARDS)]
        """The keys by their first byte."""

    async def prepare(self, fingerprints: Sequence[bytes]) -> None:
        """Return immediately."""

    def known(self, fingerprint: bytes, now: float) -> bool:
        """Return whether a fingerprint is known now."""
        shard = self.shards[fingerprint[0]]
        return fingerprint in shard.endless or shard.timed.get(fingerprint, 0.0) > now

    def add(self, fingerprint: bytes) -> None:
        """Make a fingerprint known without limit."""
        self.visited(fingerprint, FOREVER)

    def unknown(self, fingerprints: Sequence[bytes], now: float) -> list[bool]:
        """Return which fingerprints are not known now."""
        shards = self.shards
        return [
            key not in (shard := shards[key[0]]).endless and shard.timed.get(key, 0.0) <= now
            for key in fingerprints
        ]

    def add_new(self, fingerprints: Sequence[bytes], now: float) -> list[int]:
        """Make fingerprints known without limit. Return the indexes of those that were unknown."""
        shards, new = self.shards, []
        for index, key in enumerate(fingerprints):
            shard = shards[key[0]]
            if key in shard.endless or (shard.timed and shard.timed.get(key, 0.0) > now):
                continue
            if shard.timed:
                shard.visited(key, FOREVER)
            else:
                shard.endless.add(key)
            new.append(index)
        return new

    def visited(self, fingerprint: bytes, until: float) -> None:
        """Make a fingerprint known until a time."""
        self.shards[fingerprint[0]].visited(fingerprint, until)

    def forget(self, fingerprint: bytes) -> None:
        """Make a fingerprint unknown."""
        shard = self.shards[fingerprint[0]]
        shard.endless.discard(fingerprint)
        shard.timed.pop(fingerprint, None)

    def __len__(self) -> int:
        return sum(map(len, self.shards))

    def load(self, packed: bytes) -> None:
        """Add many fingerprints, given as one sequence of 16-byte keys."""
        for key in split_keys(packed):
            self.shards[key[0]].visited(key, FOREVER)


class Shard:
    """The keys of a set on disk with the same first byte."""

    __slots__ = ("fresh", "frozen", "number", "runs")

    def __init__(self, number: int, runs: Sequence[Run]) -> None:
        self.number = number
        self.fresh = ShardKeys()
        """Keys that are newer than all others."""
        self.frozen: ShardKeys | None = None
        """Keys of the next run. Others are not added to them before it begins: a large set may double for a single
        key."""
        self.runs: list[Run] = list(runs)

    def __len__(self) -> int:
        """Return the number of keys. A key that is in memory and in runs counts several times."""
        return sum(run.amount for run in self.runs) + self.in_memory

    @property
    def in_memory(self) -> int:
        """Number of keys in memory. A key may count twice."""
        return len(self.fresh) + (0 if self.frozen is None else len(self.frozen))

    @property
    def log_end(self) -> int:
        """The number of a row of the log of fingerprints: the keys up to there are in runs."""
        return self.runs[-1].log_end if self.runs else 0

    def find_in_memory(self, key: bytes) -> float | None:
        """Return the time until which a key in memory is known; ``None`` if it is not there."""
        until = self.fresh.timed.get(key)
        if until is None and key in self.fresh.endless:
            return FOREVER
        return self.frozen.until(key) if until is None and self.frozen is not None else until

    def freeze(self) -> ShardKeys:
        """Return the keys in memory for a new run. Later changes do not change them."""
        if self.frozen is None:
            self.frozen = self.fresh
        else:
            self.frozen.update(self.fresh)
        self.fresh = ShardKeys()
        return self.frozen

    def first_merged(self, amount: int) -> int:
        """Return the index of the first of the last runs that become one with new keys.

        A run is merged if it is at most about twice as large as all later runs. So there are few runs, and a key is
        rewritten only a few times. The factor varies from 1 to 3, so that the shards write their largest runs at
        different times.
        """
        factor = 1 + 2 * (self.number * 0.618 % 1)
        index = len(self.runs)
        while index and self.runs[index - 1].amount <= factor * amount:
            index -= 1
            amount += self.runs[index].amount
        return index

    def replace(self, index: int, *runs: Run) -> None:
        """Replace the runs from an index."""
        self.runs = [*self.runs[:index], *runs]  # do not change the list, which may be in use


class DiskSeen:
    """Keys in sorted runs in the file, the newest of them in memory.

    The log of fingerprints in the journal has the keys in memory until a run has them. A background task moves one
    shard at a time. It writes no more than :data:`WRITES_PER_KEY` keys for each key that is added, so that no page
    costs much more than others.
    """

    def __init__(
        self, journal: SqliteJournal, runs: Sequence[Run], limit: int, keys: Sequence[ShardKeys] = ()
    ) -> None:
        """``limit``: number of keys in memory above which shards are moved. ``keys``: the keys in memory, by shard."""
        self._journal = journal
        by_shard: list[list[Run]] = [[] for _ in range(SHARDS)]
        for run in runs:
            by_shard[run.shard].append(run)
        self._shards = [Shard(number, runs) for number, runs in enumerate(by_shard)]
        self._filters = [[run.filter for run in shard.runs] for shard in self._shards]
        """The filters of the runs of each shard."""
        for shard, frozen in zip(self._shards, keys, strict=False):
            shard.frozen = frozen
        self._by_age = deque(sorted(self._shards, key=attrgetter("log_end")))
        """The shards by the age of their oldest keys in memory. A shard becomes the last one when its keys are
        moved."""
        self._next_run = max((run.number for run in runs), default=0) + 1
        self._last_log_end = max((run.log_end for run in runs), default=0)
        self._limit = max(MIN_MEMORY, limit)
        self._most = (PARTS_OF_LIMIT + 1) * self._limit
        """Number of keys in memory above which new ones wait."""
        self._changes = sum(map(len, keys))
        """Number of changes so far."""
        self._moved = 0
        """Lower bound of the number of those that are no longer in memory. The exact number is computed when it is
        needed."""
        self._written = 0
        """Number of keys that were written to runs, in total, as counted for :data:`WRITES_PER_KEY`."""
        self._lookups: dict[bytes, float] = {}
        self._older_lookups: dict[bytes, float] = {}
        """Two generations of keys that were looked up in the file, with their times; 0: the file does not have the
        key."""
        self._prepared: dict[bytes, float] = {}
        """The times of the prepared keys that may be known, even if they have left the generations since."""
        self._mover: asyncio.Task[None] | None = None
        self._added = asyncio.Event()
        """Set when the task may be able to continue."""
        self._progress = asyncio.Event()
        """Set when the task has written something."""
        self._is_stopped = False

    async def prepare(self, fingerprints: Sequence[bytes]) -> None:
        """Look up the keys that neither the keys in memory nor the filters can decide."""
        prepared: dict[bytes, float] = {}
        self._prepared = prepared
        not_in_memory: list[bytes] = []
        unsure: list[tuple[bytes, Sequence[Run]]] = []
        shards, lookups, older = self._shards, self._lookups, self._older_lookups
        for key in fingerprints:
            shard = shards[key[0]]
            if key in shard.fresh.endless:
                prepared[key] = FOREVER
                continue
            if (shard.fresh.timed or shard.frozen is not None) and (
                until := shard.find_in_memory(key)
            ) is not None:
                prepared[key] = until
                continue
            not_in_memory.append(key)
        for key in possible_keys(not_in_memory, self._filters):
            until = lookups.get(key)
            if until is None and (until := older.get(key)) is None:
                unsure.append((key, shards[key[0]].runs))
            else:
                prepared[key] = until
        if unsure:
            stored = await self._journal.peek(lambda tables: find_keys(tables.file, unsure))
            for key, _ in unsure:
                if key not in prepared:  # the key did not change while the file was read
                    prepared[key] = until = stored.get(key, 0.0)
                    self._cache_lookup(key, until)

    def _cache_lookup(self, key: bytes, until: float) -> None:
        if len(self._lookups) >= FOUND_KEYS:
            self._older_lookups, self._lookups = self._lookups, {}
        self._lookups[key] = until

    def known(self, fingerprint: bytes, now: float) -> bool:
        """Return whether a prepared fingerprint is known now."""
        return self._prepared.get(fingerprint, 0.0) > now

    def add(self, fingerprint: bytes) -> None:
        """Make a fingerprint known without limit."""
        self.visited(fingerprint, FOREVER)

    def unknown(self, fingerprints: Sequence[bytes], now: float) -> list[bool]:
        """Return which prepared fingerprints are not known now."""
        known = self._prepared.get
        return [known(fingerprint, 0.0) <= now for fingerprint in fingerprints]

    def add_new(self, fingerprints: Sequence[bytes], now: float) -> list[int]:
        """Make prepared fingerprints known without limit. Return the indexes of those that were unknown."""
        new = []
        for index, key in enumerate(fingerprints):
            if not self.known(key, now):
                self.add(key)
                new.append(index)
        return new

    def visited(self, fingerprint: bytes, until: float) -> None:
        """Make a fingerprint known until a time."""
        self._prepared[fingerprint] = until
        if self._lookups or self._older_lookups:
            self._lookups.pop(fingerprint, None)
            self._older_lookups.pop(fingerprint, None)
        self._shards[fingerprint[0]].fresh.visited(fingerprint, until)
        self._changes += 1

    def forget(self, fingerprint: bytes) -> None:
        """Make a fingerprint unknown."""
        self.visited(fingerprint, 0.0)

    def load(self, packed: bytes) -> None:
        """Add many fingerprints, given as one sequence of 16-byte keys."""
        shards = self._shards
        keys = split_keys(packed)
        for key in keys:
            shards[key[0]].fresh.visited(key, FOREVER)
        self._changes += len(keys)

    def not_in_runs(self, row: int, packed: bytes) -> bytes:
        """Return those fingerprints of a row of the log that no run has yet."""
        if row > self._last_log_end:
            return packed
        shards = self._shards
        return b"".join([key for key in split_keys(packed) if shards[key[0]].log_end < row])

    def __len__(self) -> int:
        """Return the number of keys. A key that is in memory and in runs counts several times."""
        return sum(map(len, self._shards))

    # --- writing runs ------------------------------------------------------------------------------------

    async def write_if_large(self) -> None:
        """Move keys from memory to runs, if there are many. Wait only if the move is far behind."""
        if self._mover is None and self._is_large():
            self._written = WRITES_PER_KEY * self._changes
            self._mover = asyncio.create_task(self._move_shards())
        self._added.set()
        while self._mover is not None and (self._allowed > _MAX_ALLOWED or self._in_memory > self._most):
            self._progress.clear()
            await self._progress.wait()

    @property
    def _in_memory(self) -> int:
        """Upper bound of the number of keys that changed since they were last moved."""
        return self._changes - self._moved

    @property
    def _allowed(self) -> int:
        """Number of keys that may be written now."""
        return WRITES_PER_KEY * self._changes - self._written

    def _is_large(self) -> bool:
        if self._in_memory > self._limit:
            self._moved = self._changes - sum(shard.in_memory for shard in self._shards)
        return self._in_memory > self._limit

    def _oldest(self) -> Shard | None:
        """Return the shard with the oldest keys in memory; ``None`` if no key is in memory."""
        return next((shard for shard in self._by_age if shard.in_memory), None)

    async def _move_shards(self) -> None:
        try:
            while self._is_large() and await self._may_write() and (oldest := self._oldest()) is not None:
                await self._move(oldest)
        except FrontierError as error:
            # The file has the keys in its log. The next commit raises the error, too.
            log.warning("known URLs stay in memory: %s", error)
            self._moved = self._changes  # the next attempt follows after the usual number of changes
        finally:
            self._mover = None
            self._progress.set()

    async def _move(self, shard: Shard) -> None:
        """Write the keys in memory of a shard as a run. The file has them in its log until the run is complete."""
        keys = shard.freeze()
        number, self._next_run = self._next_run, self._next_run + 1
        self._journal.append("log_seen", (MARKER, 0.0, b""))
        index = shard.first_merged(len(keys))
        merged = shard.runs[index:]
        # Reading writes all that was appended. A key must not be known before its request is in the file.
        writer = await self._journal.read(
            lambda tables: RunWriter(
                number, shard.number, last_marker(tables), keys, merged, forgets=not index
            )
        )
        run = None
        while run is None:
            if not await self._may_write():
                return
            amount = max(KEYS_PER_STEP, min(self._allowed, _MAX_STEPS * KEYS_PER_STEP))
            written, run = await self._journal.peek(partial(writer.step, amount=amount))
            self._count_written(written)
        shard.frozen = None
        shard.replace(index, run)
        self._filters[shard.number] = [run.filter for run in shard.runs]
        self._by_age.remove(shard)
        self._by_age.append(shard)
        self._last_log_end = run.log_end
        await self._clean_up(merged)
        self._moved += len(keys)

    async def _may_write(self) -> bool:
        """Wait until enough keys were added for the next step. Return ``False`` if the task is to end."""
        while not self._is_stopped and self._allowed <= 0 and self._in_memory <= self._most:
            self._progress.set()
            self._added.clear()
            await self._added.wait()
        return not self._is_stopped

    def _count_written(self, written: int) -> None:
        self._written += written
        self._progress.set()

    async def _clean_up(self, merged: Sequence[Run]) -> None:
        """Remove data that later runs have as well. If the process ends earlier, a later one removes it."""
        for run in merged:
            start: int | None = 0
            while start is not None and await self._may_write():
                start = await self._journal.peek(partial(remove_blocks, run=run, start=start))
                self._count_written(KEYS_PER_STEP)
        oldest = self._oldest()
        before = self._last_log_end if oldest is None else oldest.log_end
        while await self._may_write() and await self._journal.peek(partial(remove_log, before=before)):
            self._count_written(REMOVED_ROWS)

    async def stop(self) -> None:
        """End the task that moves keys. The file has all keys, in its log or in runs."""
        self._is_stopped = True
        self._added.set()
        if self._mover is not None:
            await self._mover


SeenKeys = MemorySeen | DiskSeen
"""Fingerprints, each with the time until which it is known: ``FOREVER`` while pending, or if there is no TTL."""


class SeenSet:
    """The seen set of a job: keys in memory with a log in the journal, or on disk."""

    def __init__(self, journal: Journal, file: SqliteJournal | None, options: FrontierSettings) -> None:
        self._journal = journal
        self._file = file
        """``None``: the keys stay in memory."""
        self._ttl = options.visited_ttl
        self._limit = options.seen_memory_limit
        self.keys: SeenKeys = MemorySeen()

    async def restore(self) -> None:
        """Load the keys that an earlier run left in the file."""
        if self._file is not None:
            self.keys = await self._file.read(partial(self._replay, file=self._file))

    def _replay(self, tables: SqliteTables, file: SqliteJournal) -> SeenKeys:
        runs = load_runs(tables.file)
        seen = self._on_disk(file, runs) if runs else MemorySeen()
        for row, kind, at, fingerprints in tables.seen_log():
            if isinstance(seen, DiskSeen) and not (fingerprints := seen.not_in_runs(row, fingerprints)):
                continue
            if kind == "+":
                seen.load(fingerprints)
            elif kind == "-":
                seen.forget(fingerprints)
            elif kind == UNTIL:
                seen.visited(fingerprints, at)
            elif kind == "v" and self._ttl is not None:
                seen.visited(fingerprints, at + self._ttl)
        return seen

    def _on_disk(self, file: SqliteJournal, runs: Sequence[Run], keys: Sequence[ShardKeys] = ()) -> DiskSeen:
        return DiskSeen(file, runs, self._limit // PARTS_OF_LIMIT, keys)

    def log_added(self, fingerprints: Sequence[bytes], now: float) -> None:
        """Write keys that were added to :attr:`keys` to the journal, many in one row."""
        if self._file is not None:
            self._log("+", now, b"".join(fingerprints))

    def _log(self, kind: str, now: float, fingerprints: bytes) -> None:
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
        """Make every fingerprint unknown, after :meth:`stop`, and after the same has been done in the journal."""
        self.keys = MemorySeen()

    async def write_if_large(self) -> None:
        """Start to move keys from memory to the file, if there are too many."""
        if self._file is not None and isinstance(self.keys, MemorySeen) and len(self.keys) > self._limit:
            self.keys = self._on_disk(self._file, [], self.keys.shards)
        if isinstance(self.keys, DiskSeen):
            await self.keys.write_if_large()

    async def stop(self) -> None:
        """End the background task."""
        if isinstance(self.keys, DiskSeen):
            await self.keys.stop()
