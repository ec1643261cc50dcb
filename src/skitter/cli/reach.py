"""Reach: the frontier of a job, whether some process runs the job now or nobody does."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from skitter.engine.assembly import Assembly
from skitter.engine.job import JobFolder, JobSpec
from skitter.errors import UsageError
from skitter.frontier.base import DeadLetter, Frontier, FrontierStatus, JobState
from skitter.frontier.client import OwnerGone, RemoteFrontier
from skitter.frontier.file_format import file_of
from skitter.frontier.reading import read_dead_letters, read_status
from skitter.frontier.registry import make_frontier
from skitter.store.outputs import shown


class JobStatus(msgspec.Struct, kw_only=True):
    """A job as it is now."""

    job: str
    state: str
    """``running``, ``paused``, ``stopping``; ``stopped``: nobody runs it; ``finished``; ``new``: it was never
    begun, or kept in memory only."""
    live: bool
    """Whether a process on this machine runs it."""
    spider: str
    outputs: list[str]
    frontier: str
    counts: FrontierStatus | None = None


@asynccontextmanager
async def live_frontier(folder: JobFolder) -> AsyncIterator[Frontier | None]:
    """Connect to the process that runs the job, or to the frontier that all share; ``None`` if nobody runs it."""
    shared = _shared_frontier(folder.read())
    if shared is not None:
        await shared.open()
        try:
            yield shared if folder.is_being_run() or (await shared.status()).leased else None
        finally:
            await shared.close()
        return
    frontier = RemoteFrontier(folder.socket)
    try:
        await frontier.open()
    except OwnerGone:
        yield None
        return
    try:
        yield frontier
    finally:
        await frontier.close()


@asynccontextmanager
async def open_frontier(folder: JobFolder) -> AsyncIterator[tuple[Frontier, bool]]:
    """Give the frontier of a job to change something, and whether it is live.

    An idle job is opened as its next run would open it. Raises :class:`~skitter.errors.SkitterError` if that
    cannot be, or if another process is about to run or change the job.
    """
    spec = folder.read()
    async with live_frontier(folder) as live:
        if live is not None:
            yield live, True
            return
    if spec.frontier.startswith("memory:"):
        raise UsageError(
            f"job {folder.job!r} was kept in memory and is not being run",
            remedy="there is nothing left of it",
        )
    shared = _shared_frontier(spec)
    if shared is not None:
        await shared.open()
        try:
            yield shared, False
        finally:
            await shared.close()
        return
    lock = folder.lock()
    lock.acquire()
    try:
        frontier = make_frontier(spec.frontier, Assembly(spec).frontier_context())
        await frontier.open()
        try:
            yield frontier, False
        finally:
            await frontier.close()
    finally:
        lock.release()


def _shared_frontier(spec: JobSpec) -> Frontier | None:
    """Return the frontier of a job, not yet open, if every process may open it by itself."""
    if spec.frontier.partition(":")[0] in {"memory", "sqlite"}:  # known without loading the spider
        return None
    frontier = make_frontier(spec.frontier, Assembly(spec).frontier_context())
    return frontier if frontier.shared else None


async def job_status(folder: JobFolder) -> JobStatus:
    """Look at a job without changing anything of it."""
    spec = folder.read()
    counts, live = await _live_status(folder), True
    if counts is None:
        counts, live = await _idle_status(folder, spec), False
    return JobStatus(
        job=folder.job,
        state=_state_of(counts, live=live),
        live=live,
        spider=spec.spider,
        outputs=[shown(target) for target in spec.outputs],
        frontier=spec.frontier,
        counts=counts,
    )


async def dead_letters(folder: JobFolder, after: int, limit: int) -> list[DeadLetter]:
    """List requests given up, by id, without changing anything of the job."""
    spec = folder.read()
    async with live_frontier(folder) as live:
        if live is not None:
            with contextlib.suppress(OwnerGone):  # it has just ended
                return await live.dead_letters(after, limit)
    path = _file_of(folder, spec)
    if path is not None:
        return read_dead_letters(path, after, limit)
    async with open_frontier(folder) as (frontier, _):
        return await frontier.dead_letters(after, limit)


async def _live_status(folder: JobFolder) -> FrontierStatus | None:
    async with live_frontier(folder) as live:
        if live is not None:
            with contextlib.suppress(OwnerGone):  # it has just ended
                return await live.status()
    return None


async def _idle_status(folder: JobFolder, spec: JobSpec) -> FrontierStatus | None:
    if spec.frontier.startswith("memory:"):
        return None
    path = _file_of(folder, spec)
    if path is not None:
        return read_status(path)
    async with open_frontier(folder) as (frontier, _):
        return await frontier.status()


def _file_of(folder: JobFolder, spec: JobSpec) -> Path | None:
    """Return the file of an embedded frontier: it can be read without opening the job."""
    return file_of(spec.frontier, folder.path) if spec.frontier.startswith("sqlite:") else None


def _state_of(counts: FrontierStatus | None, *, live: bool) -> str:
    if counts is None:
        return "new"
    if live or counts.state in {JobState.FINISHED, JobState.PAUSED}:
        return counts.state.value
    return "stopped"
