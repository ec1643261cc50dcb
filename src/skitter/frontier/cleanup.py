"""CleanupSchedule: when it is worth while to look for what has run out."""

from __future__ import annotations

_FIRST = 1_000


class CleanupSchedule:
    """A sweep is due after as many additions as the last one left, and after a thousand at least.

    So what is kept is at most twice what is still good (and a thousand), and an addition costs two looks at most.
    """

    def __init__(self) -> None:
        self._left = _FIRST

    def is_due(self) -> bool:
        """Count one addition; tell whether it is time to sweep."""
        self._left -= 1
        return self._left <= 0

    def done(self, kept: int) -> None:
        """Take note of a sweep, and of how many it has left."""
        self._left = max(_FIRST, kept)
