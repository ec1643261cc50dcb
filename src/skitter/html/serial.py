"""Outer HTML as lxml writes it, so that a regular expression made for parsel's output goes on to work.

The engine writes ``checked=""`` and ``&quot;``; lxml (libxml2's HTML serializer) writes ``checked``, prefers the
quotes that need no escape, and percent-encodes blanks and non-ASCII characters of ``href``, ``src``, ``action``
and the name of an anchor. What cannot be made equal: lxml repeats any attribute that stood without a value in
that form, here only the boolean attributes of HTML are (``data-x`` is written ``data-x=""``); names of SVG
attributes keep their case; void elements of HTML5 that libxml2 does not know (``wbr``, ``source``, ``track``)
get no end tag; white space around ``head`` and ``body`` and added elements (``tbody``) are as HTML5 has them.
"""

from __future__ import annotations

import re
from urllib.parse import quote

_BOOLEAN = frozenset(
    {"checked", "compact", "declare", "defer", "disabled", "ismap", "multiple"}
    | {"nohref", "noresize", "noshade", "nowrap", "readonly", "selected"}
)
# Those of HTML5, which libxml2 does not know: it leaves out only a value that was not there.
_BOOLEAN_IF_EMPTY = frozenset(
    {"allowfullscreen", "async", "autofocus", "autoplay", "controls", "default", "formnovalidate", "hidden"}
    | {"inert", "itemscope", "loop", "muted", "nomodule", "novalidate", "open", "playsinline", "required"}
    | {"reversed"}
)
_URL = frozenset({"action", "href", "src"})
_GRAPHIC = "".join(map(chr, range(0x21, 0x7F)))

_MAY_DIFFER = re.compile(
    rf'&quot;| (?:{"|".join(sorted(_BOOLEAN))})="| [a-z]+=""| (?:action|href|name|src)="[^"]*[^"\x21-\x7e]'
)
# The engine escapes "<" and ">" in values, so a tag ends at its first ">". Comments and raw text are taken
# whole, since what looks like a tag in them is none.
_PIECE = re.compile(
    r"<!--.*?-->"
    r"|<(?P<raw>script|style|xmp|iframe|noembed|noframes)(?P<raw_attributes>(?: [^>]*)?)>(?P<text>.*?)</(?P=raw)>"
    r"|<(?P<name>[a-zA-Z][^\s>]*)(?P<attributes>[^>]*)>",
    re.DOTALL,
)
_ATTRIBUTE = re.compile(r' ([^\s=]+)="([^"]*)"')


def like_lxml(html: str) -> str:
    """Return the engine's serialisation in the spelling of lxml."""
    return html if _MAY_DIFFER.search(html) is None else _PIECE.sub(_respell, html)


def _respell(piece: re.Match[str]) -> str:
    raw, name = piece["raw"], piece["name"]
    if raw:
        return f"<{raw}{_attributes(raw, piece['raw_attributes'])}>{piece['text']}</{raw}>"
    return f"<{name}{_attributes(name, piece['attributes'])}>" if name else piece[0]


def _attributes(element: str, attributes: str) -> str:
    return _ATTRIBUTE.sub(lambda found: _attribute(element, found[1], found[2]), attributes)


def _attribute(element: str, name: str, value: str) -> str:
    if name in _BOOLEAN or (not value and name in _BOOLEAN_IF_EMPTY):
        return f" {name}"
    if name in _URL or (name == "name" and element == "a"):
        value = quote(value.lstrip(), safe=_GRAPHIC)
    if "&quot;" in value and "'" not in value:
        value = value.replace("&quot;", '"')
        return f" {name}='{value}'"
    return f' {name}="{value}"'
