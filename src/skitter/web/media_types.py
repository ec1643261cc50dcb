"""Tests which media types are text, HTML, XML or JSON (WHATWG MIME Sniffing)."""

from __future__ import annotations

import re
from functools import lru_cache

_HTML = frozenset({"text/html", "application/xhtml+xml"})
_SILENT = frozenset({"", "application/octet-stream", "unknown/unknown", "application/unknown", "*/*"})
_OTHER_TEXT = frozenset({
    "application/ecmascript", "application/graphql", "application/javascript", "application/rtf",
    "application/sql", "application/toml", "application/x-javascript", "application/x-ndjson",
    "application/x-sh", "application/x-www-form-urlencoded", "application/x-yaml", "application/yaml",
})  # fmt: skip
_MARKUP = re.compile(
    rb"\s*<(?:!doctype html|html|head|script|iframe|h1|div|font|table|a|style|title|b|body|br|p|!--)[\s>]",
    re.IGNORECASE,
)
_BINARY_BYTE = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")
_SNIFFED_BYTES = 1445
_MARKS = (b"\xef\xbb\xbf", b"\xfe\xff", b"\xff\xfe")


@lru_cache(maxsize=1024)  # a site keeps sending the same few values
def media_type(content_type: str) -> str:
    """Return the media type of a Content-Type value, in lower case and without parameters."""
    return content_type.partition(";")[0].strip().lower()


def is_html(kind: str, body: bytes) -> bool:
    """Return whether a body of that media type is HTML; without a media type, the start of the body decides."""
    return kind in _HTML or (kind in _SILENT and _MARKUP.match(body) is not None)


def is_xml(kind: str) -> bool:
    """Return whether a media type is XML (RFC 7303), except XHTML."""
    return kind in {"text/xml", "application/xml"} or (kind.endswith("+xml") and kind not in _HTML)


def is_json(kind: str) -> bool:
    """Return whether a media type is JSON (RFC 8259, RFC 6839)."""
    return kind in {"application/json", "text/json"} or kind.endswith("+json")


def is_text(kind: str, body: bytes) -> bool:
    """Return whether a body of that media type is text; without a media type, the start of the body decides."""
    if kind in _SILENT:
        return body.startswith(_MARKS) or _BINARY_BYTE.search(body, 0, _SNIFFED_BYTES) is None
    return kind.startswith("text/") or kind in _OTHER_TEXT or kind in _HTML or is_xml(kind) or is_json(kind)
