"""Compiles regular expressions of users so that no text can make them search for long.

For some patterns and texts, the backtracking of ``re`` takes exponential time, and a website chooses the text. A pattern
without repeated groups and with at most one long repetition is harmless. It uses ``re``, which is faster. All other
patterns use ``regex``, which has a time limit and understands the same syntax.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from skitter.errors import SkitterError

_REPETITIONS = r"(?s)\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|(\)(?:[*+]|\{\d*,?\d*\}))|([*+]|\{\d*,(?:\d{2,})?\})"
"""Finds escapes and character classes, which are skipped, repeated groups (group 1), and long repetitions (group 2): without
an upper bound, or of 10 and more. Three such as ``a{0,999}`` would take hours for a text of 4,000 characters."""
_SECONDS = 0.1
"""Maximum CPU time of one search, in seconds. Ordinary searches take microseconds."""


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
    """Compile a pattern for hostile texts. A compiled pattern is returned unchanged. Raises ``re.error``."""
    if not isinstance(text, str):
        return text
    compiled = re.compile(text)
    found = [match.lastindex for match in re.finditer(_REPETITIONS, text)]
    if 1 not in found and found.count(2) <= 1:
        return compiled
    import regex  # noqa: PLC0415 - takes 20 ms, and most patterns need none

    try:
        return LimitedPattern(regex.compile(text, regex.VERSION0))
    except regex.error as error:  # a construct that regex reads differently
        raise re.error(str(error), text) from None
