"""The default engine, based on ``turbohtml``: it parses a page of 17 KB in 30 us."""

from __future__ import annotations

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
    parse,
)

from skitter.html.engine import DOCTYPE, Engine, in_standards_mode
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
    """Load all of turbohtml: its core has no class for the results before."""
    from turbohtml import StructuredData  # noqa: F401, PLC0415 - few crawls need it


def _parse_metered(text: str, meter: MemoryMeter) -> Document:
    meter.check_runs(text)
    roots = RootCheck(text)
    with IncrementalParser(positions=False) as parser:
        parser.feed(DOCTYPE)  # the parser ignores a second one
        meter.begin_turn()
        for end, part in parts_of(text):
            roots.advance(end)
            parser.feed(part)
            meter.measure()
        document = parser.close()
        meter.measure()
    return document


def _root(document: Document) -> Element:
    root = document.root
    assert root is not None  # the parser always creates one
    return root


def _nested_texts(nodes: list[Element]) -> list[str]:
    parents = set(nodes)
    return [
        text.data
        for top in _outermost(nodes)
        for text in top.descendants
        if isinstance(text, Text) and text.parent in parents
    ]


def _outermost(nodes: list[Element]) -> list[Element]:
    kept: set[Any] = set()
    for node in nodes:
        if kept.isdisjoint(node.ancestors):
            kept.add(node)
    return [node for node in nodes if node in kept]


@lru_cache(maxsize=64)
def _values_path(tag: str, attribute: str) -> XPath:
    return XPath(f"descendant::{tag}/@{attribute}")


def _values(document: Document, tag: str, attribute: str) -> Any:
    return _values_path(tag, attribute)(document)


def _has_class(context: Any, *names: str) -> bool:
    """Parsel's XPath function ``has-class``."""
    if not names or not all(isinstance(name, str) for name in names):
        raise ValueError("has-class() takes one or more strings")
    node = context.context_node
    return isinstance(node, Element) and all(node.has_class(name) for name in names)


_FUNCTIONS: Any = {(None, "has-class"): _has_class}


def _xpath(node: Node, query: str, namespaces: dict[str, str] | None = None, **variables: Any) -> Any:
    found = node.xpath(query, namespaces=namespaces, extensions=_FUNCTIONS, **variables)
    return [value for value in found if isinstance(value, _RESULTS)] if isinstance(found, list) else found


_RESULTS = (Element, Comment, str)
"""Results that lxml has too. It has no nodes for documents, doctypes and the fragments in templates."""


def _content(node: Node) -> list[Any]:
    content: list[Any] = []
    for child in node.children:
        if isinstance(child, Text | CData):
            content.append(child.data)
        elif isinstance(child, DocumentFragment):  # of a <template>
            content += _content(child)
        elif isinstance(child, _RESULTS):
            content.append(child)
    return content


def _markdown(node: Element, base_url: str) -> str:
    _load_package()
    if not base_url:
        return node.to_markdown()
    copy = parse(node.html, positions=False)  # the links of the page stay as they are
    copy.resolve_links(base_url)
    return copy.to_markdown()


def _structured_data(document: Document, base_url: str) -> dict[str, Any]:
    _load_package()
    base = base_url or None
    try:
        data = to_builtins(document.structured_data(base))
    except RecursionError:
        # Only a page that was made for it nests items in a circle or hundreds of levels deep.
        properties = {f"og:{name}": value for name, value in document.opengraph(base).items()}
        data = {"json_ld": document.json_ld(), "opengraph": properties, "dublin_core": document.dublin_core()}
    return {kind: data.get(kind, []) for kind in ("json_ld", "microdata", "rdfa", "opengraph", "dublin_core")}


TURBO = Engine(
    anchors=True,
    in_parts=True,
    parse=lambda text: parse(in_standards_mode(text), positions=False),
    parse_metered=_parse_metered,
    root=_root,
    select=Node.select,
    first=Node.select_one,
    matches=Node.matches,
    texts=XPath("text()"),  # type: ignore[arg-type]  # its type does not say what a path selects
    deep_texts=XPath("descendant::text()"),  # type: ignore[arg-type]  # likewise
    nested_texts=_nested_texts,
    outermost=_outermost,
    values=_values,
    attribute=Element.attr,
    attributes=lambda node: {name: node.attr(name) or "" for name in node.attrs},
    tag=lambda node: node.tag.lower(),
    html=lambda node: like_lxml(node.serialize(_plain_spaces())),
    content=_content,
    comment=lambda node: node.data if isinstance(node, Comment) else None,
    key=lambda node: node,
    remove=Node.extract,
    markdown=_markdown,
    structured_data=_structured_data,
    xpath=_xpath,
)
