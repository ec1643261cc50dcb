"""Callbacks: what a collector calls at which point, in the order of registration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from skitter.errors import UsageError

Callback = Callable[..., Any]


class Selected(NamedTuple):
    """A callback for the elements that a query finds."""

    query: str
    callback: Callback


class Callbacks:
    """The callbacks of one collector, by point. Those of a point may change while it is being gone through."""

    def __init__(self) -> None:
        self.request: tuple[Callback, ...] = ()
        self.request_headers: tuple[Callback, ...] = ()
        self.response_headers: tuple[Callback, ...] = ()
        self.response: tuple[Callback, ...] = ()
        self.html: tuple[Selected, ...] = ()
        self.xml: tuple[Selected, ...] = ()
        self.error: tuple[Callback, ...] = ()
        self.scraped: tuple[Callback, ...] = ()

    def add(self, point: str, callback: Callback) -> None:
        """Register a callback at a point without a query. Raises :class:`~skitter.errors.UsageError`."""
        setattr(self, point, (*getattr(self, point), _callable(callback, point)))

    def select(self, point: str, query: str, callback: Callback) -> None:
        """Register a callback for elements. Raises :class:`~skitter.errors.UsageError`."""
        setattr(self, point, (*getattr(self, point), Selected(query, _callable(callback, point))))

    def drop_query(self, point: str, query: str) -> bool:
        """Forget the callbacks of a query; returns whether there were any."""
        before: tuple[Selected, ...] = getattr(self, point)
        after = tuple(selected for selected in before if selected.query != query)
        setattr(self, point, after)
        return len(after) < len(before)

    def drop(self, callback: Callback) -> bool:
        """Forget a callback at all points; returns whether it stood anywhere."""
        found = False
        for point, before in list(vars(self).items()):
            after = tuple(
                one for one in before if (one.callback if isinstance(one, Selected) else one) is not callback
            )
            found |= len(after) < len(before)
            setattr(self, point, after)
        return found


def _callable(callback: Any, point: str) -> Callback:
    if not callable(callback):
        raise UsageError(
            f"on_{point} got {callback!r}, which cannot be called", remedy="pass a function, or decorate one"
        )
    wanted: Callback = callback
    return wanted
