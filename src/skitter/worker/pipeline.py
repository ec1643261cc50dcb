"""RequestPipeline: the processing of each request by a worker.

:meth:`RequestPipeline.process` follows the diagram of the loop in the documentation.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from skitter.directives import Directives
from skitter.errors import (
    CrawlFailed,
    DeferRequest,
    FetchError,
    FrontierError,
    PageTooComplex,
    RedirectError,
    RequestError,
    RetryRequest,
    StatusError,
    StoreError,
    UndecodableRecord,
)
from skitter.fetch.contract import Aborted, BodySink, ProxyError, fetch_with_hook
from skitter.fetch.robots_rules import product_token
from skitter.fetch.tdmrep import PATH as TDM_PATH
from skitter.fetch.tdmrep import TdmFiles
from skitter.foreign_names import META
from skitter.frontier.records import Entry, Lease, PageVisit, Resolution
from skitter.item import field_of, item_fields
from skitter.links import Links
from skitter.request import Request, decode_request, set_attempt
from skitter.response import Response
from skitter.web.headers import REDIRECTS, THROTTLED, parse_retry_after
from skitter.web.urls import origin_of
from skitter.worker import WorkerParts
from skitter.worker.callbacks import (
    CallbackPacer,
    CallbackRunner,
    ErrorLog,
    check_errback,
    describe,
    describe_internal,
    refuse_repeated,
    results_of,
    traceback_of,
)
from skitter.worker.crawl_control import CrawlControl
from skitter.worker.directives import DirectiveRules
from skitter.worker.hooks import HookAction
from skitter.worker.inflight import InflightRequest
from skitter.worker.item_meter import InvalidItem, make_item_meter
from skitter.worker.large_pages import LARGE, LargePageLimiter
from skitter.worker.links import RESULTS_BATCH, CallbackResult, LinkStream, in_batches
from skitter.worker.origins import CONTACT_GRACE, Origins, OriginState
from skitter.worker.page import FILE_CALLBACKS, Page, item_key_of
from skitter.worker.retry import (
    DONE,
    RetryDecision,
    allowed_retries,
    decide_after_failure,
    decide_after_status,
    redirected,
    refreshed,
)
from skitter.worker.revisit import (
    NOT_MODIFIED,
    Revisits,
    unpack_links,
    without_items,
)
from skitter.worker.robots import RobotsDecision, RobotsGate, RobotsUnavailable
from skitter.worker.timings import CALLBACK, FETCH, WAIT
from skitter.worker.traps import DUPLICATE_CONTENT, PATTERN

if TYPE_CHECKING:  # few crawls download files
    from skitter.worker.media import MediaPipeline

log = logging.getLogger("skitter.crawl")

_MAX_REPORTED_SEEDS = 20
_LONG_CALLBACK = 3.0
"""Seconds for which a callback may block the event loop before a warning names it, once per worker."""
_MAX_DEPTH = 50
"""Depth from which pages share one counter, so that a trap does not create an unlimited number of counters."""
_DEPTHS = [f"depth/{depth}" for depth in range(_MAX_DEPTH + 1)]
"""Counters of pages by depth."""
_status_counter = cache("status/{}".format)
_refused_counter = cache("refused/{}".format)
_KNOWN = OriginState.KNOWN
_HOLD_BACK_INTERVAL = 0.2
"""Seconds for which a slot is paused after a request for an unavailable origin was returned to the queue."""


_KINDS: dict[type[BaseException], str] = {PageTooComplex: "too_complex", InvalidItem: "invalid"}
"""Error kinds of callback errors; other errors are of the kind ``callback``."""


class _ReleaseLease(Exception):
    """The request returns to the queue unchanged."""


class _Decided(Exception):
    """A hook has decided about the request before its response was complete."""


class RequestPipeline:
    """Processes each leased request up to the decision how its lease ends.

    The committer stores items and links.

    ``link_stream``: adds links to the frontier before the commit of their page, for ``streaming_callbacks`` and for pages
    with very many links. ``tdm_files``: the tdmrep.json of each origin, read before its first page. ``media``: downloads
    the files that items name. ``revisits``: ``None`` unless the job remembers its pages.
    """

    def __init__(
        self,
        parts: WorkerParts,
        control: CrawlControl,
        link_stream: LinkStream,
        *,
        robots: RobotsGate | None,
        tdm_files: TdmFiles | None,
        media: MediaPipeline | None,
        revisits: Revisits | None,
    ) -> None:
        settings, hooks, fetcher = parts.settings, parts.hooks, parts.fetcher
        self._origins = Origins(settings)
        self._failed_seeds = 0
        self._has_warned_of_blocking = False
        # With this setting, each request is meant to send only its own cookies.
        self._has_warned_of_cookies = settings.cookies == "none"
        self._known_meta = {
            *settings.fingerprint_keys, *settings.item_meta_fields, *filter(None, [settings.group_key])
        }  # fmt: skip
        """Keys of ``meta`` that need no warning: keys that the job uses, and keys of Scrapy that were already pointed out."""
        self._spider = parts.spider
        self._settings = settings
        self._fetcher = fetcher
        self._hooks = hooks
        self._links = parts.links
        self._control = control
        self._link_stream = link_stream
        self._robots = robots
        self._tdm_files = tdm_files
        self._media = media
        self._unused_file_fields = list(settings.files_fields) if media is None else []
        """Fields whose URLs are not downloaded; empty once a warning has said so."""
        self._revisits = revisits
        self._before_request_hooks = hooks["before_request"]
        self._after_request_hooks = hooks["after_request"]
        self._before_send_hooks = hooks["before_send"]
        self._on_headers_hooks = hooks["on_headers"]
        self._before_save_hooks = hooks["before_save"]
        self._pacer = CallbackPacer()
        self.callbacks = CallbackRunner(settings.callback_threads)
        self._callbacks_found: dict[object, Callable[..., Any]] = {}
        """Callbacks of the spider by the names that requests store."""
        self._error_log = ErrorLog()
        self._blocked_statuses = fetcher.capabilities.blocked_statuses
        self._large_pages = LargePageLimiter(settings.max_page_memory)
        self._meter = make_item_meter(settings)
        self._directives = DirectiveRules(settings, product_token(settings.user_agent))

    async def process(self, inflight: InflightRequest) -> Page | None:
        """Process one request. ``None``: release its lease."""
        lease = inflight.lease
        try:
            request = decode_request(lease.url, lease.record)
        except UndecodableRecord as error:
            return await self._undecodable(lease, error)
        page = self._begin(inflight, request)
        try:
            if request.callback in FILE_CALLBACKS:
                await self._process_file(page, inflight)
            else:
                await self._process_page(page, inflight)
        except _ReleaseLease:
            return None
        except _Decided:
            inflight.finish_fetch()
        except RetryRequest as error:
            await self._retry_requested(page, error, inflight)
        except FetchError as error:
            inflight.finish_fetch()
            await self._fetch_failed(page, error)
        except (Exception, SystemExit, asyncio.CancelledError) as error:  # noqa: BLE001 - user code; a cancelled request raises again
            await self._callback_failed(page, error, inflight)
        finally:
            self._spider.stats.end(page)
            if page.reserved_memory or page.open_page is not None:
                await self._release(page)
        if self._revisits is not None or request.depth == 0:
            await self._finish(page)
        return page

    def _begin(self, inflight: InflightRequest, request: Request) -> Page:
        lease = inflight.lease
        if lease.attempt or not self._settings.max_retries or request.max_retries == 0:
            is_last = lease.attempt >= allowed_retries(self._settings, request)
            set_attempt(request, lease.attempt, is_last=is_last)
        page = Page(lease, request, item_key_of(lease, request), inflight.trace)
        self._spider.stats.begin(page)
        return page

    async def _release(self, page: Page) -> None:
        """Release the resources of a page: memory, and a page in a browser."""
        self._large_pages.release(page.reserved_memory)
        if page.open_page is not None:
            await page.open_page.close()

    async def _finish(self, page: Page) -> None:
        """Follow the known links of a page that is visited again, and report a seed without a page."""
        if self._revisits is not None and self._revisits.settle(page):
            try:
                await self._follow_again(page)
            except UndecodableRecord as error:
                log.error("%s", error)  # noqa: TRY400 - one line
        if page.request.depth == 0:
            self._report_seed(page)

    async def _process_page(self, page: Page, inflight: InflightRequest) -> None:
        if self._revisits is not None:
            self._revisits.begin(page)
            if not self._revisits.is_due(page):
                inflight.finish_fetch(sent=False)
                self._revisits.skip(page)
                await self._follow_again(page)
                return
        request = await self._before_request(page) if self._before_request_hooks else page.request
        response = None if request is None else await self._fetch(page, request, inflight)
        if response is not None and (
            (200 <= response.status < 300 and not self._after_request_hooks and response.moved_to is None)
            or await self._after_request(page, response)
        ):
            await self._parse(page, page.response or response, inflight)

    def _report_seed(self, page: Page) -> None:
        """Log why a seed has no page, unless its error is in the log. Only the first such seeds are logged by URL."""
        if page.is_error_logged:
            return
        if page.decision.resolution is Resolution.FAILED:
            reason = f"{page.decision.error}; {page.remedy}" if page.remedy else page.decision.error
        elif "refused/robots" in page.counters:
            reason = "forbidden by robots.txt; --no-robots fetches it anyway"
        elif page.response is not None and page.response.status in REDIRECTS and not page.entries:
            refused = [name for name in page.counters if name.startswith("refused/")]
            if not refused:
                return
            reason = f"redirected to a URL that is refused ({refused[0].partition('/')[2]})"
        else:
            return
        self._failed_seeds += 1
        if self._failed_seeds <= _MAX_REPORTED_SEEDS:
            log.warning("seed %s: %s", page.lease.url, reason)
        elif self._failed_seeds == _MAX_REPORTED_SEEDS + 1:
            log.warning("further seeds without a page are only counted")

    async def _retry_requested(self, page: Page, error: RetryRequest, inflight: InflightRequest) -> None:
        inflight.finish_fetch()
        await self._report_blocked(page, error)
        page.forget_user_counts()
        text = f"{_kind_of_user_code(page)}: {error}"
        await self._failed(page, error, self._decide_failure(page, text, retryable=True))

    async def _callback_failed(self, page: Page, error: BaseException, inflight: InflightRequest) -> None:
        if isinstance(error, asyncio.CancelledError) and inflight.is_cancelled:
            raise error
        if isinstance(error, FrontierError) and page.response is None and not page.hook:
            raise error  # not an error of user code: for example, the cookies of the job cannot be read
        lost = page.open_page.failure if page.open_page is not None else None
        if isinstance(lost, FetchError):  # an error of the page, not of the callback
            await self._fetch_failed(page, lost)
            return
        page.forget_user_counts()
        kind = _KINDS.get(type(error)) or _kind_of_user_code(page)
        text = f"{kind}: {describe(error)}"
        page.is_error_logged = self._error_log.report(page.lease.url, error)
        decision = self._decide_failure(page, text, retryable=False)
        decision = msgspec.structs.replace(decision, traceback=traceback_of(error))
        await self._failed(page, error, decision)

    def give_up(self, lease: Lease, error: BaseException) -> Page:
        """Return a failed page for a request whose processing raised an unhandled error, which is a bug in skitter."""
        self._error_log.report(lease.url, error)
        page = Page(lease, Request(lease.url), lease.fingerprint)
        page.finish(
            RetryDecision(
                Resolution.FAILED, f"internal: {describe_internal(error)}", traceback=traceback_of(error)
            )
        )
        return page

    async def _undecodable(self, lease: Lease, error: UndecodableRecord) -> Page:
        page = Page(lease, Request(lease.url), lease.fingerprint)
        kind = "seed" if error.field == "seed" else "record"
        page.finish(RetryDecision(Resolution.FAILED, f"{kind}: {error}"))
        await self._report_error(page, error)
        return page

    async def _fetch_failed(self, page: Page, error: FetchError) -> None:
        text = f"{error.kind}: {error}"
        if error.free:
            page.count(f"free/{error.kind}")
            page.finish(RetryDecision(Resolution.RETRY, text, free=True))
        elif error.unreachable:
            await self._unreachable(page, error)
        else:
            await self._failed(page, error, self._decide_failure(page, text, retryable=error.retryable))

    async def _unreachable(self, page: Page, error: FetchError) -> None:
        """Finish a request whose origin does not respond."""
        decision = self._origins.failed(page.origin, page.request, error, page.began)
        await self._failed(page, error, decision)

    async def _before_request(self, page: Page) -> Request | None:
        try:
            request, action = await page.run_hook(
                "before_request", self._hooks.revise("before_request", page.request)
            )
        except DeferRequest as deferral:
            if deferral.slot:
                await self._control.pause_slot(page.lease.slot, deferral.seconds)
                raise _ReleaseLease from None
            page.finish(
                RetryDecision(Resolution.RETRY, f"postponed: {deferral}", deferral.seconds, free=True)
            )
            return None
        return request if self._continues(page, action, "before_request") else None

    # --- files -----------------------------------------------------------------------------------------

    async def _process_file(self, page: Page, inflight: InflightRequest) -> None:
        """Process a request for a file or for the items that wait for it. Raises :class:`_ReleaseLease`."""
        media = self._media
        page.has_output = False
        if media is None:
            inflight.finish_fetch(sent=False)
            page.finish(RetryDecision(Resolution.FAILED, "file: the setting files_store is not set"))
            return
        try:
            if await media.begin(page):
                await self._download(page, media, inflight)
                await media.finish(page)
            else:
                inflight.finish_fetch(sent=False)
        except StoreError as error:
            self._control.fail(CrawlFailed(str(error), remedy=error.remedy))
            raise _ReleaseLease from error
        finally:
            await media.close(page)

    async def _download(self, page: Page, media: MediaPipeline, inflight: InflightRequest) -> None:
        """Fetch a file and store it. A failure is left in the decision of the page."""
        try:
            request = await self._before_request(page) if self._before_request_hooks else page.request
            response = None if request is None else await self._fetch(page, request, inflight)
            if response is not None and not await media.receive(page, response):
                await self._status_failed(page, response)
        except RedirectError as error:
            await self._failed(page, error, RetryDecision(Resolution.FAILED, str(error)), is_settled=True)
        except _Decided:
            inflight.finish_fetch()
        except RetryRequest as error:
            await self._retry_requested(page, error, inflight)
        except FetchError as error:
            inflight.finish_fetch()
            await self._fetch_failed(page, error)

    # --- fetch -----------------------------------------------------------------------------------------

    def _fetch(
        self, page: Page, request: Request, inflight: InflightRequest
    ) -> Coroutine[Any, Any, Response | None]:
        """Return the response; ``None`` if the request must not be sent now."""
        if request.meta:
            self._check_meta(request)
        traps = self._links.traps
        if traps is not None and traps.has_closed and page.request.depth and traps.is_closed(page.lease.url):
            return self._refuse_pattern(page, inflight)
        origins, url = self._origins, request.url
        origin = url[: url.find("/", 8)]  # the usual case: the start of the URL is a known origin
        has_responded = origins.has_responded(origin)
        if not has_responded:
            origin = origin_of(url)
            has_responded = origins.has_responded(origin)
        page.origin = origin
        if origins.outages and (refusal := origins.refusal(origin, page.request)):
            return self._hold_back(page, *refusal, inflight)
        page.began = time.monotonic()
        if has_responded:
            return self._send(page, request, inflight, _KNOWN)
        return self._contact(page, request, inflight)

    def _check_meta(self, request: Request) -> None:
        """Point out the keys of Scrapy in ``meta``, each once. Raises :class:`~skitter.errors.RequestError` for a proxy."""
        if self._spider.own_meta:
            return
        for name in META.keys() & request.meta.keys() - self._known_meta - {*request.fingerprint_keys}:
            value = request.meta[name]
            if value is None or value is False:
                continue
            if name == "proxy":
                if request.proxy is None:
                    raise RequestError(
                        "skitter does not use meta['proxy'], and would send the request from its own address",
                        remedy=META[name],
                        field="meta",
                    )
                continue
            self._known_meta.add(name)
            log.warning("%s: skitter does not use meta[%r]; %s", request.url, name, META[name])

    async def _refuse_pattern(self, page: Page, inflight: InflightRequest) -> None:
        """Finish a request whose URL pattern is refused as a trap."""
        inflight.finish_fetch(sent=False)
        page.count(f"refused/{PATTERN}")

    async def _contact(self, page: Page, request: Request, inflight: InflightRequest) -> Response | None:
        """Fetch a request to an origin that has not responded yet."""
        origins, origin = self._origins, page.origin
        origin_state = origins.begin_contact(origin)
        if origin_state is OriginState.REFUSED:
            self._put_back(page, inflight, random.uniform(0.5, 2.0))
            return None
        try:
            if wait := inflight.begin_contact():
                self._put_back(page, inflight, wait)
                return None
            return await self._send(page, request, inflight, origin_state)
        finally:
            origins.end_contact(origin)

    async def _send(
        self, page: Page, request: Request, inflight: InflightRequest, origin_state: OriginState
    ) -> Response | None:
        robots = self._robots
        if (
            robots is not None
            and not (origin_state is _KNOWN and robots.allows(request.url))  # nearly every request
            and not await self._is_allowed(robots, page, request, inflight, origin_state)
        ):
            return None
        if self._tdm_files is not None and page.download is None:
            await self._read_tdm_file(self._tdm_files, request.url, inflight)
        if inflight.expires and not inflight.may_send():
            raise _ReleaseLease
        if self._revisits is not None:
            request = self._revisits.conditional(page, request)
        if self._before_send_hooks or self._on_headers_hooks or page.download is not None:
            fetching = self._fetch_with_hooks(page, request, inflight)
        else:
            fetching = self._fetcher.fetch(request, permit=inflight)
        response = await (fetching if page.trace is None else page.trace.follow(request, fetching))
        size = len(response.body)
        if size > LARGE and not response.prepare_plain():
            page.reserved_memory = await self._large_pages.acquire(response)
        status, latency = response.status, response.latency
        if origin_state is not _KNOWN or self._origins.outages:
            self._origins.responded(page.origin)
        if status in THROTTLED and not response.is_archived:
            inflight.finish_fetch(latency, refused=True, retry_after=self._wait_for_slot(page, response))
        else:
            inflight.finish_fetch(latency)
        page.response, page.open_page = response, response.open_page
        counters = page.counters  # a page has one response
        counters[_status_counter(status)] = 1
        counters["bytes"] = size
        WAIT.observe(counters, inflight.waited)
        if latency is not None:
            FETCH.observe(counters, latency)
        return response

    def _wait_for_slot(self, page: Page, response: Response) -> float | None:
        """Return the seconds for which the slot of a throttling server has to wait, if the server asks for it.

        An origin that asks for more than ``retry_after_cap`` is given up. skitter then sends nothing to it, and the
        other origins of its slot must not wait for it.
        """
        seconds, cap, status = _retry_after(response), self._settings.retry_after_cap, response.status
        if seconds is None or seconds <= cap:
            return seconds
        if status in self._blocked_statuses or status in self._settings.allowed_statuses:
            return cap
        self._origins.give_up(page.origin, status, seconds)
        return None

    async def _fetch_with_hooks(self, page: Page, request: Request, inflight: InflightRequest) -> Response:
        """Run the hooks ``before_send`` and ``on_headers`` around the fetch."""
        request, action = await page.run_hook("before_send", self._hooks.revise("before_send", request))
        if not self._continues(page, action, "before_send"):
            raise _Decided
        if request.meta:
            self._check_meta(request)
        if not inflight.may_send():
            raise _ReleaseLease
        download, media = page.download, self._media
        if not self._on_headers_hooks and download is None:
            return await self._fetcher.fetch(request, permit=inflight)

        async def wants_body(response: Response) -> bool | BodySink:
            action = await page.run_hook("on_headers", self._hooks.run("on_headers", response))
            if not self._continues(page, action, "on_headers"):
                return False
            return True if download is None or media is None else await media.accept(download, response)

        try:
            return await fetch_with_hook(self._fetcher, request, inflight, wants_body)
        except Aborted:
            if download is not None and download.head is not None:
                return download.head
            raise _Decided from None

    async def _hold_back(
        self, page: Page, error: FetchError, decision: RetryDecision, inflight: InflightRequest
    ) -> None:
        """Finish a request whose origin must not be contacted now."""
        inflight.finish_fetch(sent=False)
        if decision.resolution is Resolution.FAILED:
            await self._failed(page, error, decision)
        else:
            page.finish(decision)
            await self._slow_down(page)

    async def _slow_down(self, page: Page) -> None:
        """Pause the slot briefly, unless it has other origins to serve.

        Otherwise its requests would be leased and returned in a loop.
        """
        if self._origins.is_alone(page.origin):
            await self._control.pause_slot(page.lease.slot, _HOLD_BACK_INTERVAL)

    def _put_back(self, page: Page, inflight: InflightRequest, seconds: float) -> None:
        """Return a request to the queue, because others wait for its origin, or too many for unknown origins."""
        inflight.finish_fetch(sent=False)
        text = "connect: the origin has not responded yet"
        page.finish(RetryDecision(Resolution.RETRY, text, seconds, free=True))

    async def _is_allowed(
        self,
        robots: RobotsGate,
        page: Page,
        request: Request,
        inflight: InflightRequest,
        origin_state: OriginState,
    ) -> bool:
        """Return whether robots.txt allows the request; if not, finish it."""
        is_first = origin_state is not _KNOWN
        timeout = self._settings.unreachable_timeout if is_first else None
        # Several requests may wait for the same robots.txt, but not for long, because each counts as a fetch of its
        # slot.
        grace = CONTACT_GRACE if origin_state is OriginState.FOLLOWS else None
        began = None if page.trace is None or robots.knows(request.url) else time.monotonic()
        try:
            async with asyncio.timeout(grace):
                decision = await robots.check(request.url, inflight, timeout)
        except TimeoutError:
            self._put_back(page, inflight, random.uniform(0.5, 2.0))
            return False
        except FetchError as error:
            # An error of a proxy is not an error of the origin.
            if error.free or isinstance(error, ProxyError) or not (is_first or error.unreachable):
                raise
            inflight.finish_fetch()
            await self._unreachable(page, error)
            return False
        finally:
            if page.trace is not None and began is not None:
                page.trace.add("robots", time.monotonic() - began)
        if is_first and robots.knows(request.url):
            self._origins.responded(page.origin)
            if not inflight.end_contact():
                raise _ReleaseLease
        if decision is RobotsDecision.ALLOWED:
            return True
        if decision is RobotsDecision.LATER:
            raise _ReleaseLease
        if isinstance(decision, RobotsUnavailable):
            inflight.finish_fetch(sent=decision.is_new)
            await self._robots_unavailable(page, decision)
        else:
            inflight.finish_fetch()
            page.count("refused/robots")
        return False

    async def _read_tdm_file(self, files: TdmFiles, url: str, inflight: InflightRequest) -> None:
        """Read the tdmrep.json of an origin before its first page, unless robots.txt forbids it.

        Raises :class:`_ReleaseLease` if this has used the time slot of the lease.
        """
        if files.knows(url) or not url.startswith(("http://", "https://")):
            return
        policy = None if self._robots is None else self._robots.policy(url)
        if policy is not None and not policy.allowed(origin_of(url) + TDM_PATH):
            return
        if not inflight.may_send():
            raise _ReleaseLease
        await files.read(url, inflight, self._settings.unreachable_timeout)
        if inflight.expires:
            raise _ReleaseLease

    def _site_directives(self, url: str) -> Directives:
        """Return the directives of robots.txt and tdmrep.json for a page."""
        policy = None if self._robots is None else self._robots.policy(url)
        signals = {} if policy is None else policy.content_signals
        rule = None if self._tdm_files is None else self._tdm_files.find(url)
        if rule is None:
            return Directives(content_signals=signals)
        return Directives(content_signals=signals, tdm_reservation=rule.reserves, tdm_policy=rule.policy)

    async def _robots_unavailable(self, page: Page, error: RobotsUnavailable) -> None:
        text = f"{error.kind}: {error}"
        if error.exhausted:
            await self._failed(page, error, RetryDecision(Resolution.FAILED, text), is_settled=True)
            return
        if error.is_new:
            set_attempt(page.request, page.lease.attempt, is_last=False)
            await self._report_error(page, error)
        page.finish(RetryDecision(Resolution.RETRY, text, error.seconds, free=True))
        await self._slow_down(page)

    # --- response --------------------------------------------------------------------------------------

    async def _after_request(self, page: Page, response: Response) -> bool:
        """Handle a status other than 2xx, and the hooks. Return whether to run the callback."""
        if self._after_request_hooks:
            response, action = await page.run_hook(
                "after_request", self._hooks.revise("after_request", response)
            )
            page.response = response
            if action is HookAction.IGNORE:
                return True
            if not self._continues(page, action, "after_request"):
                return False
        status = response.status
        if response.moved_to is not None:
            await self._redirect(page, response)
            return False
        is_known = status == NOT_MODIFIED and page.memory is not None
        if is_known or 200 <= status < 300 or status in self._settings.allowed_statuses:
            return True
        if status in REDIRECTS:
            await self._redirect(page, response)
            return False
        return await self._status_failed(page, response)

    async def _status_failed(self, page: Page, response: Response) -> bool:
        """Retry or give up a request, depending on its status. Return whether to run the callback anyway."""
        status, request = response.status, page.request
        if response.is_archived:
            request = request.replace(max_retries=0)
        decision = decide_after_status(
            self._settings,
            request,
            page.lease.attempt,
            status,
            _retry_after(response),
            blocked=status in self._blocked_statuses,
        )
        return await self._failed(page, StatusError(status, response), decision)

    async def _redirect(self, page: Page, response: Response) -> None:
        try:
            request = redirected(page.request, response, self._settings.max_redirects)
        except RedirectError as error:
            await self._failed(page, error, RetryDecision(Resolution.FAILED, str(error)), is_settled=True)
            return
        page.count("redirects")
        self._add(page, request)

    def _add(self, page: Page, request: Request) -> None:
        entry = self._links.entry(request)
        if isinstance(entry, Entry):
            page.entries.append(entry)
        else:
            page.count(f"refused/{entry}")

    def _follow_refresh(self, page: Page, response: Response, cap: float) -> list[Request]:
        """Add the page that a ``Refresh`` leads to, unless that takes longer than ``cap`` seconds, and return it."""
        found = response.refresh
        if found is None or found[0] > cap or found[1] == response.url:
            return []
        try:
            request = refreshed(page.request, response, found[1], self._settings.max_redirects)
        except RedirectError as error:
            page.count(f"refused/{str(error).partition(':')[0]}")
            return []
        page.count("refreshes")
        self._add(page, request)
        return [request]

    async def _follow_again(self, page: Page) -> None:
        """Follow the links that the callback of the last visit yielded."""
        assert page.memory is not None
        results, hops = unpack_links(page.memory, page.request.url)
        if results:
            found = CallbackResult()
            if len(page.memory.links) > RESULTS_BATCH:  # even compressed, a link takes at least a byte
                await self._collect_in_batches(results, page.request, found)
            else:
                self._links.collect(results, page.request, found)
            page.batches, page.entries = page.batches + found.batches, page.entries + found.entries
            _count_links(page, found)
        for hop in hops:
            self._add(page, hop)

    async def _parse(self, page: Page, response: Response, inflight: InflightRequest) -> None:
        revisits = self._revisits
        if revisits is not None and revisits.is_unchanged(page, response):
            revisits.mark_unchanged(page, response.status)  # the items of the last visit stay
            await self._follow_again(page)
            return
        request = page.request
        callback = self._callbacks_found.get(request.callback) or self._find_callback(request.callback)
        response.max_memory = self._settings.max_page_memory
        if page.reserved_memory:
            page.reserved_memory = await self._large_pages.prepare(response, page.reserved_memory)
        if (turn := self._pacer.next_turn(len(response.body))) is not None:
            await inflight.wait_for_turn(turn, len(response.body))
        began = time.perf_counter()
        streamed: CallbackResult | None = None
        if self._spider.streaming_callbacks and self._may_stream_links(page, response):
            streamed = CallbackResult()
            results = await self._run_streaming(page, callback(response, **request.cb_kwargs), streamed)
        else:
            results = await self.callbacks.run(callback, response, **request.cb_kwargs)
        seconds = time.perf_counter() - began
        page.record_time(CALLBACK, seconds)
        if seconds > _LONG_CALLBACK:
            self._warn_of_blocking(page, callback, seconds)
        results = await self._collect(page, results, response)
        if request.cookies and not self._has_warned_of_cookies:
            self._warn_of_cookies(request, results)
        if streamed is not None:
            page.batches = [*streamed.batches, *page.batches]
            _count_links(page, streamed)
        if page.decision is DONE:
            self._conclude(page, response, results)
            is_long = page.counters.get("links", 0) > 2 * RESULTS_BATCH
            if is_long and self._settings.max_queued_per_slot is None:
                page.batches = await self._link_stream.add_most(page.batches)

    def _find_callback(self, name: object) -> Callable[..., Any]:
        callback = self.callbacks.find(self._spider, _name(name))
        self._callbacks_found[name] = callback
        return callback

    def _warn_of_blocking(self, page: Page, callback: Callable[..., Any], seconds: float) -> None:
        lets_leases_expire = seconds > self._settings.lease_seconds
        if not self.callbacks.blocks(callback) or (self._has_warned_of_blocking and not lets_leases_expire):
            return
        self._has_warned_of_blocking = True
        text = "%s: callback %s took %.1f s, during which this worker did nothing else"
        if lets_leases_expire:
            text += " and its leases expired (lease_seconds), so its pages in progress are fetched again"
        text += "; set callback_threads"
        log.warning(text, page.lease.url, page.request.callback or "parse", seconds)

    def _warn_of_cookies(self, request: Request, results: list[Any]) -> None:
        """Log the first page whose requests to the same site lack the cookies of its own request, which Scrapy would keep."""
        origin = origin_of(request.url)
        for result in results:
            requests = result if result.__class__ is Links else [result]
            if any(
                isinstance(each, Request) and not each.cookies and origin_of(each.url) == origin
                for each in requests
            ):
                self._has_warned_of_cookies = True
                log.warning(
                    "%s: the requests that this page yields do not send the cookies of its request; pass them with"
                    " cookies=response.request.cookies, or set initial_cookies to send cookies with all requests",
                    request.url,
                )
                return

    def _conclude(self, page: Page, response: Response, results: list[Any]) -> None:
        """Complete a page whose callback has succeeded: its items, links and visit."""
        revisits = self._revisits
        hops: list[Request] = []
        if self._settings.refresh_delay_cap is not None:
            hops = self._follow_refresh(page, response, self._settings.refresh_delay_cap)
        visit = None if revisits is None else revisits.visit(page, results, hops)
        if page.items:
            self._put_items(page, response.base_url if self._media is not None else "", visit)
        if page.has_output:  # otherwise the page is counted when its items are complete
            counters, depth = page.counters, page.request.depth
            counters["pages"] = counters[_DEPTHS[min(depth, _MAX_DEPTH)]] = 1
        if visit is not None:
            page.visit = visit if page.has_output else without_items(visit)
            page.count(f"visits/{visit.change}")

    def _may_stream_links(self, page: Page, response: Response) -> bool:
        """Return whether the links of a callback may be queued while it runs, because nothing needs the complete list."""
        if _name(page.request.callback) not in self._spider.streaming_callbacks:
            return False
        traps = self._links.traps
        return (
            page.new_memory is None
            and not self._directives.are_set
            and not self._settings.callback_threads
            and self._settings.max_queued_per_slot is None
            and (traps is None or not traps.is_duplicate(page.lease.url, response.body))
        )

    async def _run_streaming(self, page: Page, results: Any, streamed: CallbackResult) -> list[Any]:
        """Run a callback to its end. Return its results without the links that were already added to the frontier."""
        if not isinstance(results, Iterator):
            return await results_of(results)
        others: list[Any] = []
        for result in results:
            if result.__class__ is Links:
                self._links.collect([result], page.request, streamed)
                await self._link_stream.add(streamed)
                await asyncio.sleep(0)
            else:
                others.append(result)
        return others

    def _put_items(self, page: Page, base_url: str, visit: PageVisit | None) -> None:
        """Count the items of a page; items with missing files wait in the frontier, together with the visit of the page."""
        if page.items and self._media is not None:
            if visit is not None:
                visit = msgspec.structs.replace(visit, page=page.lease.fingerprint)
            page.items, held = self._media.hold(page.items, page.request, page.item_key, base_url, visit)
            page.entries += held
            page.items_request = held[-1] if held else None
            page.has_output = not held
        if page.items:
            page.count("items", len(page.items))
            if self._unused_file_fields:
                self._warn_of_files(page)

    def _warn_of_files(self, page: Page) -> None:
        """Log the first item whose files are not downloaded, because the job has no place for them."""
        for item in page.items:
            for name in self._unused_file_fields:
                if field_of(item, name):
                    self._unused_file_fields = []
                    text = (
                        "%s: the files in the field %s of items are not downloaded; set files_store to the folder for them,"
                        " or files_fields={} to keep only their URLs"
                    )
                    log.warning(text, page.lease.url, name)
                    return

    async def _collect(self, page: Page, results: list[Any], response: Response | None) -> list[Any]:
        """Sort the results of user code into items and links, and run ``before_save``.

        Return the results whose links are followed.
        """
        if response is not None and self._directives.are_set:
            results = self._directives.apply(
                results, response, page.count, self._site_directives(response.url)
            )
        body = b"" if response is None else response.body
        traps = self._links.traps
        is_duplicate = traps is not None and traps.is_duplicate(page.lease.url, body)
        found = CallbackResult(penalty=-1 if is_duplicate else 0)
        if len(body) > LARGE:
            await self._collect_in_batches(results, page.request, found)
        else:
            self._links.collect(results, page.request, found)
        if traps is not None and body:
            traps.record_page(
                page.lease.url, page.request.depth, body, found.own_links, is_duplicate=is_duplicate
            )
            if is_duplicate:
                self._count_duplicate(page, found)
        if len(found.items) > 1:
            refuse_repeated(found.items)
        page.items, page.batches, page.entries = found.items, found.batches, found.entries
        if page.items and self._settings.item_meta_fields:
            page.items = with_meta_fields(page.items, page.request, self._settings.item_meta_fields)
        if page.items and self._before_save_hooks and not await self._before_save(page, response):
            return results
        if page.items and self._meter is not None:
            page.items = self._meter.measure(page.items, page)
        _count_links(page, found)
        if page.new_memory is not None and self._revisits is not None:
            page.items = self._revisits.select(page.items, page)
        return [] if DUPLICATE_CONTENT in found.refused else results

    async def _before_save(self, page: Page, response: Response | None) -> bool:
        """Run the ``before_save`` hooks, and count the items that they remove. Return whether processing continues."""
        before = len(page.items)
        action = await page.run_hook("before_save", self._hooks.run("before_save", response, page.items))
        goes_on = self._continues(page, action, "before_save")
        if action is not HookAction.RETRY and len(page.items) < before:
            page.count("dropped_items/hook", before - len(page.items))
        return goes_on

    def _count_duplicate(self, page: Page, found: CallbackResult) -> None:
        """Count a page that has the same content as another one, and drop its links if the settings say so."""
        page.count("duplicate_pages")
        skipped = sum(len(batch.urls) for batch in found.batches)
        if skipped and self._settings.duplicate_content == "skip":
            found.refused[DUPLICATE_CONTENT] += skipped
            found.batches = []

    async def _collect_in_batches(self, results: list[Any], parent: Request, found: CallbackResult) -> None:
        for part in in_batches(results):
            self._links.collect(part, parent, found)
            await asyncio.sleep(0)

    # --- decisions -------------------------------------------------------------------------------------

    def _continues(self, page: Page, action: HookAction, point: str) -> bool:
        """Execute the action of a hook. Return whether processing continues.

        Raises :class:`~skitter.errors.RetryRequest` if the hook asks for a retry and none is left.
        """
        if action in {HookAction.CONTINUE, HookAction.IGNORE}:
            return True
        if action in {HookAction.STOP, HookAction.FAIL}:
            self._control.apply(action, f"hook {point} at {page.lease.url}")
            if action is HookAction.FAIL:
                raise _ReleaseLease
            return True
        if action is HookAction.RETRY:
            decision = self._decide_failure(page, f"hook/{point}: asked for a retry", retryable=True)
            if decision.resolution is Resolution.FAILED:
                page.hook = point
                raise RetryRequest("asked for a retry")
            page.finish(decision)
        else:
            page.drop()
            page.count("refused/hook")
        return False

    def _decide_failure(self, page: Page, error: str, *, retryable: bool) -> RetryDecision:
        return decide_after_failure(
            self._settings, page.request, page.lease.attempt, error, retryable=retryable
        )

    async def _failed(
        self, page: Page, error: BaseException, decision: RetryDecision, *, is_settled: bool = False
    ) -> bool:
        """Finish a failed request by its decision, unless ``on_error`` or the errback decides otherwise.

        ``is_settled``: ``on_error`` cannot change the decision. Return whether to run the callback anyway.
        """
        page.remedy = error.remedy if isinstance(error, FetchError) else ""
        if isinstance(error, StatusError) and error.status == 401:
            page.remedy = f"set credentials for {origin_of(page.lease.url)}"
        try:
            return await self._retry_or_give_up(page, error, decision, is_settled=is_settled)
        except _ReleaseLease:
            page.finish(RetryDecision(Resolution.RETRY, decision.error, free=True))
        except RetryRequest as retry:  # an errback may retry a request that the retry rules give up
            await self._report_blocked(page, retry)
            page.finish(self._decide_failure(page, decision.error, retryable=True))
        except (Exception, SystemExit) as second:  # noqa: BLE001 - user code: an errback or hook that fails too
            page.is_error_logged = self._error_log.report(page.lease.url, second)
            page.finish(
                RetryDecision(
                    Resolution.FAILED,
                    f"{decision.error}; then {describe(second)}",
                    traceback=traceback_of(second),
                )
            )
        return False

    async def _report_blocked(self, page: Page, retry: RetryRequest) -> None:
        """Report to the fetcher that the site has blocked the identity of a page, if user code says so."""
        report = self._fetcher.capabilities.report_blocked
        sent = None if page.response is None else page.response.request
        if retry.blocked and report is not None and sent is not None:
            await report(sent)

    async def _report_error(self, page: Page, error: BaseException) -> None:
        """Report an error to ``on_error``; the hooks cannot change the decision."""
        if self._hooks["on_error"]:
            await self._hooks.report_error(page.request, error)

    async def _retry_or_give_up(
        self, page: Page, error: BaseException, decision: RetryDecision, *, is_settled: bool
    ) -> bool:
        is_final = decision.resolution is Resolution.FAILED
        set_attempt(page.request, page.lease.attempt, is_last=is_final)
        if is_settled:
            await self._report_error(page, error)
        elif self._hooks["on_error"]:
            action = await self._hooks.run("on_error", page.request, error)
            if action is HookAction.IGNORE:
                page.drop()
                page.count("errors/ignored")
                return isinstance(error, StatusError)
            may_retry = page.lease.attempt < allowed_retries(self._settings, page.request)
            # Without attempts left, the retry rules decide.
            if (action is not HookAction.RETRY or may_retry) and not self._continues(
                page, action, "on_error"
            ):
                return False
        if not (is_final and page.request.errback is not None and await self._run_errback(page, error)):
            page.finish(decision)
        return False

    async def _run_errback(self, page: Page, error: BaseException) -> bool:
        """Pass a final failure to the errback. Return whether the errback yielded any result: the request is then done."""
        page.new_memory = None
        errback = self.callbacks.find(self._spider, _name(page.request.errback))
        check_errback(errback)
        results = await self.callbacks.run(errback, page.request, error)
        response = page.response
        await self._collect(page, results, response)
        if page.decision is DONE:
            self._put_items(page, page.request.url if response is None else response.base_url, None)
        return page.decision is not DONE or bool(page.items or page.entries or page.batches)


def _kind_of_user_code(page: Page) -> str:
    return f"hook/{page.hook}" if page.hook else "callback"


def _count_links(page: Page, found: CallbackResult) -> None:
    counters = page.counters
    if found.links:
        counters["links"] = counters.get("links", 0) + found.links
    for reason, amount in found.refused.items():
        name = _refused_counter(reason)
        counters[name] = counters.get(name, 0) + amount


def _retry_after(response: Response) -> float | None:
    """Return the number of seconds for which a throttling server asks to wait, if it does."""
    if response.status not in THROTTLED:
        return None
    return parse_retry_after(response.header("retry-after") or None, response.header("date"))


def _name(callback: object) -> str | None:
    return callback if isinstance(callback, str) else None


ALL_META_FIELDS = "*"
"""Selects all names in ``meta`` and ``cb_kwargs``."""


def with_meta_fields(items: Sequence[Any], request: Request, names: Sequence[str]) -> list[Any]:
    """Return the items with the named values of ``meta`` and ``cb_kwargs`` as additional fields.

    Fields of the item are never overwritten, and ``cb_kwargs`` take precedence over ``meta``. Names that the request
    does not have are ignored. Items other than dicts become dicts. Raises
    :class:`~skitter.errors.StoreError` for an item that cannot be stored.
    """
    values = {**request.meta, **request.cb_kwargs}
    data = values if ALL_META_FIELDS in names else {name: values[name] for name in names if name in values}
    return [_with_fields(item, data) for item in items] if data else list(items)


def _with_fields(item: Any, data: dict[str, Any]) -> dict[str, Any]:
    fields = dict(item) if item.__class__ is dict else item_fields(item)
    for name, value in data.items():
        fields.setdefault(name, value)
    return fields
