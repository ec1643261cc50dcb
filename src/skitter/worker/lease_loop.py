"""LeaseLoop: the tasks that every worker runs: leasing, committing, renewing, reporting and sending heartbeats."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Sequence
from typing import Any

from skitter.errors import SkitterError, counted
from skitter.frontier.contract import Frontier
from skitter.frontier.records import JobInfo, JobState
from skitter.worker.committer import Committer
from skitter.worker.crawl_control import CrawlControl
from skitter.worker.heartbeat import Heartbeat, WorkerReporter
from skitter.worker.leaser import Leaser

log = logging.getLogger("skitter.crawl")


class LeaseLoop:
    """Runs the parts of a worker that do not depend on how a leased request is processed.

    Call :meth:`release` at the end, even if :meth:`run` failed or was never called. Then close the resources of the
    requests in progress, and call :meth:`leave` last.
    """

    def __init__(
        self,
        name: str,
        frontier: Frontier,
        info: JobInfo,
        control: CrawlControl,
        leaser: Leaser,
        committer: Committer,
        reporter: WorkerReporter,
    ) -> None:
        self._frontier = frontier
        self._control = control
        self._leaser = leaser
        self._committer = committer
        self._reporter = reporter
        liveness = frontier.liveness
        self._heartbeat = (
            None
            if liveness is None
            else Heartbeat(name, liveness, lambda workers: control.start(self._reclaim_leases(workers)))
        )
        self._renew_interval = info.lease_seconds / 3

    async def run(self, *others: Coroutine[Any, Any, Any]) -> JobState:
        """Work until the job is finished or stopped. Return its state. ``others``: tasks to run concurrently.

        Raises :class:`~skitter.errors.CrawlFailed` if one of the tasks or a store ended the crawl, and this error or
        :class:`~skitter.errors.FrontierError` if the frontier did.
        """
        control = self._control
        try:
            if self._heartbeat is not None:
                await self._heartbeat.start()
            leasing = control.start_leasing(self._leaser.run())
            committing = control.start(self._committer.run())
            control.start(self._leaser.renew_periodically(self._renew_interval))
            for other in others:
                control.start(other)
            control.start(self._reporter.run())
            state = await leasing
            self._committer.close()
            # The result of the last commit may come after the frontier has reported the end.
            await asyncio.wait([committing])
            return await control.state_after_stop() or state
        except asyncio.CancelledError:
            control.raise_failure()
            raise

    async def release(self) -> None:
        """Cancel everything in progress, and release its leases."""
        await self._control.cancel_tasks()
        with contextlib.suppress(SkitterError):  # the frontier may be unreachable; the leases then expire
            await self._leaser.release_all()

    async def leave(self) -> None:
        """Stop the heartbeats, and report that the worker has ended."""
        if self._heartbeat is not None:
            await self._heartbeat.stop()
        await self._reporter.leave()

    async def _reclaim_leases(self, workers: Sequence[str]) -> None:
        for worker in workers:
            taken = await self._frontier.abandon(worker)
            log.warning("worker %s is silent: reclaimed %s", worker, counted(taken, "lease"))
        self._leaser.wake()
