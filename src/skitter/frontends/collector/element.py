"""Elements: what ``on_html`` and ``on_xml`` callbacks get."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from skitter.frontends.collector.fields import Query, unmarshal
from skitter.frontends.collector.request import CollectorRequest
from skitter.frontends.collector.response import CollectorResponse
from skitter.html.selector import Selector, SelectorList

Model = TypeVar("Model")


class Element:
    """One element of an HTML page. The queries of its methods are CSS.

    ``index``
        Its place among those that the query of the callback found, from 0.
    ``selector``
        The :class:`~skitter.html.selector.Selector` itself.
    """

    __slots__ = ("index", "response", "selector")

    def __init__(self, response: CollectorResponse, selector: Selector, index: int) -> None:
        self.response = response
        self.selector = selector
        self.index = index

    @property
    def request(self) -> CollectorRequest:
        """The request of its page."""
        return self.response.request

    @property
    def name(self) -> str:
        """Name of the tag; empty for a text or attribute."""
        return self.selector.tag

    @property
    def text(self) -> str:
        """All text within, as it stands in the page."""
        return text_of(self.selector)

    def attr(self, name: str) -> str:
        """Return an attribute; empty if it has none of that name."""
        return self.selector.attrib.get(name, "") if self.name else ""

    def child_text(self, query: str) -> str:
        """Return the text of all elements within that the query finds, joined and stripped."""
        return "".join(text_of(found) for found in self._find(query)).strip()

    def child_texts(self, query: str) -> list[str]:
        """Return the text of each element within that the query finds, stripped."""
        return [text_of(found).strip() for found in self._find(query)]

    def child_attr(self, query: str, name: str) -> str:
        """Return an attribute of the first element within that the query finds, stripped; or empty."""
        found = self._find(query)
        return found.attrib.get(name, "").strip() if len(found) else ""

    def child_attrs(self, query: str, name: str) -> list[str]:
        """Return an attribute of each element within that the query finds and that has it, stripped."""
        return [value.strip() for found in self._find(query) if (value := found.attrib.get(name)) is not None]

    def for_each(self, query: str, callback: Callable[[Element], Any]) -> None:
        """Call a plain function with each element within that the query finds."""
        for element in self.find(query):
            callback(element)

    def for_each_with_break(self, query: str, callback: Callable[[Element], bool]) -> None:
        """Call a plain function with one element after the other as long as it returns something true."""
        for element in self.find(query):
            if not callback(element):
                return

    def find(self, query: str) -> list[Element]:
        """Return the elements within that the query finds."""
        make = type(self)
        return [make(self.response, found, index) for index, found in enumerate(self._find(query))]

    def unmarshal(self, model: type[Model], fields: Mapping[str, Query | str] | None = None) -> Model:
        """Return a dataclass, pydantic or msgspec instance made from this element.

        Each field says by ``Annotated[type, Css(query)]`` or ``XPath(query)`` where its value is;
        ``fields`` gives or replaces such queries by name, a text being CSS. See :mod:`skitter.frontends.collector.fields`.
        Raises :class:`~skitter.frontends.collector.fields.UnmarshalError`.
        """
        return unmarshal(self.selector, model, fields)

    def _find(self, query: str) -> SelectorList:
        return self.selector.css(query)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} of {self.response.url}>"


class XmlElement(Element):
    """One node of an XML or HTML page that XPath has found. The queries of its methods are XPath, relative to it."""

    __slots__ = ()

    def _find(self, query: str) -> SelectorList:
        return self.selector.xpath(query)


def text_of(selector: Selector) -> str:
    """Return all text within an element, or the text or attribute value itself."""
    if not selector.tag:
        return str(selector.get())
    return "".join(selector.css("::text").getall())
