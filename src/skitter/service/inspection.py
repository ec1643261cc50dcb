"""Reads a job and changes it while it runs, for the API of a service and for the console of a single run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Literal, get_args

import msgspec

from skitter.frontier.contract import DeadLetters
from skitter.frontier.records import DeadLetter, FrontierStatus, SlotStatus
from skitter.frontier.stats import OTHERS, StatsGroup, StatsRow
from skitter.frontier.workers import WorkerStatus, unserved
from skitter.observe.figures import errors
from skitter.observe.letters import letter_fields
from skitter.run.control import JobStatus, dead_letters, stats
from skitter.run.job import JobFolder
from skitter.settings import Settings, declarations, type_name

_BATCH_SIZE = 500
"""Dead letters in one read."""
_ALL_HOSTS = 1_000_000
HostOrder = Literal["pages", "items", "bytes", "failed", "retried", "failures", "queued", "delay"]
"""Orders of hosts, largest first: by a count, by the share of failed requests, by the requests that wait, by the delay."""
HOST_ORDERS: tuple[str, ...] = get_args(HostOrder)


class LetterSelection(msgspec.Struct, frozen=True):
    """Which dead letters are meant."""

    kind: str | None = None
    """Kind of error, such as ``timeout`` or ``status/404``, or ``status`` for all statuses."""
    contains: str = ""
    """Text within the URL or the error, ignoring case."""

    def includes(self, letter: DeadLetter) -> bool:
        """Return whether a dead letter is meant."""
        found = letter.error.partition(":")[0]
        if self.kind is not None and found != self.kind and not found.startswith(f"{self.kind}/"):
            return False
        text = self.contains.casefold()
        return text in letter.url.casefold() or text in letter.error.casefold()

    @property
    def is_all(self) -> bool:
        """Whether all dead letters are meant."""
        return self.kind is None and not self.contains


def frontier_view(found: JobStatus) -> dict[str, Any]:
    """Return what the API adds to a job from its frontier."""
    return {
        "counts": msgspec.to_builtins(found.counts),
        "fleet": msgspec.to_builtins(found.workers),
        "changes": found.changes,
        "banned": found.banned,
        "violated": msgspec.to_builtins(found.violated),
        "passes": msgspec.to_builtins(found.passes),
        "unserved": {} if found.counts is None else unserved(found.counts.queues, found.workers),
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


async def host_rows(
    folder: JobFolder, counts: FrontierStatus | None, order: HostOrder, contains: str
) -> list[dict[str, Any]]:
    """Return the hosts of a job whose names contain a text, largest first by an order.

    Queue and delay are known for the slots with the most queued requests; they are ``None`` for other hosts.
    """
    slots = {} if counts is None else {slot.key: slot for slot in counts.busiest}
    rows = {row.key: row for row in await stats(folder, StatsGroup.HOST, _ALL_HOSTS) if row.key != OTHERS}
    names = [name for name in {**rows, **slots} if contains in name]
    found = [_host(name, rows.get(name, StatsRow(name)), slots.get(name)) for name in names]
    return sorted(found, key=lambda host: (-(host[order] or 0), -host["pages"], host["host"]))


def _host(name: str, row: StatsRow, slot: SlotStatus | None) -> dict[str, Any]:
    ended = row.pages + row.failed
    return {
        "host": name,
        "pages": row.pages,
        "items": row.items,
        "bytes": row.bytes,
        "failed": row.failed,
        "retried": row.retried,
        "failures": round(row.failed / ended, 4) if ended else 0.0,
        "queued": None if slot is None else slot.queued,
        "leased": None if slot is None else slot.leased,
        "delay": None if slot is None else round(slot.delay, 3),
        "paused_for": None if slot is None else round(slot.paused_for, 1),
    }


async def list_failures(
    folder: JobFolder, after: int, limit: int, selection: LetterSelection
) -> list[dict[str, Any]]:
    """Return the selected dead letters with ids above ``after``, sorted by id."""
    found: list[dict[str, Any]] = []
    while len(found) < limit and (letters := await dead_letters(folder, after, _BATCH_SIZE)):
        after = letters[-1].id
        found += [letter_fields(letter) for letter in letters if selection.includes(letter)]
    return found[:limit]


async def settle_failures(
    letters: DeadLetters, ids: Sequence[int] | None, selection: LetterSelection, *, again: bool
) -> int:
    """Queue dead letters again, or drop them: those named, or without ids those selected. Return their number."""
    act = letters.replay if again else letters.drop
    if ids is not None or selection.is_all:
        return await act(ids)
    after, chosen = 0, []
    while batch := await letters.list(after, _BATCH_SIZE):
        after = batch[-1].id
        chosen += [letter.id for letter in batch if selection.includes(letter)]
    return await act(chosen) if chosen else 0


def declared_settings() -> list[dict[str, Any]]:
    """Return the settings that API users may set, as declared."""
    return [
        {
            "name": name, "type": type_name(one.type), "default": msgspec.to_builtins(one.default), "help": one.setting.help,
            "unit": one.setting.unit, "min": one.setting.min, "above": one.setting.above, "max": one.setting.max,
            "live": one.setting.live,
        }
        for name, one in declarations(Settings).items()
        if one.setting.api
    ]  # fmt: skip
