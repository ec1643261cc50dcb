"""Leaser: leases as many requests as the worker can process, and renews and releases the leases."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from skitter.errors import CrawlFailed, SkitterError
from skitter.frontier.contract import Frontier
from skitter.frontier.records import JobState, Lease, LeaseResult
from skitter.worker.callbacks import describe_internal
from skitter.worker.committer import Committer
from skitter.worker.inflight import Inflight, InflightRequest
from skitter.worker.page import Page

_POLL_INTERVAL = 0.1
"""Seconds between two status checks of the job while the worker cannot take leases, or the frontier grants none."""
_MIN_WAIT = 0.001
"""Minimum time in seconds between two calls for leases, regardless of the result."""


class LeaseProcessor(Protocol):
    """Processes leased requests."""

    async def process(self, request: InflightRequest) -> Page | None:
        """Return the page to commit; ``None``: release the lease.

        A cancelled call has no effect. Raises :class:`~skitter.errors.SkitterError` to end the worker.
        """

    def give_up(self, lease: Lease, error: BaseException) -> Page:
        """Return a failed page for a request whose processing raised an unhandled error, which is a bug in skitter."""


class Leaser:
    """The main loop of a worker: leases requests and starts their processing."""

    def __init__(
        self,
        worker: str,
        frontier: Frontier,
        inflight: Inflight,
        processor: LeaseProcessor,
        committer: Committer,
        on_result: Callable[[LeaseResult], Awaitable[None]],
        confirm_end: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        """``on_result`` is called with each result of the frontier, before any of its leases is processed.

        ``confirm_end`` is called whenever the frontier reports that the job is finished, and returns whether the worker may
        end; ``None``: it may.
        """
        self._worker = worker
        self._frontier = frontier
        self._inflight = inflight
        self._processor = processor
        self._committer = committer
        self._on_result = on_result
        self._confirm_end = confirm_end
        self._idle_since: float | None = None
        """Event loop time since which the worker has had capacity for more leases, but no slot was ready."""
        self._failure: SkitterError | None = None
        """Error that ends the worker. The leases are released."""

    async def run(self) -> JobState:
        """Lease until the job is finished, or until it is stopped and all leases have ended.

        Raises errors of a frontier or a store that concern the whole job and not a single request.
        """
        inflight = self._inflight
        inflight.leaser = asyncio.current_task()
        while True:
            if self._failure is not None:
                raise self._failure
            if returned := inflight.take_returned():
                await self._frontier.release(returned)
                inflight.release(returned)
            limit = inflight.free()
            asked_at = inflight.loop.time()
            result = await self._lease(limit)
            inflight.confirm_reports()
            await self._on_result(result)
            inflight.update_capacity(result.capacity)
            waited = 0.0 if self._idle_since is None else inflight.loop.time() - self._idle_since
            for lease in result.leases:
                request = InflightRequest(inflight, lease, asked_at, waited)
                inflight.add(lease, inflight.loop.create_task(self._process(request)))
            if len(result.leases) >= limit or result.ask_again <= 0:
                self._idle_since = None
            elif result.leases or self._idle_since is None:
                self._idle_since = inflight.loop.time()
            if result.state is JobState.STOPPING:
                inflight.drain()
            is_finished = result.state is JobState.FINISHED
            if (is_finished and await self._has_ended()) or (inflight.draining and not inflight.held):
                inflight.end_leasing()
                return result.state
            inflight.wants_more = not limit or len(result.leases) < limit
            if inflight.is_starved:
                inflight.commit_wakeup.set()
            await self._wait(limit, 0.0 if is_finished else result.ask_again)

    async def _has_ended(self) -> bool:
        return self._confirm_end is None or await self._confirm_end()

    def wake(self) -> None:
        """Ask for leases soon, because there may be more."""
        self._inflight.lease_wakeup.set()

    async def _lease(self, limit: int) -> LeaseResult:
        reports, budget = self._inflight.take_reports(), self._inflight.budget
        if budget is None:
            return await self._frontier.lease(self._worker, limit, reports)
        return await self._frontier.lease(self._worker, limit, reports, budget.quotas(limit))

    async def _wait(self, limit: int, ask_again: float) -> None:
        """Wait until a request ends here, or until the frontier may have more to lease."""
        inflight = self._inflight
        timer = None
        if inflight.wants_more or not inflight.is_processing:
            # If nothing was granted although requests are ready, the job is paused or has reached a limit: do not ask
            # again immediately.
            seconds = max(ask_again, _MIN_WAIT) if limit > 0 and ask_again > 0 else _POLL_INTERVAL
            timer = inflight.loop.call_later(seconds, inflight.lease_wakeup.set)
        await inflight.lease_wakeup.wait()
        if timer is not None:
            timer.cancel()
        inflight.lease_wakeup.clear()

    async def _process(self, request: InflightRequest) -> None:
        page = None
        try:
            page = await self._processor.process(request)
        except asyncio.CancelledError as error:
            # The lease of a request that the worker cancels is released, and the request stays unchanged in the queue.
            if not request.is_cancelled:
                page = self._processor.give_up(request.lease, error)
        except SkitterError as error:
            self._failure = self._failure or error  # caused by the frontier or a store, not by this page
        except Exception as error:  # noqa: BLE001 - a bug in skitter: retries would fail again and again
            page = self._processor.give_up(request.lease, error)
        finally:
            try:
                self._end(request, page)
            except Exception as error:  # noqa: BLE001 - an error in skitter itself; otherwise the lease would be renewed forever
                remedy = "report it; run the same command again to resume"
                failure = CrawlFailed(f"internal: {describe_internal(error)}", remedy=remedy)
                failure.__cause__ = error
                self._failure = self._failure or failure
                self._inflight.lease_wakeup.set()

    def _end(self, request: InflightRequest, page: Page | None) -> None:
        """End the processing of a request: release its lease, or pass its page on to the committer."""
        request.finish_fetch()
        self._inflight.end_processing(request.lease.id, returned=page is None)
        if page is None:
            return
        try:
            self._committer.put(page)
        except Exception as error:  # noqa: BLE001 - a bug in skitter that this page triggers
            self._committer.put(self._processor.give_up(request.lease, error))

    async def renew_periodically(self, interval: float) -> None:
        """Renew all leases every ``interval`` seconds, until cancelled."""
        while True:
            await asyncio.sleep(interval)
            lost = await self._frontier.renew(self._worker, self._inflight.lease_ids())
            self._inflight.cancel(lost)  # other workers hold them now, and our commits would be rejected

    async def release_all(self) -> None:
        """Cancel everything in progress and release the leases."""
        if held := await self._inflight.abort():
            await self._frontier.release(held)
