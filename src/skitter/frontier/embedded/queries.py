"""Queries on the file of an embedded frontier: waking delayed requests, dead letters, notes."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence

from skitter.frontier.embedded.backlog import Row
from skitter.frontier.group_filter import GroupFilter
from skitter.frontier.records import DeadLetter

FORGOTTEN = 2
"""Mark of de-duplication of a dead letter whose fingerprint was forgotten, so that it may have been added again."""
_ROW = "seq, slot, rank, fingerprint, url, record, priority, dedup, attempt, lost"


def wake(file: sqlite3.Connection, now: float, limit: int) -> tuple[list[Row], float]:
    """Move requests whose time has come to the queue; returns them and when the next one is due."""
    file.execute("BEGIN IMMEDIATE")
    due = f"FROM delayed WHERE at <= ? ORDER BY at, seq LIMIT {limit:d}"
    rows = [Row(*row) for row in file.execute(f"SELECT {_ROW} {due}", (now,))]
    file.execute(f"INSERT OR REPLACE INTO queue SELECT {_ROW} {due}", (now,))
    file.execute(f"DELETE FROM delayed WHERE (at, seq) IN (SELECT at, seq {due})", (now,))  # noqa: S608 - a number
    file.execute("COMMIT")
    return rows, next_due(file)


def drop_slot(file: sqlite3.Connection, slot: int, last: int, on_lease: Sequence[int]) -> tuple[int, float]:
    """Remove what waits in a slot, of the requests up to a number and but for those on lease.

    Returns how many were delayed, and when the next delayed request is due.
    """
    leased = json.dumps(on_lease)
    file.execute("BEGIN IMMEDIATE")
    file.execute(
        "DELETE FROM queue WHERE slot = ? AND seq <= ? AND seq NOT IN (SELECT value FROM json_each(?))",
        (slot, last, leased),
    )
    removed = file.execute("DELETE FROM delayed WHERE slot = ? AND seq <= ?", (slot, last)).rowcount
    file.execute("COMMIT")
    return removed, next_due(file)


def waiting_with(
    file: sqlite3.Connection, trace: bytes, after: int, last: int, limit: int
) -> tuple[list[tuple[int, int, int, bytes]], int]:
    """Look through some queued requests, by number, for those whose record holds a trace.

    Returns number, slot, rank and record of each, and the number to go on after; 0 when through.
    """
    page = "SELECT seq FROM queue WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT 1 OFFSET ?"
    bound = file.execute(page, (after, last, limit - 1)).fetchone()
    until = last if bound is None else bound[0]
    rows = file.execute(
        "SELECT seq, slot, rank, record FROM queue WHERE seq > ? AND seq <= ? AND instr(record, ?)",
        (after, until, trace),
    )
    return rows.fetchall(), 0 if bound is None else until


def drop_delayed(file: sqlite3.Connection, mark: GroupFilter) -> tuple[int, float]:
    """Remove the delayed requests of a task; returns how many, and when the next one is due."""
    rows = file.execute("SELECT at, seq, record FROM delayed WHERE instr(record, ?)", (mark.trace,))
    meant = [(at, seq) for at, seq, record in rows if mark.is_on(record)]
    file.execute("BEGIN IMMEDIATE")
    file.executemany("DELETE FROM delayed WHERE at = ? AND seq = ?", meant)
    file.execute("COMMIT")
    return len(meant), next_due(file)


def next_due(file: sqlite3.Connection) -> float:
    """Return the time of the first delayed request; infinity if there is none."""
    (at,) = file.execute("SELECT min(at) FROM delayed").fetchone()
    return float("inf") if at is None else float(at)


def note(file: sqlite3.Connection, key: str, now: float) -> bytes | None:
    """Read a shared note that has not run out."""
    found = file.execute("SELECT value FROM notes WHERE key = ? AND until > ?", (key, now)).fetchone()
    return None if found is None else bytes(found[0])


def sweep_notes(file: sqlite3.Connection, now: float) -> int:
    """Remove the notes that have run out; returns how many are left."""
    file.execute("BEGIN IMMEDIATE")
    file.execute("DELETE FROM notes WHERE until <= ?", (now,))
    (left,) = file.execute("SELECT count(*) FROM notes").fetchone()
    file.execute("COMMIT")
    return int(left)


def dead_letters(
    file: sqlite3.Connection, slot_keys: Mapping[int, str], after: int, limit: int
) -> list[DeadLetter]:
    """List dead letters by their id."""
    rows = file.execute(
        "SELECT id, fingerprint, slot, url, record, error, attempt, lost, failed_at FROM dead"
        " WHERE id > ? ORDER BY id LIMIT ?",
        (after, limit),
    )
    return [
        DeadLetter(number, fingerprint, slot_keys[slot], url, record, error, attempt, lost, at)
        for number, fingerprint, slot, url, record, error, attempt, lost, at in rows
    ]


def forget_visits(file: sqlite3.Connection) -> None:
    """Make every fingerprint unknown."""
    file.execute("BEGIN IMMEDIATE")
    file.execute("DELETE FROM seen_log")
    file.execute("DELETE FROM seen_keys")
    file.execute("UPDATE dead SET dedup = ? WHERE dedup <> 0", (FORGOTTEN,))
    file.execute("COMMIT")


def find_dead(file: sqlite3.Connection, ids: Sequence[int] | None) -> list[tuple[int, Row]]:
    """Return dead letters by id, or all of them."""
    if ids is None:
        rows = list(file.execute(f"SELECT id, {_ROW} FROM dead ORDER BY id"))  # noqa: S608 - constants
    else:
        query = f"SELECT id, {_ROW} FROM dead WHERE id = ?"  # noqa: S608 - constants
        rows = [row for number in dict.fromkeys(ids) for row in file.execute(query, (number,))]
    return [(row[0], Row(*row[1:])) for row in rows]
