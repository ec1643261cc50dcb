"""CompileContext: the position in the recipe that is being compiled, and the list that collects its problems."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from skitter._utils.patterns import LimitedPattern, compile_pattern
from skitter.errors import SkitterError, did_you_mean
from skitter.frontends.recipe.model import Selection
from skitter.frontends.recipe.source import FieldPath, RecipeProblems


@dataclass(frozen=True, kw_only=True)
class CompileContext:
    """Compiles the small parts that need checking."""

    recipe: str
    """Name of the recipe."""
    problems: RecipeProblems
    pages: Collection[str]
    path: FieldPath = ()
    reads_json: bool = False
    """Whether a bare string is JMESPath, not CSS."""

    def at(self, *parts: str | int, reads_json: bool | None = None) -> CompileContext:
        """Return the context for a nested position."""
        json = self.reads_json if reads_json is None else reads_json
        return replace(self, path=(*self.path, *parts), reads_json=json)

    def each(self, name: str, value: Any) -> list[tuple[Any, CompileContext]]:
        """Return the elements of a list, or a single value, each with the context of its position."""
        if not isinstance(value, list):
            return [(value, self.at(name))]
        return [(element, self.at(name, place)) for place, element in enumerate(value)]

    def problem(self, text: str, remedy: str, *parts: str | int) -> None:
        """Add a problem at this position, or at a nested position."""
        self.problems.add((*self.path, *parts), text, remedy)

    def add_error(self, error: SkitterError, *parts: str | int) -> None:
        """Add an error of another module as a problem."""
        self.problem(str(error), error.remedy, *parts)

    def pattern(self, text: str, *parts: str | int) -> re.Pattern[str] | LimitedPattern:
        """Compile a regular expression. An invalid expression is a problem, and is replaced by one that never matches."""
        try:
            return compile_pattern(text)
        except re.error as error:
            self.problem(f"invalid regular expression {text!r}: {error}", "correct it", *parts)
            return re.compile("(?!)")

    def patterns(self, texts: str | list[str], name: str) -> list[re.Pattern[str] | LimitedPattern]:
        """Compile one or several regular expressions."""
        return [context.pattern(text) for text, context in self.each(name, texts)]

    def page(self, name: str) -> str:
        """Check that a kind of page exists, and return its name."""
        if name not in self.pages:
            self.problem(f"unknown page {name!r}", did_you_mean(name, self.pages), "page")
        return name

    def selection(self, source: str | Selection) -> Selection:
        """Return a selection, converted from a bare string if necessary."""
        if isinstance(source, Selection):
            return source
        return Selection(json=source) if self.reads_json else Selection(css=source)
