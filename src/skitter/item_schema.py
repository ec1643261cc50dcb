"""ItemSchema: checks items against a class or a JSON Schema (setting ``item_schema``)."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple, Protocol, is_typeddict

import msgspec

from skitter._utils.visible import one_line
from skitter.errors import SettingsError
from skitter.item import item_fields
from skitter.plugins import PluginKind, need

SCHEMAS = PluginKind("item_schema", "skitter.item_schemas", {}, SettingsError)
_MISSING = re.compile(r"missing required field `([^`]+)`")
_PATH = re.compile(r" - at (?:`key` in )?`\$?\.?([^`]*)`$")
_BOUND = re.compile(r"^Expected `[^`]*` (of length|matching|>=|>|<=|<|that's)|^Invalid (?!enum)")


class Violation(NamedTuple):
    """A field of an item that violates the schema, and the kind of violation: ``missing``, ``type``, ``value`` or ``extra``."""

    field: str
    """Path of the field, such as ``offers.price``, without the indexes of lists. Empty: the item as a whole."""
    kind: str


class ItemSchema(Protocol):
    """A compiled schema."""

    def violations(self, item: Any) -> list[Violation]:
        """Return the violations of an item, once for each field and kind. Empty for a valid item."""


def make_item_schema(value: Any) -> ItemSchema:
    """Return the schema of a setting.

    ``value``: a class (dataclass, attrs, msgspec, TypedDict, pydantic), its dotted path, or a JSON Schema as a dict. Raises :class:`~skitter.errors.SettingsError` for anything else, and for an invalid JSON Schema.
    """
    if isinstance(value, str):
        value, _ = SCHEMAS.find(value)
    if isinstance(value, Mapping):
        return _JsonSchema(dict(value))
    if isinstance(value, type) and hasattr(value, "__pydantic_fields__"):
        return _PydanticSchema(value)
    if isinstance(value, type) and (
        issubclass(value, msgspec.Struct)
        or dataclasses.is_dataclass(value)
        or hasattr(value, "__attrs_attrs__")
        or is_typeddict(value)
    ):
        return _ClassSchema(value)
    raise SettingsError(
        f"item_schema cannot be {value!r:.80}",
        remedy="give a dataclass, attrs, msgspec, TypedDict or pydantic class, or a JSON Schema",
        field="item_schema",
    )


class _ClassSchema:
    """A class that msgspec understands. Only the first violation of an item is found."""

    def __init__(self, kind: type) -> None:
        self._kind = kind
        try:
            msgspec.json.Decoder(kind)
        except TypeError as error:
            raise SettingsError(
                f"item_schema {kind.__name__}: {error}", remedy="use other types", field="item_schema"
            ) from error

    def violations(self, item: Any) -> list[Violation]:
        try:
            # Dates, decimal numbers and all keys are strings here, as in the outputs. The class may declare either type.
            msgspec.convert(item_fields(item), self._kind, str_keys=True)
        except msgspec.ValidationError as error:
            return [_violation_of(str(error))]
        return []


def _violation_of(text: str) -> Violation:
    found = _PATH.search(text)
    path = "" if found is None else re.sub(r"\[[^\]]*\]", "", found[1]).strip(".")
    if missing := _MISSING.search(text):
        return Violation(".".join(filter(None, (path, missing[1]))), "missing")
    if "unknown field" in text:
        extra = re.search(r"unknown field `([^`]+)`", text)
        return Violation(".".join(filter(None, (path, extra[1] if extra else ""))), "extra")
    is_value = _BOUND.search(text) is not None or text.startswith("Invalid")
    return Violation(path, "value" if is_value else "type")


class _PydanticSchema:
    def __init__(self, kind: Any) -> None:
        self._kind = kind
        # A pydantic model can only exist if the package is installed.
        self._error: type[Exception] = import_module("pydantic").ValidationError

    def violations(self, item: Any) -> list[Violation]:
        fields = item if isinstance(item, dict) else item_fields(item)
        try:
            self._kind.model_validate(fields)
        except self._error as refused:
            error: Any = refused
            faults = error.errors(include_url=False, include_context=False, include_input=False)
            found = [Violation(_path_of(fault["loc"]), _pydantic_kind(fault["type"])) for fault in faults]
            return list(dict.fromkeys(found))
        return []


def _pydantic_kind(fault: str) -> str:
    if fault in {"missing", "extra_forbidden"}:
        return fault.removesuffix("_forbidden")
    return "type" if fault.endswith(("_type", "_parsing", "_attributes_type")) else "value"


def _path_of(parts: Any) -> str:
    return ".".join(str(part) for part in parts if isinstance(part, str))


class _JsonSchema:
    def __init__(self, schema: dict[str, Any]) -> None:
        library = need("jsonschema_rs", "validation", "item_schema")
        try:
            library.meta.validate(schema)
            self._validator = library.validator_for(schema, validate_formats=True)
        except (library.ValidationError, library.ReferencingError, ValueError) as error:
            raise SettingsError(
                f"item_schema is not a JSON Schema: {one_line(error):.200}",
                remedy="correct the schema",
                field="item_schema",
            ) from error

    def violations(self, item: Any) -> list[Violation]:
        fields = item_fields(item)
        if self._validator.is_valid(fields):
            return []
        return list(dict.fromkeys(map(self._violation, self._validator.iter_errors(fields))))

    @staticmethod
    def _violation(error: Any) -> Violation:
        keyword = str(error.schema_path[-1]) if error.schema_path else ""
        path = _path_of(error.instance_path)
        if keyword == "required":
            return Violation(".".join(filter(None, (path, error.kind.property))), "missing")
        if keyword in {"additionalProperties", "unevaluatedProperties"}:
            return Violation(path, "extra")
        return Violation(path, "type" if keyword == "type" else "value")
