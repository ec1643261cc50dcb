"""ScrapyLeases: the requests in Scrapy's engine, with their leases and their results so far.

A lease covers one request from the scheduler through the downloader to the end of its callback. It ends when Scrapy's
engine is done with the request: all output of the callback or errback was read, and all items have passed the pipelines.
``docs/design/scrapy.md`` describes the protocol.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import scrapy
from itemadapter import ItemAdapter
from scrapy import signals
from scrapy.exceptions import IgnoreRequest
from scrapy.exporters import PythonItemExporter
from scrapy.http import Response
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from skitter.errors import UndecodableRecord
from skitter.frontier.records import Entry, LinkBatch, Resolution
from skitter.item import UnpackedItem, class_paths, encode_item, item_kind
from skitter.request import Request, decode_request
from skitter.scrapy.start_requests import StartRequests
from skitter.web.headers import THROTTLED, parse_retry_after
from skitter.worker.callbacks import describe_internal, describe_plain, traceback_of
from skitter.worker.page import Page
from skitter.worker.retry import DONE, RetryDecision
from skitter.worker.timings import FETCH, WAIT

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from skitter.frontier.contract import Frontier
    from skitter.frontier.records import Lease
    from skitter.scrapy.idle import CrawlEnd
    from skitter.scrapy.requests import RequestCodec
    from skitter.worker.inflight import InflightRequest

log = logging.getLogger("skitter.scrapy")

_KINDS = (
    ("timeout", ("Timeout", "TimedOut")),
    ("dns", ("DNSLookup", "CannotResolve")),
    ("connect", ("Connect",)),
)
"""Kinds of failed downloads, with parts of the names of Scrapy's and Twisted's exceptions."""


class ScrapyLease:
    """A lease, its request in Scrapy's engine, and its results so far."""

    __slots__ = (
        "done", "error", "failure", "fingerprints", "has_moved", "has_reached_callback", "inflight", "open", "page", "plain",
        "replacement", "request", "response", "status",
    )  # fmt: skip

    def __init__(self, inflight: InflightRequest, page: Page, request: scrapy.Request) -> None:
        self.inflight = inflight
        self.page = page
        self.request = request
        self.done: asyncio.Future[Page | None] = asyncio.get_running_loop().create_future()
        """The page to commit. ``None``: release the lease."""
        self.status = 0
        """HTTP status of the download; 0: there was no download."""
        self.response: Response | None = None
        self.failure: BaseException | None = None
        """The reason if there is no response."""
        self.error: RetryDecision | None = None
        """The first error of user code."""
        self.has_reached_callback = False
        self.has_moved = False
        """Whether a middleware has replaced the request with another one, such as a retry or a redirect."""
        self.replacement: scrapy.Request | None = None
        """The request that a middleware has returned instead, if that cannot be stored. It is fetched under the same lease."""
        self.open = 0
        """Number of requests that were yielded but have not reached the scheduler."""
        self.fingerprints: set[bytes] = set()
        """Fingerprints of the requests that the page has yielded."""
        self.plain: defaultdict[tuple[bytes, int], list[Entry]] = defaultdict(list)
        """Requests that are identified only by their URL, by record and priority."""

    def origin(self) -> bytes:
        """Return a key for the next request of the page, which distinguishes it from requests with the same fingerprint."""
        return self.page.lease.fingerprint + len(self.page.entries).to_bytes(4, "big")


class ScrapyLeases:
    """Passes leases to Scrapy's engine, and collects their results.

    Implements :class:`~skitter.worker.leaser.LeaseProcessor`.
    """

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self.seeds = StartRequests(self)
        self.codec: RequestCodec | None = None
        """``None`` as long as no worker runs."""
        self.frontier: Frontier | None = None
        """The frontier of the running worker."""
        self.shares_cookies = False
        """Whether a site has set a cookie in any process of the job."""
        self.has_outputs = True
        """Whether items are stored. If not, they are only counted, so that pipelines may return values that cannot be stored."""
        self.began = asyncio.Event()
        """Set when a worker runs."""
        self.crawl_end: CrawlEnd
        """Decides when the crawl has ended. The scheduler sets it before a worker runs."""
        self.wake: Callable[[], object] = lambda: None
        """Makes the engine ask for requests."""
        self.process_in_pipelines: Callable[[Any], Awaitable[None]]
        """Passes an item that belongs to no response through the pipelines. Also set by the scheduler."""
        self._item_lock = asyncio.Lock()
        self._of_start: ScrapyLease | None = None
        """The item of ``start()`` that is in the pipelines. Only one at a time, because the signals do not identify the item."""
        self._ready: deque[ScrapyLease] = deque()
        self._held: dict[scrapy.Request, ScrapyLease] = {}
        """Leases in progress, by the request that the engine has."""
        self._by_response: dict[Response, ScrapyLease] = {}
        self._owners: dict[scrapy.Request, ScrapyLease] = {}
        """Requests that a callback has yielded, but that have not reached the scheduler."""
        self._continuations: dict[scrapy.Request, ScrapyLease] = {}
        """Requests that a downloader middleware has returned."""
        self._unowned: list[Entry] = []
        """Requests that belong to no lease, because an extension has added them to the engine."""
        self._adding: asyncio.Task[None] | None = None
        self._unowned_count = 0
        self._exporter = PythonItemExporter()
        connect = crawler.signals.connect
        connect(self._downloaded, signals.response_downloaded)
        connect(self._item_scraped, signals.item_scraped)
        connect(self._item_dropped, signals.item_dropped)
        connect(self._item_failed, signals.item_error)
        connect(self._callback_failed, signals.spider_error)

    # --- lifecycle -------------------------------------------------------------------------------------

    def begin(self, frontier: Frontier, codec: RequestCodec, worker: str) -> None:
        """Start using a frontier."""
        self.frontier, self.codec = frontier, codec
        self.seeds.begin(frontier, worker)
        self.began.set()

    def drain(self) -> None:
        """Release the leases that the engine has not asked for."""
        while self._ready:
            held = self._ready.popleft()
            if not held.done.done():
                held.done.set_result(None)

    async def end(self) -> None:
        """Stop using the frontier. Later results from Scrapy are discarded, because their leases were released."""
        if self._adding is not None:
            await asyncio.wait([self._adding])
        self.seeds.end()
        self.drain()
        self.frontier = self.codec = None
        self._by_response.clear()
        self._owners.clear()
        self._continuations.clear()

    def stop(self) -> None:
        """Record that the run of the job has ended."""
        self.seeds.stop()

    # --- from skitter to Scrapy ------------------------------------------------------------------------

    async def process(self, inflight: InflightRequest) -> Page | None:
        """Have Scrapy process a leased request."""
        lease, codec = inflight.lease, self.codec
        assert codec is not None, "leases come to a running worker"
        page = Page(lease, Request(lease.url), lease.fingerprint, began=time.monotonic())
        try:
            page.request = decode_request(lease.url, lease.record)
            item = codec.item(page.request)
            if item is not None:
                return await self._process_item(inflight, page, item)
            request = codec.request(page.request)
        except UndecodableRecord as error:
            inflight.finish_fetch(sent=False)
            kind = "unstorable" if error.field == "seed" else "record"
            page.finish(RetryDecision(Resolution.FAILED, f"{kind}: {error}"))
            log.error("%s: %s", lease.url, error)  # noqa: TRY400 - one line
            return page
        WAIT.observe(page.counters, inflight.waited)
        held = ScrapyLease(inflight, page, request)
        self._ready.append(held)
        self.wake()
        concluded = await held.done
        await self.added()  # requests that pipelines have added to the engine are stored before the page
        return concluded

    async def _process_item(self, inflight: InflightRequest, page: Page, item: Any) -> Page:
        """Pass an item of ``start()`` through the pipelines."""
        inflight.finish_fetch(sent=False)
        async with self._item_lock:
            self._of_start = held = ScrapyLease(inflight, page, scrapy.Request(page.lease.url))
            try:
                await self.process_in_pipelines(item)
            finally:
                self._of_start = None
        await self.added()
        if held.error is not None:
            page.finish(held.error)
        elif page.items:
            page.count("items", len(page.items))
        return page

    def give_up(self, lease: Lease, error: BaseException) -> Page:
        """Return a failed page for a request whose processing raised an unhandled error, which is a bug in skitter."""
        log.error("%s: %s", lease.url, describe_internal(error), exc_info=error)
        page = Page(lease, Request(lease.url), lease.fingerprint)
        page.finish(RetryDecision(Resolution.FAILED, f"internal: {describe_internal(error)}"))
        return page

    def next_request(self) -> scrapy.Request | None:
        """Return the next request for the engine."""
        while self._ready:
            held = self._ready.popleft()
            if held.done.done():  # the lease was lost in the meantime
                continue
            if held.inflight.fetched or held.inflight.may_send():  # fetched: a retry under the same lease
                self._held[held.request] = held
                return held.request
            held.done.set_result(None)  # the permit has expired: the request waits for its host again
        return None

    # --- results of requests ---------------------------------------------------------------------------

    def _downloaded(self, response: Response, request: scrapy.Request) -> None:
        """Record a response as received, before middlewares see it."""
        held = self._held.get(request)
        if held is None:
            return
        counters = held.page.counters
        held.status = response.status
        counters[f"status/{response.status}"] = 1
        counters["bytes"] = len(response.body)
        latency = request.meta.get("download_latency")
        if latency is not None and not held.inflight.fetched:
            FETCH.observe(counters, latency)
        if response.status in THROTTLED:
            wait, date = (
                value.decode("latin-1") if (value := response.headers.get(name)) else None
                for name in ("Retry-After", "Date")
            )
            seconds = parse_retry_after(wait, date)
            held.inflight.finish_fetch(latency, refused=True, retry_after=seconds)
        else:
            held.inflight.finish_fetch(latency)

    def holds(self, request: scrapy.Request) -> bool:
        """Return whether the engine has a request under a lease."""
        return request in self._held

    def fetched(self, result: Any, request: scrapy.Request) -> Any:
        """Record how the fetch of a request has ended: with a response, another request or a failure. Return the result."""
        held = self._held.get(request)
        if held is None:
            return result
        if isinstance(result, scrapy.Request):
            self._continuations[result] = held
        elif isinstance(result, Failure):
            held.failure = result.value
            if request.errback is not None:
                request.errback = _OwnedErrback(request, request.errback, self, held)
        else:
            held.response = result
            self._by_response[result] = held
        # The first report counts. Without an earlier one there was no download: a middleware has returned the response,
        # such as the HTTP cache, or it has refused the request.
        was_sent = isinstance(result, Failure) and not isinstance(held.failure, IgnoreRequest)
        held.inflight.finish_fetch(sent=was_sent)
        return result

    def of_result(self, result: Any) -> ScrapyLease | None:
        """Return the lease of a response, or of the failure of a request."""
        if isinstance(result, Response):
            held = self._by_response.get(result)
            return held if held is not None or result.request is None else self._held.get(result.request)
        if isinstance(result, Failure):
            request: Any = vars(result).get("request")  # Scrapy sets it before it calls the errback
            return self._held.get(request)
        return None

    def adopt(self, output: Any, held: ScrapyLease | None) -> None:
        """Record which lease a request belongs to that a callback or errback has yielded. Other output is ignored."""
        if held is not None and isinstance(output, scrapy.Request) and self._owners.get(output) is not held:
            self._owners[output] = held
            held.open += 1

    def engine_is_done(self, request: scrapy.Request) -> None:
        """End the lease of a request that the engine has finished."""
        held = self._held.pop(request, None)
        if held is None:
            return
        if held.response is not None:
            self._by_response.pop(held.response, None)
        if held.open:  # a handler of the signal request_scheduled has dropped some requests
            self._owners = {request: owner for request, owner in self._owners.items() if owner is not held}
        if self._continuations:  # dropped by such a handler, too
            self._continuations = {r: owner for r, owner in self._continuations.items() if owner is not held}
        if held.done.done():
            return
        if held.replacement is not None:
            held.request, held.replacement, held.response, held.failure = held.replacement, None, None, None
            self._ready.append(held)
            self.wake()
        else:
            held.done.set_result(self._concluded(held))

    def _concluded(self, held: ScrapyLease) -> Page:
        page = held.page
        decision = DONE
        if held.error is not None:
            decision = held.error
        elif held.has_moved:
            page.count("moved")
        elif held.has_reached_callback:
            page.count("pages")
        elif held.failure is not None and not isinstance(held.failure, IgnoreRequest):
            decision = RetryDecision(Resolution.FAILED, _described(held.failure))
        elif held.response is not None and not 200 <= held.response.status < 300:
            status = held.response.status
            decision = RetryDecision(
                Resolution.FAILED, f"status/{status}: the server responded with {status}"
            )
        else:
            page.count("refused/ignored")
        batches = [_batch(record, priority, entries) for (record, priority), entries in held.plain.items()]
        if decision is DONE:
            page.batches = batches
        else:  # like Scrapy, keep what user code yielded before an error
            items, entries = page.items, page.entries
            page.finish(decision)
            page.items, page.entries, page.batches = items, entries, batches
        if page.items:
            page.count("items", len(page.items))
        return page

    # --- requests from Scrapy --------------------------------------------------------------------------

    def enqueue(self, request: scrapy.Request) -> bool:
        """Store a request with the page that it comes from. Return ``False`` if it is known."""
        codec = self.codec
        if (held := self._continuations.pop(request, None)) is not None:
            # If another worker has taken over the lease, everything is discarded.
            if codec is not None and not held.done.done():
                return self._enqueue_continuation(codec, held, request)
            return True
        if (held := self._owners.pop(request, None)) is not None:
            held.open -= 1
            return held.done.done() or codec is None or self._enqueue_child(codec, held, request)
        if self.seeds.is_expected(request):
            self.seeds.add(request)
            return True
        return self._enqueue_unowned(request)

    def _enqueue_continuation(self, codec: RequestCodec, held: ScrapyLease, request: scrapy.Request) -> bool:
        held.has_moved = True
        if codec.is_known(request):
            held.page.count("refused/duplicate")
            return False
        try:
            held.page.entries.append(codec.entry(request, held.origin(), held.page.lease.slot))
        except Exception:  # noqa: BLE001 - as in entry_or_rejection()
            held.has_moved = False
            held.replacement = request
        return True

    def _enqueue_child(self, codec: RequestCodec, held: ScrapyLease, request: scrapy.Request) -> bool:
        page = held.page
        if codec.is_known(request):
            page.count("refused/duplicate")
            return False
        entry = codec.entry_or_rejection(request, held.origin(), page.lease.slot)
        if entry.dedup:
            if entry.fingerprint in held.fingerprints:
                page.count("refused/duplicate")
                return False
            held.fingerprints.add(entry.fingerprint)
        if entry.dedup and codec.is_plain(request):
            held.plain[entry.record, entry.priority].append(entry)
        else:
            page.entries.append(entry)
        return True

    def _enqueue_unowned(self, request: scrapy.Request) -> bool:
        codec = self.codec
        if codec is None:
            log.error("%s: the run of the job has ended and accepts no more requests", request.url)
            return False
        self._unowned_count += 1
        origin = f"{self.seeds.worker}/{self._unowned_count}".encode()
        self._unowned.append(codec.entry_or_rejection(request, origin))
        if self._adding is None:
            self._adding = asyncio.get_running_loop().create_task(self._add_unowned())
        return True

    async def added(self) -> int:
        """Wait until the requests that extensions have added to the engine are in the frontier. Return their number so far."""
        if self._adding is not None:
            await asyncio.shield(self._adding)
        return self._unowned_count

    async def _add_unowned(self) -> None:
        try:
            while self._unowned and self.frontier is not None:
                entries, self._unowned = self._unowned, []
                await self.frontier.add(entries)
        finally:
            self._adding = None

    # --- items and errors ------------------------------------------------------------------------------

    def _of_item(self, response: Any) -> ScrapyLease | None:
        """Return the lease of an item. ``response``: the response or failure that the item comes from."""
        return self._of_start if response is None else self.of_result(response)

    def _item_scraped(self, item: Any, response: Any) -> None:
        held = self._of_item(response)
        if held is None:
            if self.codec is not None:
                log.error("an item that belongs to no response is not stored: %.200r", item)
            return
        if not self.has_outputs:
            held.page.items.append(UnpackedItem())
            return
        try:
            held.page.items.append(self._exported(item))
        except Exception as error:  # noqa: BLE001 - serializers of fields are user code, and Scrapy would only log the error
            url, reason = held.page.lease.url, describe_plain(error)
            log.error("%s: an item is not stored: %s", url, reason)  # noqa: TRY400 - one line
            self._record_error(held, "item", error)

    def _exported(self, item: Any) -> UnpackedItem:
        if item is None:
            raise TypeError("a pipeline has returned None: end process_item() with `return item`")
        exported: dict[Any, Any] = self._exporter.export_item(item)
        fields = UnpackedItem(exported)
        fields.kind, fields.classes = item_kind(item), class_paths(item)
        encode_item(fields)  # a committer would refuse the whole page
        return fields

    def _item_dropped(self, response: Any) -> None:
        held = self._of_item(response)
        if held is not None:
            held.page.count("dropped_items/scrapy")

    def _item_failed(self, failure: Failure, response: Any) -> None:
        self._record_error(self._of_item(response), "pipeline", failure.value)

    def _callback_failed(self, failure: Failure, response: Any) -> None:
        self._record_error(self.of_result(response), "callback", failure.value)

    def _record_error(self, held: ScrapyLease | None, kind: str, error: Any) -> None:
        if held is not None and held.error is None:
            held.error = RetryDecision(
                Resolution.FAILED, f"{kind}: {describe_plain(error)}", traceback=traceback_of(error)
            )


_LEASES: WeakValueDictionary[Crawler, ScrapyLeases] = WeakValueDictionary()
"""The downloader of a crawler holds its leases."""


def leases_of(crawler: Crawler) -> ScrapyLeases:
    """Return the leases of a crawler, which its scheduler, downloader and middlewares share."""
    leases = _LEASES.get(crawler)
    if leases is None:
        leases = _LEASES[crawler] = ScrapyLeases(crawler)
    return leases


def _batch(record: bytes, priority: int, entries: list[Entry]) -> LinkBatch:
    return LinkBatch(
        Entry(b"", "", "", record, priority),
        [entry.url for entry in entries],
        [entry.fingerprint for entry in entries],
        [entry.slot for entry in entries],
        [0] * len(entries),
    )


def _described(failure: BaseException) -> str:
    name = type(failure).__name__
    kind = next((kind for kind, parts in _KINDS if any(part in name for part in parts)), "download")
    return f"{kind}: {describe_plain(failure)}"


class _OwnedErrback:
    """Calls the errback of a request, and records which lease the yielded requests belong to.

    This is needed because the output of an errback does not pass through the spider middlewares. The errback is replaced
    only from the failure until the call.
    """

    def __init__(
        self, request: scrapy.Request, errback: Callable[..., Any], leases: ScrapyLeases, held: ScrapyLease
    ) -> None:
        self._request = request
        self._errback = errback
        self._leases = leases
        self._held = held

    def __call__(self, failure: Failure) -> Any:
        self._request.errback = self._errback
        return self._watched(self._errback(failure))

    def _watched(self, output: Any) -> Any:
        self._leases.adopt(output, self._held)
        if inspect.isasyncgen(output):
            return self._each_async(output)
        if inspect.iscoroutine(output):
            return self._awaited(output)
        if isinstance(output, Iterable) and not isinstance(output, (str, bytes, Failure, Deferred)):
            return output if ItemAdapter.is_item(output) else self._each(output)
        return output

    def _each(self, outputs: Iterable[Any]) -> Iterable[Any]:
        for output in outputs:
            self._leases.adopt(output, self._held)
            yield output

    async def _each_async(self, outputs: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for output in outputs:
            self._leases.adopt(output, self._held)
            yield output

    async def _awaited(self, output: Any) -> Any:
        return self._watched(await output)
