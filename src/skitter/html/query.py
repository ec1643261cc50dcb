"""CSS queries, made ready once for the HTML engine.

A query means what it means to parsel, which translates it to XPath: class names, ids and attribute values are
case-sensitive, a query on an element looks at the element itself too and at nothing outside it, and ``::text``
and ``::attr(name)`` take text nodes and attributes. What the engine's own selectors express exactly runs
there; the rest (``:contains()``, ``:has()``, namespaces, mixed groups) is left to parsel.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache


class Take(Enum):
    """What a query takes from the elements it matches."""

    ELEMENT = auto()
    TEXT = auto()
    """The text nodes that are children of a match."""
    DEEP_TEXT = auto()
    """All text nodes inside a match."""
    ATTRIBUTE = auto()
    """The value of one attribute of a match that has it."""


@dataclass(frozen=True, slots=True)
class Scoped:
    """A query as it runs on an element rather than on a whole page."""

    inside: str
    """Finds the matches below the element, all parts of the query within it (needs ``:scope``)."""
    own: str
    """Tells whether the element is a match itself; empty if it cannot be."""
    outward: str
    """If the element fits this, there may be matches beside it, out of the engine's reach; may be empty."""
    chained: bool
    """Whether any part of the query is more than one compound selector."""


@dataclass(frozen=True, slots=True)
class CssQuery:
    """A query that was parsed and found valid."""

    source: str
    """As the user wrote it."""
    take: Take = Take.ELEMENT
    attribute: str = ""
    native: str = ""
    """The query for the engine, without pseudo-elements; empty if only parsel can run it."""
    scoped: Scoped | None = None
    """``None`` exactly if ``native`` is empty."""


_ONE_TAG = re.compile(r"([a-z][a-z0-9]*)(?:::(text)|::attr\(([a-z][a-z-]*)\))?")


@lru_cache(maxsize=4096)
def compile_css(css: str) -> CssQuery:
    """Parse a CSS query. Raises :class:`~skitter.errors.UsageError` if parsel would refuse it."""
    simple = _ONE_TAG.fullmatch(css)
    if simple is None:
        # Parsel takes a tenth of a second to import, which a spider that needs no more than tags is spared.
        from skitter.html.translation import translated  # noqa: PLC0415 - see above

        return translated(css)
    tag, text, attribute = simple.groups()
    take = Take.TEXT if text else Take.ATTRIBUTE if attribute else Take.ELEMENT
    return CssQuery(css, take, attribute or "", tag, Scoped(tag, tag, "", chained=False))
