"""The site of ``skitter demo``: a book shop, its blog and its slow archive, with the faults of real websites."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import xxhash

from skitter.testing.answer import Answer, ExpectedPage, SiteOfOrigins, Visit
from skitter.testing.server import PortTaken, SiteServer

SHOP, BLOG, ARCHIVE = range(3)

_BOOKS = 96
_BOOKS_PER_PAGE = 12
_POSTS = 24
_POSTS_PER_PAGE = 8
_CATALOGUES = 30
_DELAYS = {SHOP: 0.03, BLOG: 0.02, ARCHIVE: 0.4}
_ROBOTS = {
    SHOP: "User-agent: *\nDisallow: /basket/\n",
    BLOG: "User-agent: *\nCrawl-delay: 0.2\n",
}
_GENRES = ("crime", "poetry", "history", "travel", "science", "children")
_NOUNS = ("Lighthouse", "Orchard", "Clockmaker", "Café", "Glacier", "Archive", "Señora", "Violin", "Harbour")
_ADJECTIVES = ("Silent", "Last", "Crooked", "Borrowed", "Northern", "Unwritten", "Second", "Salt & Honey")


DemoLink = tuple[str, str | tuple[int, str]]
"""Text and target: a path of the same origin, or the index of an origin and a path."""


class DemoPage(NamedTuple):
    """A page before it is rendered as HTML."""

    title: str
    links: list[DemoLink]
    text: str = ""


class DemoSite(SiteOfOrigins):
    """Needs a server with three origins: shop, blog and archive (see :func:`demo_server`).

    The shop disallows ``/basket/``, the blog asks for 0.2 s between requests, and the archive takes 0.4 s to respond.
    Old URLs redirect, some links are dead, two pages fail once and one page always fails. The shop sends an ``ETag`` and
    answers 304; ``POST /sale`` begins a sale that changes three books. ``pace`` multiplies the response times; with 0,
    the site responds at once.
    """

    origins_needed = 3

    def __init__(self, pace: float = 1.0) -> None:
        self._pace = pace
        self._pages = dict((*_shop_pages(), *_blog_pages(), *_archive_pages()))
        self._visits: Counter[tuple[int, str]] = Counter()
        self._is_sale = False

    def __call__(self, visit: Visit) -> Answer:
        """Answer one request."""
        origin, path = visit.origin_index, visit.target
        delay = _DELAYS[origin] * self._pace
        if path == "/robots.txt" and origin in _ROBOTS:
            return Answer(_ROBOTS[origin].encode(), content_type="text/plain")
        self._visits[origin, path] += 1
        is_first = self._visits[origin, path] == 1
        if (origin, path) in _BROKEN or (is_first and (origin, path) in _SHAKY):
            return Answer(b"<title>Sorry</title>", status=500, delay=delay)
        if (origin, path) in _REDIRECTS:
            return Answer(status=301, headers={"Location": _REDIRECTS[origin, path]}, delay=delay)
        self._is_sale |= (visit.method, origin, path) == ("POST", SHOP, "/sale")
        page = self._pages.get((origin, path))
        if page is None:
            return Answer(b"<title>Not found</title>", status=404, delay=delay)
        return self._page(page, visit, delay)

    def _page(self, page: DemoPage, visit: Visit, delay: float) -> Answer:
        origin = visit.origin_index
        if self._is_sale and (origin, visit.target) in _ON_SALE:
            page = page._replace(text=f"Half price! {page.text}")
        body = _render(page, visit.origins)
        if origin != SHOP:
            return Answer(body, delay=delay)
        etag = f'"{xxhash.xxh3_64_hexdigest(body)}"'
        if visit.headers.get("if-none-match") == etag:
            return Answer(status=304, content_type=None, delay=delay)
        return Answer(body, headers={"ETag": etag}, delay=delay)

    def expected_pages(self, origins: Sequence[str]) -> dict[str, ExpectedPage]:
        """Return every page that a crawler must get if it obeys robots.txt."""
        return {
            _url(key, origins): ExpectedPage(page.title, len(page.links))
            for key, page in self._pages.items()
            if key not in _BROKEN and not _forbidden(key)
        }

    def failures(self, origins: Sequence[str]) -> dict[str, int]:
        """Return every URL that cannot be fetched, with its status."""
        gone = {_url(key, origins): 404 for key in _GONE}
        return gone | {_url(key, origins): 500 for key in _BROKEN}

    def forbidden(self, origins: Sequence[str]) -> set[str]:
        """Return every page that robots.txt disallows."""
        return {_url(key, origins) for key in self._pages if _forbidden(key)}

    def redirects(self, origins: Sequence[str]) -> set[str]:
        """Return every URL that responds with a redirect."""
        return {_url(key, origins) for key in _REDIRECTS}


def demo_server(site: DemoSite, port: int = 0) -> SiteServer:
    """Create the server of the demo, not yet started: three hosts, or three ports if only 127.0.0.1 exists.

    With ``port=0``, it uses a free port.
    """
    server = SiteServer(site, hosts=3, port=port)
    try:
        with server:
            pass
    except PortTaken:
        return SiteServer(site, ports=3, port=port)
    return SiteServer(site, hosts=3, port=port)


_SHAKY = {(SHOP, "/book/17"), (BLOG, "/post/5")}
_BROKEN = {(SHOP, "/book/66")}
_GONE = {(SHOP, "/book/gone"), (BLOG, "/post/withdrawn")}
_ON_SALE = {(SHOP, f"/book/{number}") for number in (7, 8, 9)}
_REDIRECTS = {(SHOP, f"/old/{number}.php"): f"/book/{number}" for number in range(0, _BOOKS, 8)}


def _shop_pages() -> Iterator[tuple[tuple[int, str], DemoPage]]:
    genres: list[DemoLink] = [(genre, f"/genre/{genre}") for genre in _GENRES]
    outside: list[DemoLink] = [("Blog", (BLOG, "/")), ("Archive", (ARCHIVE, "/"))]
    front = [*genres, *outside, ("All books", "/books/1"), ("Your basket", "/basket/")]
    yield (SHOP, "/"), DemoPage("The Crooked Shelf — books, old & new", front)
    yield (SHOP, "/basket/"), DemoPage("Your basket", [("Pay", "/basket/pay"), ("Home", "/")])
    yield (SHOP, "/basket/pay"), DemoPage("Pay", [("Home", "/")])
    for number in range(_BOOKS):
        near = [("Similar", f"/book/{(number + step) % _BOOKS}") for step in (len(_GENRES), 31)]
        fixed = [("Home", "/"), (_genre(number), f"/genre/{_genre(number)}"), ("Buy", "/basket/")]
        blurb = f"{120 + number * 7 % 400} pages, {8 + number * 3 % 20}.90 €. " + "Readers praise it. " * 20
        yield (SHOP, f"/book/{number}"), DemoPage(_book(number), [*near, *fixed], blurb)
    for genre in _GENRES:
        books = [number for number in range(_BOOKS) if _genre(number) == genre]
        page = DemoPage(f"{genre.capitalize()} books", [*_books(books), ("Home", "/")])
        yield (SHOP, f"/genre/{genre}"), page
    last = _BOOKS // _BOOKS_PER_PAGE
    for index in range(1, last + 1):
        shown = range((index - 1) * _BOOKS_PER_PAGE, index * _BOOKS_PER_PAGE)
        pager = [
            (f"Page {other}", f"/books/{other}") for other in (index - 1, index + 1) if 1 <= other <= last
        ]
        dead = [("A rare book", "/book/gone")] if index == 2 else []
        yield (SHOP, f"/books/{index}"), DemoPage(f"All books, page {index}", [*_books(shown), *pager, *dead])


def _blog_pages() -> Iterator[tuple[tuple[int, str], DemoPage]]:
    last = _POSTS // _POSTS_PER_PAGE
    for index in range(1, last + 1):
        shown = range((index - 1) * _POSTS_PER_PAGE, index * _POSTS_PER_PAGE)
        posts: list[DemoLink] = [(f"Post {number}", f"/post/{number}") for number in shown]
        older: list[DemoLink] = (
            [("Older posts", f"/page/{index + 1}")] if index < last else [("Shop", (SHOP, "/"))]
        )
        path = "/" if index == 1 else f"/page/{index}"
        yield (BLOG, path), DemoPage(f"Notes from the shelf, page {index}", [*posts, *older])
    for number in range(_POSTS):
        links: list[DemoLink] = [("The book", (SHOP, f"/old/{number // 2 * 8}.php")), ("Blog", "/")]
        dead = [("A withdrawn post", "/post/withdrawn")] if number == 3 else []
        yield (BLOG, f"/post/{number}"), DemoPage(f"What we read in week {number + 1}", [*links, *dead])


def _archive_pages() -> Iterator[tuple[tuple[int, str], DemoPage]]:
    years: list[DemoLink] = [
        (f"Catalogue of {1990 + number}", f"/{1990 + number}") for number in range(_CATALOGUES)
    ]
    yield (ARCHIVE, "/"), DemoPage("Archive of catalogues", [*years, ("Shop", (SHOP, "/"))])
    for number in range(_CATALOGUES):
        links: list[DemoLink] = [("Archive", "/"), ("In print", (SHOP, f"/book/{number}"))]
        yield (ARCHIVE, f"/{1990 + number}"), DemoPage(f"Catalogue of {1990 + number}", links)


def _genre(number: int) -> str:
    return _GENRES[number % len(_GENRES)]


def _book(number: int) -> str:
    return f"The {_ADJECTIVES[number % len(_ADJECTIVES)]} {_NOUNS[number % len(_NOUNS)]}"


def _books(numbers: Sequence[int]) -> list[DemoLink]:
    return [(_book(number), f"/book/{number}") for number in numbers]


def _forbidden(key: tuple[int, str]) -> bool:
    return key[0] == SHOP and key[1].startswith("/basket/")


def _url(key: tuple[int, str], origins: Sequence[str]) -> str:
    return f"http://{origins[key[0]]}{key[1]}"


def _render(page: DemoPage, origins: Sequence[str]) -> bytes:
    title = html.escape(page.title)
    anchors = "\n".join(
        f'<li><a href="{target if isinstance(target, str) else _url(target, origins)}">{html.escape(text)}</a></li>'
        for text, target in page.links
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>\n'
        f"<body><h1>{title}</h1>\n<p>{html.escape(page.text)}</p>\n<ul>\n{anchors}\n</ul></body></html>\n"
    ).encode()
