"""Crawl: the life of one run of a job: open, work, stop, merge the outputs, sum up."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from skitter.engine.assembly import Assembly, worker_name
from skitter.engine.child import ChildOrder
from skitter.engine.fleet import Fleet
from skitter.engine.job import JobSpec
from skitter.engine.worker import Worker
from skitter.errors import SkitterError, UsageError
from skitter.frontier.base import Frontier, FrontierStatus, JobInfo, JobState
from skitter.frontier.registry import make_frontier
from skitter.frontier.server import FrontierServer
from skitter.store.base import Output, OutputContext
from skitter.store.outputs import open_output

log = logging.getLogger("skitter.engine")

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
    status: FrontierStatus
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

    ``replace_outputs``
        Whether outputs that this job did not write itself may be replaced.
    """

    def __init__(
        self,
        spec: JobSpec,
        *,
        watcher: Watcher | None = None,
        replace_outputs: bool = False,
        log_level: str = "info",
        log_format: str = "text",
    ) -> None:
        self.spec = spec
        self._assembly = Assembly(spec)
        self._watcher = watcher
        self._replace = replace_outputs
        self._logging = (log_level, log_format)
        self._outputs: list[Output] = [open_output(target) for target in spec.outputs]
        self._frontier: Frontier | None = None
        self._fleet: Fleet | None = None
        self._running: list[Worker] = []
        self._stop_reason = ""
        self._errands: set[asyncio.Task[Any]] = set()

    # --- life ------------------------------------------------------------------------------------------

    async def run(self) -> RunResult:
        """Run the job until it is finished, stopped or failed; the outputs hold what was committed.

        Raises :class:`~skitter.errors.SkitterError` if it cannot begin or if it fails in its course; what
        was committed is merged into the outputs all the same, and the same call resumes.
        """
        began = time.monotonic()
        folder = self._assembly.folder
        folder.begin(self.spec)
        await self._check_outputs()
        frontier = make_frontier(self.spec.frontier, self._assembly.frontier_context())
        info = await frontier.open()
        self._frontier = frontier
        server = FrontierServer(frontier, info, folder.socket)
        try:
            await server.start()
            before = await frontier.status()
            if before.state is JobState.RUNNING:
                await self._work(frontier, info, began)
            return await self._result(before, began)
        finally:
            await server.close()
            try:
                await self._merge(frontier)
            finally:
                await frontier.close()

    async def _work(self, frontier: Frontier, info: JobInfo, began: float) -> None:
        watching = asyncio.create_task(self._watch(began))
        try:
            if self.spec.workers == 1:
                await self._assembly.work(frontier, info, worker_name(), self._running)
            else:
                level, form = self._logging
                order = ChildOrder(self.spec, str(self._assembly.folder.socket), level, form)
                self._fleet = Fleet(order, self.spec.workers)
                await self._fleet.run()
        finally:
            watching.cancel()
            for errand in self._errands:
                errand.cancel()
            await asyncio.gather(watching, *self._errands, return_exceptions=True)

    async def _result(self, before: FrontierStatus, began: float) -> RunResult:
        assert self._frontier is not None
        status = await self._frontier.status()
        return RunResult(
            job=self.spec.job,
            state=status.state,
            reason="" if status.state is JobState.FINISHED else self._reason(status),
            seconds=time.monotonic() - began,
            status=status,
            outputs=self.spec.outputs,
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
        for worker in self._running:
            worker.drain()
        if self._frontier is not None:
            self._undertake(self._frontier.control(JobState.STOPPING))
        if self._fleet is not None:
            self._undertake(self._fleet.stop())

    def kill(self) -> None:
        """Stop at once: end the workers where they are. A rerun resumes."""
        for task in asyncio.all_tasks():
            task.cancel()

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the workers; empty if the only worker is this process."""
        return [] if self._fleet is None else self._fleet.pids

    def _undertake(self, errand: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(errand)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    # --- watching --------------------------------------------------------------------------------------

    async def _watch(self, began: float) -> None:
        """Show progress, pass items on, and mind the time limit."""
        assert self._frontier is not None
        limit = self._assembly.settings.time_limit
        while True:
            elapsed = time.monotonic() - began
            if limit is not None and elapsed >= limit:
                self.stop(f"time limit of {limit:g} s")
            with contextlib.suppress(SkitterError):  # the workers meet the same error, and tell it
                if self._watcher is not None:
                    workers = 1 if self._fleet is None else len(self._fleet.pids)
                    self._watcher(Progress(await self._frontier.status(), elapsed, workers))
                await self._emit(self._frontier)
            pause = _LOOK_EVERY if limit is None else min(_LOOK_EVERY, max(0.01, limit - elapsed))
            await asyncio.sleep(pause)

    # --- outputs ---------------------------------------------------------------------------------------

    def _output_context(self) -> OutputContext:
        folder = self._assembly.folder
        return OutputContext(self.spec.job, str(folder.path), self._assembly.settings.durability)

    async def _check_outputs(self) -> None:
        context = self._output_context()
        for output in self._outputs:
            await output.check(context)
            if not self._replace and await output.occupied(context):
                raise UsageError(
                    f"{output.target} holds something that job {self.spec.job!r} did not write",
                    remedy="choose another output, move it away, or start anew with --fresh, which replaces it",
                )
            if self._replace:
                await output.clear(context)

    async def _emit(self, frontier: Frontier) -> None:
        ranges = await frontier.outputs() if self._outputs else {}
        for output in self._outputs:
            if not await output.emit(self._output_context(), ranges):
                self.stop(f"nobody reads {output.target} any more")

    async def _merge(self, frontier: Frontier) -> None:
        if self._outputs:
            ranges = await frontier.outputs()
            for output in self._outputs:
                await output.emit(self._output_context(), ranges)
                await output.merge(self._output_context(), ranges)
