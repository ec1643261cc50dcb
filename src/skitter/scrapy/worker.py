"""ScrapyWorker: one Scrapy process as a worker of its job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skitter.scrapy.leases import ScrapyLeases
from skitter.scrapy.requests import RequestCodec
from skitter.stats import Stats
from skitter.worker import DRAIN_SECONDS
from skitter.worker.committer import Committer
from skitter.worker.crawl_control import CrawlControl
from skitter.worker.heartbeat import WorkerReporter
from skitter.worker.hooks import Hooks
from skitter.worker.inflight import REPORT_DELAY, Inflight
from skitter.worker.lease_loop import LeaseLoop
from skitter.worker.leaser import Leaser

if TYPE_CHECKING:
    from skitter.frontier.contract import Frontier
    from skitter.frontier.records import JobInfo, JobState, LeaseResult
    from skitter.settings import Settings
    from skitter.worker.links import LinkCollector
    from skitter.worker.routing import ItemWriter


class ScrapyWorker:
    """Leases requests for Scrapy, and commits the results.

    Implements :class:`~skitter.run.builder.RunnableWorker`.
    """

    def __init__(
        self,
        leases: ScrapyLeases,
        *,
        settings: Settings,
        name: str,
        frontier: Frontier,
        info: JobInfo,
        outputs: ItemWriter,
        links: LinkCollector,
    ) -> None:
        self._name = name
        self._leases = leases
        self._frontier = frontier
        self._links = links
        self._codec = RequestCodec(leases.crawler, links, settings.politeness(), info)
        buffering = outputs.buffering
        self._inflight = Inflight(
            settings.concurrency,
            0 if buffering is None else buffering.items,
            report_delay=REPORT_DELAY if frontier.shared else 0.0,
        )
        self._most_fetches = settings.concurrency
        control = CrawlControl(frontier, self._inflight)
        committer = Committer(frontier, outputs, Hooks(), self._inflight, links, control, Stats())
        leaser = Leaser(
            name, frontier, self._inflight, leases, committer, self._on_result, leases.crawl_end.confirm
        )
        leases.crawl_end.reporter = self._reporter = reporter = WorkerReporter(
            name, frontier, self._inflight, committer
        )
        self._loop = LeaseLoop(name, frontier, info, control, leaser, committer, reporter)
        self._revision = 0
        """Number of changes of settings that the worker has applied."""

    async def run(self) -> JobState:
        """Work until the job is finished or stopped. Return its state."""
        changes = await self._frontier.control.settings_changes()
        self._leases.shares_cookies |= changes.shared_cookies
        self._leases.begin(self._frontier, self._codec, self._name)
        try:
            await self._reporter.announce()
            await self._leases.crawl_end.join(self._frontier, self._name)
            return await self._loop.run()
        finally:
            await self._loop.release()
            await self._leases.end()
            await self._leases.crawl_end.leave()
            await self._loop.leave()

    def drain(self) -> None:
        """Stop leasing, release the leases that Scrapy has not asked for, and finish the others."""
        self._inflight.drain()
        self._frontier.limit_outages(DRAIN_SECONDS)
        self._leases.drain()

    async def _on_result(self, result: LeaseResult) -> None:
        if result.data_loss:
            self._links.cache.forget()
        if result.revision != self._revision:
            self._revision = result.revision
            self._links.cache.forget()  # like skitter's own worker
            changes = await self._frontier.control.settings_changes()
            wanted = changes.settings.get("concurrency", self._most_fetches)
            self._inflight.concurrency = min(wanted, self._most_fetches)
            self._leases.shares_cookies |= changes.shared_cookies
