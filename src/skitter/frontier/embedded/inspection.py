"""Reading: what the file of an embedded frontier tells, without owning or changing it.

A job that nobody runs is looked at through these: opening its frontier would take back the leases of its
last run and count them as lost.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

import msgspec

from skitter.frontier.embedded import queries
from skitter.frontier.embedded.file_format import check_format, explained
from skitter.frontier.embedded.restore import outputs
from skitter.frontier.options import SettingsChanges
from skitter.frontier.records import DeadLetter, FrontierStatus, JobState, SlotStatus
from skitter.frontier.stats import StatsGroup, StatsRow, in_order
from skitter.queues import DEFAULT_QUEUE, queue_of


def read_status(path: Path) -> FrontierStatus | None:
    """Read the counts of a job that nobody runs; ``None`` if its frontier was never begun.

    ``leased`` counts what was in hand when its last run was killed; it goes back to the queue with the next.
    Raises :class:`~skitter.errors.FrontierError` for a file that is no frontier.
    """
    with _reading(path) as file:
        return None if file is None else _status(file)


def read_dead_letters(path: Path, after: int, limit: int) -> list[DeadLetter]:
    """List the requests given up of a job that nobody runs, by id, as the frontier's ``dead_letters``."""
    with _reading(path) as file:
        if file is None:
            return []
        keys = dict(file.execute("SELECT id, key FROM slots"))
        return queries.dead_letters(file, keys, after, limit)


def read_tallies(path: Path, group: StatsGroup, limit: int) -> list[StatsRow]:
    """Read what was counted by a job that nobody runs, as the frontier's ``tallies``."""
    with _reading(path) as file:
        if file is None:
            return []
        found = file.execute(
            'SELECT key, pages, items, bytes, failed, retried FROM tallies WHERE "group" = ?', (group.value,)
        )
        return in_order((StatsRow(*row) for row in found), limit)


def read_steering(path: Path) -> tuple[SettingsChanges, list[str]]:
    """Read the changed settings and the banned slots of a job that nobody runs."""
    with _reading(path) as file:
        if file is None:
            return SettingsChanges(), []
        changed = file.execute("SELECT packed FROM changes").fetchone()
        banned = [key for (key,) in file.execute("SELECT key FROM bans WHERE banned ORDER BY key")]
        return (
            msgspec.msgpack.decode(changed[0], type=SettingsChanges) if changed else SettingsChanges()
        ), banned


def read_outputs(path: Path) -> dict[str, list[tuple[int, int]]]:
    """Read the committed ranges of a job that nobody runs, as the frontier's ``outputs``."""
    with _reading(path) as file:
        return {} if file is None else outputs(file)


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection | None]:
    """Open the file for one consistent reading; ``None`` if there is none, or nothing in it."""
    if not path.exists():
        yield None
        return
    try:
        with closing(sqlite3.connect(_address(path), uri=True)) as file:
            file.isolation_level = None
            file.execute("BEGIN")
            yield None if check_format(file, path) else file
    except sqlite3.Error as error:
        raise explained(error, path) from error


def _address(path: Path) -> str:
    # Without a log to be replayed nothing has to be written, not even for a moment.
    replayed = path.with_name(f"{path.name}-wal").exists()
    return f"file:{quote(str(path))}?mode=ro" + ("" if replayed else "&immutable=1")


def _status(file: sqlite3.Connection) -> FrontierStatus | None:
    job = file.execute("SELECT state, done, seeds_done FROM job").fetchone()
    if job is None:
        return None
    state, done, seeds_done = job
    in_queue, delayed, failed = (_count(file, table) for table in ("queue", "delayed", "dead"))
    leased = _in_hand(file)
    if seeds_done and not (in_queue or delayed):
        state = JobState.FINISHED
    return FrontierStatus(
        state=JobState(state), added=in_queue + delayed + done + failed, queued=in_queue - leased, delayed=delayed, leased=leased, done=done,
        failed=failed, seeds_loading=not seeds_done,
        counters=dict(file.execute("SELECT name, value FROM counters")),
        slots=file.execute("SELECT count(DISTINCT slot) FROM queue").fetchone()[0],
        busiest=_busiest(file), oldest_lease=0.0, queues=_queues(file),
    )  # fmt: skip


def _queues(file: sqlite3.Connection) -> dict[str, int]:
    """Count what waits in each queue, with what is in hand."""
    rows = file.execute(
        "SELECT key, count(queue.seq) FROM slots LEFT JOIN queue ON slot = slots.id GROUP BY key"
    )
    counts = {DEFAULT_QUEUE: 0}
    for key, waiting in rows:
        counts[queue_of(key)] = counts.get(queue_of(key), 0) + waiting
    return counts if len(counts) > 1 else {}


def _count(file: sqlite3.Connection, table: str) -> int:
    (count,) = file.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608 - our own table names
    return int(count)


def _in_hand(file: sqlite3.Connection) -> int:
    """Count the requests on lease: those noted whose row is still as it was when it was leased."""
    members = {
        tuple(member)
        for (packed,) in file.execute("SELECT members FROM leases")
        for member in msgspec.msgpack.decode(packed)
    }
    query = "SELECT count(*) FROM queue WHERE seq = ? AND attempt = ? AND lost = ?"
    return sum(file.execute(query, member).fetchone()[0] for member in members)


def _busiest(file: sqlite3.Connection) -> list[SlotStatus]:
    now = time.time()
    rows = file.execute(
        "SELECT key, waiting, floor, held_until FROM slots"
        " JOIN (SELECT slot, count(*) AS waiting FROM queue GROUP BY slot ORDER BY 2 DESC LIMIT 20)"
        " ON slots.id = slot ORDER BY waiting DESC"
    )
    return [
        SlotStatus(key, waiting, 0, floor, max(0.0, held_until - now))
        for key, waiting, floor, held_until in rows
    ]
