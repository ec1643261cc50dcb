"""Reads a job and changes it while it runs, for the API of a service and for the console of a single run."""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from skitter.frontier.contract import DeadLetters
from skitter.frontier.records import FrontierStatus, SlotStatus
from skitter.frontier.stats import OTHERS, StatsDimension, StatsRow
from skitter.frontier.workers import WorkerStatus, queues_without_workers
from skitter.observe.dead_letters import DeadLetterFilter, letter_fields
from skitter.observe.figures import errors
from skitter.run.job import JobFolder
from skitter.run.job_access import JobStatus, dead_letters, slots, stats
from skitter.settings import Settings, declarations, type_name
from skitter.worker.timings import FETCH, quantile

_BATCH_SIZE = 500
"""Maximum dead letters in one read."""
_ALL_HOSTS = 1_000_000
_MOST_SLOTS = 10_000
"""Number of slots that are read for the list of hosts, the ones with the most queued requests."""
_HISTORY_POINTS = 900
"""Maximum points in the history of a run. One is added per second while a user watches the run."""
_LATENCY_WINDOW = 10.0
"""Length of the period that the percentiles of a point cover, in seconds."""
SteeringAction = Literal["pause", "resume", "stop"]
HostOrder = Literal[
    "pages", "items", "bytes", "failed", "retried", "failures", "fetch_time", "queued", "delay"
]
"""Sort orders of hosts, largest first: by a count, the share of failed requests, the mean time to the first byte, the
number of queued requests, or the delay."""


def frontier_view(found: JobStatus) -> dict[str, Any]:
    """Return the fields that the API adds to a job from its frontier."""
    return {
        "counts": msgspec.to_builtins(found.counts),
        "fleet": msgspec.to_builtins(found.workers),
        "changes": found.changes,
        "banned": found.banned,
        "violated": msgspec.to_builtins(found.violated),
        "passes": msgspec.to_builtins(found.passes),
        "latency": None if found.counts is None else _percentiles(FETCH.read(found.counts.counters)),
        "queues_without_workers": {}
        if found.counts is None
        else queues_without_workers(found.counts, found.workers),
    }


def figures_of(counts: FrontierStatus, workers: Sequence[WorkerStatus]) -> dict[str, Any]:
    """Return one point of the history of a job: the figures that the console plots."""
    counters = counts.counters
    return {
        "at": round(time.time(), 2),
        "pages": counters.get("pages", 0),
        "items": counters.get("items", 0),
        "bytes": counters.get("bytes", 0),
        "queued": counts.queued,
        "delayed": counts.delayed,
        "leased": counts.leased,
        "failed": counts.failed,
        "errors": errors(counters),
        "workers": len(workers),
        "pages_per_second": round(sum(worker.report.pages_per_second for worker in workers), 2),
    }


class FigureHistory:
    """The points of a run that a user watches."""

    def __init__(self) -> None:
        self.points: deque[dict[str, Any]] = deque(maxlen=_HISTORY_POINTS)
        self._fetches: deque[tuple[float, list[int]]] = deque()
        """Buckets of the fetch times at the points within the period, and at one point before it."""

    def add(self, counts: FrontierStatus, workers: Sequence[WorkerStatus]) -> dict[str, Any]:
        """Add a point and return it. ``latency``: percentiles of the fetches committed in the last seconds, or ``None``."""
        point, buckets = figures_of(counts, workers), FETCH.read(counts.counters)
        self._fetches.append((point["at"], buckets))
        while len(self._fetches) > 1 and self._fetches[1][0] <= point["at"] - _LATENCY_WINDOW:
            self._fetches.popleft()
        before = self._fetches[0][1]
        point["latency"] = _percentiles([now - then for now, then in zip(buckets, before, strict=True)])
        self.points.append(point)
        return point


def _percentiles(buckets: Sequence[int]) -> dict[str, float] | None:
    found = {name: quantile(buckets, share) for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))}
    return {name: round(value, 6) for name, value in found.items() if value is not None} or None


class Host(NamedTuple):
    """What is known about a host."""

    name: str
    row: StatsRow
    slot: SlotStatus | None
    """``None`` for a host without requests, and for hosts that are not among the 10,000 with the most queued requests."""

    @property
    def failures(self) -> float:
        """The share of failed requests."""
        ended = self.row.pages + self.row.failed
        return self.row.failed / ended if ended else 0.0

    def amount(self, order: HostOrder) -> float:
        """Return the figure that an order sorts by."""
        if order in {"queued", "delay"}:
            return 0.0 if self.slot is None else getattr(self.slot, order)
        return (self.failures if order == "failures" else getattr(self.row, order)) or 0.0

    def view(self) -> dict[str, Any]:
        """Return the host as the API shows it. Queue and delay are ``None`` without a slot."""
        row, slot = self.row, self.slot
        return {
            "host": self.name,
            "pages": row.pages,
            "items": row.items,
            "bytes": row.bytes,
            "failed": row.failed,
            "retried": row.retried,
            "failures": round(self.failures, 4),
            "fetch_time": None if row.fetch_time is None else round(row.fetch_time, 6),
            "queued": None if slot is None else slot.queued,
            "leased": None if slot is None else slot.leased,
            "delay": None if slot is None else round(slot.delay, 3),
            "paused_for": None if slot is None else round(slot.paused_for, 1),
        }


async def read_hosts(folder: JobFolder) -> list[Host]:
    """Return all hosts that a job counts separately (setting ``stats_max_keys``), and the hosts with the most queued requests."""
    busy = {slot.key: slot for slot in await slots(folder, _MOST_SLOTS)}
    rows = {row.key: row for row in await stats(folder, StatsDimension.HOST, _ALL_HOSTS) if row.key != OTHERS}
    return [Host(name, rows.get(name) or StatsRow(name), busy.get(name)) for name in {**rows, **busy}]


def select_hosts(
    hosts: Sequence[Host], order: HostOrder, contains: str, offset: int, limit: int
) -> dict[str, Any]:
    """Return a page of the hosts whose names contain a text, largest first by an order, and their total number."""
    chosen = [host for host in hosts if contains in host.name]
    first = heapq.nsmallest(
        offset + limit, chosen, key=lambda host: (-host.amount(order), -host.row.pages, host.name)
    )
    return {"hosts": [host.view() for host in first[offset:]], "total": len(chosen)}


async def list_failures(
    folder: JobFolder, after: int, limit: int, selection: DeadLetterFilter
) -> list[dict[str, Any]]:
    """Return the selected dead letters with ids above ``after``, sorted by id."""
    found: list[dict[str, Any]] = []
    while len(found) < limit and (letters := await dead_letters(folder, after, _BATCH_SIZE)):
        after = letters[-1].id
        found += [letter_fields(letter) for letter in letters if selection.includes(letter)]
    return found[:limit]


async def settle_failures(
    letters: DeadLetters, ids: Sequence[int] | None, selection: DeadLetterFilter, *, again: bool
) -> int:
    """Requeue or drop dead letters: the given ids or, without ids, the selected ones. Return their number."""
    act = letters.replay if again else letters.drop
    if ids is not None or selection.is_all:
        return await act(ids)
    after, chosen = 0, []
    while batch := await letters.list(after, _BATCH_SIZE):
        after = batch[-1].id
        chosen += [letter.id for letter in batch if selection.includes(letter)]
    return await act(chosen) if chosen else 0


def declared_settings() -> list[dict[str, Any]]:
    """Return the declarations of the settings that API users may set."""
    return [
        {
            "name": name, "type": type_name(declaration.type), "default": msgspec.to_builtins(declaration.default), "help": declaration.setting.help,
            "unit": declaration.setting.unit, "min": declaration.setting.min, "above": declaration.setting.above,
            "max": declaration.setting.max if declaration.setting.api_max is None else declaration.setting.api_max,
            "live": declaration.setting.live,
        }
        for name, declaration in declarations(Settings).items()
        if declaration.setting.api
    ]  # fmt: skip
