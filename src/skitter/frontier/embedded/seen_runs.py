"""Sorted runs: known fingerprints in the file of a frontier, once there are too many for memory.

A run is written once, in the order of its keys, and is never changed. Later keys go to later runs, and runs of similar
size are merged into one, as in a log-structured merge tree (O'Neil et al. 1996). A run is divided into blocks by the
first bits of the keys, which are hashes and therefore evenly spread. A Bloom filter shows which blocks are
worth reading.
"""

from __future__ import annotations

import sqlite3
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from rbloom import Bloom

from skitter.frontier.embedded.packs import execute_rows

FOREVER = float("inf")
KEY_SIZE = 16
SHARD_BITS = 8
KEYS_PER_BLOCK = 32
"""About half a kilobyte. A larger block would leave more of its pages in the file unused."""
KEYS_PER_STEP = 2_048
"""Keys that are written or removed in one transaction, so that commits do not wait long: about 2 ms."""
FALSE_POSITIVE_RATE = 1e-3
"""Of the filters, which then take 1.8 bytes per key."""
MARKER = "m"
"""Kind of the row of ``seen_log`` that separates the keys of the next run from later ones."""
_READ_BATCH = 500
_REMOVED_BLOCKS = 512
"""Blocks that are removed in one transaction."""
_BLOCK_ROWS = "INSERT INTO seen_blocks VALUES (?, ?, ?)"
_PREFIX_BITS = 32


class SortedKeys(Protocol):
    """Keys that do not change any more, in shards by their first byte."""

    def sorted_shard(self, number: int) -> list[tuple[bytes, float]]:
        """Return the keys of a shard with the times until which they are known, in order of the keys."""
        ...

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


def load_runs(file: sqlite3.Connection) -> list[Run]:
    """Return all runs, the oldest first. Blocks of runs that were not finished are removed."""
    runs = [
        Run(number, bits, amount, Bloom.load_bytes(packed, _hash))
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
        most = len(keys) + sum(run.amount for run in merged)
        self._range_bits = max(SHARD_BITS, (most // KEYS_PER_STEP).bit_length())
        """A range of keys is read and written at a time. It is a part of a shard, or a whole one."""
        self._bits = max(self._range_bits, (most // KEYS_PER_BLOCK).bit_length() - 1)
        self._ranges: int = 2**self._range_bits
        self._next_range = 0
        self._shard: list[tuple[bytes, float]] = []
        self._filter = Bloom(max(1, most), FALSE_POSITIVE_RATE, _hash)
        self._amount = 0

    def step(self, file: sqlite3.Connection) -> bool:
        """Write the next blocks. Return whether any are left."""
        file.execute("BEGIN IMMEDIATE")
        try:
            if not self._next_range:  # a run that was not finished may have had the number
                start = self._number << _PREFIX_BITS
                file.execute(
                    "DELETE FROM seen_blocks WHERE id >= ? AND id < ?", (start, start + 2**_PREFIX_BITS)
                )
            written = 0
            while self._next_range < self._ranges and written < KEYS_PER_STEP:
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
