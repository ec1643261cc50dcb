"""Feeds: the entries of RSS (0.9 to 2.0), Atom (RFC 4287) and JSON Feed (1.0, 1.1), and the rows of CSV files."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec
from lxml import etree

from skitter.errors import SkitterError
from skitter.web.urls import normalize

_XHTML = "http://www.w3.org/1999/xhtml"


class FeedError(SkitterError):
    """A document that is not a feed."""


class FeedEntry(msgspec.Struct, frozen=True):
    """One entry of a feed. Fields that the feed lacks are empty."""

    url: str
    """URL of the page of the entry, absolute."""
    title: str = ""
    id: str = ""
    """Identity of the entry within the feed. It stays when the title or the URL changes."""
    published: str = ""
    """Time of publication, else of the last change: in ISO 8601 and UTC, or as the feed has it if it cannot be read."""
    author: str = ""
    summary: str = ""
    """Summary or content, usually HTML."""
    tags: tuple[str, ...] = ()


def read_feed(body: bytes, url: str) -> Iterator[FeedEntry]:
    """Read a feed. Relative URLs are resolved against ``url``, the address of the feed. Raises :class:`FeedError`."""
    if body.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{":
        return _json_entries(body, url)
    return _xml_entries(body, url)


def _json_entries(body: bytes, url: str) -> Iterator[FeedEntry]:
    try:
        feed = msgspec.json.decode(body.removeprefix(b"\xef\xbb\xbf"))
    except msgspec.DecodeError:
        feed = None
    items = feed.get("items") if isinstance(feed, dict) else None
    if not isinstance(items, list):
        raise _not_a_feed(url)
    for item in items:
        if isinstance(item, dict):
            yield _json_entry(item, url)


def _json_entry(item: dict[str, Any], base: str) -> FeedEntry:
    def text(*names: str) -> str:
        return next((str(item[name]).strip() for name in names if item.get(name)), "")

    authors = item.get("authors") or [item.get("author")]
    names = [str(one.get("name", "")) for one in authors if isinstance(one, dict)]
    tags = item.get("tags")
    return FeedEntry(
        normalize(text("url", "external_url"), base) or "", text("title"), text("id"),
        _time(text("date_published", "date_modified")), ", ".join(filter(None, names)),
        text("content_html", "content_text", "summary"), tuple(map(str, tags)) if isinstance(tags, list) else (),
    )  # fmt: skip


def _xml_entries(body: bytes, url: str) -> Iterator[FeedEntry]:
    parser = etree.XMLPullParser(
        events=("start", "end"), recover=True, resolve_entities=False, no_network=True
    )
    root = None
    for start in range(0, len(body), 1 << 16):
        parser.feed(body[start : start + (1 << 16)])
        for event, element in parser.read_events():
            assert isinstance(element, etree._Element), "only elements have these events"  # noqa: SLF001 - its type
            if root is None:
                root = _name(element)
                if root not in {"rss", "RDF", "feed"}:
                    raise _not_a_feed(url)
            if event == "end" and _name(element) in {"item", "entry"}:
                yield _xml_entry(element, url)
                element.clear()
    if root is None:
        raise _not_a_feed(url)


def _xml_entry(element: etree._Element, base: str) -> FeedEntry:
    found: dict[str, str] = {}
    tags: list[str] = []
    for child in element:
        name = _name(child)
        text = _text(child)
        if name == "link":
            if child.get("rel", "alternate") == "alternate" and (href := child.get("href") or text):
                found.setdefault("link", href)
        elif name == "category":
            tags.append(child.get("term") or text)
        elif name == "guid":
            found["id"] = text
            if child.get("isPermaLink", "true") == "true":
                found["permalink"] = text
        elif text:
            found.setdefault(name, text)

    def first(*names: str) -> str:
        return next((found[name] for name in names if name in found), "")

    return FeedEntry(
        normalize(first("link", "permalink"), base) or "", first("title"), first("id"),
        _time(first("pubDate", "published", "date", "updated")), first("creator", "author"),
        first("encoded", "content", "description", "summary"), tuple(filter(None, tags)),
    )  # fmt: skip


def _text(element: etree._Element) -> str:
    """Return the text of an element: the name of an Atom author, or the markup of XHTML content."""
    if _name(element) == "author":
        element = next((child for child in element if _name(child) == "name"), element)
    if len(element) and isinstance(element[0].tag, str) and element[0].tag.startswith(f"{{{_XHTML}}}"):
        return etree.tostring(element[0], encoding="unicode", with_tail=False)
    return "".join(map(str, element.itertext())).strip()


def _name(element: etree._Element) -> str:
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def _time(text: str) -> str:
    """Return a time of RFC 822 (RSS) or RFC 3339 as ISO 8601 in UTC. A time without a zone counts as UTC."""
    for parse in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            moment = parse(text)
        except (ValueError, OverflowError):
            continue
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        return moment.isoformat()
    return text


def _not_a_feed(url: str) -> FeedError:
    return FeedError(f"{url} is not a feed", remedy="name an RSS, Atom or JSON Feed")


def read_rows(text: str, delimiter: str = "") -> Iterator[dict[str, str]]:
    """Read CSV whose first row names the columns. Rows without any value are skipped.

    ``delimiter``: character between two values; empty: the most frequent one of comma, semicolon, tab and ``|`` in the first
    row. Missing values are empty, and values without a column are dropped.
    """
    lines = text.removeprefix("\ufeff").splitlines(keepends=True)
    head = lines[0] if lines else ""
    reader = csv.DictReader(lines, delimiter=delimiter or max(",;\t|", key=head.count), restval="")
    for row in reader:
        row.pop(None, None)  # the key of surplus values
        if any(row.values()):
            yield {name.strip(): value.strip() for name, value in row.items()}
