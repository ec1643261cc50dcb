"""Feeds: the entries of RSS (0.9 to 2.0), Atom (RFC 4287) and JSON Feed (1.0, 1.1), and the rows of CSV files."""

from __future__ import annotations

import codecs
import csv
import io
import logging
import re
from collections.abc import Container, Iterable, Iterator
from datetime import UTC, datetime
from html.entities import html5
from itertools import chain
from typing import Any

import msgspec
from lxml import etree

from skitter.errors import SkitterError
from skitter.html.limits import DEFAULT_MEMORY, check_json
from skitter.web.encoding import detect
from skitter.web.headers import parse_date
from skitter.web.urls import normalize

log = logging.getLogger("skitter.crawl")

_XHTML = "http://www.w3.org/1999/xhtml"


class FeedError(SkitterError):
    """A document that is not a feed."""


class FeedEntry(msgspec.Struct, frozen=True):
    """One entry of a feed. Fields that the feed lacks are empty."""

    url: str
    """URL of the page of the entry, absolute. Empty without an http or https URL."""
    title: str = ""
    id: str = ""
    """Identity of the entry within the feed. It stays the same when the title or the URL changes."""
    published: str = ""
    """Time of publication, otherwise of the last change, in ISO 8601 and UTC. An invalid time is unchanged from the feed."""
    author: str = ""
    summary: str = ""
    """Summary or content, usually HTML."""
    tags: tuple[str, ...] = ()


def read_feed(body: bytes, url: str, encoding: str = "") -> Iterator[FeedEntry]:
    """Read a feed. Relative URLs are resolved against ``url``, the address of the feed.

    ``encoding``: Python codec of an XML feed; empty: the one that its beginning states or shows.

    Raises :class:`FeedError`, and :class:`~skitter.errors.PageTooComplex` for a JSON Feed whose values take too much memory.
    """
    if body.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{":
        return _json_entries(body, url)
    return _xml_entries(body, url, encoding or detect(body))


def _json_entries(body: bytes, url: str) -> Iterator[FeedEntry]:
    # This memory is used in addition to two bodies of 64 MB, compressed and decompressed.
    check_json(body, DEFAULT_MEMORY // 2, is_fixed=True)
    try:
        feed = msgspec.json.decode(body.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
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

    authors = item.get("authors")
    if not isinstance(authors, list):
        authors = [item.get("author")]
    names = [str(author.get("name") or "") for author in authors if isinstance(author, dict)]
    tags = item.get("tags")
    return FeedEntry(
        _page_url(text("url", "external_url"), base), text("title"), text("id"),
        _time(text("date_published", "date_modified")), ", ".join(filter(None, names)),
        text("content_html", "content_text", "summary"), tuple(map(str, filter(None, tags))) if isinstance(tags, list) else (),
    )  # fmt: skip


def _page_url(href: str, base: str) -> str:
    found = normalize(href, base)
    return found if found is not None and found.startswith(("http://", "https://")) else ""


def decoded(pieces: Iterable[bytes], encoding: str) -> Iterator[str]:
    """Decode text that arrives in pieces with a Python codec, without a byte order mark. Invalid bytes become U+FFFD."""
    decoder = (codecs.lookup(encoding).incrementaldecoder or codecs.getincrementaldecoder("utf-8"))("replace")
    texts = (decoder.decode(piece, not piece) for piece in chain(pieces, (b"",)))
    found = filter(None, texts)
    yield next(found, "").removeprefix("\ufeff")
    yield from found


def elements_of(
    texts: Iterable[str], url: str, roots: Container[str], wanted: Container[str], error: SkitterError
) -> Iterator[etree._Element]:
    """Yield the complete elements with the ``wanted`` names from XML that arrives in pieces, whatever encoding it declares.

    Each element is freed after it was yielded. Raises ``error`` if the root is not one of ``roots``, or if there are more
    than 50,000 elements inside of or before a wanted element, because they would fill the memory. Logs a warning if the
    document is damaged so that elements may be missing. ``url``: address of the document, for the warning.
    """
    parser = etree.XMLPullParser(
        events=("start", "end"),
        recover=True,
        resolve_entities=False,
        no_network=True,
        huge_tree=False,
        encoding="utf-8",
    )
    unread = found = depth = 0
    is_known = False
    for text in _repaired(texts):
        parser.feed(text.encode("utf-8", "replace"))
        for event, element in parser.read_events():
            assert isinstance(element, etree._Element), "only elements have these events"  # noqa: SLF001 - its type
            is_known = is_known or name_of(element) in roots
            if not is_known:
                raise error
            depth += 1 if event == "start" else -1
            if event == "start":
                unread += 1
                if unread > _MAX_UNREAD:
                    raise error
            elif name_of(element) in wanted:
                found += 1
                yield element
                element.clear()
                parent = element.getparent()
                while parent is not None and element.getprevious() is not None:
                    del parent[0]  # free the preceding elements
                unread = 0
    if not is_known:
        raise error
    mistakes = [entry for entry in parser.feed_error_log if entry.type_name in _STRUCTURE]
    if depth or mistakes:
        reason = f"{mistakes[0].message}, line {mistakes[0].line}" if mistakes else "its end is missing"
        log.warning("%s is damaged (%s); entries after the first %d may be missing", url, reason, found)


_MAX_UNREAD = 50_000
_STRUCTURE = frozenset({"ERR_TAG_NAME_MISMATCH", "ERR_DOCUMENT_END"})
"""Mistakes after which libxml2 may take the rest of a document for text after its end."""


def repaired_xml(text: str) -> str:
    """Return XML whose mistakes in the text between its tags do not change the rest of the document.

    After the first mistake in a document, libxml2 drops every reference with a name, so ``a=1&amp;b=2`` becomes ``a=1b=2``.
    References therefore get numbers, which libxml2 keeps: also the names of HTML, such as ``&nbsp;``. A ``&`` or ``<`` that
    begins neither a reference nor markup is escaped. CDATA sections, comments and processing instructions stay as they are,
    and so does a document that declares entities of its own.
    """
    return "".join(_repaired((text,)))


def _repaired(pieces: Iterable[str]) -> Iterator[str]:
    rest, end, kept, declares = "", "", 0, None
    for piece in chain(filter(None, pieces), ("",)):
        text, at = rest + piece, 0
        if declares is None:
            declares = "<!ENTITY" in text
        if declares:
            yield text
            continue
        while True:
            if end:  # within a section that stays as it is
                until = text.find(end, at)
                if until < 0:
                    kept = max(at, len(text) - len(end) + 1) if piece else len(text)
                    yield text[at:kept]
                    break
                until += len(end)
                yield text[at:until]
                at, end = until, ""
                continue
            section = _SECTION(text, at)
            if section is None:
                kept = _end_of_complete(text, at) if piece else len(text)
                yield _with_numbers(text[at:kept])
                break
            yield _with_numbers(text[at : section.start()])
            at, end = section.start(), _END_OF[section[0]]
        rest = text[kept:]


_END_OF = {"<![CDATA[": "]]>", "<!--": "-->", "<?": "?>"}
_SECTION = re.compile(r"<[!?](?:(?<=\?)|--|\[CDATA\[)").search  # faster than three alternatives
_LONGEST_REFERENCE = 40
"""Maximum number of characters of a reference. The longest name of HTML has 31."""
_PREDEFINED = {"&amp;": "&#38;", "&lt;": "&#60;", "&gt;": "&#62;", "&quot;": "&#34;", "&apos;": "&#39;"}
_OTHER = re.compile(r"&(?!#)(?:([A-Za-z][A-Za-z0-9]*);)?")
"""References with a name, and a ``&`` that begins none."""
_STRAY = re.compile(r"<(?![A-Za-z_:/!?\x80-\U0010ffff])")
_MAX_STRAY = 200_000
"""Number of characters to escape in a piece. A piece with more is not XML, and each takes up to nine bytes more."""


def _end_of_complete(text: str, start: int) -> int:
    """Return where a reference or a tag begins that the next piece may continue; the length of the text if none does."""
    last = max(text.rfind(sign, max(start, len(text) - _LONGEST_REFERENCE)) for sign in "&<")
    return len(text) if last < 0 else last


def _with_numbers(text: str) -> str:
    if "&" in text:
        plain = text
        for name, number in _PREDEFINED.items():
            plain = plain.replace(name, number)
        others = plain.count("&") - plain.count("&#")
        if others > _MAX_STRAY:
            return text
        text = _OTHER.sub(_number_of, plain) if others else plain
    return _STRAY.sub("&#60;", text, _MAX_STRAY) if "<" in text else text


def _number_of(reference: re.Match[str]) -> str:
    name = reference[1]
    if name is None:
        return "&#38;"
    characters = html5.get(f"{name};")
    return f"&#38;{name};" if characters is None else "".join(f"&#{ord(sign)};" for sign in characters)


def _xml_entries(body: bytes, url: str, encoding: str) -> Iterator[FeedEntry]:
    pieces = (body[start : start + (1 << 16)] for start in range(0, len(body), 1 << 16))
    for element in elements_of(
        decoded(pieces, encoding), url, {"rss", "RDF", "feed"}, {"item", "entry"}, _not_a_feed(url)
    ):
        yield _xml_entry(element, url)


def base_of(element: etree._Element, url: str) -> str:
    """Return the base of relative URLs in an element of the document at ``url`` (XML Base; RFC 4287, 2)."""
    return (normalize(element.base, url) if element.base else None) or url


def _xml_entry(element: etree._Element, url: str) -> FeedEntry:
    found: dict[str, str] = {}
    tags: list[str] = []
    for child in element:
        name = name_of(child)
        if not name:  # a comment, or an entity without a declaration
            continue
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
        _page_url(first("link", "permalink"), base_of(element, url)), first("title"), first("id"),
        _time(first("pubDate", "published", "date", "updated")), first("creator", "author"),
        first("encoded", "content", "description", "summary"), tuple(filter(None, tags)),
    )  # fmt: skip


def _text(element: etree._Element) -> str:
    """Return the text of an element: the name of an Atom author, or the markup of XHTML content."""
    if name_of(element) == "author":
        element = next((child for child in element if name_of(child) == "name"), element)
    if len(element) and isinstance(element[0].tag, str) and element[0].tag.startswith(f"{{{_XHTML}}}"):
        return etree.tostring(element[0], encoding="unicode", with_tail=False)
    return "".join(map(str, element.itertext())).strip()


def name_of(element: etree._Element) -> str:
    """Return the local name of an element."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def _time(text: str) -> str:
    """Return a time of RFC 822 (RSS) or RFC 3339 as ISO 8601 in UTC. A time without a zone counts as UTC."""
    for parse in (datetime.fromisoformat, parse_date):
        try:
            moment = parse(text)
            moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        except (ValueError, OverflowError):  # OverflowError: in UTC it is before the year 1
            continue
        return moment.isoformat()
    return text


def _not_a_feed(url: str) -> FeedError:
    return FeedError(f"{url} is not a feed", remedy="name an RSS, Atom or JSON Feed")


def read_rows(text: str, delimiter: str = "", quotechar: str = '"') -> Iterator[dict[str, str]]:
    """Read CSV whose first row names the columns. Rows without any value are skipped.

    ``delimiter``: character between two values; empty: the one that a line ``sep=`` before the names states, or the most
    frequent one of comma, semicolon, tab and ``|`` in the first row. ``quotechar``: character around values that contain
    delimiters. Missing values are empty, and values without a column are dropped. Raises :class:`FeedError` for a value of
    more than 128 KiB, or more than 1,000 columns.
    """
    # splitlines() would also split at U+2028 and other characters within values.
    lines = io.StringIO(text.removeprefix("\ufeff"), newline="")
    quote = re.escape(quotechar)
    start = 0
    while (head := lines.readline()) and not head.strip():
        start = lines.tell()
    if stated := _STATED_DELIMITER(head):
        delimiter = delimiter or stated[1]
    else:
        lines.seek(start)
    head = re.sub(f"{quote}[^{quote}]*(?:{quote}|$)", "", head)  # a name in quotes may contain delimiters
    reader = csv.reader(lines, delimiter=delimiter or max(",;\t|", key=head.count), quotechar=quotechar)
    try:
        names = [name.strip() for name in next(filter(None, reader), ())]
        if len(names) > _MAX_COLUMNS:
            raise FeedError(
                f"the CSV has more than {_MAX_COLUMNS:,} columns", remedy="read response.text instead"
            )
        empty = dict.fromkeys(names, "")
        for row in reader:
            if any(row[: len(names)]):
                yield empty | {name: value.strip() for name, value in zip(names, row, strict=False)}
    except csv.Error as error:
        raise FeedError(f"invalid CSV: {error}", remedy="read response.text instead") from error


_STATED_DELIMITER = re.compile(r"sep=(.)\s*", re.IGNORECASE).fullmatch
"""Matches a line that Excel reads and writes before the names."""
_MAX_COLUMNS = 1_000
"""Maximum number of columns. Each row has a value for each column, so 100,000 columns and 20,000 rows of one character
would take minutes."""
