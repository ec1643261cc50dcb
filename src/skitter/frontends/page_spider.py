"""PageSpider: the spider of ``skitter crawl``, for crawls without any code: one item per page, all links followed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from skitter.frontends.sitemap_spider import SitemapSpider
from skitter.links import Links

if TYPE_CHECKING:
    from skitter.response import Response


class PageSpider(SitemapSpider):
    """Yields the URL, status, title, depth, number of links, content type, size and time of each page.

    Follows the links of ``a``, ``area`` and ``frame`` elements; with ``iframes``, those of ``iframe`` elements as well.
    ``files``: suffixes such as ``pdf``; links and images that end with them are files of the item, and are not followed.
    ``sitemaps``: URLs of sitemaps whose pages are fetched too; ``auto``: those that the robots.txt of each host names.
    """

    name = "pages"

    def __init__(
        self,
        urls: Sequence[str] = (),
        sitemaps: Sequence[str] = (),
        *,
        files: Sequence[str] = (),
        iframes: bool = False,
        **arguments: Any,
    ) -> None:
        super().__init__(**arguments)
        self.start_urls = urls
        robots = [urljoin(url, "/robots.txt") for url in urls] if "auto" in sitemaps else []
        self.sitemap_urls = [url for url in dict.fromkeys((*sitemaps, *robots)) if url != "auto"]
        self._suffixes = tuple(f".{suffix.lower().lstrip('.')}" for suffix in files)
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
        files: dict[str, Any] = {}
        if self._suffixes:
            links = [*hrefs, *(response.css("img").links() if response.is_html else ())]
            files = {
                "file_urls": [
                    url for url in dict.fromkeys(map(response.urljoin, links)) if self._is_file(url)
                ]
            }
            hrefs = [href for href in hrefs if not self._is_file(response.urljoin(href))]
        yield {
            "url": response.url,
            "status": response.status,
            "title": None if title is None else title.strip(),
            "depth": response.depth,
            "links": len(hrefs),
            "content_type": response.content_type,
            "size": len(response.body),
            "fetched_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            **files,
        }
        if hrefs:
            yield response.follow_all(hrefs)

    def _is_file(self, url: str) -> bool:
        return urlsplit(url).path.lower().endswith(self._suffixes)
