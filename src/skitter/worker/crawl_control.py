"""CrawlControl: stops or fails the crawl on behalf of hooks, callbacks and background tasks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from skitter._utils.concurrency import cancel_and_wait
from skitter._utils.notes import NOTE_TTL, STOP_REASON
from skitter.errors import CrawlFailed, SkitterError, is_usage
from skitter.frontier.contract import Frontier
from skitter.frontier.records import JobState
from skitter.worker.callbacks import describe_internal
from skitter.worker.hooks import HookAction
from skitter.worker.inflight import Inflight

log = logging.getLogger("skitter.crawl")
Result = TypeVar("Result")


class CrawlControl:
    """The actions by which a component of a worker affects the whole crawl."""

    def __init__(self, frontier: Frontier, inflight: Inflight) -> None:
        self._frontier = frontier
        self._inflight = inflight
        self._tasks: set[asyncio.Task[Any]] = set()
        self._leasing: asyncio.Task[JobState] | None = None
        self._stopping: asyncio.Future[JobState] | None = None
        self._failure: CrawlFailed | None = None

    def apply(self, action: HookAction, source: str) -> None:
        """Execute ``STOP`` or ``FAIL``. ``source`` names the hook and its page, for the log."""
        if action is HookAction.STOP:
            self.stop(source)
        elif action is HookAction.FAIL:
            remedy = "see the log for the reason; run the same command again to resume"
            self.fail(CrawlFailed(f"{source} failed the crawl", remedy=remedy))

    def stop(self, source: str) -> None:
        """Stop the crawl gracefully, on all workers."""
        log.info("stopping the crawl: requested by %s", source)
        if self._stopping is None:
            self._stopping = asyncio.ensure_future(self._stop(source))
        self._inflight.drain()  # the frontier notifies the other workers

    async def _stop(self, source: str) -> JobState:
        await self._frontier.notes.put(STOP_REASON, source.encode(errors="replace"), NOTE_TTL)
        return await self._frontier.control.set_state(JobState.STOPPING)

    def fail(self, error: CrawlFailed) -> None:
        """End the run of this worker with an error. Only the first error is raised."""
        if self._failure is None:
            self._failure = error
        if self._leasing is not None:
            self._leasing.cancel()

    async def pause_slot(self, slot: str, seconds: float) -> None:
        """Pause a slot for some seconds, for all workers."""
        await self._frontier.control.pause_slot(slot, seconds)

    # --- tasks -----------------------------------------------------------------------------------------

    def start_leasing(self, work: Coroutine[Any, Any, JobState]) -> asyncio.Task[JobState]:
        """Start the main loop of the worker. A failure cancels it."""
        self._leasing = asyncio.get_running_loop().create_task(work)
        if self._failure is not None:  # a background task has failed already
            self._leasing.cancel()
        return self._leasing

    def start(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Start a background task. It is cancelled at the end of the crawl; an error in it fails the crawl."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)
        return task

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        remedy = error.remedy if isinstance(error, SkitterError) else ""
        failure = CrawlFailed(
            str(error) if isinstance(error, SkitterError) else describe_internal(error),
            remedy=remedy or "run the same command again to resume",
            is_usage=is_usage(error),
        )
        failure.field = error.field if isinstance(error, SkitterError) else ""
        failure.__cause__ = error
        self.fail(failure)

    async def cancel_tasks(self) -> None:
        """Cancel all background tasks and wait until they have ended."""
        await cancel_and_wait(self._tasks)

    # --- results ---------------------------------------------------------------------------------------

    async def state_after_stop(self) -> JobState | None:
        """Return the state of the job after a stop was requested here; ``None`` without such a request."""
        return None if self._stopping is None else await self._stopping

    def raise_failure(self) -> None:
        """Raise the error that ended the crawl, if there is one."""
        if self._failure is not None:
            raise self._failure from self._failure.__cause__
