"""Sitemaps: the pages that a site lists, by the protocol of sitemaps.org.

A sitemap may have 50,000 pages in 50 MB, and is usually compressed. It is decompressed and parsed piece by piece, so the
memory in use does not grow with its size.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain

import msgspec
from lxml import etree

from skitter.errors import SkitterError
from skitter.web.encoding import detect
from skitter.web.feeds import FeedError, base_of, decoded, elements_of, name_of, read_feed, read_rows
from skitter.web.inflate import GZIP_MAGIC, InflateError, Inflater
from skitter.web.urls import normalize

MAX_BYTES = 64 * 1024 * 1024
"""Maximum size of a decompressed sitemap in bytes. The protocol allows 50 MB."""
_PIECE = 1 << 16


class SitemapError(SkitterError):
    """A document that is not a sitemap, or is too large."""


class SitemapEntry(msgspec.Struct, frozen=True):
    """One entry of a sitemap: a page, or a further sitemap of an index."""

    url: str
    is_sitemap: bool = False
    lastmod: str = ""
    """Time of the last change as the site wrote it, normally in W3C format. Empty if absent."""
    changefreq: str = ""
    priority: str = ""
    alternates: dict[str, str] = {}
    """URLs of the same page in other languages, by ``hreflang``."""
    is_publication: bool = False
    """Whether ``lastmod`` is the time of publication, because a feed states no other time."""

    def lastmod_for_revisit(self, now: float) -> str:
        """Return ``lastmod`` for the field of a request.

        Empty for a text that is too long, and for a time of publication, because the page may have changed since. If the time
        is more than a week old, only the date is returned, because pages with the same date share one record.
        """
        lastmod = self.lastmod
        if self.is_publication or len(lastmod) > _MAX_LASTMOD:
            return ""
        is_old = lastmod < _date_of(int(now // 86_400) - _PRECISE_DAYS)
        return lastmod[:10] if is_old and _DATE_AND_TIME.match(lastmod) else lastmod


@lru_cache(maxsize=1)
def _date_of(day: int) -> str:
    return datetime.fromtimestamp(day * 86_400, UTC).date().isoformat()


_PRECISE_DAYS = 7
_MAX_LASTMOD = 64
_DATE_AND_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]", re.ASCII)


def read_sitemap(body: bytes, url: str, content_type: str = "") -> Iterator[SitemapEntry]:
    """Read a sitemap, an index, a feed (RSS, Atom or JSON Feed), or the sitemaps of a robots.txt.

    Also reads a list of URLs (one per line), and a CSV file with a column ``url``, ``link`` or ``loc``.

    All may be compressed with gzip, in UTF-8 or UTF-16, and have a byte order mark. XML may be in any encoding that its
    ``content_type``, the complete header value, or its declaration names. Relative URLs are resolved against ``url``, the
    address of the document. Entries that are read before an error are still yielded. Raises :class:`SitemapError`, and
    :class:`~skitter.errors.PageTooComplex` for a JSON Feed whose values take too much memory.
    """
    found = others = 0
    for entry in _entries(body, url, content_type):
        if entry is not None:
            found += 1
            yield entry
        elif (others := others + 1) > _MAX_OTHERS + found:
            raise SitemapError(
                f"{url} has more than {_MAX_OTHERS:,} entries without a URL",
                remedy="name a sitemap, a feed or a robots.txt",
            )


def _entries(body: bytes, url: str, content_type: str) -> Iterator[SitemapEntry | None]:
    """Read a document. Yield ``None`` for an entry or a line without a URL."""
    pieces = _unpacked(body, url)
    head = next(pieces, b"")
    encoding = _encoding_of(head)
    if url.partition("?")[0].endswith("/robots.txt"):
        yield from _of_robots(_lines(head, pieces, encoding), url)
    elif _text(head, encoding).lstrip().startswith("<"):
        yield from _of_xml(chain((head,), pieces), url, detect(head, content_type))
    elif _text(head, encoding).lstrip().startswith("{"):
        yield from _of_json_feed(b"".join((head, *pieces)), url)
    elif column := _url_column(_text(head, encoding)):
        text = "\n".join(_lines(head, pieces, encoding))
        try:
            for row in read_rows(text):
                yield _of_url(row.get(column, ""), url)
        except FeedError as error:
            raise SitemapError(f"{url}: {error}", remedy=error.remedy) from None
    else:
        for line in _lines(head, pieces, encoding):
            yield _of_url(line, None)


def _unpacked(body: bytes, url: str) -> Iterator[bytes]:
    if not body.startswith(GZIP_MAGIC):
        yield from (body[start : start + _PIECE] for start in range(0, len(body), _PIECE))
        return
    size = 0
    try:
        # The entries of a truncated file are kept, like the entries of truncated XML.
        for piece in Inflater("gzip").feed(body):
            size += len(piece)
            if size > MAX_BYTES:
                raise SitemapError(
                    f"{url} unpacks to more than {MAX_BYTES} bytes",
                    remedy="ask the site to split it: the protocol allows 50 MB",
                )
            yield piece
    except InflateError as error:
        raise SitemapError(f"cannot unpack {url}: {error}", remedy="check the file") from None


def _encoding_of(head: bytes) -> str:
    for mark, encoding in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if head.startswith(mark):
            return encoding
    return "utf-16-le" if head[:4] == b"<\0?\0" else "utf-16-be" if head[:4] == b"\0<\0?" else "utf-8"


def _text(head: bytes, encoding: str) -> str:
    return head[:1024].decode(encoding, "ignore")


def _lines(head: bytes, pieces: Iterator[bytes], encoding: str) -> Iterator[str]:
    """Return the lines of a text, except lines that are too long for a URL."""
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    rest = ""
    for piece in chain((head,), pieces, (b"",)):
        *lines, rest = (rest + decoder.decode(piece, final=not piece)).replace("\r", "\n").split("\n")
        yield from (line.strip() for line in lines if len(line) <= _LONGEST_LINE)
        rest = rest[: _LONGEST_LINE + 1]  # do not copy a long line again with each piece
    if len(rest) <= _LONGEST_LINE:
        yield rest.strip()


def _url_column(head: str) -> str:
    """Return the column of a CSV file that contains URLs; empty for a plain list of URLs."""
    first = head.partition("\n")[0]
    names = [name.strip(' "\r') for name in re.split(r"[,;\t|]", first)]
    return next((name for name in names if name.lower() in {"url", "link", "loc"}), "")


def _of_url(url: str, base: str | None) -> SitemapEntry | None:
    found = normalize(url, base) if url else None
    return SitemapEntry(found) if found is not None and found.startswith(("http://", "https://")) else None


def _of_json_feed(body: bytes, url: str) -> Iterator[SitemapEntry | None]:
    try:
        for entry in read_feed(body, url):
            yield SitemapEntry(entry.url, lastmod=entry.published, is_publication=True) if entry.url else None
    except FeedError as error:
        raise SitemapError(str(error), remedy=error.remedy) from None


def _of_robots(lines: Iterator[str], url: str) -> Iterator[SitemapEntry | None]:
    for line in lines:
        name, _, value = line.partition(":")
        is_sitemap = name.strip().lower() == "sitemap"
        entry = _of_url(value.partition("#")[0].strip(), url) if is_sitemap else None
        yield None if entry is None else SitemapEntry(entry.url, is_sitemap=True)


_MAX_OTHERS = 50_000
"""Maximum number of entries or lines without a URL, in addition to one for each entry with a URL. Other tasks wait while
they are read."""
_LONGEST_LINE = 65_536
"""Maximum number of characters in a line that may contain a URL."""
_ENTRIES = {"url": False, "sitemap": True, "item": False, "entry": False}
"""Elements that describe an entry, and whether it is a further sitemap. The last two belong to RSS and Atom."""
_ROOTS = ("urlset", "sitemapindex", "rss", "RDF", "feed")


def _of_xml(pieces: Iterable[bytes], url: str, encoding: str) -> Iterator[SitemapEntry | None]:
    error = SitemapError(f"{url} is not a sitemap", remedy="name a sitemap, a feed or a robots.txt")
    for element in elements_of(decoded(pieces, encoding), url, _ROOTS, _ENTRIES, error):
        yield _entry(element, url, is_sitemap=_ENTRIES[name_of(element)])


def _entry(element: etree._Element, url: str, *, is_sitemap: bool) -> SitemapEntry | None:
    base = base_of(element, url)
    values: dict[str, str] = {}
    alternates: dict[str, str] = {}
    for child in element:
        name, text = name_of(child), (child.text or "").strip()
        if name == "link":
            href = child.get("href")
            if child.get("rel", "alternate") == "alternate" and href is not None and child.get("hreflang"):
                if (alternate := normalize(href, base)) is not None:
                    alternates[child.get("hreflang", "")] = alternate
            elif text or child.get("rel", "alternate") == "alternate":  # RSS; Atom
                values.setdefault("loc", text or href or "")
        elif name == "guid" and child.get("isPermaLink", "true") == "true":  # RSS
            values["permalink"] = text
        elif text:
            values.setdefault(name, text)
    location = values.get("loc") or values.get("permalink")
    found = normalize(location, base) if location else None
    if found is None or not found.startswith(("http://", "https://")):
        return None
    changed = values.get("lastmod") or values.get("updated", "")
    published = values.get("published") or values.get("pubDate", "")
    return SitemapEntry(
        found, is_sitemap, changed or published, values.get("changefreq", ""), values.get("priority", ""), alternates,
        is_publication=not changed and bool(published),
    )  # fmt: skip
