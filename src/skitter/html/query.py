"""CSS queries, compiled for the HTML engine.

A query has the same meaning as in parsel, which translates it to XPath: class names, ids and attribute values are
case-sensitive; a query on an element tests the element itself and its descendants, and nothing outside it;
``::text`` and ``::attr(name)`` select text nodes and attributes. Queries that the engine's selectors express exactly
run there. All others (``:contains()``, ``:has()``, namespaces, mixed groups) are translated to XPath.

The HTML parser puts a ``tbody`` around the rows of a table, so ``table > tr`` and ``table/tr`` match nothing in a browser.
Both are common in spiders, because page sources and libxml2 have no such ``tbody``. Here they match through the ``tbody``.

On an XML page, XPath queries without prefixes find nothing in a namespace. This is logged.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from enum import Enum, auto
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

log = logging.getLogger("skitter.crawl")


class Take(Enum):
    """What a query returns for the elements that it matches."""

    ELEMENT = auto()
    TEXT = auto()
    """The text nodes that are children of a match."""
    DEEP_TEXT = auto()
    """All text nodes inside a match."""
    ATTRIBUTE = auto()
    """The value of one attribute, of each match that has it."""


class Scoped(msgspec.Struct, frozen=True):
    """A query that is rewritten to run on an element instead of a whole page."""

    inside: str
    """Query for the matches below the element, with all of its parts inside the element (needs ``:scope``)."""
    own: str
    """Query that the element matches if it is itself a result; empty if it cannot be a result."""
    outward: str
    """If the element matches this query, results may be siblings, which the engine cannot reach; may be empty."""
    chained: bool
    """Whether any selector of the query consists of more than one compound selector."""


class CssQuery(msgspec.Struct, frozen=True):
    """A parsed, valid CSS query."""

    source: str
    """The query as the user wrote it."""
    take: Take = Take.ELEMENT
    attribute: str = ""
    native: str = ""
    """The query for the engine, without pseudo-elements; empty if only parsel can run it."""
    scoped: Scoped | None = None
    """``None`` if and only if ``native`` is empty."""


# These patterns are compiled at their first use.
_LITERAL = r"""'[^']*'|"[^"]*\""""
_PREDICATES = r"(?:\[[^\[\]]*(?:\[[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\][^\[\]]*)*\])*"
_ROWS_OF_TABLE = rf"(?<![\w.$@-])(?<!(?<!:):)table{_PREDICATES}/(?=(?:child::)?tr(?![\w.:(-]))"
_ROWS_HERE = r"\s*(?:\./)?(?=(?:child::)?tr(?![\w.:(-]))"


def through_tbody(xpath: str, tag: str) -> str:
    """Return an XPath query with ``tbody`` between each ``table`` and its ``tr``.

    ``tag`` is the name of the element that the query starts from. HTML never has a row as a child of a table, so the
    original step would match nothing.
    """
    if "tr" not in xpath or ("table" not in xpath and tag != "table"):
        return xpath
    masked = re.sub(_LITERAL, lambda literal: "'" + "_" * (len(literal[0]) - 2) + "'", xpath)
    positions = [match.end() for match in re.finditer(_ROWS_OF_TABLE, masked)]
    if tag == "table" and (found := re.match(_ROWS_HERE, masked)):
        positions.insert(0, found.end())
    for position in reversed(positions):
        xpath = f"{xpath[:position]}tbody/{xpath[position:]}"
    return xpath


_WORD = r"""\s+|"[^"]*"|'[^']*'|\$?[^\W\d][\w.-]*(?::(?!:)(?:\*|[^\W\d][\w.-]*))?|::|//|\.\.|[!<>]=|\d+(?:\.\d*)?|\.\d+|."""
_PLAIN_NAME = r"[^\W\d][\w.-]*"
_BEFORE_OPERAND = frozenset(
    ["@", "::", "(", "[", ",", "/", "//", "|", "+", "-", "=", "!=", "<", "<=", ">", ">="]
)


class _Word(NamedTuple):
    """A word of an XPath query."""

    text: str
    is_operator: bool
    after_operand: bool
    following: str
    """The next word that is not a space; empty at the end."""


def _words(xpath: str) -> Iterator[_Word]:
    """Yield the words of an XPath query, including spaces.

    By the rules of XPath 1.0 (3.7), a name after an operand is an operator.
    """
    parts = re.findall(_WORD, xpath)
    after_operand = False
    for position, part in enumerate(parts):
        following = next((other for other in parts[position + 1 :] if not other.isspace()), "")
        is_name = re.fullmatch(_PLAIN_NAME, part) is not None
        is_operator = after_operand and (is_name or part == "*")
        yield _Word(part, is_operator, after_operand, following)
        if not part.isspace():
            after_operand = not is_operator and part not in _BEFORE_OPERAND


@lru_cache(maxsize=1024)
def in_any_namespace(xpath: str) -> str:
    """Return an XPath query whose names without a prefix match in any namespace, as in CSS."""
    result = []
    for word in _words(xpath):
        is_name = re.fullmatch(_PLAIN_NAME, word.text) is not None
        # A name before "(" or "::" is a function or an axis (XPath 1.0, 3.7).
        is_test = is_name and not word.is_operator and word.following not in {"(", "::"}
        result.append(f"*[local-name()='{word.text}']" if is_test else word.text)
    return "".join(result)


@lru_cache(maxsize=1024)
def from_element(xpath: str) -> str:
    """Return an XPath query whose paths that begin with ``/`` begin at the element, except in predicates.

    ``(//a)[1] | /b`` becomes ``(.//a)[1] | ./b``.
    """
    result = []
    depth = 0
    for word in _words(xpath):
        depth += {"[": 1, "]": -1}.get(word.text, 0)
        begins_path = word.text in {"/", "//"} and not word.after_operand and not depth
        if begins_path:
            result.append(".")
        is_whole_path = begins_path and word.text == "/" and not re.match(r"[\w@.*]", word.following)
        result.append("" if is_whole_path else word.text)
    return "".join(result)


_NAME = r"(?<![\w:@$.-])[A-Za-z_][\w.-]*(?!\s*[(:]|[\w.-])"
_OPERATORS = frozenset({"and", "or", "div", "mod"})
_MAX_CHECKED = 1_000
_checked: set[tuple[str, str]] = set()
"""Queries and roots that were already checked, because searching the page after each empty result would be slow."""


def warn_of_namespaces(query: str, node: Any) -> None:
    """Log a warning if a query without a result names an element that the page has only in a namespace.

    A name without a prefix means an element in no namespace (XPath 1.0, 2.3), also where the page declares a default
    namespace. Each query is checked once for each kind of page.
    """
    try:
        root = node.getroottree().getroot()
    except AttributeError:  # a text or an attribute
        return
    if (query, root.tag) in _checked or len(_checked) >= _MAX_CHECKED:
        return
    _checked.add((query, root.tag))
    for name in dict.fromkeys(re.findall(_NAME, re.sub(_LITERAL, "", query))):
        found = None if name in _OPERATORS else next(root.iter(f"{{*}}{name}"), None)
        if found is not None and found.tag != name and next(root.iter(name), None) is None:
            namespace = found.tag.partition("}")[0][1:]
            log.warning(
                "the XPath query %s can find nothing: <%s> is in the namespace %s; call selector.remove_namespaces() first,"
                " use css(%r), or pass namespaces={'x': %r} and write x:%s",
                query, name, namespace, name, namespace, name,
            )  # fmt: skip
            return
