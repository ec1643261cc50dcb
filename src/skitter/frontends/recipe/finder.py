"""Finder: a compiled selection that finds elements in a page or values in JSON."""

from __future__ import annotations

import json
from typing import Any

import jmespath
import jmespath.exceptions
import msgspec
from lxml import etree

from skitter.errors import UsageError
from skitter.frontends.recipe.compile_context import CompileContext
from skitter.frontends.recipe.model import Selection
from skitter.html.selector import Selector, compile_css


class Finder:
    """Finds with CSS, XPath or JMESPath, or with JMESPath in JSON text that CSS or XPath finds.

    Both the input and the results are :class:`~skitter.html.selector.Selector` objects or values from JSON.
    """

    def __init__(self, source: str | Selection, compile_context: CompileContext) -> None:
        selection = compile_context.selection(source)
        self.css, self.xpath = selection.css, selection.xpath
        self.source = selection.css or selection.xpath or selection.json or ""
        self._json: Any = None
        bare = isinstance(source, str)
        if self.css is not None and self.xpath is not None:
            compile_context.problem("css and xpath exclude each other", "keep one of them")
        if self.css is not None:
            try:
                compile_css(self.css)
            except UsageError as error:
                compile_context.add_error(error, *(() if bare else ("css",)))
        if self.xpath is not None:
            try:
                etree.XPath(self.xpath)
            except etree.XPathError as error:
                problem = f"invalid XPath {self.xpath!r}: {error}"
                compile_context.problem(problem, "correct it (XPath 1.0)", "xpath")
        if selection.json is not None:
            try:
                self._json = jmespath.compile(selection.json)
            except jmespath.exceptions.JMESPathError as error:
                problem = f"invalid JMESPath {selection.json!r}: {str(error).splitlines()[0].rstrip(': ')}"
                place = () if bare else ("json",)
                compile_context.problem(problem, "correct it; see jmespath.org", *place)

    def find(self, node: Any, *, keep_list: bool = False) -> list[Any]:
        """Return the matches in document order. ``keep_list``: a list in JSON is a single match.

        Raises :class:`~skitter.errors.UsageError` for CSS or XPath on JSON, and for JMESPath on text that is not JSON.
        """
        if self.css is None and self.xpath is None:
            return self._in_json(_value_of(node), keep_list=keep_list) if self._json is not None else [node]
        if not isinstance(node, Selector):
            raise UsageError(f"{self.source!r} cannot select in JSON", remedy="use json instead")
        found = list(node.css(self.css) if self.css is not None else node.xpath(self.xpath or "."))
        if self._json is None:
            return found
        return [value for match in found for value in self._in_json(_value_of(match), keep_list=keep_list)]

    def _in_json(self, value: Any, *, keep_list: bool) -> list[Any]:
        try:
            found = self._json.search(value)
        except jmespath.exceptions.JMESPathError as error:
            raise UsageError(f"{self.source!r} fails here: {error}", remedy="correct the JMESPath") from None
        if found is None:
            return []
        return found if isinstance(found, list) and not keep_list else [found]


def _value_of(node: Any) -> Any:
    """Return the JSON value of a node: the node itself, or its text parsed as JSON."""
    if not isinstance(node, (str, Selector)):
        return node
    text = text_of(node)
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        try:
            return json.loads(text, strict=False)  # JSON on the web contains NaN and raw line breaks
        except (ValueError, RecursionError) as error:
            raise UsageError(f"invalid JSON: {error}", remedy="select the text that contains JSON") from None


def text_of(node: Any) -> str:
    """Return a string unchanged, the text of an element, or a JSON value as text."""
    if isinstance(node, Selector):
        value = node.text_content() if node.tag else node.get()
        return value if isinstance(value, str) else text_of(value)
    if isinstance(node, str):
        return node
    if isinstance(node, bool):
        return "true" if node else "false"
    if isinstance(node, (dict, list)):
        return msgspec.json.encode(node).decode()
    return str(node)
