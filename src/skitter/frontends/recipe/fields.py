"""Fields of items: select a value in a page, convert it, and assemble objects from all fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec
from msgspec import UNSET

from skitter.content.extraction import extractor, need_trafilatura
from skitter.errors import SkitterError
from skitter.frontends.recipe.compile_context import CompileContext
from skitter.frontends.recipe.finder import Finder, text_of
from skitter.frontends.recipe.model import Field
from skitter.frontends.recipe.page_context import PageContext, PageError, Template
from skitter.html.selector import Selector
from skitter.plugins import need


class ObjectReader:
    """Reads all fields of an object."""

    def __init__(self, fields: Mapping[str, str | Field], compile_context: CompileContext) -> None:
        self._readers = {
            name: FieldReader(field, name, compile_context.at(name), self) for name, field in fields.items()
        }

    def read(self, node: Any, context: PageContext) -> dict[str, Any]:
        """Return the object. Raises :class:`~skitter.frontends.recipe.page_context.PageError` for an unsuitable value."""
        found: dict[str, Any] = {}
        for name, reader in self._readers.items():
            found[name] = reader.read(node, context, found)
        return found


class FieldReader:
    """Reads one field."""

    def __init__(
        self, declared: str | Field, name: str, compile_context: CompileContext, around: ObjectReader
    ) -> None:
        if isinstance(declared, Field):
            field = declared
        else:
            field = Field(json=declared) if compile_context.reads_json else Field(css=declared)
        self._field = field
        self._name = name
        self._selects = any((field.css, field.xpath, field.json))
        self._finder = Finder(declared, compile_context)
        self._template = Template(field.value) if isinstance(field.value, str) else None
        self._replacements = [
            (compile_context.pattern(pair[0], "replace", place), pair[1])
            for place, pair in enumerate(field.replace)
            if len(pair) == 2
        ]
        self._pattern = None if field.regexp is None else compile_context.pattern(field.regexp, "regexp")
        self._nested = self._make_nested(compile_context, around)
        self._date_formats = [field.format] if isinstance(field.format, str) else field.format or []
        self._locale = None if field.locale is None else Template(field.locale)
        self._convert = self._converter()
        self._check(compile_context)
        if field.locale is not None:  # a missing package is reported before the crawl starts
            need("dateparser", "recipes", "dates in words")
        if field.main_content is not None:
            need_trafilatura()

    def _make_nested(self, compile_context: CompileContext, around: ObjectReader) -> ObjectReader | None:
        fields = self._field.fields
        if fields is None:
            return None
        if fields == "same":
            if not (self._selects and self._field.many):
                compile_context.problem(
                    "`same` requires a selector and many: true", "select the nested objects", "fields"
                )
            return around
        assert isinstance(fields, dict)
        if not fields:
            compile_context.problem("empty", "name the fields of the nested object", "fields")
        return ObjectReader(fields, compile_context.at("fields"))

    def _check(self, compile_context: CompileContext) -> None:
        field = self._field
        if self._selects and field.value is not None:
            compile_context.problem("a selector and a value exclude each other", "keep one of them", "value")
        if field.main_content is not None and (
            self._selects or field.value is not None or field.fields is not None
        ):
            compile_context.problem(
                "main_content excludes selectors, value and fields", "keep one of them", "main_content"
            )
        sources = (field.value, field.main_content, field.fields, field.script)
        if not self._selects and all(source is None for source in sources):
            compile_context.problem(
                "no selector", "give css, xpath, json, value, main_content, fields or script"
            )
        if field.fields is not None and any((field.type, field.regexp, field.split, field.replace)):
            compile_context.problem(
                "a nested object cannot have type, regexp, split or replace", "move them to its fields"
            )
        dated = field.type in {"date", "datetime"}
        for name in ("format", "locale"):
            if getattr(field, name) is not None and not dated:
                compile_context.problem("applies to dates only", "set type: date or type: datetime", name)
        if field.decimal != "." and field.type not in {"int", "float"}:
            compile_context.problem("applies to numbers only", "set type: float or type: int", "decimal")
        if field.required and field.default is not UNSET:
            compile_context.problem(
                "a required field never uses its default", "remove required or default", "default"
            )
        if field.join is not None and field.type not in {None, "str", "html", "markdown"}:
            compile_context.problem(
                f"cannot be combined with type: {field.type}", "remove join or type", "join"
            )

    def _converter(self) -> Callable[[str, PageContext], Any] | None:
        field = self._field
        match field.type:
            case "int":
                return lambda text, _: to_int(text, field.decimal)
            case "float":
                return lambda text, _: to_float(text, field.decimal)
            case "bool":
                return lambda text, _: to_bool(text)
            case "date" | "datetime":
                return self._date
            case "url":
                return self._url
        return None

    # --- reading -------------------------------------------------------------------------------------------

    def read(self, node: Any, context: PageContext, item: Mapping[str, Any]) -> Any:
        """Return the value. Raises :class:`~skitter.frontends.recipe.page_context.PageError` with the name of the field."""
        try:
            value = self._read(node, context, item)
            if self._field.script is not None:
                assert context.scripts is not None, "a recipe with scripts has a script engine"
                url, data = context.response.url, dict(context.data)
                variables = {"value": value, "item": dict(item), "data": data, "url": url}
                value = context.scripts.evaluate(self._field.script, variables)
        except PageError:
            raise
        except SkitterError as error:
            raise PageError(f"field {self._name}: {error}", remedy=error.remedy, field=self._name) from error
        except (ValueError, OverflowError) as error:
            if self._field.default is not UNSET:
                return self._field.default
            raise PageError(
                f"field {self._name}: {error}",
                remedy="correct the selector or the type, or give a default",
                field=self._name,
            ) from None
        return self._or_default(value)

    def _or_default(self, value: Any) -> Any:
        field = self._field
        if value is not None and value != []:
            return value
        if field.required:
            where = f" by {self._finder.source!r}" if self._selects else ""
            raise PageError(
                f"field {self._name} is required, and nothing was found{where}",
                remedy="check the page: it may have changed, or be of another kind",
                field=self._name,
            )
        return value if field.default is UNSET else field.default

    def _read(self, node: Any, context: PageContext, item: Mapping[str, Any]) -> Any:
        field = self._field
        if self._nested is not None:
            objects = [self._nested.read(inner, context) for inner in self._finder.find(node)]
            return objects if field.many else next(iter(objects), None)
        found: list[Any]
        if field.main_content is not None:
            content = extractor().extract_blocking(context.response, field.main_content)
            if content.content_error is not None:
                raise ValueError(content.content_error)
            found = [] if content.content is None else [content.content]
        elif not self._selects and field.value is not None:
            filled = field.value
            if self._template is not None:
                filled = self._template.fill({**context.variables(), "item": item})
            found = [] if filled is None else [filled]
        elif not self._selects:
            found = [node] if isinstance(node, str) else []
        else:
            found = self._finder.find(node, keep_list=field.type == "json" and not field.many)
        return self._gather(found, context)

    def _gather(self, found: list[Any], context: PageContext) -> Any:
        field = self._field
        if field.type == "bool" and not field.many and not found:
            return None if field.required or field.default is not UNSET else False
        values: list[Any] = []
        for node in found:
            values += self._values_of(node, context)
            if values and not (field.many or field.join is not None or field.split is not None):
                break
        if field.join is not None:
            return field.join.join(map(text_of, values)) if values else None
        if field.many or field.split is not None:
            return values
        return next(iter(values), None)

    def _values_of(self, node: Any, context: PageContext) -> list[Any]:
        field = self._field
        if node is None:
            return []
        if field.type == "json":
            return [to_json(node)]
        if not isinstance(node, (str, Selector)) and self._keeps(node):
            return [node]
        texts = self._texts_of(self._raw_text(node), node)
        return texts if self._convert is None else [self._convert(text, context) for text in texts]

    def _date(self, text: str, context: PageContext) -> date:
        locale = None if self._locale is None else self._locale.text_of(context.variables())
        moment = to_datetime(text, self._date_formats, locale)
        return moment.date() if self._field.type == "date" else moment

    def _keeps(self, value: Any) -> bool:
        """Return whether a value from JSON already has the required type."""
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
            return " ".join(text.split())  # collapse whitespace as a browser does
        return text

    def _texts_of(self, text: str, node: Any) -> list[str]:
        """Strip, replace, match and split, in this order. Empty results are dropped."""
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
            return ["found"]  # an element without text counts as true
        return [part for part in parts if part]

    @staticmethod
    def _url(text: str, context: PageContext) -> str:
        url = context.absolute(text)
        if url is None:
            raise ValueError(f"invalid URL {text!r:.80}")
        return url


_NUMBER = re.compile(r"(?:[-+\u2212]\s*+)?(?:\d[\d.,'\u2019\s\u00a0\u202f]*|[.,]\d+)(?:[eE][-+]?\d+)?")
_GROUPING = re.compile(r"['\u2019\s\u00a0\u202f]")
_NO = frozenset({"", "0", "false", "f", "no", "n", "off", "none", "null"})


def to_float(text: str, decimal: str = ".") -> float:
    """Return the first number in a text, ignoring thousands separators. Raises ``ValueError`` if the text has no number."""
    found = _NUMBER.search(text)
    if found is None:
        raise ValueError(f"no number in {text!r:.60}")
    digits = _GROUPING.sub("", found[0]).replace("\u2212", "-")
    other = "," if decimal == "." else "."
    return float(digits.replace(other, "").replace(decimal, ".").rstrip("."))


def to_int(text: str, decimal: str = ".") -> int:
    """Return the first number in a text. Raises ``ValueError`` if the text has no number, or not an integer."""
    number = to_float(text, decimal)
    if not number.is_integer():
        raise ValueError(f"not an integer: {text!r:.60}")
    plain = _GROUPING.sub("", text).replace("," if decimal == "." else ".", "")
    exact = re.search(r"[-+]?\d+", plain.replace("\u2212", "-"))
    # A float cannot represent integers above 2**53 exactly.
    return int(exact[0]) if exact is not None and abs(number) >= 2**53 else int(number)


def to_bool(text: str) -> bool:
    """Return false for a word such as "no" or "off", and true for any other text."""
    return text.strip().lower() not in _NO


def to_datetime(text: str, formats: Sequence[str] = (), locale: str | None = None) -> datetime:
    """Return a date in ISO 8601, RFC 5322 or Unix time, or in one of the formats or in the language ``locale``.

    It has a time zone only if the text has one. Raises ``ValueError`` for an invalid date.
    """
    for form in formats:
        try:
            return datetime.strptime(text, form)  # noqa: DTZ007 - pages often omit the time zone
        except ValueError:
            continue
    if formats:
        raise ValueError(f"{text!r:.60} is not a date of the format {' or '.join(formats)}")
    if locale is not None:
        dateparser = need("dateparser", "recipes", "dates in words")
        found: datetime | None = dateparser.parse(text, languages=[locale], settings={"TIMEZONE": "UTC"})
        if found is None:
            raise ValueError(f"{text!r:.60} is not a date in the language {locale}")
        return found
    if re.fullmatch(r"\d{9,10}(\.\d+)?", text):
        return datetime.fromtimestamp(float(text), UTC)
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            return read(text)
        except (ValueError, OverflowError):
            continue
    raise ValueError(f"{text!r:.60} is not a date in ISO 8601 or RFC 5322: set `format` or `locale`")


def to_html(node: Any) -> str:
    """Return the outer HTML of an element. A string is returned unchanged."""
    html = node.get() if isinstance(node, Selector) else node
    return html if isinstance(html, str) else text_of(html)


def to_markdown(node: Any) -> str:
    """Return an element, or HTML text, as Markdown."""
    element = node if isinstance(node, Selector) and node.tag else Selector(to_html(node))
    return element.markdown().strip()


def to_json(node: Any) -> Any:
    """Return a value from JSON unchanged, and parse a string as JSON. Raises ``ValueError`` for invalid JSON."""
    if not isinstance(node, (str, Selector)):
        return node
    try:
        return msgspec.json.decode(text_of(node))
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"invalid JSON: {error}") from None
