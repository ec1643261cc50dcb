"""The tables of a frontier file: the check of a file, and the queries of the frontier."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from skitter.errors import FrontierError
from skitter.frontier.embedded.lock import OwnerLock
from skitter.frontier.embedded.packs import (
    MAX_PACK_SIZE,
    MIN_PACK_SIZE,
    PACK_OF,
    move_to_row,
    remove_empty_packs,
    replace_packs_by_rows,
    unpack_numbers,
)
from skitter.frontier.options import FrontierSettings, changed_mode
from skitter.frontier.records import DeadLetter, JobState, PageChange, TaskFilter, VisitedPage, VisitsPart
from skitter.frontier.scheduling import lost_error, retry_delay_after_loss
from skitter.frontier.scripts import script
from skitter.item import OutputRange
from skitter.request import FINGERPRINT_VERSION

APPLICATION_ID = 0x736B6974
"""``skit``: identifies a frontier file, for ``file(1)`` as well."""
FORMAT_VERSION = 14

_CLOCK_TOLERANCE = 1.0
"""Seconds by which the clock may be behind the last change, because clocks drift. Moving all stored times takes long."""

COUNTERS_IN_ROWS = "values/"
"""Prefix of the counters with a row each: there may be thousands of them (:mod:`skitter.worker.bounded_counters`). All
others are in the row of the job, which costs less than a row for each changed counter."""

OWNER = 0
"""Id of the empty lease batch that is in the file while an owner has it open."""

FORGOTTEN = 2
"""Value of ``dedup`` in a dead letter whose fingerprint was forgotten, so that its URL may have been added again."""

_SCHEMA = " ".join(re.sub(r"--[^\n]*", "", script("schema.sql")).split()).replace(", ", ",")
"""SQLite stores the statements. Without comments, indents and spaces after commas, they fit into the first page of the
file, so that ``skitter repair`` can read the tables of a truncated file."""


def create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables of an empty file."""
    connection.executescript(
        f"BEGIN;{_SCHEMA}PRAGMA application_id = {APPLICATION_ID};PRAGMA user_version = {FORMAT_VERSION};COMMIT;"
    )


_COLUMNS = "seq, slot, rank, fingerprint, url, record, priority, dedup, attempt, lost"


_ORDER = itemgetter(2, 0)
"""Rank and number of a row."""
_decode_packs = msgspec.json.Decoder(list[tuple[int, int, int, int, list[int]]]).decode
_encode_counters = msgspec.json.Encoder().encode
decode_counters = msgspec.json.Decoder(dict[str, int]).decode
decode_members = msgspec.msgpack.Decoder(list[tuple[int, int, int]]).decode
_decode_rows = msgspec.json.Decoder(list[tuple[int, int, int, str, str, str, int, int, int, int]]).decode

decode_ranges = msgspec.msgpack.Decoder(list[OutputRange]).decode


class RequestRow(NamedTuple):
    """The stored form of a request in the file."""

    seq: int
    slot: int
    """The slot's number in the file."""
    rank: int
    fingerprint: bytes
    url: str
    record: bytes
    priority: int
    dedup: int
    attempt: int
    lost: int


class _JobRow(NamedTuple):
    """The record of the job that :meth:`SqliteTables.restore` reads, with the values of a job that has no record yet."""

    state: str = JobState.RUNNING
    done: int = 0
    sequence: int = 0
    seed_position: int = 0
    seeds_done: int = 0
    fingerprint_seed: int = 0
    fingerprint_version: int = FINGERPRINT_VERSION
    pass_number: int = 1
    changes: str | None = None
    """The setting ``changes`` with which the job was created, empty if it had none; ``None``: the job is new."""


class StoredLimits(msgspec.Struct):
    """The limits of a slot as an earlier run left them. Most slots have none."""

    min_delay: float
    paused_until: float
    grants: list[list[float]]


class StoredJob(msgspec.Struct):
    """The state of a job as an earlier run left it."""

    state: JobState
    added: int
    done: int
    sequence: int
    seed_position: int
    seeds_done: bool
    fingerprint_seed: int
    failed: int
    delayed: int
    next_due: float
    """Time at which the first delayed request is due; infinity if there is none."""
    slot_keys: dict[int, str]
    """Key of each slot by its number, as for the following fields."""
    limits: dict[int, StoredLimits]
    queued: dict[int, tuple[int, int]]
    """Number of queued requests, and rank of the first one."""
    delayed_by_slot: dict[int, int]
    outputs: dict[str, list[tuple[int, int]]]
    counters: Counter[str]
    banned: set[str]
    stats: list[tuple[Any, ...]]
    """Rows of the statistics: dimension, key and amounts of each."""
    settings_changes: bytes
    """MessagePack; empty: no changes."""
    pass_number: int
    killed: bool
    """Whether the last owner ended without closing the file."""


def pack_counters(counters: Mapping[str, int]) -> str:
    """Return the counters that are stored in the row of the job."""
    packed = _encode_counters(counters).decode()
    if COUNTERS_IN_ROWS not in packed:  # nearly every job
        return packed
    stored = {name: value for name, value in counters.items() if not name.startswith(COUNTERS_IN_ROWS)}
    return _encode_counters(stored).decode()


def new_fingerprint_seed() -> int:
    """Return a random seed of 64 bits for the fingerprints of a new job."""
    return int.from_bytes(os.urandom(8), "big")


class SqliteTables:
    """The queries of an embedded frontier, and the changes that it makes directly in its file."""

    def __init__(self, file: sqlite3.Connection) -> None:
        self.file = file

    # --- starting a run ----------------------------------------------------------------------------------

    def restore(self, options: FrontierSettings, now: float) -> StoredJob:
        """Reclaim the leases of the last run and read the whole state.

        Raises :class:`~skitter.errors.FrontierError` for fingerprints of another version.
        """
        job = self._job()
        if job.fingerprint_version != FINGERPRINT_VERSION:
            raise FrontierError(
                f"the job has fingerprints of version {job.fingerprint_version}, but this skitter uses version {FINGERPRINT_VERSION}",
                remedy="finish the job with the skitter version that started it, or start again with --fresh",
                field="fingerprint_version",
            )
        if job.changes is not None and job.changes != (options.changes or ""):
            raise changed_mode(job.changes, options.changes or "", "the job")
        self._follow_clock(now)
        self.apply_removals()
        killed = self.count("leases") > 0
        new_dead = self._reclaim_leases(options, now)
        failed, delayed, queued = self.count("dead"), self.count("delayed"), self.queued_by_slot()
        return StoredJob(
            # A stop applies to one run; a pause lasts until it is lifted.
            state=JobState.RUNNING if job.state == JobState.STOPPING else JobState(job.state),
            # The sum, not the stored total: the last owner may have been killed between the removal of rows and the
            # update of the total.
            added=sum(map(itemgetter(0), queued.values())) + delayed + job.done + failed,
            done=job.done, sequence=job.sequence + new_dead, seed_position=job.seed_position, seeds_done=bool(job.seeds_done),
            fingerprint_seed=job.fingerprint_seed % 2**64, failed=failed, delayed=delayed, next_due=self.next_due(),
            slot_keys=dict(self.file.execute("SELECT id, key FROM slots")), limits=self._limits(),
            queued=queued, delayed_by_slot=self.delayed_by_slot(), outputs=self.outputs(), counters=Counter(self.counters()),
            banned=set(self.banned()),
            stats=list(self.file.execute("SELECT * FROM stats")),
            settings_changes=self.settings_changes(), pass_number=job.pass_number, killed=killed,
        )  # fmt: skip

    def _follow_clock(self, now: float) -> None:
        """Keep the remaining time of all waits if the clock was set back since the last change.

        The time in between is not known and counts as none. A request is not fetched before a time that it names.
        """
        ahead = self.clock() - now
        if ahead <= _CLOCK_TOLERANCE:
            return
        self.file.execute("BEGIN IMMEDIATE")
        self.file.execute("UPDATE delayed SET at = max(at - ?, not_before)", (ahead,))
        self.file.execute(
            "UPDATE slots SET paused_until = paused_until - ? WHERE paused_until <> 0", (ahead,)
        )
        for number, limits in self._limits().items():
            if limits.grants:
                grants = msgspec.msgpack.encode([[at - ahead for at in times] for times in limits.grants])
                self.file.execute("UPDATE slots SET grants = ? WHERE id = ?", (grants, number))
        self.file.execute("UPDATE notes SET until = until - ?", (ahead,))
        self.file.execute("UPDATE job SET clock = ?", (now,))
        self.file.execute("COMMIT")

    def clock(self) -> float:
        """Return the Unix time of the last change, by the clock of its owner; 0 if there is none."""
        found = self.file.execute("SELECT clock FROM job").fetchone()
        return 0.0 if found is None else float(found[0])

    def _job(self) -> _JobRow:
        found = self.file.execute(f"SELECT {', '.join(_JobRow._fields)} FROM job").fetchone()  # noqa: S608 - our own names
        return _JobRow(fingerprint_seed=new_fingerprint_seed()) if found is None else _JobRow._make(found)

    def _reclaim_leases(self, options: FrontierSettings, now: float) -> int:
        """Count a loss for each request that was leased. Return the number of those that became dead letters."""
        lost = dead = 0
        self.file.execute("BEGIN IMMEDIATE")
        (last,) = self.file.execute("SELECT coalesce(max(sequence), 0) FROM job").fetchone()
        for seq, attempt, losses in self._lease_members():
            move_to_row(self.file, seq)
            held = self.file.execute(
                "UPDATE queue SET lost = lost + 1 WHERE seq = ? AND attempt = ? AND lost = ? RETURNING lost",
                (seq, attempt, losses),
            ).fetchone()
            if held is None:
                continue
            lost += 1
            if held[0] > options.max_worker_crashes:
                dead += 1
                self._mark_dead(seq, last + dead, lost_error(held[0]), now)
            elif held[0] > 1:
                query = f"INSERT INTO delayed SELECT ?, {_COLUMNS}, 0 FROM queue WHERE seq = ?"  # noqa: S608 - constants
                self.file.execute(query, (now + retry_delay_after_loss(held[0]), seq))
                self.file.execute("DELETE FROM queue WHERE seq = ?", (seq,))
        remove_empty_packs(self.file, "unpacked")
        # The mark of the owner stays: this process may be killed before it has opened the job.
        self.file.execute("DELETE FROM leases WHERE id <> ?", (OWNER,))
        if lost:
            counters = self.counters()
            counters["leases/lost"] = counters.get("leases/lost", 0) + lost
            if dead:
                counters["failed/lost"] = counters.get("failed/lost", 0) + dead
            self.file.execute("UPDATE job SET counters = ?", (pack_counters(counters),))
        self.file.execute("UPDATE job SET sequence = sequence + ?", (dead,))
        self.file.execute("COMMIT")
        return dead

    def _lease_members(self) -> list[tuple[int, int, int]]:
        return [
            (seq, attempt, lost)
            for (members,) in self.file.execute("SELECT members FROM leases ORDER BY id").fetchall()
            for seq, attempt, lost in decode_members(members)
        ]

    def _mark_dead(self, seq: int, letter_id: int, error: str, now: float) -> None:
        self.file.execute(
            "INSERT INTO dead SELECT ?, seq, slot, rank, fingerprint, url, record, priority, dedup, attempt + 1,"
            " lost, ?, ? FROM queue WHERE seq = ?",
            (letter_id, error, now, seq),
        )
        self.file.execute(
            "UPDATE visits SET pass_number = (SELECT pass_number FROM job), change = ?, status = 0"
            " WHERE fingerprint = (SELECT fingerprint FROM queue WHERE seq = ? AND dedup <> 0)",
            (PageChange.UNCHECKED.value, seq),
        )
        self.file.execute("DELETE FROM queue WHERE seq = ?", (seq,))

    def _limits(self) -> dict[int, StoredLimits]:
        query = (
            "SELECT id, min_delay, paused_until, grants FROM slots"
            " WHERE min_delay <> 0 OR paused_until <> 0 OR grants IS NOT NULL"
        )
        return {
            number: StoredLimits(min_delay, until, msgspec.msgpack.decode(grants) if grants else [])
            for number, min_delay, until, grants in self.file.execute(query)
        }

    def queued_by_slot(self) -> dict[int, tuple[int, int]]:
        """Return the number of queued and leased requests, and their first rank, by slot number."""
        rows = "SELECT slot, count(*), min(rank) FROM queue GROUP BY slot"
        found = {slot: (count, rank) for slot, count, rank in self.file.execute(rows)}
        packs = "SELECT slot, sum(amount), min(rank) FROM packs GROUP BY slot"
        for slot, count, rank in self.file.execute(packs):
            rows_of_slot, first = found.get(slot, (0, rank))
            found[slot] = (rows_of_slot + count, min(rank, first))
        for slot, unpacked in self._unpacked_by_slot():
            count, rank = found[slot]
            found[slot] = (count - unpacked, rank)
        return {slot: queued for slot, queued in found.items() if queued[0]}

    def _unpacked_by_slot(self) -> list[tuple[int, int]]:
        """Return the number of requests that have left the packs of each slot, by slot number."""
        query = (
            "SELECT packs.slot, count(*) FROM unpacked"  # noqa: S608 - a constant
            f" JOIN packs ON {PACK_OF.format('unpacked.seq')} GROUP BY packs.slot"
        )
        return self.file.execute(query).fetchall()

    def delayed_by_slot(self) -> dict[int, int]:
        """Return the number of delayed requests by slot number."""
        return dict(self.file.execute("SELECT slot, count(*) FROM delayed GROUP BY slot"))

    def count(self, table: str) -> int:
        """Return the number of rows of a table."""
        (count,) = self.file.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608 - our own table names
        return int(count)

    def counters(self) -> dict[str, int]:
        """Return the counters of the job."""
        found = self.file.execute("SELECT counters FROM job").fetchone()
        counters = {} if found is None else decode_counters(found[0])
        counters.update(self.file.execute("SELECT name, value FROM counters"))
        return counters

    def outputs(self) -> dict[str, list[tuple[int, int]]]:
        """Return the committed ranges of each part file, in order."""
        found: dict[str, list[tuple[int, int]]] = {}
        for part, start, stop in self.file.execute(
            "SELECT part, start, stop FROM outputs ORDER BY part, start"
        ):
            found.setdefault(part, []).append((start, stop))
        return found

    def banned(self) -> list[str]:
        """Return the banned slots, sorted."""
        return [key for (key,) in self.file.execute("SELECT key FROM bans WHERE banned ORDER BY key")]

    def settings_changes(self) -> bytes:
        """Return the settings that were changed during runs, as MessagePack; empty: none."""
        found = self.file.execute("SELECT packed FROM settings_changes").fetchone()
        return bytes(found[0]) if found else b""

    def leased(self) -> int:
        """Return the number of leased requests: those in the lease batches whose row is unchanged since the lease."""
        query = (
            "SELECT (SELECT count(*) FROM queue WHERE seq = ?1 AND attempt = ?2 AND lost = ?3) + (SELECT count(*) FROM packs"  # noqa: S608 - a constant
            f" WHERE {PACK_OF.format('?1')} AND NOT ?2 AND NOT ?3 AND NOT EXISTS (SELECT 1 FROM unpacked WHERE seq = ?1))"
        )
        return sum(self.file.execute(query, member).fetchone()[0] for member in set(self._lease_members()))

    # --- queued and delayed requests ---------------------------------------------------------------------

    def apply_removals(self) -> None:
        """Remove the requests that are only marked as removed. All other methods ignore them."""
        if self.file.execute("SELECT 1 FROM removed LIMIT 1").fetchone():
            self.file.execute("BEGIN IMMEDIATE")
            remove_rows(self.file)
            self.file.execute("COMMIT")

    def read_heads(self, starts: Sequence[tuple[int, int, int]], limit: int) -> list[list[RequestRow]]:
        """Return the next requests of some slots: for each slot number, rank and number, the requests after it."""
        heads = self._read_rows(starts, limit)
        if numbers := self._needed_from_packs(starts, heads, limit):
            by_slot = {start[0]: head for start, head in zip(starts, heads, strict=True)}
            marks = ", ".join("?" * len(numbers))
            for packed in self.file.execute(f"SELECT * FROM packs WHERE seq IN ({marks})", tuple(numbers)):  # noqa: S608 - marks
                by_slot[packed[1]] += map(RequestRow._make, unpack_numbers(packed, numbers[packed[0]]))
            for head in heads:
                head.sort(key=_ORDER)
                del head[limit:]
        return heads

    def _needed_from_packs(
        self, starts: Sequence[tuple[int, int, int]], heads: Sequence[Sequence[RequestRow]], limit: int
    ) -> dict[int, list[int]]:
        """Return the packed requests among the next ones of some slots: their numbers, by the number of their pack.

        ``heads``: the next rows of the queue of each slot.
        """
        needed: dict[int, list[int]] = {}
        packed = self._next_packed(starts, limit)
        for (slot, _, _), head in zip(starts, heads, strict=True):
            keys = packed[slot]
            if not keys:
                continue
            keys += [(row.rank, row.seq, 0) for row in head]
            keys.sort()
            for _, seq, pack in keys[:limit]:
                if pack:
                    needed.setdefault(pack, []).append(seq)
        return needed

    def _next_packed(
        self, starts: Sequence[tuple[int, int, int]], limit: int
    ) -> dict[int, list[tuple[int, int, int]]]:
        """Return rank, number and pack of at least the next ``limit`` packed requests of some slots, by slot number."""
        query = (
            "SELECT json_group_array(json_array(slot, rank, seq, amount, json((SELECT json_group_array(number) FROM"  # noqa: S608 - marks
            " (SELECT seq AS number FROM unpacked WHERE seq >= packs.seq AND seq < packs.seq + packs.amount UNION ALL"
            " SELECT seq FROM removed WHERE seq >= packs.seq AND seq < packs.seq + packs.amount)))))"
            f" FROM (VALUES {', '.join(['(?, ?, ?)'] * len(starts))}) JOIN packs ON seq IN (SELECT seq FROM packs"
            # The requests before the start, such as the first ones of a pack, are in memory or done.
            f" WHERE slot = column1 AND (rank, seq) > (column2, column3 - {MAX_PACK_SIZE})"
            " AND (rank > column2 OR seq + amount > column3 + 1) ORDER BY rank, seq LIMIT ?)"
        )
        most = limit // MIN_PACK_SIZE + 2
        while True:
            values = [value for start in starts for value in start]
            (found,) = self.file.execute(query, [*values, most]).fetchone()
            keys: dict[int, list[tuple[int, int, int]]] = {start[0]: [] for start in starts}
            after = {slot: (rank, seq) for slot, rank, seq in starts}
            packs: Counter[int] = Counter()
            for slot, rank, seq, amount, unpacked in sorted(_decode_packs(found)):
                packs[slot] += 1
                if len(keys[slot]) < limit:
                    keys[slot] += [
                        (rank, number, seq)
                        for number in range(seq, seq + amount)
                        if number not in unpacked and (rank, number) > after[slot]
                    ]
            # Many requests may have left the first packs, after their slot was searched for a task, for example.
            if all(len(keys[slot]) >= limit or packs[slot] < most for slot in keys):
                return keys
            most *= 4

    def _read_rows(self, starts: Sequence[tuple[int, int, int]], limit: int) -> list[list[RequestRow]]:
        # In one row: the interpreter lock is released at each step, and a busy event loop returns it late.
        query = (
            "SELECT json_group_array(json_array(seq, slot, rank, hex(fingerprint), url, hex(record), priority, dedup,"  # noqa: S608 - marks
            f" attempt, lost)) FROM (VALUES {', '.join(['(?, ?, ?)'] * len(starts))}) JOIN queue ON seq IN (SELECT seq"
            " FROM queue WHERE slot = column1 AND (rank, seq) > (column2, column3) AND seq NOT IN (SELECT seq FROM removed)"
            " ORDER BY rank, seq LIMIT ?)"
        )
        (found,) = self.file.execute(
            query, [value for start in starts for value in start] + [limit]
        ).fetchone()
        heads: dict[int, list[RequestRow]] = {start[0]: [] for start in starts}
        for seq, slot, rank, fingerprint, url, record, *others in _decode_rows(found):
            row = RequestRow(seq, slot, rank, bytes.fromhex(fingerprint), url, bytes.fromhex(record), *others)
            heads[slot].append(row)
        return [sorted(heads[start[0]], key=_ORDER) for start in starts]

    def take_due(self, now: float, limit: int) -> tuple[list[RequestRow], float]:
        """Move due requests to the queue. Return them, and the time at which the next one is due."""
        self.apply_removals()
        self.file.execute("BEGIN IMMEDIATE")
        due = f"FROM delayed WHERE at <= ? ORDER BY at, seq LIMIT {limit:d}"
        rows = [RequestRow(*row) for row in self.file.execute(f"SELECT {_COLUMNS} {due}", (now,))]
        self.file.execute(f"INSERT OR REPLACE INTO queue SELECT {_COLUMNS} {due}", (now,))
        self.file.execute(f"DELETE FROM delayed WHERE (at, seq) IN (SELECT at, seq {due})", (now,))  # noqa: S608 - a number
        self.file.execute("COMMIT")
        return rows, self.next_due()

    def drop_slot(self, slot: int, last: int, leased: Sequence[int]) -> tuple[int, float]:
        """Remove the waiting requests of a slot with a number up to ``last``, except the leased ones.

        Return the number of those that were delayed, and the time at which the next delayed request is due.
        """
        self.apply_removals()
        self.file.execute("BEGIN IMMEDIATE")
        for number in leased:
            move_to_row(self.file, number)
        self.file.execute(
            "DELETE FROM queue WHERE slot = ? AND seq <= ? AND seq NOT IN (SELECT value FROM json_each(?))",
            (slot, last, msgspec.json.encode(leased).decode()),
        )
        self.file.execute(
            "DELETE FROM unpacked WHERE seq IN (SELECT unpacked.seq FROM packs CROSS JOIN unpacked"
            " ON unpacked.seq >= packs.seq AND unpacked.seq < packs.seq + amount WHERE slot = ? AND packs.seq <= ?)",
            (slot, last),
        )
        self.file.execute("DELETE FROM packs WHERE slot = ? AND seq <= ?", (slot, last))
        removed = self.file.execute("DELETE FROM delayed WHERE slot = ? AND seq <= ?", (slot, last)).rowcount
        self.file.execute("COMMIT")
        return removed, self.next_due()

    def unpack_some(self, pattern: bytes, after: int, last: int, limit: int) -> int:
        """Give a row to each request in up to ``limit`` packs, by number, whose record contains a pattern.

        Return the number after which to continue; 0 at the end.
        """
        self.apply_removals()
        query = "SELECT seq FROM packs WHERE seq > ? AND seq <= ? AND instr(record, ?) ORDER BY seq LIMIT ?"
        numbers = [number for (number,) in self.file.execute(query, (after, last, pattern, limit))]
        if numbers:
            replace_packs_by_rows(self.file, numbers)
        return int(numbers[-1]) if len(numbers) == limit else 0

    def find_waiting(
        self, pattern: bytes, after: int, last: int, limit: int
    ) -> tuple[list[tuple[int, int, int, bytes]], int]:
        """Search up to ``limit`` queued requests, by number, for records that contain a pattern.

        Return number, slot, rank and record of each match, and the number after which to continue; 0 at the end.
        """
        self.apply_removals()
        page = "SELECT seq FROM queue WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT 1 OFFSET ?"
        bound = self.file.execute(page, (after, last, limit - 1)).fetchone()
        until = last if bound is None else bound[0]
        rows = self.file.execute(
            "SELECT seq, slot, rank, record FROM queue WHERE seq > ? AND seq <= ? AND instr(record, ?)",
            (after, until, pattern),
        )
        return rows.fetchall(), 0 if bound is None else until

    def drop_delayed(self, task: TaskFilter) -> tuple[int, float]:
        """Remove the delayed requests of a task. Return their number, and the time at which the next one is due."""
        rows = self.file.execute("SELECT at, seq, record FROM delayed WHERE instr(record, ?)", (task.trace,))
        matches = [(at, seq) for at, seq, record in rows if task.matches(record)]
        self.file.execute("BEGIN IMMEDIATE")
        self.file.executemany("DELETE FROM delayed WHERE at = ? AND seq = ?", matches)
        self.file.execute("COMMIT")
        return len(matches), self.next_due()

    def next_due(self) -> float:
        """Return the time at which the first delayed request is due; infinity if there is none."""
        (at,) = self.file.execute("SELECT min(at) FROM delayed").fetchone()
        return float("inf") if at is None else float(at)

    # --- notes and dead letters --------------------------------------------------------------------------

    def note(self, key: str, now: float) -> bytes | None:
        """Return a note that has not expired."""
        found = self.file.execute(
            "SELECT value FROM notes WHERE key = ? AND until > ?", (key, now)
        ).fetchone()
        return None if found is None else bytes(found[0])

    def remove_expired_notes(self, now: float) -> int:
        """Remove expired notes. Return the number of the others."""
        self.file.execute("BEGIN IMMEDIATE")
        self.file.execute("DELETE FROM notes WHERE until <= ?", (now,))
        remaining = self.count("notes")
        self.file.execute("COMMIT")
        return remaining

    def dead_letters(self, slot_keys: Mapping[int, str], after: int, limit: int) -> list[DeadLetter]:
        """List dead letters by id."""
        rows = self.file.execute(
            "SELECT id, fingerprint, slot, url, record, error, attempt, lost, failed_at FROM dead"
            " WHERE id > ? ORDER BY id LIMIT ?",
            (after, limit),
        )
        return [
            DeadLetter(number, fingerprint, slot_keys[slot], url, record, error, attempt, lost, at)
            for number, fingerprint, slot, url, record, error, attempt, lost, at in rows
        ]

    def find_dead(self, ids: Sequence[int] | None) -> list[tuple[int, RequestRow, str]]:
        """Return dead letters by id (all for ``None``), each with its request and its error."""
        if ids is None:
            return self._letters("ORDER BY id", ())
        return [
            letter for number in dict.fromkeys(ids) for letter in self._letters("WHERE id = ?", (number,))
        ]

    def find_forgotten(self, after: int, limit: int) -> list[tuple[int, RequestRow, str]]:
        """Return dead letters whose fingerprint was forgotten, by id, each with its request and its error."""
        return self._letters("WHERE id > ? AND dedup = ? ORDER BY id LIMIT ?", (after, FORGOTTEN, limit))

    def _letters(self, which: str, values: Sequence[int]) -> list[tuple[int, RequestRow, str]]:
        rows = self.file.execute(f"SELECT id, {_COLUMNS}, error FROM dead {which}", values)  # noqa: S608 - constants
        return [(row[0], RequestRow(*row[1:-1]), row[-1]) for row in rows]

    # --- fingerprints ------------------------------------------------------------------------------------

    def begin_pass(self, number: int, *, forget_fingerprints: bool, forget_outputs: bool) -> None:
        """Begin a pass and load the seeds again, in one step. Remove the visits of pages that are gone."""
        self.file.execute("BEGIN IMMEDIATE")
        if forget_fingerprints:
            self.file.execute("DELETE FROM seen_log")
            self.file.execute("DELETE FROM seen_runs")
            self.file.execute("DELETE FROM seen_blocks")
            self.file.execute("UPDATE dead SET dedup = ? WHERE dedup <> 0", (FORGOTTEN,))
        if forget_outputs:
            self.file.execute("DELETE FROM outputs")
        self.file.execute(
            "DELETE FROM visits WHERE pass_number < ? OR change = ?", (number - 1, PageChange.GONE.value)
        )
        self.file.execute("UPDATE job SET pass_number = ?, seed_position = 0, seeds_done = 0", (number,))
        self.file.execute("COMMIT")

    # --- visits ------------------------------------------------------------------------------------------

    def recall(self, fingerprints: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the stored records of pages that are not gone."""
        # In one row: the interpreter lock is released at each step, and a busy event loop returns it late.
        query = (
            "SELECT group_concat(hex(fingerprint) || hex(memory)) FROM visits"  # noqa: S608 - marks
            f" WHERE fingerprint IN ({', '.join('?' * len(fingerprints))}) AND change <> ?"
        )
        (found,) = self.file.execute(query, (*fingerprints, PageChange.GONE.value)).fetchone()
        rows = [bytes.fromhex(row) for row in (found or "").split(",")]
        return {row[:16]: row[16:] for row in rows}

    def visits(self, cursor: str, limit: int) -> VisitsPart:
        """Return some of the visits."""
        rows = self.file.execute(
            "SELECT rowid, fingerprint, url, change, status, pass_number, since, ranges FROM visits"
            " WHERE rowid > ? ORDER BY rowid LIMIT ?",
            (int(cursor or 0), limit),
        ).fetchall()
        pages = [
            VisitedPage(fingerprint, url, PageChange(change), status, met, since, decode_ranges(ranges))
            for _, fingerprint, url, change, status, met, since, ranges in rows
        ]
        return VisitsPart(pages, str(rows[-1][0]) if len(rows) == limit else "")

    def seen_log(self) -> Iterator[tuple[int, str, float, bytes]]:
        """Return the log of fingerprints: number, kind of event, time, fingerprints."""
        return self.file.execute("SELECT id, kind, at, fingerprints FROM seen_log ORDER BY id")


# --- the file ----------------------------------------------------------------------------------------------


def remove_rows(connection: sqlite3.Connection) -> None:
    """Remove the requests that are only marked as removed from the queue and their packs, within a transaction."""
    connection.execute(
        f"INSERT OR IGNORE INTO unpacked SELECT removed.seq FROM removed JOIN packs ON {PACK_OF.format('removed.seq')}"  # noqa: S608 - a constant
    )
    remove_empty_packs(connection, "removed")
    connection.execute("DELETE FROM queue WHERE seq IN (SELECT seq FROM removed)")
    connection.execute("DELETE FROM removed")


def hide_removed(connection: sqlite3.Connection) -> None:
    """Hide the requests that are only marked as removed from a connection that cannot remove them."""
    connection.execute(
        "CREATE TEMP VIEW unpacked AS SELECT seq FROM main.unpacked UNION SELECT seq FROM main.removed"
    )
    connection.execute(
        "CREATE TEMP VIEW queue AS SELECT * FROM main.queue WHERE seq NOT IN (SELECT seq FROM main.removed)"
    )


def file_of(url: str, directory: str | Path) -> Path:
    """Return the file that ``sqlite:`` (in the job's folder) or ``sqlite:PATH`` names."""
    name = url.partition(":")[2]
    return Path(name) if name else Path(directory) / "frontier.db"


def read_only_address(path: Path) -> str:
    """Return the URI under which SQLite opens a file without changing it."""
    # Without a log to replay, nothing has to be written, not even temporarily. A run that a full disk ended leaves an empty log.
    try:
        has_log = path.with_name(f"{path.name}-wal").stat().st_size > 0
    except FileNotFoundError:
        has_log = False
    return f"file:{quote(str(path))}?mode=ro" + ("" if has_log else "&immutable=1")


def check_format(connection: sqlite3.Connection, path: Path) -> bool:
    """Check that a file can be used as a frontier. Return whether it is new and empty.

    Raises :class:`~skitter.errors.FrontierError` for a database of another program or of another format version.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if not (application or version or tables):
        return True
    if application != APPLICATION_ID:
        raise FrontierError(
            f"{path} is a database, but not a frontier of skitter",
            remedy="choose another frontier file, or move this one away",
        )
    if version != FORMAT_VERSION:
        raise FrontierError(
            f"{path} has frontier format {version}, but this skitter reads format {FORMAT_VERSION}",
            remedy="use the skitter version that wrote the file, or start again with --fresh",
        )
    return False


_REPAIR = "run `skitter repair JOB`, which keeps everything that can be read, or restore the file"
_PROBLEMS = (
    (
        ("full", "disk I/O"),
        "cannot be written",
        "free some disk space and run the same command again; all committed work is kept",
    ),
    (("malformed",), "is damaged", _REPAIR),
    (("not a database",), "is not a frontier", "choose another frontier file, or start again with --fresh"),
    (
        ("unable to open", "readonly"),
        "cannot be opened",
        "check the folder and its permissions, or choose another with --frontier",
    ),
)
"""Parts of messages of SQLite, their meaning for the file, and a remedy."""


def explain_error(error: Exception, path: Path) -> FrontierError:
    """Return an error with a description of the problem of the file, and a remedy."""
    text = str(error)
    if isinstance(error, msgspec.DecodeError):
        return FrontierError(f"{path} is damaged: {text}", remedy=_REPAIR)
    if not isinstance(error, sqlite3.Error):
        return _explain_failed_write(error, path)
    for signs, problem, remedy in _PROBLEMS:
        if any(sign in text for sign in signs):
            return FrontierError(f"{path} {problem}: {text}", remedy=remedy)
    return FrontierError(f"{path}: {text}", remedy="check whether another process uses the file")


def _explain_failed_write(error: Exception, path: Path) -> FrontierError:
    if isinstance(error, OverflowError | UnicodeError):
        return FrontierError(
            f"{path} cannot store a value of a request or an outcome: {error}",
            remedy="see the log for the page; priorities must be 64-bit integers, texts valid Unicode",
        )
    return FrontierError(
        f"{path} cannot be written: {str(error) or type(error).__name__}",  # a MemoryError has no text
        remedy="free some memory and run the same command again; all committed work is kept",
    )


def check_owner(path: Path, job: str) -> None:
    """Raise :class:`~skitter.errors.FrontierError` if a frontier file belongs to a job of another name.

    An empty name stands for any job: programs may use a file without naming their job. Files that cannot be read belong
    to no job.
    """
    stored = ""
    if path.exists():
        address = read_only_address(path)
        with contextlib.suppress(sqlite3.Error), closing(sqlite3.connect(address, uri=True)) as file:
            (application,) = file.execute("PRAGMA application_id").fetchone()
            (version,) = file.execute("PRAGMA user_version").fetchone()
            if (application, version) == (APPLICATION_ID, FORMAT_VERSION):
                found = file.execute("SELECT name FROM job").fetchone()
                stored = found[0] if found else ""
    if stored and job and stored != job:
        raise FrontierError(
            f"frontier file {path} belongs to job {stored!r}, so job {job!r} cannot use it",
            remedy=f"give each job its own file with --frontier, or continue the other job with --job {stored}",
            field="frontier",
        )


def remove_file(path: Path, job: str) -> None:
    """Delete the frontier file of a job and its write-ahead log, if they exist.

    Raises :class:`~skitter.errors.FrontierError` if another process owns the file, if it is not a frontier, or if it
    belongs to another job: a mistyped name must not delete the file of another job.
    """
    lock = OwnerLock(path)
    lock.acquire()
    try:
        if path.exists():
            _check_is_frontier(path)
            check_owner(path, job)
            # The report first: without it, the rebuilt file of a killed repair is not used.
            for suffix in (".repair-report", ".repaired", "", "-wal", "-shm", ".sum"):
                path.with_name(f"{path.name}{suffix}").unlink(missing_ok=True)
    except OSError as error:
        raise FrontierError(
            f"{path} cannot be removed: {error.strerror}", remedy="check the folder and its permissions"
        ) from error
    finally:
        lock.release()


def _check_is_frontier(path: Path) -> None:
    try:
        with closing(sqlite3.connect(path)) as file:
            (application,) = file.execute("PRAGMA application_id").fetchone()
            (tables,) = file.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except sqlite3.Error:
        application, tables = 0, 1
    if application != APPLICATION_ID and tables:
        raise FrontierError(
            f"{path} is not a frontier of skitter",
            remedy="choose another file with --frontier, or remove this one yourself",
        )
