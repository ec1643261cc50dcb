"""Compiles CSS queries for the HTML engine; see :mod:`skitter.html.query`."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import cssselect.parser as tree
from cssselect import SelectorError
from cssselect.xpath import ExpressionError
from parsel.csstranslator import GenericTranslator, HTMLTranslator

from skitter.errors import QueryError
from skitter.html.query import CssQuery, Scoped, Take

# Pseudo-classes with the same meaning in the CSS standard and in parsel's translation.
_SAFE_PSEUDO_CLASSES = frozenset(
    {"first-child", "last-child", "only-child", "first-of-type", "last-of-type", "only-of-type"}
)
_SAFE_FUNCTIONS = frozenset({"nth-child", "nth-last-child", "nth-of-type", "nth-last-of-type"})


def _containing_own_text(translator: Any, xpath: Any, function: Any) -> Any:
    """Translate ``:containsOwn("text")`` of cascadia: a text node of the element itself contains the text."""
    if function.argument_types() not in (["STRING"], ["IDENT"]):
        raise ExpressionError("Expected a single string or ident for :containsOwn()")
    text = translator.xpath_literal(function.arguments[0].value)
    return xpath.add_condition(f"text()[contains(., {text})]")


class _Html(HTMLTranslator):
    xpath_containsown_function = _containing_own_text


class _AnyNamespace(GenericTranslator):
    """Translates names without a prefix to names in any namespace, as the standard requires (Selectors 4, 3.1).

    Parsel's translation selects only elements in no namespace, so ``loc`` would find nothing in a sitemap.
    """

    xpath_containsown_function = _containing_own_text

    def xpath_element(self, selector: tree.Element) -> Any:
        """Translate an element name."""
        if selector.element is None or selector.namespace is not None:
            return super().xpath_element(selector)
        return self.xpathexpr_cls(condition=f"local-name() = {self.xpath_literal(selector.element)}")


_html_translator = _Html()
_xml_translator = _AnyNamespace()
_plain_xml_translator = GenericTranslator()


@lru_cache(maxsize=1024)
def css_to_xpath(css: str) -> str:
    """Return an XPath query for an HTML page with the same meaning. Raises ValueError or TypeError for invalid CSS."""
    return _html_translator.css_to_xpath(css)


@lru_cache(maxsize=1024)
def css_to_xpath_of_xml(css: str) -> str:
    """Return an XPath query for an XML page with the same meaning. The query is valid CSS."""
    try:
        return _xml_translator.css_to_xpath(css)
    except ExpressionError:  # :nth-of-type() and similar pseudo-classes need a plain name
        return _plain_xml_translator.css_to_xpath(css)


def translated(css: str) -> CssQuery:
    """Parse any CSS query. Raises :class:`~skitter.errors.QueryError` for a query that parsel rejects."""
    try:
        css_to_xpath(css)
        selectors = tree.parse(css)
    except (SelectorError, TypeError) as error:
        in_cascadia = _from_cascadia(css)
        if in_cascadia != css:
            return translated(in_cascadia)
        raise QueryError(
            f"invalid CSS query {css!r}: {error}", remedy=remedy_of(css), field="query"
        ) from None
    parts = [_part_of(selector) for selector in selectors]
    if None in parts or len({(part[0], part[1]) for part in parts if part}) > 1:
        return CssQuery(css)
    chains = [part[2] for part in parts if part]
    take, attribute, _ = parts[0] or (Take.ELEMENT, "", [])
    native = ", ".join(_render(chain) for chain in chains)
    return CssQuery(css, take, attribute, native, _scoped(chains))


_CASCADIA = (
    (re.compile(r":haschild\(", re.IGNORECASE), ":has(> "),
    (re.compile(r":input(?![\w-])", re.IGNORECASE), ":is(input, select, textarea, button)"),
    (re.compile(r":not\((?!:is\()([^()]*,[^()]*)\)"), r":not(:is(\1))"),
)
"""Extensions of cascadia, the selector library of Colly, and their equivalents here. The last one belongs to CSS 4."""
_REGEX = re.compile(
    r"\[\s*(?P<attribute>[\w-]+)\s*#=\s*|:matches(?P<own>own)?\(|(?P<literal>'[^']*'|\"[^\"]*\")",
    re.IGNORECASE,
)
"""The start of a regular expression of cascadia. Literals are matched in order to skip them."""
_OF_TYPE = re.compile(r"(?<![\w-]):(first|last|only|nth|nth-last)-of-type", re.IGNORECASE)
"""A pseudo-class without the name of an element, which XPath 1.0 cannot express."""
_XPATH = re.compile(r"^\s*\(?\s*(\.?/|@\w)|/@|/text\(\)")
"""Matches text that only an XPath query contains."""
_PLACEHOLDER = "regex-"
"""Attribute that replaces a regular expression while the rest of a query is translated."""
_STEPS = re.compile(r"(^|\| )descendant-or-self::(?!\*/)|/descendant-or-self::\*/")


def _from_cascadia(css: str) -> str:
    """Return a query without the extensions of cascadia that have an equivalent in CSS."""
    for pattern, replacement in _CASCADIA:
        css = pattern.sub(replacement, css)
    return css


def remedy_of(css: str) -> str:
    """Return the remedy for a query that is invalid or uses extensions of cascadia: if possible, an equivalent query."""
    plain, tests = _without_regexes(css)
    if not tests and _OF_TYPE.search(css):
        return "write the name of the element before the pseudo-class, such as p:first-of-type"
    if _XPATH.search(css):
        return "it is written in XPath: use .xpath(), or translate the query to CSS"
    if not tests:
        return "correct the query, or use XPath, which can express more"
    try:
        xpath = css_to_xpath(_from_cascadia(plain))
    except (SelectorError, TypeError):
        return (
            "CSS has no regular expressions; use XPath with re:test(), such as //a[re:test(@href, '^/item')]"
        )
    for number, test in reversed([*enumerate(tests)]):  # replace 10 before 1
        xpath = xpath.replace(f"@{_PLACEHOLDER}{number}", test)
    xpath = _STEPS.sub(r"\1//", xpath)
    return f"CSS has no regular expressions; use XPath: {xpath}"


def _without_regexes(css: str) -> tuple[str, list[str]]:
    """Replace each regular expression of cascadia by a test of an attribute. Return the query and the XPath conditions."""
    tests: list[str] = []
    parts = []
    rest = 0
    while found := _REGEX.search(css, rest):
        if found["literal"]:
            parts.append(css[rest : found.end()])
            rest = found.end()
            continue
        end = _end_of_regex(css, found.end())
        regex = css[found.end() : end].strip()
        if found["attribute"] and regex.startswith("(") and _end_of_regex(regex, 1) == len(regex) - 1:
            regex = regex[1:-1]
        literal = _html_translator.xpath_literal(regex.strip("\"'"))
        test = f"re:test({'@' + found['attribute'] if found['attribute'] else '.'}, {literal})"
        if found["own"]:
            test = f"text()[{test}]"
        parts.append(f"{css[rest : found.start()]}[{_PLACEHOLDER}{len(tests)}]")
        tests.append(test)
        rest = end + 1
    return "".join([*parts, css[rest:]]), tests


def _end_of_regex(text: str, start: int) -> int:
    """Return the position of the bracket that ends a regular expression: the first unmatched bracket, as in cascadia."""
    depth = 0
    for position in range(start, len(text)):
        if text[position] in "([":
            depth += 1
        elif text[position] in ")]":
            depth -= 1
            if depth < 0:
                return position
    return len(text)


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
    """Return the combinator before a final ``*`` if the query also selects the level above it, otherwise ``""``.

    In parsel's translation ``p *::text`` also returns the text of ``p`` itself, and so does ``* > *::text``.
    """
    if len(chain) == 1 or not _is_any(chain[-1][1]):
        return ""
    combinator = chain[-1][0]
    any_child = combinator == ">" and len(chain) == 2 and _is_any(chain[0][1])
    return combinator if combinator == " " or any_child else ""


def _chain_of(selector: tree.Tree) -> _Chain:
    """Return the parts of a selector, with a ``tbody`` between ``table`` and ``> tr``; see :mod:`skitter.html.query`."""
    chain: _Chain = []
    while isinstance(selector, tree.CombinedSelector):
        chain.insert(0, (selector.combinator, selector.subselector))
        selector = selector.selector
    result: _Chain = []
    for combinator, compound in [("", selector), *chain]:
        if combinator == ">" and _name(compound) == "tr" and _name(result[-1][1]) == "table":
            result.append((">", tree.Element(element="tbody")))
        result.append((combinator, compound))
    return result


def _name(compound: tree.Tree) -> str | None:
    while not isinstance(compound, tree.Element):
        compound = compound.selector
    return compound.element if compound.namespace is None else None


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
        # HTML ignores case in the values of some attributes (type, rel, lang ...), parsel never does.
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
