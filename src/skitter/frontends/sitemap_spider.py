"""SitemapSpider: a spider that starts from the sitemaps of sites."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from skitter.errors import SpiderError
from skitter.links import Links
from skitter.request import Request
from skitter.run.loader import check_list
from skitter.spider import Spider
from skitter.worker.callbacks import find_method

if TYPE_CHECKING:  # the parent process of several workers reads no pages
    from skitter.response import Response
    from skitter.web.sitemap import SitemapEntry

_SITEMAP = "parse_sitemap"
_BATCH = 200
"""Number of URLs that are processed at once. Each may have thousands of characters."""
_MAX_BODY = 64 * 1024 * 1024
"""Maximum size of a sitemap in bytes: the protocol allows 50 MB, more than the default ``max_body`` for pages."""


class SitemapSpider(Spider):
    """A spider that fetches the pages that sitemaps list. Names follow Scrapy.

    ``start_urls`` may name further pages. ``allowed_domains`` and the scope limit the pages, but not the sitemaps, which are
    often on another host.
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
    streaming_callbacks = (_SITEMAP,)
    unscoped_callbacks = (_SITEMAP,)
    _has_warned = False

    async def start(self) -> AsyncIterator[Request | str]:
        """Yield the requests of the sitemaps, then the requests of ``start_urls``.

        Raises :class:`~skitter.errors.SpiderError` for an attribute of the wrong type.
        """
        self._check()
        for url in self.sitemap_urls:
            yield Request(url, self.parse_sitemap, priority=1, max_body=_MAX_BODY)
        if self.start_urls or not self.sitemap_urls:
            async for request in super().start():
                url = request if isinstance(request, str) else request.url
                if url not in self.sitemap_urls:
                    yield request

    def sitemap_filter(self, entries: Iterable[SitemapEntry]) -> Iterable[SitemapEntry]:
        """Choose among the entries of one sitemap, for example by ``lastmod``. Default: all.

        It also receives the sitemaps that an index lists (``is_sitemap``), but not the sitemaps in a robots.txt.
        """
        return entries

    def _check(self) -> None:
        for name in ("sitemap_urls", "sitemap_follow"):
            check_list(self, name, getattr(self, name), has_texts=True)
        check_list(self, "sitemap_rules", self.sitemap_rules, has_texts=False)
        for rule in self.sitemap_rules:
            if isinstance(rule, str) or len(rule) != 2 or not all(isinstance(part, str) for part in rule):
                raise SpiderError(
                    f"sitemap_rules of spider {self.name!r} contains {rule!r:.80}",
                    remedy='write sitemap_rules = [("/product/", "parse_product")]',
                    field="sitemap_rules",
                )
            if find_method(self, rule[1]) is None:
                raise SpiderError(
                    f"sitemap_rules of spider {self.name!r} names a method {rule[1]!r}, which does not exist",
                    remedy="define the method, or correct the rule",
                    field="sitemap_rules",
                )
        patterns = {
            "sitemap_rules": [rule[0] for rule in self.sitemap_rules],
            "sitemap_follow": self.sitemap_follow,
        }
        for name, found in patterns.items():
            for pattern in found:
                try:
                    re.compile(pattern)
                except re.error as error:
                    raise SpiderError(
                        f"invalid regular expression {pattern!r} in {name}: {error}",
                        remedy="correct it, or escape it with backslashes",
                        field=name,
                    ) from None

    def parse_sitemap(self, response: Response) -> Iterator[Any]:
        """Yield the requests for the entries of a sitemap."""
        is_robots = response.url.partition("?")[0].endswith("/robots.txt")
        uses_lastmod = self.settings.use_lastmod
        read = chosen = 0

        def entries() -> Iterator[SitemapEntry]:
            nonlocal read
            for entry in response.sitemap():
                read += 1
                yield entry

        pages: dict[tuple[str, str], list[str]] = {}
        targets = self._targets(
            entries() if is_robots else self.sitemap_filter(entries()),
            is_robots=is_robots,
            uses_lastmod=uses_lastmod,
        )
        for number, found in enumerate(targets, start=1):
            if number % _BATCH == 0:
                yield response.follow_all([])  # other tasks of the event loop run between two results
            for url, callback, lastmod in found:
                chosen += 1
                if callback == _SITEMAP:
                    yield Request(url, self.parse_sitemap, priority=1, max_body=_MAX_BODY)
                    continue
                batch = pages.setdefault((callback, lastmod), [])
                batch.append(url)
                if len(batch) >= _BATCH and (lastmod or not uses_lastmod):
                    yield _links(response, pages.pop((callback, lastmod)), callback, lastmod)
        # A URL may also be listed with a lastmod, and only its first request is added, so those come first.
        for (callback, lastmod), batch in sorted(pages.items(), key=lambda group: not group[0][1]):
            yield _links(response, batch, callback, lastmod)
        if not chosen:
            self._report_empty(response.url, read, is_robots=is_robots)

    def _targets(
        self, entries: Iterable[SitemapEntry], *, is_robots: bool, uses_lastmod: bool
    ) -> Iterator[list[tuple[str, str, str]]]:
        """Yield the chosen URLs of each entry, each with its callback and its ``lastmod``."""
        now = time.time()
        rules = [(re.compile(pattern).search, callback) for pattern, callback in self.sitemap_rules]
        follow = [re.compile(pattern).search for pattern in self.sitemap_follow]
        for entry in entries:
            if entry.is_sitemap:
                is_followed = is_robots or any(matches(entry.url) for matches in follow)
                yield [(entry.url, _SITEMAP, "")] if is_followed else []
                continue
            alternates = entry.alternates.values() if self.sitemap_alternate_links else ()
            lastmod = entry.lastmod_for_revisit(now) if uses_lastmod and entry.lastmod else ""
            found = (
                (url, next((callback for matches, callback in rules if matches(url)), None), stated)
                for url, stated in ((entry.url, lastmod), *((alternate, "") for alternate in alternates))
            )
            yield [(url, callback, stated) for url, callback, stated in found if callback is not None]

    def _report_empty(self, url: str, entries: int, *, is_robots: bool) -> None:
        """Log why a sitemap yielded no requests, the first time as a warning."""
        if is_robots:
            self.logger.warning("%s names no sitemap", url)
        elif entries:
            level = logging.INFO if self._has_warned else logging.WARNING
            self._has_warned = True
            text = "%s: sitemap_filter, sitemap_follow and sitemap_rules chose none of its %d entries"
            self.logger.log(level, text, url, entries)


def _links(response: Response, urls: list[str], callback: str, lastmod: str) -> Links:
    return response.follow_all(urls, callback, **({"lastmod": lastmod} if lastmod else {}))
