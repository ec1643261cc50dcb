"""Visits: what the callbacks of one page, or a script before its crawl, want fetched."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from skitter.errors import UsageError
from skitter.links import Links
from skitter.request import Request

if TYPE_CHECKING:
    from skitter.frontends.collector.collector import Collector


class Visits:
    """Gathers requests and items in the order they come.

    Plain visits that follow each other, with the same collector and the same context, become one batch: the
    engine joins, scopes and tests its links together.

    ``base``
        Gives what relative URLs are resolved against. ``None``: there is no page, and URLs are absolute.
    """

    def __init__(self, base: Callable[[], str] | None = None) -> None:
        self._base = base
        self._given: list[Any] = []
        self._batch: Links | None = None
        self._hrefs: list[str] = []
        self._of: Collector | None = None
        self._context: dict[str, Any] = {}
        self._closed = False

    def follow(self, collector: Collector, hrefs: Iterable[str], context: dict[str, Any]) -> None:
        """Add plain visits of one collector; the context is copied."""
        self._check()
        if self._base is None:
            for url in hrefs:
                self._given.append(Request(url, **collector.fields(copy.deepcopy(context))))
            return
        if self._batch is None or self._of is not collector or self._context != context:
            kept = copy.deepcopy(context)
            self._of, self._context, self._hrefs = collector, kept, []
            self._batch = Links(self._base(), self._hrefs, collector.fields(kept))
            self._given.append(self._batch)
        self._hrefs.extend(hrefs)

    def add(self, given: Iterable[Any]) -> None:
        """Add requests, items and batches of links."""
        self._check()
        self._given.extend(given)
        self._batch = None

    def take(self) -> list[Any]:
        """Return what was gathered since this was last asked."""
        given, self._given, self._batch = self._given, [], None
        return given

    def peek(self) -> list[Any]:
        """Return what was gathered since that was last taken, and leave it there."""
        return list(self._given)

    def close(self) -> list[Any]:
        """Take nothing more; return what was gathered."""
        self._closed = True
        return self.take()

    def _check(self) -> None:
        if self._closed:
            raise UsageError(
                "the callbacks of this page have ended",
                remedy="visit within the callback, and await whatever it starts",
            )
