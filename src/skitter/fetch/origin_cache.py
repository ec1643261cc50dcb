"""OriginCache: keeps what the file of an origin says, such as its robots.txt."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

_MAX_ORIGINS = 10_000
_MAX_BYTES = 5_000_000
"""Maximum total size of the files in bytes. The rules of a file take up to 15 times its size in memory."""
_Value = TypeVar("_Value")


class OriginCache(Generic[_Value]):
    """The values of the most recently used origins, limited by their number and by the total size of their files.

    Hostile origins may all deliver files of the maximum size.
    """

    def __init__(self, max_origins: int = _MAX_ORIGINS) -> None:
        self._max_origins = max_origins
        self._values: OrderedDict[str, tuple[_Value, int]] = OrderedDict()
        self._bytes = 0

    def get(self, origin: str) -> _Value | None:
        """Return the value of an origin, if it is known."""
        found = self._values.get(origin)
        if found is None:
            return None
        self._values.move_to_end(origin)
        return found[0]

    def put(self, origin: str, value: _Value, size: int) -> None:
        """Keep the value of an origin, whose file has ``size`` bytes. Drop the least recently used values beyond the limits."""
        _, before = self._values.pop(origin, (None, 0))
        self._values[origin] = value, size
        self._bytes += size - before
        while len(self._values) > self._max_origins or (self._bytes > _MAX_BYTES and len(self._values) > 1):
            _, (_, removed) = self._values.popitem(last=False)
            self._bytes -= removed
