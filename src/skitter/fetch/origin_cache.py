"""OriginCache: what is known about each origin from a file of the site, such as robots.txt."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

_MAX_ORIGINS = 10_000
_MAX_BYTES = 5_000_000
"""Size of all files. The rules of a file take up to 15 times its size in memory."""
_Value = TypeVar("_Value")


class OriginCache(Generic[_Value]):
    """The values of the origins that were used last, within limits of their number and of the size of their files.

    A hostile origin can deliver a file of the largest size that is read, and there may be many such origins.
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
        """Keep the value of an origin, whose file has ``size`` bytes, and forget those that were used least recently."""
        _, before = self._values.pop(origin, (None, 0))
        self._values[origin] = value, size
        self._bytes += size - before
        while len(self._values) > self._max_origins or (self._bytes > _MAX_BYTES and len(self._values) > 1):
            _, (_, removed) = self._values.popitem(last=False)
            self._bytes -= removed
