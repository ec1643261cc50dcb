"""CSS queries, compiled for the HTML engine.

A query has the same meaning as in parsel, which translates it to XPath: class names, ids and attribute values are
case-sensitive; a query on an element tests the element itself and its descendants, and nothing outside it;
``::text`` and ``::attr(name)`` select text nodes and attributes. Queries that the engine's selectors express exactly
run there. All others (``:contains()``, ``:has()``, namespaces, mixed groups) run in parsel.
"""

from __future__ import annotations

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
