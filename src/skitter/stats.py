"""Stats: counters of user code (``self.stats`` of a spider)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from skitter.errors import SpiderError

USER = "user/"
"""Prefix of the committed counters of user code."""
MAX_NAME = 100
"""Maximum characters of the name of a counter."""


class _Page(Protocol):
    def count_bounded(self, name: str, amount: int = 1) -> None: ...


_current: ContextVar[_Page | None] = ContextVar("page", default=None)


class Stats:
    """Counters of a job that callbacks and hooks of a page may increase. They are committed with the page.

    A page that fails or is retried counts only what its last attempt counted, and a page that is fetched again after a
    kill counts once. So the counters are exact over all workers and restarts. A job has at most 100 of them; further names
    are added up as ``(others)``.
    """

    def __init__(self) -> None:
        self._open: set[_Page] = set()
        """The pages in progress."""

    def inc_value(self, key: str, count: int = 1) -> None:
        """Add ``count`` to the counter ``key``, as Scrapy's ``stats.inc_value``.

        Raises :class:`~skitter.errors.SpiderError` outside of the callbacks and hooks of a page, for a negative count, and
        for a name that is empty, too long, or has characters other than printable ones.
        """
        if not isinstance(key, str) or not 0 < len(key) <= MAX_NAME or not key.isprintable():
            raise SpiderError(
                f"invalid name of a counter: {key!r:.120}",
                remedy=f"use 1 to {MAX_NAME} printable characters",
                field="key",
            )
        if type(count) is not int or count < 0:
            raise SpiderError(
                f"counter {key!r} cannot be increased by {count!r:.40}",
                remedy="give a whole number, 0 or more",
                field="count",
            )
        page = _current.get()
        if page is None or page not in self._open:
            raise SpiderError(
                f"counter {key!r} was increased outside of a page",
                remedy="call stats.inc_value in a callback or hook of a page, before it ends",
                field="stats",
            )
        page.count_bounded(USER + key, count)

    def begin(self, page: _Page) -> None:
        """Count for a page in the current task from now on, and in the tasks and threads that it starts. For the worker."""
        self._open.add(page)
        _current.set(page)

    def end(self, page: _Page) -> None:
        """Stop counting for a page. For the worker."""
        self._open.discard(page)

    @contextmanager
    def discarded(self) -> Iterator[None]:
        """Check counts and forget them: for a callback that is tried outside of a crawl."""
        page = _NoPage()
        self.begin(page)
        try:
            yield
        finally:
            self.end(page)


class _NoPage:
    def count_bounded(self, name: str, amount: int = 1) -> None: ...
