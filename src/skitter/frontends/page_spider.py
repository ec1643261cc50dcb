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
    """Yields the URL, status, title, depth, number of links, content type, size and time of each page."""

    name = "pages"

    def __init__(self, urls: Sequence[str] = (), **arguments: Any) -> None:
        super().__init__(**arguments)
        self.start_urls = urls

    def parse(self, response: Response) -> Iterator[dict[str, Any] | Links]:
        """Yield the item of a page, and follow all its links."""
        title, hrefs = None, 0
        if response.is_html:
            title = response.css("title::text").get()
            hrefs = len(response.hrefs())
        yield {
            "url": response.url,
            "status": response.status,
            "title": None if title is None else title.strip(),
            "depth": response.depth,
            "links": hrefs,
            "content_type": response.content_type,
            "size": len(response.body),
            "fetched_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        }
        if hrefs:
            yield response.follow_all("a[href]")
