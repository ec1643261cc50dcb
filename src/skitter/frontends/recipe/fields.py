"""Fields: from a place in a page to the value of an item's field, and all fields of an object together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from typing import Any

from msgspec import UNSET

from skitter.errors import SkitterError
from skitter.frontends.recipe.context import Context, PageError, Template
from skitter.frontends.recipe.finder import Finder, text_of
from skitter.frontends.recipe.model import Field
from skitter.frontends.recipe.values import (
    DateReader,
    to_bool,
    to_float,
    to_html,
    to_int,
    to_json,
    to_markdown,
)
from skitter.frontends.recipe.workshop import Workshop
from skitter.html.selector import Selector
from skitter.plugins import need


class ObjectReader:
    """Reads the fields of one object."""

    def __init__(self, fields: Mapping[str, str | Field], workshop: Workshop) -> None:
        self._readers = {
            name: FieldReader(field, name, workshop.at(name), self) for name, field in fields.items()
        }

    @property
    def uses_scripts(self) -> bool:
        """Whether a field has a script."""
        return any(reader.uses_scripts for reader in self._readers.values())

    def read(self, node: Any, context: Context) -> dict[str, Any]:
        """Return the object. Raises :class:`~skitter.frontends.recipe.context.PageError`."""
        found: dict[str, Any] = {}
        for name, reader in self._readers.items():
            found[name] = reader.read(node, context, found)
        return found


class FieldReader:
    """Reads one field."""

    def __init__(self, given: str | Field, name: str, workshop: Workshop, around: ObjectReader) -> None:
        self._field = field = given if isinstance(given, Field) else _bare(given, workshop)
        self._name = name
        self._selects = any((field.css, field.xpath, field.json))
        self._finder = Finder(given, workshop)
        self._template = Template(field.value) if isinstance(field.value, str) else None
        self._replacements = [
            (workshop.pattern(pair[0], "replace", place), pair[1])
            for place, pair in enumerate(field.replace)
            if len(pair) == 2
        ]
        self._pattern = None if field.regexp is None else workshop.pattern(field.regexp, "regexp")
        self._nested = self._make_nested(workshop, around)
        formats = [field.format] if isinstance(field.format, str) else field.format or []
        self._dates = DateReader(formats) if field.type in {"date", "datetime"} else None
        self._locale = None if field.locale is None else Template(field.locale)
        self._convert = self._converter()
        self._check(workshop)
        self._load_packages()

    def _load_packages(self) -> None:
        """Import now what would hold up the first page, or turn out to be missing there."""
        if self._field.type == "markdown":
            need("markdownify", "recipes", "fields of type markdown")
        if self._field.locale is not None:
            need("dateparser", "recipes", "dates in words")

    @property
    def uses_scripts(self) -> bool:
        """Whether it, or a field within it, has a script."""
        own_nested = self._nested is not None and isinstance(self._field.fields, dict)
        return self._field.script is not None or (
            own_nested and self._nested is not None and self._nested.uses_scripts
        )

    def _make_nested(self, workshop: Workshop, around: ObjectReader) -> ObjectReader | None:
        fields = self._field.fields
        if fields is None:
            return None
        if fields == "same":
            if not (self._selects and self._field.many):
                workshop.problem(
                    "`same` needs a selector and many: true", "select the objects within this one", "fields"
                )
            return around
        assert isinstance(fields, dict)
        if not fields:
            workshop.problem("is empty", "name the fields of the nested object", "fields")
        return ObjectReader(fields, workshop.at("fields"))

    def _check(self, workshop: Workshop) -> None:
        field = self._field
        if self._selects and field.value is not None:
            workshop.problem("has a selector and a value", "keep one of them", "value")
        if not self._selects and field.value is None and field.fields is None and field.script is None:
            workshop.problem("selects nothing", "give css, xpath, json, value, fields or script")
        if field.fields is not None and any((field.type, field.regexp, field.split, field.replace)):
            workshop.problem(
                "a nested object has no type, regexp, split or replace", "put them into its fields"
            )
        dated = field.type in {"date", "datetime"}
        for name in ("format", "locale"):
            if getattr(field, name) is not None and not dated:
                workshop.problem("is only for dates", "give type: date or type: datetime", name)
        if field.decimal != "." and field.type not in {"int", "float"}:
            workshop.problem("is only for numbers", "give type: float or type: int", "decimal")
        if field.required and field.default is not UNSET:
            workshop.problem("is required, so its default is never used", "keep one of them", "default")
        if field.join is not None and field.type not in {None, "str", "html", "markdown"}:
            workshop.problem(f"makes a text, not {field.type}", "leave out join or type", "join")

    def _converter(self) -> Callable[[str], Any] | None:
        field = self._field
        match field.type:
            case "int":
                return lambda text: to_int(text, field.decimal)
            case "float":
                return lambda text: to_float(text, field.decimal)
            case "bool":
                return to_bool
        return None

    # --- reading -------------------------------------------------------------------------------------------

    def read(self, node: Any, context: Context, item: Mapping[str, Any]) -> Any:
        """Return the value. Raises :class:`~skitter.frontends.recipe.context.PageError` naming the field."""
        try:
            value = self._read(node, context, item)
            if self._field.script is not None:
                value = self._run(self._field.script, value, context, item)
        except PageError:
            raise
        except SkitterError as error:
            raise PageError(f"field {self._name}: {error}", remedy=error.remedy) from error
        except (ValueError, OverflowError) as error:
            if self._field.default is not UNSET:
                return self._field.default
            raise PageError(
                f"field {self._name}: {error}", remedy="correct the selector or the type, or give a default"
            ) from None
        return self._or_default(value)

    def _or_default(self, value: Any) -> Any:
        field = self._field
        if value is not None and value != []:
            return value
        if field.required:
            where = f" by {self._finder.source!r}" if self._selects else ""
            raise PageError(
                f"field {self._name}: nothing was found{where}, and it is required",
                remedy="look at the page: it may have changed, or be another kind of page",
            )
        return value if field.default is UNSET else field.default

    def _read(self, node: Any, context: Context, item: Mapping[str, Any]) -> Any:
        field = self._field
        if self._nested is not None:
            objects = [self._nested.read(inner, context) for inner in self._finder.find(node)]
            return objects if field.many else next(iter(objects), None)
        if not self._selects and field.value is not None:
            filled = field.value
            if self._template is not None:
                filled = self._template.fill({**context.words(), "item": item})
            found = [] if filled is None else [filled]
        elif not self._selects:
            found = [node] if isinstance(node, str) else []
        else:
            found = self._finder.find(node, whole=field.type == "json" and not field.many)
        return self._gather(found, context)

    def _gather(self, found: list[Any], context: Context) -> Any:
        field = self._field
        if field.type == "bool" and not field.many and not found:
            return None if field.required or field.default is not UNSET else False
        values: list[Any] = []
        for one in found:
            values += self._values_of(one, context)
            if values and not (field.many or field.join is not None or field.split is not None):
                break
        if field.join is not None:
            return field.join.join(map(text_of, values)) if values else None
        if field.many or field.split is not None:
            return values
        return next(iter(values), None)

    def _values_of(self, node: Any, context: Context) -> list[Any]:
        field = self._field
        if node is None:
            return []
        if field.type == "json":
            return [to_json(node)]
        if not isinstance(node, (str, Selector)) and self._keeps(node):
            return [node]
        texts = self._texts_of(self._raw_text(node), node)
        if field.type == "url":
            return [self._url(text, context) for text in texts]
        if self._dates is not None:
            return [self._date(text, context, self._dates) for text in texts]
        return texts if self._convert is None else [self._convert(text) for text in texts]

    def _date(self, text: str, context: Context, dates: DateReader) -> date:
        locale = None if self._locale is None else self._locale.text_of(context.words())
        moment = dates.read(text, locale)
        return moment.date() if self._field.type == "date" else moment

    def _keeps(self, value: Any) -> bool:
        """Tell whether a value of JSON is of the wanted type already."""
        field = self._field
        if field.type is None:
            return not (field.split or field.replace or self._pattern)
        if isinstance(value, bool):
            return field.type == "bool"
        return (field.type == "float" and isinstance(value, float)) or (
            field.type in {"int", "float"} and isinstance(value, int)
        )

    def _raw_text(self, node: Any) -> str:
        field = self._field
        if field.type == "html":
            return to_html(node)
        if field.type == "markdown":
            return to_markdown(node)
        if field.type == "url" and isinstance(node, Selector) and node.tag:
            return node.link or ""
        text = text_of(node)
        if field.strip and isinstance(node, Selector) and node.tag:
            return " ".join(text.split())  # as a browser shows it
        return text

    def _texts_of(self, text: str, node: Any) -> list[str]:
        """Strip, replace, take the match, split; what is left empty is dropped."""
        field = self._field
        if field.strip:
            text = text.strip()
        for pattern, replacement in self._replacements:
            text = pattern.sub(replacement, text)
        if self._pattern is not None:
            match = self._pattern.search(text)
            if match is None:
                return []
            text = (match[1] if self._pattern.groups else match[0]) or ""
        parts = [text] if field.split is None else text.split(field.split)
        if field.strip:
            parts = [part.strip() for part in parts]
        if field.type == "bool" and parts == [""] and isinstance(node, Selector) and node.tag:
            return ["found"]  # an element without text, such as a mark
        return [part for part in parts if part]

    @staticmethod
    def _url(text: str, context: Context) -> str:
        url = context.absolute(text)
        if url is None:
            raise ValueError(f"{text!r:.80} is no URL")
        return url

    def _run(self, script: str, value: Any, context: Context, item: Mapping[str, Any]) -> Any:
        assert context.scripts is not None, "the spider starts an engine for every recipe with scripts"
        words = {"value": value, "item": dict(item), "data": dict(context.data), "url": context.response.url}
        return context.scripts.evaluate(script, words)


def _bare(text: str, workshop: Workshop) -> Field:
    return Field(json=text) if workshop.reads_json else Field(css=text)
