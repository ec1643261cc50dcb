"""Substitutes ``${NAME}`` variables in a recipe, and validates its values against the schema.

``${env.NAME}`` is the environment variable ``SKITTER_RECIPE_NAME``. The prefix keeps recipes of other authors from
reading other variables.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from skitter.errors import did_you_mean
from skitter.frontends.recipe.model import published_schema
from skitter.frontends.recipe.source import FieldPath, RecipeProblems
from skitter.plugins import need

ENVIRONMENT = "SKITTER_RECIPE_"
_MAX_TEXT = 4 << 20
"""Maximum number of characters that the references of a recipe may add."""
_REFERENCE = re.compile(r"\$\{([A-Za-z_][\w.]*)\}")


def given_variables(
    data: Mapping[str, Any], arguments: Mapping[str, Any], problems: RecipeProblems, *, complete: bool
) -> dict[str, Any]:
    """Return the variables with the values that the caller passes. An unknown name is a problem.

    A declared value may refer to the environment and to variables before it. ``complete``: see :func:`substitute`.
    """
    declared = data.get("variables")
    variables = dict(declared) if isinstance(declared, dict) else {}
    for name, value in variables.items():
        if name not in arguments:
            # Only declared values are substituted: callers must not read the environment through the values that they pass.
            earlier = dict(islice(variables.items(), list(variables).index(name)))
            variables[name] = _Substitution(earlier, problems, complete=complete).of(
                value, ("variables", name)
            )
    for name, value in arguments.items():
        if name not in variables:
            problems.add(("variables",), f"unknown variable {name!r}", did_you_mean(name, variables or ["-"]))
        variables[name] = _like(variables.get(name), value)
    return variables


def _like(default: Any, value: Any) -> Any:
    """Convert a string from the command line to the type that the recipe declares."""
    if not isinstance(value, str) or not isinstance(default, (bool, int, float)):
        return value
    try:
        found = json.loads(value)
    except ValueError:
        return value
    return found if isinstance(found, (bool, int, float)) else value


def substitute(data: Any, variables: Mapping[str, Any], problems: RecipeProblems, *, complete: bool) -> Any:
    """Return the values with all references replaced.

    ``complete``: a variable without a value is a problem. Otherwise its reference stays in the text; see
    :func:`is_open`.
    """
    return _Substitution(variables, problems, complete=complete).of(data, ())


def is_open(text: str) -> bool:
    """Return whether a text contains a reference to a variable without a value."""
    return _REFERENCE.search(text) is not None


class _Substitution:
    def __init__(self, variables: Mapping[str, Any], problems: RecipeProblems, *, complete: bool) -> None:
        self._variables = variables
        self._problems = problems
        self._complete = complete
        self._left = _MAX_TEXT

    def of(self, value: Any, path: FieldPath) -> Any:
        if isinstance(value, str) and "${" in value:
            reference = _REFERENCE.fullmatch(value)
            if reference is not None:  # keep the type of the value
                return self._value(reference, path)
            return _REFERENCE.sub(lambda found: self._text(found, path), value)
        if isinstance(value, dict):
            return {
                key: inner if path == () and key == "variables" else self.of(inner, (*path, key))
                for key, inner in value.items()
            }
        if isinstance(value, list):
            return [self.of(inner, (*path, place)) for place, inner in enumerate(value)]
        return value

    def _text(self, found: re.Match[str], path: FieldPath) -> str:
        text = str(self._value(found, path))
        if self._left < len(text):
            if self._left >= 0:
                self._problems.add(path, "the variables make the recipe too large", "shorten their values")
            self._left = -1
            return found[0]
        self._left -= len(text)
        return text

    def _value(self, found: re.Match[str], path: FieldPath) -> Any:
        name = found[1]
        if name.startswith("env."):
            return self._environment(name.removeprefix("env."), found, path)
        if name not in self._variables:
            variables = self._variables or ["env.NAME"]
            self._problems.add(path, f"unknown variable {name!r}", did_you_mean(name, variables))
            return found[0]
        value = self._variables[name]
        if value is None:
            if self._complete:
                self._problems.add(path, f"variable {name!r} has no value", f"set it: -a {name}=VALUE")
            return found[0]
        return value

    def _environment(self, name: str, found: re.Match[str], path: FieldPath) -> str:
        value = os.environ.get(ENVIRONMENT + name)
        if value is not None:
            return value
        if self._complete:
            self._problems.add(
                path,
                f"environment variable {ENVIRONMENT}{name} is not set",
                f"set it: export {ENVIRONMENT}{name}=VALUE",
            )
        return found[0]


_KINDS = {
    "string": "a string", "object": "a mapping", "array": "a list", "integer": "an integer", "number": "a number",
    "boolean": "true or false", "null": "null",
}  # fmt: skip


def validate(data: Any, problems: RecipeProblems) -> None:
    """Add a problem for each value that does not match the schema."""
    jsonschema = need("jsonschema", "recipes", "recipes")
    if not isinstance(data, dict):
        problems.add((), f"expected a mapping, got {_kind_of(data)}", "start with `name:`")
        return
    for error in jsonschema.Draft202012Validator(published_schema()).iter_errors(data):
        for cause in _causes(error):
            _add_problem(cause, problems)


def _causes(error: Any) -> Iterator[Any]:
    """Yield the relevant errors: for a choice of types, the errors of the type that the author most likely meant."""
    if error.validator != "anyOf":
        yield error
        return
    branches: dict[int, list[Any]] = {}
    for inner in error.context:
        branches.setdefault(inner.schema_path[0], []).append(inner)
    meant = [
        errors for errors in branches.values() if not any(_is_other_kind(inner, error) for inner in errors)
    ]
    if not meant:
        yield error
        return
    for inner in min(meant, key=len):
        yield from _causes(inner)


def _is_other_kind(inner: Any, error: Any) -> bool:
    return len(inner.absolute_path) == len(error.absolute_path) and (
        inner.validator == "type"
        or (inner.validator == "enum" and not isinstance(inner.instance, str))
        or (inner.validator == "anyOf" and all(_is_other_kind(cause, inner) for cause in inner.context))
    )


def _add_problem(error: Any, problems: RecipeProblems) -> None:  # noqa: C901 - one case for each keyword
    path: FieldPath = tuple(error.absolute_path)
    value, expected = error.instance, error.validator_value
    if isinstance(value, str) and is_open(value):
        return  # the variable gets its value later
    match error.validator:
        case "additionalProperties":
            properties = error.schema.get("properties", {})
            for name in value.keys() - properties.keys():
                problems.add((*path, name), "unknown key", did_you_mean(name, properties))
        case "required":
            name = error.message.split("'")[1]
            if name in expected:
                problems.add(path, f"missing key `{name}`", f"add `{name}:`")
        case "enum":
            problems.add(path, f"invalid value {value!r}", did_you_mean(value, map(str, expected)))
        case "type":
            problems.add(
                path, f"expected {_kinds([error.schema])}, got {_kind_of(value)}", "correct the value"
            )
        case "anyOf":
            problems.add(path, f"expected {_kinds(expected)}, got {_kind_of(value)}", "correct the value")
        case "minLength" | "minItems" | "minProperties":
            problem = "too short" if value else "empty"
            problems.add(path, problem, f"give at least {expected}, or remove the key")
        case "maxItems":
            problems.add(path, "too many entries", f"give at most {expected}")
        case "minimum":
            problems.add(path, f"too small: {value}", f"give {expected} or more")
        case _:
            problems.add(path, f"invalid value {value!r}", "see the guide on recipes")


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
            names += [_KINDS[name] for name in ([kind] if isinstance(kind, str) else kind)]
    return " or ".join(dict.fromkeys(names))


def _kind_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return f"{value}".lower()
        case int() | float():
            return f"the number {value}"
        case str():
            return f"the string {value!r:.40}"
        case list():
            return "a list"
    return "a mapping"
