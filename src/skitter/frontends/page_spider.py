"""PageSpider: the spider of ``skitter crawl``, for crawls without any code: one item per page, all links followed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from msgspec.structs import asdict

from skitter.frontends.sitemap_spider import SitemapSpider
from skitter.links import Links

if TYPE_CHECKING:
    from skitter.content.extraction import ContentFormat
    from skitter.response import Response


class PageSpider(SitemapSpider):
    """Yields the URL, status, title, depth, number of links, content type, size and time of each page.

    Follows the links of ``a``, ``area`` and ``frame`` elements, and with ``iframes`` also of ``iframe`` elements.
    ``files``: suffixes such as ``pdf``; links and images that end with them are files of the item, and are not followed.
    ``sitemaps``: URLs of sitemaps whose pages are fetched too; ``auto``: the sitemaps in the robots.txt of each host.
    ``content``: ``markdown`` or ``text``; the item also has the fields of :class:`~skitter.content.extraction.MainContent`.
    """

    name = "pages"

    def __init__(
        self,
        urls: Sequence[str] = (),
        sitemaps: Sequence[str] = (),
        *,
        files: Sequence[str] = (),
        iframes: bool = False,
        content: ContentFormat | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__(**arguments)
        if content is not None:
            from skitter.content.extraction import need_trafilatura  # noqa: PLC0415 - few crawls collect texts

            need_trafilatura()
            self._form = content
            self.parse = self._parse_content  # type: ignore[assignment,method-assign]  # a plain generator is faster, so it is the default
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
                if found := response.css(name):  # faster than a search for their links, and usually empty
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

    async def _parse_content(self, response: Response) -> AsyncIterator[dict[str, Any] | Links]:
        """Do the same as ``parse``, with the main content in the item."""
        found = await response.main_content(self._form)
        if found.content_error is not None:
            self.stats.inc_value("content_errors")
        for result in PageSpider.parse(self, response):
            if isinstance(result, Links):
                yield result
            else:
                yield {**asdict(found), **result, "title": result["title"] or found.title}

    def _is_file(self, url: str) -> bool:
        return urlsplit(url).path.lower().endswith(self._suffixes)
