"""Headers, parsed on demand, the media types that Content-Type names, and statuses with a meaning for clients."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from multidict import CIMultiDict, CIMultiDictProxy

REDIRECTS = frozenset({301, 302, 303, 307, 308})
"""Statuses of redirects to the URL in ``Location`` (RFC 9110, 15.4)."""
THROTTLED = frozenset({429, 503})
"""Statuses of a server that throttles its clients (RFC 6585, 4; RFC 9110, 15.6.4)."""
Headers = CIMultiDictProxy[str]
"""Read-only mapping with case-insensitive names, in the order received; ``getall`` returns every value of a repeated name."""


def parse_headers(block: bytes) -> Headers:
    """Parse a header block (``Name: value`` lines as received; RFC 9112, section 5).

    Lines end with CRLF or LF only (RFC 9112, 2.2). Values are decoded as Latin-1, which keeps every byte:
    ``value.encode("latin-1")`` returns the bytes that the server sent. A folded line continues the previous line. A line
    without a colon is ignored, and so is a status line before the first header.
    """
    if block.startswith(b"HTTP/"):
        block = block[block.find(b"\n") + 1 :]
    fields: CIMultiDict[str] = CIMultiDict()
    for line in _FOLD.sub(b" ", block).decode("latin-1").split("\n"):
        name, colon, value = line.partition(":")
        if colon and (name := name.strip(_SPACE)):
            fields.add(name, value.strip(_SPACE))
    return CIMultiDictProxy(fields)


def with_defaults(own: Mapping[str, str], defaults: Mapping[str, str]) -> dict[str, str]:
    """Return request headers with defaults for the missing ones. Names are compared without regard to case."""
    names = {name.lower() for name in own}
    return {**{name: value for name, value in defaults.items() if name.lower() not in names}, **own}


def strong_last_modified(modified: str, date: str) -> str:
    """Return ``Last-Modified``, unless the page may change again within the same second (RFC 9110, 8.8.2.2).

    ``date``: the ``Date`` header; empty: now.
    """
    if not modified:
        return ""
    try:
        changed_at = parse_date(modified).timestamp()
        sent_at = parse_date(date).timestamp() if date else time.time()
    except ValueError:
        return ""
    return modified if changed_at <= sent_at - 1 else ""


_FOLD = re.compile(rb"\r?\n[ \t]+")
_SPACE = " \t\r"
"""Whitespace around names and values. ``str.strip()`` would also remove 0x85 and 0xA0, which are parts of characters."""


def find_header(block: bytes, name: str) -> str | None:
    """Return the first value of one header without parsing the others."""
    lines, key = b"\n" + block.lower(), _key_of(name)
    at = lines.find(key)
    if at < 0:  # RFC 9112, 5.1 forbids space before the colon; some servers send it
        return parse_headers(block).get(name) if b" :" in lines or b"\t:" in lines else None
    start = at + len(key) - 1
    end = block.find(b"\n", start)
    if end < 0:
        end = len(block)
    elif block.startswith((b" ", b"\t"), end + 1):
        return parse_headers(block).get(name)  # the value continues on the next line
    return block[start:end].decode("latin-1").strip(_SPACE)


@lru_cache(maxsize=256)
def _key_of(name: str) -> bytes:
    """Return the start of a header's line, preceded by the end of the previous line."""
    return b"\n" + name.lower().encode("latin-1") + b":"


def content_codings(block: bytes) -> list[str]:
    """Return the content codings of a header block in lower case, in the order in which they were applied (RFC 9110, 8.4)."""
    tokens = b",".join(_CONTENT_ENCODINGS(block)).decode("latin-1").split(",")
    return [name for token in tokens if (name := token.strip()) not in ("", "identity")]


_CONTENT_ENCODINGS = re.compile(rb"\ncontent-encoding:([^\r\n]*)").findall


def parse_length(value: str) -> int | None:
    """Return a Content-Length (RFC 9110, 8.6); ``None`` for anything but at most 19 digits."""
    return int(value) if value.isascii() and value.isdecimal() and len(value) <= _LENGTH_DIGITS else None


_LENGTH_DIGITS = 19
"""Maximum number of digits: enough for 64 bits. Python refuses to read a number of 5,000 digits."""


def url_in_header(value: str) -> str:
    """Return a URL from a header with its bytes beyond ASCII percent-encoded, so that it is requested as it was sent."""
    if value.isascii():
        return value
    try:
        data = value.encode("latin-1")
    except UnicodeEncodeError:  # the value was not received, but set by a program
        return value
    return "".join(chr(byte) if byte < 0x80 else f"%{byte:02X}" for byte in data)


class Refresh(NamedTuple):
    """A page that a browser opens after some time."""

    seconds: float
    url: str
    """The URL as the page states it, which may be relative. Empty: the page itself."""


# These patterns are compiled at their first use.
_REFRESH = (
    r"(?sa)[\t\n\f\r ]*(?P<seconds>\d+|(?=\.))[\d.]*"
    r"(?:$|(?=[;,\t\n\f\r ])[\t\n\f\r ]*[;,]?[\t\n\f\r ]*(?P<rest>.*))"
)
_REFRESH_URL = (
    r"(?s)(?:[Uu][Rr][Ll][\t\n\f\r ]*=[\t\n\f\r ]*)?(?:(?P<quote>[\"'])(?P<quoted>.*)|(?P<plain>.*))"
)


def parse_refresh(value: str) -> Refresh | None:
    """Parse a ``Refresh`` header, or the content of a ``<meta http-equiv=refresh>``. ``None`` for an invalid value.

    WHATWG HTML, 4.2.5.3, "shared declarative refresh steps".
    """
    found = re.fullmatch(_REFRESH, value)
    if found is None:
        return None
    seconds = min(float(found["seconds"] or 0), MAX_RETRY_AFTER)
    target = re.match(_REFRESH_URL, found["rest"] or "")
    if target is None:
        return Refresh(seconds, "")
    if target["quote"]:
        return Refresh(seconds, target["quoted"].partition(target["quote"])[0])
    return Refresh(seconds, target["plain"])


MAX_RETRY_AFTER = 86_400.0
"""Upper bound of the result of :func:`parse_retry_after`, in seconds."""

_MAX_DIGITS = 18


def parse_date(text: str) -> datetime:
    """Return the moment of an HTTP date. A date without a zone is in UTC (RFC 9110, 5.6.7). Raises ValueError."""
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - importing it takes 1.5 ms

    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, OverflowError, IndexError) as error:
        raise ValueError(f"invalid date: {text!r}") from error
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def parse_retry_after(value: str | None, date: str | None = None) -> float | None:
    """Return the delay of a ``Retry-After`` value in seconds (RFC 9110, 10.2.3).

    ``value``
        Seconds as digits, or an HTTP-date; ``None`` if there is no such header.
    ``date``
        The ``Date`` header, to which an HTTP-date is compared: both are by the clock of the server. Missing or invalid: now.

    The result is between 0 (a date in the past) and :data:`MAX_RETRY_AFTER`; ``None`` for a value of neither form.
    """
    if value is None:
        return None
    value = value.strip()
    if value.isascii() and value.isdigit():
        return min(float(value[:_MAX_DIGITS]), MAX_RETRY_AFTER)
    try:
        until = parse_date(value).timestamp()
    except ValueError:
        return None
    try:
        now = parse_date(date or "").timestamp()
    except ValueError:
        now = time.time()
    seconds = until - now
    return min(max(math.ceil(seconds), 0.0), MAX_RETRY_AFTER)


# --- media types (WHATWG MIME Sniffing) ----------------------------------------------------------------------

_HTML = frozenset({"text/html", "application/xhtml+xml"})
_SILENT = frozenset({"", "application/octet-stream", "unknown/unknown", "application/unknown", "*/*"})
_OTHER_TEXT = frozenset({
    "application/ecmascript", "application/graphql", "application/javascript", "application/rtf",
    "application/sql", "application/toml", "application/x-javascript", "application/x-ndjson",
    "application/x-sh", "application/x-www-form-urlencoded", "application/x-yaml", "application/yaml",
})  # fmt: skip
_MARKUP = (
    rb"(?i)\s*<(?:!doctype html|html|head|script|iframe|h1|div|font|table|a|style|title|b|body|br|p|!--)[\s>]"
)
_BINARY_BYTE = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")
_SNIFFED_BYTES = 1445
_MARKS = (b"\xef\xbb\xbf", b"\xfe\xff", b"\xff\xfe")


class MediaType(NamedTuple):
    """A media type, and the kind of body that it describes."""

    name: str
    """In lower case and without parameters; empty if the server sent none."""
    is_unknown: bool
    """Whether it is meaningless, so that the start of the body decides."""
    is_html: bool
    is_xml: bool
    """XML (RFC 7303), except XHTML."""
    is_json: bool
    """RFC 8259, RFC 6839."""
    is_text: bool


@lru_cache(maxsize=1024)  # a site sends the same few values again and again
def media_type(content_type: str) -> MediaType:
    """Return the media type of a Content-Type value."""
    name = content_type.partition(";")[0].strip().lower()
    is_html = name in _HTML
    is_xml = name in {"text/xml", "application/xml"} or (name.endswith("+xml") and not is_html)
    is_json = name in {"application/json", "text/json"} or name.endswith("+json")
    is_text = name.startswith("text/") or name in _OTHER_TEXT or is_html or is_xml or is_json
    return MediaType(name, name in _SILENT, is_html, is_xml, is_json, is_text)


def looks_like_html(body: bytes) -> bool:
    """Return whether a body without a media type is HTML."""
    return re.match(_MARKUP, body) is not None


def looks_like_text(body: bytes) -> bool:
    """Return whether a body without a media type is text."""
    return body.startswith(_MARKS) or _BINARY_BYTE.search(body, 0, _SNIFFED_BYTES) is None
