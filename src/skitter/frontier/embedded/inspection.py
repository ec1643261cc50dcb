"""Reads the file of an embedded frontier that no process runs, without owning or changing it.

Opening the frontier instead would reclaim the leases of the last run and count them as lost.
"""

from __future__ import annotations

import heapq
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from operator import itemgetter
from pathlib import Path

import msgspec

from skitter.frontier.embedded.tables import (
    SqliteTables,
    check_format,
    create_tables,
    explain_error,
    hide_removed,
    read_only_address,
)
from skitter.frontier.options import SettingsChanges
from skitter.frontier.records import (
    BUSIEST_SLOTS,
    DeadLetter,
    FrontierStatus,
    JobState,
    SlotStatus,
    VisitsPart,
)
from skitter.frontier.scheduling import time_left
from skitter.frontier.stats import StatsDimension, StatsRow, in_order
from skitter.queues import BAR, DEFAULT_QUEUE, queue_of


def read_status(path: Path) -> FrontierStatus | None:
    """Read the counts of a job; ``None`` if it was never started.

    ``leased`` counts the requests that were leased when the last run was killed; the next run queues them again.
    Raises :class:`~skitter.errors.FrontierError` if the file is not a frontier.
    """
    with _reading(path) as tables:
        return _status(tables)


def read_dead_letters(path: Path, after: int, limit: int) -> list[DeadLetter]:
    """List dead letters with ``id`` greater than ``after``, oldest first."""
    with _reading(path) as tables:
        keys = dict(tables.file.execute("SELECT id, key FROM slots"))
        return tables.dead_letters(keys, after, limit)


def read_stats(path: Path, dimension: StatsDimension, limit: int) -> list[StatsRow]:
    """Read the counts per worker, host or request group."""
    with _reading(path) as tables:
        found = tables.file.execute("SELECT * FROM stats WHERE dimension = ?", (dimension.value,))
        return in_order((StatsRow(*row[1:]) for row in found), limit)


def read_slots(path: Path, limit: int) -> list[SlotStatus]:
    """Read the slots with queued requests, most queued first."""
    with _reading(path) as tables:
        return _slots(tables, _in_queue(tables), limit)


def read_changes(path: Path) -> tuple[SettingsChanges, list[str]]:
    """Read the changed settings and the banned slots."""
    with _reading(path) as tables:
        packed = tables.settings_changes()
        changes = msgspec.msgpack.decode(packed, type=SettingsChanges) if packed else SettingsChanges()
        return changes, tables.banned()


def read_note(path: Path, key: str) -> bytes | None:
    """Read a note of the workers; ``None`` if it does not exist or has expired."""
    with _reading(path) as tables:
        return tables.note(key, _now(tables))


def read_visits(path: Path, cursor: str, limit: int) -> VisitsPart:
    """Read some of the remembered pages."""
    with _reading(path) as tables:
        return tables.visits(cursor, limit)


def read_outputs(path: Path) -> dict[str, list[tuple[int, int]]]:
    """Read the committed byte ranges of each part file."""
    with _reading(path) as tables:
        return tables.outputs()


@contextmanager
def _reading(path: Path) -> Iterator[SqliteTables]:
    """Open the file for one consistent reading. A file that does not exist or is empty has empty tables."""
    try:
        address = read_only_address(path) if path.exists() else ":memory:"
        with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as file:
            file.execute("BEGIN")
            if not check_format(file, path):
                hide_removed(file)
                yield SqliteTables(file)
                return
        with closing(sqlite3.connect(":memory:")) as file:
            create_tables(file)
            yield SqliteTables(file)
    except (sqlite3.Error, msgspec.DecodeError) as error:
        raise explain_error(error, path) from error


def _status(tables: SqliteTables) -> FrontierStatus | None:
    job = tables.file.execute("SELECT state, done, seeds_done, pass_number FROM job").fetchone()
    if job is None:
        return None
    state, done, seeds_done, number = job
    by_slot = _in_queue(tables)
    in_queue, leased = sum(by_slot.values()), tables.leased()
    delayed, failed = tables.count("delayed"), tables.count("dead")
    if seeds_done and not (in_queue or delayed):
        state = JobState.FINISHED
    return FrontierStatus(
        state=JobState(state), added=in_queue + delayed + done + failed, queued=in_queue - leased,
        delayed=delayed, leased=leased, done=done, failed=failed, seeds_loading=not seeds_done,
        counters=tables.counters(),
        slots=len(by_slot), busiest=_slots(tables, by_slot, BUSIEST_SLOTS), oldest_lease=0.0,
        queues=_queues(tables, by_slot),
        next_due=time_left(tables.next_due(), _now(tables)),
        pass_number=number,
    )  # fmt: skip


def _now(tables: SqliteTables) -> float:
    """Return the time by which waits are shown. If the clock was set back, the next run continues them."""
    return max(time.time(), tables.clock())


def _in_queue(tables: SqliteTables) -> dict[int, int]:
    """Count the queued and leased requests by slot number."""
    return {number: count for number, (count, _) in tables.queued_by_slot().items()}


def _queues(tables: SqliteTables, in_queue: dict[int, int]) -> dict[str, int]:
    """Count the queued and leased requests of each queue; empty if there is only the default queue."""
    rows = tables.file.execute("SELECT id, key FROM slots WHERE instr(key, ?)", (BAR,))
    counts = {DEFAULT_QUEUE: 0}
    for number, key in rows:
        counts[queue_of(key)] = counts.get(queue_of(key), 0) + in_queue.get(number, 0)
    if len(counts) == 1:
        return {}
    counts[DEFAULT_QUEUE] = sum(in_queue.values()) - sum(counts.values())
    return counts


def _slots(tables: SqliteTables, in_queue: dict[int, int], limit: int) -> list[SlotStatus]:
    now = _now(tables)
    busiest = heapq.nlargest(limit, in_queue.items(), key=itemgetter(1))
    query = "SELECT key, min_delay, paused_until FROM slots WHERE id = ?"
    found = [(count, *tables.file.execute(query, (number,)).fetchone()) for number, count in busiest]
    return [
        SlotStatus(key, count, 0, min_delay, max(0.0, paused_until - now))
        for count, key, min_delay, paused_until in found
    ]
