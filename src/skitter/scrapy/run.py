"""ScrapyRun: runs a job in one Scrapy process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from skitter.errors import FrontierError, SkitterError, UsageError
from skitter.frontier.records import JobState
from skitter.frontier.registry import make_frontier
from skitter.frontier.rpc.client import OwnerGone, RemoteFrontier, remote_frontier
from skitter.frontier.workers import worker_name
from skitter.run.builder import JobBuilder, RunOverrides
from skitter.run.crawl import Crawl
from skitter.run.job import JobFolder
from skitter.run.job_access import job_status
from skitter.scrapy.job import RunningScrapyJob, public_arguments
from skitter.scrapy.worker import ScrapyWorker

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from skitter.run.job import JobSpec
    from skitter.scrapy.leases import ScrapyLeases

log = logging.getLogger("skitter.scrapy")

_IN_USE: set[str] = set()
"""Folders of jobs and feeds that the crawls of this process use. A script can run several crawls at the same time."""
_LOCK_POLL = 0.1
"""Seconds between two checks whether the process that writes the outputs has ended."""


class ScrapyRun:
    """Runs the job in this process until it is finished or stopped.

    The first process in a folder owns the job and writes the outputs. Later processes join it. If the owner ends early, one
    of them becomes the owner, so that the outputs are complete when the last process has ended.
    """

    def __init__(
        self,
        spec: JobSpec,
        leases: ScrapyLeases,
        *,
        fresh: bool = False,
        files: Iterable[Path] = (),
        replaced: Iterable[Path] = (),
    ) -> None:
        """``fresh``: start the job again; ``files``: the feeds; ``replaced``: those that a new job replaces."""
        self._spec = spec
        self._files = files
        self._replaced = replaced
        self._folder = JobFolder(spec.job, spec.home)
        self._fresh = fresh
        self._overrides = RunOverrides(make_worker=partial(ScrapyWorker, leases))
        self._crawl: Crawl | None = None
        self._joined: JobBuilder | None = None
        """The parts of the job in this process, if another process owns the job."""
        self._stop_reason = ""

    async def run(self) -> JobState:
        """Work until the job is finished or stopped. Return its state.

        Raises :class:`~skitter.errors.SkitterError` if the run cannot start, or if it fails.
        """
        uses = self._resources()
        _IN_USE.update(uses)
        try:
            return await self._run()
        finally:
            _IN_USE.difference_update(uses)

    def _resources(self) -> set[str]:
        """Return the folder of the job and its feeds. Raises :class:`UsageError` if another crawl of this process uses them."""
        folder = str(self._folder.path.absolute())
        if folder in _IN_USE:
            raise UsageError(
                f"another crawl of this process runs job {self._spec.job!r}: their requests would be taken for the same crawl",
                remedy="give each crawl its own job by SKITTER_JOB, with attributes of its spider, such as "
                '"%(name)s-%(category)s" for an argument category',
                field="SKITTER_JOB",
            )
        files = {str(path.absolute()) for path in self._files}
        for path in files & _IN_USE:
            raise UsageError(
                f"another crawl of this process writes the feed {path}",
                remedy='give each crawl its own file by attributes of its spider, such as "%(name)s.jsonl"',
                field="FEEDS",
            )
        return {folder, *files}

    async def _run(self) -> JobState:
        if not self._fresh:
            await asyncio.to_thread(self._check_arguments)
        while True:
            if not await asyncio.to_thread(self._folder.is_being_run):
                try:
                    return await self._own()
                except FrontierError:
                    has_begun = self._crawl is not None and self._crawl.has_begun
                    if has_begun or not await asyncio.to_thread(self._folder.is_being_run):
                        raise
            try:
                state = await self._join()
            except OwnerGone:
                if self._stop_reason:
                    return JobState.STOPPED
                await asyncio.sleep(_LOCK_POLL)
                continue
            if self._stop_reason or state is not JobState.FINISHED:
                return state
            if await self._is_written():
                return state

    def stop(self, reason: str) -> None:
        """Stop the work of this process gracefully."""
        self._stop_reason = self._stop_reason or reason
        if self._crawl is not None:
            self._crawl.stop(reason)
        if self._joined is not None:
            self._joined.drain()

    def _check_arguments(self) -> None:
        """Check that the spider has the arguments of the job. Otherwise, its start requests would be taken for known ones."""
        if not self._folder.exists():
            return
        before, now = (public_arguments(spec) for spec in (self._folder.read(), self._spec))
        if before != now:
            given = " ".join(f"-a {name}={value}" for name, value in before.items()) or "none"
            raise UsageError(
                f"job {self._spec.job!r} was started with other arguments of the spider: {given}",
                remedy="repeat them to continue it. To crawl for other arguments, give each job its own name by SKITTER_JOB, "
                'such as "%(name)s-%(category)s" for an argument category',
                field="SKITTER_JOB",
            )

    def _remove_replaced(self) -> None:
        if not self._folder.exists():
            for path in self._replaced:
                path.unlink(missing_ok=True)

    async def _own(self) -> JobState:
        await asyncio.to_thread(self._remove_replaced)
        self._crawl = Crawl(
            self._spec,
            spider_class=RunningScrapyJob,
            overrides=self._overrides,
            fresh=self._fresh,
            resume=True,
        )
        self._fresh = False
        if self._stop_reason:
            self._crawl.stop(self._stop_reason)
        result = await self._crawl.run()
        if result.already_finished and result.status.added == result.before.added:
            log.warning(
                "job %s is finished: nothing is left to crawl. To crawl it again from the beginning, set SKITTER_FRESH=1; "
                "to crawl something else, such as another argument of the spider, set another SKITTER_JOB",
                result.job,
            )
        elif result.reason:
            log.info("job %s: %s", result.job, result.reason)
        if failed := result.status.failed:
            log.warning("failed requests: %d; `skitter failures list %s` lists them", failed, result.job)
        return result.state

    async def _join(self) -> JobState:
        """Work alongside the process that owns the job. Raises :class:`OwnerGone` if the owner ends while it is needed."""
        spec = self._spec
        builder = self._joined = JobBuilder(spec, RunningScrapyJob, self._overrides)
        if self._stop_reason:
            builder.drain()
        await asyncio.to_thread(builder.folder.adopt, builder.spec)
        name = await asyncio.to_thread(worker_name)
        frontier = make_frontier(spec.frontier, builder.frontier_context(joining=True))
        if not frontier.shared:
            socket = await asyncio.to_thread(lambda: builder.folder.socket)
            frontier = remote_frontier(socket, name)
        info = await frontier.open()
        try:
            log.info("joined job %s, which another process owns", spec.job)
            working = asyncio.ensure_future(builder.work(frontier, info, name))
            return await (
                self._until_owner_ends(frontier, working) if isinstance(frontier, RemoteFrontier) else working
            )
        finally:
            with contextlib.suppress(SkitterError):
                await frontier.close()

    @staticmethod
    async def _until_owner_ends(frontier: RemoteFrontier, working: asyncio.Future[JobState]) -> JobState:
        ended = asyncio.ensure_future(frontier.wait_closed())
        pending: set[asyncio.Future[Any]] = {working, ended}
        await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if working.done():
            return working.result()
        working.cancel()  # its leases are lost, and the next owner leases their requests again
        with contextlib.suppress(asyncio.CancelledError, SkitterError):
            await working
        raise OwnerGone("the owner of the job has ended")

    async def _is_written(self) -> bool:
        """Return whether the outputs contain all items, once the process that writes them has ended."""
        while await asyncio.to_thread(self._folder.is_being_run):
            if self._stop_reason:
                return True
            await asyncio.sleep(_LOCK_POLL)
        status = await job_status(self._folder)
        return status.state == JobState.FINISHED and not status.unwritten
