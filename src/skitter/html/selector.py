"""Selectors with the interface of parsel, with CSS on a fast HTML5 engine.

``css`` runs on the engine. ``xpath``, and CSS that the engine does not support, runs on lxml through parsel, whose
tree is built on first use. To find the same element in that tree, the queries that led to it are repeated, so ``..``
and the ``following`` axes see the whole page. Only if the two trees disagree is the element's own HTML parsed instead.

The results equal those of parsel, except where the HTML standard and libxml2 build different trees: ``table`` gets a
``tbody``, a stray ``</p>`` becomes an empty paragraph, ``<wbr>`` has no content, the line break after ``<pre>`` is
dropped, SVG attributes keep their case, ``noscript`` in the head contains no ordinary elements, and elements nested
deeper than 512 levels become siblings, as in browsers. For the outer HTML, see :mod:`skitter.html.serial`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from re import Pattern
from typing import TYPE_CHECKING, Any, overload

from skitter.errors import UsageError
from skitter.html.css import compile_css
from skitter.html.engine import Engine
from skitter.html.query import CssQuery, Take

if TYPE_CHECKING:
    import parsel


def parsel_selector(**options: Any) -> parsel.Selector:
    """Return ``parsel.Selector(**options)``."""
    import parsel  # noqa: PLC0415 - importing it takes 0.1 s, so it is imported on first use

    return parsel.Selector(**options)


def is_parsel(value: object) -> bool:
    """Return whether a value is a selector of parsel."""
    loaded = sys.modules.get("parsel")
    return loaded is not None and isinstance(value, loaded.Selector)


class ParsedHtml:
    """One HTML text and its two trees."""

    __slots__ = ("_parsel_tree", "document", "engine", "text")

    def __init__(self, text: str, engine: Engine) -> None:
        self.text = text
        self.engine = engine
        self.document = engine.parse(text)
        self._parsel_tree: parsel.Selector | None = None

    def parsel_tree(self) -> parsel.Selector:
        """Return parsel's selector of the same text, parsed on first use."""
        if self._parsel_tree is None:
            self._parsel_tree = parsel_selector(text=self.text, type="html")
        return self._parsel_tree

    def take(self, query: CssQuery, nodes: list[Any]) -> list[str]:
        """Return the texts or attribute values that a query selects from the elements it matched."""
        engine = self.engine
        if query.take is Take.ATTRIBUTE:
            return [value for node in nodes if (value := engine.attribute(node, query.attribute)) is not None]
        nested = len(nodes) > 1 and any(engine.first(node, query.native) is not None for node in nodes)
        if query.take is Take.DEEP_TEXT:
            tops = engine.outermost(nodes) if nested else nodes
            return [text for node in tops for text in engine.deep_texts(node)]
        if nested:
            return engine.nested_texts(nodes)
        return [text for node in nodes for text in engine.texts(node)]


def reparsed(html: str, tag: str) -> parsel.Selector:
    """Return parsel's selector of one element, built from its outer HTML alone."""
    page = parsel_selector(text=html, type="html")
    element = next(page.root.iter(tag), None)
    return page if element is None else parsel_selector(root=element, type="html")


class SelectorList(Sequence["Selector"]):
    """Selectors in document order. Its methods call the same method of each selector and join the results."""

    __slots__ = ("_selectors",)

    def __init__(self, selectors: Iterable[Selector] = ()) -> None:
        self._selectors: Sequence[Selector] = list(selectors)

    def css(self, query: str) -> SelectorList:
        """Select by CSS from each selector."""
        compiled = compile_css(query)
        return _joined([selector.run(compiled) for selector in self])

    def xpath(
        self, query: str, namespaces: Mapping[str, str] | None = None, **variables: Any
    ) -> SelectorList:
        """Select by XPath from each selector."""
        return _joined([selector.xpath(query, namespaces, **variables) for selector in self])

    def jmespath(self, query: str, **options: Any) -> SelectorList:
        """Select by JMESPath from each selector."""
        return _joined([selector.jmespath(query, **options) for selector in self])

    def getall(self) -> list[Any]:
        """Return ``get()`` of each selector."""
        return [selector.get() for selector in self]

    def get(self, default: Any = None) -> Any:
        """Return ``get()`` of the first selector, or the default if the list is empty."""
        return self[0].get() if len(self) else default

    def extract(self) -> list[Any]:
        """Return ``get()`` of each selector: the older name of :meth:`getall`."""
        return self.getall()

    def extract_first(self, default: Any = None) -> Any:
        """Return ``get()`` of the first selector, or the default: the older name of :meth:`get`."""
        return self.get(default)

    @property
    def attrib(self) -> dict[str, str]:
        """The attributes of the first selector; empty if the list is empty."""
        return self[0].attrib if len(self) else {}

    def re(self, regex: str | Pattern[str], replace_entities: bool = True) -> list[str]:
        """Return the matches of a regular expression in each selector."""
        return [match for selector in self for match in selector.re(regex, replace_entities)]

    def re_first(
        self, regex: str | Pattern[str], default: str | None = None, replace_entities: bool = True
    ) -> str | None:
        """Return the first match of a regular expression, or the default."""
        found = (match for selector in self for match in selector.re(regex, replace_entities))
        return next(found, default)

    def links(self) -> list[str]:
        """Return the raw link of each selector that has one; see :attr:`Selector.link <skitter.html.selector.Selector.link>`."""
        return [link for selector in self if (link := selector.link) is not None]

    def __len__(self) -> int:
        return len(self._selectors)

    @overload
    def __getitem__(self, index: int) -> Selector: ...
    @overload
    def __getitem__(self, index: slice) -> SelectorList: ...
    def __getitem__(self, index: int | slice) -> Selector | SelectorList:
        if isinstance(index, slice):
            return SelectorList(self._selectors[index])
        return self._selectors[index]

    def __iter__(self) -> Iterator[Selector]:
        return iter(self._selectors)

    def __add__(self, other: Iterable[Selector]) -> SelectorList:
        return SelectorList([*self, *other])

    def __repr__(self) -> str:
        return repr(list(self))


class ValueList(SelectorList):
    """Text nodes or attribute values. A selector is created only when a single value is accessed."""

    __slots__ = ("_make", "_values")

    def __init__(self, values: list[str], make: Callable[[str], Selector]) -> None:
        self._values = values
        self._make = make

    def getall(self) -> list[str]:
        """Return the values."""
        return list(self._values)

    def get(self, default: Any = None) -> Any:
        """Return the first value, or the default if the list is empty."""
        return self._values[0] if self._values else default

    def links(self) -> list[str]:
        """Return the values, which are treated as links."""
        return self.getall()

    def __len__(self) -> int:
        return len(self._values)

    @overload
    def __getitem__(self, index: int) -> Selector: ...
    @overload
    def __getitem__(self, index: slice) -> SelectorList: ...
    def __getitem__(self, index: int | slice) -> Selector | SelectorList:
        if isinstance(index, slice):
            return ValueList(self._values[index], self._make)
        return self._make(self._values[index])

    def __iter__(self) -> Iterator[Selector]:
        return map(self._make, self._values)


def _joined(lists: Sequence[SelectorList]) -> SelectorList:
    if lists and all(isinstance(found, ValueList) for found in lists):
        values = [value for found in lists for value in found.getall()]
        return ValueList(values, lists[0]._make)  # type: ignore[attr-defined]
    return SelectorList([selector for found in lists for selector in found])


def load_engine() -> Engine:
    """Return the fastest engine that is installed."""
    try:
        from skitter.html.turbo import TURBO  # noqa: PLC0415 - optional at run time
    except ImportError:
        from skitter.html.lexbor import LEXBOR  # noqa: PLC0415 - only used without the other engine

        return LEXBOR
    return TURBO


_engine = load_engine()


class Selector:
    """An element of a page, or a value selected from it.

    ``Selector(text)`` parses an HTML page or fragment, for example HTML inside JSON, and represents its ``html``
    element.
    """

    __slots__ = ("_found", "_index", "_node", "_page")

    def __init__(self, text: str, *, engine: Engine = _engine) -> None:
        self._page = ParsedHtml(text, engine)
        self._node = engine.root(self._page.document)
        self._found: _ElementList | None = None
        self._index = 0

    def css(self, query: str) -> SelectorList:
        """Select by CSS; ``::text`` selects text nodes, ``::attr(name)`` attribute values.

        Raises :class:`~skitter.errors.UsageError` for a query that is not valid CSS.
        """
        return self.run(compile_css(query))

    def run(self, query: CssQuery) -> SelectorList:
        """Select by a compiled CSS query."""
        nodes = self._matches(query)
        if nodes is None:
            return _wrap(self._in_parsel_tree().css(query.source))
        if query.take is Take.ELEMENT:
            return _ElementList(self, query, nodes)
        return ValueList(self._page.take(query, nodes), _Value)

    def xpath(
        self, query: str, namespaces: Mapping[str, str] | None = None, **variables: Any
    ) -> SelectorList:
        """Select by XPath 1.0; ``$name`` in the query is replaced by the keyword argument ``name``.

        Raises :class:`~skitter.errors.UsageError` for a query that is not valid XPath.
        """
        try:
            return _wrap(self._in_parsel_tree().xpath(query, namespaces=namespaces, **variables))
        except ValueError as error:
            raise UsageError(
                f"cannot evaluate XPath query {query!r}: {error}",
                remedy="correct the query (the version is XPath 1.0); use jmespath for JSON",
                field="query",
            ) from None

    def jmespath(self, query: str, **options: Any) -> SelectorList:
        """Select by JMESPath from JSON text."""
        return _wrap(self._in_parsel_tree().jmespath(query, **options))

    def get(self) -> Any:
        """Return the outer HTML of an element, a text or attribute value unchanged, or a part of a JSON document."""
        return self._page.engine.html(self._node)

    def getall(self) -> list[Any]:
        """Return ``get()`` in a list of length one."""
        return [self.get()]

    def extract(self) -> Any:
        """Return ``get()``: the older name of :meth:`get`."""
        return self.get()

    @property
    def attrib(self) -> dict[str, str]:
        """The attributes of the element."""
        return self._page.engine.attributes(self._node)

    @property
    def tag(self) -> str:
        """Name of the element in lower case; ``""`` for a text or attribute value."""
        return self._page.engine.tag(self._node)

    @property
    def link(self) -> str | None:
        """The raw link: ``href`` or else ``src`` of an element; a text or attribute value itself."""
        engine, node = self._page.engine, self._node
        href = engine.attribute(node, "href")
        return engine.attribute(node, "src") if href is None else href

    def re(self, regex: str | Pattern[str], replace_entities: bool = True) -> list[str]:
        """Return the matches of a regular expression in ``get()``: its groups, or the whole match if it has no groups.

        Character references in the matches are replaced, except ``&lt;`` and ``&amp;``.
        """
        from parsel.utils import extract_regex  # noqa: PLC0415 - see parsel_selector

        return extract_regex(regex, self.get(), replace_entities=replace_entities)

    def re_first(
        self, regex: str | Pattern[str], default: str | None = None, replace_entities: bool = True
    ) -> str | None:
        """Return the first match of a regular expression, or the default."""
        return next(iter(self.re(regex, replace_entities)), default)

    def attribute_on_page(self, tag: str, attribute: str) -> list[str]:
        """Return an attribute of every element with a given name on the whole page, in one compiled call."""
        return self._page.engine.values(self._page.document, tag, attribute)

    def __bool__(self) -> bool:
        return True

    def __str__(self) -> str:
        return str(self.get())

    def __repr__(self) -> str:
        text = str(self)
        return f"<Selector {text if len(text) <= 40 else f'{text[:37]}...'!r}>"

    def _matches(self, query: CssQuery) -> list[Any] | None:
        """Return the matching elements, or ``None`` if only parsel can run the query."""
        engine, scoped = self._page.engine, query.scoped
        if scoped is None:
            return None
        if query.take is Take.DEEP_TEXT and query.native == "*":
            return [self._node]
        if self._found is None:
            return engine.select(self._page.document, query.native)
        if scoped.chained and not engine.anchors:
            return None
        if scoped.outward and engine.matches(self._node, scoped.outward):
            return None
        nodes = engine.select(self._node, scoped.inside)
        if scoped.own and engine.matches(self._node, scoped.own):
            nodes.insert(0, self._node)
        return nodes

    def _in_parsel_tree(self) -> parsel.Selector:
        """Return the same element in parsel's tree."""
        if self._found is None:
            return self._page.parsel_tree()
        parsel_elements = self._found.parsel_elements()
        return reparsed(self.get(), self.tag) if parsel_elements is None else parsel_elements[self._index]


class _ElementList(SelectorList):
    """The elements that one CSS query found from one selector. It keeps both, to find the same elements in parsel's tree."""

    __slots__ = ("_nodes", "_page", "_parent", "_parsel_elements", "_query", "_searched")

    def __init__(self, parent: Selector, query: CssQuery, nodes: list[Any]) -> None:
        self._parent = parent
        self._page = parent._page  # noqa: SLF001 - classes of one module
        self._query = query
        self._nodes = nodes
        self._parsel_elements: list[parsel.Selector] | None = None
        self._searched = False

    def parsel_elements(self) -> list[parsel.Selector] | None:
        """Return the same elements in parsel's tree, or ``None`` if the trees differ."""
        if not self._searched:
            self._searched = True
            parsel_elements = self._parent._in_parsel_tree().css(self._query.source)  # noqa: SLF001 - classes of one module
            if [selector.tag for selector in self] == [element.root.tag for element in parsel_elements]:
                self._parsel_elements = list(parsel_elements)
        return self._parsel_elements

    def links(self) -> list[str]:
        """Return the raw link of each selector that has one."""
        attribute = self._page.engine.attribute
        hrefs = [attribute(node, "href") for node in self._nodes]
        if None not in hrefs:
            return hrefs  # type: ignore[return-value]  # just tested
        found = [
            attribute(node, "src") if href is None else href
            for node, href in zip(self._nodes, hrefs, strict=True)
        ]
        return [link for link in found if link is not None]

    def __len__(self) -> int:
        return len(self._nodes)

    @overload
    def __getitem__(self, index: int) -> Selector: ...
    @overload
    def __getitem__(self, index: slice) -> SelectorList: ...
    def __getitem__(self, index: int | slice) -> Selector | SelectorList:
        indexes = range(len(self._nodes))
        if isinstance(index, slice):
            return SelectorList(map(self._element, indexes[index], self._nodes[index]))
        return self._element(indexes[index], self._nodes[index])

    def __iter__(self) -> Iterator[Selector]:
        return map(self._element, range(len(self._nodes)), self._nodes)

    def _element(self, index: int, node: Any) -> Selector:
        selector = object.__new__(Selector)  # without parsing
        selector._page = self._page
        selector._node = node
        selector._found = self
        selector._index = index
        return selector


class _Value(Selector):
    """A text node or an attribute value found by CSS."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def run(self, query: CssQuery) -> SelectorList:
        """Return an empty list: a value contains no elements."""
        del query
        return ValueList([], _Value)

    def xpath(
        self, query: str, namespaces: Mapping[str, str] | None = None, **variables: Any
    ) -> SelectorList:
        """Return the value for the query ``.``, and an empty list for all others."""
        del namespaces, variables
        return ValueList([self._value] if query.strip() == "." else [], _Value)

    def get(self) -> str:
        """Return the value."""
        return self._value

    @property
    def attrib(self) -> dict[str, str]:
        """Raise :class:`~skitter.errors.UsageError`."""
        raise _no_attributes()

    @property
    def tag(self) -> str:
        """An empty string."""
        return ""

    @property
    def link(self) -> str:
        """The value itself."""
        return self._value

    def __bool__(self) -> bool:
        return bool(self._value)

    def _in_parsel_tree(self) -> parsel.Selector:
        return parsel_selector(text=self._value, type="text")


class _ParselAdapter(Selector):
    """Adapts a selector of parsel: an XPath result, a node of an XML page, or a part of a JSON page."""

    __slots__ = ("_inner",)

    def __init__(self, inner: parsel.Selector) -> None:
        self._inner = inner

    def run(self, query: CssQuery) -> SelectorList:
        """Select by CSS on lxml. Raises :class:`~skitter.errors.UsageError` on a part of a JSON page."""
        try:
            return _wrap(self._inner.css(query.source))
        except ValueError as error:
            raise UsageError(str(error), remedy="use jmespath for JSON", field="query") from None

    def get(self) -> Any:
        """Return the result of parsel."""
        return self._inner.get()

    @property
    def attrib(self) -> dict[str, str]:
        """The attributes of the element."""
        if not hasattr(self._inner.root, "attrib"):
            raise _no_attributes()
        return self._inner.attrib

    @property
    def tag(self) -> str:
        """Name of the element; ``""`` for all other nodes."""
        tag = getattr(self._inner.root, "tag", "")
        return tag if isinstance(tag, str) else ""

    @property
    def link(self) -> str | None:
        """The raw link: ``href`` or else ``src`` of an element; a value itself."""
        root = self._inner.root
        if isinstance(root, str):
            return root
        attributes = getattr(root, "attrib", {})
        link = attributes.get("href", attributes.get("src"))
        return None if link is None else str(link)

    def __bool__(self) -> bool:
        return bool(self._inner)

    def _in_parsel_tree(self) -> parsel.Selector:
        return self._inner


def parsel_backed_selector(text: str, kind: str) -> Selector:
    """Return the selector of an ``"xml"`` or ``"json"`` text."""
    return _ParselAdapter(parsel_selector(text=text, type=kind))


def from_parsel(inner: parsel.Selector) -> Selector:
    """Return a selector that adapts one of parsel."""
    return _ParselAdapter(inner)


def _wrap(found: Iterable[parsel.Selector]) -> SelectorList:
    return SelectorList(map(_ParselAdapter, found))


def _no_attributes() -> UsageError:
    return UsageError(
        "a text or attribute value has no attributes",
        remedy="select the element itself, without ::text or ::attr()",
        field="query",
    )
