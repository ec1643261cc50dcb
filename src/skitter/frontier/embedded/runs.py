"""Sorted runs: the known fingerprints of a job that are in the file.

Keys are divided into 256 shards by their first byte, and each shard has its own runs. A run is written once, in the
order of its keys, and is never changed. Later keys of its shard go to later runs, and runs of similar size are merged
into one, as in a log-structured merge tree (O'Neil et al. 1996). A run is divided into blocks by the first bits of the
keys, which are hashes and therefore evenly spread. A filter shows which blocks are worth reading.
"""

from __future__ import annotations

import sqlite3
import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from skitter.frontier.embedded.packs import execute_rows

if TYPE_CHECKING:
    from skitter.frontier.embedded.tables import SqliteTables

FOREVER = float("inf")
KEY_SIZE = 16
PREFIXES = 2**32
"""A key is placed within its shard by its *prefix*: the four bytes after the first one."""
KEYS_PER_BLOCK = 28
"""Average number of keys in a block. With blocks of about half a kilobyte, few bytes at the end of each page of the file stay unused."""
KEYS_PER_STEP = 2_048
"""Number of keys that are written in one transaction. It takes less than a millisecond, so commits do not wait long."""
MARKER = "m"
"""Kind of a row of ``seen_log`` up to which the keys of a shard go to its next run."""
_READ_BATCH = 500
_REMOVED_BLOCKS = 1_024
"""Blocks that are removed in one transaction."""
REMOVED_ROWS = 2_048
"""Rows of the log that are removed in one transaction."""
_BLOCK_ROWS = "INSERT INTO seen_blocks VALUES (?, ?, ?)"
_INDEX_BITS = 32
"""Bits of the index of a block in its run."""
_TAG_START, _TAG_END = 5, 7
"""Position of the two bytes of a key that a filter contains."""
_END_SIZE = 4
"""Bytes that encode the number of keys up to the end of a part."""

try:
    from skitter.frontier.embedded._key_set import KeySet
except ImportError:  # not compiled
    KeySet = set  # type: ignore[assignment,misc]


def split_keys(packed: bytes) -> tuple[bytes, ...]:
    """Return the keys in a sequence of 16-byte keys."""
    return struct.unpack_from("16s" * (len(packed) // KEY_SIZE), packed)


def python_merge(sources: Sequence[bytes]) -> bytes:
    """Return the keys of several sequences, each key once."""
    return b"".join(dict.fromkeys(sorted([key for source in sources for key in split_keys(source)])))


def python_split(packed: bytes, parts: int, first: int, end: int) -> list[bytes]:
    """Return the keys of each part from ``first`` until before ``end``, if all prefixes are divided into ``parts``."""
    keys = split_keys(packed)
    if not keys:
        return [b""] * (end - first)
    cuts = [bisect_left(keys, _lower_bound(keys[0], part, parts)) for part in range(first, end + 1)]
    return [packed[start * KEY_SIZE : stop * KEY_SIZE] for start, stop in pairwise(cuts)]


def _lower_bound(key: bytes, part: int, parts: int) -> bytes:
    """Return a lower bound of the keys of a part; all earlier keys are below it. ``key``: any key of the sequence."""
    prefix = -(-part * PREFIXES // parts)
    if prefix == PREFIXES:
        return key[:1] + b"\xff" * KEY_SIZE
    return key[:1] + prefix.to_bytes(4, "big")


class PythonKeyFilter:
    """Shows which keys are not in a sequence. It has two bytes of each key, by parts of the sequence.

    With 28 keys in each part, the false positive rate is 1 in 2,300. A filter takes 2.2 bytes per key.
    """

    def __init__(self, parts: int, packed: bytes) -> None:
        """``packed``: as returned by :func:`pack_filter`. Raises :class:`ValueError` if it is damaged."""
        self._parts = parts
        ends = array("I", packed[: parts * _END_SIZE])
        self._bounds = [0, *ends]
        """Index of the first key of each part, and the number of keys."""
        self._tags = packed[parts * _END_SIZE :]
        if (
            not parts
            or len(ends) != parts
            or any(end < start for start, end in zip(self._bounds, ends, strict=False))
            or 2 * self._bounds[-1] != len(self._tags)
        ):
            raise ValueError("the filter of a run is malformed")

    def __contains__(self, key: bytes) -> bool:
        part = int.from_bytes(key[1:5], "big") * self._parts >> 32
        tag, end = key[_TAG_START:_TAG_END], 2 * self._bounds[part + 1]
        at = self._tags.find(tag, 2 * self._bounds[part], end)
        while at > 0 and at % 2:
            at = self._tags.find(tag, at + 1, end)
        return at >= 0


def python_possible_keys(keys: Sequence[bytes], shards: Sequence[Sequence[PythonKeyFilter]]) -> list[bytes]:
    """Return the keys that are in a filter of their shard, including false positives."""
    return [key for key in keys if any(key in one for one in shards[key[0]])]


try:  # the same in C
    from skitter.frontier.embedded._sorted_keys import KeyFilter, merge, split
    from skitter.frontier.embedded._sorted_keys import possible_keys as possible_keys  # noqa: PLC0414 - exported
except ImportError:  # not compiled
    KeyFilter = PythonKeyFilter  # type: ignore[assignment,misc]
    merge, possible_keys, split = python_merge, python_possible_keys, python_split


class FilterBuilder:
    """Collects the keys of a sequence, part by part, for its filter."""

    def __init__(self) -> None:
        self.amount = 0
        """Number of keys."""
        self._ends = array("I")
        self._tags = bytearray()

    def add(self, parts: Sequence[bytes]) -> None:
        """Add the keys of the next parts."""
        amount = self.amount
        for keys in parts:
            amount += len(keys) // KEY_SIZE
            self._ends.append(amount)
        packed = b"".join(parts)
        tags = bytearray(2 * (amount - self.amount))
        tags[::2], tags[1::2] = packed[_TAG_START::KEY_SIZE], packed[_TAG_START + 1 :: KEY_SIZE]
        self._tags += tags
        self.amount = amount

    def packed(self) -> bytes:
        """Return the filter as bytes: the number of keys up to the end of each part, and two bytes of each key."""
        return self._ends.tobytes() + bytes(self._tags)


class ShardKeys:
    """The keys of one shard that are in memory."""

    __slots__ = ("endless", "timed")

    def __init__(self) -> None:
        self.endless: set[bytes] = KeySet()
        self.timed: dict[bytes, float] = {}
        """Keys with the times until which they are known; 0: forgotten. None of them is in ``endless``."""

    def __len__(self) -> int:
        return len(self.endless) + len(self.timed)

    def until(self, key: bytes) -> float | None:
        """Return the time until which a key is known; ``None`` if the key is not in memory."""
        return FOREVER if key in self.endless else self.timed.get(key)

    def visited(self, key: bytes, until: float) -> None:
        """Make a key known until a time."""
        if until == FOREVER and key not in self.timed:
            self.endless.add(key)
        else:
            self.endless.discard(key)
            self.timed[key] = until

    def update(self, newer: ShardKeys) -> None:
        """Add keys that replace the existing ones."""
        for key in newer.endless:
            self.visited(key, FOREVER)
        for key, until in newer.timed.items():
            self.visited(key, until)


class Run(NamedTuple):
    """A run in the file."""

    number: int
    """Later runs have larger numbers, and prevail over earlier ones of their shard."""
    shard: int
    blocks: int
    amount: int
    log_end: int
    """Number of a row of the log of fingerprints. The keys of the shard in the log up to this row are in this run, or
    in an earlier one."""
    filter: KeyFilter

    def block_of(self, prefix: int) -> int:
        """Return the id of the block in which the keys with a prefix would be."""
        return self.number << _INDEX_BITS | prefix * self.blocks >> _INDEX_BITS


def load_runs(file: sqlite3.Connection) -> list[Run]:
    """Return all runs, the oldest first. Remove the blocks of unfinished runs, and of replaced ones."""
    query = "SELECT run, shard, blocks, amount, log_end, filter FROM seen_runs ORDER BY run"
    try:
        runs = [
            Run(number, shard, blocks, amount, log_end, KeyFilter(blocks, packed))
            for number, shard, blocks, amount, log_end, packed in file.execute(query)
        ]
    except ValueError as error:
        raise sqlite3.DatabaseError(str(error)) from error
    known, after = {run.number for run in runs}, -1
    next_block = "SELECT min(id) FROM seen_blocks WHERE id > ?"
    while (found := file.execute(next_block, (after,)).fetchone()[0]) is not None:
        number = run_of(found)
        after = (number + 1 << _INDEX_BITS) - 1
        if number not in known:
            file.execute("DELETE FROM seen_blocks WHERE id BETWEEN ? AND ?", (number << _INDEX_BITS, after))
    return runs


def run_of(block: int) -> int:
    """Return the number of the run to which a block belongs."""
    return block >> _INDEX_BITS


def find_keys(file: sqlite3.Connection, keys: Sequence[tuple[bytes, Sequence[Run]]]) -> dict[bytes, float]:
    """Return the times of those keys that are in any of the runs given with each."""
    found: dict[bytes, float] = {}
    wanted: dict[int, list[bytes]] = {}
    for key, runs in keys:
        prefix = int.from_bytes(key[1:5], "big")
        for run in runs:
            if key in run.filter:
                wanted.setdefault(run.block_of(prefix), []).append(key)
    blocks = sorted(wanted)
    for start in range(0, len(blocks), _READ_BATCH):
        batch = blocks[start : start + _READ_BATCH]
        marks = ", ".join("?" * len(batch))
        # In the order of the runs, so that later ones prevail.
        query = f"SELECT * FROM seen_blocks WHERE id IN ({marks}) ORDER BY id"  # noqa: S608 - marks
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
    keys = split_keys(fingerprints)
    return zip(keys, [FOREVER] * len(keys) if until is None else array("d", until), strict=True)


def last_marker(tables: SqliteTables) -> int:
    """Return the number of the last marker in the log of fingerprints."""
    query = "SELECT id FROM seen_log WHERE kind = ? ORDER BY id DESC LIMIT 1"
    return int(tables.file.execute(query, (MARKER,)).fetchone()[0])


def remove_blocks(tables: SqliteTables, run: Run, start: int) -> int | None:
    """Remove some blocks of a run, from an index. Return the index of the next one, if any is left."""
    end = min(start + _REMOVED_BLOCKS, run.blocks)
    base = run.number << _INDEX_BITS
    tables.file.execute("DELETE FROM seen_blocks WHERE id >= ? AND id < ?", (base + start, base + end))
    return end if end < run.blocks else None


def remove_log(tables: SqliteTables, before: int) -> bool:
    """Remove the oldest rows of the log of fingerprints before a number. Return whether any are left.

    The last marker always stays, because SQLite would otherwise reuse its number, and runs refer to it.
    """
    oldest = "SELECT id FROM seen_log WHERE id < ? ORDER BY id LIMIT ?"
    query = f"DELETE FROM seen_log WHERE id IN ({oldest})"  # noqa: S608 - a constant
    return bool(tables.file.execute(query, (before, REMOVED_ROWS)).rowcount == REMOVED_ROWS)


class SortedKeys(NamedTuple):
    """Keys in order, as one sequence of bytes, and the times of those that are not known without limit."""

    keys: bytes
    times: Mapping[bytes, float]


def merge_keys(sources: Sequence[SortedKeys]) -> SortedKeys:
    """Merge keys. Later sources prevail over earlier ones."""
    times: dict[bytes, float] = {}
    for source in sources:
        if times:
            for key in split_keys(source.keys):
                times.pop(key, None)
        times.update(source.times)
    return SortedKeys(merge([source.keys for source in sources]), times)


class RunWriter:
    """Writes a run in steps: new keys of a shard, and those of the runs that it replaces.

    ``forgets``: keys that are no longer known are left out, because no earlier run has them.
    """

    def __init__(
        self, number: int, shard: int, log_end: int, new: ShardKeys, merged: Sequence[Run], *, forgets: bool
    ) -> None:
        self._number, self._shard, self._log_end = number, shard, log_end
        self._merged = merged
        self._forgets = forgets
        most = len(new) + sum(run.amount for run in merged)
        self._ranges = max(1, most // KEYS_PER_STEP)
        """A range of keys is read and written at a time."""
        self._blocks_per_range = max(1, most // self._ranges // KEYS_PER_BLOCK)
        self._new = split(b"".join(sorted([*new.endless, *new.timed])), self._ranges, 0, self._ranges)
        """The new keys of each range."""
        self._times = new.timed
        self._next_range = 0
        self._filter = FilterBuilder()

    def step(self, tables: SqliteTables, amount: int) -> tuple[int, Run | None]:
        """Write the next blocks, with at least ``amount`` keys.

        Return the number of keys read and written, and the run, once it is complete and recorded instead of those that
        it replaces.
        """
        run, file = None, tables.file
        file.execute("BEGIN IMMEDIATE")
        try:
            if not self._next_range:  # a run that was not finished may have had the number
                base = self._number << _INDEX_BITS
                file.execute("DELETE FROM seen_blocks WHERE id >= ? AND id < ?", (base, base + PREFIXES))
            written = 0
            while self._next_range < self._ranges and written < amount:
                written += self._write_range(file, self._next_range)
                self._next_range += 1
            if self._next_range == self._ranges:
                run = self._record(file)
            file.execute("COMMIT")
        except BaseException:
            if file.in_transaction:
                file.execute("ROLLBACK")
            raise
        return written, run

    def _write_range(self, file: sqlite3.Connection, number: int) -> int:
        new, new_times = self._new[number], self._times
        if new_times:
            new_times = {key: new_times[key] for key in split_keys(new) if key in new_times}
        low, high = (-(-bound * PREFIXES // self._ranges) for bound in (number, number + 1))
        sources = [_read_range(file, run, low, high) for run in self._merged]
        keys, times = merge_keys([*sources, SortedKeys(new, new_times)])
        if self._forgets and times:
            keys = b"".join([key for key in split_keys(keys) if times.get(key, FOREVER)])
        first = number * self._blocks_per_range
        # The blocks that were read may begin before this range, and end after it.
        blocks = split(keys, self._ranges * self._blocks_per_range, first, first + self._blocks_per_range)
        rows = [
            (self._number << _INDEX_BITS | block, packed, _packed_times(packed, times))
            for block, packed in enumerate(blocks, first)
            if packed
        ]
        execute_rows(file, _BLOCK_ROWS, rows)
        before = self._filter.amount
        self._filter.add(blocks)
        return self._filter.amount - before

    def _record(self, file: sqlite3.Connection) -> Run:
        blocks = self._ranges * self._blocks_per_range
        packed = self._filter.packed()
        run = Run(
            self._number, self._shard, blocks, self._filter.amount, self._log_end, KeyFilter(blocks, packed)
        )
        file.execute("INSERT INTO seen_runs VALUES (?, ?, ?, ?, ?, ?)", (*run[:5], packed))
        for replaced in self._merged:
            file.execute("DELETE FROM seen_runs WHERE run = ?", (replaced.number,))
        return run


def _read_range(file: sqlite3.Connection, run: Run, low: int, high: int) -> SortedKeys:
    """Return the keys of a run with prefixes from ``low`` until before ``high``, and others of the same blocks."""
    query = "SELECT fingerprints, until FROM seen_blocks WHERE id BETWEEN ? AND ? ORDER BY id"
    rows = file.execute(query, (run.block_of(low), run.block_of(high - 1))).fetchall()
    times = {
        key: until
        for fingerprints, packed in rows
        if packed is not None
        for key, until in keys_of_block(fingerprints, packed)
        if until != FOREVER
    }
    return SortedKeys(b"".join([fingerprints for fingerprints, _ in rows]), times)


def _packed_times(packed: bytes, times: Mapping[bytes, float]) -> bytes | None:
    if not times:
        return None
    keys = split_keys(packed)
    if not any(key in times for key in keys):
        return None
    return array("d", [times.get(key, FOREVER) for key in keys]).tobytes()
