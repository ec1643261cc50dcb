"""Restore: what an embedded frontier reads from its file at the start."""

from __future__ import annotations

import random
import secrets
import sqlite3
from collections import Counter

import msgspec

from skitter.errors import FrontierError
from skitter.frontier.embedded.queries import next_due
from skitter.frontier.embedded.seen import MemorySeen, TimedSeen
from skitter.frontier.options import FrontierOptions
from skitter.frontier.records import JobState
from skitter.request import FINGERPRINT_VERSION


class PastSlot(msgspec.Struct):
    """A slot of the old life."""

    key: str
    floor: float
    held_until: float
    grants: list[list[float]]
    queued: int = 0


class Past(msgspec.Struct):
    """Everything that the file tells."""

    state: JobState
    added: int
    done: int
    sequence: int
    seed_position: int
    seeds_done: bool
    fingerprint_seed: int
    dead: int
    delayed: int
    next_delayed: float
    slots: dict[int, PastSlot]
    outputs: dict[str, list[tuple[int, int]]]
    counters: Counter[str]
    seen: MemorySeen | TimedSeen | None
    """``None``: the seen set is on disk."""
    banned: set[str]
    tallies: list[tuple[str, str, int, int, int, int, int]]
    changes: bytes
    """Packed; empty: none."""
    killed: bool
    """Whether the last owner ended without closing the file."""


def restore(file: sqlite3.Connection, options: FrontierOptions, now: float) -> Past:
    """Take back the leases of the old life and read the whole state.

    Raises :class:`~skitter.errors.FrontierError` for fingerprints of another version than this one makes.
    """
    job = _job(file)
    killed = _count(file, "leases") > 0
    buried = _take_back_leases(file, options, now)
    counters = Counter(dict(file.execute("SELECT name, value FROM counters")))
    state, done, sequence, position, seeds_done, seed, version, on_disk = job
    if version != FINGERPRINT_VERSION:
        raise FrontierError(
            f"the job's fingerprints have version {version}, this skitter makes {FINGERPRINT_VERSION}",
            remedy="finish the job with the skitter that began it, or start anew with --fresh",
        )
    dead, delayed = _count(file, "dead"), _count(file, "delayed")
    changed = file.execute("SELECT packed FROM changes").fetchone()
    return Past(
        # A stop was asked of the old life; a pause holds until it is ended.
        state=JobState.RUNNING if state == JobState.STOPPING else JobState(state),
        # Not as it was noted: a kill may have come between the rows that a drop removes and the note of it.
        added=_count(file, "queue") + delayed + done + dead,
        done=done, sequence=sequence + buried, seed_position=position,
        seeds_done=bool(seeds_done), fingerprint_seed=seed % 2**64,
        dead=dead, delayed=delayed, next_delayed=next_due(file),
        slots=_slots(file), outputs=outputs(file), counters=counters,
        seen=None if on_disk else _seen(file, options),
        banned={key for (key,) in file.execute("SELECT key FROM bans WHERE banned")},
        tallies=list(file.execute('SELECT "group", key, pages, items, bytes, failed, retried FROM tallies')),
        changes=changed[0] if changed else b"", killed=killed,
    )  # fmt: skip


def _job(file: sqlite3.Connection) -> tuple[str, int, int, int, int, int, int, int]:
    query = (
        "SELECT state, done, sequence, seed_position, seeds_done,"
        " fingerprint_seed, fingerprint_version, seen_on_disk FROM job"
    )
    found: tuple[str, int, int, int, int, int, int, int] | None = file.execute(query).fetchone()
    if found is None:
        return (JobState.RUNNING, 0, 0, 0, 0, secrets.randbits(64), FINGERPRINT_VERSION, 0)
    return found


def _count(file: sqlite3.Connection, table: str) -> int:
    (count,) = file.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608 - our own table names
    return int(count)


def _take_back_leases(file: sqlite3.Connection, options: FrontierOptions, now: float) -> int:
    """Count a loss for each request that was in hand; returns how many are given up."""
    lost = buried = 0
    file.execute("BEGIN IMMEDIATE")
    (last,) = file.execute("SELECT coalesce(max(sequence), 0) FROM job").fetchone()
    for (members,) in file.execute("SELECT members FROM leases").fetchall():
        for seq, attempt, losses in msgspec.msgpack.decode(members):
            held = file.execute(
                "UPDATE queue SET lost = lost + 1 WHERE seq = ? AND attempt = ? AND lost = ? RETURNING lost",
                (seq, attempt, losses),
            ).fetchone()
            if held is None:
                continue
            lost += 1
            if held[0] > options.max_worker_crashes:
                buried += 1
                _bury(file, seq, last + buried, held[0], now)
            elif held[0] > 1:
                _set_apart(file, seq, now + random.uniform(0.0, 2.0 ** held[0]))
    file.execute("DELETE FROM leases")
    if lost:
        file.execute(
            "INSERT INTO counters VALUES ('leases/lost', ?)"
            " ON CONFLICT (name) DO UPDATE SET value = value + excluded.value",
            (lost,),
        )
    file.execute("UPDATE job SET sequence = sequence + ?", (buried,))
    file.execute("COMMIT")
    return buried


def _bury(file: sqlite3.Connection, seq: int, number: int, lost: int, now: float) -> None:
    file.execute(
        "INSERT INTO dead SELECT ?, seq, slot, rank, fingerprint, url, record, priority, dedup, attempt + 1,"
        " lost, ?, ? FROM queue WHERE seq = ?",
        (number, f"lost: {lost} workers were lost with this request", now, seq),
    )
    file.execute("DELETE FROM queue WHERE seq = ?", (seq,))


def _set_apart(file: sqlite3.Connection, seq: int, at: float) -> None:
    """Delay a suspect, so that the request that kills workers does not take the others along."""
    file.execute(
        "INSERT INTO delayed SELECT ?, seq, slot, rank, fingerprint, url, record, priority, dedup, attempt,"
        " lost FROM queue WHERE seq = ?",
        (at, seq),
    )
    file.execute("DELETE FROM queue WHERE seq = ?", (seq,))


def _slots(file: sqlite3.Connection) -> dict[int, PastSlot]:
    slots = {
        number: PastSlot(key, floor, held_until, msgspec.msgpack.decode(grants) if grants else [])
        for number, key, floor, held_until, grants in file.execute(
            "SELECT id, key, floor, held_until, grants FROM slots"
        )
    }
    for number, count in file.execute("SELECT slot, count(*) FROM queue GROUP BY slot"):
        slots[number].queued = count
    return slots


def outputs(file: sqlite3.Connection) -> dict[str, list[tuple[int, int]]]:
    """Read the committed ranges of all part files."""
    found: dict[str, list[tuple[int, int]]] = {}
    for part, start, stop in file.execute("SELECT part, start, stop FROM outputs ORDER BY part, start"):
        found.setdefault(part, []).append((start, stop))
    return found


def _seen(file: sqlite3.Connection, options: FrontierOptions) -> MemorySeen | TimedSeen:
    log = file.execute("SELECT kind, at, fingerprints FROM seen_log ORDER BY id")
    if options.visited_ttl is None:
        return _replay_known(log)
    return _replay_timed(log, options.visited_ttl)


def _replay_known(log: sqlite3.Cursor) -> MemorySeen:
    seen = MemorySeen()
    for kind, _, fingerprints in log:
        if kind == "+":
            seen.load(fingerprints)
        elif kind == "-":
            seen.forget(fingerprints)
    return seen


def _replay_timed(log: sqlite3.Cursor, ttl: float) -> TimedSeen:
    seen = TimedSeen()
    for kind, at, fingerprints in log:
        if kind == "+":
            seen.load(fingerprints)
        elif kind == "v":
            seen.visited(fingerprints, at + ttl)
        else:
            seen.forget(fingerprints)
    return seen
