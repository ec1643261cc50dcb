"""Problems: what is wrong with a recipe, each with the line and the field where it stands."""

from __future__ import annotations

import msgspec

from skitter.errors import SpiderError

type_of_path = tuple[str | int, ...]
"""Leads to a place in a recipe: names of keys and positions in lists."""


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong."""

    path: type_of_path
    text: str
    remedy: str

    @property
    def field(self) -> str:
        """The place as people write it, such as ``pages.book.items.fields.price``."""
        return name_of(self.path)


class RecipeError(SpiderError):
    """A recipe that cannot be used. ``lines`` has each of its problems, the message the first."""

    def __init__(self, lines: list[str], *, remedy: str = "") -> None:
        more = f" (and {len(lines) - 1} more: `skitter recipe check` lists them)" if len(lines) > 1 else ""
        super().__init__(lines[0] + more, remedy=remedy)
        self.lines = lines


class Problems:
    """Gathers all problems of one recipe, so that they can be told together."""

    def __init__(self) -> None:
        self.found: list[Problem] = []

    def add(self, path: type_of_path, text: str, remedy: str) -> None:
        """Note a problem."""
        self.found.append(Problem(path, text, remedy))

    def __bool__(self) -> bool:
        return bool(self.found)


def name_of(path: type_of_path) -> str:
    """Return a path as people write it; empty for the recipe as a whole."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text
