"""Controls a job from outside: opens its frontier, whether a process runs the job or not, and reads its state."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from skitter.errors import SkitterError, UsageError
from skitter.frontier.contract import Frontier, NoSuchJob
from skitter.frontier.embedded.inspection import (
    read_changes,
    read_dead_letters,
    read_note,
    read_outputs,
    read_stats,
    read_status,
)
from skitter.frontier.embedded.tables import file_of
from skitter.frontier.options import FrontierContext, SettingsChanges
from skitter.frontier.records import DeadLetter, FrontierStatus, JobInfo, JobState
from skitter.frontier.registry import make_frontier
from skitter.frontier.rpc.client import OwnerGone, remote_frontier
from skitter.frontier.stats import StatsGroup, StatsRow
from skitter.frontier.workers import WorkerStatus
from skitter.monitors import Verdict
from skitter.politeness import Politeness
from skitter.run.builder import JobBuilder
from skitter.run.job import JobFolder, JobSpec, is_job_name
from skitter.run.passes import NOTE, PassRecord, decode_passes
from skitter.secrets import shown_url, without_secrets
from skitter.settings import build_settings

_EMBEDDED = {"memory", "sqlite"}
"""Schemes of frontiers that belong to one machine."""


class JobStatus(msgspec.Struct, kw_only=True):
    """The state of a job at one moment."""

    job: str
    state: str
    """``running``, ``paused``, ``stopping``; ``stopped``: no process runs it; ``finished``; ``new``: it was never
    started, or was kept in memory; ``unknown``: it cannot be read."""
    live: bool
    """Whether a process on this machine runs it."""
    spider: str
    outputs: list[str]
    frontier: str
    counts: FrontierStatus | None = None
    workers: list[WorkerStatus] = []
    """The running workers, on all machines."""
    changes: dict[str, Any] = {}
    """Settings that were changed while it ran."""
    banned: list[str] = []
    """Hosts whose requests are refused."""
    violated: list[Verdict] = []
    """The violated monitors of the current pass, or else of the last one."""
    passes: list[PassRecord] = []
    """The last passes that have ended, at most 10, newest first."""
    problem: str = ""
    """Why it cannot be read; empty if it can."""


class OpenFrontier(NamedTuple):
    """An open frontier."""

    frontier: Frontier
    live: bool
    """Whether a process works on the job."""
    info: JobInfo


class SharedJob(JobFolder):
    """A job on a frontier that all machines share. It need not have a folder on this machine."""

    def __init__(self, job: str, url: str) -> None:
        super().__init__(job)
        self._url = url

    def read(self) -> JobSpec:
        """Return the specification of the job, as far as this machine knows it."""
        if self.exists():
            spec = super().read()
            if without_secrets(spec.frontier) == without_secrets(self._url):
                return msgspec.structs.replace(spec, frontier=self._url)
        return JobSpec(job=self.job, spider="", frontier=self._url)

    def is_being_run(self) -> bool:
        """Tell whether a process on this machine runs it."""
        return self.exists() and super().is_being_run()


def find_job(job: str, frontier: str | None) -> JobFolder:
    """Return a job of this machine, or of a ``frontier`` that all machines share.

    Raises :class:`~skitter.errors.UsageError`.
    """
    if frontier is not None:
        if frontier.partition(":")[0] in _EMBEDDED:
            raise UsageError(
                f"frontier {shown_url(frontier)} is not shared between machines",
                remedy="run the command in the folder of the job, without --frontier",
                field="frontier",
            )
        return SharedJob(job, frontier)
    folder = JobFolder(job)
    folder.read()
    return folder


async def jobs_on(frontier: str) -> list[JobFolder]:
    """List the jobs of a frontier that all machines share. Raises :class:`~skitter.errors.SkitterError`."""
    if frontier.partition(":")[0] not in _EMBEDDED:
        made = make_frontier(frontier, FrontierContext("none", ".", Politeness(), attach=True))
        if made.catalog is not None:
            return [SharedJob(job, frontier) for job in await made.catalog.jobs() if is_job_name(job)]
    raise UsageError(
        f"frontier {shown_url(frontier)} cannot list its jobs",
        remedy="run the command in the folder of the jobs, without --frontier",
        field="frontier",
    )


@asynccontextmanager
async def live_frontier(folder: JobFolder) -> AsyncIterator[OpenFrontier | None]:
    """Connect to the process that runs the job, or to its shared frontier; ``None`` if no process runs it."""
    shared = _shared_frontier(folder)
    if shared is not None:
        info = await shared.open()
        try:
            busy = folder.is_being_run() or await shared.reports.workers() or (await shared.status()).leased
            yield OpenFrontier(shared, True, info) if busy else None
        finally:
            await shared.close()
        return
    frontier = remote_frontier(folder.socket)
    try:
        info = await frontier.open()
    except OwnerGone:
        yield None
        return
    try:
        yield OpenFrontier(frontier, True, info)
    finally:
        await frontier.close()


@asynccontextmanager
async def open_frontier(folder: JobFolder) -> AsyncIterator[OpenFrontier]:
    """Open the frontier of a job to change the job.

    An idle job is opened as its next run would open it. Raises :class:`~skitter.errors.SkitterError` if it cannot be
    opened, or if another process is about to run or change the job.
    """
    spec = folder.read()
    async with live_frontier(folder) as live:
        if live is not None:
            yield live
            return
    if spec.frontier.startswith("memory:"):
        raise UsageError(
            f"job {folder.job!r} was kept in memory and is not being run",
            remedy="run it again; a job in memory ends with its process",
        )
    shared = _shared_frontier(folder)
    if shared is not None:
        info = await shared.open()
        try:
            yield OpenFrontier(shared, False, info)
        finally:
            await shared.close()
        return
    lock = folder.lock()
    lock.acquire()
    try:
        frontier = make_frontier(spec.frontier, JobBuilder(spec).frontier_context())
        info = await frontier.open()
        try:
            yield OpenFrontier(frontier, False, info)
        finally:
            await frontier.close()
    finally:
        lock.release()


def _shared_frontier(folder: JobFolder) -> Frontier | None:
    """Return the frontier of a job, not yet open, if all processes share it."""
    spec = folder.read()
    if spec.frontier.partition(":")[0] in _EMBEDDED:
        return None
    # Attach: reading a job must not change its settings to those that this machine stored.
    context = FrontierContext(spec.created_as, str(folder.path), Politeness(), attach=True)
    frontier = make_frontier(spec.frontier, context)
    return frontier if frontier.shared else None


async def job_status(folder: JobFolder) -> JobStatus:
    """Read the state of a job without changing it."""
    spec = folder.read()
    found = JobStatus(
        job=folder.job, state="new", live=False, spider=spec.spider, outputs=[shown_url(target) for target in spec.outputs],
        frontier=shown_url(spec.frontier),
    )  # fmt: skip
    try:
        await _read_job(folder, spec, found)
    except NoSuchJob:
        if not spec.spider:  # neither this machine nor the server knows it
            raise
    found.state = _state_of(found.counts, live=found.live)
    return found


async def job_statuses(folders: Iterable[JobFolder]) -> list[JobStatus]:
    """Read the states of several jobs. A job that cannot be read has a ``problem``; a deleted job is left out."""
    found = []
    for folder in folders:
        try:
            found.append(await job_status(folder))
        except NoSuchJob:
            continue
        except SkitterError as error:
            found.append(
                JobStatus(
                    job=folder.job, state="unknown", live=False, spider="", outputs=[], frontier="", problem=str(error)
                )
            )  # fmt: skip
    return found


async def outputs(folder: JobFolder) -> dict[str, list[tuple[int, int]]]:
    """Read the committed ranges of each part file, without changing the job."""
    async with live_frontier(folder) as live:
        if live is not None:
            with contextlib.suppress(OwnerGone):  # it has just ended
                return await live.frontier.reports.outputs()
    path = _file_of(folder, folder.read())
    if path is not None:
        return read_outputs(path)
    async with open_frontier(folder) as reached:
        return await reached.frontier.reports.outputs()


async def dead_letters(folder: JobFolder, after: int, limit: int) -> list[DeadLetter]:
    """List dead letters by id, without changing the job."""
    spec = folder.read()
    async with live_frontier(folder) as live:
        if live is not None:
            with contextlib.suppress(OwnerGone):  # it has just ended
                return await live.frontier.dead_letters.list(after, limit)
    path = _file_of(folder, spec)
    if path is not None:
        return read_dead_letters(path, after, limit)
    async with open_frontier(folder) as reached:
        return await reached.frontier.dead_letters.list(after, limit)


async def _read_job(folder: JobFolder, spec: JobSpec, found: JobStatus) -> None:
    async with live_frontier(folder) as live:
        if live is not None:
            with contextlib.suppress(OwnerGone):  # it has just ended
                await _read_frontier(live.frontier, found)
                found.live = True
                return
    if spec.frontier.startswith("memory:"):
        return
    path = _file_of(folder, spec)
    if path is not None:
        found.counts = read_status(path)
        changes, found.banned = read_changes(path)
        found.changes = changes.to_dict()
        _take_passes(read_note(path, NOTE), found)
        return
    async with open_frontier(folder) as reached:
        await _read_frontier(reached.frontier, found)


async def _read_frontier(frontier: Frontier, found: JobStatus) -> None:
    found.counts = await frontier.status()
    found.workers = await frontier.reports.workers()
    found.changes = (await frontier.control.settings_changes()).to_dict()
    found.banned = await frontier.control.banned()
    _take_passes(await frontier.notes.get(NOTE), found)


def _take_passes(note: bytes | None, found: JobStatus) -> None:
    passes = decode_passes(note)
    found.violated = passes.violated
    found.passes = passes.history[:10]


async def stats(folder: JobFolder, group: StatsGroup, limit: int) -> list[StatsRow]:
    """Read the counts of a job per worker, host or group, without changing the job."""
    async with live_frontier(folder) as live:
        if live is not None:
            with contextlib.suppress(OwnerGone):  # it has just ended
                return await live.frontier.reports.stats(group, limit)
    path = _file_of(folder, folder.read())
    if path is not None:
        return read_stats(path, group, limit)
    async with open_frontier(folder) as reached:
        return await reached.frontier.reports.stats(group, limit)


def _file_of(folder: JobFolder, spec: JobSpec) -> Path | None:
    """Return the file of an embedded frontier, which can be read without opening the job."""
    return file_of(spec.frontier, folder.path) if spec.frontier.startswith("sqlite:") else None


def _state_of(counts: FrontierStatus | None, *, live: bool) -> str:
    if counts is None:
        return "new"
    if live or counts.state in {JobState.FINISHED, JobState.PAUSED}:
        return counts.state.value
    return "stopped"


async def change_settings(frontier: Frontier, changes: SettingsChanges, *, reset: bool) -> SettingsChanges:
    """Change settings of a job. ``reset``: undo earlier changes first, except those that its spider has made."""
    if reset:
        before = await frontier.control.settings_changes()
        kept = SettingsChanges(domain_limits=before.domain_limits, shared_cookies=before.shared_cookies)
        changes = changes.over(kept)
    return await frontier.control.change_settings(changes, reset)


def changes_of(given: Mapping[str, Any]) -> SettingsChanges:
    """Return changes of settings that hold from now on.

    Raises :class:`~skitter.errors.UsageError` for a setting that cannot change during a run, or an invalid value.
    """
    build_settings(given).politeness()  # checks the values
    return SettingsChanges(dict(given))
