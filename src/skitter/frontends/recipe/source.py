"""The text of a recipe as plain values with their line numbers, and errors that name these lines."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from skitter._utils.visible import one_line
from skitter.errors import SpiderError
from skitter.plugins import need

FieldPath = tuple[str | int, ...]
"""Path to a value of a recipe: names of keys and positions in lists."""


class RecipeProblem(msgspec.Struct, frozen=True):
    """One error in a recipe."""

    path: FieldPath
    text: str
    remedy: str

    @property
    def field(self) -> str:
        """The path as text, such as ``pages.book.items.fields.price``."""
        return name_of(self.path)


class RecipeError(SpiderError):
    """An invalid recipe. ``lines`` lists all problems; the message is the first one, and ``field`` its field."""

    def __init__(self, lines: list[str], *, remedy: str = "", field: str = "") -> None:
        more = f" (and {len(lines) - 1} more: `skitter recipe check` lists them)" if len(lines) > 1 else ""
        super().__init__(lines[0] + more, remedy=remedy, field=field)
        self.lines = lines


class RecipeProblems:
    """Collects all problems of a recipe, so that one error reports them together."""

    def __init__(self) -> None:
        self.found: list[RecipeProblem] = []

    def add(self, path: FieldPath, text: str, remedy: str) -> None:
        """Add a problem."""
        self.found.append(RecipeProblem(path, text, remedy))

    def __bool__(self) -> bool:
        return bool(self.found)


def name_of(path: FieldPath) -> str:
    """Return a path as text. Empty for the recipe as a whole."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


_HEADER = re.compile(r"^\s*(\[\[?)\s*(.+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"""^\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=\s*(.*)$""")
_PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")
_TOKEN = re.compile(r"""\"\"\"|'''|"(?:\\.|[^"\\])*"|'[^']*'|#.*|[\[\]{}]|\\.""")


def toml_lines(text: str) -> dict[FieldPath, int]:
    """Return the line (from 1) of each table and key of a valid TOML text.

    ``tomllib`` does not report lines. Values in an inline table or a list have the line of their key.
    """
    return _Scanner(text).lines


class _Scanner:
    def __init__(self, text: str) -> None:
        self.lines: dict[FieldPath, int] = {}
        self._table: FieldPath = ()
        self._counts: dict[FieldPath, int] = {}
        self._quote = ""  # delimiter of the multi-line string in which the line starts
        self._depth = 0  # number of brackets open at the start of the line
        for number, line in enumerate(text.splitlines(), 1):
            self._read(line, number)

    def _read(self, line: str, number: int) -> None:
        if self._quote or self._depth:
            self._pass_over(line)
        elif (header := _HEADER.match(line)) is not None:
            self._enter(header[2], number, repeated=header[1] == "[[")
        elif (key := _KEY.match(line)) is not None:
            self._record((*self._table, *_parts(key[1])), number)
            self._pass_over(key[2])

    def _enter(self, name: str, number: int, *, repeated: bool) -> None:
        path: FieldPath = ()
        parts = _parts(name)
        for place, part in enumerate(parts):
            path = (*path, part)
            last = place == len(parts) - 1
            if repeated and last:
                self.lines.setdefault(path, number)
                self._counts[path] = self._counts.get(path, -1) + 1
            if path in self._counts:  # a list of tables: the header refers to the last one
                path = (*path, self._counts[path])
        self._record(path, number)
        self._table = path

    def _record(self, path: FieldPath, number: int) -> None:
        for end in range(1, len(path) + 1):
            self.lines.setdefault(path[:end], number)

    def _pass_over(self, text: str) -> None:
        """Track open strings and brackets up to the end of a line."""
        place = 0
        while place < len(text):
            if self._quote:
                end = text.find(self._quote, place)
                if end < 0:
                    return
                place, self._quote = end + 3, ""
                continue
            token = _TOKEN.search(text, place)
            if token is None:
                return
            place = token.end()
            if token[0] in {'"""', "'''"}:
                self._quote = token[0]
            elif token[0] in "[{":
                self._depth += 1
            elif token[0] in "]}":
                self._depth -= 1


def _parts(name: str) -> list[str]:
    return [part.strip("\"'") for part in _PART.findall(name)]


_MAX_VALUES = 100_000
"""Maximum number of values. A larger recipe is most likely an attack with YAML aliases."""
_MAX_DEPTH = 100
"""Maximum nesting of values. The parsers are recursive, and PyYAML in C crashes the process."""


class RecipeSource:
    """A parsed recipe. ``data`` contains plain values: ``None``, booleans, numbers, strings, lists and dicts."""

    def __init__(self, name: str, data: Any, lines: dict[FieldPath, int]) -> None:
        self.name = name
        self.data = data
        self._lines = lines

    @classmethod
    def of_file(cls, path: str | Path) -> RecipeSource:
        """Read a file. Raises :class:`RecipeError` if it cannot be read or parsed."""
        try:
            text = Path(path).read_text("utf-8-sig")
        except FileNotFoundError:
            raise RecipeError([f"file not found: {path}"], remedy="check the path of the recipe") from None
        except (OSError, UnicodeDecodeError) as error:
            raise RecipeError(
                [f"cannot read {path}: {error}"], remedy="save the recipe as UTF-8 text"
            ) from None
        full, folder = Path(path).resolve(), Path.cwd()
        return cls.of_text(text, str(full.relative_to(folder) if full.is_relative_to(folder) else path))

    @classmethod
    def of_text(cls, text: str, name: str) -> RecipeSource:
        """Parse a text: TOML if ``name`` ends with ``.toml``, otherwise YAML. Raises :class:`RecipeError` for invalid text."""
        try:
            return _of_toml(text, name) if name.endswith(".toml") else _of_yaml(text, name)
        except RecursionError:
            raise _too_deep(name) from None
        except ValueError as error:  # a number with thousands of digits
            raise RecipeError([f"{name} line 1: {one_line(error)}"], remedy="correct the number") from None

    def line_of(self, path: FieldPath) -> int:
        """Return the line (from 1) of a value, or of the nearest value that contains it."""
        for end in range(len(path), 0, -1):
            if path[:end] in self._lines:
                return self._lines[path[:end]]
        return 1

    def describe(self, problem: RecipeProblem) -> str:
        """Return a problem as one line with the file, the line number and the field."""
        field = f"{problem.field}: " if problem.path else ""
        return f"{self.name} line {self.line_of(problem.path)}: {field}{problem.text}"

    def error(self, problems: list[RecipeProblem]) -> RecipeError:
        """Return one error for these problems, ordered by line."""
        ordered = sorted(problems, key=lambda problem: self.line_of(problem.path))
        lines = [f"{self.describe(problem)}; {problem.remedy}" for problem in ordered]
        first = ordered[0]
        return RecipeError([self.describe(first), *lines[1:]], remedy=first.remedy, field=first.field)


def _too_deep(name: str, line: int = 1) -> RecipeError:
    return RecipeError(
        [f"{name} line {line}: the recipe is nested too deeply"], remedy=f"use at most {_MAX_DEPTH} levels"
    )


def _of_toml(text: str, name: str) -> RecipeSource:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, _, place = str(error).partition(" (at ")
        number = place.removeprefix("line ").partition(",")[0]
        line = number if number.isdigit() else len(text.splitlines()) or 1
        raise RecipeError([f"{name} line {line}: {message}"], remedy="correct the TOML") from None
    return RecipeSource(name, data, toml_lines(text))


def _of_yaml(text: str, name: str) -> RecipeSource:
    yaml = need("yaml", "recipes", "recipes in YAML")
    reader = _YamlReader(yaml, name)
    try:
        _check_depth(yaml, text, name)
        root = yaml.compose(text, Loader=_loader(yaml))
    except yaml.MarkedYAMLError as error:
        at_start = (error.context or "").startswith(("while parsing a flow", "while scanning a quoted"))
        mark = error.context_mark if at_start else error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        raise RecipeError([f"{name} line {line}: {error.problem}"], remedy="correct the YAML") from None
    except yaml.YAMLError as error:
        raise RecipeError([f"{name} line 1: {one_line(error)}"], remedy="correct the YAML") from None
    if root is None:
        return RecipeSource(name, None, {})
    return RecipeSource(name, reader.value(root, ()), reader.lines)


def _check_depth(yaml: Any, text: str, name: str) -> None:
    """Raise :class:`RecipeError` if values are nested too deeply. The parser of events, unlike the composer, is not recursive."""
    depth = 0
    for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _MAX_DEPTH:
                raise _too_deep(name, event.start_mark.line + 1)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _loader(yaml: Any) -> Any:
    """Return a loader that reads everything as strings, except ``true``, ``false``, ``null`` and numbers.

    YAML 1.1 would convert ``no``, ``on``, ``12:30`` and ``2024-01-02``, which recipes never need.
    """
    base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    plain = {
        "bool": (r"^(?:true|True|TRUE|false|False|FALSE)$", [*"tTfF"]),
        "int": (r"^[-+]?[0-9]+$", [*"-+0123456789"]),
        "float": (
            r"^[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?$",
            [*"-+0123456789."],
        ),
        "null": (r"^(?:~|null|Null|NULL|)$", [*"~nN", ""]),
    }
    loader: Any = type("RecipeLoader", (base,), {"yaml_implicit_resolvers": {}})
    for kind, (pattern, first_characters) in plain.items():
        loader.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(pattern), first_characters)
    return loader


class _YamlReader:
    """Converts YAML nodes to plain values and records their lines."""

    def __init__(self, yaml: Any, name: str) -> None:
        self._yaml = yaml
        self._name = name
        self._count = 0
        self.lines: dict[FieldPath, int] = {}

    def value(self, node: Any, path: FieldPath) -> Any:
        self._count += 1
        if self._count > _MAX_VALUES or len(path) > _MAX_DEPTH:
            raise self._error(node, path, "the recipe is too large", "use fewer aliases")
        self.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, self._yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, self._yaml.SequenceNode):
            return [self.value(inner, (*path, place)) for place, inner in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: Any, path: FieldPath) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, inner in node.value:
            if not isinstance(key, self._yaml.ScalarNode):
                raise self._error(key, path, "invalid key", "write NAME: VALUE")
            name = key.value
            if name in found:
                self.lines.pop((*path, name), None)
                raise self._error(key, (*path, name), "duplicate key", "keep one of them")
            self.lines[*path, name] = key.start_mark.line + 1
            found[name] = self.value(inner, (*path, name))
        return found

    def _scalar(self, node: Any, path: FieldPath) -> Any:
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
        raise self._error(node, path, f"unsupported tag {node.tag}", "remove the tag")

    def _error(self, node: Any, path: FieldPath, text: str, remedy: str) -> RecipeError:
        field = name_of(path)
        place = f"{self._name} line {node.start_mark.line + 1}: "
        return RecipeError([f"{place}{field}: {text}" if field else place + text], remedy=remedy, field=field)
