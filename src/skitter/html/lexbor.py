"""The fallback engine, based on ``selectolax`` and Lexbor, for platforms without the default engine.

It does not search inside ``<template>``, and its outer HTML follows the WHATWG rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from selectolax.lexbor import LexborHTMLParser, LexborNode

from skitter.html.engine import Engine, EngineExtras, in_standards_mode
from skitter.html.limits import MemoryMeter, check_nesting


def _text_nodes(node: LexborNode) -> Iterator[LexborNode]:
    return (inner for inner in node.traverse(include_text=True) if inner.is_text_node)


def _ancestors(node: LexborNode) -> Iterator[int]:
    above = node.parent
    while above is not None:
        yield above.mem_id
        above = above.parent


class LexborEngine:
    """Implements :class:`~skitter.html.engine.Engine`."""

    __slots__ = ()

    anchors = False
    in_parts = False
    extras: EngineExtras | None = None

    @staticmethod
    def parse(text: str) -> LexborNode:
        # The compiled parser does not accept lone surrogates, which JSON can contain.
        root = LexborHTMLParser(in_standards_mode(text.encode("utf-8", "replace").decode())).root
        assert root is not None  # the parser always creates one
        document = root.parent
        assert document is not None
        doctype = document.child
        if doctype is not None and doctype.tag == "-doctype":
            doctype.decompose()  # the engine would treat it as a sibling of <html>
        return document

    @staticmethod
    def parse_metered(text: str, meter: MemoryMeter) -> LexborNode:
        check_nesting(text, meter)
        return LexborEngine.parse(text)

    @staticmethod
    def root(document: LexborNode) -> LexborNode:
        return document.css("html")[0]

    @staticmethod
    def select(node: LexborNode, css: str) -> list[LexborNode]:
        # css() also tests the node itself, and returns a match of two selectors in a group twice, in the order of the group.
        # Nodes are compared by memory address, because == compares their HTML.
        matches = {match.mem_id: match for match in node.css(css)}
        matches.pop(node.mem_id, None)
        if "," not in css or len(matches) < 2:
            return list(matches.values())
        return [inner for inner in node.traverse() if inner.mem_id in matches]

    @staticmethod
    def first(node: LexborNode, css: str) -> LexborNode | None:
        return next(iter(LexborEngine.select(node, css)), None)

    @staticmethod
    def matches(node: LexborNode, css: str) -> bool:
        # css_matches() would also return True for a match below the node.
        return any(match.mem_id == node.mem_id for match in node.css(css)[:1])

    @staticmethod
    def texts(node: LexborNode) -> list[str]:
        return [child.text_content or "" for child in node.iter(include_text=True) if child.is_text_node]

    @staticmethod
    def deep_texts(node: LexborNode) -> list[str]:
        return [text.text_content or "" for text in _text_nodes(node)]

    @staticmethod
    def nested_texts(nodes: list[LexborNode]) -> list[str]:
        parents = {node.mem_id for node in nodes}
        return [
            text.text_content or ""
            for top in LexborEngine.outermost(nodes)
            for text in _text_nodes(top)
            if text.parent is not None and text.parent.mem_id in parents
        ]

    @staticmethod
    def outermost(nodes: list[LexborNode]) -> list[LexborNode]:
        kept: set[int] = set()
        for node in nodes:
            if kept.isdisjoint(_ancestors(node)):
                kept.add(node.mem_id)
        return [node for node in nodes if node.mem_id in kept]

    @staticmethod
    def values(document: LexborNode, tag: str, attribute: str) -> list[str]:
        return [found.attributes[attribute] or "" for found in document.css(f"{tag}[{attribute}]")]

    @staticmethod
    def attribute(node: LexborNode, name: str) -> str | None:
        return (node.attributes[name] or "") if name in node.attributes else None

    @staticmethod
    def attributes(node: LexborNode) -> dict[str, str]:
        return {name: value or "" for name, value in node.attributes.items()}

    @staticmethod
    def tag(node: LexborNode) -> str:
        return str(node.tag).lower()

    @staticmethod
    def html(node: LexborNode) -> str:
        return (node.html or "").replace("&nbsp;", "\xa0")

    @staticmethod
    def content(node: LexborNode) -> list[Any]:
        return [
            (child.text_content or "") if child.is_text_node else child
            for child in node.iter(include_text=True)
            if child.is_text_node or child.is_element_node or child.is_comment_node
        ]

    @staticmethod
    def comment(node: LexborNode) -> str | None:
        return (node.html or "")[4:-3] if node.is_comment_node else None

    @staticmethod
    def key(node: LexborNode) -> int:
        return node.mem_id

    @staticmethod
    def remove(node: LexborNode) -> None:
        # remove() would free the memory of the node. So the node is replaced by an empty text, which is removed instead.
        parent, following = node.parent, node.next
        node.replace_with("")
        placeholder = (
            parent.last_child if following is None and parent is not None else following and following.prev
        )
        assert placeholder
        placeholder.decompose()


LEXBOR: Engine = LexborEngine()
