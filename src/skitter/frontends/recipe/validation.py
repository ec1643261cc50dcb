"""Validation: a recipe's plain values against the schema, in words that people understand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from skitter.errors import did_you_mean
from skitter.frontends.recipe.problems import Problems, type_of_path
from skitter.frontends.recipe.schema import kept_schema
from skitter.frontends.recipe.variables import is_open
from skitter.plugins import need

_KINDS = {
    "string": "a text", "object": "a mapping", "array": "a list", "integer": "a whole number", "number": "a number",
    "boolean": "true or false", "null": "nothing",
}  # fmt: skip


def validate(data: Any, problems: Problems) -> None:
    """Note every place where the values are not as the schema wants them."""
    jsonschema = need("jsonschema", "recipes", "recipes")
    if not isinstance(data, dict):
        problems.add((), f"is {_kind_of(data)}, not a mapping", "begin with `name:`")
        return
    for error in jsonschema.Draft202012Validator(kept_schema()).iter_errors(data):
        for cause in _causes(error):
            _tell(cause, problems)


def _causes(error: Any) -> Iterator[Any]:
    """Give the errors that matter: of a choice, those of the branch that the writer meant."""
    if error.validator != "anyOf":
        yield error
        return
    branches: dict[int, list[Any]] = {}
    for inner in error.context:
        branches.setdefault(inner.schema_path[0], []).append(inner)
    meant = [errors for errors in branches.values() if not any(_is_other_kind(one, error) for one in errors)]
    if not meant:
        yield error
        return
    for inner in min(meant, key=len):
        yield from _causes(inner)


def _is_other_kind(inner: Any, error: Any) -> bool:
    return len(inner.absolute_path) == len(error.absolute_path) and (
        inner.validator == "type"
        or (inner.validator == "enum" and not isinstance(inner.instance, str))
        or (inner.validator == "anyOf" and all(_is_other_kind(one, inner) for one in inner.context))
    )


def _tell(error: Any, problems: Problems) -> None:
    path: type_of_path = tuple(error.absolute_path)
    value, wanted = error.instance, error.validator_value
    if isinstance(value, str) and is_open(value):
        return  # a variable that has no value yet
    match error.validator:
        case "additionalProperties":
            known = error.schema.get("properties", {})
            for name in value.keys() - known.keys():
                problems.add((*path, name), "is not known here", did_you_mean(name, known))
        case "required":
            name = error.message.split("'")[1]
            if name in wanted:
                problems.add(path, f"lacks `{name}`", f"add `{name}:`")
        case "enum":
            problems.add(path, f"cannot be {value!r}", did_you_mean(value, map(str, wanted)))
        case "type":
            problems.add(path, f"is {_kind_of(value)}, not {_kinds([error.schema])}", "correct the value")
        case "anyOf":
            problems.add(path, f"is {_kind_of(value)}, not {_kinds(wanted)}", "correct the value")
        case _:
            problems.add(path, *_OTHER.get(error.validator, _outside)(value, wanted))


def _too_short(value: Any, wanted: int) -> tuple[str, str]:
    return ("is too short" if value else "is empty"), f"give {wanted} or more, or leave it out"


def _too_long(_value: Any, wanted: int) -> tuple[str, str]:
    return "has too many entries", f"give {wanted}"


def _too_small(value: Any, wanted: int) -> tuple[str, str]:
    return f"is {value}", f"give {wanted} or more"


def _outside(value: Any, _wanted: Any) -> tuple[str, str]:
    return f"cannot be {value!r}", "see the manual on recipes"


_OTHER = {
    "minLength": _too_short, "minItems": _too_short, "minProperties": _too_short, "maxItems": _too_long,
    "minimum": _too_small,
}  # fmt: skip


def _kinds(schemas: list[dict[str, Any]]) -> str:
    names: list[str] = []
    for schema in schemas:
        kind = schema.get("type")
        if "$ref" in schema:
            names.append("a mapping")
        elif "enum" in schema:
            names += [f"`{value}`" for value in schema["enum"]]
        elif "anyOf" in schema:
            names.append(_kinds(schema["anyOf"]))
        elif kind is not None:
            names += [_KINDS[one] for one in ([kind] if isinstance(kind, str) else kind)]
    return " or ".join(dict.fromkeys(names))


def _kind_of(value: Any) -> str:
    match value:
        case None:
            return "empty"
        case bool():
            return f"{value}".lower()
        case int() | float():
            return f"the number {value}"
        case str():
            return f"the text {value!r:.40}"
        case list():
            return "a list"
    return "a mapping"
