"""Access to the frontier of a run: reads its progress, failures and items, adds seeds, and changes settings."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from skitter.errors import SkitterError
from skitter.frontends.tasks.changes import TaskState
from skitter.frontier.contract import NoSuchJob
from skitter.frontier.records import AddResult, Entry
from skitter.observe.dead_letters import DeadLetterFilter
from skitter.observe.metrics import JobSample
from skitter.run.job_access import (
    JobStatus,
    OpenFrontier,
    change_settings,
    changes_of,
    job_status,
    open_frontier,
)
from skitter.run.seeding import SeedParser
from skitter.secrets import stored_arguments, stored_settings
from skitter.service.config import TASK_ITEMS, RunFolder, check_settings
from skitter.service.errors import ApiError, Conflict, NotFound
from skitter.service.inspection import (
    FigureHistory,
    Host,
    SteeringAction,
    figures_of,
    frontier_view,
    list_failures,
    read_hosts,
    settle_failures,
)
from skitter.service.items import ItemPage, read_items
from skitter.service.jobs import JobService
from skitter.service.models import JobRecord, JobRun, NodeStatus

_KEPT_SECONDS = 900.0
"""Time for which the history of a run is kept after the last viewer has left, in seconds."""
_MAX_AGE = 0.9
"""Time for which the status of a job is cached, in seconds: everyone who watches a job shares the result."""
_HOSTS_AGE = 1.5
"""Time for which the hosts of a job are cached, in seconds."""
_REST = 4.0
"""The hosts of a job are cached for this many times the duration of the read, if that is longer."""
_JOBS_AT_ONCE = 8
"""Jobs that are read at the same time for the metrics."""
_T = TypeVar("_T")


class JobQueries:
    """Reads the progress of jobs from their frontiers, and changes the contents of the frontiers.

    Implements :class:`~skitter.service.api.watch_routes.WatchedJobs`.
    """

    def __init__(self, jobs: JobService) -> None:
        self._jobs = jobs
        self._samples: dict[str, tuple[tuple[str, int] | None, JobSample]] = {}
        """Last sample of each job, with the id and attempt of its run if the run has ended."""
        self._statuses: dict[str, tuple[float, JobStatus | None]] = {}
        """The last status of each run that a user watches, with the monotonic time of the read."""
        self._histories: dict[str, FigureHistory] = {}
        self._reading = asyncio.Lock()
        self._hosts: dict[str, tuple[float, list[Host]]] = {}
        """The hosts of runs that users look at, with the monotonic time at which the cached value expires."""
        self._reading_hosts = asyncio.Lock()

    async def _folder(self, job: JobRecord) -> RunFolder:
        if job.run is None:
            raise Conflict(f"job {job.name!r} has no run yet", remedy="start it, or wait for its schedule")
        await self._jobs.prepare(job, job.run)
        return RunFolder(await asyncio.to_thread(self._jobs.config.spec, job, job.run))

    async def _on_folder(self, name: str, read: Callable[[RunFolder], Awaitable[_T]]) -> _T:
        """Read the current run of a job. Raises :class:`Conflict` if no node has started the run."""
        folder = await self._folder(await self._jobs.records.job(name))

        async def check_and_read() -> _T:
            conflict = Conflict(f"no node has started job {name!r} yet", remedy="try again in a moment")
            is_local = folder.read().frontier.startswith("sqlite:")
            if is_local and not folder.exists():
                raise conflict
            try:
                return await read(folder)
            except NoSuchJob:
                raise conflict from None

        return await in_thread(check_and_read())

    async def _on_frontier(self, name: str, act: Callable[[OpenFrontier], Awaitable[_T]]) -> _T:
        """Open the frontier of the current run and act on it. Raises the same errors as :meth:`_on_folder`."""

        async def open_and_act(folder: RunFolder) -> _T:
            async with open_frontier(folder) as opened:
                return await act(opened)

        return await self._on_folder(name, open_and_act)

    # --- reading -----------------------------------------------------------------------------------------

    async def status(self, name: str) -> dict[str, Any]:
        job = await self._jobs.records.job(name)
        shown = view(job, await self._jobs.records.nodes())
        found = await self._status(job)
        return shown if found is None else shown | frontier_view(found)

    async def _status(self, job: JobRecord) -> JobStatus | None:
        """Return the status of the run of a job; ``None`` without a run, or if no node has started it."""
        try:
            return await in_thread(job_status(await self._folder(job)))
        except (NoSuchJob, ApiError):
            return None

    async def watched(self, name: str) -> dict[str, Any]:
        job = await self._jobs.records.job(name)
        shown = view(job, await self._jobs.records.nodes())
        if job.run is None:
            return shown
        run = job.run.id
        async with self._reading:
            read_at, found = self._statuses.get(run, (0.0, None))
            if time.monotonic() - read_at > _MAX_AGE:
                found = await self._status(job)
                old = time.monotonic() - _KEPT_SECONDS
                for unwatched in [run for run, (seen_at, _) in self._statuses.items() if seen_at < old]:
                    del self._statuses[unwatched]
                    self._histories.pop(unwatched, None)
                self._statuses[run] = time.monotonic(), found
                if found is not None and found.counts is not None:
                    self._histories.setdefault(run, FigureHistory()).add(found.counts, found.workers)
        if found is None:
            return shown
        latest = self._points(job)[-1:] if not job.run.ended else []
        return shown | frontier_view(found) | {"figures": latest[0] if latest else None}

    async def history(self, name: str) -> list[dict[str, Any]]:
        return self._points(await self._jobs.records.job(name))

    def _points(self, job: JobRecord) -> list[dict[str, Any]]:
        found = self._histories.get("" if job.run is None else job.run.id)
        return [] if found is None else list(found.points)

    async def overview(
        self, contains: str, state: str | None, offset: int, limit: int | None, may_see: Callable[[str], bool], *,
        figures: bool,
    ) -> dict[str, Any]:  # fmt: skip
        nodes = await self._jobs.records.nodes()
        running = {run for status in nodes.values() for run in status.running}
        found: list[JobRecord] = []
        states: Counter[str] = Counter()
        for job in await self._jobs.records.jobs():
            if contains in job.name and may_see(job.name):
                current = state_of(job, running=job.run is not None and job.run.id in running)
                states[current] += 1
                if state in {None, current}:
                    found.append(job)
        end = None if limit is None else offset + limit
        shown = [view(job, nodes) for job in found[offset:end]]
        if figures:
            samples = {sample.job: sample for sample in await self.samples({job["name"] for job in shown})}
            for job_view in shown:
                sample = samples.get(job_view["name"])  # none if the job cannot be read
                job_view["figures"] = None if sample is None else figures_of(sample.status, sample.workers)
        return {"jobs": shown, "total": len(found), "states": dict(states)}

    async def hosts(self, name: str) -> list[Host]:
        run = (await self._folder(await self._jobs.records.job(name))).job
        async with self._reading_hosts:
            until, found = self._hosts.get(run, (0.0, []))
            began = time.monotonic()
            if began > until:
                found = await self._on_folder(name, read_hosts)
                took = time.monotonic() - began
                self._hosts = {run: kept for run, kept in self._hosts.items() if kept[0] > began}
                self._hosts[run] = began + took + max(_HOSTS_AGE, _REST * took), found
        return found

    async def samples(self, names: Collection[str] | None = None) -> list[JobSample]:
        """Return samples of all jobs, or of some, for the metrics. If a frontier cannot be read now, its last sample is used.

        A run that has ended is read once more. Its sample is then kept, so that old jobs cost nothing.
        """
        nodes = await self._jobs.records.nodes()
        jobs = [(job, job.run) for job in await self._jobs.records.jobs() if job.run is not None]
        self._samples = {job.name: self._samples[job.name] for job, _ in jobs if job.name in self._samples}
        stale = [
            (job, run) for job, run in jobs
            if names is None or job.name in names
            if not run.ended or self._samples.get(job.name, (None,))[0] != (run.id, run.attempt)
        ]  # fmt: skip
        for start in range(0, len(stale), _JOBS_AT_ONCE):
            await asyncio.gather(
                *(self._sample(job, run, nodes) for job, run in stale[start : start + _JOBS_AT_ONCE])
            )
        return [sample for _, sample in self._samples.values()]

    async def _sample(self, job: JobRecord, run: JobRun, nodes: Mapping[str, NodeStatus]) -> None:
        with suppress(SkitterError, OSError):
            found = await in_thread(job_status(await self._folder(job)))
            if found.counts is not None:
                state = state_of(job, running=any(run.id in status.running for status in nodes.values()))
                version = (run.id, run.attempt) if run.ended else None
                self._samples[job.name] = (
                    version,
                    JobSample(job.name, state, found.counts, found.workers, len(found.violated)),
                )

    async def items(
        self, name: str, run: str | None, after: str | None, limit: int, task: TaskState | None = None
    ) -> ItemPage:
        """Return items of the current or the previous run, in the order in which their pages first arrived.

        ``task``: return only items of this task. Raises :class:`Conflict` if the task does not have its own list.
        """
        if task is not None and not task.outputs:
            raise Conflict(
                f"task {task.name!r} was added without outputs, so its items are among the items of the job",
                remedy=f'add a task with "outputs": ["{TASK_ITEMS}"] to get its own list',
            )
        chosen = await self.run_with_items(name, run)
        number, _, index = (after or "0.0").partition(".")
        log = self._jobs.config.items(chosen)
        try:
            return await read_items(log, (int(number), int(index)), limit, "" if task is None else task.name)
        finally:
            await log.close()

    async def run_with_items(self, name: str, run: str | None) -> str:
        """Return a run of a job whose items are kept; without ``run``, its newest run. Raises :class:`NotFound`."""
        job = await self._jobs.records.job(name)
        run_ids = {kept.id for kept in (job.run, job.previous) if kept is not None}
        chosen = run or (job.run.id if job.run is not None else "")
        if not chosen:
            raise NotFound(f"job {job.name!r} has no run yet", remedy="start it, or wait for its schedule")
        if chosen not in run_ids:
            raise NotFound(
                f"job {job.name!r} has no run {chosen!r}",
                remedy="see `run` and `previous` in GET /jobs/NAME",
                field="run",
            )
        return chosen

    async def failures(
        self, name: str, after: int, limit: int, selection: DeadLetterFilter
    ) -> list[dict[str, Any]]:
        return await self._on_folder(name, lambda folder: list_failures(folder, after, limit, selection))

    # --- changing ----------------------------------------------------------------------------------------

    async def steer(self, name: str, action: SteeringAction) -> dict[str, Any]:
        return view(await self._jobs.steer(name, action), await self._jobs.records.nodes())

    async def settle(
        self, name: str, ids: Sequence[int] | None, selection: DeadLetterFilter, *, again: bool
    ) -> int:
        return await self._on_frontier(
            name, lambda opened: settle_failures(opened.frontier.dead_letters, ids, selection, again=again)
        )

    async def add(
        self, name: str, seeds: Sequence[str | Mapping[str, Any]], priority: int, callback: str | None
    ) -> AddResult:
        """Add all seeds, or none. Raises an :class:`ApiError` that names the first invalid seed."""
        folder = await self._folder(await self._jobs.records.job(name))

        async def act(opened: OpenFrontier) -> AddResult:
            parser = SeedParser(folder, opened, priority=priority, callback=callback, trusted=False)
            entries: list[Entry] = []
            for number, seed in enumerate(seeds):
                field = f"seeds[{number}]"
                text = seed if isinstance(seed, str) else msgspec.json.encode(seed)
                try:
                    entry = parser.entry(text)
                except SkitterError as error:
                    raise ApiError(str(error), remedy=error.remedy, field=field) from None
                except (ValueError, OverflowError, TypeError) as error:  # while encoding a huge number
                    raise ApiError(
                        f"cannot store the seed: {error}", remedy="correct it", field=field
                    ) from None
                if isinstance(entry, str):
                    raise ApiError(entry, remedy="remove or correct the seed", field=field)
                entries.append(entry)
            return await opened.frontier.add(entries)

        return await self._on_frontier(name, act)

    async def drop_task(self, name: str, task: str) -> None:
        """Drop the queued requests of a task, given by its key, whether the job is running or not."""
        with suppress(Conflict):  # no node has started a run: nothing is queued
            await self._on_frontier(name, lambda opened: opened.frontier.control.drop_task(task))

    async def change(self, name: str, limits: Mapping[str, Any], *, reset: bool) -> dict[str, Any]:
        check_settings(limits, "settings")
        try:
            changes = changes_of(limits)
        except SkitterError as error:
            raise ApiError(str(error), remedy=error.remedy, field="settings") from None

        async def act(opened: OpenFrontier) -> dict[str, Any]:
            return (await change_settings(opened.frontier, changes, reset=reset)).to_dict()

        return await self._on_frontier(name, act)


async def in_thread(call: Coroutine[Any, Any, _T]) -> _T:
    """Run code that reads from disk and imports spiders on a separate event loop, so that other callers do not wait."""
    return await asyncio.to_thread(_on_own_loop, call)


def _on_own_loop(call: Coroutine[Any, Any, _T]) -> _T:
    # A function of its own, because the tests' detector of blocking calls exempts it by its name.
    return asyncio.run(call)


def view(job: JobRecord, nodes: Mapping[str, NodeStatus]) -> dict[str, Any]:
    """Return a job as the API shows it, without secrets."""
    run = job.run
    running, errors = [], {}
    if run is not None:
        running = [name for name, status in nodes.items() if run.id in status.running]
        errors = {name: status.errors[run.id] for name, status in nodes.items() if run.id in status.errors}
    shown: dict[str, Any] = msgspec.to_builtins(job)
    del shown["format"]
    return shown | {
        "arguments": stored_arguments(job.arguments),
        "settings": stored_settings(job.settings),
        "state": state_of(job, running=bool(running)),
        "run": _run_view(run),
        "previous": _run_view(job.previous),
        "nodes": running,
        "node_errors": msgspec.to_builtins(errors),
    }


def _run_view(run: JobRun | None) -> dict[str, Any] | None:
    names = ("id", "began", "ended", "ended_at", "reason")
    return None if run is None else {name: getattr(run, name) for name in names}


def state_of(job: JobRecord, *, running: bool) -> str:
    """Return the state of a job as one word. ``running``: whether a node runs it."""
    if job.run is None:
        return "paused" if job.wanted == "paused" else "scheduled" if job.due is not None else "new"
    if job.run.ended:
        return job.run.ended
    if job.wanted == "running":
        return "running" if running else "waiting"
    return {"paused": ("paused", "pausing"), "stopped": ("stopped", "stopping")}[job.wanted][running]
