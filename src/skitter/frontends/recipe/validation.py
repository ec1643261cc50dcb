"""Validation: a recipe's plain values against the schema, in words that people understand."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from skitter.errors import did_you_mean
from skitter.frontends.recipe.model import published_schema
from skitter.frontends.recipe.source import FieldPath, RecipeProblems
from skitter.plugins import need

ENVIRONMENT = "SKITTER_RECIPE_"
_REFERENCE = re.compile(r"\$\{([A-Za-z_][\w.]*)\}")


def given_variables(
    data: Mapping[str, Any], arguments: Mapping[str, Any], problems: RecipeProblems
) -> dict[str, Any]:
    """Return the variables with what was given from outside. A name that is no variable is a problem."""
    declared = data.get("variables")
    variables = dict(declared) if isinstance(declared, dict) else {}
    for name, value in arguments.items():
        if name not in variables:
            problems.add(
                ("variables",), f"there is no variable {name!r}", did_you_mean(name, variables or ["-"])
            )
        variables[name] = _like(variables.get(name), value)
    return variables


def _like(declared: Any, given: Any) -> Any:
    """Return a value from a command line, which is text, as what the recipe has in its place."""
    if not isinstance(given, str) or not isinstance(declared, (bool, int, float)):
        return given
    try:
        found = json.loads(given)
    except ValueError:
        return given
    return found if isinstance(found, (bool, int, float)) else given


def substitute(data: Any, variables: Mapping[str, Any], problems: RecipeProblems, *, complete: bool) -> Any:
    """Return the values with all references replaced.

    ``complete``: a variable without a value is a problem; else its reference stays as it is, and whoever looks at
    such a text knows by :func:`is_open`.
    """
    return _Substitution(variables, problems, complete=complete).of(data, ())


def is_open(text: str) -> bool:
    """Tell whether a text still has a reference to a variable without a value."""
    return _REFERENCE.search(text) is not None


def references(value: Any, path: FieldPath = ()) -> Iterator[tuple[FieldPath, str]]:
    """Give every reference in the values, with its place."""
    if isinstance(value, str):
        for found in _REFERENCE.finditer(value):
            yield path, found[1]
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from references(inner, (*path, key))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from references(inner, (*path, place))


class _Substitution:
    def __init__(self, variables: Mapping[str, Any], problems: RecipeProblems, *, complete: bool) -> None:
        self._variables = variables
        self._problems = problems
        self._complete = complete

    def of(self, value: Any, path: FieldPath) -> Any:
        if isinstance(value, str) and "${" in value:
            whole = _REFERENCE.fullmatch(value)
            if whole is not None:  # a number stays a number
                return self._value(whole, path)
            return _REFERENCE.sub(lambda found: str(self._value(found, path)), value)
        if isinstance(value, dict):
            return {
                key: inner if path == () and key == "variables" else self.of(inner, (*path, key))
                for key, inner in value.items()
            }
        if isinstance(value, list):
            return [self.of(inner, (*path, place)) for place, inner in enumerate(value)]
        return value

    def _value(self, found: re.Match[str], path: FieldPath) -> Any:
        name = found[1]
        if name.startswith("env."):
            return self._environment(name.removeprefix("env."), found, path)
        if name not in self._variables:
            known = self._variables or ["env.NAME"]
            self._problems.add(path, f"there is no variable {name!r}", did_you_mean(name, known))
            return found[0]
        value = self._variables[name]
        if value is None:
            if self._complete:
                self._problems.add(path, f"variable {name!r} has no value", f"give it: -a {name}=VALUE")
            return found[0]
        return value

    def _environment(self, name: str, found: re.Match[str], path: FieldPath) -> str:
        value = os.environ.get(ENVIRONMENT + name)
        if value is not None:
            return value
        if self._complete:
            self._problems.add(
                path,
                f"{ENVIRONMENT}{name} is not in the environment",
                f"set it: export {ENVIRONMENT}{name}=VALUE",
            )
        return found[0]


_KINDS = {
    "string": "a text", "object": "a mapping", "array": "a list", "integer": "a whole number", "number": "a number",
    "boolean": "true or false", "null": "nothing",
}  # fmt: skip


def validate(data: Any, problems: RecipeProblems) -> None:
    """Note every place where the values are not as the schema wants them."""
    jsonschema = need("jsonschema", "recipes", "recipes")
    if not isinstance(data, dict):
        problems.add((), f"is {_kind_of(data)}, not a mapping", "begin with `name:`")
        return
    for error in jsonschema.Draft202012Validator(published_schema()).iter_errors(data):
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


def _tell(error: Any, problems: RecipeProblems) -> None:
    path: FieldPath = tuple(error.absolute_path)
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
