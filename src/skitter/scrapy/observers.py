"""Observers in Scrapy: a downloader and spider middlewares that find out which lease a request or an item belongs to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from functools import wraps
from typing import TYPE_CHECKING, Any, Self

from scrapy import Request
from scrapy.core.downloader import Slot
from scrapy.utils.misc import load_object

from skitter.scrapy.job import UNLIMITED
from skitter.scrapy.leases import leases_of

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.core.downloader import Downloader
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from twisted.internet.defer import Deferred

    from skitter.scrapy.leases import ScrapyLeases


class _LeaseMiddleware:
    """Base of the spider middlewares."""

    def __init__(self, leases: ScrapyLeases) -> None:
        self._leases = leases

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Create the middleware of a crawler."""
        return cls(leases_of(crawler))


class OutputMiddleware(_LeaseMiddleware):
    """The outermost middleware. It sees the start requests, and the requests of a callback as the engine receives them."""

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Pass on the start requests that the frontier does not have yet."""
        async for result in self._leases.seeds.read(start):
            yield result

    def process_spider_output(
        self,
        response: Response,
        result: Iterable[Any],
        spider: Spider | None = None,  # noqa: ARG002 - Scrapy 2.13 passes it
    ) -> Iterable[Any]:
        """Record which lease each request belongs to."""
        lease = self._leases.of_result(response)
        for output in result:
            self._leases.adopt(output, lease)
            yield output

    async def process_spider_output_async(
        self,
        response: Response,
        result: AsyncIterator[Any],
        spider: Spider | None = None,  # noqa: ARG002 - Scrapy 2.13 passes it
    ) -> AsyncIterator[Any]:
        """See :meth:`process_spider_output`."""
        lease = self._leases.of_result(response)
        async for output in result:
            self._leases.adopt(output, lease)
            yield output


class CallbackMiddleware(_LeaseMiddleware):
    """The innermost middleware. It sees which responses reach their callback."""

    def process_spider_input(self, response: Response, spider: Spider | None = None) -> None:  # noqa: ARG002 - Scrapy 2.13 passes it
        """Record that the response reaches its callback."""
        lease = self._leases.of_result(response)
        if lease is not None:
            lease.has_reached_callback = True


def observed(downloader: str | type[Downloader]) -> type[Downloader]:
    """Return a subclass of a downloader that reports how each fetch ends: with a response, another request, or an error.

    Only the engine sees the request that a downloader middleware returned, such as a retry, and the request that it
    replaces. A mark in its ``meta`` would be visible to user code, and copied to the requests of callbacks.

    A leased request is sent at once, because the frontier has allowed it. Otherwise, it would wait for a second, random
    delay, and could reach its host too soon after a request of another process. All other requests, such as the requests
    of ``FilesPipeline``, are subject to the limits of the project, within this process.
    """
    base: Any = load_object(downloader)

    class ObservedDownloader(base):  # type: ignore[misc]
        def __init__(self, crawler: Crawler) -> None:
            super().__init__(crawler)
            self._leases = leases_of(crawler)
            self._leased = Slot(UNLIMITED, 0, 0.0)

        @wraps(base.fetch)  # Scrapy looks at the signature
        def fetch(self, request: Request, *arguments: Any, **named: Any) -> Deferred[Any]:
            """Fetch a request, and report how the fetch ends."""
            fetching: Deferred[Any] = super().fetch(request, *arguments, **named)
            return fetching.addBoth(self._leases.fetched, request)

        def _get_slot(self, request: Request, *arguments: Any, **named: Any) -> tuple[str, Slot]:
            """Return the key and the slot of a request."""
            key, slot = super()._get_slot(request, *arguments, **named)
            return key, self._leased if self._leases.holds(request) else slot

    return ObservedDownloader
