"""ErrorFeed: the errors of a crawl, for any number of readers, none of whom can hold it up."""

from __future__ import annotations

import asyncio
import time
from collections import deque

import msgspec

from skitter.errors import RetryRequest, StoreError, UndecodableRecord, UsageError
from skitter.fetch.contract import FetchError
from skitter.frontends.lifecycle.modules import ModuleError, ModuleKind
from skitter.request import Request
from skitter.worker.callbacks import describe
from skitter.worker.retry import RedirectError, StatusError

_MAX_LENGTH = 2000
"""Characters of a text that are kept: what is bounded in number has to be bounded in size too."""


class CrawlError(msgspec.Struct, frozen=True):
    """One failure, told at once; most are tried again. Texts only: an exception would keep its page in memory."""

    component: ModuleKind
    message: str
    """One line, cut to 2000 characters."""
    kind: str
    """Class of the error, such as ``TimedOut``."""
    module: str = ""
    """Id of the module, where one is to blame."""
    url: str = ""
    at: float = 0.0
    """Unix time."""


class ErrorFeed:
    """Keeps the last ``capacity`` errors; what nobody has read when it is pushed out is counted as dropped.

    Raises, when made, :class:`~skitter.errors.UsageError` for a capacity below 1.
    """

    def __init__(self, capacity: int = 1000) -> None:
        if capacity < 1:
            raise UsageError(f"room for {capacity} errors is none", remedy="give error_capacity of 1 or more")
        self._kept: deque[CrawlError] = deque(maxlen=capacity)
        self.total = 0
        """Errors ever told."""
        self.dropped = 0
        """Of them pushed out before any reader came to them."""
        self.by_component = dict.fromkeys(ModuleKind, 0)
        self._read = 0
        """Errors that the reader farthest ahead has got."""
        self._open = True
        self._waiting: set[asyncio.Future[None]] = set()

    def tell(
        self, component: ModuleKind, error: BaseException, message: str, module: str = "", url: str = ""
    ) -> None:
        """Take an error; costs the same whether anybody reads or not. On the event loop of the crawl."""
        if len(self._kept) == self._kept.maxlen and self.total - len(self._kept) >= self._read:
            self.dropped += 1
        kind, text = type(error).__name__, message[:_MAX_LENGTH]
        self._kept.append(CrawlError(component, text, kind, module, url[:_MAX_LENGTH], time.time()))
        self.total += 1
        self.by_component[component] += 1
        self._wake()

    def open(self) -> None:
        """Let readers wait for more: a run begins."""
        self._open = True

    def close(self) -> None:
        """Let readers end when they have got what is there: the run is over."""
        self._open = False
        self._wake()

    def read(self) -> ErrorReader:
        """Return a reader that begins with the oldest error kept."""
        return ErrorReader(self)

    async def next_after(self, position: int) -> tuple[int, CrawlError] | None:
        """Return the first error kept from a position on, with its own position; ``None`` at the end."""
        while position >= self.total:
            if not self._open:
                return None
            more = asyncio.get_running_loop().create_future()
            self._waiting.add(more)
            try:
                await more
            finally:
                self._waiting.discard(more)
        first = self.total - len(self._kept)
        position = max(position, first)
        self._read = max(self._read, position + 1)
        return position, self._kept[position - first]

    def _wake(self) -> None:
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)


class ErrorReader:
    """Gives every error from the oldest kept on, to the end of the run. Each reader gets all of them."""

    def __init__(self, feed: ErrorFeed) -> None:
        self._feed = feed
        self._position = 0
        self.missed = 0
        """Errors that were pushed out before this reader came to them."""

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
    """Decides nothing. It stands before the spider's own hooks, so that none of them can hide an error from it."""

    def __init__(self, feed: ErrorFeed) -> None:
        self._feed = feed

    def on_error(self, request: Request, error: BaseException) -> None:
        """Tell of a failed attempt; that a callback wants its page again is none."""
        if not isinstance(error, RetryRequest):
            component, module = origin(error)
            told_by_itself = isinstance(error, (FetchError, StatusError, ModuleError))
            message = str(error) if told_by_itself else describe(error)
            root = error.root if isinstance(error, ModuleError) else error
            self._feed.tell(component, root, message, module, request.url)


def origin(error: BaseException) -> tuple[ModuleKind, str]:
    """Return the component in which an error of a page arose, and the id of the module if one is to blame."""
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
