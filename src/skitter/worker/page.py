"""Page: a leased request with the results that a worker has collected for it so far."""

from __future__ import annotations

import math
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import xxhash

from skitter.frontier.records import Resolution
from skitter.stats import USER
from skitter.worker.retry import DONE, RetryDecision

if TYPE_CHECKING:  # a process without workers needs only the records; traces need an extra
    from skitter.frontier.records import Entry, Lease, LinkBatch, PageVisit
    from skitter.request import Request
    from skitter.response import OpenPage, Response
    from skitter.store.contract import Capture
    from skitter.worker.media import Download
    from skitter.worker.timings import Histogram
    from skitter.worker.tracing import AttemptTrace

_Result = TypeVar("_Result")
FILE = "skitter:file"
"""Callback of a request for a file, see :mod:`skitter.worker.media`."""
ITEMS = "skitter:items"
"""Callback of a request for items that wait for their files."""
FILE_CALLBACKS = frozenset({FILE, ITEMS})
MEMORY_VERSION = 1
"""Format of :class:`PageMemory`."""
_MAX_COMPARISONS = 32
"""Number of comparisons after which older ones count half, so that a change of a page's rate is noticed."""


class ChangeHistory(msgspec.Struct, array_like=True, frozen=True):
    """The history of changes of a page, as its visits have found it."""

    fetched: float
    """Unix time of the last fetch, with fractions of a second, so that hardly any two pages have the same gain."""
    comparisons: float = 0
    """Number of fetches whose content was compared with that of the fetch before."""
    changes: float = 0
    """Number of comparisons that found a change."""
    seconds: float = 0
    """Total of the seconds between the compared fetches."""

    def after(self, now: float, *, is_changed: bool) -> ChangeHistory:
        """Return the history after another fetch."""
        comparisons, changes, seconds = self.comparisons, self.changes, self.seconds
        if comparisons >= _MAX_COMPARISONS:
            comparisons, changes, seconds = comparisons / 2, changes / 2, seconds / 2
        return ChangeHistory(now, comparisons + 1, changes + is_changed, seconds + max(0, now - self.fetched))

    def rate(self, now: float) -> float:
        """Return the estimated number of changes per second.

        The estimator of Cho and Garcia-Molina, "Estimating Frequency of Change" (2003), which does not treat a page
        as static because no fetch has found a change. A page that was fetched once may or may not have changed since.
        """
        if not self.comparisons or not self.seconds:
            return math.log(2) / self.age(now)
        unchanged = self.comparisons - self.changes
        mean = self.seconds / self.comparisons
        return math.log((self.comparisons + 1) / (unchanged + 0.5)) / mean

    def gain(self, now: float) -> float:
        """Return the gain of a fetch at this time, in seconds of freshness of the copy.

        The derivative of freshness by the rate of fetches. The best policy makes it equal for all pages: Azar et al.,
        "Tractable near-optimal policies for crawling" (2018). A page that changes all the time gains little, because
        its copy is outdated immediately.
        """
        rate = self.rate(now)
        changes = rate * self.age(now)
        return (1 - math.exp(-changes) * (1 + changes)) / rate

    def age(self, now: float) -> float:
        """Return the seconds since the last fetch. The result is above 0 even if the clocks of two machines differ."""
        return max(0.001, now - self.fetched)


class PageMemory(msgspec.Struct, array_like=True):
    """What a job remembers of a visit, as the frontier stores it (:attr:`~skitter.frontier.records.PageVisit.memory`)."""

    version: int = MEMORY_VERSION
    etag: str = ""
    modified: str = ""
    """``Last-Modified``; empty if the page may have changed within the same second."""
    digest: bytes = b""
    """Hash of body and status."""
    items: bytes = b""
    """Hashes of the items, with ``changes=changed``."""
    links: bytes = b""
    """Links and requests that the callback yielded; see :func:`~skitter.worker.revisit.pack_links`."""
    compressed: bool = False
    history: ChangeHistory | None = None
    """Kept only with a ``revisit_share`` below 1 or ``use_lastmod``."""
    has_lastmod: bool = False
    """Whether the links have the ``lastmod`` that the page states, if it is a sitemap."""


class Page(msgspec.Struct, eq=False):
    """A leased request and its results so far. The pipeline creates it, the committer closes its lease."""

    lease: Lease
    request: Request
    """The request as it was queued. The fetched request differs if a hook replaced it."""
    item_key: bytes
    """The key under which keyed stores write the items: see :func:`item_key_of`, unless each pass of the job has its
    own items."""
    trace: AttemptTrace | None = None
    """``None`` if the request is not traced."""
    began: float = 0.0
    """When the fetch began (:func:`time.monotonic`)."""
    origin: str = ""
    """Origin of the fetched request, as soon as the fetch begins."""
    response: Response | None = None
    capture: Capture | bytes | None = None
    """The response for the archives of the job, already encoded unless it is large."""
    open_page: OpenPage | None = None
    """The page in a browser that the callback uses. It is closed when the callback has ended."""
    decision: RetryDecision = DONE
    remedy: str = ""
    """Remedy of the last error of its fetch."""
    is_error_logged: bool = False
    """Whether the log has its last error of user code."""
    items: list[Any] = []
    has_output: bool = True
    """Whether the items replace those of an earlier visit. ``False`` if they wait for their files."""
    items_request: Entry | None = None
    """The request, one of ``entries``, that waits for the files of the items."""
    download: Download | None = None
    """The file that the request downloads instead of a page."""
    entries: list[Entry] = []
    batches: list[LinkBatch] = []
    counters: dict[str, int] = {}
    has_bounded: bool = False
    """Whether the page has counters whose number is bounded
    (:class:`~skitter.worker.bounded_counters.BoundedCounters`)."""
    memory: PageMemory | None = None
    """What the job remembers of the last visit; ``None``: nothing."""
    new_memory: PageMemory | None = None
    """What the job will remember of this visit, if the page is new or has changed."""
    visit: PageVisit | None = None
    """What this visit found, for the frontier."""
    reserved_memory: int = 0
    """Bytes that a large page has reserved from :class:`~skitter.worker.large_pages.LargePageLimiter`."""
    hook: str = ""
    """Point of the running hook. It is kept if the hook raises an exception."""

    async def run_hook(self, point: str, hook: Awaitable[_Result]) -> _Result:
        """Wait for a hook. If it raises an exception, ``self.hook`` keeps its point."""
        self.hook = point
        result = await hook
        self.hook = ""
        return result

    def record_time(self, stage: Histogram, seconds: float) -> None:
        """Record the time of a stage that has just ended."""
        stage.observe(self.counters, seconds)
        if self.trace is not None:
            self.trace.add(stage.name, seconds)

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a counter. It takes effect with the commit of the page."""
        self.counters[name] = self.counters.get(name, 0) + amount

    def count_bounded(self, name: str, amount: int = 1) -> None:
        """Add to a counter whose name comes from user code or an item."""
        self.has_bounded = True
        self.count(name, amount)

    def forget_user_counts(self) -> None:
        """Remove the counts of user code from an attempt that failed."""
        if self.has_bounded:
            for name in [name for name in self.counters if name.startswith(USER)]:
                del self.counters[name]

    def finish(self, decision: RetryDecision) -> None:
        """Decide how the lease ends. A page that is not done has neither items nor links."""
        if not decision.error.isascii() or not decision.traceback.isascii():
            # No store accepts half a surrogate pair, which a str may contain.
            decision = msgspec.structs.replace(
                decision, error=_encodable(decision.error), traceback=_encodable(decision.traceback)
            )
        self.decision = decision
        if decision.resolution is not Resolution.DONE:
            self.items, self.entries, self.batches = [], [], []
            kind = decision.error.partition(":")[0]
            if decision.resolution is Resolution.FAILED:
                self.count("failed/" + kind)
            else:
                self.forget_user_counts()
                if not decision.free:
                    self.count("retried/" + kind)

    def revise(self, decision: RetryDecision) -> None:
        """Replace a decision of :meth:`finish`. If it was a failure, the failure no longer counts."""
        self.counters.pop("failed/" + self.decision.error.partition(":")[0], None)
        self.finish(decision)

    def drop(self) -> None:
        """Finish the page as done, without items and links."""
        self.items, self.entries, self.batches = [], [], []
        self.finish(DONE)


def item_key_of(lease: Lease, request: Request) -> bytes:
    """Return the key under which keyed stores write the items of a leased request.

    It is the same for all leases of the request, and usually the fingerprint. Requests with ``dont_filter`` may share
    a fingerprint, so their stored record is part of the key. A page that has redirected to itself keeps its
    fingerprint: no other request of the redirect has items.
    """
    if not request.dont_filter or request.url in request.redirects:
        return lease.fingerprint
    return xxhash.xxh3_128_digest(lease.fingerprint + lease.record)


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
