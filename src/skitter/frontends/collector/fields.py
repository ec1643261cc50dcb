r"""Fields: where in an element the fields of a model are, and the model made from it.

A field is annotated with a query::

    @dataclass
    class Book:
        title: Annotated[str, Css("h3 a", attr="title")]
        price: Annotated[float, Css(".price", regex=r"[\d.]+")]
        tags: Annotated[list[str], Css(".tag")]
        author: Annotated[Author, Css(".author")]  # nested, made from the element found

``str``, numbers and so on are read from the stripped text of the first element found, or from an attribute of it;
a list takes all that are found; a model, or a list of a model, is made from what is found. Without anything found a
field takes its default, or ``None`` or an empty list where the type admits that; otherwise it is an error.
"""

from __future__ import annotations

import dataclasses
import re
import types
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from skitter.errors import SkitterError, UsageError
from skitter.html.selector import Selector, SelectorList

Model = TypeVar("Model")


class UnmarshalError(SkitterError):
    """An element from which a model cannot be made: a field is missing or of another type."""


@dataclasses.dataclass(frozen=True)
class Query:
    """Where a field is, seen from the element.

    ``query``
        Empty: the element itself.
    ``attr``
        Attribute to take; empty: the text.
    ``regex``
        What to cut out of it: the first group, or all of the match. No match is nothing found.
    """

    query: str = ""
    attr: str = ""
    regex: str = ""

    def find(self, selector: Selector) -> SelectorList:
        """Return what it finds from an element."""
        return self._select(selector) if self.query else SelectorList([selector])

    def _select(self, selector: Selector) -> SelectorList:
        raise NotImplementedError

    def value(self, found: Selector) -> str | None:
        """Return the text that a field is read from, or ``None`` if there is none."""
        text = found.attrib.get(self.attr) if self.attr else "".join(_texts(found))
        if text is None:
            return None
        if self.regex:
            match = re.search(self.regex, text)
            return None if match is None else match[1 if match.re.groups else 0]
        return text.strip()


class Css(Query):
    """A field by CSS."""

    def _select(self, selector: Selector) -> SelectorList:
        return selector.css(self.query)


class XPath(Query):
    """A field by XPath, relative to the element."""

    def _select(self, selector: Selector) -> SelectorList:
        return selector.xpath(self.query)


def unmarshal(
    selector: Selector, model: type[Model], fields: Mapping[str, Query | str] | None = None
) -> Model:
    """Make a model from an element; see :meth:`Element.unmarshal <skitter.frontends.collector.element.Element.unmarshal>`.

    Raises :class:`~skitter.errors.UsageError` for a field that the model does not have.
    """
    kind_of_model: Any = model  # a type variable has no hash for the type checker
    places = dict(_places(kind_of_model))
    for name, query in (fields or {}).items():
        kind = places[name].kind if name in places else _hints(kind_of_model).get(name)
        if kind is None:
            raise UsageError(f"{model.__name__} has no field {name!r}", remedy="name one of its fields")
        places[name] = _Place(_bare(kind), Css(query) if isinstance(query, str) else query)
    values = {}
    for name, place in places.items():
        value = place.read(selector)
        if value is not _NOTHING:
            values[name] = value
    return _build(model, values)


_NOTHING = object()


class _Place:
    """A field: its type and where it is."""

    def __init__(self, kind: Any, query: Query) -> None:
        self.kind = kind
        self._query = query
        self._many = get_origin(kind) in {list, tuple, set, frozenset}
        inner = get_args(kind)[0] if self._many and get_args(kind) else kind
        self._inner = _without_none(inner)
        self._model = is_model(self._inner)

    def read(self, selector: Selector) -> Any:
        """Return the value, still text where it is no model; ``_NOTHING`` if there is none."""
        found = self._query.find(selector)
        if self._model:
            values: list[Any] = [unmarshal(one, self._inner) for one in (found if self._many else found[:1])]
        else:
            texts = (self._query.value(one) for one in found)
            values = [text for text in texts if text is not None]
        if self._many:
            return values
        return values[0] if values else _NOTHING


@cache
def _places(model: type) -> dict[str, _Place]:
    places = {}
    for name, hint in _hints(model).items():
        queries = [extra for extra in _extras(hint) if isinstance(extra, Query)]
        if queries:
            places[name] = _Place(_bare(hint), queries[0])
        elif is_model(_without_none(_bare(hint))):
            places[name] = _Place(_bare(hint), Css())
    return places


@cache
def _hints(model: type) -> dict[str, Any]:
    if not is_model(model):
        raise UsageError(f"{model!r} is no model", remedy="pass a dataclass, or a pydantic or msgspec class")
    try:
        return get_type_hints(model, include_extras=True)
    except NameError as error:
        raise UsageError(
            f"the annotations of {model.__name__} cannot be read: {error}",
            remedy="define the types that it names at the top of the module",
        ) from None


def is_model(kind: Any) -> bool:
    """Tell whether instances of a type can be made from an element."""
    return isinstance(kind, type) and (
        dataclasses.is_dataclass(kind)
        or issubclass(kind, msgspec.Struct)
        or hasattr(kind, "__pydantic_fields__")
    )


def _extras(hint: Any) -> tuple[Any, ...]:
    return hint.__metadata__ if get_origin(hint) is Annotated else ()


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _without_none(kind: Any) -> Any:
    """Return what an optional type holds; any other type is returned as it is."""
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
        reason = " ".join(str(error).split())
        raise UnmarshalError(
            f"no {model.__name__} can be made: {reason}",
            remedy="correct the field's query or type, or give it a default",
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


def _texts(selector: Selector) -> list[str]:
    return selector.css("::text").getall() if selector.tag else [str(selector.get())]
