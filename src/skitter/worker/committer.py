"""Committer: makes items durable, then commits their pages, many pages at a time.

While one batch is written, the next one collects, so batches grow with the load.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from itertools import compress, islice
from typing import TYPE_CHECKING

from skitter._utils.concurrency import cancel_and_wait, wait_until_set
from skitter.frontier.contract import Frontier, Partitions
from skitter.frontier.records import LinkBatch, Outcome, Resolution
from skitter.item import OutputRange
from skitter.stats import Stats
from skitter.store.contract import Buffering
from skitter.worker.bounded_counters import BoundedCounters
from skitter.worker.callbacks import describe
from skitter.worker.crawl_control import CrawlControl
from skitter.worker.hooks import HookAction, Hooks
from skitter.worker.inflight import Inflight
from skitter.worker.links import LinkCollector
from skitter.worker.page import Page
from skitter.worker.retry import RetryDecision
from skitter.worker.revisit import visit_of
from skitter.worker.routing import ItemWriter
from skitter.worker.spill import SpilledPage, SpillQueue
from skitter.worker.timings import COMMIT, STORE

if TYPE_CHECKING:  # traces need an extra
    from skitter.worker.tracing import AttemptTrace

log = logging.getLogger("skitter.crawl")

_RETRY = Resolution.RETRY
_MAX_BATCH = 256
"""Pages of one commit."""
_MIN_BATCH = 96
"""A commit of this many pages does not wait for more."""
_SHARED_MIN_BATCH = 32
"""The same for a frontier that many workers share. It is smaller, because a commit makes the other workers wait."""
_BATCH_DELAY = 0.02
"""Seconds that a smaller batch waits for more pages, because committing ten pages costs hardly more than one."""
_SHARED_BATCH_DELAY = 0.05
"""The same for a frontier that many workers share, as long as it has other requests for this worker."""
_PARTITION_TIMEOUT = 0.1
"""Seconds that a commit waits for the slowest partition before the other partitions continue."""
_MIN_LINKS_TO_ASK = 6
"""Average number of new links per page above which it is cheaper to ask the frontier first which links are new."""


class Committer:
    """Takes finished pages and closes their leases."""

    def __init__(
        self,
        frontier: Frontier,
        outputs: ItemWriter,
        hooks: Hooks,
        inflight: Inflight,
        links: LinkCollector,
        control: CrawlControl,
        stats: Stats,
    ) -> None:
        self._frontier = frontier
        self._outputs = outputs
        self._hooks, self._after_save_hooks = hooks, hooks["after_save"]
        self._inflight = inflight
        self._links = links
        self._control = control
        self._stats = stats
        self._bounded = BoundedCounters(frontier.notes)
        self._wakeup = inflight.commit_wakeup
        self._spill = SpillQueue()
        """Pages whose links exceed the capacity of the queue. Their leases stay in force."""
        self._waiting: list[Page] = []
        self._waiting_since = 0.0
        """Event loop time at which the first of the waiting pages was added."""
        self._waiting_items = 0
        self._awaited = 0
        """Number of waiting pages at which the batch that is being collected is complete; 0: none is being
        collected."""
        self.committed = {"pages": 0, "items": 0, "bytes": 0}
        """Totals that this worker has committed."""
        self._loop = asyncio.get_running_loop()
        self._uncounted: dict[str, int] = {}
        """Counters of commits, such as their duration, that are stored with the next commit."""
        self._traces: dict[int, AttemptTrace] = {}
        """Traces of the pages to commit, by lease."""
        self._closing = False
        self._partitions = frontier.partitions
        self._busy: dict[int, asyncio.Task[None]] = {}
        """Running commits, by the number of the partition that they wait for."""
        self._error: BaseException | None = None
        """First error of a commit to a partition."""

    def put(self, page: Page) -> None:
        """Queue a page whose result is final."""
        if self._outputs.has_archives:
            self._outputs.capture(page)
        if not self._after_save_hooks:
            page.response = None  # free the body: many pages may wait, and a body is larger than its items
        if self._outputs.buffering is not None and not self._waiting:
            self._waiting_since = self._loop.time()
        if page.trace is not None:
            self._traces[page.lease.id] = page.trace
        self._waiting.append(page)
        self._waiting_items += len(page.items)
        if len(self._waiting) >= self._awaited:
            self._wakeup.set()

    def close(self) -> None:
        """Let :meth:`run` end when everything is committed."""
        self._closing = True
        self._wakeup.set()

    async def run(self) -> None:
        """Commit until closed. Raises the errors of stores and of the frontier."""
        try:
            await self._run()
            self._raise_error()
        finally:
            await cancel_and_wait(self._busy.values())  # no commit may follow the release of the leases
            self._spill.close()

    async def _run(self) -> None:
        while self._waiting or self._busy or not self._closing:
            if self._spill:
                await self._commit_spilled()
            if not self._can_commit():
                self._wakeup.clear()
                await self._wakeup.wait()
                continue
            await self._collect_batch()
            pages = self._take_waiting()
            began = self._loop.time()
            ranges = await self._outputs.write(pages)
            seconds = self._loop.time() - began
            for page in pages:
                if page.items:
                    page.record_time(STORE, seconds)
            for start in range(0, len(pages), _MAX_BATCH):
                end = start + _MAX_BATCH
                await self._commit(pages[start:end], ranges[start:end])

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _can_commit(self) -> bool:
        self._raise_error()
        if not self._busy or self._partitions is None:
            return bool(self._waiting)
        return any(self._partitions.of_lease(page.lease.id) not in self._busy for page in self._waiting)

    def _take_waiting(self) -> list[Page]:
        """Take the waiting pages, except those whose partition is busy."""
        taken, self._waiting = self._waiting, []
        if self._busy and self._partitions is not None:
            of_lease, busy = self._partitions.of_lease, self._busy
            self._waiting = [page for page in taken if of_lease(page.lease.id) in busy]
            taken = [page for page in taken if of_lease(page.lease.id) not in busy]
        self._waiting_items = sum(len(page.items) for page in self._waiting)
        return taken

    async def _collect_batch(self) -> None:
        """Wait for more pages if a larger commit, or a larger write to a buffering store, is worthwhile."""
        if self._outputs.buffering is not None:
            await self._fill_buffer(self._outputs.buffering)
            return
        is_shared = self._frontier.shared
        until = self._loop.time() + (_SHARED_BATCH_DELAY if is_shared else _BATCH_DELAY)
        # Beyond this number, each page that waits for its commit prevents a fetch.
        limit = min(_SHARED_MIN_BATCH if is_shared else _MIN_BATCH, self._inflight.max_uncommitted)
        # A starved worker does not wait: this commit may add its next requests.
        has_waited = self._inflight.is_starved
        while len(self._waiting) < (awaited := min(limit, self._inflight.held)) and not self._closing:
            if has_waited and (self._inflight.wants_more or self._loop.time() >= until):
                break
            has_waited = True
            await self._wait_for(awaited)

    async def _wait_for(self, pages: int) -> None:
        """Wait until this number of pages is waiting, but at most :data:`_BATCH_DELAY` seconds."""
        self._awaited = pages
        self._wakeup.clear()
        timer = self._loop.call_later(_BATCH_DELAY, self._wakeup.set)
        await self._wakeup.wait()
        timer.cancel()
        self._awaited = 0

    async def _fill_buffer(self, buffering: Buffering) -> None:
        """Wait until the buffer is full, the first page has waited long enough, or no other page can arrive."""
        while (
            not self._closing
            and self._waiting_items < buffering.items
            and len(self._waiting) < self._inflight.held
        ):
            left = self._waiting_since + buffering.seconds - self._loop.time()
            if left <= 0:
                return
            self._wakeup.clear()
            await wait_until_set(self._wakeup, left)

    # --- commits ---------------------------------------------------------------------------------------

    async def _commit(self, pages: list[Page], ranges: list[list[OutputRange]]) -> None:
        """Commit pages whose items are durable; spill those whose links exceed the capacity of the queue."""
        for page, page_ranges in zip(pages, ranges, strict=True):
            if self._after_save_hooks and page.items and not await self._after_save(page):
                page_ranges.clear()
            waiting = page.items_request
            if waiting is not None and page.visit is not None and page_ranges:
                from skitter.worker.media import with_ranges  # noqa: PLC0415 - few crawls download files

                # The commit of the items replaces the record of the visit, with the ranges of this commit.
                page.entries = [
                    with_ranges(entry, page_ranges) if entry is waiting else entry for entry in page.entries
                ]
        if bounded := [page for page in pages if page.has_bounded]:
            await self._bounded.admit(bounded)
        batches = await self._new_links(pages)
        group_of = self._links.group_of
        outcomes = [
            Outcome(
                page.lease.id, page.decision.resolution, page.entries, page.counters, page_ranges,
                page.decision.error_with_traceback(), page.decision.after, page.decision.free, None, group_of(page.request),
                None if page.visit is None else visit_of(page), new,
            )
            for page, new, page_ranges in zip(pages, batches, ranges, strict=True)
        ]  # fmt: skip
        await self._inflight.wait_reported()
        if self._inflight.capacity.is_limited and (spilled := self._beyond_capacity(pages, outcomes)):
            await self._spill.put(spilled)
            spilled_ids = {page.outcome.lease_id for page in spilled}
            self._inflight.spill(spilled_ids)
            outcomes = [outcome for outcome in outcomes if outcome.lease_id not in spilled_ids]
            pages = [page for page in pages if page.lease.id not in spilled_ids]
            if not pages:
                return
        if self._partitions is None:
            await self._close_leases(pages, outcomes)
        else:
            await self._close_by_partition(self._partitions, pages, outcomes)

    def _beyond_capacity(self, pages: list[Page], outcomes: list[Outcome]) -> list[SpilledPage]:
        """Return the pages whose links exceed the capacity of the queue."""
        take = self._inflight.capacity.take
        return [
            SpilledPage(page.lease.url, outcome)
            for page, outcome in zip(pages, outcomes, strict=True)
            if not take(outcome.new_requests)
        ]

    async def _close_leases(
        self, pages: list[Page], outcomes: list[Outcome], *, after: asyncio.Task[None] | None = None
    ) -> None:
        if after is not None:
            await asyncio.wait([after])
        uncounted, self._uncounted = self._uncounted, {}
        if uncounted:
            _add_counters(outcomes[0].counters, uncounted)
        if self._links.traps is not None:
            outcomes[0].compared_pages.extend(self._links.traps.take_compared())
        began, cache_generation = self._loop.time(), self._links.cache.generation
        accepted = await self._frontier.commit(outcomes)
        seconds = self._loop.time() - began
        counters: dict[str, int] = {}
        COMMIT.observe(counters, seconds)
        _add_counters(self._uncounted, counters)
        if self._traces:
            self._end_traces(outcomes, accepted, seconds)
        if uncounted and not accepted[0]:
            _add_counters(self._uncounted, uncounted)
        for page, is_accepted in zip(pages, accepted, strict=True):
            if not is_accepted:
                _log_late(page.lease.url)
        self._learn(pages if all(accepted) else list(compress(pages, accepted)), cache_generation)
        adds_requests = any(
            outcome.batches or outcome.entries or outcome.resolution is _RETRY for outcome in outcomes
        )
        self._inflight.close([page.lease.id for page in pages], adds_requests=adds_requests)

    def _learn(self, pages: list[Page], cache_generation: int) -> None:
        """Record what the frontier has accepted: the totals of this worker, and its links, which are now known.

        ``cache_generation``: the generation of the link cache when the commit started.
        """
        self._add_to_totals([page.counters for page in pages])
        if cache_generation != self._links.cache.generation:
            return  # the frontier may have refused links that it would now accept
        for page in pages:
            for batch in page.batches:
                self._links.cache.learn(batch.urls)

    def _add_to_totals(self, counters: list[dict[str, int]]) -> None:
        for name in self.committed:
            self.committed[name] += sum([counts.get(name, 0) for counts in counters])

    def _end_traces(self, outcomes: list[Outcome], accepted: list[bool], seconds: float) -> None:
        for outcome, is_accepted in zip(outcomes, accepted, strict=True):
            trace = self._traces.pop(outcome.lease_id, None)
            if trace is not None:
                trace.add(COMMIT.name, seconds)
                trace.end(outcome, is_late=not is_accepted)

    async def _close_by_partition(
        self, partitions: Partitions, pages: list[Page], outcomes: list[Outcome]
    ) -> None:
        """Commit to each partition separately, without waiting for one that does not respond."""
        parts: dict[int, tuple[list[Page], list[Outcome]]] = {}
        for page, outcome in zip(pages, outcomes, strict=True):
            part = parts.setdefault(partitions.of_lease(page.lease.id), ([], []))
            part[0].append(page)
            part[1].append(outcome)
        for partition, part in parts.items():
            earlier = self._busy.get(partition)
            task = self._loop.create_task(self._close_leases(*part, after=earlier))
            self._busy[partition] = task
            task.add_done_callback(partial(self._partition_done, partition))
        if parts:
            await asyncio.wait([self._busy[partition] for partition in parts], timeout=_PARTITION_TIMEOUT)

    def _partition_done(self, partition: int, task: asyncio.Task[None]) -> None:
        if self._busy[partition] is task:
            del self._busy[partition]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._error = self._error or error
        self._wakeup.set()

    async def _commit_spilled(self) -> None:
        """Commit as many spilled pages as the capacity of the queue allows."""
        pages: list[SpilledPage] = []
        while self._spill and len(pages) < _MAX_BATCH:
            first = await self._spill.first()
            if not self._inflight.capacity.take(first.outcome.new_requests):
                break
            self._spill.drop_first()
            pages.append(first)
        if not pages:
            return
        outcomes, began = [page.outcome for page in pages], self._loop.time()
        accepted = await self._frontier.commit(outcomes)
        if self._traces:
            self._end_traces(outcomes, accepted, self._loop.time() - began)
        for page, is_accepted in zip(pages, accepted, strict=True):
            if not is_accepted:
                _log_late(page.url)
        self._add_to_totals([outcome.counters for outcome in compress(outcomes, accepted)])
        self._inflight.close([outcome.lease_id for outcome in outcomes])

    async def _after_save(self, page: Page) -> bool:
        """Run the ``after_save`` hooks. Return whether to commit the page."""
        self._stats.begin(page)
        try:
            action = await self._hooks.run("after_save", page.response, page.items)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - user code: any error is an outcome of this page
            log.error("%s: hook after_save: %s", page.lease.url, describe(error))  # noqa: TRY400 - one line
            page.count("errors/hook")
            return True
        finally:
            self._stats.end(page)
        source = f"hook after_save at {page.lease.url}"
        self._control.apply(action, source)
        if action is HookAction.FAIL:
            page.counters.clear()
            page.finish(RetryDecision(Resolution.RETRY, f"{source} failed the crawl", free=True))
        return action is not HookAction.FAIL

    # --- links -----------------------------------------------------------------------------------------

    async def _new_links(self, pages: list[Page]) -> list[list[LinkBatch]]:
        """Return the new links of each page. Most links are known, so they cost only a lookup."""
        fingerprints = [key for page in pages for batch in page.batches for key in batch.fingerprints]
        if len(fingerprints) <= _MIN_LINKS_TO_ASK * len(pages):
            return [page.batches for page in pages]
        unknown = iter(await self._unknown(pages, fingerprints))
        found = []
        for page in pages:
            new = []
            for batch in page.batches:
                fresh = [index for index, is_new in enumerate(islice(unknown, len(batch))) if is_new]
                if len(fresh) < len(batch):
                    page.count("refused/duplicate", len(batch) - len(fresh))
                if fresh:
                    new.append(batch.select(fresh))
            found.append(new)
        return found

    async def _unknown(self, pages: list[Page], fingerprints: list[bytes]) -> list[bool]:
        if self._partitions is None:
            return await self._frontier.unknown(fingerprints)
        slots = [slot for page in pages for batch in page.batches for slot in batch.slots]
        return await self._partitions.unknown(fingerprints, slots)


def _add_counters(counters: dict[str, int], others: dict[str, int]) -> None:
    """Add the values of ``others`` to ``counters``."""
    for name, amount in others.items():
        counters[name] = counters.get(name, 0) + amount


def _log_late(url: str) -> None:
    log.warning("late: %s was leased to another worker in the meantime; its results here are discarded", url)
