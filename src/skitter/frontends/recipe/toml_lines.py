"""On which line each key of a TOML text stands: the standard library's parser does not tell.

Reads texts only that the parser has accepted. What stands inside an inline table or a list counts as standing on the
line of its key.
"""

from __future__ import annotations

import re

from skitter.frontends.recipe.problems import type_of_path

_HEADER = re.compile(r"^\s*(\[\[?)\s*(.+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"""^\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=\s*(.*)$""")
_PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")
_TOKEN = re.compile(r"""\"\"\"|'''|"(?:\\.|[^"\\])*"|'[^']*'|#.*|[\[\]{}]|\\.""")


def toml_lines(text: str) -> dict[type_of_path, int]:
    """Return the line (from 1) of each table and key."""
    return _Scanner(text).lines


class _Scanner:
    def __init__(self, text: str) -> None:
        self.lines: dict[type_of_path, int] = {}
        self._table: type_of_path = ()
        self._counts: dict[type_of_path, int] = {}
        self._quote = ""  # of the multi-line string that a line begins in
        self._depth = 0  # of the brackets that a line begins in
        for number, line in enumerate(text.splitlines(), 1):
            self._read(line, number)

    def _read(self, line: str, number: int) -> None:
        if self._quote or self._depth:
            self._pass_over(line)
        elif (header := _HEADER.match(line)) is not None:
            self._enter(header[2], number, repeated=header[1] == "[[")
        elif (key := _KEY.match(line)) is not None:
            self._note((*self._table, *_parts(key[1])), number)
            self._pass_over(key[2])

    def _enter(self, name: str, number: int, *, repeated: bool) -> None:
        path: type_of_path = ()
        parts = _parts(name)
        for place, part in enumerate(parts):
            path = (*path, part)
            last = place == len(parts) - 1
            if repeated and last:
                self.lines.setdefault(path, number)
                self._counts[path] = self._counts.get(path, -1) + 1
            if path in self._counts:  # a list of tables: its last one is meant
                path = (*path, self._counts[path])
        self._note(path, number)
        self._table = path

    def _note(self, path: type_of_path, number: int) -> None:
        for end in range(1, len(path) + 1):
            self.lines.setdefault(path[:end], number)

    def _pass_over(self, text: str) -> None:
        """Follow strings and brackets to the end of a line."""
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
