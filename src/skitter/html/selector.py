"""Selectors with the interface of parsel on a fast HTML5 engine.

``css`` and ``xpath`` run on the same tree, so XPath on an element found by CSS starts from that element. Queries that the
engine cannot evaluate (on the default engine a few XPath functions, on the fallback engine all XPath) run on lxml, on a
copy of the tree. XML and JSON pages are handled by parsel.

The results are the same as with parsel, except where the HTML standard and libxml2 build different trees: ``table`` gets a
``tbody``, a stray ``</p>`` becomes an empty paragraph, ``<wbr>`` has no content, the line break after ``<pre>`` is
dropped, SVG attributes keep their case, ``noscript`` in the head contains no ordinary elements, and elements nested
deeper than 512 levels become siblings, as in browsers. An attribute without a value is ``""`` (WHATWG DOM, 4.9), not its
own name. For the outer HTML, see :mod:`skitter.html.serial`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from re import Pattern
from threading import RLock
from types import ModuleType
from typing import TYPE_CHECKING, Any, final, overload

from skitter.errors import PageTooComplex, QueryError, UsageError, with_article
from skitter.html.engine import Engine, EngineExtras
from skitter.html.limits import (
    DEFAULT_MEMORY,
    TakesLong,
    attempts_for,
    check_xml,
    is_always_safe,
    meter_for,
    proven_size,
    return_freed_memory,
)
from skitter.html.query import CssQuery, Scoped, Take, through_tbody, warn_of_namespaces

_ONE_TAG = re.compile(r"([a-z][a-z0-9]*)(?:::(text)|::attr\(([a-z][a-z-]*)\))?")

_ATTRIBUTE, _DEEP_TEXT, _ELEMENT = Take.ATTRIBUTE, Take.DEEP_TEXT, Take.ELEMENT


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


if TYPE_CHECKING:
    import parsel

    from skitter.html.lxml_tree import LxmlTree


_BLOCK_NAMES = frozenset(
    {
        "address", "article", "aside", "blockquote", "br", "button", "caption", "center", "dd", "details", "dialog", "dir", "div",
        "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "frameset", "h1", "h2", "h3", "h4", "h5", "h6", "header",
        "hgroup", "hr", "legend", "li", "listing", "main", "menu", "nav", "ol", "optgroup", "option", "p", "pre", "search",
        "section", "select", "summary", "table", "tbody", "td", "textarea", "tfoot", "th", "thead", "title", "tr", "ul", "xmp",
    }
)  # fmt: skip
"""Elements that begin on a new line, by the rendering section of the HTML standard (15.3), cells of tables, and boxes of
forms."""
_BLOCKS = ", ".join(sorted(_BLOCK_NAMES))
_TABLE_PARTS = frozenset({"caption", "tbody", "td", "tfoot", "th", "thead", "tr"})
_CSS = re.compile(r"::text\b(?!\()|::attr\(|^\s*[.#][a-zA-Z]")
"""Matches text that only a CSS query contains."""
_BREAK = object()


def parsel_selector(**options: Any) -> parsel.Selector:
    """Return ``parsel.Selector(**options)``."""
    selector: parsel.Selector = _load_parsel().Selector(**options)
    return selector


@cache
def _load_parsel() -> ModuleType:
    """Import parsel on first use, which takes 0.1 s, and add the functions that queries on HTML pages have."""
    import parsel  # noqa: PLC0415 - see above

    from skitter.html.lxml_tree import register_functions  # noqa: PLC0415 - it imports lxml

    register_functions()
    return parsel


def is_parsel(value: object) -> bool:
    """Return whether a value is a parsel selector."""
    loaded = sys.modules.get("parsel")
    return loaded is not None and isinstance(value, loaded.Selector)


def _parse_metered(engine: Engine, text: str, max_memory: int) -> tuple[Any, int]:
    """Parse a page whose memory is limited. Return the document and its memory in bytes."""
    attempts = attempts_for(text)
    while True:
        meter = meter_for(text, max_memory)
        try:
            return engine.parse_metered(text, meter), meter.used
        except PageTooComplex:
            attempts -= 1
            if not attempts or meter.is_certain:
                raise
        return_freed_memory()


class ParsedHtml:
    """One HTML document. Text and tree may take ``max_memory`` bytes together; ``None``: the page is known to need little.

    Raises :class:`~skitter.html.limits.TakesLong` after ``max_seconds`` of CPU time; ``None``: without such a limit.
    """

    __slots__ = ("_lxml_tree", "_matches", "base_url", "document", "engine", "memory", "namespaces", "root")

    def __init__(
        self, text: str, engine: Engine, base_url: str, max_memory: int | None, max_seconds: float | None
    ) -> None:
        self.engine = engine
        self.memory = sys.getsizeof(text)
        """Memory of the text and of its tree in bytes. The tree of a page that is always safe does not count."""
        if max_memory is None or is_always_safe(text):
            self.document = engine.parse(text)
        elif (
            engine.in_parts  # the bound is valid for this engine only
            and (bound := proven_size(text)) is not None
            and self.memory + bound <= max_memory
        ):
            self.document = engine.parse(text)
            self.memory += bound
        elif max_seconds is not None:
            if not engine.in_parts:
                raise TakesLong
            meter = meter_for(text, max_memory, max_seconds)
            self.document = engine.parse_metered(text, meter)
            self.memory += meter.used
        else:
            self.document, used = _parse_metered(engine, text, max_memory)
            self.memory += used
        self.root = engine.root(self.document)
        self.base_url = base_url
        self.namespaces: dict[str, str] = {}
        self._lxml_tree: LxmlTree | None = None
        self._matches: dict[str, frozenset[Hashable]] = {}

    def keys_of_matches(self, query: CssQuery) -> frozenset[Hashable]:
        """Return the keys of all elements that a query matches. They are kept for the queries of other elements."""
        keys = self._matches.get(query.source)
        if keys is None:
            found = _of_node(self, self.root).run(query)
            keys = frozenset(self.engine.key(selector._node) for selector in found)  # noqa: SLF001 - of this module
            self._matches[query.source] = keys
        return keys

    def lxml_copy_of(self, node: Any) -> tuple[LxmlTree, Any]:
        """Return the copy of a node in lxml, after the tree that contains it. The copy of this document is created on first use."""
        if self._lxml_tree is None:
            self._lxml_tree = _lxml_tree(self.engine, self.root, self.base_url)
        tree = self._lxml_tree
        element = tree.element_of(node)
        if element is None:  # the node was dropped
            tree = _lxml_tree(self.engine, node, self.base_url)
            element = tree.root
        return tree, element

    def drop(self, node: Any) -> None:
        """Remove a node from the document."""
        self.engine.remove(node)
        self._lxml_tree = None
        self._matches.clear()

    def xpath(
        self, node: Any, query: str, namespaces: Mapping[str, str] | None, variables: dict[str, Any]
    ) -> Any:
        """Evaluate XPath from a node. Return a list of nodes and strings, or a number, boolean or string.

        Raises ValueError for an invalid query.
        """
        engine = self.engine
        query = through_tbody(query, "" if engine.comment(node) is not None else engine.tag(node))
        if self.namespaces:
            namespaces = self.namespaces | dict(namespaces or {})
        if (extras := engine.extras) is not None:
            try:
                return extras.xpath(node, query, dict(namespaces) if namespaces else None, **variables)
            except (ValueError, TypeError):
                pass  # a function or a regular expression that only lxml supports, or an invalid query
        tree, element = self.lxml_copy_of(node)
        found = parsel_selector(root=element, type="html").xpath(query, namespaces=namespaces, **variables)
        roots = [selector.root for selector in found]
        if len(roots) == 1 and isinstance(roots[0], bool | float):
            return roots[0]
        nodes = ((root, tree.node_of(root)) for root in roots)
        return [root if node is None else node for root, node in nodes]

    def extras_for(self, method: str) -> EngineExtras:
        """Return the additional methods of the engine. Raises :class:`~skitter.errors.UsageError` if it lacks them.

        ``method``: the method that the user has called.
        """
        extras = self.engine.extras
        if extras is None:
            raise UsageError(
                f"{method}() needs the package turbohtml, which is not installed",
                remedy="pip install turbohtml, on a platform that it supports",
            )
        return extras

    def text_content(self, node: Any) -> str:
        """Return the text nodes inside an element, with a line break between blocks."""
        engine = self.engine
        if engine.first(node, _BLOCKS) is None:
            return "".join(engine.deep_texts(node))
        pieces: list[str] = []
        pending: list[Any] = [node]
        between = False
        while pending:
            node = pending.pop()
            if node is _BREAK:
                between = True
            elif isinstance(node, str):
                if between and pieces and not pieces[-1][-1].isspace() and not node[:1].isspace():
                    pieces.append("\n")
                between = False
                pieces += [node] if node else []
            elif engine.comment(node) is None:
                content = reversed(engine.content(node))
                pending += [_BREAK, *content, _BREAK] if engine.tag(node) in _BLOCK_NAMES else content
        return "".join(pieces)

    def take(self, query: CssQuery, nodes: list[Any]) -> list[str]:
        """Return the texts or attribute values that a query selects from the elements it matched."""
        engine = self.engine
        if query.take is _ATTRIBUTE:
            return [value for node in nodes if (value := engine.attribute(node, query.attribute)) is not None]
        nested = len(nodes) > 1 and any(engine.first(node, query.native) is not None for node in nodes)
        if query.take is _DEEP_TEXT:
            tops = engine.outermost(nodes) if nested else nodes
            return [text for node in tops for text in engine.deep_texts(node)]
        if nested:
            return engine.nested_texts(nodes)
        return [text for node in nodes for text in engine.texts(node)]


def _lxml_tree(engine: Engine, root: Any, base_url: str) -> LxmlTree:
    from skitter.html.lxml_tree import LxmlTree  # noqa: PLC0415 - importing lxml takes 20 ms, see parsel_selector

    return LxmlTree(engine, root, base_url)


class SelectorList(Sequence["Selector"]):
    """Selectors in document order. Its methods call the same method of each selector and join the results."""

    __slots__ = ("_selectors",)

    def __init__(self, selectors: Iterable[Selector] = ()) -> None:
        self._selectors: Sequence[Selector] = list(selectors)

    if not TYPE_CHECKING:  # a type checker reports such names by itself

        def __getattr__(self, name: str) -> Any:
            """Raise AttributeError for an attribute that a list of selectors lacks, and name the method to call first."""
            first = (
                "a single selector, such as [0] or the variable of a loop"
                if name in dir(Selector)
                else "get() or getall()"
            )
            raise AttributeError(f"a list of selectors has no attribute {name!r}; use {first}")

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
        """Return ``get()`` of each selector. This is the older name of :meth:`getall`."""
        return self.getall()

    def extract_first(self, default: Any = None) -> Any:
        """Return ``get()`` of the first selector, or the default. This is the older name of :meth:`get`."""
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

    def drop(self) -> None:
        """Remove each element from its page; see :meth:`Selector.drop <skitter.html.selector.Selector.drop>`."""
        for selector in self:
            selector.drop()

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


_TESTED_CORE = "1.15."
"""The versions of turbohtml whose core is loaded without the rest of the package. Other versions are loaded as usual."""


def _load_core() -> None:
    """Load the compiled core of turbohtml without the other modules of its package, which take 11 ms.

    They are for articles, dates, minifiers and more, and few crawls use them. Accessing a name of the package loads them.
    :mod:`skitter.html.turbo` does so before it uses a class that they add to the core.
    """
    spec = find_spec("turbohtml")
    if spec is None or spec.loader is None or "turbohtml" in sys.modules:
        return
    execute = spec.loader.exec_module
    package = sys.modules["turbohtml"] = module_from_spec(spec)
    if not import_module("turbohtml._version").__version__.startswith(_TESTED_CORE):
        execute(package)
        return
    lock, is_loaded = RLock(), False

    def load_rest(name: str) -> Any:
        nonlocal is_loaded
        with lock:  # pages are also parsed in threads
            if not is_loaded:
                is_loaded = True
                execute(package)
                del vars(package)["__getattr__"]
        if name in vars(package):
            return vars(package)[name]
        raise AttributeError(f"module 'turbohtml' has no attribute {name!r}")

    vars(package)["__getattr__"] = load_rest


def load_engine() -> Engine:
    """Return the fastest engine that is installed."""
    _load_core()
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
    element. ``base_url`` is the URL that :attr:`root` reports for the document. ``max_memory``: number of bytes that the
    text and its tree may take (default: 96 MiB); ``None``: the page is known to be harmless. ``max_seconds``: CPU time that
    parsing may take; ``None``: any.

    Raises :class:`~skitter.errors.PageTooComplex` above ``max_memory``, :class:`~skitter.html.limits.TakesLong` after
    ``max_seconds``, and :class:`~skitter.errors.UsageError` for what is not a ``str``.
    """

    __slots__ = ("_node", "_page")

    def __init__(
        self,
        text: str,
        *,
        engine: Engine = _engine,
        base_url: str = "",
        max_memory: int | None = DEFAULT_MEMORY,
        max_seconds: float | None = None,
    ) -> None:
        if not isinstance(text, str):
            raise UsageError(
                f"a selector is made from a str, not from {with_article(type(text).__name__)}",
                remedy="write response.selector for a response, and decode bytes",
                field="text",
            )
        self._page = ParsedHtml(text, engine, base_url, max_memory, max_seconds)
        self._node = self._page.root

    def css(self, query: str) -> SelectorList:
        """Select by CSS; ``::text`` selects text nodes, ``::attr(name)`` attribute values.

        ``table > tr`` also finds the rows in the ``tbody`` that the HTML parser inserts. On an XML page, a name without a
        prefix matches in any namespace. Raises :class:`~skitter.errors.QueryError` for a query that is not valid CSS.
        """
        return self.run(compile_css(query))

    def descendants(self, query: str) -> SelectorList:
        """Select by CSS the descendants that match a query by their place on the page, as ``querySelectorAll`` of browsers does.

        ``body a`` finds the links in an element, although ``body`` is outside of it. :meth:`css` requires all parts of a
        query to be in the element, and also finds the element itself. A query may begin with ``>``: ``> a`` finds children.
        """
        query = _from_scope(query)
        compiled = compile_css(query)
        if query.startswith(":scope") or compiled.take is not _ELEMENT:
            return self._below(query)
        engine = self._page.engine
        if compiled.scoped is not None:
            return _ElementList(self._page, engine.select(self._node, compiled.native))
        matches = self._page.keys_of_matches(compiled)
        nodes = [node for node in engine.select(self._node, "*") if engine.key(node) in matches]
        return _ElementList(self._page, nodes)

    def _below(self, query: str) -> SelectorList:
        """Return what :meth:`css` finds, without the element itself."""
        found = self.css(query)
        return found[1:] if len(found) and self.is_same(found[0]) else found

    def run(self, query: CssQuery) -> SelectorList:
        """Select by a compiled CSS query."""
        nodes = self._matches(query)
        if nodes is None:
            from skitter.html.translation import css_to_xpath  # noqa: PLC0415 - see compile_css

            return self.xpath(css_to_xpath(query.source))
        if query.take is _ELEMENT:
            return _ElementList(self._page, nodes)
        return ValueList(self._page.take(query, nodes), _Value)

    def xpath(
        self, query: str, namespaces: Mapping[str, str] | None = None, **variables: Any
    ) -> SelectorList:
        """Select by XPath 1.0; ``$name`` in the query is replaced by the keyword argument ``name``.

        The functions of EXSLT ``re:`` and ``set:``, ``has-class()``, and of XPath 2.0 ``ends-with()``, ``lower-case()``,
        ``matches()``, ``replace()``, ``string-join()`` and ``upper-case()`` are available. ``table/tr`` also finds the rows
        in the ``tbody`` that the HTML parser inserts. Raises :class:`~skitter.errors.QueryError` for a query that is not
        valid XPath.
        """
        try:
            found = self._page.xpath(self._node, query, namespaces, variables)
        except ValueError as error:
            raise _invalid_xpath(query, error) from None
        return _selected(self._page, found)

    def jmespath(self, query: str, **options: Any) -> SelectorList:
        """Select by JMESPath from JSON text, such as the content of a ``script`` element.

        Raises :class:`~skitter.errors.QueryError` for a query that is not valid JMESPath.
        """
        texts = self._page.engine.texts(self._node)
        return _by_jmespath(parsel_selector(text=texts[0] if texts else "", type="text"), query, options)

    def get(self) -> Any:
        """Return the outer HTML of an element, a text or attribute value unchanged, or a part of a JSON document."""
        return self._page.engine.html(self._node)

    def getall(self) -> list[Any]:
        """Return ``get()`` in a list of length one."""
        return [self.get()]

    def extract(self) -> Any:
        """Return ``get()``. This is the older name of :meth:`get`."""
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
        """The raw link: ``href`` or otherwise ``src`` of an element; a text or attribute value itself."""
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

    def text_content(self) -> str:
        """Return all text inside the element, with a line break between blocks that are not separated otherwise.

        Text nodes are otherwise unchanged, and the text of scripts and styles is included. A text or attribute value is
        returned unchanged.
        """
        return self._page.text_content(self._node)

    def markdown(self, base_url: str = "") -> str:
        """Return the element as GitHub-flavored Markdown, without scripts and styles.

        Relative links become absolute with ``base_url``. Raises :class:`~skitter.errors.UsageError` on platforms without
        ``turbohtml``.
        """
        return self._page.extras_for("markdown").markdown(self._node, base_url)

    def structured_data(self, base_url: str = "") -> dict[str, Any]:
        """Return the structured data of the whole page; see :meth:`Response.structured_data`.

        Raises :class:`~skitter.errors.UsageError` on platforms without ``turbohtml``.
        """
        page = self._page
        return page.extras_for("structured_data").structured_data(page.document, base_url)

    @property
    def root(self) -> Any:
        """The element as an lxml element, in a copy of the page. For a text or attribute value, the value itself.

        Changes to the copy do not change the page.
        """
        return self._page.lxml_copy_of(self._node)[1]

    @property
    def type(self) -> str:
        """Kind of the page: ``html``, ``xml`` or ``json``; ``text`` for a text or attribute value."""
        return "html"

    def register_namespace(self, prefix: str, uri: str) -> None:
        """Make a namespace prefix known to the XPath queries on this page."""
        self._page.namespaces[prefix] = uri

    def remove_namespaces(self) -> None:
        """Remove the namespaces of an XML page, so that XPath queries need no prefixes. Does nothing for HTML."""

    def drop(self) -> None:
        """Remove the element from its page.

        Raises :class:`~skitter.errors.UsageError` for a text or attribute value and for the root of a page.
        """
        if self._node is self._page.root:
            raise _cannot_drop("the root of a page")
        self._page.drop(self._node)

    @property
    def memory(self) -> int | None:
        """Measured memory of the page in bytes; ``None`` for XML and JSON."""
        return self._page.memory

    def attribute_on_page(self, tag: str, attribute: str) -> list[str]:
        """Return an attribute of every element with a given name on the whole page, in one compiled call."""
        return self._page.engine.values(self._page.document, tag, attribute)

    def is_on_page(self, tag: str) -> bool:
        """Return whether the whole page has an element with a given name."""
        return self._page.engine.first(self._page.document, tag) is not None

    def __bool__(self) -> bool:
        return True

    def __str__(self) -> str:
        return str(self.get())

    def __repr__(self) -> str:
        text = str(self)
        return f"<Selector {text if len(text) <= 40 else f'{text[:37]}...'!r}>"

    def matches(self, query: str) -> bool:
        """Return whether the element itself matches a CSS query; ``False`` for a text or attribute value.

        Raises :class:`~skitter.errors.QueryError` for an invalid query.
        """
        compiled = compile_css(query)
        engine = self._page.engine
        if compiled.scoped is not None:
            return engine.matches(self._node, compiled.native)
        return engine.key(self._node) in self._page.keys_of_matches(compiled)

    def is_same(self, other: Selector) -> bool:
        """Return whether another selector represents the same node of the same page."""
        if isinstance(other, (_Value, _ParselAdapter)) or other._page is not self._page:
            return False
        key = self._page.engine.key
        return key(self._node) == key(other._node)

    def _matches(self, query: CssQuery) -> list[Any] | None:
        """Return the matching elements, or ``None`` if only XPath can express the query."""
        engine, scoped = self._page.engine, query.scoped
        if scoped is None:
            return None
        if query.take is _DEEP_TEXT and query.native == "*":
            return [self._node]
        if self._node is self._page.root:
            return engine.select(self._page.document, query.native)
        if scoped.chained and not engine.anchors:
            return None
        if scoped.outward and engine.matches(self._node, scoped.outward):
            return None
        nodes = engine.select(self._node, scoped.inside)
        if scoped.own and engine.matches(self._node, scoped.own):
            nodes.insert(0, self._node)
        return nodes


@final
class ElementSelector(Selector):
    """An element that a query found."""

    __slots__ = ()

    # No argument is parsed. Calling such a class takes 40 % less time than object.__new__(Selector).
    __init__ = object.__init__


def _from_scope(query: str) -> str:
    """Return a query that may begin with ``>`` as valid CSS."""
    return f":scope {query}" if query.lstrip().startswith(">") else query


def _of_node(page: ParsedHtml, node: Any) -> Selector:
    selector: Selector = ElementSelector()
    selector._page = page  # noqa: SLF001 - of this module
    selector._node = node  # noqa: SLF001 - of this module
    return selector


def _selected(page: ParsedHtml, found: Any) -> SelectorList:
    """Return the selectors of an XPath result."""
    if isinstance(found, bool):
        return SelectorList([_Value("1" if found else "0", found)])
    if not isinstance(found, list):
        return SelectorList([_Value(str(found), found)])
    if all(isinstance(value, str) for value in found):
        return ValueList(found, _Value)
    comment = page.engine.comment
    if all(not isinstance(value, str) and comment(value) is None for value in found):
        return _ElementList(page, found)
    return SelectorList(
        _Value(value)
        if isinstance(value, str)
        else _of_node(page, value)
        if comment(value) is None
        else _Comment(page, value)
        for value in found
    )


class _ElementList(SelectorList):
    """Elements of one page. A selector is created only when a single element is accessed."""

    __slots__ = ("_nodes", "_page")

    def __init__(self, page: ParsedHtml, nodes: list[Any]) -> None:
        self._page = page
        self._nodes = nodes

    def links(self) -> list[str]:
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
        if isinstance(index, slice):
            return _ElementList(self._page, self._nodes[index])
        return _of_node(self._page, self._nodes[index])

    def __iter__(self) -> Iterator[Selector]:
        page = self._page
        for node in self._nodes:  # the body of _of_node, without its call
            selector = ElementSelector()
            selector._page = page  # noqa: SLF001 - of this module
            selector._node = node  # noqa: SLF001 - of this module
            yield selector


# In the following classes, only methods that differ from the documentation of Selector have docstrings.


class _Comment(Selector):
    """A comment found by XPath, without a name, attributes and a link."""

    __slots__ = ()

    def __init__(self, page: ParsedHtml, node: Any) -> None:
        self._page = page
        self._node = node

    def run(self, query: CssQuery) -> SelectorList:
        del query
        return SelectorList()

    def matches(self, query: str) -> bool:
        compile_css(query)
        return False

    def get(self) -> str:
        return f"<!--{self._page.engine.comment(self._node)}-->"

    @property
    def attrib(self) -> dict[str, str]:
        return {}

    @property
    def tag(self) -> str:
        return ""

    @property
    def link(self) -> None:
        return


class _Value(Selector):
    """A text node, an attribute value, or the number, boolean or string that an XPath query returned."""

    __slots__ = ("_root", "_value")

    def __init__(self, value: str, root: str | float | None = None) -> None:
        self._value = value
        self._root = value if root is None else root

    def run(self, query: CssQuery) -> SelectorList:
        del query
        return ValueList([], _Value)

    def xpath(
        self, query: str, namespaces: Mapping[str, str] | None = None, **variables: Any
    ) -> SelectorList:
        """Return the value for the query ``.``, and an empty list for all others."""
        del namespaces, variables
        return ValueList([self._value] if query.strip() == "." else [], _Value)

    def descendants(self, query: str) -> SelectorList:
        return self.run(compile_css(_from_scope(query)))

    def is_same(self, other: Selector) -> bool:
        """Return whether another selector is this object, because a value has no position on a page."""
        return other is self

    def matches(self, query: str) -> bool:
        compile_css(query)
        return False

    def get(self) -> str:
        return self._value

    @property
    def attrib(self) -> dict[str, str]:
        raise _no_attributes()

    @property
    def tag(self) -> str:
        return ""

    @property
    def link(self) -> str:
        return self._value

    def jmespath(self, query: str, **options: Any) -> SelectorList:
        return _by_jmespath(parsel_selector(text=self._value, type="text"), query, options)

    def text_content(self) -> str:
        return self._value

    def markdown(self, base_url: str = "") -> str:
        return Selector(self._value).markdown(base_url)

    def structured_data(self, base_url: str = "") -> dict[str, Any]:
        return Selector(self._value).structured_data(base_url)

    @property
    def root(self) -> Any:
        return self._root

    @property
    def type(self) -> str:
        return "text"

    def register_namespace(self, prefix: str, uri: str) -> None:
        """Do nothing: XPath on a value uses no namespaces."""

    def drop(self) -> None:
        raise _cannot_drop("a text or attribute value")

    def __bool__(self) -> bool:
        return bool(self._value)


class _ParselAdapter(Selector):
    """Adapts a parsel selector: an XPath result, a node of an XML page, or a part of a JSON page."""

    __slots__ = ("_inner",)

    def __init__(self, inner: parsel.Selector) -> None:
        self._inner = inner

    def descendants(self, query: str) -> SelectorList:
        return self._below(_from_scope(query))

    def run(self, query: CssQuery) -> SelectorList:
        inner = self._inner
        try:
            if inner.type != "xml":
                return _wrap(inner.css(query.source))
            from skitter.html.translation import css_to_xpath_of_xml  # noqa: PLC0415 - see compile_css

            return _wrap(inner.xpath(css_to_xpath_of_xml(query.source)))
        except ValueError as error:
            raise QueryError(str(error), remedy="use jmespath for JSON", field="query") from None

    def xpath(
        self, query: str, namespaces: Mapping[str, str] | None = None, **variables: Any
    ) -> SelectorList:
        inner = self._inner
        try:
            found = inner.xpath(query, namespaces=namespaces, **variables)
        except ValueError as error:
            raise _invalid_xpath(query, error) from None
        if not found and inner.type == "xml":
            warn_of_namespaces(query, inner.root)
        return _wrap(found)

    def jmespath(self, query: str, **options: Any) -> SelectorList:
        return _by_jmespath(self._inner, query, options)

    def is_same(self, other: Selector) -> bool:
        return isinstance(other, _ParselAdapter) and other.root is self.root

    def matches(self, query: str) -> bool:
        root = self._inner.root
        return bool(self.tag) and any(
            found.root is root for page in self.xpath("/*") for found in page.css(query)
        )

    def get(self) -> Any:
        return self._inner.get()

    @property
    def attrib(self) -> dict[str, str]:
        if not hasattr(self._inner.root, "attrib"):
            raise _no_attributes()
        return self._inner.attrib

    @property
    def tag(self) -> str:
        tag = getattr(self._inner.root, "tag", "")
        return tag if isinstance(tag, str) else ""

    @property
    def link(self) -> str | None:
        root = self._inner.root
        if isinstance(root, str):
            return root
        attributes = getattr(root, "attrib", {})
        link = attributes.get("href", attributes.get("src"))
        return None if link is None else str(link)

    def text_content(self) -> str:
        """Return all text inside the element, in HTML with line breaks between blocks. A value is returned as text."""
        if self.tag and self.type == "html":
            html = str(self.get())
            # Outside of a table, the parser would drop the tags of rows and cells.
            html = f"<table>{html}</table>" if self.tag in _TABLE_PARTS else html
            return Selector(html).css("body")[0].text_content()
        return "".join(self.css("::text").getall()) if self.tag else str(self.get())

    def markdown(self, base_url: str = "") -> str:
        return Selector(str(self.get())).markdown(base_url)

    def structured_data(self, base_url: str = "") -> dict[str, Any]:
        return Selector(str(self.get())).structured_data(base_url)

    @property
    def memory(self) -> int | None:
        return None

    @property
    def root(self) -> Any:
        return self._inner.root

    @property
    def type(self) -> str:
        return str(self._inner.type)

    def register_namespace(self, prefix: str, uri: str) -> None:
        self._inner.register_namespace(prefix, uri)

    def remove_namespaces(self) -> None:
        self._inner.remove_namespaces()

    def drop(self) -> None:
        root = self._inner.root
        if not hasattr(root, "getparent"):
            raise _cannot_drop("a value")
        if root.getparent() is None:
            raise _cannot_drop("the root of a page")
        self._inner.drop()

    def __bool__(self) -> bool:
        return bool(self._inner)


def parsel_backed_selector(text: str, kind: str, max_memory: int = DEFAULT_MEMORY) -> Selector:
    """Return the selector of an ``"xml"`` or ``"json"`` text. Raises :class:`~skitter.errors.PageTooComplex`."""
    if kind == "xml":
        from skitter.web.feeds import repaired_xml  # noqa: PLC0415 - it imports lxml, see parsel_selector

        check_xml(text, max_memory)
        text = repaired_xml(text)
    return _ParselAdapter(parsel_selector(text=text, type=kind))


def from_parsel(inner: parsel.Selector) -> Selector:
    """Return a selector that adapts a parsel selector."""
    return _ParselAdapter(inner)


def _wrap(found: Iterable[parsel.Selector]) -> SelectorList:
    return SelectorList(map(_ParselAdapter, found))


def _no_attributes() -> UsageError:
    return UsageError(
        "a text or attribute value has no attributes",
        remedy="select the element itself, without ::text or ::attr()",
        field="query",
    )


def _cannot_drop(kind: str) -> UsageError:
    return UsageError(f"{kind} cannot be dropped", remedy="drop an element within a page")


def _invalid_xpath(query: str, error: ValueError) -> QueryError:
    is_css = _CSS.search(query)
    return QueryError(
        f"cannot evaluate XPath query {query!r}: {error}",
        remedy="it is written in CSS: use .css(), or translate the query to XPath"
        if is_css
        else "correct the query (the version is XPath 1.0); use jmespath for JSON",
        field="query",
    )


def _by_jmespath(inner: parsel.Selector, query: str, options: dict[str, Any]) -> SelectorList:
    try:
        return _wrap(inner.jmespath(query, **options))
    except ValueError as error:
        raise QueryError(
            f"cannot evaluate JMESPath query {query!r}: {error}", remedy="correct the query", field="query"
        ) from None
