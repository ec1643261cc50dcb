"""What the selectors need of an HTML5 engine, and the choice of one."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Engine:
    """The calls of one HTML5 engine. Its nodes (elements, and the document) are opaque to the caller."""

    anchors: bool
    """Whether ``:is()`` and ``:scope`` work, so that a query can be kept inside an element."""

    parse: Callable[[str], Any]
    """Parse a page by the WHATWG rules in no-quirks mode; gives the document."""

    root: Callable[[Any], Any]
    """The ``html`` element of a document."""

    select: Callable[[Any, str], list[Any]]
    """All matches of a CSS query below a node, in document order."""

    first: Callable[[Any, str], Any]
    """The first of them, or ``None``."""

    matches: Callable[[Any, str], bool]
    """Whether the element itself fits a CSS query."""

    texts: Callable[[Any], list[str]]
    """The text nodes that are children of an element."""

    deep_texts: Callable[[Any], list[str]]
    """All text nodes inside an element, in document order."""

    nested_texts: Callable[[list[Any]], list[str]]
    """The text nodes whose parent is one of the elements (given in document order), in document order."""

    outermost: Callable[[list[Any]], list[Any]]
    """The elements (given in document order) without those that lie inside another of them."""

    values: Callable[[Any, str, str], list[str]]
    """Of a document: an attribute of all elements of a name that have it."""

    attribute: Callable[[Any, str], str | None]
    """The value of an attribute, ``""`` for one that stands without a value, ``None`` if it is not there."""

    attributes: Callable[[Any], dict[str, str]]
    """All attributes, in the order of the page."""

    tag: Callable[[Any], str]
    """The element's name in lower case."""

    html: Callable[[Any], str]
    """The outer HTML."""


def load_engine() -> Engine:
    """Return the fastest engine that is installed."""
    try:
        from skitter.html.turbo import TURBO  # noqa: PLC0415 - optional at run time
    except ImportError:
        from skitter.html.lexbor import LEXBOR  # noqa: PLC0415 - only where the other is missing

        return LEXBOR
    return TURBO


_STANDARD = re.compile(r"\s*<!doctype\s+html\s*>", re.IGNORECASE)


def in_standards_mode(text: str) -> str:
    """Return the page such that class names and ids keep their case.

    An old or missing doctype turns quirks mode on, in which ``.Price`` also finds ``class=price``
    (WHATWG DOM, 4.5). A second doctype is ignored by the parser.
    """
    return text if _STANDARD.match(text) else f"<!DOCTYPE html>{text}"
