"""PageSpider: the spider of ``skitter crawl``, for crawls without any code: one item per page, all links followed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from skitter.links import Links
from skitter.spider import Spider

if TYPE_CHECKING:
    from skitter.response import Response


class PageSpider(Spider):
    """Yields the URL, status, title, depth, number of links, content type, size and time of each page.

    Follows the links of ``a``, ``area`` and ``frame`` elements; with ``iframes``, those of ``iframe`` elements as well.
    """

    name = "pages"

    def __init__(self, urls: Sequence[str] = (), *, iframes: bool = False, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.start_urls = urls
        self._others = ("area", "frame", "iframe") if iframes else ("area", "frame")

    def parse(self, response: Response) -> Iterator[dict[str, Any] | Links]:
        """Yield the item of a page, and follow all its links."""
        title, hrefs = None, []
        if response.is_html:
            title = response.css("title::text").get()
            hrefs = response.hrefs("a[href]")
            for name in self._others:
                if found := response.css(name):  # faster than a search for their links, and mostly empty
                    hrefs = [*hrefs, *found.links()]
        yield {
            "url": response.url,
            "status": response.status,
            "title": None if title is None else title.strip(),
            "depth": response.depth,
            "links": len(hrefs),
            "content_type": response.content_type,
            "size": len(response.body),
            "fetched_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        }
        if hrefs:
            yield response.follow_all(hrefs)
