"""CSS queries, made ready once for the HTML engine.

A query means what it means to parsel, which translates it to XPath: class names, ids and attribute values are
case-sensitive, a query on an element looks at the element itself too and at nothing outside it, and ``::text``
and ``::attr(name)`` take text nodes and attributes. What the engine's own selectors express exactly runs
there; the rest (``:contains()``, ``:has()``, namespaces, mixed groups) is left to parsel.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache

import cssselect.parser as tree
from cssselect import SelectorError
from parsel.csstranslator import HTMLTranslator

from skitter.errors import UsageError


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


# Those whose meaning is the same in the CSS standard and in parsel's translation.
_SAFE_PSEUDO_CLASSES = frozenset(
    {"first-child", "last-child", "only-child", "first-of-type", "last-of-type", "only-of-type", "empty"}
)
_SAFE_FUNCTIONS = frozenset({"nth-child", "nth-last-child", "nth-of-type", "nth-last-of-type"})

_translator = HTMLTranslator()


@lru_cache(maxsize=4096)
def compile_css(css: str) -> CssQuery:
    """Parse a CSS query. Raises :class:`~skitter.errors.UsageError` if parsel would refuse it."""
    try:
        _translator.css_to_xpath(css)
        selectors = tree.parse(css)
    except (SelectorError, TypeError) as error:
        raise UsageError(
            f"{css!r} is no CSS query: {error}",
            remedy="correct it, or use an XPath query, which can express more",
        ) from None
    parts = [_part_of(selector) for selector in selectors]
    if None in parts or len({(part[0], part[1]) for part in parts if part}) > 1:
        return CssQuery(css)
    chains = [part[2] for part in parts if part]
    take, attribute, _ = parts[0] or (Take.ELEMENT, "", [])
    native = ", ".join(_render(chain) for chain in chains)
    return CssQuery(css, take, attribute, native, _scoped(chains))


_Chain = list[tuple[str, tree.Tree]]
"""Compound selectors, each with the combinator before it."""


def _part_of(selector: tree.Selector) -> tuple[Take, str, _Chain] | None:
    chain = _chain_of(selector.parsed_tree)
    pseudo = selector.pseudo_element
    if not all(_is_native(compound) for _, compound in chain):
        return None
    if pseudo is None:
        return Take.ELEMENT, "", chain
    spill = _spill(chain)
    if isinstance(pseudo, tree.FunctionalPseudoElement):
        return None if spill else (Take.ATTRIBUTE, str(pseudo.arguments[0].value), chain)
    if spill == ">":
        return None
    if len(chain) == 1 and _is_any(chain[0][1]):
        return Take.DEEP_TEXT, "", chain
    return (Take.DEEP_TEXT, "", chain[:-1]) if spill else (Take.TEXT, "", chain)


def _spill(chain: _Chain) -> str:
    """Return the combinator before a last "*" that takes in the level above it too, if there is one.

    In parsel's translation ``p *::text`` gives the text of ``p`` itself as well, and so does ``* > *::text``.
    """
    if len(chain) == 1 or not _is_any(chain[-1][1]):
        return ""
    combinator = chain[-1][0]
    any_child = combinator == ">" and len(chain) == 2 and _is_any(chain[0][1])
    return combinator if combinator == " " or any_child else ""


def _chain_of(selector: tree.Tree) -> _Chain:
    chain: _Chain = []
    while isinstance(selector, tree.CombinedSelector):
        chain.insert(0, (selector.combinator, selector.subselector))
        selector = selector.selector
    return [("", selector), *chain]


def _is_any(selector: tree.Tree) -> bool:
    return isinstance(selector, tree.Element) and selector.element is None


def _is_native(selector: tree.Tree) -> bool:
    match selector:
        case tree.Element():
            return selector.namespace is None
        case tree.Class() | tree.Hash():
            fit = True
        case tree.Attrib():
            fit = _is_native_attribute(selector)
        case tree.Pseudo():
            fit = selector.ident in _SAFE_PSEUDO_CLASSES
        case tree.Function():
            fit = selector.name in _SAFE_FUNCTIONS
        case tree.Negation():
            fit = _is_native(selector.subselector)
        case tree.Matching() | tree.SpecificityAdjustment():
            fit = all(map(_is_native, selector.selector_list))
        case _:
            return False
    return fit and _is_native(selector.selector)


def _is_native_attribute(selector: tree.Attrib) -> bool:
    if selector.operator != "exists" and selector.flag is None:
        # HTML compares the values of some attributes (type, rel, lang ...) without case, parsel never does.
        selector.flag = "s"
    return not selector.namespace and selector.operator != "!="


def _render(chain: _Chain, after_first: str = "") -> str:
    first = chain[0][1].canonical() + after_first
    return first + "".join(f" {combinator} {compound.canonical()}" for combinator, compound in chain[1:])


def _scoped(chains: list[_Chain]) -> Scoped:
    inside, own, outward = [], [], []
    for chain in chains:
        if len(chain) == 1:
            own.append(_render(chain))
            inside.append(_render(chain))
            continue
        inside.append(_render(chain, ":is(:scope,:scope *)"))
        if chain[1][0] in "+~":
            outward.append(_render(chain[:1]))
    return Scoped(
        ", ".join(inside), ", ".join(own), ", ".join(outward), any(len(chain) > 1 for chain in chains)
    )
