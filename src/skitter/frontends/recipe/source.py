"""Source: the text of a recipe, read as plain values, with the line on which each of them stands."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from skitter.frontends.recipe.problems import Problem, RecipeError, name_of, type_of_path
from skitter.frontends.recipe.toml_lines import toml_lines
from skitter.plugins import need

_MOST_VALUES = 100_000
"""A recipe with more of them is no recipe but an attack by YAML aliases."""


class Source:
    """A recipe as it was written. ``data`` holds plain values: ``None``, booleans, numbers, strings, lists, dicts."""

    def __init__(self, name: str, data: Any, lines: dict[type_of_path, int]) -> None:
        self.name = name
        self.data = data
        self._lines = lines

    @classmethod
    def of_file(cls, path: str | Path) -> Source:
        """Read a file. Raises :class:`~skitter.frontends.recipe.problems.RecipeError`."""
        try:
            text = Path(path).read_text("utf-8-sig")
        except FileNotFoundError:
            raise RecipeError(
                [f"there is no file {path}"], remedy="check the name of the recipe's file"
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise RecipeError([f"{path} cannot be read: {error}"], remedy="a recipe is UTF-8 text") from None
        full, here = Path(path).resolve(), Path.cwd()
        return cls.of_text(text, str(full.relative_to(here) if full.is_relative_to(here) else path))

    @classmethod
    def of_text(cls, text: str, name: str) -> Source:
        """Read a text; the end of its name tells whether it is TOML, everything else is YAML.

        Raises :class:`~skitter.frontends.recipe.problems.RecipeError` for text that is neither.
        """
        return _of_toml(text, name) if name.endswith(".toml") else _of_yaml(text, name)

    def line_of(self, path: type_of_path) -> int:
        """Return the line (from 1) of a place, or of the nearest place around it."""
        for end in range(len(path), 0, -1):
            if path[:end] in self._lines:
                return self._lines[path[:end]]
        return 1

    def tell(self, problem: Problem) -> str:
        """Return a problem as one line that names the file, the line and the field."""
        field = f"{problem.field}: " if problem.path else ""
        return f"{self.name} line {self.line_of(problem.path)}: {field}{problem.text}"

    def refuse(self, problems: list[Problem]) -> RecipeError:
        """Return the error for these problems, in the order of their lines."""
        ordered = sorted(problems, key=lambda problem: self.line_of(problem.path))
        lines = [f"{self.tell(one)}; {one.remedy}" for one in ordered]
        first = ordered[0]
        return RecipeError([self.tell(first), *lines[1:]], remedy=first.remedy)


def _of_toml(text: str, name: str) -> Source:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = f"line {error.lineno}" if hasattr(error, "lineno") else _toml_place(str(error), text)
        message = str(error).partition(" (at ")[0]
        raise RecipeError([f"{name} {place}: {message}"], remedy="correct the TOML") from None
    return Source(name, data, toml_lines(text))


def _toml_place(message: str, text: str) -> str:
    _, _, place = message.partition("(at line ")
    number = place.partition(",")[0]
    return f"line {number if number.isdigit() else len(text.splitlines()) or 1}"


def _of_yaml(text: str, name: str) -> Source:
    yaml = need("yaml", "recipes", "recipes in YAML")
    reader = _YamlReader(yaml, name)
    try:
        root = yaml.compose(text, Loader=_loader(yaml))
    except yaml.MarkedYAMLError as error:
        begun = (error.context or "").startswith(("while parsing a flow", "while scanning a quoted"))
        mark = error.context_mark if begun else error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        raise RecipeError([f"{name} line {line}: {error.problem}"], remedy="correct the YAML") from None
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise RecipeError([f"{name} line 1: {reason}"], remedy="correct the YAML") from None
    if root is None:
        return Source(name, None, {})
    return Source(name, reader.value(root, ()), reader.lines)


def _loader(yaml: Any) -> Any:
    """Return a loader for which only ``true``, ``false``, ``null`` and numbers are no strings.

    YAML 1.1 takes ``no``, ``on``, ``12:30`` and ``2024-01-02`` for something else, which helps nobody here.
    """
    base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    plain = {
        "bool": (r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
        "int": (r"^[-+]?[0-9]+$", "-+0123456789"),
        "float": (r"^[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?$", "-+0123456789."),
        "null": (r"^(?:~|null|Null|NULL|)$", "~nN\0"),
    }
    loader: Any = type("RecipeLoader", (base,), {"yaml_implicit_resolvers": {}})
    for kind, (pattern, first) in plain.items():
        firsts = [*first.replace("\0", "")] + ([""] if "\0" in first else [])
        loader.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(pattern), firsts)
    return loader


class _YamlReader:
    """Turns nodes into plain values and notes their lines."""

    def __init__(self, yaml: Any, name: str) -> None:
        self._yaml = yaml
        self._name = name
        self._count = 0
        self.lines: dict[type_of_path, int] = {}

    def value(self, node: Any, path: type_of_path) -> Any:
        self._count += 1
        if self._count > _MOST_VALUES or len(path) > 100:
            raise self._error(node, path, "the recipe is too large", "do without so many aliases")
        self.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, self._yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, self._yaml.SequenceNode):
            return [self.value(inner, (*path, place)) for place, inner in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: Any, path: type_of_path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, inner in node.value:
            if not isinstance(key, self._yaml.ScalarNode):
                raise self._error(key, path, "a key is no name", "write NAME: VALUE")
            name = key.value
            if name in found:
                self.lines.pop((*path, name), None)
                raise self._error(key, (*path, name), "stands here twice", "keep one of them")
            self.lines[*path, name] = key.start_mark.line + 1
            found[name] = self.value(inner, (*path, name))
        return found

    def _scalar(self, node: Any, path: type_of_path) -> Any:
        kind = node.tag.rpartition(":")[2]
        if kind == "null":
            return None
        if kind == "bool":
            return node.value.lower() == "true"
        if kind == "int":
            return int(node.value)
        if kind == "float":
            return float(node.value)
        if kind == "str":
            return node.value
        raise self._error(node, path, f"has the tag {node.tag}", "a recipe holds no tags")

    def _error(self, node: Any, path: type_of_path, text: str, remedy: str) -> RecipeError:
        field = f"{name_of(path)}: " if path else ""
        line = node.start_mark.line + 1
        return RecipeError([f"{self._name} line {line}: {field}{text}"], remedy=remedy)
