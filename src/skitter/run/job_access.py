"""Access to a job from other processes: opens its frontier, whether or not a process runs the job, and reads its state."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from skitter._utils.notes import WRITTEN
from skitter.errors import SkitterError, UsageError
from skitter.frontier.contract import Frontier, NoSuchJob
from skitter.frontier.embedded.inspection import (
    read_changes,
    read_dead_letters,
    read_note,
    read_outputs,
    read_slots,
    read_stats,
    read_status,
    read_visits,
)
from skitter.frontier.embedded.lock import Owned
from skitter.frontier.embedded.tables import file_of
from skitter.frontier.options import FrontierContext, SettingsChanges
from skitter.frontier.records import DeadLetter, FrontierStatus, JobInfo, JobState, SlotStatus, VisitsPart
from skitter.frontier.registry import location_of, make_frontier
from skitter.frontier.rpc.client import OwnerGone, remote_frontier
from skitter.frontier.stats import StatsDimension, StatsRow
from skitter.frontier.workers import PARTICIPANTS, WorkerStatus, decode_participants
from skitter.monitors import Verdict
from skitter.politeness import Politeness
from skitter.run.builder import JobBuilder
from skitter.run.job import JobFolder, JobSpec, is_embedded, is_job_name
from skitter.run.page_changes import (
    PageFinding,
    PassReport,
    ReadVisits,
    change_of,
    each_visit,
    read_changes_of_pass,
    with_kept,
)
from skitter.run.passes import NOTE, Passes, PassRecord, decode_passes
from skitter.run.written import bytes_elsewhere, unwritten_items
from skitter.secrets import shown_url
from skitter.settings import build_settings
from skitter.store.contract import parts_folder

_T = TypeVar("_T")
_MAX_WAIT = 5.0
"""Seconds for which a command waits for another command that changes the same job, or for a run that begins."""
_RETRY_INTERVAL = 0.05


class JobStatus(msgspec.Struct, kw_only=True):
    """The state of a job at one moment."""

    job: str
    state: str
    """``running``, ``paused``, ``stopping``; ``stopped``: no process runs it; ``finished``; ``incomplete``: nothing is left
    to fetch, but committed items are in no output; ``new``: it was never started, or was kept in memory; ``unknown``: it
    cannot be read."""
    live: bool
    """Whether a process works on the job: on this machine, or on any machine if its frontier is shared."""
    spider: str
    outputs: list[str]
    frontier: str
    counts: FrontierStatus | None = None
    workers: list[WorkerStatus] = []
    """The running workers, on all machines."""
    changes: dict[str, Any] = {}
    """Settings that were changed while the job ran."""
    banned: list[str] = []
    """Hosts whose requests are refused."""
    violated: list[Verdict] = []
    """The violated monitors of the current pass, or of the last pass if none is open."""
    passes: list[PassRecord] = []
    """The last passes that have ended, at most 10, newest first."""
    elsewhere: int = 0
    """Bytes of committed items in part files of other machines, which may be gone."""
    may_grow: bool = False
    """Whether nothing is left to fetch, but a Scrapy process may still add requests because its spider is open."""
    unwritten: int = 0
    """Bytes of committed items that no machine has written to the outputs yet. Only read if nothing is left to fetch."""
    problem: str = ""
    """Why the job cannot be read; empty if it can."""


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
        """Return what this machine knows of the specification of the job."""
        if self.exists():
            spec = super().read()
            if location_of(spec.frontier) == location_of(self._url):
                return msgspec.structs.replace(spec, frontier=self._url)
        return JobSpec(job=self.job, spider="", frontier=self._url)

    def is_being_run(self) -> bool:
        """Return whether a process on this machine runs the job."""
        return self.exists() and super().is_being_run()

    def how_to_continue(self) -> str:
        """Return what continues a stopped job, for messages."""
        if self.exists():
            return super().how_to_continue()
        return f"`skitter resume {self.job} --frontier {shown_url(self._url)}`"


def find_job(job: str, frontier: str | None) -> JobFolder:
    """Return a job of this machine, or of a ``frontier`` that all machines share.

    Raises :class:`~skitter.errors.UsageError`.
    """
    if frontier is not None:
        if is_embedded(frontier):
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
    if not is_embedded(frontier):
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
        async with _opened(shared) as info:
            busy = folder.is_being_run() or await shared.reports.workers() or (await shared.status()).leased
            yield OpenFrontier(shared, live=True, info=info) if busy else None
        return
    frontier = remote_frontier(folder.socket)
    try:
        info = await frontier.open()
    except OwnerGone:
        yield None
        return
    try:
        yield OpenFrontier(frontier, live=True, info=info)
    finally:
        await frontier.close()


@asynccontextmanager
async def open_frontier(folder: JobFolder) -> AsyncIterator[OpenFrontier]:
    """Open the frontier of a job to change the job.

    An idle job is opened as its next run would open it, after other commands that change it. Raises
    :class:`~skitter.errors.SkitterError` if it cannot be opened.
    """
    spec, lock = folder.read(), folder.lock()
    deadline = time.monotonic() + _MAX_WAIT
    while True:
        async with live_frontier(folder) as live:
            if live is not None:
                yield live
                return
        if spec.is_in_memory:
            raise UsageError(
                f"job {folder.job!r} was kept in memory and is not being run",
                remedy="run it again; a job in memory ends with its process",
            )
        shared = _shared_frontier(folder)
        if shared is not None:
            async with _opened(shared) as info:
                yield OpenFrontier(shared, live=False, info=info)
            return
        try:
            lock.acquire()
            break
        except Owned:  # by a command that will soon end, or by a run that will soon serve its frontier
            if time.monotonic() >= deadline:
                raise
        await asyncio.sleep(_RETRY_INTERVAL)
    try:
        spec.reads_references = False  # nothing is fetched
        frontier = make_frontier(spec.frontier, JobBuilder(spec).frontier_context())
        async with _opened(frontier) as info:
            yield OpenFrontier(frontier, live=False, info=info)
    finally:
        lock.release()


@asynccontextmanager
async def _opened(frontier: Frontier) -> AsyncIterator[JobInfo]:
    info = await frontier.open()
    try:
        yield info
    finally:
        await frontier.close()


def _shared_frontier(folder: JobFolder) -> Frontier | None:
    """Return the frontier of a job, not yet open, if all processes share it."""
    spec = folder.read()
    if is_embedded(spec.frontier):
        return None
    # Attach: reading a job must not change its settings to those that this machine stored.
    context = FrontierContext(spec.created_as, str(folder.path), Politeness(), attach=True)
    frontier = make_frontier(spec.frontier, context)
    return frontier if frontier.shared else None


async def job_status(folder: JobFolder) -> JobStatus:
    """Read the state of a job without changing it."""
    spec = folder.read()
    found = JobStatus(
        job=folder.job, state="new", live=False, spider=spec.spider_title or spec.spider, outputs=[shown_url(target) for target in spec.outputs],
        frontier=shown_url(spec.frontier),
    )  # fmt: skip
    try:
        await _read_job(folder, spec, found)
    except NoSuchJob:
        if not spec.spider:  # neither this machine nor the server knows it
            raise
    found.state = _state_of(found)
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
    """Read the byte ranges of the items that a job holds, by part file, without changing the job."""
    ranges = await _read(folder, lambda frontier: frontier.reports.outputs(), read_outputs)
    return with_kept(ranges, (await page_report(folder)).kept)


async def page_report(folder: JobFolder) -> PassReport:
    """Read what the present pass of a job found, without changing the job."""
    async with _visits_of(folder) as visits:
        return await read_changes_of_pass(visits.read, visits.status, may_repeat=visits.may_repeat)


async def page_changes(folder: JobFolder, kinds: Collection[str]) -> list[PageFinding]:
    """List the pages with some kinds of :class:`~skitter.frontier.records.PageChange` in the present pass.

    Raises :class:`~skitter.errors.UsageError` if the job remembers no page.
    """
    found, is_empty = [], True
    async with _visits_of(folder) as visits:
        status = visits.status
        async for page in each_visit(visits.read, may_repeat=visits.may_repeat):
            is_empty = False
            change = change_of(page, status.pass_number, is_finished=status.state is JobState.FINISHED)
            if change is not None and change.change in kinds:
                found.append(change)
    if is_empty:
        raise UsageError(
            f"job {folder.job!r} remembers no page",
            remedy="start it with --changes all, changed or new",
            field="changes",
        )
    return found


class _JobVisits(NamedTuple):
    """Access to the visits of a job."""

    read: ReadVisits
    status: FrontierStatus
    may_repeat: bool
    """Whether ``read`` may return a page twice."""


@asynccontextmanager
async def _visits_of(folder: JobFolder) -> AsyncIterator[_JobVisits]:
    """Give access to the visits of a job: in its frontier if a process runs the job, otherwise in its file."""
    async with live_frontier(folder) as live:
        if live is not None:
            yield _JobVisits(live.frontier.reports.visits, await live.frontier.status(), may_repeat=True)
            return
    path = _file_of(folder, folder.read())
    if path is not None:
        status = await asyncio.to_thread(read_status, path)
        if status is not None:
            yield _JobVisits(_reader_of(path), status, may_repeat=False)
            return
    async with open_frontier(folder) as reached:
        yield _JobVisits(reached.frontier.reports.visits, await reached.frontier.status(), may_repeat=True)


def _reader_of(path: Path) -> ReadVisits:
    async def read(cursor: str, limit: int) -> VisitsPart:
        return await asyncio.to_thread(read_visits, path, cursor, limit)

    return read


async def dead_letters(folder: JobFolder, after: int, limit: int) -> list[DeadLetter]:
    """List dead letters by id, without changing the job."""
    return await _read(
        folder,
        lambda frontier: frontier.dead_letters.list(after, limit),
        lambda path: read_dead_letters(path, after, limit),
    )


async def stats(folder: JobFolder, dimension: StatsDimension, limit: int) -> list[StatsRow]:
    """Read the counts of a job per worker, host or group, without changing the job."""
    return await _read(
        folder,
        lambda frontier: frontier.reports.stats(dimension, limit),
        lambda path: read_stats(path, dimension, limit),
    )


async def slots(folder: JobFolder, limit: int) -> list[SlotStatus]:
    """Read the slots with queued or leased requests, most queued first, without changing the job."""
    return await _read(
        folder, lambda frontier: frontier.reports.slots(limit), lambda path: read_slots(path, limit)
    )


async def read_passes(folder: JobFolder) -> Passes:
    """Read the passes of a job, without changing the job."""
    return decode_passes(
        await _read(folder, lambda frontier: frontier.notes.get(NOTE), lambda path: read_note(path, NOTE))
    )


async def _read(
    folder: JobFolder, from_frontier: Callable[[Frontier], Awaitable[_T]], from_file: Callable[[Path], _T]
) -> _T:
    """Ask the frontier of a job that is being run. Otherwise, read its file."""
    async with live_frontier(folder) as live:
        if live is not None:
            with contextlib.suppress(OwnerGone):  # it has just ended
                return await from_frontier(live.frontier)
    path = _file_of(folder, folder.read())
    if path is not None:
        return await asyncio.to_thread(from_file, path)
    async with open_frontier(folder) as reached:
        return await from_frontier(reached.frontier)


async def _read_job(folder: JobFolder, spec: JobSpec, found: JobStatus) -> None:
    async with live_frontier(folder) as live:
        if live is not None:
            with contextlib.suppress(OwnerGone):  # it has just ended
                await _read_frontier(folder, live.frontier, found)
                found.live = True
                return
    if spec.is_in_memory:
        return
    path = _file_of(folder, spec)
    if path is not None:
        await asyncio.to_thread(_read_file, path, found)
        return
    async with open_frontier(folder) as reached:
        await _read_frontier(folder, reached.frontier, found)


def _read_file(path: Path, found: JobStatus) -> None:
    found.counts = read_status(path)
    changes, found.banned = read_changes(path)
    found.changes = changes.to_dict()
    _take_passes(read_note(path, NOTE), found)
    if found.outputs and found.counts is not None and found.counts.state is JobState.FINISHED:
        found.unwritten = sum(unwritten_items(read_outputs(path), read_note(path, WRITTEN)).values())


async def _read_frontier(folder: JobFolder, frontier: Frontier, found: JobStatus) -> None:
    found.counts = await frontier.status()
    found.workers = await frontier.reports.workers()
    found.changes = (await frontier.control.settings_changes()).to_dict()
    found.banned = await frontier.control.banned()
    _take_passes(await frontier.notes.get(NOTE), found)
    is_finished = found.counts.state is JobState.FINISHED
    if is_finished:
        note = await frontier.notes.get(PARTICIPANTS)
        found.may_grow = decode_participants(note).include_any(found.workers)
    if not (frontier.shared or is_finished):
        return
    ranges = await frontier.reports.outputs()
    if is_finished:
        found.unwritten = sum(unwritten_items(ranges, await frontier.notes.get(WRITTEN)).values())
    if frontier.shared:
        found.elsewhere = await bytes_elsewhere(ranges, parts_folder(str(folder.path)))


def _take_passes(note: bytes | None, found: JobStatus) -> None:
    passes = decode_passes(note)
    found.violated = passes.violated
    found.passes = passes.history[:10]


def _file_of(folder: JobFolder, spec: JobSpec) -> Path | None:
    """Return the file of an embedded frontier, which can be read without opening the job."""
    return file_of(spec.frontier, folder.path) if spec.frontier.startswith("sqlite:") else None


def _state_of(found: JobStatus) -> str:
    if found.counts is None:
        return "new"
    if found.unwritten:
        return "running" if found.live else "incomplete"
    if found.may_grow:
        return "running"
    if found.live or found.counts.state in {JobState.FINISHED, JobState.PAUSED}:
        return found.counts.state.value
    return "stopped"


async def settings_changes(folder: JobFolder) -> SettingsChanges:
    """Read the settings that were changed while a job ran, without changing the job."""
    return await _read(
        folder, lambda frontier: frontier.control.settings_changes(), lambda path: read_changes(path)[0]
    )


async def change_settings(frontier: Frontier, changes: SettingsChanges, *, reset: bool) -> SettingsChanges:
    """Change settings of a job. ``reset``: undo earlier changes first, except those that its spider has made."""
    if reset:
        before = await frontier.control.settings_changes()
        kept = SettingsChanges(domain_limits=before.domain_limits, shared_cookies=before.shared_cookies)
        changes = changes.over(kept)
    return await frontier.control.change_settings(changes, reset=reset)


def changes_of(values: Mapping[str, Any]) -> SettingsChanges:
    """Return changes of settings, to be applied to a running job.

    Raises :class:`~skitter.errors.UsageError` for a setting that cannot change during a run, or an invalid value.
    """
    build_settings(values).politeness()  # checks the values
    return SettingsChanges(dict(values))
