"""Inflight: the leases that one worker holds, from the frontier's grant to the end of the lease."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from skitter._utils.concurrency import cancel_and_wait
from skitter.fetch.contract import FetchPhases
from skitter.frontier.records import FetchReport, Lease
from skitter.queues import EVERY_OTHER, QueueQuotas, queue_of
from skitter.worker import DRAIN_SECONDS
from skitter.worker.origins import CONTACT_GRACE

if TYPE_CHECKING:  # traces need an extra
    from skitter.worker.tracing import Tracer

REPORT_DELAY = 0.002
"""Time in seconds to collect fetch reports for a frontier that many workers share, so that one call sends several.
The wait ends early when a quarter of the concurrent fetches have ended. A frontier on this machine is called without
a wait."""
_REPORT_SHARE = 0.03
"""On slow sites, the wait is this share of the site's response time, so that it costs at most this share of the
pages per second. It does not end early."""
_MAX_REPORT_DELAY = 0.05
_LATENCY_WEIGHT = 0.1
"""Weight of the latest fetch in the average response time."""
_CONTACT_SECONDS = 5.0
"""Expected seconds of a request to an unresponsive origin. Waiting requests are scheduled by it."""
_MIN_CONTACT_WAIT = 0.5
_BUSY_SHARE = 8
"""Once one request per this many concurrent fetches is set aside, further requests to unknown origins are set aside from the
start."""
_UNCOMMITTED_PER_FETCH = 3
"""Pages that may wait for their commit, per concurrent fetch, unless a store buffers more."""
_MAX_WAITING_BYTES = 8_000_000
"""Total size of the bodies that may wait for their callbacks while further requests are leased. Waiting
bodies take memory, and are evicted from the CPU caches."""


class QueueCapacity:
    """How many new requests the frontier accepts (``max_queued``), according to its last result."""

    def __init__(self) -> None:
        self._left: int | None = None
        self._available = asyncio.Event()
        self._available.set()

    @property
    def is_limited(self) -> bool:
        """Whether the number of new requests is limited."""
        return self._left is not None

    def update(self, left: int | None) -> None:
        """Record the capacity in a result of the frontier; ``None``: no limit."""
        self._left = left
        if left is None or left > 0:
            self._available.set()
        else:
            self._available.clear()

    def take(self, amount: int) -> bool:
        """Use some of the capacity.

        Return ``False`` if nothing is left. A page with more links than the remaining capacity is accepted, so that it
        is not stuck; the capacity is used up then.
        """
        if self._left is None or amount == 0:
            return True
        if self._left <= 0:
            return False
        self.update(self._left - amount)
        return True

    async def wait(self) -> None:
        """Wait until there is capacity."""
        await self._available.wait()


class QueueBudget:
    """How many requests of each queue a worker may fetch at a time.

    ``served``: the queues that the worker serves; empty: all.
    ``sizes``: maximum number of concurrent fetches, for queues that have one.
    """

    def __init__(self, served: Sequence[str], sizes: Mapping[str, int]) -> None:
        self._served = tuple(served)
        self._sizes = {queue: size for queue, size in sizes.items() if not served or queue in served}
        self._fetching: Counter[str] = Counter()

    @property
    def concurrency(self) -> int | None:
        """The sum of the queue sizes; ``None`` if a served queue has no size, so that the job's setting applies."""
        all_sized = bool(self._served) and all(queue in self._sizes for queue in self._served)
        return sum(self._sizes.values()) if all_sized else None

    def quotas(self, limit: int) -> QueueQuotas:
        """Return the maximum number of leases to request from each queue.

        ``limit``: maximum for all queues together.
        """
        names = self._served or (*self._sizes, EVERY_OTHER)
        return {queue: self._quota(queue, limit) for queue in names}

    def _quota(self, queue: str, limit: int) -> int:
        size = self._sizes.get(queue)
        return limit if size is None else max(0, min(limit, size - self._fetching[queue]))

    def begin(self, slot: str) -> None:
        """Count a fetch that starts."""
        self._fetching[queue_of(slot)] += 1

    def end(self, slot: str) -> None:
        """Count a fetch that has ended."""
        self._fetching[queue_of(slot)] -= 1


def make_queue_budget(served: Sequence[str], sizes: Mapping[str, int]) -> QueueBudget | None:
    """Return the queue budget of a worker; ``None`` if it may lease any number from any queue."""
    return QueueBudget(served, sizes) if served or sizes else None


class InflightRequest:
    """A leased request that this worker processes. It is also the permit to send the request."""

    def __init__(self, inflight: Inflight, lease: Lease, leased_at: float, waited: float = 0.0) -> None:
        self._inflight = inflight
        self.lease = lease
        self.leased_at = leased_at
        """Event loop time at which the frontier was asked for the lease."""
        self.waited = waited
        """Seconds for which the worker had capacity, but politeness allowed no fetch."""
        self.expires = lease.start_within is not None
        """Whether the permit to send expires soon, because the host has a fixed delay."""
        self.fetched = False
        """Whether the fetch has ended."""
        self._connecting = 0.0
        self._grace: asyncio.TimerHandle | None = None
        self.is_aside = False
        """Whether the fetch is set aside: it does not count as one of the concurrent fetches, because its origin may
        never respond."""
        tracer = inflight.tracer
        self.trace = None if tracer is None else tracer.begin(lease, leased_at, waited)
        """``None`` if the request is not traced."""
        self.is_traced = self.trace is not None
        """See :class:`~skitter.fetch.contract.SendPermit`."""

    @property
    def is_cancelled(self) -> bool:
        """Whether the task of the request is cancelled by the worker, or together with it."""
        return self._inflight.has_cancelled(self.lease.id)

    def report_phases(self, phases: FetchPhases) -> None:
        """Record when the phases of the transfer ended."""
        if self.trace is not None:
            self.trace.add_phases(phases)

    def may_send(self) -> bool:
        """Return whether the request may be sent now.

        Never after :meth:`finish_fetch`: a fetch of robots.txt serves other requests too and may outlive this one.
        """
        if self.fetched:
            return False
        grace = self.lease.start_within
        return grace is None or self._inflight.loop.time() - self.leased_at <= grace

    def report_connecting(self, seconds: float) -> None:
        """Record the time until the request could be sent. It is part of the fetch report."""
        if not self.fetched:
            self._connecting = max(self._connecting, seconds)

    def wait_for_turn(self, turn: asyncio.Future[None], size: int) -> Awaitable[None]:
        """See :meth:`Inflight.wait_for_turn`."""
        return self._inflight.wait_for_turn(turn, size)

    def begin_contact(self) -> float:
        """Prepare for a request to an origin that has not responded yet, and may never do so.

        After a second without a response it no longer counts as one of the concurrent fetches. If many such requests
        are running, it never counts. If there are too many, return the seconds after which the request may try again;
        0: it may be sent.
        """
        inflight = self._inflight
        if not inflight.max_aside or self.is_aside or self._grace is not None:
            return 0.0
        if inflight.aside >= inflight.max_aside:
            return inflight.wait_for_contact()
        if inflight.aside * _BUSY_SHARE >= inflight.concurrency:
            self._set_aside()
        else:
            self._grace = inflight.loop.call_later(CONTACT_GRACE, self._set_aside)
        return 0.0

    def _set_aside(self) -> None:
        if not self.fetched:
            self.is_aside = True
            self._inflight.set_aside(self.lease.slot)

    def end_contact(self) -> bool:
        """Record that the origin has responded.

        Return whether the request may continue now; ``False`` if too many others are running.
        """
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None
        if self.is_aside and self._inflight.count_again(self.lease.slot):
            self.is_aside = False
        return not self.is_aside

    def finish_fetch(
        self,
        latency: float | None = None,
        *,
        refused: bool = False,
        retry_after: float | None = None,
        sent: bool = True,
    ) -> None:
        """Record the end of the fetch, successful or not.

        Only the first call has an effect. ``sent``: whether an attempt to send was made. If not, the slot gives
        the turn of the lease to another request.
        """
        if not self.fetched:
            self.fetched = True
            if self._grace is not None:
                self._grace.cancel()
            report = FetchReport(self.lease.id, latency, refused, retry_after, self._connecting, sent)
            self._inflight.finish_fetch(self.lease.slot, report, was_aside=self.is_aside)


class Inflight:
    """The leases, running requests and unsent fetch reports of one worker.

    The :class:`~skitter.worker.leaser.Leaser` and the :class:`~skitter.worker.committer.Committer` share it. Each of
    them waits for one of its events, ``lease_wakeup`` or ``commit_wakeup``.
    """

    def __init__(
        self,
        concurrency: int,
        buffered: int = 0,
        budget: QueueBudget | None = None,
        *,
        max_aside: int = 0,
        report_delay: float = 0.0,
        tracer: Tracer | None = None,
    ) -> None:
        """``buffered``: number of items that a store collects before it writes them.

        ``report_delay``: see :data:`REPORT_DELAY`.
        """
        self.loop = asyncio.get_running_loop()
        self.concurrency = concurrency
        """Maximum number of concurrent fetches. It may change during the run."""
        self.budget = budget
        """Limits per queue; ``None``: any number from any queue."""
        self.tracer = tracer
        """``None`` if the job has no traces."""
        self.capacity = QueueCapacity()
        """How many new requests the frontier accepts."""
        self.fetching = 0
        """Number of running fetches, without those that are set aside."""
        self.max_aside = max_aside
        """Maximum number of fetches that are set aside."""
        self._contact_at = 0.0
        self.aside = 0
        """Number of running requests to origins that have not responded yet, and that do not count as fetches."""
        self._waiting_bytes = 0
        """Size of the bodies that wait for their callbacks."""
        self.draining = False
        """Whether the worker no longer leases requests."""
        self.wants_more = True
        """Whether the last result had fewer leases than requested. Then a commit that adds requests
        is a reason to ask again."""
        self.lease_wakeup = asyncio.Event()
        """Set when the leaser should check whether to request leases or to end."""
        self.commit_wakeup = asyncio.Event()
        """Set when the committer should check whether there is something to commit."""
        self.max_uncommitted = max(buffered, concurrency * _UNCOMMITTED_PER_FETCH)
        """Maximum number of pages that wait for their commit (back-pressure)."""
        self.leaser: asyncio.Task[object] | None = None
        """The task that leases requests, while it runs."""
        self._tasks: dict[int, asyncio.Task[None]] = {}
        """Running requests, by lease."""
        self._cancelled: set[int] = set()
        """Leases whose tasks the worker has cancelled."""
        self._held: set[int] = set()
        """Leases that are neither committed nor released."""
        self._spilled: set[int] = set()
        """Leases of spilled pages. They are renewed, and do not count as held."""
        self._returned: list[int] = []
        """Leases to release."""
        self._reports: list[FetchReport] = []
        self._report_delay = report_delay
        self._latency = 0.0
        """Average time in seconds from a request to its response."""
        self._reports_sent = asyncio.Event()
        """Set when the next call for leases has returned."""
        self._has_ended = False
        """Whether there will be no further call for leases."""

    @property
    def held(self) -> int:
        """Number of leases that are neither committed, released nor spilled."""
        return len(self._held)

    @property
    def is_starved(self) -> bool:
        """Whether nothing is being fetched because the frontier had no further request. A commit may add one."""
        return self.wants_more and self.fetching == 0 and self.free() > 0

    @property
    def is_processing(self) -> bool:
        """Whether any request is running."""
        return bool(self._tasks)

    # --- leasing ---------------------------------------------------------------------------------------

    def free(self) -> int:
        """Return how many more leases the worker can take now."""
        if self.draining or self._waiting_bytes > _MAX_WAITING_BYTES:
            return 0
        most = self.concurrency + self.max_uncommitted + self.aside
        return max(0, min(self.concurrency - self.fetching, most - len(self._held)))

    async def wait_for_turn(self, turn: asyncio.Future[None], size: int) -> None:
        """Wait until a callback may run. ``size``: of the body that waits, in bytes."""
        self._waiting_bytes += size
        try:
            await turn
        finally:
            self._waiting_bytes -= size
            if self._waiting_bytes <= _MAX_WAITING_BYTES < self._waiting_bytes + size:
                self.lease_wakeup.set()

    def add(self, lease: Lease, task: asyncio.Task[None]) -> None:
        """Record a new lease and the task that processes it."""
        self._held.add(lease.id)
        self._tasks[lease.id] = task
        self.fetching += 1
        if self.budget is not None:
            self.budget.begin(lease.slot)

    def set_aside(self, slot: str) -> None:
        """Stop counting a running fetch, so that another one may start."""
        self.aside += 1
        self._end_fetch(slot)
        self.lease_wakeup.set()

    def wait_for_contact(self) -> float:
        """Return the seconds after which a request to an unknown origin may try again, because too many are waiting.

        The next attempts of several requests are spread over time, at the rate at which such requests end.
        """
        now = self.loop.time()
        self._contact_at = max(self._contact_at, now) + _CONTACT_SECONDS / self.max_aside
        return self._contact_at - now + _MIN_CONTACT_WAIT

    def count_again(self, slot: str) -> bool:
        """Count a fetch again that was set aside. Return ``False`` if too many are running."""
        if self.fetching >= self.concurrency:
            return False
        self.aside -= 1
        self.fetching += 1
        if self.budget is not None:
            self.budget.begin(slot)
        return True

    def _end_fetch(self, slot: str) -> None:
        self.fetching -= 1
        if self.budget is not None:
            self.budget.end(slot)

    def finish_fetch(self, slot: str, report: FetchReport, *, was_aside: bool) -> None:
        """Record the end of a fetch, so that another one may start."""
        if was_aside:
            self.aside -= 1
        else:
            self._end_fetch(slot)
        self._reports.append(report)
        if not self._report_delay:
            self.lease_wakeup.set()
        else:
            self._report_later(report.latency)

    def _report_later(self, latency: float | None) -> None:
        """Send the collected reports after a delay. ``latency``: of the fetch that was added."""
        if latency is not None:
            self._latency += (latency - self._latency) * _LATENCY_WEIGHT
        slow_delay = min(self._latency * _REPORT_SHARE, _MAX_REPORT_DELAY)
        waiting = len(self._reports)
        if slow_delay < self._report_delay and waiting * 4 >= self.concurrency:
            self.lease_wakeup.set()
        elif waiting == 1:
            self.loop.call_later(max(slow_delay, self._report_delay), self.lease_wakeup.set)

    def take_reports(self) -> list[FetchReport]:
        """Return the fetch reports to send, and start a new list."""
        reports, self._reports = self._reports, []
        return reports

    def confirm_reports(self) -> None:
        """Record that the frontier has received the reports that were taken last."""
        sent, self._reports_sent = self._reports_sent, asyncio.Event()
        sent.set()

    def end_leasing(self) -> None:
        """Record that no further call for leases follows, so that no commit waits for one."""
        self._has_ended = True
        self._reports_sent.set()

    async def wait_reported(self) -> None:
        """Wait until the frontier has all reports of finished fetches, because a commit ends the lease."""
        own_reports = self._reports
        # Wait for the result of the call with the reports. After the end of the job no call follows, and no lease needs
        # protection.
        while own_reports and self._reports is own_reports and not self._has_ended:
            sent = self._reports_sent
            self.lease_wakeup.set()
            await sent.wait()

    # --- ending leases ---------------------------------------------------------------------------------

    def end_processing(self, lease_id: int, *, returned: bool) -> None:
        """Record the end of a task. ``returned``: release the lease, because there is nothing to commit."""
        del self._tasks[lease_id]
        self._cancelled.discard(lease_id)
        if returned:
            self._returned.append(lease_id)
            self.lease_wakeup.set()

    def take_returned(self) -> list[int]:
        """Return the leases to release."""
        returned, self._returned = self._returned, []
        return returned

    def release(self, lease_ids: Iterable[int]) -> None:
        """Record released leases."""
        self._held.difference_update(lease_ids)

    def spill(self, lease_ids: Iterable[int]) -> None:
        """Record leases whose pages wait on disk for queue capacity. They no longer count as held."""
        lease_ids = list(lease_ids)
        self._held.difference_update(lease_ids)
        self._spilled.update(lease_ids)
        self.lease_wakeup.set()

    def close(self, lease_ids: Iterable[int], *, adds_requests: bool = True) -> None:
        """Record leases that ended with their commit.

        ``adds_requests``: whether it may have put requests into the queue.
        """
        lease_ids = list(lease_ids)
        was_full = len(self._held) > self.max_uncommitted + self.fetching + self.aside
        self._held.difference_update(lease_ids)
        if self._spilled:
            self._spilled.difference_update(lease_ids)
        if self.draining or (self.wants_more and (adds_requests or was_full or not self._held)):
            self.lease_wakeup.set()

    def update_capacity(self, left: int | None) -> None:
        """Record how many new requests the frontier accepts, and let spilled pages try again."""
        self.capacity.update(left)
        if self._spilled:
            self.commit_wakeup.set()

    def lease_ids(self) -> list[int]:
        """Return all leases to renew."""
        return [*self._held, *self._spilled]

    # --- shutting down ---------------------------------------------------------------------------------

    def drain(self) -> None:
        """Stop leasing, and finish the requests in progress.

        Requests that run longer than :data:`~skitter.worker.DRAIN_SECONDS` are cancelled, and their leases released.
        """
        if not self.draining:
            self.draining = True
            self.lease_wakeup.set()
            self.loop.call_later(DRAIN_SECONDS, self.cancel)

    def cancel(self, lease_ids: Iterable[int] | None = None) -> None:
        """Cancel running requests, by default all."""
        for lease_id in list(self._tasks) if lease_ids is None else lease_ids:
            if (task := self._tasks.get(lease_id)) is not None:
                self._cancelled.add(lease_id)
                task.cancel()

    def has_cancelled(self, lease_id: int) -> bool:
        """Return whether the task of a lease is cancelled by the worker, or together with it. User code may cancel it, too."""
        # At the end of an event loop (asyncio.run), all tasks are cancelled before any of them runs again.
        return lease_id in self._cancelled or (self.leaser is not None and self.leaser.cancelling() > 0)

    async def abort(self) -> list[int]:
        """Cancel all running requests. Return the leases that are still held, for release."""
        self._cancelled.update(self._tasks)
        await cancel_and_wait(self._tasks.values())
        held, self._held, self._spilled = self._held | self._spilled, set(), set()
        return list(held)
