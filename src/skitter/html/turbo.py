"""The default engine, based on ``turbohtml``: it parses a page of 17 KB in 30 us."""

from __future__ import annotations

import json
import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins
from turbohtml._html import (
    CData,
    Comment,
    Document,
    DocumentFragment,
    Element,
    Formatter,
    IncrementalParser,
    Node,
    Text,
    XPath,
)
from turbohtml._html import parse as parse_html

from skitter.html.engine import DOCTYPE, Engine, EngineExtras, in_standards_mode
from skitter.html.limits import MemoryMeter, RootCheck, parts_of
from skitter.html.serial import like_lxml

if TYPE_CHECKING:
    from turbohtml import Html


@cache
def _plain_spaces() -> Html:
    """Return the format that writes a no-break space as a character, as lxml does. Loads all of turbohtml."""
    from turbohtml import Html  # noqa: PLC0415 - few crawls need it

    return Html(formatter=Formatter.MINIMAL)


@cache
def _load_package() -> None:
    """Load all of turbohtml, because its core alone has no class for the results."""
    from turbohtml import StructuredData  # noqa: F401, PLC0415 - few crawls need it


@lru_cache(maxsize=64)
def _values_path(tag: str, attribute: str) -> XPath:
    return XPath(f"descendant::{tag}/@{attribute}")


def _has_class(context: Any, *names: str) -> bool:
    """Parsel's XPath function ``has-class``."""
    if not names or not all(isinstance(name, str) for name in names):
        raise ValueError("has-class() takes one or more strings")
    node = context.context_node
    return isinstance(node, Element) and all(node.has_class(name) for name in names)


_FUNCTIONS: Any = {(None, "has-class"): _has_class}
_RESULTS = (Element, Comment, str)
"""Kinds of results that lxml also has. It has no nodes for documents, doctypes and the fragments in templates."""


def read_json_ld(document: Document) -> list[Any]:
    """Return the JSON-LD blocks of a document; see :meth:`Response.structured_data <skitter.Response.structured_data>`."""
    found: list[Any] = document.json_ld()
    texts = [script.text for script in document.select('script[type*="ld+json" i]')]
    if len(found) == len(texts) or sum(map(len, texts)) > _MAX_LENIENT:
        return found
    return [block for block in map(_lenient_json, texts) if block is not None]


def _lenient_json(text: str) -> Any:
    """Return a JSON value in spite of common mistakes; ``None`` for other invalid JSON."""
    for repair in (str, _repaired_json):
        try:
            return json.loads(repair(text), strict=False, parse_constant=lambda _name: None)
        except (ValueError, RecursionError):
            continue
    return None


def _repaired_json(text: str) -> str:
    return _NOT_JSON.sub(r"\1", text).strip("\ufeff; \t\r\n")


_MAX_LENIENT = 512 * 1024
"""Maximum number of characters of the blocks of a page with mistakes. A malicious block of that size takes half a second."""
_NOT_JSON = re.compile(
    r"""("[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z))"""  # a string, which stays as it is
    r"|(?:(?://|/\*)[ \t]*)?(?:<!--|-->|<!\[CDATA\[|\]\]>)(?:[ \t]*\*/)?|/\*.*?(?:\*/|\Z)|//[^\n]*|,(?=\s*[}\]])",
    re.DOTALL,
)


class _TurboExtras:
    """Implements :class:`~skitter.html.engine.EngineExtras`."""

    __slots__ = ()

    @staticmethod
    def markdown(node: Element, base_url: str) -> str:
        _load_package()
        if not base_url:
            return node.to_markdown()
        copy = parse_html(node.html, positions=False)  # the links of the page itself must not change
        copy.resolve_links(base_url)
        return copy.to_markdown()

    @staticmethod
    def structured_data(document: Document, base_url: str) -> dict[str, Any]:
        _load_package()
        base = base_url or None
        try:
            data = to_builtins(document.structured_data(base))
        except RecursionError:
            # Only a malicious page nests items in a circle or hundreds of levels deep.
            properties = {f"og:{name}": value for name, value in document.opengraph(base).items()}
            data = {"opengraph": properties, "dublin_core": document.dublin_core()}
        data["json_ld"] = read_json_ld(document)
        return {
            kind: data.get(kind, []) for kind in ("json_ld", "microdata", "rdfa", "opengraph", "dublin_core")
        }

    @staticmethod
    def xpath(node: Node, query: str, namespaces: dict[str, str] | None = None, **variables: Any) -> Any:
        found = node.xpath(query, namespaces=namespaces, extensions=_FUNCTIONS, **variables)
        return [value for value in found if isinstance(value, _RESULTS)] if isinstance(found, list) else found


class TurboEngine:
    """Implements :class:`~skitter.html.engine.Engine`.

    Compiled functions of ``turbohtml`` are used as attributes directly, so that calling them needs no Python frame.
    """

    __slots__ = ()

    anchors = True
    in_parts = True
    extras: EngineExtras | None = _TurboExtras()

    @staticmethod
    def parse(text: str) -> Document:
        return parse_html(in_standards_mode(text), positions=False)

    @staticmethod
    def parse_metered(text: str, meter: MemoryMeter) -> Document:
        meter.check_runs(text)
        roots = RootCheck(text)
        with IncrementalParser(positions=False) as parser:
            parser.feed(DOCTYPE)  # the parser ignores a second doctype
            meter.begin_turn()
            for end, part in parts_of(text):
                roots.advance(end)
                parser.feed(part)
                meter.measure()
            document = parser.close()
            meter.measure()
        return document

    @staticmethod
    def root(document: Document) -> Element:
        root = document.root
        assert root is not None  # the parser always creates one
        return root

    select = staticmethod(Node.select)
    first = staticmethod(Node.select_one)
    matches = staticmethod(Node.matches)
    texts: staticmethod[[Node], list[str]] = staticmethod(XPath("text()"))  # type: ignore[arg-type]  # the type of the result is unknown to the stub
    deep_texts: staticmethod[[Node], list[str]] = staticmethod(XPath("descendant::text()"))  # type: ignore[arg-type]  # see above

    @staticmethod
    def nested_texts(nodes: list[Element]) -> list[str]:
        parents = set(nodes)
        return [
            text.data
            for top in TurboEngine.outermost(nodes)
            for text in top.descendants
            if isinstance(text, Text) and text.parent in parents
        ]

    @staticmethod
    def outermost(nodes: list[Element]) -> list[Element]:
        kept: set[Any] = set()
        for node in nodes:
            if kept.isdisjoint(node.ancestors):
                kept.add(node)
        return [node for node in nodes if node in kept]

    @staticmethod
    def values(document: Document, tag: str, attribute: str) -> Any:
        return _values_path(tag, attribute)(document)

    attribute = staticmethod(Element.attr)

    @staticmethod
    def attributes(node: Element) -> dict[str, str]:
        return {name: node.attr(name) or "" for name in node.attrs}

    @staticmethod
    def tag(node: Element) -> str:
        return node.tag.lower()

    @staticmethod
    def html(node: Element) -> str:
        return like_lxml(node.serialize(_plain_spaces()))

    @staticmethod
    def content(node: Node) -> list[Any]:
        content: list[Any] = []
        for child in node.children:
            if isinstance(child, Text | CData):
                content.append(child.data)
            elif isinstance(child, DocumentFragment):  # the content of a <template>
                content += TurboEngine.content(child)
            elif isinstance(child, _RESULTS):
                content.append(child)
        return content

    @staticmethod
    def comment(node: Node) -> str | None:
        return node.data if isinstance(node, Comment) else None

    @staticmethod
    def key(node: Node) -> Node:
        return node

    remove = staticmethod(Node.extract)


TURBO: Engine = TurboEngine()
