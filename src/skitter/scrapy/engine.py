"""EngineSlot: the two internals of Scrapy's engine that a scheduler with leases needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import scrapy

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


class EngineSlot:
    """Observes and wakes the engine of a crawler.

    Scrapy has no interface for either. A scheduler cannot see when the engine has finished a request that failed without
    an errback, and the engine asks a scheduler without requests only every five seconds. Raises
    :class:`~skitter.errors.UsageError` if the engine lacks what is needed.
    """

    def __init__(self, crawler: Crawler, on_done: Callable[[scrapy.Request], object]) -> None:
        """``on_done`` is called with each request that the engine has finished, whatever came of it."""
        self._crawler = crawler
        try:
            slot: Any = crawler.engine._slot  # noqa: SLF001 - see the class
            self._wake = slot.nextcall.schedule
            in_progress = slot.inprogress
        except AttributeError as error:
            raise _unknown_engine(str(error)) from error
        if type(in_progress) is not set or in_progress:
            raise _unknown_engine(f"inprogress is {in_progress!r:.100}")
        slot.inprogress = _ObservedSet(on_done)

    def wake(self) -> None:
        """Let the engine ask for requests soon, and notice that it is idle."""
        self._wake()

    def close(self, reason: str) -> Any:
        """Close the spider. Return what can be awaited: a coroutine, or a Deferred before Scrapy 2.14."""
        engine: Any = self._crawler.engine
        if scrapy.version_info >= (2, 14):
            return engine.close_spider_async(reason=reason)
        return engine.close_spider(self._crawler.spider, reason)


def _unknown_engine(problem: str) -> UsageError:
    return UsageError(
        f"the engine of Scrapy {scrapy.__version__} cannot be observed: {problem}",
        remedy="use Scrapy 2.13 to 2.19, or a newer version of skitter",
    )
