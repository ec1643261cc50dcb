"""A site with common faults of the web, and the expected results of a crawl."""

import hashlib
import html
from collections import Counter
from typing import NamedTuple

from sites.cases import Case, Reason
from sites.charsets import CHARSETS
from sites.faults import BIG, FAULTS, good
from sites.redirects import ASTRAY, LED_ASTRAY, LINKED, TARGETS, redirect
from sites.unusual_links import BINARIES, BINARY_BODY, NOT_FOR_CRAWLERS, ODD_LINKS, TOO_LONG, UNPARSABLE
from skitter.testing import Answer

READ_TIMEOUT = 3.0
TOTAL_TIMEOUT = 10.0
RETRIES = 2
BODY_LIMIT = 64_000_000
"""The expected results assume a crawler with these settings, a ``concurrency_per_slot`` of at least 16, and no delay."""

_PER_LIST = 25


class Truth(NamedTuple):
    pages: dict[str, str | None]
    """URL and exact title of all pages that must be in the output once. The title is ``None`` if the page is not HTML."""
    dead: dict[str, Reason]
    """URL and reason of the expected dead letters."""
    dead_one_of: list[tuple[frozenset[str], Reason]]
    """Exactly one URL of each set must be a dead letter."""
    faults: dict[str, str]
    """URL and name of the fault, for messages."""


class FaultySite:
    """Needs a server with two hosts. It counts the visits of each path, so each crawl needs a new instance.

    ``/`` links to lists, and lists link to pages. Each page that can be fetched is the only link to its leaf, so that a
    missing leaf shows a page that was read wrongly. A crawler must never request ``/decoy/``.
    """

    def __init__(self, plain_pages=100):
        self.visits = Counter()
        self._faults = _deal_out(plain_pages)

    def __call__(self, visit):
        self.visits[visit.target] += 1
        kind = visit.path.split("/")[1]
        if kind == "p" and visit.path in self._faults:
            return self._faulty_page(visit)
        if kind == "r":
            return redirect(visit.path, visit.origins) or _MISSING
        if visit.path in BINARIES:
            return Answer(BINARY_BODY, content_type=BINARIES[visit.path])
        page = self._clean_page(visit)
        return _MISSING if page is None else Answer(page.encode())

    def expected_pages(self, origins, body_limit=BODY_LIMIT):
        """The expected results of a crawl from ``/`` over both hosts."""
        paths = ["/", *self._lists(), *ODD_LINKS.values()]
        pages = {path: _title_of(path) for path in paths}
        pages |= dict.fromkeys(BINARIES)
        pages |= {f"/target/{name}.html": f"Target {name}" for name in TARGETS if name != "other-host"}
        dead = {}
        for path, name in self._faults.items():
            fault = _ALL[name]
            reason = fault.dead
            if name == "30 MB" and body_limit < BIG:
                reason = Reason(kinds=frozenset({"too_large"}))
            if reason is None:
                pages |= {path: self._title(path), f"/leaf{path}": f"Leaf {path}"}
            else:
                dead[path] = reason

        def url(path):
            return f"http://{origins[0]}{path}"

        titles = {url(path): title for path, title in pages.items()}
        titles[f"http://{origins[1]}/target/other-host.html"] = "Target other-host"
        return Truth(
            pages=titles,
            dead={url(path): reason for path, reason in dead.items()},
            dead_one_of=[(frozenset(map(url, group)), LED_ASTRAY) for group in ASTRAY],
            faults={url(path): name for path, name in self._faults.items()},
        )

    def _faulty_page(self, visit):
        case = _ALL[self._faults[visit.path]]
        links = [f"/leaf{visit.path}", "/"]
        page = _render(self._title(visit.path), links)
        return case.answer(visit, self.visits[visit.target], page)

    def _title(self, path):
        _case, words = CHARSETS.get(self._faults[path], (None, "naïve — page"))
        return f"{words} {path}"

    def _lists(self):
        paths = list(self._faults)
        return {
            f"/list/{start // _PER_LIST}.html": paths[start : start + _PER_LIST]
            for start in range(0, len(paths), _PER_LIST)
        }

    def _clean_page(self, visit):
        target = visit.target
        if target == "/":
            return _render(_title_of("/"), self._front_links(visit.origins[0]), escape=False)
        if target in self._lists():
            return _render(_title_of(target), self._lists()[target])
        if target in ODD_LINKS.values():
            return _render(_title_of(target), ["/"])
        name = target.removeprefix("/target/").removesuffix(".html")
        if name in TARGETS and (name == "other-host") == (visit.origin_index == 1):
            return _render(f"Target {name}", [f"http://{visit.origins[0]}/"])
        path = target.removeprefix("/leaf")
        return _render(f"Leaf {path}", ["/"]) if path != target and path in self._faults else None

    def _front_links(self, origin):
        odd = [href.format(origin=origin) for href in ODD_LINKS]
        unwanted = map(html.escape, [*UNPARSABLE, *NOT_FOR_CRAWLERS, TOO_LONG, "", "#", "   "])
        return [*self._lists(), *LINKED, *BINARIES, *odd, *unwanted]


_ALL = {**FAULTS, **{name: case for name, (case, _words) in CHARSETS.items()}, "none": Case(good)}
_MISSING = Answer(b"<title>Not found</title>", status=404)


def _deal_out(plain_pages):
    """Assign a fault to each page by the hash of its path."""
    hand = [name for name, case in _ALL.items() if name != "none" for _ in range(case.pages)]
    hand += ["none"] * plain_pages
    paths = [f"/p/{number}.html" for number in range(len(hand))]
    by_hash = sorted(paths, key=lambda path: hashlib.blake2b(path.encode()).digest())
    return dict(sorted(zip(by_hash, hand, strict=True)))


def _title_of(path):
    return f"The page at {path}"


def _render(title, hrefs, escape=True):
    anchors = "\n".join(f'<a href="{html.escape(href) if escape else href}">link</a>' for href in hrefs)
    return (
        f"<!DOCTYPE html><html><head><title>{html.escape(title)}</title></head><body>\n{anchors}\n"
        '<!-- <a href="/decoy/comment.html"> --><script>"<a href=\'/decoy/script.html\'>"</script>'
        "</body></html>"
    )
