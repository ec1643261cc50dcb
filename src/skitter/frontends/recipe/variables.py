"""Variables: ``${NAME}`` in the texts of a recipe.

``${env.NAME}`` is the environment variable ``SKITTER_RECIPE_NAME``: the prefix keeps a recipe of somebody else from
reading what is none of its business.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from skitter.errors import did_you_mean
from skitter.frontends.recipe.problems import Problems, type_of_path

ENVIRONMENT = "SKITTER_RECIPE_"
_REFERENCE = re.compile(r"\$\{([A-Za-z_][\w.]*)\}")


def given_variables(
    data: Mapping[str, Any], arguments: Mapping[str, Any], problems: Problems
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


def substitute(data: Any, variables: Mapping[str, Any], problems: Problems, *, complete: bool) -> Any:
    """Return the values with all references replaced.

    ``complete``: a variable without a value is a problem; else its reference stays as it is, and whoever looks at
    such a text knows by :func:`is_open`.
    """
    return _Substitution(variables, problems, complete=complete).of(data, ())


def is_open(text: str) -> bool:
    """Tell whether a text still has a reference to a variable without a value."""
    return _REFERENCE.search(text) is not None


def references(value: Any, path: type_of_path = ()) -> Iterator[tuple[type_of_path, str]]:
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
    def __init__(self, variables: Mapping[str, Any], problems: Problems, *, complete: bool) -> None:
        self._variables = variables
        self._problems = problems
        self._complete = complete

    def of(self, value: Any, path: type_of_path) -> Any:
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

    def _value(self, found: re.Match[str], path: type_of_path) -> Any:
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

    def _environment(self, name: str, found: re.Match[str], path: type_of_path) -> str:
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
