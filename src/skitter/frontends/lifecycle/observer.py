"""Observer: a hook that sorts every failed attempt by component, and tells the feed."""

from __future__ import annotations

from skitter.errors import RetryRequest, StoreError, UndecodableRecord
from skitter.fetch.contract import FetchError
from skitter.frontends.lifecycle.component import Component, ModuleError
from skitter.frontends.lifecycle.feed import ErrorFeed
from skitter.request import Request
from skitter.worker.callbacks import describe
from skitter.worker.retry import RedirectError, StatusError


class Observer:
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


def origin(error: BaseException) -> tuple[Component, str]:
    """Return the component in which an error of a page arose, and the id of the module if one is to blame."""
    if isinstance(error, ModuleError):
        return error.component, error.module
    if isinstance(error, FetchError):
        return Component.DOWNLOADER, error.module
    if isinstance(error, (StatusError, RedirectError)):
        return Component.DOWNLOADER, ""
    if isinstance(error, StoreError):
        return Component.PIPELINE, ""
    if isinstance(error, UndecodableRecord):
        return Component.SCHEDULER, ""
    return Component.ANALYZER, ""
