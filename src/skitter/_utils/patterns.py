"""Compiles regular expressions of users so that no text makes them search for long.

The backtracking of ``re`` takes exponential time for some pairs of pattern and text, and a website chooses the text.
A pattern without repeated groups and with one unbounded repetition at most is harmless and stays with ``re``, which is the
fastest. All others are run by ``regex``, which has a time limit and understands the same patterns.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from skitter.errors import SkitterError

_REPETITIONS = r"(?s)\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|(\)(?:[*+]|\{\d*,?\d*\}))|([*+]|\{\d*,\})"
"""Finds escapes and character classes, which are skipped, repeated groups (1), and other unbounded repetitions (2)."""
_SECONDS = 0.1
"""Limit of CPU time of one search. Ordinary ones take microseconds."""


class SlowPattern(SkitterError):
    """A regular expression that exceeds its time limit on a text."""


class LimitedPattern:
    """A compiled pattern whose methods raise :class:`SlowPattern` after 0.1 s of CPU time."""

    def __init__(self, pattern: Any) -> None:
        self._pattern = pattern
        self.pattern: str = pattern.pattern
        self.groups: int = pattern.groups
        """Number of groups."""

    def search(self, text: str) -> re.Match[str] | None:
        """Return the first match in a text, or ``None``."""
        found: re.Match[str] | None = self._run(self._pattern.search, text)
        return found

    def sub(self, replacement: str, text: str) -> str:
        """Replace all matches in a text."""
        return str(self._run(self._pattern.sub, replacement, text))

    def _run(self, method: Callable[..., Any], *arguments: str) -> Any:
        try:
            return method(*arguments, timeout=_SECONDS)
        except TimeoutError:
            raise SlowPattern(
                f"the regular expression {self.pattern!r:.200} takes more than {_SECONDS} s for a text",
                remedy="avoid nested repetitions, such as (a+)+",
            ) from None


def compile_pattern(text: str | re.Pattern[str] | LimitedPattern) -> re.Pattern[str] | LimitedPattern:
    """Compile a pattern that may be applied to hostile texts; return a compiled one unchanged. Raises ``re.error``."""
    if not isinstance(text, str):
        return text
    compiled = re.compile(text)
    found = [match.lastindex for match in re.finditer(_REPETITIONS, text)]
    if 1 not in found and found.count(2) <= 1:
        return compiled
    import regex  # noqa: PLC0415 - takes 20 ms, and most patterns need none

    try:
        return LimitedPattern(regex.compile(text, regex.VERSION0))
    except regex.error as error:  # a construct that it reads differently
        raise re.error(str(error), text) from None
