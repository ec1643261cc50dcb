"""Crawl: the life of one run of a job: open, work, stop, merge the outputs, sum up."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from skitter.errors import SkitterError, UsageError
from skitter.frontier.contract import Frontier
from skitter.frontier.records import FrontierStatus, JobInfo, JobState
from skitter.frontier.registry import make_frontier
from skitter.frontier.rpc.server import FrontierServer
from skitter.frontier.workers import unserved
from skitter.run.builder import JobBuilder, RunOverrides, WorkerSet, worker_name
from skitter.run.job import JobSpec
from skitter.run.outputs import JobOutputs
from skitter.run.supervisor import Supervisor
from skitter.run.worker_process import WorkerCommand
from skitter.secrets import shown_url
from skitter.spider import Spider
from skitter.store.committed import split_by_presence
from skitter.store.contract import parts_folder

log = logging.getLogger("skitter.crawl")

_LOOK_EVERY = 0.5
"""Seconds between two looks at the job: progress, outputs that are passed on, the time limit."""


class RunResult(msgspec.Struct, kw_only=True):
    """How one run of a job ended."""

    job: str
    state: JobState
    reason: str
    """Why it stopped: a limit, an interruption, a failure; empty if it is finished."""
    seconds: float
    """Of this run."""
    before: FrontierStatus
    """Reading at the beginning of this run."""
    status: FrontierStatus
    """Reading at its end."""
    outputs: list[str]
    already_finished: bool = False
    """Nothing was left to do when the run began."""

    @property
    def counters(self) -> dict[str, int]:
        """Counters of the job over all its runs."""
        return self.status.counters


class Progress(msgspec.Struct, frozen=True):
    """One look at a running job."""

    status: FrontierStatus
    seconds: float
    """Since this run began."""
    workers: int


Watcher = Callable[[Progress], None]


class Crawl:
    """One run of a job on this machine, with the frontier and all workers it has here.

    ``fresh``
        Start anew: forget all that the job has kept, and replace its outputs, also those that it did not
        write itself. Nothing is touched before all else about the run is known to be right.
    ``recrawl``
        If the job is finished, begin it again: its seeds are loaded anew, and pages whose visit has run out
        (``visited_ttl``; without one all pages) are fetched again. Each visit gives its items anew.
    ``resume``
        End a pause; without it a paused job stays paused and the run ends at once.
    ``spider_class``
        The spider, if this process has it at hand; worker processes find it by its name in any case.
    ``equipment``
        What this process adds. Hooks and objects need ``workers=1``.
    """

    def __init__(
        self,
        spec: JobSpec,
        *,
        watcher: Watcher | None = None,
        fresh: bool = False,
        recrawl: bool = False,
        resume: bool = False,
        log_level: str = "info",
        log_format: str = "text",
        spider_class: type[Spider] | None = None,
        equipment: RunOverrides | None = None,
    ) -> None:
        self.spec = spec
        self._assembly = JobBuilder(spec, spider_class, equipment)
        self._watcher = watcher
        self._fresh = fresh
        self._recrawl = recrawl
        self._resume = resume
        self._logging = (log_level, log_format)
        self._outputs = JobOutputs(spec, self._assembly)
        self._frontier: Frontier | None = None
        self._fleet: Supervisor | None = None
        self._at_work = WorkerSet()
        self._stop_reason = ""
        self.has_begun = False
        """Whether the run came as far as its work: an error from then on is none of the input."""
        self._unserved = UnservedQueues()
        self._errands: set[asyncio.Task[Any]] = set()

    # --- life ------------------------------------------------------------------------------------------

    async def run(self) -> RunResult:
        """Run the job until it is finished, stopped or failed; the outputs hold what was committed.

        Raises :class:`~skitter.errors.SkitterError` if it cannot begin or if it fails in its course; what
        was committed is merged into the outputs all the same, and the same call resumes.
        """
        lock = self._assembly.folder.lock()
        await asyncio.to_thread(lock.acquire)
        try:
            return await self._run()
        finally:
            await asyncio.to_thread(lock.release)

    async def _run(self) -> RunResult:
        began = time.monotonic()
        folder = self._assembly.folder
        frontier = make_frontier(self.spec.frontier, self._assembly.frontier_context())
        if self._assembly.settings.seed_keys and frontier.seed_keys is None:
            raise UsageError(
                f"frontier {shown_url(self.spec.frontier)} has no seed keys",
                remedy="they need a Redis frontier; or `skitter add`",
            )
        await self._outputs.check(fresh=self._fresh)
        if self._fresh:
            await asyncio.to_thread(folder.empty)
            await frontier.erase()
            await self._outputs.clear()
        else:
            await asyncio.to_thread(folder.check, self.spec)
            await asyncio.to_thread(self._outputs.warn_of_late_ones)
        info = await frontier.open()
        socket = await asyncio.to_thread(lambda: folder.socket)  # looks at the disk
        server = None if frontier.shared else FrontierServer(frontier, info, socket)
        try:
            await asyncio.to_thread(
                folder.write, self.spec
            )  # not before: a run that cannot begin leaves no job
            if server is not None:
                await server.start()
            before = await self._begin(frontier, info)
            if before.state is JobState.RUNNING and not self._stop_reason:
                await self._work(frontier, info, began)
                if self._assembly.settings.retry_failed_at_end and await self._replay(frontier):
                    await self._work(frontier, info, began)
            return await self._result(frontier, before, began)
        finally:
            if server is not None:
                await server.close()
            try:
                await self._merge(frontier)
            finally:
                await frontier.close()

    async def _begin(self, frontier: Frontier, info: JobInfo) -> FrontierStatus:
        status = await frontier.status()
        # A stop that was asked for ends with the run; a shared frontier does not notice when that is.
        if self._resume or (frontier.shared and status.state is JobState.STOPPING):
            await frontier.control.set_state(JobState.RUNNING)
            status = await frontier.status()
        if self._recrawl and await frontier.control.recrawl():
            status = await frontier.status()
        if entries := self._assembly.first_entries(info):
            await frontier.add(entries)
            status = await frontier.status()
        return status

    async def _replay(self, frontier: Frontier) -> bool:
        """Give what was given up another chance if all else is done; returns whether there is anything."""
        status = await frontier.status()
        return (
            status.state is JobState.FINISHED
            and status.failed > 0
            and not self._stop_reason
            and await frontier.dead_letters.replay() > 0
        )

    async def _work(self, frontier: Frontier, info: JobInfo, began: float) -> None:
        self.has_begun = True
        self._frontier = frontier
        watching = asyncio.create_task(self._watch(frontier, began))
        try:
            teams = self.spec.teams()
            if len(teams) == 1:
                await self._assembly.work(frontier, info, worker_name(), self._at_work, teams[0])
            else:
                level, form = self._logging
                orders = [
                    WorkerCommand(self.spec, os.getpid(), frontier.shared, level, form, queues)
                    for queues in teams
                ]
                abandon = frontier.abandon if frontier.shared else None
                self._fleet = Supervisor(orders, abandon)
                await self._fleet.run()
        finally:
            self._frontier = self._fleet = None  # nothing is left to be stopped
            watching.cancel()
            for errand in self._errands:
                errand.cancel()
            await asyncio.gather(watching, *self._errands, return_exceptions=True)

    async def _result(self, frontier: Frontier, before: FrontierStatus, began: float) -> RunResult:
        status = await frontier.status()
        return RunResult(
            job=self.spec.job,
            state=status.state,
            reason="" if status.state is JobState.FINISHED else self._reason(status),
            seconds=time.monotonic() - began,
            before=before,
            status=status,
            outputs=[shown_url(target) for target in self._outputs.targets],
            already_finished=before.state is JobState.FINISHED,
        )

    def _reason(self, status: FrontierStatus) -> str:
        if status.reason:
            return f"limit reached: {status.reason}"
        return self._stop_reason or ("paused" if status.state is JobState.PAUSED else "stopped")

    # --- stopping --------------------------------------------------------------------------------------

    def stop(self, reason: str) -> None:
        """Stop gracefully: lease nothing more, finish and commit what is in hand, hand back the rest."""
        if self._stop_reason:
            return
        self._stop_reason = reason
        self._at_work.drain()
        # On a shared frontier it is a stop of this machine alone.
        if self._frontier is not None and not self._frontier.shared:
            self._undertake(self._frontier.control.set_state(JobState.STOPPING))
        if self._fleet is not None:
            self._undertake(self._fleet.stop())

    def kill(self) -> None:
        """End the worker processes where they are. For a process that is itself about to end at once.

        What was committed is kept, the outputs are not merged; a rerun resumes and merges them.
        """
        for pid in self.worker_pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def reading(self) -> FrontierStatus | None:
        """Return one consistent reading of the job while it is at work; otherwise ``None``."""
        return None if self._frontier is None else await self._frontier.status()

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the workers; empty if the only worker is this process."""
        return [] if self._fleet is None else self._fleet.pids

    def _undertake(self, errand: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(errand)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    # --- watching --------------------------------------------------------------------------------------

    async def _watch(self, frontier: Frontier, began: float) -> None:
        """Show progress, pass items on, and mind the time limit."""
        limit = self._assembly.settings.time_limit
        while True:
            elapsed = time.monotonic() - began
            if limit is not None and elapsed >= limit:
                self.stop(f"time limit of {limit:g} s")
            await self._look(frontier, elapsed)
            pause = _LOOK_EVERY if limit is None else min(_LOOK_EVERY, max(0.01, limit - elapsed))
            await asyncio.sleep(pause)

    async def _look(self, frontier: Frontier, elapsed: float) -> None:
        try:
            if self._watcher is not None:
                workers = 1 if self._fleet is None else len(self._fleet.pids)
                status = await frontier.status()
                self._watcher(Progress(status, elapsed, workers))
                await self._unserved.look(frontier, status, elapsed)
            await self._emit(frontier)
        except SkitterError:
            pass  # the workers meet the same error, and tell it
        except Exception:
            log.exception("the progress cannot be shown")  # no reason to end the crawl or its time limit

    # --- outputs ---------------------------------------------------------------------------------------

    async def _ranges(self, frontier: Frontier) -> dict[str, list[tuple[int, int]]]:
        """Return what is committed of the part files on this machine."""
        ranges = await frontier.reports.outputs()
        if not frontier.shared:
            return ranges  # all of them are here, or something is wrong
        parts = parts_folder(str(self._assembly.folder.path))
        here, _ = await asyncio.to_thread(split_by_presence, ranges, [parts])
        return here

    async def _emit(self, frontier: Frontier) -> None:
        await self._outputs.look_for_more()
        ranges = await self._ranges(frontier) if self._outputs else {}
        for target in await self._outputs.emit(ranges):
            self.stop(f"nobody reads {target} any more")

    async def _merge(self, frontier: Frontier) -> None:
        await self._outputs.look_for_more()
        if self._outputs:
            await self._outputs.merge(await self._ranges(frontier))


_PATIENCE = 10.0
"""Seconds for which a worker may be on its way: one that died is replaced, another machine may come later."""


class UnservedQueues:
    """Watches a job for its owner. Each queue is told of once."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._told: set[str] = set()

    async def look(self, frontier: Frontier, status: FrontierStatus, now: float) -> None:
        """Look at a reading of the job; ``now`` in seconds, from any beginning."""
        if status.state is not JobState.RUNNING or not any(status.queues.values()):
            return
        waiting = unserved(status.queues, await frontier.reports.workers())
        self._since = {queue: self._since.get(queue, now) for queue in waiting}
        for queue, since in self._since.items():
            if now - since >= _PATIENCE and queue not in self._told:
                self._told.add(queue)
                log.warning(
                    "%d queued in queue %s, which no worker serves: the job waits for one (--queue %s)",
                    waiting[queue],
                    queue,
                    queue,
                )
