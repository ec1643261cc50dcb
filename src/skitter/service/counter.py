"""Counter: what callers ask of the frontier of a run: how far it is, its failures, its items; and give it: seeds, limits."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import msgspec

from skitter.errors import SkitterError
from skitter.frontends.tasks.entry import Standing
from skitter.frontier.contract import NoSuchJob
from skitter.frontier.records import AddResult, Entry
from skitter.frontier.workers import unserved
from skitter.observe.letters import letter_fields
from skitter.run.control import (
    OpenFrontier,
    change_settings,
    changes_of,
    dead_letters,
    job_status,
    open_frontier,
)
from skitter.run.seeding import SeedParser
from skitter.service.desk import Desk
from skitter.service.errors import Conflict, Missing, Refusal
from skitter.service.ground import LIST, RunFolder, check_settings
from skitter.service.items import ItemPage, read_items
from skitter.service.nouns import Job, NodeNote, Run

_LETTERS_AT_ONCE = 500
_T = TypeVar("_T")


class Counter:
    """See :mod:`skitter.service.counter`."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def _folder(self, job: Job) -> RunFolder:
        if job.run is None:
            raise Conflict(f"job {job.name!r} has not begun yet", remedy="start it, or wait for its schedule")
        await self._desk.prepare(job, job.run)
        spec = await asyncio.to_thread(self._desk.ground.spec, job, job.run)
        return RunFolder(spec)

    # --- looking -----------------------------------------------------------------------------------------

    async def status(self, job: Job) -> dict[str, Any]:
        """Return all that is known of a job; of one whose run nobody has taken up yet, what was asked for."""
        shown = view(job, await self._desk.nodes())
        if job.run is None:
            return shown
        try:
            found = await _apart(job_status(await self._folder(job)))
        except (NoSuchJob, Refusal):
            return shown
        shown["counts"] = msgspec.to_builtins(found.counts)
        shown["fleet"] = msgspec.to_builtins(found.workers)
        shown["changes"] = _shown(found.changes)
        shown["banned"] = found.banned
        shown["unserved"] = {} if found.counts is None else unserved(found.counts.queues, found.workers)
        return shown

    async def items(
        self, job: Job, run: str | None, after: str | None, limit: int, task: Standing | None = None
    ) -> ItemPage:
        """Return some items of the run (or of the one before), in the order in which their pages first came.

        ``task``: only its own. Raises :class:`Conflict` for one without a list of its own.
        """
        if task is not None and not task.outputs:
            raise Conflict(
                f"task {task.task!r} was added without outputs: its items are among those of its job",
                remedy=f'add a task with "outputs": ["{LIST}"] for a list of its own',
            )
        known = {kept.id for kept in (job.run, job.previous) if kept is not None}
        chosen = run or (job.run.id if job.run is not None else "")
        if chosen not in known:
            raise Missing(
                f"job {job.name!r} has no run {chosen!r}"
                if chosen
                else f"job {job.name!r} has not begun yet",
                remedy="GET /jobs/NAME names its runs",
            )
        number, _, index = (after or "0.0").partition(".")
        pages = self._desk.ground.pages(chosen, "" if task is None else task.task)
        return await read_items(pages, (int(number), int(index or 0)), limit)

    async def failures(self, job: Job, after: int, limit: int, kind: str | None) -> list[dict[str, Any]]:
        """List requests that were given up, by id, from an id on."""
        return await _apart(_failures(job, await self._folder(job), after, limit, kind))

    # --- acting ------------------------------------------------------------------------------------------

    async def settle(self, job: Job, ids: Sequence[int] | None, *, again: bool) -> int:
        """Queue failures again, or forget them; all for ``None``. Returns how many there were."""

        async def act() -> int:
            async with _open(job, folder) as reached:
                settle = reached.frontier.dead_letters.replay if again else reached.frontier.dead_letters.drop
                return await settle(ids)

        folder = await self._folder(job)
        return await _apart(act())

    async def add(
        self, job: Job, seeds: Sequence[str | Mapping[str, Any]], priority: int, callback: str | None
    ) -> AddResult:
        """Add seeds, all or (with a :class:`Refusal` that names the first bad one) none."""
        return await _apart(_add(job, await self._folder(job), seeds, priority, callback))

    async def drop_task(self, job: Job, task: str) -> None:
        """Drop what is queued of a task, whether the job is running or not."""
        if job.run is None:
            return

        async def act() -> None:
            async with _open(job, folder) as reached:
                await reached.frontier.control.drop_group(task)

        with suppress(Conflict):  # nobody has begun it: nothing is queued
            folder = await self._folder(job)
            await _apart(act())

    async def change(self, job: Job, limits: Mapping[str, Any], *, reset: bool) -> dict[str, Any]:
        """Change settings for all workers at once; returns all changes that hold.

        Raises :class:`Refusal` for one that cannot be changed or set so.
        """
        check_settings(limits, "settings")
        try:
            changes = changes_of(limits)
        except SkitterError as error:
            raise Refusal(str(error), remedy=error.remedy, field="settings") from None

        async def act() -> dict[str, Any]:
            async with _open(job, folder) as reached:
                changed = await change_settings(reached.frontier, changes, reset=reset)
                return _shown(msgspec.to_builtins(changed))

        folder = await self._folder(job)
        return await _apart(act())


def _shown(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return changes as they were given: JSON has no infinity, which is what waiting for ever is kept as."""
    return {name: True if value == math.inf else value for name, value in changes.items()}


async def _apart(call: Coroutine[Any, Any, _T]) -> _T:
    """Run what looks at disks, and imports spiders, on an event loop of its own: callers of the API do not wait for it."""
    return await asyncio.to_thread(_on_own_loop, call)


def _on_own_loop(call: Coroutine[Any, Any, _T]) -> _T:
    return asyncio.run(call)


@asynccontextmanager
async def _open(job: Job, folder: RunFolder) -> AsyncIterator[OpenFrontier]:
    if folder.is_of_one_node and not folder.exists():
        raise _not_begun(job)
    try:
        async with open_frontier(folder) as reached:
            yield reached
    except NoSuchJob:
        raise _not_begun(job) from None


async def _failures(
    job: Job, folder: RunFolder, after: int, limit: int, kind: str | None
) -> list[dict[str, Any]]:
    if folder.is_of_one_node and not folder.exists():
        raise _not_begun(job)
    found: list[dict[str, Any]] = []
    try:
        while len(found) < limit and (letters := await dead_letters(folder, after, _LETTERS_AT_ONCE)):
            after = letters[-1].id
            found += [letter_fields(letter) for letter in letters if _is_of_kind(letter.error, kind)]
    except NoSuchJob:
        raise _not_begun(job) from None
    return found[:limit]


async def _add(
    job: Job, folder: RunFolder, seeds: Sequence[str | Mapping[str, Any]], priority: int, callback: str | None
) -> AddResult:
    async with _open(job, folder) as reached:
        parser = SeedParser(folder, reached, priority=priority, callback=callback)
        entries: list[Entry] = []
        for place, seed in enumerate(seeds):
            text = seed if isinstance(seed, str) else msgspec.json.encode(seed)
            try:
                entry = parser.entry(text)
            except SkitterError as error:
                raise Refusal(str(error), remedy=error.remedy, field=f"seeds[{place}]") from None
            except (ValueError, OverflowError, TypeError) as error:  # of encoding it: a number of 30 digits
                raise Refusal(f"it cannot be kept: {error}", field=f"seeds[{place}]") from None
            if isinstance(entry, str):
                raise Refusal(entry, remedy="leave it out, or correct it", field=f"seeds[{place}]")
            entries.append(entry)
        return await reached.frontier.add(entries)


def view(job: Job, nodes: Mapping[str, NodeNote]) -> dict[str, Any]:
    """Return a job for callers."""
    run = job.run
    running = [] if run is None else [name for name, note in nodes.items() if run.id in note.running]
    troubles = {} if run is None else {
        name: msgspec.to_builtins(note.troubles[run.id]) for name, note in nodes.items() if run.id in note.troubles
    }  # fmt: skip
    shown: dict[str, Any] = msgspec.to_builtins(job)
    for name in ("format", "run", "previous"):
        del shown[name]
    return shown | {
        "state": state_of(job, running=bool(running)),
        "run": _run_view(run),
        "previous": _run_view(job.previous),
        "nodes": running,
        "troubles": troubles,
    }


def _run_view(run: Run | None) -> dict[str, Any] | None:
    if run is None:
        return None
    return {
        "id": run.id,
        "began": run.began,
        "ended": run.ended,
        "ended_at": run.ended_at,
        "reason": run.reason,
    }


def state_of(job: Job, *, running: bool) -> str:
    """Return what a job is doing, in one word."""
    if job.run is None:
        return "paused" if job.wanted == "paused" else "scheduled" if job.due is not None else "new"
    if job.run.ended:
        return job.run.ended
    if job.wanted == "running":
        return "running" if running else "waiting"
    return {"paused": ("paused", "pausing"), "stopped": ("stopped", "stopping")}[job.wanted][running]


def _is_of_kind(error: str, kind: str | None) -> bool:
    found = error.partition(":")[0]
    return kind is None or found == kind or found.startswith(f"{kind}/")


def _not_begun(job: Job) -> Conflict:
    return Conflict(f"no node has taken up job {job.name!r} yet", remedy="try again in a moment")
