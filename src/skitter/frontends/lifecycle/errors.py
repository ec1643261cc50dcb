"""The errors of a managed crawl: a feed for any number of readers, and the hook that classifies errors."""

from __future__ import annotations

import asyncio
import time
from collections import deque

import msgspec

from skitter.errors import (
    FetchError,
    RedirectError,
    RetryRequest,
    StatusError,
    StoreError,
    UndecodableRecord,
    UsageError,
)
from skitter.frontends.lifecycle.modules import ModuleError, ModuleKind
from skitter.request import Request
from skitter.worker.callbacks import describe

_MAX_LENGTH = 2000
"""Maximum length of a stored text in characters: the feed is limited in number and in size."""


class CrawlError(msgspec.Struct, frozen=True):
    """One failed attempt. Most attempts are retried. Contains only text, because an exception would keep its page in memory."""

    component: ModuleKind
    message: str
    """One line, limited to 2000 characters."""
    kind: str
    """Class name of the error, such as ``TimedOut``."""
    module: str = ""
    """Id of the module that failed, if known."""
    url: str = ""
    at: float = 0.0
    """Unix time."""


class ErrorFeed:
    """Keeps the last ``capacity`` errors. Errors that are removed before any reader read them are counted as dropped.

    Raises :class:`~skitter.errors.UsageError` if ``capacity`` is not a whole number of at least 1.
    """

    def __init__(self, capacity: int = 1000) -> None:
        if not isinstance(capacity, int) or capacity < 1:
            raise UsageError(
                f"error_capacity must be a whole number of at least 1 (got {capacity!r})",
                remedy="give a number such as 1000",
                field="error_capacity",
            )
        self._kept: deque[CrawlError] = deque(maxlen=capacity)
        self.total = 0
        """Number of errors so far."""
        self.dropped = 0
        """Number of errors that were removed before any reader read them."""
        self.by_component = dict.fromkeys(ModuleKind, 0)
        self._read = 0
        """Position of the most advanced reader."""
        self._open = True
        self._more = asyncio.Event()
        """Set, and replaced, when there is another error or the end of the run."""

    def add(
        self, component: ModuleKind, error: BaseException, message: str, module: str = "", url: str = ""
    ) -> None:
        """Add an error. Call it on the event loop of the crawl."""
        if len(self._kept) == self._kept.maxlen and self.total - len(self._kept) >= self._read:
            self.dropped += 1
        kind, text = type(error).__name__, message[:_MAX_LENGTH]
        self._kept.append(CrawlError(component, text, kind, module, url[:_MAX_LENGTH], time.time()))
        self.total += 1
        self.by_component[component] += 1
        self._wake()

    def open(self) -> None:
        """Let readers wait for more errors, because a run starts."""
        self._open = True

    def close(self) -> None:
        """Let readers end after the stored errors, because the run is over."""
        self._open = False
        self._wake()

    def read(self) -> ErrorReader:
        """Return a reader that starts with the oldest stored error."""
        return ErrorReader(self)

    async def next_after(self, position: int) -> tuple[int, CrawlError] | None:
        """Return the first stored error at or after a position, with its position. ``None`` at the end."""
        while position >= self.total:
            if not self._open:
                return None
            await self._more.wait()
        first = self.total - len(self._kept)
        position = max(position, first)
        self._read = max(self._read, position + 1)
        return position, self._kept[position - first]

    def _wake(self) -> None:
        self._more.set()
        self._more = asyncio.Event()


class ErrorReader:
    """Iterates over all errors, from the oldest stored error to the end of the run. Readers are independent."""

    def __init__(self, feed: ErrorFeed) -> None:
        self._feed = feed
        self._position = 0
        self.missed = 0
        """Number of errors that were removed before this reader reached them."""

    def __aiter__(self) -> ErrorReader:
        return self

    async def __anext__(self) -> CrawlError:
        found = await self._feed.next_after(self._position)
        if found is None:
            raise StopAsyncIteration
        position, error = found
        self.missed += position - self._position
        self._position = position + 1
        return error


class ErrorObserver:
    """Hook that adds each failed attempt to the feed. It runs before the spider's hooks, so they cannot hide errors."""

    def __init__(self, feed: ErrorFeed) -> None:
        self._feed = feed

    def on_error(self, request: Request, error: BaseException) -> None:
        """Add a failed attempt. A retry that a callback requested is not a failure."""
        if not isinstance(error, RetryRequest):
            component, module = origin(error)
            is_complete = isinstance(error, (FetchError, StatusError, ModuleError))
            message = str(error) if is_complete else describe(error)
            root = error.root if isinstance(error, ModuleError) else error
            self._feed.add(component, root, message, module, request.url)


def origin(error: BaseException) -> tuple[ModuleKind, str]:
    """Return the component that an error of a page comes from, and the id of the module if it is known."""
    if isinstance(error, ModuleError):
        return error.component, error.module
    if isinstance(error, FetchError):
        return ModuleKind.DOWNLOADER, error.module
    if isinstance(error, (StatusError, RedirectError)):
        return ModuleKind.DOWNLOADER, ""
    if isinstance(error, StoreError):
        return ModuleKind.PIPELINE, ""
    if isinstance(error, UndecodableRecord):
        return ModuleKind.SCHEDULER, ""
    return ModuleKind.ANALYZER, ""
