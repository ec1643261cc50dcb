"""EngineSlot: access to the two internals of Scrapy's engine that a scheduler with leases needs."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import scrapy
from scrapy import signals
from scrapy.exceptions import CloseSpider, DontCloseSpider
from scrapy.utils.defer import deferred_to_future
from twisted.python.failure import Failure

from skitter.errors import UsageError

if TYPE_CHECKING:
    from scrapy.crawler import Crawler


class _ObservedSet(set[Any]):
    """The requests in the engine. It reports each request that the engine removes."""

    def __init__(self, on_removed: Callable[[scrapy.Request], object]) -> None:
        super().__init__()
        self._on_removed = on_removed

    def remove(self, request: scrapy.Request) -> None:
        super().remove(request)
        self._on_removed(request)


class IdleDecision(enum.Enum):
    """The decision of the handlers of ``spider_idle``."""

    END = enum.auto()
    """The crawl may end, unless they have added requests."""
    KEEP_OPEN = enum.auto()
    """A handler has raised ``DontCloseSpider``."""
    CLOSE = enum.auto()
    """A handler has raised ``CloseSpider``: the spider of this process is being closed."""


class EngineSlot:
    """Observes and wakes the engine of a crawler.

    Scrapy has no public interface for this. A scheduler cannot see when the engine has finished a request that failed
    without an errback, and the engine asks a scheduler without requests only every five seconds. Raises
    :class:`~skitter.errors.UsageError` if the engine does not have these internals.
    """

    def __init__(self, crawler: Crawler, on_done: Callable[[scrapy.Request], object]) -> None:
        """``on_done`` is called with each request that the engine has finished, successfully or not."""
        self._crawler = crawler
        try:
            slot: Any = crawler.engine._slot  # noqa: SLF001 - see the class docstring
            self._wake = slot.nextcall.schedule
            in_progress = slot.inprogress
        except AttributeError as error:
            raise _unknown_engine(str(error)) from error
        if type(in_progress) is not set or in_progress:
            raise _unknown_engine(f"inprogress is {in_progress!r:.100}")
        slot.inprogress = _ObservedSet(on_done)
        self.is_probed = False
        """Whether :meth:`is_idle` is asking the engine. For the engine itself, the scheduler always has requests."""
        self._closing: asyncio.Future[Any] | None = None

    def wake(self) -> None:
        """Make the engine ask for requests soon."""
        self._wake()

    def is_idle(self) -> bool:
        """Return whether the engine is idle, apart from requests that the scheduler may have."""
        engine: Any = self._crawler.engine
        self.is_probed = True
        try:
            return bool(engine.spider_is_idle()) and not engine.paused
        finally:
            self.is_probed = False

    def send_idle(self) -> IdleDecision:
        """Send the signal ``spider_idle``, as the engine does when the scheduler has no requests."""
        expected = (DontCloseSpider, CloseSpider)
        found: list[tuple[Any, Any]] = self._crawler.signals.send_catch_log(
            signals.spider_idle, spider=self._crawler.spider, dont_log=expected
        )
        errors = [result.value for _, result in found if isinstance(result, Failure)]
        if any(isinstance(error, DontCloseSpider) for error in errors):
            return IdleDecision.KEEP_OPEN
        for error in errors:
            if isinstance(error, CloseSpider):
                self.close(error.reason)
                return IdleDecision.CLOSE
        return IdleDecision.END

    async def process_item(self, item: Any) -> None:
        """Pass an item that belongs to no response through the pipelines."""
        scraper: Any = self._crawler.engine.scraper
        if scrapy.version_info >= (2, 14):
            await scraper.start_itemproc_async(item, response=None)
        else:
            await deferred_to_future(scraper.start_itemproc(item, response=None))

    def close(self, reason: str) -> None:
        """Close the spider soon, unless it is already being closed."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close(reason))

    async def _close(self, reason: str) -> None:
        engine: Any = self._crawler.engine
        if scrapy.version_info >= (2, 14):
            await engine.close_spider_async(reason=reason)
        else:
            await deferred_to_future(engine.close_spider(self._crawler.spider, reason))


def _unknown_engine(problem: str) -> UsageError:
    return UsageError(
        f"the engine of Scrapy {scrapy.__version__} cannot be observed: {problem}",
        remedy="use Scrapy 2.13 to 2.19, or a newer version of skitter",
    )
