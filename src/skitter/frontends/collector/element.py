r"""The elements of pages that callbacks receive, and models that are filled from an element.

A field of a model is annotated with a query::

    @dataclass
    class Book:
        title: Annotated[str, Css("h3 a", attr="title")]
        price: Annotated[float, Css(".price", regex=r"[\d.]+")]
        tags: Annotated[list[str], Css(".tag")]
        author: Annotated[Author, Css(".author")]  # a nested model, filled from the element that is found

A string or number is read from the stripped text, or an attribute, of the first element found. A list takes all
elements found. A model, or a list of a model, is filled from the elements found. If nothing is found, the field gets its
default, or ``None`` or an empty list if its type allows that; otherwise it is an error.
"""

from __future__ import annotations

import dataclasses
import re
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from skitter._utils.visible import one_line
from skitter.errors import SkitterError, UsageError
from skitter.frontends.collector.request import CollectorRequest
from skitter.frontends.collector.response import CollectorResponse
from skitter.html.query import from_element, in_any_namespace
from skitter.html.selector import Selector, SelectorList

Model = TypeVar("Model")


class Element:
    """An element of an HTML page. The queries of its methods are CSS.

    The methods that search test the descendants of the element, not the element itself. A query may begin with ``>``:
    ``> a`` finds the children.

    ``index``
        Position among the matches of the callback's query, from 0.
    ``selector``
        The :class:`~skitter.html.selector.Selector` of the element.
    """

    __slots__ = ("index", "response", "selector")

    def __init__(self, response: CollectorResponse, selector: Selector, index: int) -> None:
        self.response = response
        self.selector = selector
        self.index = index

    @property
    def request(self) -> CollectorRequest:
        """The request of the page."""
        return self.response.request

    @property
    def name(self) -> str:
        """Name of the tag. Empty for a text or an attribute."""
        return self.selector.tag

    @property
    def text(self) -> str:
        """All text inside the element, in HTML with a line break between blocks that nothing separates."""
        return self.selector.text_content()

    def attr(self, name: str) -> str:
        """Return an attribute, or an empty string if it does not exist."""
        return (self._attribute(self.selector, name) or "") if self.name else ""

    def child_text(self, query: str) -> str:
        """Return the text of all matching descendants, joined and stripped."""
        return "".join(found.text_content() for found in self._find(query)).strip()

    def child_texts(self, query: str) -> list[str]:
        """Return the stripped text of each matching descendant."""
        return [found.text_content().strip() for found in self._find(query)]

    def child_attr(self, query: str, name: str) -> str:
        """Return the stripped attribute of the first matching descendant, or an empty string."""
        found = self._find(query)
        return (self._attribute(found[0], name) or "").strip() if len(found) else ""

    def child_attrs(self, query: str, name: str) -> list[str]:
        """Return the stripped attribute of each matching descendant that has it."""
        values = (self._attribute(found, name) for found in self._find(query))
        return [value.strip() for value in values if value is not None]

    def for_each(self, query: str, callback: Callable[[Element], Any]) -> None:
        """Call a plain function with each matching descendant."""
        for element in self.find(query):
            callback(element)

    def for_each_with_break(self, query: str, callback: Callable[[Element], bool]) -> None:
        """Call a plain function with each matching descendant until it returns a false value."""
        for element in self.find(query):
            if not callback(element):
                return

    def find(self, query: str) -> list[Element]:
        """Return the matching descendants."""
        make = type(self)
        return [make(self.response, found, index) for index, found in enumerate(self._find(query))]

    # Walking the page

    def matches(self, query: str) -> bool:
        """Return whether the element itself matches a query."""
        return self.selector.matches(query)

    def parent(self, query: str = "") -> Element | None:
        """Return the parent, or ``None`` if there is none or it does not match the query."""
        return self._first("parent::*", query)

    def parents(self, query: str = "") -> list[Element]:
        """Return the matching ancestors, nearest first. An empty query matches every element, here and below."""
        return self._along("ancestor::*", query, nearest_last=True)

    def closest(self, query: str) -> Element | None:
        """Return the nearest match among the element itself and its ancestors, or ``None``."""
        return self if self.matches(query) else next(iter(self.parents(query)), None)

    def children(self, query: str = "") -> list[Element]:
        """Return the matching child elements."""
        return self._along("child::*", query)

    def siblings(self, query: str = "") -> list[Element]:
        """Return the matching elements with the same parent, without the element itself."""
        return self._along("preceding-sibling::* | following-sibling::*", query)

    def next(self, query: str = "") -> Element | None:
        """Return the following sibling, or ``None`` if there is none or it does not match the query."""
        return self._first("following-sibling::*[1]", query)

    def next_all(self, query: str = "") -> list[Element]:
        """Return the matching following siblings, nearest first."""
        return self._along("following-sibling::*", query)

    def prev(self, query: str = "") -> Element | None:
        """Return the preceding sibling, or ``None`` if there is none or it does not match the query."""
        return self._first("preceding-sibling::*[1]", query)

    def prev_all(self, query: str = "") -> list[Element]:
        """Return the matching preceding siblings, nearest first."""
        return self._along("preceding-sibling::*", query, nearest_last=True)

    @property
    def position(self) -> int:
        """Number of preceding sibling elements."""
        return len(self.selector.xpath("preceding-sibling::*"))

    def _first(self, axis: str, query: str) -> Element | None:
        return next(iter(self._along(axis, query)), None)

    def _along(self, axis: str, query: str, *, nearest_last: bool = False) -> list[Element]:
        """Return the matching elements of an axis. XPath returns them in document order."""
        make = type(self)
        found = [make(self.response, node, 0) for node in self.selector.xpath(axis)]
        if nearest_last:
            found.reverse()
        matching = [element for element in found if not query or element.matches(query)]
        for index, element in enumerate(matching):
            element.index = index
        return matching

    def unmarshal(self, model: type[Model], fields: Mapping[str, Query | str] | None = None) -> Model:
        """Return an instance of a dataclass, pydantic or msgspec model, filled from this element.

        ``Annotated[type, Css(query)]`` or ``XPath(query)`` selects the value of a field. ``fields`` adds or replaces
        queries by field name; a string is CSS. See :mod:`skitter.frontends.collector.element`.
        Raises :class:`~skitter.frontends.collector.element.UnmarshalError`.
        """
        return unmarshal(self.selector, model, fields)

    def _find(self, query: str) -> SelectorList:
        return self.selector.descendants(query)

    def _attribute(self, selector: Selector, name: str) -> str | None:
        return selector.attrib.get(name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} of {self.response.url}>"


class XmlElement(Element):
    """A node of an XML or HTML page. The queries of its methods are XPath, relative to the node.

    A path that begins with ``/`` also begins at the node, except in predicates: ``(//a)[1]`` is the same as ``(.//a)[1]``.
    ``response.xpath`` queries the whole page. On an XML page, names without a prefix match in any namespace, including names of attributes.
    """

    __slots__ = ()

    def child_text(self, query: str) -> str:
        """Return the stripped text of the first match, or an empty string, as in Colly."""
        return next(iter(self.child_texts(query)), "")

    def matches(self, query: str) -> bool:
        """Return whether an XPath query finds anything from the node, as in ``self::item`` and ``@id``."""
        found = select_xpath(self.selector, query)
        return len(found) > 0 and found[0].root is not False

    @property
    def name(self) -> str:
        """Name of the tag without its namespace. Empty for a text or an attribute."""
        return self.selector.tag.rpartition("}")[2]

    def _find(self, query: str) -> SelectorList:
        return _find_xpath(self.selector, query)

    def _attribute(self, selector: Selector, name: str) -> str | None:
        attributes = selector.attrib
        names = (known for known in attributes if known.rpartition("}")[2] == name)
        return attributes.get(name, attributes.get(next(names, "")))


def select_xpath(selector: Selector, query: str) -> SelectorList:
    """Select by XPath. On an XML page, names without a prefix match in any namespace, as in Colly."""
    return selector.xpath(in_any_namespace(query) if selector.type == "xml" else query)


def _find_xpath(selector: Selector, query: str) -> SelectorList:
    """Return the matches below the node. In plain XPath, a path that begins with ``/`` begins at the root of the page."""
    return select_xpath(selector, from_element(query))


class UnmarshalError(SkitterError):
    """A model cannot be filled from an element: a field is missing or of another type."""


@dataclasses.dataclass(frozen=True)
class Query(ABC):
    """The query of a field, relative to the element.

    ``query``
        Empty: the element itself.
    ``attr``
        Attribute to read. Empty: the text.
    ``regex``
        Expression whose first group, or whole match, is the value. Without a match, nothing is found.
    """

    query: str = ""
    attr: str = ""
    regex: str = ""

    def find(self, selector: Selector) -> SelectorList:
        """Return the matches within an element."""
        return self._select(selector) if self.query else SelectorList([selector])

    @abstractmethod
    def _select(self, selector: Selector) -> SelectorList: ...

    def value(self, found: Selector) -> str | None:
        """Return the text of a field, or ``None`` if nothing is found."""
        text = found.attrib.get(self.attr) if self.attr else found.text_content()
        if text is None:
            return None
        if self.regex:
            match = re.search(self.regex, text)
            return None if match is None else match[1 if match.re.groups else 0]
        return text.strip()


class Css(Query):
    """A CSS query of a field, which selects descendants of the element."""

    def _select(self, selector: Selector) -> SelectorList:
        return selector.descendants(self.query)


class XPath(Query):
    """An XPath query of a field, relative to the element, even if it begins with ``/``."""

    def _select(self, selector: Selector) -> SelectorList:
        return _find_xpath(selector, self.query)


def unmarshal(
    selector: Selector, model: type[Model], fields: Mapping[str, Query | str] | None = None
) -> Model:
    """Fill a model from an element; see :meth:`Element.unmarshal <skitter.frontends.collector.element.Element.unmarshal>`.

    Raises :class:`~skitter.errors.UsageError` for an unknown field.
    """
    kind_of_model: Any = model  # the type checker does not accept a type variable as hashable
    fields_of_model = dict(_model_fields(kind_of_model))
    for name, query in (fields or {}).items():
        kind = fields_of_model[name].kind if name in fields_of_model else _hints(kind_of_model).get(name)
        if kind is None:
            raise UsageError(
                f"{model.__name__} has no field {name!r}", remedy="use one of its fields", field=name
            )
        fields_of_model[name] = _ModelField(_bare(kind), Css(query) if isinstance(query, str) else query)
    values = {}
    for name, model_field in fields_of_model.items():
        value = model_field.read(selector)
        if value is not _NOTHING:
            values[name] = value
    return _build(model, values)


_NOTHING = object()


class _ModelField:
    """A field of a model: its type and its query."""

    def __init__(self, kind: Any, query: Query) -> None:
        self.kind = kind
        self._query = query
        self._many = get_origin(kind) in {list, tuple, set, frozenset}
        inner = get_args(kind)[0] if self._many and get_args(kind) else kind
        self._inner = _without_none(inner)
        self._model = is_model(self._inner)

    def read(self, selector: Selector) -> Any:
        """Return the value (text, unless it is a model), or ``_NOTHING`` if nothing is found."""
        found = self._query.find(selector)
        if self._model:
            values: list[Any] = [
                unmarshal(node, self._inner) for node in (found if self._many else found[:1])
            ]
        else:
            texts = (self._query.value(node) for node in found)
            values = [text for text in texts if text is not None]
        if self._many:
            return values
        return values[0] if values else _NOTHING


@cache
def _model_fields(model: type) -> dict[str, _ModelField]:
    fields_of_model = {}
    for name, hint in _hints(model).items():
        extras = hint.__metadata__ if get_origin(hint) is Annotated else ()
        queries = [extra for extra in extras if isinstance(extra, Query)]
        if queries:
            fields_of_model[name] = _ModelField(_bare(hint), queries[0])
        elif is_model(_without_none(_bare(hint))):
            fields_of_model[name] = _ModelField(_bare(hint), Css())
    return fields_of_model


@cache
def _hints(model: type) -> dict[str, Any]:
    if not is_model(model):
        raise UsageError(
            f"{model!r} is not a model",
            remedy="pass a dataclass, or a pydantic or msgspec class",
            field="model",
        )
    try:
        return get_type_hints(model, include_extras=True)
    except NameError as error:
        raise UsageError(
            f"cannot read the annotations of {model.__name__}: {error}",
            remedy="define the annotated types at the top level of the module",
            field="model",
        ) from None


def is_model(kind: Any) -> bool:
    """Return whether instances of a type can be filled from an element."""
    return isinstance(kind, type) and (
        dataclasses.is_dataclass(kind)
        or issubclass(kind, msgspec.Struct)
        or hasattr(kind, "__pydantic_fields__")
    )


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _without_none(kind: Any) -> Any:
    """Return the inner type of an optional type. Other types are returned unchanged."""
    if get_origin(kind) in {Union, types.UnionType}:
        kinds = [inner for inner in get_args(kind) if inner is not type(None)]
        if len(kinds) == 1:
            return _bare(kinds[0])
    return kind


def _build(model: type[Model], values: dict[str, Any]) -> Model:
    kind_of_model: Any = model
    for name in _fields_without_default(kind_of_model) - values.keys():
        kind = _bare(_hints(kind_of_model)[name])
        if _without_none(kind) is not kind:
            values[name] = None
    try:
        if hasattr(model, "__pydantic_fields__"):
            return model(**values)
        return msgspec.convert(values, model, strict=False, from_attributes=True)
    except (ValueError, TypeError) as error:
        raise UnmarshalError(
            f"cannot fill {model.__name__}: {one_line(error)}",
            remedy="correct the query or the type of the field, or give it a default",
        ) from error


@cache
def _fields_without_default(model: type) -> frozenset[str]:
    if dataclasses.is_dataclass(model):
        return frozenset(
            field.name
            for field in dataclasses.fields(model)
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        )
    if issubclass(model, msgspec.Struct):
        return frozenset(field.encode_name for field in msgspec.structs.fields(model) if field.required)
    fields: Mapping[str, Any] = getattr(model, "__pydantic_fields__", {})
    return frozenset(name for name, field in fields.items() if field.is_required())
