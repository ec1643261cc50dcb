"""SitemapSpider: a spider that starts from the sitemaps of sites."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from skitter.request import Request
from skitter.spider import Spider

if TYPE_CHECKING:  # the owner of a fleet reads no pages
    from skitter.response import Response
    from skitter.web.sitemap import SitemapEntry

_BATCH = 200
"""URLs that are processed at once. They may have thousands of characters each."""
_MAX_BODY = 64 * 1024 * 1024
"""The protocol allows a sitemap 50 MB, more than ``max_body`` allows a page by default."""


class SitemapSpider(Spider):
    """A spider that fetches the pages that sitemaps list. Names follow Scrapy.

    ``start_urls`` may name further pages.
    """

    sitemap_urls: Sequence[str] = ()
    """URLs of sitemaps, indexes, feeds, or of robots.txt files whose ``Sitemap:`` lines are followed."""
    sitemap_rules: Sequence[tuple[str, str]] = ((r"", "parse"),)
    """Regular expressions with the callbacks of the pages whose URL they match. The first match counts; a page without a
    match is skipped."""
    sitemap_follow: Sequence[str] = (r"",)
    """Regular expressions of the URLs of sitemaps that are followed if an index lists them."""
    sitemap_alternate_links: bool = False
    """Whether to fetch the versions of a page in other languages too (``hreflang``)."""
    streaming_callbacks = ("parse_sitemap",)

    async def start(self) -> AsyncIterator[Request | str]:
        """Yield the requests of the sitemaps, then those of ``start_urls``."""
        for url in self.sitemap_urls:
            yield Request(url, self.parse_sitemap, priority=1, max_body=_MAX_BODY)
        if self.start_urls or not self.sitemap_urls:
            async for request in super().start():
                url = request if isinstance(request, str) else request.url
                if url not in self.sitemap_urls:
                    yield request

    def sitemap_filter(self, entries: Iterable[SitemapEntry]) -> Iterable[SitemapEntry]:
        """Choose among the entries of one sitemap, for example by ``lastmod``. Default: all."""
        return entries

    def parse_sitemap(self, response: Response) -> Iterator[Any]:
        """Yield the requests for the entries of a sitemap."""
        from skitter.web.sitemap import read_sitemap  # noqa: PLC0415 - see above

        rules = [(re.compile(pattern).search, callback) for pattern, callback in self.sitemap_rules]
        follow = [re.compile(pattern).search for pattern in self.sitemap_follow]
        is_robots = response.url.partition("?")[0].endswith("/robots.txt")
        pages: dict[str, list[str]] = {}
        for number, entry in enumerate(
            self.sitemap_filter(read_sitemap(response.body, response.url)), start=1
        ):
            if number % _BATCH == 0:
                yield response.follow_all([])  # other tasks have their turn between two results
            if entry.is_sitemap:
                if is_robots or any(matches(entry.url) for matches in follow):
                    yield Request(entry.url, self.parse_sitemap, priority=1, max_body=_MAX_BODY)
                continue
            alternates = entry.alternates.values() if self.sitemap_alternate_links else ()
            for url in (entry.url, *alternates):
                callback = next((callback for matches, callback in rules if matches(url)), None)
                if callback is not None:
                    batch = pages.setdefault(callback, [])
                    batch.append(url)
                    if len(batch) >= _BATCH:
                        yield response.follow_all(pages.pop(callback), callback)
        for callback, batch in pages.items():
            yield response.follow_all(batch, callback)
