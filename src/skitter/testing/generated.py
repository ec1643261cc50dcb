"""A generated website of any size, with known URLs, titles and link counts."""

from __future__ import annotations

import html
import random
from collections.abc import Sequence
from functools import cached_property

from skitter.errors import UsageError
from skitter.testing.answer import Answer, ExpectedPage, SiteOfOrigins, Visit

FANOUT = 4
"""Number of children of each page in the tree that makes every page reachable."""

_SECTIONS = 20
_WORDS = [
    "amber", "brook", "cedar", "delta", "ember", "frost", "grove", "harbor", "island", "juniper", "kelp", "lantern",
    "meadow", "north",
]  # fmt: skip
_FIXED = (
    '<a href="#top">Top</a>',
    '<a href="mailto:editor@outside.invalid">Write to us</a>',
    '<a href="javascript:void(0)">Menu</a>',
    '<a href="http://outside.invalid/page?from=here">Elsewhere</a>',
    '<a href="https://outside.invalid/">Elsewhere, safely</a>',
)
_DECOYS = """<!-- <a href="/decoy/comment.html">not a link</a> -->
<script>const text = "<a href='/decoy/script.html'>not a link</a>";</script>
<a name="top">not a link either</a>"""


class GeneratedSite(SiteOfOrigins):
    """Pages that differ from each other, but are the same in every run.

    ``pages``
        Number of pages on all hosts together.
    ``hosts``
        Number of hosts. Page *i* belongs to origin *i* modulo ``hosts`` of the server.
    ``seed``
        Seed of the random generator. Another seed produces different links, texts and titles.
    ``links_per_page``
        Number of ``a[href]`` on each page, at least 12: relative, absolute and with fragments, many to pages that were
        linked before, a few out of scope, ``mailto:`` or ``javascript:``.
    ``page_bytes``
        Mean size of a page in bytes; single pages differ by up to a quarter.

    One page in ten has a URL with a query, and does not exist without it. Every page is reachable from ``/`` of the
    first host. Links in a comment and in a script string lead to ``/decoy/``, which returns 404.

    The constructor raises :class:`~skitter.errors.UsageError` for fewer than 12 links per page.
    """

    def __init__(
        self,
        pages: int = 5000,
        hosts: int = 1,
        seed: int = 1,
        links_per_page: int = 50,
        page_bytes: int = 20_000,
    ) -> None:
        if links_per_page < FANOUT + len(_FIXED) + 3:
            raise UsageError(
                f"links_per_page must be at least 12 (got {links_per_page})",
                remedy="ask for 12 or more links",
                field="links_per_page",
            )
        self.pages = pages
        self.hosts = hosts
        self.origins_needed = hosts
        self.links_per_page = links_per_page
        self._seed = seed
        self._page_bytes = page_bytes

    def __call__(self, visit: Visit) -> Answer:
        """Return the page with the requested URL, or 404."""
        number = self._number_of(visit)
        if number is None:
            return Answer(b"<title>Not found</title>", status=404)
        return Answer(self.body(number, visit.origins))

    def expected_pages(self, origins: Sequence[str]) -> dict[str, ExpectedPage]:
        """Return every page by its URL, for a server with these origins."""
        return {
            self.url(number, origins): ExpectedPage(self.title(number), self.links_per_page)
            for number in range(self.pages)
        }

    def url(self, number: int, origins: Sequence[str]) -> str:
        """Return the absolute URL of a page."""
        return f"http://{origins[number % self.hosts]}{target_of(number)}"

    def title(self, number: int) -> str:
        """Return the title of a page. It contains characters that HTML must escape, and characters outside ASCII."""
        word = _WORDS[(number * 7 + self._seed) % len(_WORDS)]
        return f"{word.capitalize()} & Söhne — page {number}"

    def body(self, number: int, origins: Sequence[str]) -> bytes:
        """Return the HTML of a page."""
        rng = random.Random(self._seed * 1_000_003 + number)
        title = html.escape(self.title(number))
        home = f'<a href="{self._plain_href(number, 0, origins)}">Home</a>'
        children = range(number * FANOUT + 1, min((number + 1) * FANOUT + 1, self.pages))
        links = [home, *_FIXED]
        links += [f'<a href="{self._plain_href(number, child, origins)}">Go on</a>' for child in children]
        links += self._random_links(number, origins, rng, self.links_per_page - len(links))
        rng.shuffle(links)
        parts = [
            f'<!DOCTYPE html>\n<html><head><meta charset="utf-8"><title>{title}</title></head><body>',
            f"<h1>{title}</h1>",
            _DECOYS,
        ]
        size = self._page_bytes * rng.uniform(0.75, 1.25)
        text_size = max(0, int(size - sum(map(len, parts)) - sum(map(len, links))) // len(links) - 8)
        filler, spare = self._filler, len(self._filler) - text_size
        for link in links:
            start = rng.randrange(spare)
            parts.append(f"{link}\n<p>{filler[start : start + text_size]}</p>")
        parts.append("</body></html>\n")
        return "\n".join(parts).encode()

    @cached_property
    def _filler(self) -> str:
        rng = random.Random(self._seed)
        return " ".join(rng.choices(_WORDS, k=self._page_bytes // 5 + 1000))

    def _number_of(self, visit: Visit) -> int | None:
        digits = "".join(filter(str.isdigit, visit.path.rpartition("/")[2])) or "0"
        number = int(digits) if len(digits) < 12 else self.pages
        known = number < self.pages and target_of(number) == visit.target
        return number if known and visit.origin_index == number % self.hosts else None

    def _random_links(self, number: int, origins: Sequence[str], rng: random.Random, count: int) -> list[str]:
        hrefs: list[str] = []
        for _ in range(count):
            if len(hrefs) > 3 and rng.random() < 0.15:
                hrefs.append(rng.choice(hrefs))
            else:
                hrefs.append(self._any_href(number, rng.randrange(self.pages), origins, rng.random()))
        return [f'<a href="{href}">See also</a>' for href in hrefs]

    def _plain_href(self, source: int, target: int, origins: Sequence[str]) -> str:
        same_host = source % self.hosts == target % self.hosts
        return target_of(target) if same_host else self.url(target, origins)

    def _any_href(self, source: int, target: int, origins: Sequence[str], choice: float) -> str:
        """Return a link in one of the forms that real pages use."""
        href = self._plain_href(source, target, origins)
        if choice < 0.5:
            return href
        if choice < 0.6:
            return f"{href}#part-{target % 5}"
        if choice < 0.7 or href[0] != "/":
            return self.url(target, origins)
        if choice < 0.72:
            return self.url(target, origins).removeprefix("http:")
        if choice < 0.74:
            return f"/s0/..{href}"
        # The sections are below the front page, and next to the folders of all other pages.
        return href[1:] if source == 0 else f"..{href}"


def target_of(number: int) -> str:
    """Return path and query of a page."""
    if number == 0:
        return "/"
    section = number % _SECTIONS
    if number % 10 == 7:
        return f"/s{section}/view{number}.html?id={number}"
    return f"/s{section}/p{number}.html"
