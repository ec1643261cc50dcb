"""A Scrapy scheduler that uses the frontier as its queue."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from scrapy.core.scheduler import BaseScheduler
from scrapy.utils.defer import deferred_from_coro

from skitter.errors import SkitterError, UsageError
from skitter.frontier.records import JobState
from skitter.scrapy.addon import Addon
from skitter.scrapy.engine import EngineSlot
from skitter.scrapy.idle import CrawlEnd
from skitter.scrapy.job import in_settings
from skitter.scrapy.leases import leases_of
from skitter.scrapy.run import ScrapyRun

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from twisted.internet.defer import Deferred

log = logging.getLogger("skitter.scrapy")


class Scheduler(BaseScheduler):
    """Schedules the requests of a Scrapy project with skitter's frontier. Installed by the add-on.

    Raises :class:`~skitter.errors.UsageError` if the add-on is missing.
    """

    def __init__(self, crawler: Crawler) -> None:
        addon = crawler.get_addon(Addon)
        if addon is None or addon.spec is None:
            raise UsageError(
                "the scheduler of skitter needs its add-on",
                remedy='write ADDONS = {"skitter.scrapy.Addon": 0} in the settings, and remove SCHEDULER',
                field="ADDONS",
            )
        self._crawler = crawler
        self._stats = crawler.stats
        self._leases = leases_of(crawler)
        self._leases.has_outputs = bool(addon.spec.outputs)
        self._run = ScrapyRun(
            addon.spec, self._leases, fresh=addon.fresh, files=addon.files, replaced=addon.replaced
        )
        self._running: asyncio.Task[JobState] | None = None
        self._engine: EngineSlot | None = None
        self._is_closing = False

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Scheduler:
        """Create the scheduler of a crawler."""
        return cls(crawler)

    def open(self, spider: Spider) -> Deferred[None]:  # noqa: ARG002 - Scrapy passes it
        """Open the job. The result fires when requests can be asked for.

        Raises :class:`~skitter.errors.SkitterError` if the job cannot be run.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise UsageError(
                "skitter needs the asyncio reactor of Twisted",
                remedy="remove TWISTED_REACTOR from the settings, or set it to"
                ' "twisted.internet.asyncioreactor.AsyncioSelectorReactor"',
                field="TWISTED_REACTOR",
            ) from None
        return deferred_from_coro(self._open())

    async def _open(self) -> None:
        leases = self._leases
        if self._stats is not None:
            # User code compares them with limits, and a resumed run may enqueue nothing first.
            for name in ("enqueued", "dequeued"):
                self._stats.inc_value(f"scheduler/{name}", 0)
        self._engine = engine = EngineSlot(self._crawler, leases.engine_is_done)
        leases.wake, leases.process_in_pipelines = engine.wake, engine.process_item
        leases.crawl_end = CrawlEnd(engine, leases.added)
        leases.seeds.on_failed = self._run.stop
        self._running = asyncio.ensure_future(self._run.run())
        began = asyncio.ensure_future(leases.began.wait())
        await asyncio.wait({self._running, began}, return_when=asyncio.FIRST_COMPLETED)
        began.cancel()
        if self._running.done() and self._running.exception() is not None:
            leases.stop()
            self._is_closing = True
            if isinstance(error := self._running.exception(), SkitterError):
                log.error("%s; %s", error, in_settings(error.remedy))  # Scrapy logs the traceback
            self._running.result()
        self._running.add_done_callback(self._ended)

    def close(self, reason: str) -> Deferred[None]:
        """Finish requests in progress, release all other leases, and write the outputs."""
        return deferred_from_coro(self._close(reason))

    async def _close(self, reason: str) -> None:
        self._is_closing = True
        if self._running is not None:
            if not self._running.done():
                self._run.stop(f"Scrapy has closed the spider: {reason}")
            await asyncio.wait([self._running])

    def _ended(self, running: asyncio.Task[JobState]) -> None:
        """Close the spider when the job has ended."""
        self._leases.stop()
        assert self._engine is not None, "the scheduler is open"
        reason = "cancelled"
        if not running.cancelled() and (error := running.exception()) is not None:
            reason = "failed"
            if isinstance(error, SkitterError):
                log.error("%s; %s", error, in_settings(error.remedy))
            else:
                log.error("the job has failed", exc_info=error)
        elif not running.cancelled():
            reason = running.result().value
        if self._stats is not None:
            self._stats.set_value("skitter/state", reason)
        if not self._is_closing:
            self._is_closing = True
            self._engine.close(reason)

    def has_pending_requests(self) -> bool:
        """Return whether the job may get more requests, from any process. True until the spider is closed."""
        return self._engine is None or not self._engine.is_probed

    def enqueue_request(self, request: Request) -> bool:
        """Store a request together with the page that it comes from. Return ``False`` if the job already knows it."""
        is_new = self._leases.enqueue(request)
        if self._stats is not None:
            self._stats.inc_value("scheduler/enqueued" if is_new else "dupefilter/filtered")
        return is_new

    def next_request(self) -> Request | None:
        """Return the next request that may be sent now."""
        request = self._leases.next_request()
        if request is not None and self._stats is not None:
            self._stats.inc_value("scheduler/dequeued")
        return request
