"""RequestPipeline: one request on its way through the loop. Read :meth:`RequestPipeline.through` beside the drawing in the manual."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from skitter.errors import DeferRequest, RetryRequest, SkitterError, UndecodableRecord
from skitter.fetch.contract import MAY_START, Aborted, Fetcher, FetchError, asks_before_sending, fetch_watched
from skitter.frontier.records import Entry, Resolution
from skitter.item import item_fields
from skitter.request import Request, decode_request
from skitter.response import Response
from skitter.settings import Settings
from skitter.spider import Spider
from skitter.web.headers import parse_retry_after
from skitter.worker.callbacks import describe, find_callback, run_callback
from skitter.worker.hooks import HookAction, Hooks
from skitter.worker.leaser import InflightRequest
from skitter.worker.links import LinkCollector
from skitter.worker.page import DONE, Page
from skitter.worker.retry import (
    REDIRECTS,
    THROTTLED,
    Decision,
    RedirectError,
    StatusError,
    decide_after_failure,
    decide_after_status,
    redirected,
)
from skitter.worker.robots import RobotsDecision, RobotsGate

log = logging.getLogger("skitter.crawl")


class _HandBack(Exception):
    """The lease goes back untouched."""


class _Decided(Exception):
    """A hook has decided on the request before its answer was there."""


class RequestPipeline:
    """What a worker does with each of its requests, up to the verdict. Items and links are committed elsewhere.

    ``obey`` carries out the signals that concern the whole crawl; it is told where they were given. ``hold`` has the
    frontier give out nothing of a slot for some seconds.
    """

    def __init__(
        self,
        spider: Spider,
        settings: Settings,
        fetcher: Fetcher,
        hooks: Hooks,
        robots: RobotsGate | None,
        gatherer: LinkCollector,
        obey: Callable[[HookAction, str], None],
        hold: Callable[[str, float], Awaitable[None]],
    ) -> None:
        self._spider = spider
        self._settings = settings
        self._fetcher = fetcher
        self._hooks = hooks
        self._robots = robots
        self._gatherer = gatherer
        self._obey = obey
        self._hold = hold
        self._rewriting, self._revising = hooks["before_request"], hooks["after_request"]
        self._looks = bool(hooks["before_send"] or hooks["on_headers"])
        self._blocked_statuses: frozenset[int] = getattr(fetcher, "blocked_statuses", frozenset())
        self._asks_before_sending = asks_before_sending(fetcher)

    async def through(self, turn: InflightRequest) -> Page | None:
        """Take one request through the loop; ``None`` hands its lease back."""
        lease = turn.lease
        try:
            page = Page(lease, decode_request(lease.url, lease.record))
        except UndecodableRecord as error:
            page = Page(lease, Request(lease.url))
            kind = "record" if lease.record else "seed"
            page.finish(Decision(Resolution.FAILED, f"{kind}: {error}"))
            await self._tell(page, error)
            return page
        try:
            request = await self._before_request(page) if self._rewriting else page.request
            response = None if request is None else await self._fetch(page, request, turn)
            if response is not None and (
                self._is_plain(response) or await self._after_request(page, response)
            ):
                await self._parse(page, page.response or response)
        except _HandBack:
            return None
        except _Decided:
            turn.land()
        except RetryRequest as wish:
            text = f"callback: {wish}"
            await self._failed(page, wish, self._failure_verdict(page, text, retryable=True))
        except FetchError as error:
            turn.land()
            await self._fetch_failed(page, error)
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                raise
            text = f"callback: {describe(error)}"
            log.error("%s: %s", lease.url, describe(error), exc_info=_unexpected(error))  # noqa: TRY400 - some are expected
            await self._failed(page, error, self._failure_verdict(page, text, retryable=False))
        return page

    async def _fetch_failed(self, page: Page, error: FetchError) -> None:
        text = f"{error.kind}: {error}"
        if error.free:
            page.count(f"free/{error.kind}")
            page.finish(Decision(Resolution.RETRY, text, free=True))
        else:
            await self._failed(page, error, self._failure_verdict(page, text, retryable=error.retryable))

    async def _before_request(self, page: Page) -> Request | None:
        try:
            request, signal = await self._hooks.rewrite(page.request)
        except DeferRequest as wish:
            if wish.slot:
                await self._hold(page.lease.slot, wish.seconds)
                raise _HandBack from None
            page.finish(Decision(Resolution.RETRY, f"postponed: {wish}", wish.seconds, free=True))
            return None
        return request if self._goes_on(page, signal, "before_request") else None

    async def _is_allowed(
        self, robots: RobotsGate, page: Page, request: Request, turn: InflightRequest
    ) -> bool:
        answer = await robots.check(request.url, turn.lease, turn.may_start)
        if answer.passage is not RobotsDecision.OPEN:
            turn.land()
            self._turn_away(page, answer.passage, answer.seconds, answer.error)
            if answer.error:
                await self._tell(page, FetchError(f"robots: {answer.error}"))
            return False
        return True

    @staticmethod
    def _turn_away(page: Page, passage: RobotsDecision, seconds: float, error: str) -> None:
        if passage is RobotsDecision.SPENT:
            raise _HandBack
        if passage is RobotsDecision.FORBIDDEN:
            page.count("refused/robots")
        elif passage is RobotsDecision.DEFERRED:
            page.finish(Decision(Resolution.RETRY, f"robots: {error}", seconds, free=True))
        else:
            page.finish(Decision(Resolution.FAILED, f"robots: {error}"))

    async def _fetch(self, page: Page, request: Request, turn: InflightRequest) -> Response | None:
        """Return the answer, or ``None`` where robots.txt has decided otherwise."""
        if not self._asks_before_sending or turn.lease.start_within is None:
            return await self._fetch_now(page, request, turn)
        MAY_START.set(turn.may_start)
        try:
            return await self._fetch_now(page, request, turn)
        finally:
            MAY_START.set(None)  # what user code fetches from here on is no matter of this turn

    async def _fetch_now(self, page: Page, request: Request, turn: InflightRequest) -> Response | None:
        if self._robots is not None and not await self._is_allowed(self._robots, page, request, turn):
            return None
        if not turn.may_start():
            raise _HandBack
        response = await (self._looking(page, request, turn) if self._looks else self._fetcher.fetch(request))
        status = response.status
        turn.land(response.latency, refused=status in THROTTLED, retry_after=_retry_after(response))
        page.response = response
        page.count(f"status/{status}")
        page.count("bytes", len(response.body))
        return response

    async def _looking(self, page: Page, request: Request, turn: InflightRequest) -> Response:
        """Fetch with hooks looking on: right before it, and when the headers have come."""
        request, signal = await self._hooks.rewrite(request, "before_send")
        if not self._goes_on(page, signal, "before_send"):
            raise _Decided
        if not turn.may_start():
            raise _HandBack
        if not self._hooks["on_headers"]:
            return await self._fetcher.fetch(request)

        async def look(response: Response) -> bool:
            signal = await self._hooks.ask("on_headers", response)
            return self._goes_on(page, signal, "on_headers")

        try:
            return await fetch_watched(self._fetcher, request, look)
        except Aborted:
            raise _Decided from None

    def _is_plain(self, response: Response) -> bool:
        """Tell whether there is nothing to decide: nearly always."""
        return 200 <= response.status < 300 and not self._revising

    async def _after_request(self, page: Page, response: Response) -> bool:
        """Decide over the status; returns whether the response goes to the callback."""
        if self._revising:
            response, signal = await self._hooks.revise(response)
            page.response = response
            if signal is HookAction.IGNORE:
                return True
            if not self._goes_on(page, signal, "after_request"):
                return False
        status = response.status
        if 200 <= status < 300 or status in self._settings.allowed_statuses:
            return True
        if status in REDIRECTS:
            await self._redirect(page, response)
            return False
        wish = _retry_after(response)
        blocked = status in self._blocked_statuses
        verdict = decide_after_status(
            self._settings, page.request, page.lease.attempt, status, wish, blocked=blocked
        )
        return await self._failed(page, StatusError(status, response), verdict)

    async def _redirect(self, page: Page, response: Response) -> None:
        try:
            request = redirected(page.request, response, self._settings.max_redirects)
        except RedirectError as error:
            page.finish(Decision(Resolution.FAILED, str(error)))
            await self._tell(page, error)
            return
        page.count("redirects")
        entry = self._gatherer.entry(request)
        if isinstance(entry, Entry):
            page.entries.append(entry)
        else:
            page.count(f"refused/{entry}")

    async def _parse(self, page: Page, response: Response) -> None:
        callback = find_callback(self._spider, _name(page.request.callback))
        given = await run_callback(callback, response, **page.request.cb_kwargs)
        await self._take(page, given, response)
        if page.verdict is DONE:
            page.count("pages")

    async def _take(self, page: Page, given: list[Any], response: Response | None) -> None:
        """Sort what user code gave, and let the hooks see the items."""
        gathered = self._gatherer.gather(given, page.request)
        page.items, page.batches = gathered.items, gathered.batches
        page.entries = gathered.entries
        if page.items and self._settings.item_meta_fields:
            page.items = with_meta_fields(page.items, page.request, self._settings.item_meta_fields)
        if page.items and self._hooks["before_save"]:
            signal = await self._hooks.ask("before_save", response, page.items)
            if not self._goes_on(page, signal, "before_save"):
                return
        if gathered.links:
            page.count("links", gathered.links)
        for reason, amount in gathered.refused.items():
            page.count(f"refused/{reason}", amount)
        if page.items:
            page.count("items", len(page.items))

    # --- decisions -------------------------------------------------------------------------------------

    def _goes_on(self, page: Page, signal: HookAction, point: str) -> bool:
        """Carry out a hook's decision; returns whether the request goes on."""
        if signal in {HookAction.CONTINUE, HookAction.IGNORE}:
            return True
        if signal is HookAction.STOP:
            self._obey(signal, f"hook {point} at {page.lease.url}")
            return True
        if signal is HookAction.FAIL:
            self._obey(signal, f"hook {point} at {page.lease.url}")
            raise _HandBack
        if signal is HookAction.RETRY:
            page.finish(self._failure_verdict(page, f"hook/{point}: asked for a retry", retryable=True))
        else:
            self._drop(page)
            page.count("refused/hook")
        return False

    @staticmethod
    def _drop(page: Page) -> None:
        page.items, page.entries, page.batches = [], [], []
        page.finish(DONE)

    def _failure_verdict(self, page: Page, error: str, *, retryable: bool) -> Decision:
        return decide_after_failure(
            self._settings, page.request, page.lease.attempt, error, retryable=retryable
        )

    async def _failed(self, page: Page, error: BaseException, verdict: Decision) -> bool:
        """End a request that failed as its rules say, unless ``on_error`` or the errback decide otherwise.

        Returns whether the response is to go to the callback nevertheless.
        """
        try:
            return await self._give_up_or_retry(page, error, verdict)
        except _HandBack:
            page.finish(Decision(Resolution.RETRY, verdict.error, free=True))
        except RetryRequest:  # an errback may want what its rules would give up
            page.finish(self._failure_verdict(page, verdict.error, retryable=True))
        except (Exception, SystemExit) as second:  # noqa: BLE001 - user code: an errback or hook that fails too
            log.error("%s: %s", page.lease.url, describe(second))  # noqa: TRY400 - one line
            page.finish(Decision(Resolution.FAILED, f"{verdict.error}; then {describe(second)}"))
        return False

    async def _tell(self, page: Page, error: Exception) -> None:
        """Let ``on_error`` hear of a failure on which it has nothing to decide."""
        if self._hooks["on_error"]:
            await self._hooks.tell(page.request, error)

    async def _give_up_or_retry(self, page: Page, error: BaseException, verdict: Decision) -> bool:
        if self._hooks["on_error"]:
            signal = await self._hooks.ask("on_error", page.request, error)
            if signal is HookAction.IGNORE:
                self._drop(page)
                page.count("errors/ignored")
                return isinstance(error, StatusError)
            if not self._goes_on(page, signal, "on_error"):
                return False
        final = verdict.resolution is Resolution.FAILED
        if not (final and page.request.errback is not None and await self._rescued(page, error)):
            page.finish(verdict)
        return False

    async def _rescued(self, page: Page, error: BaseException) -> bool:
        """Let the errback see a failure that is final; if it gives anything the request is done with that."""
        errback = find_callback(self._spider, _name(page.request.errback))
        given = await run_callback(errback, page.request, error)
        await self._take(page, given, page.response)
        return page.verdict is not DONE or bool(page.items or page.entries or page.batches)


def _is_cancelled() -> bool:
    """Tell whether it is our own task that is being cancelled, not something that user code waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _retry_after(response: Response) -> float | None:
    """Return the seconds for which the server asks to be left alone, if it does."""
    if response.status not in THROTTLED:
        return None
    return parse_retry_after(response.header("retry-after") or None, time.time())


def _name(callback: object) -> str | None:
    return callback if isinstance(callback, str) else None


def _unexpected(error: BaseException) -> bool:
    """Whether a log reader needs the traceback: not for errors that say themselves what to do."""
    return not isinstance(error, SkitterError)


ALL_META_FIELDS = "*"
"""Stands for every name in ``meta`` and ``cb_kwargs``."""


def with_meta_fields(items: Sequence[Any], request: Request, names: Sequence[str]) -> list[Any]:
    """Return the items with the named values of ``meta`` and ``cb_kwargs`` as further fields.

    A field of the item itself is never overwritten, and ``cb_kwargs`` win over ``meta``. A name that the request
    does not have is passed over. Items other than dicts become dicts. Raises
    :class:`~skitter.errors.StoreError` for an item that cannot be stored.
    """
    there = {**request.meta, **request.cb_kwargs}
    data = there if ALL_META_FIELDS in names else {name: there[name] for name in names if name in there}
    return [_with_fields(item, data) for item in items] if data else list(items)


def _with_fields(item: Any, data: dict[str, Any]) -> dict[str, Any]:
    fields = dict(item) if item.__class__ is dict else item_fields(item)
    for name, value in data.items():
        fields.setdefault(name, value)
    return fields
