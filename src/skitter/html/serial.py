"""Outer HTML in the spelling of lxml, so that regular expressions written for parsel's output still match.

The engine writes ``checked=""`` and ``&quot;``. The HTML serializer of lxml (libxml2) writes ``checked``, prefers
quotes that need no escape, and percent-encodes blanks and non-ASCII characters in ``href``, ``src``, ``action`` and
the name of an anchor.

Some differences remain. lxml writes all attributes without a value in that form; here only the boolean attributes of
HTML are written so (``data-x`` becomes ``data-x=""``). Names of SVG attributes keep their case. Void elements of HTML5 that
libxml2 does not know (``wbr``, ``source``, ``track``) get no end tag. Whitespace around ``head`` and ``body`` and
implied elements (``tbody``) follow HTML5.
"""

from __future__ import annotations

import re
from urllib.parse import quote

_BOOLEAN = frozenset(
    {"checked", "compact", "declare", "defer", "disabled", "ismap", "multiple"}
    | {"nohref", "noresize", "noshade", "nowrap", "readonly", "selected"}
)
# Boolean attributes of HTML5 that libxml2 does not know. It omits the value only if the page had no value.
_BOOLEAN_IF_EMPTY = frozenset(
    {"allowfullscreen", "async", "autofocus", "autoplay", "controls", "default", "formnovalidate", "hidden"}
    | {"inert", "itemscope", "loop", "muted", "nomodule", "novalidate", "open", "playsinline", "required"}
    | {"reversed"}
)
_URL = frozenset({"action", "href", "src"})
_GRAPHIC = "".join(map(chr, range(0x21, 0x7F)))

# These patterns are compiled at their first use.
_MAY_DIFFER = (
    rf'&quot;| (?:{"|".join(sorted(_BOOLEAN))})="| [a-z]+=""| (?:action|href|name|src)="[^"]*[^"\x21-\x7e]'
)
# The engine escapes "<" and ">" in attribute values, so a tag ends at its first ">". Comments and raw text are
# matched as a whole, because text in them that looks like a tag is not a tag.
_PIECE = (
    r"(?s)<!--.*?-->"
    r"|<(?P<raw>script|style|xmp|iframe|noembed|noframes)(?P<raw_attributes>(?: [^>]*)?)>(?P<text>.*?)</(?P=raw)>"
    r"|<(?P<name>[a-zA-Z][^\s>]*)(?P<attributes>[^>]*)>"
)
_ATTRIBUTE = re.compile(r' ([^\s=]+)="([^"]*)"')


def like_lxml(html: str) -> str:
    """Convert the engine's serialization to the spelling of lxml."""
    return html if re.search(_MAY_DIFFER, html) is None else re.sub(_PIECE, _respell, html)


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
