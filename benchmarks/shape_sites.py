"""The sites of shapes.py: pages of one kind each, as files for nginx."""

import gzip
import html
import random
from pathlib import Path
from typing import NamedTuple

import brotli

LINKS = 48
FIELDS = 20
ROWS = 30
_WORDS = [
    "amber",
    "brook",
    "cedar",
    "delta",
    "ember",
    "frost",
    "grove",
    "harbor",
    "island",
    "juniper",
    "kelp",
    "lantern",
    "meadow",
    "north",
]
_PER_FOLDER = 250


class Site(NamedTuple):
    """How many pages a site has, and what is on them."""

    pages: int
    body_bytes: int = 20_000
    links: int = LINKS
    extras: bool = True
    """Whether each page has fields and a table of rows."""
    same_body: bool = False
    """Whether all pages but the first have one body, so that a large site takes little disk."""
    new_links: int = 0
    """Links of each page but the first to URLs that no other page links, and that the crawl ends before."""
    encoding: str = ""


SITES = {
    "page": Site(4_000),
    "gzip": Site(4_000, encoding="gzip"),
    "brotli": Site(4_000, encoding="br"),
    "tiny": Site(8_000, body_bytes=1_000, links=10, extras=False),
    "large": Site(600, body_bytes=1_000_000, extras=False, same_body=True),
    "large links": Site(400, body_bytes=1_000_000, links=14_000, extras=False, same_body=True),
    "hub": Site(600, body_bytes=100_000, links=2_000, extras=False, same_body=True),
    "hub new": Site(50, body_bytes=100_000, links=0, extras=False, new_links=2_000),
}


def path_of(number):
    """Return the path of a page."""
    return f"/p/{number // _PER_FOLDER}/page-{number}.html" if number else "/"


def title_of(site, number):
    """Return the title of a page."""
    return "Same page" if site.same_body and number else f"Page {number} & more"


def write_site(site, folder):
    """Write the pages of a site as files."""
    filler = " ".join(random.Random(1).choices(_WORDS, k=300_000))
    numbers = range(2) if site.same_body else range(site.pages)
    for number in numbers:
        body = _body(site, number, filler).encode()
        if site.encoding == "gzip":
            body = gzip.compress(body, 6)
        elif site.encoding == "br":
            body = brotli.compress(body, quality=5)
        name = "same.html" if site.same_body and number else path_of(number).lstrip("/") or "index.html"
        file = Path(folder, name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(body)


def _body(site, number, filler):
    rng = random.Random(number)
    targets = _targets(site, number, rng)
    parts = [
        f'<!DOCTYPE html>\n<html><head><meta charset="utf-8"><title>{html.escape(title_of(site, number))}</title>',
        f"</head><body><h1>Page {number}</h1>",
    ]
    if site.extras:
        parts += (
            f'<div class="field"><b>Field {index}</b> <span class="f{index}">{rng.choice(_WORDS)} {index}</span></div>'
            for index in range(FIELDS)
        )
        parts.append('<table class="rows">')
        parts += (
            f'<tr class="row"><td class="name">{rng.choice(_WORDS)} {index}</td><td class="price">{rng.random() * 99:.2f}</td>'
            f'<td class="size" data-size="{index}">{rng.randrange(99)} cm</td></tr>'
            for index in range(ROWS)
        )
        parts.append("</table>")
    links = [f'<a href="{target}">Next</a>' for target in targets]
    left = max(0, site.body_bytes - sum(map(len, parts)) - sum(map(len, links)) - 8 * len(links))
    size = left // max(1, len(links))
    for link in links or [""]:
        start = rng.randrange(len(filler) - size)
        parts.append(f"{link}<p>{filler[start : start + size]}</p>" if size else link)
    parts.append("</body></html>\n")
    return "\n".join(parts)


def _targets(site, number, rng):
    """Return the hrefs of a page: every page is reachable, and most links are known."""
    if number == 0 and (site.same_body or site.new_links):
        return [path_of(other) for other in range(1, site.pages)]
    if site.new_links:
        return [f"/new/{number}/page-{index}.html" for index in range(site.new_links)]
    if site.same_body:
        return [path_of(1 + index % (site.pages - 1)) for index in range(site.links)]
    children = [other for other in range(4 * number + 1, 4 * number + 5) if other < site.pages]
    known = [rng.randrange(site.pages) for _ in range(site.links - len(children))]
    return [_href(number, other) for other in (*children, *known)]


def _href(number, other):
    """Return a link that is relative to the page where it can be."""
    if number and other and number // _PER_FOLDER == other // _PER_FOLDER:
        return f"page-{other}.html"
    return path_of(other)
