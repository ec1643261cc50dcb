"""A simple reference crawler, whose results can be compared with the results of a crawl.

It crawls breadth first, one request at a time. It uses only the standard library, so it shares no code with the crawler
under test.
"""

from __future__ import annotations

import http.client
from collections import deque
from collections.abc import Callable
from html.parser import HTMLParser
from urllib.parse import urldefrag, urljoin, urlsplit

import msgspec


class ReferencePage(msgspec.Struct, frozen=True):
    """What the reference crawler found at one URL."""

    status: int
    content_type: str
    title: str | None
    """Text of the first ``title`` without surrounding whitespace; ``None`` if there is no HTML or no title."""
    links: int
    """Number of ``a[href]``; 0 if the page is not HTML."""
    size: int
    """Size of the body in bytes."""
    depth: int
    """Number of links and redirects between the start and this page."""


def reference_crawl(
    start: str, *, scope: Callable[[str], bool] | None = None, limit: int = 1_000_000
) -> dict[str, ReferencePage]:
    """Fetch everything that is reachable, and return it by URL (without fragments).

    ``scope`` decides whether an absolute http(s) URL is fetched. By default, URLs with the host and port of ``start`` are
    fetched. Redirects are separate entries; their target is followed like a link. Raises ``RuntimeError`` if more than
    ``limit`` URLs are found, and ``OSError`` if the site fails.
    """
    origin = urlsplit(start).netloc
    in_scope = scope or (lambda url: urlsplit(url).netloc == origin)
    depths = {start: 0}
    waiting = deque([start])
    found: dict[str, ReferencePage] = {}
    connections: dict[str, http.client.HTTPConnection] = {}
    try:
        while waiting:
            url = waiting.popleft()
            found[url], targets = _visit(connections, url, depths[url])
            for target in targets:
                if target not in depths and in_scope(target):
                    depths[target] = depths[url] + 1
                    waiting.append(target)
            if len(depths) > limit:
                raise RuntimeError(f"more than {limit} URLs")
    finally:
        for connection in connections.values():
            connection.close()
    return found


def _visit(
    connections: dict[str, http.client.HTTPConnection], url: str, depth: int
) -> tuple[ReferencePage, list[str]]:
    parts = urlsplit(url)
    connection = connections.setdefault(parts.netloc, http.client.HTTPConnection(parts.netloc, timeout=30))
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection.request("GET", target)
    response = connection.getresponse()
    body = response.read()
    content_type = response.headers.get_content_type()
    reader = _PageReader()
    if content_type == "text/html":
        charset = response.headers.get_content_charset("utf-8")
        reader.feed(body.decode(charset, errors="replace"))
        reader.close()
    page = ReferencePage(response.status, content_type, reader.title, len(reader.hrefs), len(body), depth)
    location = response.headers.get("Location")
    if 300 <= response.status < 400 and location is not None:
        return page, _absolute(url, [location])
    return page, _absolute(urljoin(url, reader.base or ""), reader.hrefs)


def _absolute(base: str, hrefs: list[str]) -> list[str]:
    targets = []
    for href in hrefs:
        try:
            url = urldefrag(urljoin(base, href.strip())).url
            if urlsplit(url).scheme in ("http", "https"):
                targets.append(url)
        except ValueError:  # urllib rejects some malformed hosts
            continue
    return targets


class _PageReader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.hrefs: list[str] = []
        self.base: str | None = None
        self._title: list[str] = []
        self._in_title = False
        self._has_title = False

    @property
    def title(self) -> str | None:
        return "".join(self._title).strip() if self._has_title else None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.hrefs += [value or "" for name, value in attrs if name == "href"][:1]
        elif tag == "base" and self.base is None:
            self.base = dict(attrs).get("href")
        elif tag == "title" and not self._has_title:
            self._in_title = self._has_title = True

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self._title.append(data)
