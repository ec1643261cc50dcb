"""Selectors: parsel's way of taking data out of a page, with CSS on a fast HTML5 engine.

``css`` runs on the engine; ``xpath`` (and what CSS the engine cannot express) runs on lxml through parsel, whose
tree is built when it is first asked for. An element found by CSS is found again there by repeating the queries
that led to it, so ``..`` and the following axes see the whole page; only where the two trees disagree is the
element's own HTML parsed instead. Results are those of parsel, except that the engine builds the tree of the
HTML standard: ``table`` has its ``tbody``, a stray ``</p>`` is an empty paragraph, SVG attributes keep their
case.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self, overload

import parsel
from parsel.utils import extract_regex

from skitter.errors import UsageError
from skitter.markup.engine import Engine, load_engine
from skitter.markup.query import CssQuery, Take, compile_css

_engine = load_engine()


class _Page:
    """One HTML text and its two trees."""

    __slots__ = ("_twin", "document", "engine", "text")

    def __init__(self, text: str, engine: Engine) -> None:
        self.text = text
        self.engine = engine
        self.document = engine.parse(text)
        self._twin: parsel.Selector | None = None

    def twin(self) -> parsel.Selector:
        if self._twin is None:
            self._twin = parsel.Selector(text=self.text, type="html")
        return self._twin


class Selector:
    """An element of an HTML page, or a value taken from it.

    ``Selector(text)`` parses a page or a fragment (HTML that came inside JSON, say) and stands for its ``html``
    element.
    """

    __slots__ = ("_found", "_index", "_node", "_page")

    def __init__(self, text: str, *, engine: Engine = _engine) -> None:
        self._page = _Page(text, engine)
        self._node = engine.root(self._page.document)
        self._found: _Elements | None = None
        self._index = 0

    def css(self, query: str) -> SelectorList:
        """Select by CSS; ``::text`` takes text nodes, ``::attr(name)`` attribute values.

        Raises :class:`~skitter.errors.UsageError` for a query that is not CSS.
        """
        return self._run(compile_css(query))

    def xpath(
        self, query: str, namespaces: Mapping[str, str] | None = None, **variables: Any
    ) -> SelectorList:
        """Select by XPath 1.0; ``$name`` in the query takes its value from the keyword ``name``.

        Raises :class:`~skitter.errors.UsageError` for a query that is not XPath.
        """
        try:
            return _wrap(self._twin().xpath(query, namespaces=namespaces, **variables))
        except ValueError as error:
            raise UsageError(
                f"{query!r} is no XPath query: {error}", remedy="correct it; this is XPath 1.0"
            ) from None

    def jmespath(self, query: str, **options: Any) -> SelectorList:
        """Select by JMESPath from text that is JSON."""
        return _wrap(self._twin().jmespath(query, **options))

    def get(self) -> Any:
        """Return the outer HTML of an element, the text or attribute value as it is."""
        return self._page.engine.html(self._node)

    extract = get

    def getall(self) -> list[Any]:
        """Return ``get()`` as a list of one."""
        return [self.get()]

    @property
    def attrib(self) -> dict[str, str]:
        """The attributes of the element."""
        return self._page.engine.attributes(self._node)

    @property
    def tag(self) -> str:
        """Name of the element in lower case; ``""`` for a text or attribute value."""
        return self._page.engine.tag(self._node)

    def re(self, regex: str | re.Pattern[str], replace_entities: bool = True) -> list[str]:
        """Return the matches of a regular expression in ``get()``: its groups, or all of it without groups.

        Character references in them are replaced, but for ``&lt;`` and ``&amp;``.
        """
        return extract_regex(regex, self.get(), replace_entities=replace_entities)

    def re_first(
        self, regex: str | re.Pattern[str], default: str | None = None, replace_entities: bool = True
    ) -> str | None:
        """Return the first of :meth:`re`, or the default."""
        return next(iter(self.re(regex, replace_entities)), default)

    def __bool__(self) -> bool:
        return True

    def __str__(self) -> str:
        return str(self.get())

    def __repr__(self) -> str:
        return f"<{type(self).__name__.strip('_')} {_shortened(str(self))!r}>"

    def _run(self, query: CssQuery) -> SelectorList:
        nodes = self._matches(query)
        if nodes is None:
            return _wrap(self._twin().css(query.source))
        if query.take is Take.ELEMENT:
            return _Elements(self, query, nodes)
        return _Values(self._taken(query, nodes))

    def _matches(self, query: CssQuery) -> list[Any] | None:
        page, scoped = self._page, query.scoped
        if scoped is None:
            return None
        if query.take is Take.DEEP_TEXT and query.native == "*":
            return [self._node]
        if self._found is None:
            return page.engine.select(page.document, query.native)
        if scoped.chained and not page.engine.anchors:
            return None
        if scoped.outward and page.engine.matches(self._node, scoped.outward):
            return None
        nodes = page.engine.select(self._node, scoped.inside)
        if scoped.own and page.engine.matches(self._node, scoped.own):
            nodes.insert(0, self._node)
        return nodes

    def _taken(self, query: CssQuery, nodes: list[Any]) -> list[str]:
        engine = self._page.engine
        if query.take is Take.ATTRIBUTE:
            return [value for node in nodes if (value := engine.attribute(node, query.attribute)) is not None]
        nested = len(nodes) > 1 and any(engine.first(node, query.native) is not None for node in nodes)
        if query.take is Take.DEEP_TEXT:
            tops = engine.outermost(nodes) if nested else nodes
            return [text for node in tops for text in engine.deep_texts(node)]
        if nested:
            return engine.nested_texts(nodes)
        return [text for node in nodes for text in engine.texts(node)]

    def _twin(self) -> parsel.Selector:
        """Return the same element in parsel's tree."""
        if self._found is None:
            return self._page.twin()
        twins = self._found.twins()
        return _reparsed(self.get(), self.tag) if twins is None else twins[self._index]

    def values_on_page(self, tag: str, attribute: str) -> list[str]:
        """Return an attribute of every element of that name on the whole page, in one compiled call."""
        return self._page.engine.values(self._page.document, tag, attribute)


class _Value(Selector):
    """A text node or an attribute value found by CSS."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def css(self, query: str) -> SelectorList:
        return self._run(compile_css(query))

    def xpath(
        self, query: str, namespaces: Mapping[str, str] | None = None, **variables: Any
    ) -> SelectorList:
        del namespaces, variables
        return _Values([self._value] if query.strip() == "." else [])

    def get(self) -> str:
        return self._value

    extract = get

    @property
    def attrib(self) -> dict[str, str]:
        raise _no_attributes()

    @property
    def tag(self) -> str:
        return ""

    def __bool__(self) -> bool:
        return bool(self._value)

    def _run(self, query: CssQuery) -> SelectorList:
        del query
        return _Values([])

    def _twin(self) -> parsel.Selector:
        return parsel.Selector(text=self._value, type="text")


class _Foreign(Selector):
    """A selector of parsel: an XPath result, a node of an XML page, a part of a JSON page."""

    __slots__ = ("_inner",)

    def __init__(self, inner: parsel.Selector) -> None:
        self._inner = inner

    def get(self) -> Any:
        return self._inner.get()

    extract = get

    @property
    def attrib(self) -> dict[str, str]:
        if isinstance(self._inner.root, str):
            raise _no_attributes()
        return self._inner.attrib

    @property
    def tag(self) -> str:
        tag = getattr(self._inner.root, "tag", "")
        return tag if isinstance(tag, str) else ""

    def __bool__(self) -> bool:
        return bool(self._inner)

    def _run(self, query: CssQuery) -> SelectorList:
        try:
            return _wrap(self._inner.css(query.source))
        except ValueError as error:  # JSON
            raise UsageError(str(error), remedy="use jmespath on JSON") from None

    def _twin(self) -> parsel.Selector:
        return self._inner


class SelectorList(Sequence[Selector]):
    """Selectors in document order; its methods do the same with each of them and join the results."""

    __slots__ = ()

    def css(self, query: str) -> SelectorList:
        """Select by CSS from each."""
        compiled = compile_css(query)
        return _joined([selector._run(compiled) for selector in self])  # noqa: SLF001 - one module, one noun

    def xpath(
        self, query: str, namespaces: Mapping[str, str] | None = None, **variables: Any
    ) -> SelectorList:
        """Select by XPath from each."""
        return _joined([selector.xpath(query, namespaces, **variables) for selector in self])

    def jmespath(self, query: str, **options: Any) -> SelectorList:
        """Select by JMESPath from each."""
        return _joined([selector.jmespath(query, **options) for selector in self])

    def getall(self) -> list[Any]:
        """Return ``get()`` of each."""
        return [selector.get() for selector in self]

    extract = getall

    def get(self, default: Any = None) -> Any:
        """Return ``get()`` of the first, or the default if there is none."""
        return self[0].get() if len(self) else default

    extract_first = get

    @property
    def attrib(self) -> dict[str, str]:
        """The attributes of the first; empty if there is none."""
        return self[0].attrib if len(self) else {}

    def re(self, regex: str | re.Pattern[str], replace_entities: bool = True) -> list[str]:
        """Return the matches of a regular expression in each."""
        return [match for selector in self for match in selector.re(regex, replace_entities)]

    def re_first(
        self, regex: str | re.Pattern[str], default: str | None = None, replace_entities: bool = True
    ) -> str | None:
        """Return the first match in any, or the default."""
        found = (match for selector in self for match in selector.re(regex, replace_entities))
        return next(found, default)

    def __add__(self, other: Iterable[Selector]) -> SelectorList:
        return _Several([*self, *other])

    def __repr__(self) -> str:
        return repr(list(self))


class _Several(SelectorList):
    """Selectors of any origin."""

    __slots__ = ("_selectors",)

    def __init__(self, selectors: list[Selector]) -> None:
        self._selectors = selectors

    def __len__(self) -> int:
        return len(self._selectors)

    @overload
    def __getitem__(self, index: int) -> Selector: ...
    @overload
    def __getitem__(self, index: slice) -> SelectorList: ...
    def __getitem__(self, index: int | slice) -> Selector | SelectorList:
        return _Several(self._selectors[index]) if isinstance(index, slice) else self._selectors[index]

    def __iter__(self) -> Iterator[Selector]:
        return iter(self._selectors)


class _Values(SelectorList):
    """Strings, each made a selector only when somebody looks at it alone."""

    __slots__ = ("values",)

    def __init__(self, values: list[str]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, index: int) -> Selector: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Selector | SelectorList:
        return _Values(self.values[index]) if isinstance(index, slice) else _Value(self.values[index])

    def __iter__(self) -> Iterator[Selector]:
        return map(_Value, self.values)

    def getall(self) -> list[str]:
        return list(self.values)

    extract = getall

    def get(self, default: Any = None) -> Any:
        return self.values[0] if self.values else default

    extract_first = get


class _Elements(SelectorList):
    """What one CSS query found from one selector; remembers both, to find the same elsewhere."""

    __slots__ = ("_nodes", "_parent", "_query", "_twins")

    def __init__(self, parent: Selector, query: CssQuery, nodes: list[Any]) -> None:
        self._parent = parent
        self._query = query
        self._nodes = nodes
        self._twins: list[parsel.Selector] | None = None

    def __len__(self) -> int:
        return len(self._nodes)

    @overload
    def __getitem__(self, index: int) -> Selector: ...
    @overload
    def __getitem__(self, index: slice) -> SelectorList: ...
    def __getitem__(self, index: int | slice) -> Selector | SelectorList:
        if isinstance(index, slice):
            return _Several([self._element(place) for place in range(*index.indices(len(self)))])
        return self._element(range(len(self._nodes))[index])

    def __iter__(self) -> Iterator[Selector]:
        return map(self._element, range(len(self._nodes)))

    def twins(self) -> list[parsel.Selector] | None:
        """Return the same elements in parsel's tree, or ``None`` if its tree is another."""
        if self._twins is None:
            self._twins = list(self._parent._twin().css(self._query.source))  # noqa: SLF001 - one noun
        alike = [selector.tag for selector in self] == [twin.root.tag for twin in self._twins]
        return self._twins if alike else None

    def _element(self, index: int) -> Selector:
        selector = _new(Selector)
        selector._page = self._parent._page  # noqa: SLF001 - built without parsing
        selector._node = self._nodes[index]  # noqa: SLF001
        selector._found = self  # noqa: SLF001
        selector._index = index  # noqa: SLF001
        return selector


_new = object.__new__


def foreign_selector(text: str, kind: str) -> Selector:
    """Return the selector of an ``"xml"`` or ``"json"`` text."""
    return _Foreign(parsel.Selector(text=text, type=kind))


def _wrap(found: Iterable[parsel.Selector]) -> SelectorList:
    return _Several([_Foreign(selector) for selector in found])


def _joined(lists: Sequence[SelectorList]) -> SelectorList:
    if all(isinstance(found, _Values) for found in lists):
        return _Values([value for found in lists for value in found.getall()])
    return _Several([selector for found in lists for selector in found])


def _reparsed(html: str, tag: str) -> parsel.Selector:
    page = parsel.Selector(text=html, type="html")
    element = next(page.root.iter(tag), None)
    return page if element is None else parsel.Selector(root=element, type="html")


def _no_attributes() -> UsageError:
    return UsageError(
        "a text or an attribute value has no attributes",
        remedy="select the element itself, without ::text or ::attr()",
    )


def _shortened(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."
