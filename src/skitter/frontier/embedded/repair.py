"""Rebuilds the damaged file of an embedded frontier from everything that can be read."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from skitter.errors import FrontierError
from skitter.frontier.embedded.damage import (
    REQUEST_TABLES,
    Repair,
    checksum_path,
    decode_text,
    find_damage,
    finish_repair,
    matches,
    rebuilt_path,
    unreadable_records,
    write_report,
)
from skitter.frontier.embedded.lock import OwnerLock
from skitter.frontier.embedded.packs import unpack
from skitter.frontier.embedded.runs import FOREVER, MARKER, keys_of_block, run_of
from skitter.frontier.embedded.seen import UNTIL
from skitter.frontier.embedded.tables import create_tables, explain_error

_BY_NUMBER = {
    "job": "id",
    "slots": "id",
    "queue": "seq",
    "leases": "id",
    "dead": "id",
    "seen_log": "id",
    "settings_changes": "id",
    "visits": "rowid",
}
_BY_KEY = ("delayed", "outputs", "counters", "notes", "stats", "bans")
_LOG_ROW = "INSERT INTO seen_log (kind, at, fingerprints) VALUES (?, ?, ?)"
_MAX_FAILURES = 100_000
"""Number of unreadable ranges of a table after which no smaller ranges are tried."""

Row = tuple[Any, ...]


def _open(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.text_factory = decode_text
    return connection


def repair_file(path: Path) -> Repair:
    """Rebuild a damaged frontier file from the rows that can be read. An undamaged file is not changed.

    The damaged files are kept in a folder next to it. If an earlier repair was killed, it is finished, and its report
    is returned. Raises :class:`~skitter.errors.FrontierError` if a process runs the job, or if the record of the job is
    lost, without which the known URLs mean nothing.
    """
    lock = OwnerLock(path)
    lock.acquire()
    try:
        interrupted = finish_repair(path)
        damage = find_damage(path)
        if not damage:
            checksum_path(path).unlink(missing_ok=True)
            return interrupted or Repair([])
        return _rebuild(path, damage)
    except sqlite3.Error as error:
        raise explain_error(error, path) from error
    except OSError as error:
        raise FrontierError(
            f"{path} cannot be repaired: {error.strerror}",
            remedy="check the permissions and the free space of its folder; nothing was changed",
        ) from error
    finally:
        lock.release()


def _rebuild(path: Path, damage: list[str]) -> Repair:
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    saved = path.with_name(f"{path.name}.damaged-{stamp}")
    rebuilt = rebuilt_path(path)
    saved.mkdir(mode=0o700)
    for suffix in ("", "-wal"):
        with contextlib.suppress(FileNotFoundError):
            shutil.copy2(path.with_name(path.name + suffix), saved)
    rebuilt.unlink(missing_ok=True)
    # Reading may change a file, so a second copy is read, in a separate folder.
    readable = saved / "copy"
    shutil.copytree(saved, readable)
    try:
        repair = _salvage(readable / path.name, rebuilt, Repair(damage, saved=saved.name), path)
    except BaseException:
        rebuilt.unlink(missing_ok=True)
        shutil.rmtree(saved)
        raise
    shutil.rmtree(readable)
    rebuilt.chmod(path.stat().st_mode & 0o777)
    write_report(path, repair)
    finish_repair(path)
    return repair


def _salvage(source_path: Path, rebuilt: Path, repair: Repair, path: Path) -> Repair:
    with closing(_open(source_path)) as source, closing(_open(rebuilt)) as target:
        source.execute("PRAGMA writable_schema = ON")  # otherwise no part of a truncated file can be read
        create_tables(target)
        return _Copying(source, target, repair).run(path)


class _Copying:
    """Copies the readable rows of all tables."""

    def __init__(self, source: sqlite3.Connection, target: sqlite3.Connection, repair: Repair) -> None:
        self._source = source
        self._target = target
        self._repair = repair
        self._seed = 0

    def run(self, path: Path) -> Repair:
        repair = self._repair
        self._target.execute("BEGIN")
        for table, key in _BY_NUMBER.items():
            rows = self._by_number(table, key)
            self._copy(table, self._queued(rows) if table == "queue" else rows)
            if table == "job":
                self._read_job(path)
        for table in _BY_KEY:
            self._copy(table, self._from_both_ends(table))
        self._keep_once()
        self._copy_runs()
        self._reset_records()
        self._name_slots()
        self._remember_waiting()
        added, done = self._target.execute("SELECT added, done FROM job").fetchone()
        repair.lost = max(0, added - done - sum(repair.kept[table] for table in REQUEST_TABLES))
        self._target.execute("COMMIT")
        return repair

    def _read_job(self, path: Path) -> None:
        found = self._target.execute("SELECT fingerprint_seed FROM job").fetchone()
        if found is None:
            raise FrontierError(
                f"{path} cannot be repaired: the record of the job is lost",
                remedy="restore the file from a copy, or start again with --fresh, which replaces the outputs",
            )
        self._seed = found[0] % 2**64

    def _copy(self, table: str, rows: Iterator[Row]) -> None:
        columns = [column[1] for column in self._target.execute(f"PRAGMA table_info({table})")]
        insert = f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * len(columns))})"  # noqa: S608 - our own tables
        kept, altered = 0, dict.fromkeys(self._repair.altered)
        for row in rows:
            if table in REQUEST_TABLES:
                named = dict(zip(columns, row, strict=True))
                if not matches(named["url"], named["record"], named["fingerprint"], self._seed):
                    altered[str(named["url"])] = None
                    continue
            try:
                kept += self._target.execute(insert, row).rowcount
            except sqlite3.Error:  # such as a missing value: the row is damaged
                self._miss(table)
        self._repair.kept[table], self._repair.altered = kept, list(altered)

    def _queued(self, queue: Iterator[Row]) -> Iterator[Row]:
        """Yield the rows of the queue that are not marked as removed, and the requests of all readable packs."""
        removed = {number for (number,) in self._by_number("removed", "seq")}
        yield from (row for row in queue if row[0] not in removed)
        removed.update(number for (number,) in self._by_number("unpacked", "seq"))
        for packed in self._by_number("packs", "seq"):
            try:
                rows = list(unpack(packed, removed))
            except (ValueError, TypeError, msgspec.MsgspecError):
                self._miss("packs")
                continue
            yield from map(tuple, rows)

    def _keep_once(self) -> None:
        """Remove delayed and dead requests from the queue. They are also in their pack if `unpacked` is unreadable."""
        self._repair.kept["queue"] -= self._target.execute(
            "DELETE FROM queue WHERE seq IN (SELECT seq FROM delayed UNION SELECT seq FROM dead)"
        ).rowcount

    def _miss(self, table: str) -> None:
        if table not in self._repair.incomplete:
            self._repair.incomplete.append(table)

    def _by_number(self, table: str, key: str) -> Iterator[Row]:
        query = f"SELECT * FROM {table} NOT INDEXED WHERE {key} >= ? AND {key} < ? ORDER BY {key}"  # noqa: S608 - constants
        return self._ranges(table, lambda low, high: self._source.execute(query, (low, high)), 0, 2**62)

    def _copy_runs(self) -> None:
        """Write the keys of all runs to the log, before the other keys. The job writes runs again from the log.

        The blocks are read in the order of their runs, so later ones prevail. Blocks of unfinished runs, and of runs
        that should have been removed, are left out: they may have URLs that were forgotten since.
        """
        execute, kept, runs = self._target.execute, 0, self._run_numbers()
        execute("CREATE TEMP TABLE newer AS SELECT kind, at, fingerprints FROM seen_log ORDER BY id")
        execute("DELETE FROM seen_log")
        for block in self._by_number("seen_blocks", "id"):
            if runs is not None and run_of(block[0]) not in runs:
                continue
            try:
                keys = list(keys_of_block(*block[1:]))
            except (ValueError, TypeError, IndexError):
                self._miss("seen_blocks")
                continue
            endless = b"".join(key for key, until in keys if until == FOREVER)
            rows = [("+", 0.0, endless)] if endless else []
            rows += [
                (UNTIL, until, key) if until else ("-", 0.0, key) for key, until in keys if until != FOREVER
            ]
            self._target.executemany(_LOG_ROW, rows)
            kept += len(rows)
        execute(
            "INSERT INTO seen_log (kind, at, fingerprints) SELECT * FROM newer WHERE kind <> ?", (MARKER,)
        )
        execute("DROP TABLE newer")
        self._repair.kept["seen_blocks"] = kept

    def _run_numbers(self) -> set[int] | None:
        """Return the numbers of all runs; ``None`` if they cannot be read."""
        try:
            return {number for (number,) in self._source.execute("SELECT run FROM seen_runs")}
        except sqlite3.DatabaseError:
            self._miss("seen_runs")
            return None

    def _ranges(
        self, table: str, read: Callable[[int, int], Iterator[Row]], low: int, high: int
    ) -> Iterator[Row]:
        """Yield the rows of a range of keys, some twice. A range that cannot be read is halved, down to single keys."""
        open_ranges, failures = [(low, high)], 0
        while open_ranges:
            low, high = open_ranges.pop()
            try:
                yield from read(low, high)
            except sqlite3.DatabaseError:
                self._miss(table)
                failures += 1
                if high - low > 1 and failures < _MAX_FAILURES:
                    middle = (low + high) // 2
                    open_ranges += [(middle, high), (low, middle)]

    def _from_both_ends(self, table: str) -> Iterator[Row]:
        """Yield the rows before the first and after the last unreadable page."""
        keys = [column[1] for column in self._target.execute(f"PRAGMA table_info({table})") if column[5]]
        for direction in ("ASC", "DESC"):
            order = ", ".join(f'"{key}" {direction}' for key in keys)
            try:
                yield from self._source.execute(f"SELECT * FROM {table} ORDER BY {order}")  # noqa: S608 - our own tables
            except sqlite3.DatabaseError:
                self._miss(table)
            else:
                break

    def _reset_records(self) -> None:
        """Empty the counters, and remove the leases, that cannot be decoded."""
        for table, number in list(unreadable_records(self._target)):
            if table == "job":
                self._miss("counters")
                self._target.execute("UPDATE job SET counters = '{}'")
            else:
                self._miss(table)
                self._target.execute("DELETE FROM leases WHERE id = ?", (number,))

    def _name_slots(self) -> None:
        """Assign the requests of lost slots to slots with the names of their hosts."""
        names = {key: number for number, key in self._target.execute("SELECT id, key FROM slots")}
        numbers = set(names.values())
        for table in REQUEST_TABLES:
            for slot, url in self._target.execute(f"SELECT slot, url FROM {table}").fetchall():  # noqa: S608 - constants
                if slot in numbers:
                    continue
                host = urlsplit(url).hostname or ""
                if host not in names:
                    names[host] = max([0, *names.values()]) + 1
                    self._target.execute("INSERT INTO slots (id, key) VALUES (?, ?)", (names[host], host))
                self._target.execute(f"UPDATE {table} SET slot = ? WHERE slot = ?", (names[host], slot))  # noqa: S608 - constants
                numbers = set(names.values())

    def _remember_waiting(self) -> None:
        """Mark the fingerprints of all kept requests as known, so that none is added again."""
        prints = [
            stored
            for table in REQUEST_TABLES
            for (stored,) in self._target.execute(f"SELECT fingerprint FROM {table} WHERE dedup = 1")  # noqa: S608 - constants
        ]
        self._target.execute(_LOG_ROW, ("+", 0.0, b"".join(prints)))
