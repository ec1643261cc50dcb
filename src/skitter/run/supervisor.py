"""Supervisor: the worker processes of one job on this machine. A worker that dies is replaced."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from skitter.errors import CrawlFailed, SkitterError
from skitter.run.worker_process import WorkerCommand, WorkerProcess
from skitter.worker import DRAIN_SECONDS

log = logging.getLogger("skitter.crawl")

_FAILED_STARTS = 5
"""So many workers in a row that died before they had work, and something is wrong with starting them. Deaths at work
are bounded by the frontier: a request that was lost too often becomes a dead letter."""
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 60.0
"""Seconds before a place is filled again whose workers die at their start; doubled each time, with jitter."""


class Supervisor:
    """Starts, watches, replaces and ends worker processes.

    A place whose workers die at their start is filled again after growing pauses, for as long as any other worker is
    there to go on with the job.
    """

    def __init__(
        self, orders: Sequence[WorkerCommand], abandon: Callable[[str], Awaitable[object]] | None = None
    ) -> None:
        self._abandon = abandon
        """Takes back what a dead worker held, where no connection to this process tells of its death."""
        self._orders = [msgspec.json.encode(order) for order in orders]
        """One for each worker."""
        self._workers: dict[int, WorkerProcess] = {}
        """By place."""
        self._stopping = False
        self._is_over = asyncio.Event()
        """Set when no place need be filled any more that could not be filled before."""
        self._some_ended = False
        """Whether a worker has found that the job is finished or stopped."""
        self._failing: dict[int, int] = {}
        """Failed starts in a row, by place."""
        self._missing: set[int] = set()
        """Places whose last worker died at its start."""
        self._failed_starts = 0
        """In a row, over all places."""
        self._is_short = False
        """Whether it was said that workers are missing."""

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers alive."""
        return [worker.pid for worker in self._workers.values() if worker.is_alive]

    async def run(self) -> None:
        """Keep the workers running until each has ended by itself.

        Raises :class:`~skitter.errors.CrawlFailed` if a worker says that the crawl has failed, or if
        workers die as soon as they are started and none is left.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for place, order in enumerate(self._orders):
                    group.create_task(self._keep_one(place, order))
        except* CrawlFailed as failures:
            raise failures.exceptions[0] from None
        finally:
            await self.kill()

    async def _keep_one(self, place: int, order: bytes) -> None:
        while not self._stopping:
            worker = await self._start(place)
            end = await worker.work(order)
            if end is not None:
                if end.failure:
                    raise CrawlFailed(end.failure, remedy=end.remedy, is_usage=end.is_usage)
                self._some_ended = True
                break
            if self._abandon is not None:
                with contextlib.suppress(SkitterError):  # the other workers meet the same error, and tell it
                    await self._abandon(worker.name)
            if self._some_ended and not worker.had_work and not self._ready:
                break
            self._count_death(place, worker)
            if await self._is_over_after_pause(place):
                break
        if not self._ready:  # whoever waits for a better start is not needed any more
            self._is_over.set()

    async def _start(self, place: int) -> WorkerProcess:
        worker = self._workers[place] = await WorkerProcess.start(lambda: self._welcome(place))
        if self._stopping:  # while it was being started
            self._tell_to_stop(worker)
        return worker

    @property
    def _ready(self) -> int:
        """How many workers there are to go on with the job."""
        return sum(worker.is_ready for worker in self._workers.values())

    def _welcome(self, place: int) -> None:
        """Note that a worker asks for work."""
        self._missing.discard(place)
        if self._is_short and not self._missing:
            self._is_short = False
            log.warning("all %d workers are at work again", len(self._orders))

    def _count_death(self, place: int, worker: WorkerProcess) -> None:
        if worker.had_work:
            self._failed_starts = 0
            self._failing.pop(place, None)
        else:
            self._missing.add(place)
            self._failed_starts += 1
            self._failing[place] = self._failing.get(place, 0) + 1
        told = log.debug if self._is_short and not worker.had_work else log.warning
        told("a worker died (status %s) after %.1f s and is replaced", worker.status, worker.age)
        if self._failed_starts >= _FAILED_STARTS:
            self._go_on_without(worker.status)

    def _go_on_without(self, status: int | None) -> None:
        """Say once that workers are missing. Raises CrawlFailed if all are."""
        if not self._ready:
            raise CrawlFailed(
                f"workers die as soon as they start (status {status})",
                remedy="see the log above for the reason",
            )
        if not self._is_short:
            self._is_short = True
            log.warning(
                "workers die as soon as they start (status %s): the crawl goes on with %d of %d,"
                " the others are tried again after growing pauses",
                status, self._ready, len(self._orders),
            )  # fmt: skip

    async def _is_over_after_pause(self, place: int) -> bool:
        """Wait before a place is filled again that could not be filled; tell whether it need not be any more."""
        failed = self._failing.get(place, 0)
        if failed > 1:
            seconds = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(failed - 2, 10))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_over.wait(), seconds * random.uniform(0.5, 1.0))
        return failed > 0 and self._is_over.is_set()

    async def stop(self) -> None:
        """Replace nobody any more; end what has not drained in good time."""
        self._stopping = True
        self._is_over.set()
        for worker in self._workers.values():
            self._tell_to_stop(worker)
        await asyncio.sleep(DRAIN_SECONDS + 5.0)
        await self.kill()

    def _tell_to_stop(self, worker: WorkerProcess) -> None:
        if self._abandon is not None:  # no frontier of ours tells it
            worker.terminate()

    async def kill(self) -> None:
        """End all workers at once; their leases go back when their connections close."""
        for worker in list(self._workers.values()):
            await worker.kill()
