"""CompileContext: what the parts of a recipe share while they are made: where they stand, and a place for problems."""

from __future__ import annotations

import re
from collections.abc import Collection

from skitter.errors import SkitterError, did_you_mean
from skitter.frontends.recipe.model import Selection
from skitter.frontends.recipe.source import FieldPath, RecipeProblems


class CompileContext:
    """Makes the small parts that need checking. ``reads_json``: a bare text is JMESPath, not CSS."""

    def __init__(
        self,
        problems: RecipeProblems,
        pages: Collection[str],
        path: FieldPath = (),
        *,
        reads_json: bool = False,
    ) -> None:
        self.problems = problems
        self.pages = pages
        self.path = path
        self.reads_json = reads_json

    def at(self, *parts: str | int, reads_json: bool | None = None) -> CompileContext:
        """Return the compile_context for a place further down."""
        json = self.reads_json if reads_json is None else reads_json
        return CompileContext(self.problems, self.pages, (*self.path, *parts), reads_json=json)

    def problem(self, text: str, remedy: str, *parts: str | int) -> None:
        """Note a problem at this place, or further down."""
        self.problems.add((*self.path, *parts), text, remedy)

    def refused(self, error: SkitterError, *parts: str | int) -> None:
        """Note a problem that something else has found."""
        self.problem(str(error), error.remedy, *parts)

    def pattern(self, text: str, *parts: str | int) -> re.Pattern[str]:
        """Compile a regular expression; one that is none finds nothing, and is noted."""
        try:
            return re.compile(text)
        except re.error as error:
            self.problem(f"{text!r} is no regular expression: {error}", "correct it", *parts)
            return re.compile("(?!)")

    def patterns(self, texts: str | list[str], name: str) -> list[re.Pattern[str]]:
        """Compile one or several regular expressions."""
        if isinstance(texts, str):
            return [self.pattern(texts, name)]
        return [self.pattern(text, name, place) for place, text in enumerate(texts)]

    def page(self, name: str) -> str:
        """Check the name of a kind of page."""
        if name not in self.pages:
            self.problem(f"there is no page {name!r}", did_you_mean(name, self.pages), "page")
        return name

    def selection(self, given: str | Selection) -> Selection:
        """Return a selection that may have been written as a bare text."""
        if isinstance(given, Selection):
            return given
        return Selection(json=given) if self.reads_json else Selection(css=given)
