"""Compiles CSS queries for the HTML engine."""

from __future__ import annotations

import re
from functools import lru_cache

from skitter.html.query import CssQuery, Scoped, Take

_ONE_TAG = re.compile(r"([a-z][a-z0-9]*)(?:::(text)|::attr\(([a-z][a-z-]*)\))?")


@lru_cache(maxsize=4096)
def compile_css(css: str) -> CssQuery:
    """Parse a CSS query. Raises :class:`~skitter.errors.QueryError` for a query that parsel rejects."""
    simple = _ONE_TAG.fullmatch(css)
    if simple is None:
        # Importing parsel takes 0.1 s. A spider that selects by element names only does not need it.
        from skitter.html.translation import translated  # noqa: PLC0415 - see above

        return translated(css)
    tag, text, attribute = simple.groups()
    take = Take.TEXT if text else Take.ATTRIBUTE if attribute else Take.ELEMENT
    return CssQuery(css, take, attribute or "", tag, Scoped(tag, tag, "", chained=False))
