"""The interface between selectors and an HTML5 engine, and the choice of the engine."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from typing import Any

import msgspec

from skitter.html.limits import MemoryMeter


class Engine(msgspec.Struct, frozen=True):
    """The functions of one HTML5 engine. Callers treat its nodes (elements and the document) as opaque objects."""

    anchors: bool
    """Whether ``:is()`` and ``:scope`` work, so that a query can be restricted to an element."""

    in_parts: bool
    """Whether ``parse_metered`` parses in parts, so that it can end early."""

    parse: Callable[[str], Any]
    """Parse a page by the WHATWG rules in no-quirks mode, and return the document."""

    parse_metered: Callable[[str, MemoryMeter], Any]
    """Parse a large page in the same way, in parts. Raises :class:`~skitter.errors.PageTooComplex` when the memory is
    used up, and :class:`~skitter.html.limits.TakesLong` when the time of the meter is."""

    root: Callable[[Any], Any]
    """Return the ``html`` element of a document."""

    select: Callable[[Any, str], list[Any]]
    """Return all matches of a CSS query below a node, in document order."""

    first: Callable[[Any, str], Any]
    """Return the first match of a CSS query below a node, or ``None``."""

    matches: Callable[[Any, str], bool]
    """Return whether the element itself matches a CSS query."""

    texts: Callable[[Any], list[str]]
    """Return the text nodes that are children of an element."""

    deep_texts: Callable[[Any], list[str]]
    """Return all text nodes inside an element, in document order."""

    nested_texts: Callable[[list[Any]], list[str]]
    """Return, in document order, the text nodes whose parent is one of the elements. The elements are in document order."""

    outermost: Callable[[list[Any]], list[Any]]
    """Return the elements that are not inside another one of them. The elements are in document order."""

    values: Callable[[Any, str, str], list[str]]
    """Return the values of an attribute of all elements with a given name that have it, for a whole document."""

    attribute: Callable[[Any, str], str | None]
    """Return the value of an attribute: ``""`` for an attribute without a value, ``None`` if it is missing."""

    attributes: Callable[[Any], dict[str, str]]
    """Return all attributes in the order of the page."""

    tag: Callable[[Any], str]
    """Return the element's name in lower case."""

    html: Callable[[Any], str]
    """Return the outer HTML."""

    content: Callable[[Any], list[Any]]
    """Return the child nodes of an element: elements and comments as nodes, text as strings."""

    comment: Callable[[Any], str | None]
    """Return the text of a comment, or ``None`` if the node is not a comment."""

    key: Callable[[Any], Hashable]
    """Return a value that identifies a node within its document."""

    remove: Callable[[Any], None]
    """Remove a node from the tree. The node itself stays usable."""

    markdown: Callable[[Any, str], str] | None
    """Return a node as Markdown, with links relative to a base URL made absolute. ``None``: the engine cannot."""

    structured_data: Callable[[Any, str], dict[str, Any]] | None
    """Return the structured data of a document (see ``Response.structured_data``) with URLs relative to a base URL made
    absolute. ``None``: the engine cannot."""

    xpath: Callable[..., Any] | None
    """``xpath(node, query, namespaces=, **variables)`` evaluates XPath 1.0. Nodes of text and attributes are strings.

    Raises ValueError for a query that it cannot evaluate; the query may still be valid. ``None``: the engine has no XPath.
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
