"""Selectors: parsel's way of taking data out of a page, with CSS on a fast HTML5 engine.

``css`` runs on the engine; ``xpath`` (and what CSS the engine cannot express) runs on lxml through parsel, whose
tree is built when it is first asked for. An element found by CSS is found again there by repeating the queries
that led to it, so ``..`` and the following axes see the whole page; only where the two trees disagree is the
element's own HTML parsed instead. Results are those of parsel, except where the
tree of the HTML standard differs from that of libxml2: ``table`` has its ``tbody``, a stray ``</p>`` is an empty
paragraph, ``<wbr>`` holds nothing, the line break after ``<pre>`` is none, SVG attributes keep their case,
``noscript`` in the head holds no ordinary elements, and what is nested deeper than 512 levels stands side by
side (as in browsers). Outer HTML: see :mod:`skitter.html.serial`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skitter.html.engine import Engine
from skitter.html.parsel_adapter import parsel_selector
from skitter.html.query import CssQuery, Take

if TYPE_CHECKING:
    import parsel
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from re import Pattern
from typing import TYPE_CHECKING, overload

from skitter.html.query import compile_css

if TYPE_CHECKING:  # a selector makes lists, a list knows selectors by their methods only
    pass
from skitter.errors import UsageError
from skitter.html.engine import load_engine


class ParsedHtml:
    """One HTML text and its two trees."""

    __slots__ = ("_twin", "document", "engine", "text")

    def __init__(self, text: str, engine: Engine) -> None:
        self.text = text
        self.engine = engine
        self.document = engine.parse(text)
        self._twin: parsel.Selector | None = None

    def twin(self) -> parsel.Selector:
        """Return parsel's selector of the same text, parsed when first asked for."""
        if self._twin is None:
            self._twin = parsel_selector(text=self.text, type="html")
        return self._twin

    def take(self, query: CssQuery, nodes: list[Any]) -> list[str]:
        """Return the texts or attribute values that a query takes from the elements it matched."""
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
    """Return parsel's selector of one element, made from its outer HTML alone."""
    page = parsel_selector(text=html, type="html")
    element = next(page.root.iter(tag), None)
    return page if element is None else parsel_selector(root=element, type="html")


class SelectorList(Sequence["Selector"]):
    """Selectors in document order; its methods do the same with each of them and join the results."""

    __slots__ = ("_selectors",)

    def __init__(self, selectors: Iterable[Selector] = ()) -> None:
        self._selectors: Sequence[Selector] = list(selectors)

    def css(self, query: str) -> SelectorList:
        """Select by CSS from each."""
        compiled = compile_css(query)
        return _joined([selector.run(compiled) for selector in self])

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

    def get(self, default: Any = None) -> Any:
        """Return ``get()`` of the first, or the default if there is none."""
        return self[0].get() if len(self) else default

    def extract(self) -> list[Any]:
        """Return ``get()`` of each: the older name of :meth:`getall`."""
        return self.getall()

    def extract_first(self, default: Any = None) -> Any:
        """Return ``get()`` of the first, or the default: the older name of :meth:`get`."""
        return self.get(default)

    @property
    def attrib(self) -> dict[str, str]:
        """The attributes of the first; empty if there is none."""
        return self[0].attrib if len(self) else {}

    def re(self, regex: str | Pattern[str], replace_entities: bool = True) -> list[str]:
        """Return the matches of a regular expression in each."""
        return [match for selector in self for match in selector.re(regex, replace_entities)]

    def re_first(
        self, regex: str | Pattern[str], default: str | None = None, replace_entities: bool = True
    ) -> str | None:
        """Return the first match in any, or the default."""
        found = (match for selector in self for match in selector.re(regex, replace_entities))
        return next(found, default)

    def links(self) -> list[str]:
        """Return the raw link of each that has one; see :attr:`Selector.link <skitter.html.selector.Selector.link>`."""
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
    """Text nodes or attribute values, each made a selector only when somebody looks at it alone."""

    __slots__ = ("_make", "_values")

    def __init__(self, values: list[str], make: Callable[[str], Selector]) -> None:
        self._values = values
        self._make = make

    def getall(self) -> list[str]:
        """Return the values."""
        return list(self._values)

    def get(self, default: Any = None) -> Any:
        """Return the first value, or the default if there is none."""
        return self._values[0] if self._values else default

    def links(self) -> list[str]:
        """Return the values, taken to be links."""
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


_engine = load_engine()


class Selector:
    """An element of a page, or a value taken from it.

    ``Selector(text)`` parses an HTML page or fragment (HTML that came inside JSON, say) and stands for its
    ``html`` element.
    """

    __slots__ = ("_found", "_index", "_node", "_page")

    def __init__(self, text: str, *, engine: Engine = _engine) -> None:
        self._page = ParsedHtml(text, engine)
        self._node = engine.root(self._page.document)
        self._found: _ElementList | None = None
        self._index = 0

    def css(self, query: str) -> SelectorList:
        """Select by CSS; ``::text`` takes text nodes, ``::attr(name)`` attribute values.

        Raises :class:`~skitter.errors.UsageError` for a query that is not CSS.
        """
        return self.run(compile_css(query))

    def run(self, query: CssQuery) -> SelectorList:
        """Select by a CSS query that is compiled already."""
        nodes = self._matches(query)
        if nodes is None:
            return _wrap(self._twin().css(query.source))
        if query.take is Take.ELEMENT:
            return _ElementList(self, query, nodes)
        return ValueList(self._page.take(query, nodes), _Value)

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
                f"{query!r} cannot be used here: {error}",
                remedy="correct it (this is XPath 1.0); on JSON use jmespath",
            ) from None

    def jmespath(self, query: str, **options: Any) -> SelectorList:
        """Select by JMESPath from text that is JSON."""
        return _wrap(self._twin().jmespath(query, **options))

    def get(self) -> Any:
        """Return the outer HTML of an element; the text or attribute value as it is; a part of JSON."""
        return self._page.engine.html(self._node)

    def getall(self) -> list[Any]:
        """Return ``get()`` as a list of one."""
        return [self.get()]

    def extract(self) -> Any:
        """Return ``get()``: its older name."""
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
        """Where it leads, as it stands in the page: ``href`` or else ``src`` of an element, the value itself."""
        engine, node = self._page.engine, self._node
        href = engine.attribute(node, "href")
        return engine.attribute(node, "src") if href is None else href

    def re(self, regex: str | Pattern[str], replace_entities: bool = True) -> list[str]:
        """Return the matches of a regular expression in ``get()``: its groups, or all of it without groups.

        Character references in them are replaced, but for ``&lt;`` and ``&amp;``.
        """
        from parsel.utils import extract_regex  # noqa: PLC0415 - see skitter.html.parsel_adapter

        return extract_regex(regex, self.get(), replace_entities=replace_entities)

    def re_first(
        self, regex: str | Pattern[str], default: str | None = None, replace_entities: bool = True
    ) -> str | None:
        """Return the first of :meth:`re`, or the default."""
        return next(iter(self.re(regex, replace_entities)), default)

    def attribute_on_page(self, tag: str, attribute: str) -> list[str]:
        """Return an attribute of every element of one name on the whole page, in one compiled call."""
        return self._page.engine.values(self._page.document, tag, attribute)

    def __bool__(self) -> bool:
        return True

    def __str__(self) -> str:
        return str(self.get())

    def __repr__(self) -> str:
        text = str(self)
        return f"<Selector {text if len(text) <= 40 else f'{text[:37]}...'!r}>"

    def _matches(self, query: CssQuery) -> list[Any] | None:
        """Return the elements that fit, or ``None`` if only parsel can tell."""
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

    def _twin(self) -> parsel.Selector:
        """Return the same element in parsel's tree."""
        if self._found is None:
            return self._page.twin()
        twins = self._found.twins()
        return reparsed(self.get(), self.tag) if twins is None else twins[self._index]


class _ElementList(SelectorList):
    """What one CSS query found from one selector; remembers both, to find the same in parsel's tree."""

    __slots__ = ("_nodes", "_parent", "_query", "_searched", "_twins")

    def __init__(self, parent: Selector, query: CssQuery, nodes: list[Any]) -> None:
        self._parent = parent
        self._query = query
        self._nodes = nodes
        self._twins: list[parsel.Selector] | None = None
        self._searched = False

    def twins(self) -> list[parsel.Selector] | None:
        """Return the same elements in parsel's tree, or ``None`` if its tree is another."""
        if not self._searched:
            self._searched = True
            twins = self._parent._twin().css(self._query.source)  # noqa: SLF001 - one noun
            if [selector.tag for selector in self] == [twin.root.tag for twin in twins]:
                self._twins = list(twins)
        return self._twins

    def links(self) -> list[str]:
        """Return the raw link of each that has one."""
        attribute = self._parent._page.engine.attribute  # noqa: SLF001 - one noun
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
        places = range(len(self._nodes))
        if isinstance(index, slice):
            return SelectorList(map(self._element, places[index]))
        return self._element(places[index])

    def __iter__(self) -> Iterator[Selector]:
        return map(self._element, range(len(self._nodes)))

    def _element(self, index: int) -> Selector:
        selector = object.__new__(Selector)  # without parsing
        selector._page = self._parent._page  # noqa: SLF001 - one noun
        selector._node = self._nodes[index]
        selector._found = self
        selector._index = index
        return selector


class _Value(Selector):
    """A text node or an attribute value found by CSS."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def run(self, query: CssQuery) -> SelectorList:
        """Find nothing: a value has no elements in it."""
        del query
        return ValueList([], _Value)

    def xpath(
        self, query: str, namespaces: Mapping[str, str] | None = None, **variables: Any
    ) -> SelectorList:
        """Find the value itself by ``.`` and nothing else."""
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
        """``""``."""
        return ""

    @property
    def link(self) -> str:
        """The value itself."""
        return self._value

    def __bool__(self) -> bool:
        return bool(self._value)

    def _twin(self) -> parsel.Selector:
        return parsel_selector(text=self._value, type="text")


class _Foreign(Selector):
    """A selector of parsel: an XPath result, a node of an XML page, a part of a JSON page."""

    __slots__ = ("_inner",)

    def __init__(self, inner: parsel.Selector) -> None:
        self._inner = inner

    def run(self, query: CssQuery) -> SelectorList:
        """Select by CSS on lxml. Raises :class:`~skitter.errors.UsageError` on a part of a JSON page."""
        try:
            return _wrap(self._inner.css(query.source))
        except ValueError as error:
            raise UsageError(str(error), remedy="on JSON use jmespath") from None

    def get(self) -> Any:
        """Return what parsel returns."""
        return self._inner.get()

    @property
    def attrib(self) -> dict[str, str]:
        """The attributes of the element."""
        if not hasattr(self._inner.root, "attrib"):
            raise _no_attributes()
        return self._inner.attrib

    @property
    def tag(self) -> str:
        """Name of the element; ``""`` for anything else."""
        tag = getattr(self._inner.root, "tag", "")
        return tag if isinstance(tag, str) else ""

    @property
    def link(self) -> str | None:
        """``href`` or else ``src`` of an element, the value itself."""
        root = self._inner.root
        if isinstance(root, str):
            return root
        attributes = getattr(root, "attrib", {})
        link = attributes.get("href", attributes.get("src"))
        return None if link is None else str(link)

    def __bool__(self) -> bool:
        return bool(self._inner)

    def _twin(self) -> parsel.Selector:
        return self._inner


def foreign_selector(text: str, kind: str) -> Selector:
    """Return the selector of an ``"xml"`` or ``"json"`` text."""
    return _Foreign(parsel_selector(text=text, type=kind))


def from_parsel(inner: parsel.Selector) -> Selector:
    """Return a selector for one that parsel made."""
    return _Foreign(inner)


def _wrap(found: Iterable[parsel.Selector]) -> SelectorList:
    return SelectorList(map(_Foreign, found))


def _no_attributes() -> UsageError:
    return UsageError(
        "a text or an attribute value has no attributes",
        remedy="select the element itself, without ::text or ::attr()",
    )
