"""The interface between selectors and an HTML5 engine, and the choice of the engine."""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any, Protocol

from skitter.html.limits import MemoryMeter


class Engine(Protocol):
    """An HTML5 engine. Callers treat its nodes (elements and the document) as opaque objects."""

    @property
    def anchors(self) -> bool:
        """Whether ``:is()`` and ``:scope`` work, so that a query can be restricted to an element."""

    @property
    def in_parts(self) -> bool:
        """Whether ``parse_metered`` parses in parts, so that it can end early."""

    @property
    def extras(self) -> EngineExtras | None:
        """``None`` if the engine has only the methods of this protocol."""

    def parse(self, text: str, /) -> Any:
        """Parse a page by the WHATWG rules in no-quirks mode, and return the document."""

    def parse_metered(self, text: str, meter: MemoryMeter, /) -> Any:
        """Parse a large page in the same way, in parts.

        Raises :class:`~skitter.errors.PageTooComplex` when the memory is used up, and
        :class:`~skitter.html.limits.TakesLong` when the time of the meter is.
        """

    def root(self, document: Any, /) -> Any:
        """Return the ``html`` element of a document."""

    def select(self, node: Any, css: str, /) -> list[Any]:
        """Return all matches of a CSS query below a node, in document order."""

    def first(self, node: Any, css: str, /) -> Any:
        """Return the first match of a CSS query below a node, or ``None``."""

    def matches(self, node: Any, css: str, /) -> bool:
        """Return whether the element itself matches a CSS query."""

    def texts(self, node: Any, /) -> list[str]:
        """Return the text nodes that are children of an element."""

    def deep_texts(self, node: Any, /) -> list[str]:
        """Return all text nodes inside an element, in document order."""

    def nested_texts(self, nodes: list[Any], /) -> list[str]:
        """Return, in document order, the text nodes whose parent is one of the elements.

        The elements are in document order.
        """

    def outermost(self, nodes: list[Any], /) -> list[Any]:
        """Return the elements that are not inside another of the elements. The elements are in document order."""

    def values(self, document: Any, tag: str, attribute: str, /) -> list[str]:
        """Return the values of an attribute of all elements with a given name that have it, for a whole document."""

    def attribute(self, node: Any, name: str, /) -> str | None:
        """Return the value of an attribute: ``""`` for an attribute without a value, ``None`` if it is missing."""

    def attributes(self, node: Any, /) -> dict[str, str]:
        """Return all attributes in the order of the page."""

    def tag(self, node: Any, /) -> str:
        """Return the element's name in lower case."""

    def html(self, node: Any, /) -> str:
        """Return the outer HTML."""

    def content(self, node: Any, /) -> list[Any]:
        """Return the child nodes of an element: elements and comments as nodes, text as strings."""

    def comment(self, node: Any, /) -> str | None:
        """Return the text of a comment, or ``None`` if the node is not a comment."""

    def key(self, node: Any, /) -> Hashable:
        """Return a value that identifies a node within its document."""

    def remove(self, node: Any, /) -> None:
        """Remove a node from the tree. The node itself stays usable."""


class EngineExtras(Protocol):
    """Methods that only some engines have."""

    def markdown(self, node: Any, base_url: str, /) -> str:
        """Return a node as Markdown, with links relative to a base URL made absolute."""

    def structured_data(self, document: Any, base_url: str, /) -> dict[str, Any]:
        """Return the structured data of a document (see ``Response.structured_data``).

        URLs relative to a base URL are made absolute.
        """

    def xpath(self, node: Any, query: str, namespaces: dict[str, str] | None = None, **variables: Any) -> Any:
        """Evaluate XPath 1.0. Nodes of text and attributes are strings.

        Raises ValueError for a query that the engine cannot evaluate, although it may be valid.
        """


DOCTYPE = "<!DOCTYPE html>"
_USUAL_DOCTYPES = (DOCTYPE, "<!doctype html>")
_STANDARD = re.compile(r"\s*<!doctype\s+html\s*>", re.IGNORECASE)


def in_standards_mode(text: str) -> str:
    """Return the page with a doctype that makes class names and ids case-sensitive.

    A missing or old doctype selects quirks mode, in which ``.Price`` also matches ``class=price`` (WHATWG DOM, 4.5).
    The parser ignores a second doctype.
    """
    is_standard = text.startswith(_USUAL_DOCTYPES) or _STANDARD.match(text) is not None
    return text if is_standard else f"{DOCTYPE}{text}"
