"""A copy of an HTML engine's tree as a tree of lxml, for functions that only lxml and parsel have.

The copy has the same structure, and each element of one tree is mapped to its counterpart in the other. Copying takes
about 5 µs per element. The copy is used for ``Selector.root``, for XPath on the fallback engine, and for XPath functions
that the default engine lacks.

:func:`register_functions` adds the string functions of XPath 2.0 that the default engine has, so that queries on XML pages
have them as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from functools import partial
from inspect import signature
from typing import Any

from lxml import etree
from lxml.html import HtmlElement, html_parser

from skitter.errors import PageTooComplex
from skitter.html.engine import Engine

MAX_ELEMENTS = 200_000
"""Maximum number of elements in a copy. Each takes 0.7 KB."""

# Characters and names that HTML allows and XML does not.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NOT_IN_A_NAME = re.compile(r"[^\w.-]|^(?=[^A-Za-z_])")


class LxmlTree:
    """A copy of a document, and the map between the elements of both."""

    __slots__ = ("_elements", "_key", "_nodes", "root")

    def __init__(self, engine: Engine, root: Any, base_url: str) -> None:
        self._key = engine.key
        self._elements: dict[Hashable, HtmlElement] = {}
        self._nodes: dict[HtmlElement, Any] = {}
        self.root: HtmlElement = self._copy_of(engine, root)
        self.root.getroottree().docinfo.URL = base_url or None
        pending = [root]
        while pending:  # the fallback engine does not limit the depth
            node = pending.pop()
            element, last = self._elements[self._key(node)], None
            for child in engine.content(node):
                if isinstance(child, str):
                    _append_text(element, last, child)
                    continue
                last = self._copy_of(engine, child)
                element.append(last)
                if engine.comment(child) is None:
                    pending.append(child)
            if len(self._elements) > MAX_ELEMENTS:
                raise PageTooComplex(
                    f"the page has more than {MAX_ELEMENTS:,} elements, too many for a copy in lxml",
                    remedy="use CSS, or XPath without the functions of lxml",
                )

    def _copy_of(self, engine: Engine, node: Any) -> HtmlElement:
        comment = engine.comment(node)
        if comment is None:
            copy = _with_name(html_parser.makeelement, engine.tag(node))
            for name, value in engine.attributes(node).items():
                _with_name(copy.set, name, _NOT_XML.sub("\ufffd", value))
        else:
            copy = etree.Comment(_NOT_XML.sub("\ufffd", comment).replace("--", "- -").removesuffix("-"))
        self._elements[self._key(node)] = copy
        self._nodes[copy] = node
        return copy

    def element_of(self, node: Any) -> HtmlElement | None:
        """Return the copy of a node, or ``None`` for a node outside the tree."""
        return self._elements.get(self._key(node))

    def node_of(self, element: object) -> Any:
        """Return the node of a copy, or ``None`` for anything else, such as a string.

        An element that ``re:match`` has created has no node, and is returned as HTML.
        """
        if not isinstance(element, etree._Element):  # noqa: SLF001 - lxml has no public name
            return None
        if element in self._nodes:
            return self._nodes[element]
        return etree.tostring(element, encoding="unicode", method="html", with_tail=False)


def _with_name(function: Any, name: str, *values: str) -> Any:
    try:
        return function(name, *values)
    except ValueError:
        return function(_NOT_IN_A_NAME.sub("_", name), *values)


def _append_text(element: HtmlElement, last: HtmlElement | None, text: str) -> None:
    text = _NOT_XML.sub("\ufffd", text)
    if last is None:
        element.text = (element.text or "") + text
    else:
        last.tail = (last.tail or "") + text


_STRING = etree.XPath("string($value)")
_FLAGS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE}


def register_functions() -> None:
    """Add the functions to all XPath queries of lxml in this process. A function that the user has registered is kept."""
    functions = etree.FunctionNamespace(None)
    for name, function in _FUNCTIONS.items():
        if name not in functions:
            functions[name] = partial(_call, name, function)


def _call(name: str, function: Callable[..., Any], context: Any, *arguments: Any) -> Any:
    """Call a function. Raises ValueError for a wrong number of arguments."""
    try:
        signature(function).bind(context, *arguments)
    except TypeError as error:
        raise ValueError(f"{name}(): {error}") from None
    return function(context, *arguments)


def _text(context: Any, value: Any) -> str:
    """Return the string value of an argument: of its first node, or of a number or boolean."""
    if isinstance(value, list) and value and isinstance(value[0], str):  # an attribute or a text
        return str(value[0])
    return str(_STRING(context.context_node, value=value))


def _compile(context: Any, pattern: Any, flags: Any) -> re.Pattern[str]:
    letters = _text(context, flags)
    try:
        return re.compile(_text(context, pattern), sum(_FLAGS[letter] for letter in set(letters)))
    except (re.error, KeyError) as error:
        raise ValueError(f"invalid regular expression: {error}") from None


def _ends_with(context: Any, value: Any, end: Any) -> bool:
    return _text(context, value).endswith(_text(context, end))


def _lower_case(context: Any, value: Any) -> str:
    return _text(context, value).lower()


def _upper_case(context: Any, value: Any) -> str:
    return _text(context, value).upper()


def _matches(context: Any, value: Any, pattern: Any, flags: Any = "") -> bool:
    return _compile(context, pattern, flags).search(_text(context, value)) is not None


def _replace(context: Any, value: Any, pattern: Any, replacement: Any, flags: Any = "") -> str:
    template = re.sub(r"\$(\d)", r"\\g<\1>", _text(context, replacement).replace("\\", "\\\\"))
    return _compile(context, pattern, flags).sub(template, _text(context, value))


def _string_join(context: Any, values: Any, separator: Any = "") -> str:
    if not isinstance(values, list):
        return _text(context, values)
    return _text(context, separator).join(_text(context, [node]) for node in values)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "ends-with": _ends_with,
    "lower-case": _lower_case,
    "matches": _matches,
    "replace": _replace,
    "string-join": _string_join,
    "upper-case": _upper_case,
}
