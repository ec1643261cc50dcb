"""The seen set: the fingerprints that a job knows.

A seen set is always exact. All keys are in memory (about 0.1 GB per million) up to ``seen_memory_limit``. Beyond it they
move to sorted runs in the file, and only the newest are in memory.

A run is written once, in the order of its keys, and is never changed. Later keys go to later runs, and runs of similar
size are merged into one, as in a log-structured merge tree (O'Neil et al. 1996). A run is divided into blocks by the
first bits of the keys, which are hashes and therefore evenly spread. A Bloom filter shows which blocks are worth reading.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from skitter.errors import FrontierError
from skitter.frontier.embedded.journal import Journal, SqliteJournal
from skitter.frontier.embedded.packs import execute_rows
from skitter.frontier.embedded.tables import SqliteTables
from skitter.frontier.options import FrontierSettings

if TYPE_CHECKING:  # loaded with the first run: the keys of most crawls stay in memory
    from rbloom import Bloom

FOREVER = float("inf")
KEY_SIZE = 16
SHARD_BITS = 8
KEYS_PER_BLOCK = 32
"""About half a kilobyte. A larger block would leave more of its pages in the file unused."""
KEYS_PER_STEP = 2_048
"""Keys that are written in one transaction, so that commits do not wait long: about 2 ms."""
_MAX_STEPS = 16
"""Maximum number of these steps in one transaction. There are more of them as more new keys wait for the next run."""
FALSE_POSITIVE_RATE = 1e-3
"""Of the filters, which then take 1.8 bytes per key."""
MARKER = "m"
"""Kind of the row of ``seen_log`` that separates the keys of the next run from later ones."""
_READ_BATCH = 500
_REMOVED_BLOCKS = 4_096
"""Blocks that are removed in one transaction."""
_BLOCK_ROWS = "INSERT INTO seen_blocks VALUES (?, ?, ?)"
_PREFIX_BITS = 32
SHARDS = 2**SHARD_BITS
FOUND_KEYS = 200_000
"""Keys in each of the two generations of a set on disk that were found in the file."""
RUNS_PER_LIMIT = 5
"""A set on disk writes a run for each fifth of ``seen_memory_limit``."""
MIN_RUN_SIZE = 10_000
UNTIL = "u"
"""Kind of a row of the log: fingerprints that are known until a time."""

log = logging.getLogger("skitter.frontier")


def _add_new(keys: SeenKeys, fingerprints: Sequence[bytes], now: float) -> list[int]:
    new = []
    for index, fingerprint in enumerate(fingerprints):
        if not keys.known(fingerprint, now):
            keys.add(fingerprint)
            new.append(index)
    return new


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

    def unknown(self, fingerprints: Sequence[bytes], now: float) -> list[bool]:  # noqa: ARG002 - keys do not expire
        """Return which fingerprints are unknown."""
        shards = self._shards
        return [fingerprint not in shards[fingerprint[0]] for fingerprint in fingerprints]

    def add_new(self, fingerprints: Sequence[bytes], now: float) -> list[int]:  # noqa: ARG002 - keys do not expire
        """Make fingerprints known. Return the indexes of those that were unknown."""
        shards, new = self._shards, []
        for index, fingerprint in enumerate(fingerprints):
            shard = shards[fingerprint[0]]
            if fingerprint not in shard:
                shard.add(fingerprint)
                new.append(index)
        return new

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

    def until(self, fingerprint: bytes) -> float | None:
        """Return the time until which a fingerprint is known; ``None`` if it is not in the set."""
        return FOREVER if fingerprint in self._shards[fingerprint[0]] else None

    def sorted_shard(self, number: int) -> list[tuple[bytes, float]]:
        """Return the keys with a first byte, in order."""
        return [(key, FOREVER) for key in sorted(self._shards[number])]


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

    def unknown(self, fingerprints: Sequence[bytes], now: float) -> list[bool]:
        """Return which fingerprints are not known now."""
        return [not self.known(fingerprint, now) for fingerprint in fingerprints]

    def add_new(self, fingerprints: Sequence[bytes], now: float) -> list[int]:
        """Make fingerprints known without limit. Return the indexes of those that were unknown."""
        return _add_new(self, fingerprints, now)

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

    def until(self, fingerprint: bytes) -> float | None:
        """Return the time until which a fingerprint is known; ``None`` if it is not in the set."""
        return self._shards[fingerprint[0]].get(fingerprint)

    def sorted_shard(self, number: int) -> list[tuple[bytes, float]]:
        """Return the keys with a first byte, in order, and their times."""
        return sorted(self._shards[number].items())


class SortedKeys(Protocol):
    """Keys that do not change any more, in shards by their first byte."""

    def sorted_shard(self, number: int) -> list[tuple[bytes, float]]:
        """Return the keys of a shard with the times until which they are known, in order of the keys."""

    def __len__(self) -> int: ...


class Run(NamedTuple):
    """A run in the file."""

    number: int
    """Later runs have larger numbers, and prevail over earlier ones."""
    bits: int
    """Number of leading bits that the keys of a block have in common."""
    amount: int
    filter: Bloom

    def block_of(self, key: bytes) -> int:
        """Return the id of the block in which a key would be."""
        return self.number << _PREFIX_BITS | int.from_bytes(key[:4], "big") >> (_PREFIX_BITS - self.bits)


def _unpacked_filter(packed: bytes) -> Bloom:
    from rbloom import Bloom  # noqa: PLC0415 - see above

    return Bloom.load_bytes(packed, _hash)


def load_runs(file: sqlite3.Connection) -> list[Run]:
    """Return all runs, the oldest first. Blocks of runs that were not finished are removed."""
    runs = [
        Run(number, bits, amount, _unpacked_filter(packed))
        for number, bits, amount, packed in file.execute("SELECT * FROM seen_runs ORDER BY run")
    ]
    known, after = {run.number for run in runs}, -1
    while (found := _next_block(file, after)) is not None:
        number = found >> _PREFIX_BITS
        after = (number + 1 << _PREFIX_BITS) - 1
        if number not in known:
            file.execute("DELETE FROM seen_blocks WHERE id BETWEEN ? AND ?", (number << _PREFIX_BITS, after))
    return runs


def _next_block(file: sqlite3.Connection, after: int) -> int | None:
    (found,) = file.execute("SELECT min(id) FROM seen_blocks WHERE id > ?", (after,)).fetchone()
    return None if found is None else int(found)


def find_keys(file: sqlite3.Connection, runs: Sequence[Run], keys: Sequence[bytes]) -> dict[bytes, float]:
    """Return the times of the keys that are in any run."""
    found: dict[bytes, float] = {}
    for run in reversed(runs):
        wanted: dict[int, list[bytes]] = {}
        for key in keys:
            if key not in found and key in run.filter:
                wanted.setdefault(run.block_of(key), []).append(key)
        blocks = list(wanted)
        for start in range(0, len(blocks), _READ_BATCH):
            batch = blocks[start : start + _READ_BATCH]
            marks = ", ".join("?" * len(batch))
            query = f"SELECT * FROM seen_blocks WHERE id IN ({marks})"  # noqa: S608 - marks
            for block, fingerprints, until in file.execute(query, batch):
                for key in wanted[block]:
                    index = _index_of(key, fingerprints)
                    if index is not None:
                        found[key] = FOREVER if until is None else array("d", until)[index]
    return found


def _index_of(key: bytes, fingerprints: bytes) -> int | None:
    at = fingerprints.find(key)
    while at % KEY_SIZE and at > 0:
        at = fingerprints.find(key, at + 1)
    return None if at < 0 else at // KEY_SIZE


def keys_of_block(fingerprints: bytes, until: bytes | None) -> Iterator[tuple[bytes, float]]:
    """Return the keys of a block and their times."""
    amount = len(fingerprints) // KEY_SIZE
    times: Sequence[float] = [FOREVER] * amount if until is None else array("d", until)
    for index in range(amount):
        yield fingerprints[index * KEY_SIZE : (index + 1) * KEY_SIZE], times[index]


def last_marker(file: sqlite3.Connection) -> int:
    """Return the number of the last marker in the log of fingerprints."""
    query = "SELECT id FROM seen_log WHERE kind = ? ORDER BY id DESC LIMIT 1"
    return int(file.execute(query, (MARKER,)).fetchone()[0])


def remove_blocks(file: sqlite3.Connection, run: Run, step: int) -> bool:
    """Remove the blocks of a run in steps. Return whether any are left."""
    size = _REMOVED_BLOCKS
    start = run.number << _PREFIX_BITS
    low, end = start + step * size, start + (1 << run.bits)
    file.execute("DELETE FROM seen_blocks WHERE id >= ? AND id < ?", (low, min(low + size, end)))
    return low + size < end


def remove_log(file: sqlite3.Connection, until: int) -> bool:
    """Remove the oldest rows of the log of fingerprints up to a number. Return whether any are left."""
    oldest = "SELECT id FROM seen_log WHERE id <= ? ORDER BY id LIMIT ?"
    query = f"DELETE FROM seen_log WHERE id IN ({oldest})"  # noqa: S608 - a constant
    return bool(file.execute(query, (until, KEYS_PER_STEP)).rowcount == KEYS_PER_STEP)


class RunWriter:
    """Writes a run in steps: new keys and those of earlier runs that it replaces.

    ``forgets``: keys that are not known any more are left out, because no earlier run has them.
    """

    def __init__(self, number: int, keys: SortedKeys, merged: Sequence[Run], *, forgets: bool) -> None:
        self._number = number
        self._keys = keys
        self._merged = merged
        self._forgets = forgets
        from rbloom import Bloom  # noqa: PLC0415 - see above

        most = len(keys) + sum(run.amount for run in merged)
        self._range_bits = max(SHARD_BITS, (most // KEYS_PER_STEP).bit_length())
        """A range of keys is read and written at a time. It is a part of a shard, or a whole one."""
        self._bits = max(self._range_bits, (most // KEYS_PER_BLOCK).bit_length() - 1)
        self._ranges: int = 2**self._range_bits
        self._next_range = 0
        self._shard: list[tuple[bytes, float]] = []
        self._filter = Bloom(max(1, most), FALSE_POSITIVE_RATE, _hash)
        self._amount = 0

    def step(self, file: sqlite3.Connection, amount: int = 0) -> bool:
        """Write the next blocks with at least ``amount`` keys (0: the default). Return whether any are left."""
        file.execute("BEGIN IMMEDIATE")
        try:
            if not self._next_range:  # a run that was not finished may have had the number
                start = self._number << _PREFIX_BITS
                file.execute(
                    "DELETE FROM seen_blocks WHERE id >= ? AND id < ?", (start, start + 2**_PREFIX_BITS)
                )
            written = 0
            while self._next_range < self._ranges and written < (amount or KEYS_PER_STEP):
                written += self._write_range(file, self._next_range)
                self._next_range += 1
            file.execute("COMMIT")
        except BaseException:
            if file.in_transaction:
                file.execute("ROLLBACK")
            raise
        return self._next_range < self._ranges

    def _write_range(self, file: sqlite3.Connection, number: int) -> int:
        low, high = (bound << (_PREFIX_BITS - self._range_bits) for bound in (number, number + 1))
        known: dict[bytes, float] = {}
        for run in self._merged:
            known.update(_read_range(file, run, low, high))
        known.update(self._new_keys(number, low, high))
        if self._forgets:
            known = {key: until for key, until in known.items() if until}
        keys = sorted(known)
        self._filter.update(keys)
        self._amount += len(keys)
        is_plain = all(until == FOREVER for until in known.values())
        rows: list[tuple[int, bytes, bytes | None]] = []
        shift, start = _PREFIX_BITS - self._bits, 0
        for block in range(low >> shift, high >> shift):
            end = _position(keys, (block + 1) << shift, start)
            if end > start:
                part = keys[start:end]
                times = None if is_plain else array("d", [known[key] for key in part]).tobytes()
                rows.append((self._number << _PREFIX_BITS | block, b"".join(part), times))
            start = end
        execute_rows(file, _BLOCK_ROWS, rows)
        return len(keys)

    def _new_keys(self, number: int, low: int, high: int) -> list[tuple[bytes, float]]:
        ranges_per_shard = 2 ** (self._range_bits - SHARD_BITS)
        if number % ranges_per_shard == 0:
            self._shard = self._keys.sorted_shard(number // ranges_per_shard)
        if ranges_per_shard == 1:
            return self._shard
        first = bisect_left(self._shard, (low.to_bytes(4, "big"),))
        if high >= 2**_PREFIX_BITS:
            return self._shard[first:]
        return self._shard[first : bisect_left(self._shard, (high.to_bytes(4, "big"),), first)]

    def finish(self, file: sqlite3.Connection) -> Run:
        """Record the run instead of those that it replaces."""
        run = Run(self._number, self._bits, self._amount, self._filter)
        file.execute("BEGIN IMMEDIATE")
        try:
            packed = self._filter.save_bytes()
            file.execute(
                "INSERT INTO seen_runs VALUES (?, ?, ?, ?)", (run.number, run.bits, run.amount, packed)
            )
            for replaced in self._merged:
                file.execute("DELETE FROM seen_runs WHERE run = ?", (replaced.number,))
            file.execute("COMMIT")
        except BaseException:
            if file.in_transaction:
                file.execute("ROLLBACK")
            raise
        return run


def _read_range(file: sqlite3.Connection, run: Run, low: int, high: int) -> Iterator[tuple[bytes, float]]:
    """Return the keys of a run whose first 32 bits are in a range."""
    base, shift = run.number << _PREFIX_BITS, _PREFIX_BITS - run.bits
    query = "SELECT fingerprints, until FROM seen_blocks WHERE id BETWEEN ? AND ?"
    first, last = low >> shift, (high - 1) >> shift
    is_part = (last + 1 - first) << shift > high - low
    for fingerprints, until in file.execute(query, (base | first, base | last)).fetchall():
        for key, time in keys_of_block(fingerprints, until):
            if not is_part or low <= int.from_bytes(key[:4], "big") < high:
                yield key, time


def _position(keys: Sequence[bytes], bound: int, start: int) -> int:
    """Return the index of the first key whose first 32 bits are not below a bound."""
    return len(keys) if bound >= 2**_PREFIX_BITS else bisect_left(keys, bound.to_bytes(4, "big"), start)


def _hash(key: bytes) -> int:
    return int.from_bytes(key, "big", signed=True)  # a fingerprint is a good hash of itself


class DiskSeen:
    """Keys in sorted runs in the file, the newest of them in memory.

    The log of fingerprints in the journal holds those in memory until a run has them. A background task writes the runs.
    """

    def __init__(self, journal: SqliteJournal, runs: Sequence[Run], limit: int) -> None:
        """``limit``: number of new keys after which a run is written."""
        self._journal = journal
        self._runs = list(runs)
        self._limit = max(MIN_RUN_SIZE, limit)
        self._fresh = TimedSeen()
        """Keys that changed since the last run was started."""
        self._changes = 0
        """Number of changes in ``_fresh``."""
        self._frozen: MemorySeen | TimedSeen | None = None
        """Keys of the run that is being written."""
        self._found: dict[bytes, float] = {}
        self._older: dict[bytes, float] = {}
        """Two generations of keys that were found in the file."""
        self._prepared: dict[bytes, float] = {}
        """The prepared keys that are known, even if they have left the generations meanwhile."""
        self._writer: asyncio.Task[None] | None = None
        self._is_stopped = False

    async def prepare(self, fingerprints: Sequence[bytes]) -> None:
        """Look up the keys that neither the keys in memory nor the filters can answer."""
        prepared: dict[bytes, float] = {}
        self._prepared = prepared
        unsure, runs = [], self._runs
        for key in fingerprints:
            until = self._find_in_memory(key)
            if until is not None:
                prepared[key] = until
            elif any(key in run.filter for run in runs):
                unsure.append(key)
        if unsure:
            found = await self._journal.peek(lambda tables: find_keys(tables.file, runs, unsure))
            for key, until in found.items():
                if key not in prepared:  # the key did not change while the file was read
                    prepared[key] = until
                    self._remember(key, until)

    def _find_in_memory(self, key: bytes) -> float | None:
        until = self._fresh.until(key)
        if until is None and self._frozen is not None:
            until = self._frozen.until(key)
        if until is None:
            until = self._found.get(key)
        return self._older.get(key) if until is None else until

    def _remember(self, key: bytes, until: float) -> None:
        if len(self._found) >= FOUND_KEYS:
            self._older, self._found = self._found, {}
        self._found[key] = until

    def known(self, fingerprint: bytes, now: float) -> bool:
        """Return whether a prepared fingerprint is known now."""
        return self._prepared.get(fingerprint, 0.0) > now

    def add(self, fingerprint: bytes) -> None:
        """Make a fingerprint known without limit."""
        self.visited(fingerprint, FOREVER)

    def unknown(self, fingerprints: Sequence[bytes], now: float) -> list[bool]:
        """Return which prepared fingerprints are not known now."""
        return [not self.known(fingerprint, now) for fingerprint in fingerprints]

    def add_new(self, fingerprints: Sequence[bytes], now: float) -> list[int]:
        """Make prepared fingerprints known without limit. Return the indexes of those that were unknown."""
        return _add_new(self, fingerprints, now)

    def visited(self, fingerprint: bytes, until: float) -> None:
        """Make a fingerprint known until a time."""
        self._prepared[fingerprint] = until
        self._found.pop(fingerprint, None)
        self._older.pop(fingerprint, None)
        self._fresh.visited(fingerprint, until)
        self._changes += 1

    def forget(self, fingerprint: bytes) -> None:
        """Make a fingerprint unknown."""
        self.visited(fingerprint, 0.0)

    def load(self, packed: bytes) -> None:
        """Add many fingerprints, given as one sequence of 16-byte keys."""
        self._fresh.load(packed)
        self._changes += len(packed) // KEY_SIZE

    def __len__(self) -> int:
        """Return the number of keys. One that is in several places counts several times."""
        frozen = 0 if self._frozen is None else len(self._frozen)
        return sum(run.amount for run in self._runs) + frozen + len(self._fresh)

    # --- writing runs ------------------------------------------------------------------------------------

    async def write_if_large(self) -> None:
        """Begin to write the keys in memory, if there are many. Wait for the run before, if it is far behind."""
        if self._writer is not None and self._changes >= 2 * self._limit:
            await asyncio.shield(self._writer)
        if self._changes >= self._limit and self._writer is None:
            keys, self._fresh = self._fresh, TimedSeen()
            self.write(keys)

    def write(self, keys: MemorySeen | TimedSeen) -> None:
        """Begin to write keys, which must not change any more, as a run. Their rows in the log are no longer needed then."""
        self._frozen, self._changes = keys, 0
        self._journal.append("log_seen", (MARKER, 0.0, b""))
        self._writer = asyncio.create_task(self._write(keys))

    async def _write(self, keys: MemorySeen | TimedSeen) -> None:
        try:
            # Reading writes all that was appended. A key must not be known before its request is in the file.
            marker = await self._journal.read(lambda tables: last_marker(tables.file))
            merged = self._runs[self._first_merged(len(keys)) :]
            number = self._runs[-1].number + 1 if self._runs else 1
            run_writer = RunWriter(number, keys, merged, forgets=len(merged) == len(self._runs))
            while await self._journal.peek(partial(_write_step, writer=run_writer, amount=self._step_size())):
                if self._is_stopped:
                    return
            run = await self._journal.peek(lambda tables: run_writer.finish(tables.file))
            self._runs = [*self._runs[: len(self._runs) - len(merged)], run]
            self._frozen = None
            await self._clean_up(marker, merged)
        except FrontierError as error:
            # The file has the keys in its log. The next commit meets the error, too.
            log.warning("known URLs stay in memory: %s", error)
        finally:
            self._writer = None
            if self._frozen is not None and not self._is_stopped:
                self._return_frozen(self._frozen)

    def _step_size(self) -> int:
        steps = 1 + _MAX_STEPS * self._changes // self._limit
        return KEYS_PER_STEP * min(steps, _MAX_STEPS)

    async def _clean_up(self, marker: int, merged: Sequence[Run]) -> None:
        while not self._is_stopped and await self._journal.peek(
            lambda tables: remove_log(tables.file, marker)
        ):
            pass
        for run in merged:
            step = 0
            while not self._is_stopped and await self._journal.peek(
                partial(_remove_blocks, run=run, step=step)
            ):
                step += 1

    def _first_merged(self, amount: int) -> int:
        """Return the index of the first of the last runs that become one with new keys.

        A run is merged if it is at most twice as large as all that follows. So there are few runs, and a key is
        written again a few times only.
        """
        index = len(self._runs)
        while index and self._runs[index - 1].amount <= 2 * amount:
            index -= 1
            amount += self._runs[index].amount
        return index

    def _return_frozen(self, keys: MemorySeen | TimedSeen) -> None:
        """Keep the keys of a run that could not be written."""
        fresh, self._fresh = self._fresh, TimedSeen()
        for source in (keys, fresh):
            for number in range(SHARDS):
                for key, until in source.sorted_shard(number):
                    self._fresh.visited(key, until)
        self._frozen, self._changes = None, 0

    async def stop(self) -> None:
        """End the task that writes a run. The file has all keys, in its log or in a run."""
        self._is_stopped = True
        if self._writer is not None:
            await self._writer


def _write_step(tables: SqliteTables, writer: RunWriter, amount: int) -> bool:
    return writer.step(tables.file, amount)


def _remove_blocks(tables: SqliteTables, run: Run, step: int) -> bool:
    return remove_blocks(tables.file, run, step)


SeenKeys = MemorySeen | TimedSeen | DiskSeen
"""Fingerprints, each with the time until which it is known: ``FOREVER`` while pending, or if there is no TTL."""


class SeenSet:
    """The seen set of a job: keys in memory with a log in the journal, or on disk."""

    def __init__(self, journal: Journal, file: SqliteJournal | None, options: FrontierSettings) -> None:
        self._journal = journal
        self._file = file
        """``None``: the keys stay in memory."""
        self._ttl = options.visited_ttl
        self._limit = options.seen_memory_limit
        self._in_memory: MemorySeen | TimedSeen | None = self._new()
        self._on_disk: DiskSeen | None = None
        self.keys: SeenKeys = self._in_memory

    def _new(self) -> MemorySeen | TimedSeen:
        return MemorySeen() if self._ttl is None else TimedSeen()

    async def restore(self) -> None:
        """Load the keys that an earlier run left in the file."""
        if self._file is not None:
            self.keys = await self._file.read(partial(self._replay, file=self._file))

    def _replay(self, tables: SqliteTables, file: SqliteJournal) -> SeenKeys:
        seen: MemorySeen | TimedSeen | DiskSeen
        if runs := load_runs(tables.file):
            self._in_memory = None
            seen = self._start_on_disk(file, runs)
        else:
            self._in_memory = seen = self._new()
        for kind, at, fingerprints in tables.seen_log():
            if kind == "+":
                seen.load(fingerprints)
            elif kind == "-":
                seen.forget(fingerprints)
            elif kind == UNTIL:
                seen.visited(fingerprints, at)
            elif kind == "v" and self._ttl is not None:
                seen.visited(fingerprints, at + self._ttl)
        return seen

    def _start_on_disk(self, file: SqliteJournal, runs: Sequence[Run]) -> DiskSeen:
        self._on_disk = DiskSeen(file, runs, self._limit // RUNS_PER_LIMIT)
        return self._on_disk

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
        self._in_memory = self.keys = self._new()

    async def write_if_large(self) -> None:
        """Begin to move keys from memory to the file, if there are too many."""
        if self._on_disk is not None:
            await self._on_disk.write_if_large()
        elif self._file is not None and self._in_memory is not None and len(self._in_memory) > self._limit:
            keys, self._in_memory = self._in_memory, None
            self.keys = on_disk = self._start_on_disk(self._file, [])
            on_disk.write(keys)

    async def stop(self) -> None:
        """End what runs in the background."""
        on_disk, self._on_disk = self._on_disk, None
        if on_disk is not None:
            await on_disk.stop()
