"""CSS queries, compiled for the HTML engine.

A query has the same meaning as in parsel, which translates it to XPath: class names, ids and attribute values are
case-sensitive; a query on an element tests the element itself and its descendants, and nothing outside it;
``::text`` and ``::attr(name)`` select text nodes and attributes. Queries that the engine's selectors express exactly
run there. All others (``:contains()``, ``:has()``, namespaces, mixed groups) are translated to XPath.

The HTML parser puts a ``tbody`` around the rows of a table, so ``table > tr`` and ``table/tr`` match nothing in a browser.
Both are common in spiders, because page sources and libxml2 have no such ``tbody``. Here they lead through it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto


class Take(Enum):
    """What a query returns of the elements it matches."""

    ELEMENT = auto()
    TEXT = auto()
    """The text nodes that are children of a match."""
    DEEP_TEXT = auto()
    """All text nodes inside a match."""
    ATTRIBUTE = auto()
    """The value of one attribute, of each match that has it."""


@dataclass(frozen=True, slots=True)
class Scoped:
    """A query that is rewritten to run on an element instead of a whole page."""

    inside: str
    """Query for the matches below the element, with all of its parts inside the element (needs ``:scope``)."""
    own: str
    """Query that the element matches if it is a result itself; empty if it cannot be one."""
    outward: str
    """If the element matches this query, results may be siblings, which the engine cannot reach; may be empty."""
    chained: bool
    """Whether any selector of the query consists of more than one compound selector."""


@dataclass(frozen=True, slots=True)
class CssQuery:
    """A CSS query that was parsed and is valid."""

    source: str
    """The query as the user wrote it."""
    take: Take = Take.ELEMENT
    attribute: str = ""
    native: str = ""
    """The query for the engine, without pseudo-elements; empty if only parsel can run it."""
    scoped: Scoped | None = None
    """``None`` if and only if ``native`` is empty."""


_LITERAL = re.compile(r"'[^']*'|\"[^\"]*\"")
_PREDICATES = r"(?:\[[^\[\]]*(?:\[[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\][^\[\]]*)*\])*"
_ROWS_OF_TABLE = re.compile(rf"(?<![\w.$@-])(?<!(?<!:):)table{_PREDICATES}/(?=(?:child::)?tr(?![\w.:(-]))")
_ROWS_HERE = re.compile(r"\s*(?:\./)?(?=(?:child::)?tr(?![\w.:(-]))")


def through_tbody(xpath: str, tag: str) -> str:
    """Return an XPath query with ``tbody`` between each ``table`` and its ``tr``.

    ``tag`` is the name of the element that the query starts from. HTML never has a row as a child of a table, so the
    original step would match nothing.
    """
    if "tr" not in xpath or ("table" not in xpath and tag != "table"):
        return xpath
    masked = _LITERAL.sub(lambda literal: "'" + "_" * (len(literal[0]) - 2) + "'", xpath)
    places = [match.end() for match in _ROWS_OF_TABLE.finditer(masked)]
    if tag == "table" and (here := _ROWS_HERE.match(masked)):
        places.insert(0, here.end())
    for place in reversed(places):
        xpath = f"{xpath[:place]}tbody/{xpath[place:]}"
    return xpath
