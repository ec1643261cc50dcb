"""CollectorSpider: the spider that runs the callbacks of a collector and its clones."""

from __future__ import annotations

import inspect
from base64 import b64decode, b64encode
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from lxml import etree

from skitter.browsing import PLAIN_BROWSING, Browsing
from skitter.errors import FetchError, NoSeeds, RetryRequest, SpiderError, StatusError
from skitter.frontends.collector.element import Element, XmlElement, select_xpath
from skitter.frontends.collector.group import Callback, CollectorGroup
from skitter.frontends.collector.request import CollectorRequest, PendingRequests, VisitRefusal
from skitter.frontends.collector.response import CollectorResponse, xml_file
from skitter.html.selector import Selector
from skitter.request import Request, decode_request, encode_request
from skitter.response import Response
from skitter.spider import Spider
from skitter.worker.callbacks import CallbackRunner, results_of
from skitter.worker.hooks import HookAction

if TYPE_CHECKING:
    from skitter.frontends.collector.collector import Collector
    from skitter.worker.worker import Worker


class CollectorSpider(Spider):
    """Base of the spider class that is created for a collector.

    Hooks are set only if a callback needs them, so unused events cost nothing.
    """

    group: ClassVar[CollectorGroup]
    own_meta = True  # meta is the ctx of the requests

    def __init__(self, visits: Sequence[Any] = (), **arguments: Any) -> None:
        super().__init__()
        self._visits = visits
        self._arguments = arguments
        self._failed_pages: dict[int, tuple[BaseException, Response]] = {}
        """Pages whose callbacks have failed, until ``on_error`` is called. The ids of their errors are unique as long as the errors exist."""
        self._each_has_bounds = not self.group.share_bounds
        for member in self.group.members.values():
            setattr(self, member.callback or "parse", partial(self._collect, member))
            setattr(self, f"error:{member.callback or ''}", partial(self._give_up, member))
        if self._edits_requests():
            self.before_request = self._before_request
        if self.group.have("request_headers"):
            self.before_send = self._before_send
        if self.group.have("response_headers"):
            self.on_headers = self._on_headers

    def _edits_requests(self) -> bool:
        group = self.group
        own = ("user_agent", "headers", "proxy", "timeout")
        return (
            group.have("request", "page")
            or self._each_has_bounds
            or any(
                getattr(member.options, name) != getattr(group.root.options, name)
                for member in group.members.values()
                for name in own
            )
        )

    # Start and stop

    async def on_start(self, worker: Worker) -> None:
        """Keep the worker, so that callbacks can stop and query it."""
        self.group.worker = worker
        if self.group.storage is not None:
            await self.group.storage.init()

    def on_stop(self, worker: Worker) -> None:
        """Drop the worker."""
        if self.group.worker is worker:
            self.group.worker = None

    async def start(self) -> AsyncIterator[Request | str]:
        """Yield the visits from outside of callbacks, then the results of the ``seeds`` function."""
        found_any = False
        pending = map(unpack_request, self._visits) if self._visits else self.group.pending.peek()
        for request in pending:
            found_any = True
            yield request
        async for request in self._seeds():
            found_any = True
            yield request
        if not found_any:
            raise NoSeeds(
                "the collector has no start requests",
                remedy="call visit at the top level of the file, or decorate a function with @crawler.seeds",
            )

    async def _seeds(self) -> AsyncIterator[Request]:
        if self.group.seeds is None:
            return
        visits = PendingRequests()
        root = self.group.root
        self.group.set_current(CollectorRequest(root, Request(""), visits))
        try:
            seeds = self.group.seeds(**self._arguments)
            if inspect.isawaitable(seeds):
                seeds = await seeds
            async for seed in _each(seeds):
                visits.add([Request(seed, **root.fields({})) if isinstance(seed, str) else seed])
                await self.group.store_cookies()
                for request in visits.take():
                    yield request
            await self.group.store_cookies()
            for request in visits.take():
                yield request
        finally:
            self.group.set_current(None)

    # Before the response

    async def _before_request(self, request: Request) -> Request | HookAction | None:
        group = self.group
        member = group.collector_of(request)
        if self._each_has_bounds and not group.admits(member, request):
            return HookAction.DROP
        request = _with_options(member, request)
        if member.callbacks.page:
            request = request.replace(
                browsing=Browsing(keep_page=True).over(request.browsing or PLAIN_BROWSING)
            )
        return await self._ask(member, "request", request)

    async def _before_send(self, request: Request) -> Request | HookAction | None:
        return await self._ask(self.group.collector_of(request), "request_headers", request)

    async def _on_headers(self, response: Response) -> HookAction | None:
        assert response.request is not None
        member = self.group.collector_of(response.request)
        view = CollectorRequest(member, response.request, PendingRequests(response), response, has_body=False)
        self.group.emit("response_headers", member, response.url, {"status": response.status})
        await self._call_all(member.callbacks.response_headers, view, CollectorResponse(view, response))
        return HookAction.DROP if view.aborted else None

    async def _ask(self, member: Collector, point: str, request: Request) -> Request | HookAction | None:
        visits = PendingRequests(Response(request.url, 0, request=request))
        view = CollectorRequest(member, request, visits, has_body=False)
        self.group.emit(point, member, request.url, {"method": request.method})
        await self._call_all(getattr(member.callbacks, point), view, view)
        return HookAction.DROP if view.aborted else view.edited()

    async def _call_all(self, callbacks: Sequence[Callback], view: CollectorRequest, subject: object) -> None:
        """Call the callbacks of an event before the body, until one aborts, and add their visits immediately."""
        runner = _runner_of(self.group)
        with self.group.callbacks_of(view):
            for callback in callbacks:
                value = await runner.call(callback, subject)
                if value is not None and value.__class__ is not VisitRefusal and await results_of(value):
                    raise SpiderError(
                        f"callback {getattr(callback, '__name__', callback)!r} returned results before the response",
                        remedy="return items and requests from on_response on",
                    )
                if view.aborted:
                    break
        await self.group.store_cookies()
        if visits := view.take_visits():
            assert self.group.worker is not None, "a worker runs the hook"
            await self.group.worker.add(visits, view.request)

    # After the response

    async def _collect(self, member: Collector, response: Response) -> list[Any]:
        """Run the callbacks of a page, and return their results."""
        assert response.request is not None
        try:
            response = await xml_file(response, response.request.max_body or self.settings.max_body)
            page = _Page(member, response)
            with self.group.callbacks_of(page.request):
                await page.run()
        except Exception as error:
            if member.callbacks.error and _is_final(error, response):
                self._failed_pages[id(error)] = error, response
            raise
        results = page.close()
        if self.group.storage is not None:
            results = await self.group.storage.unvisited(results)
            await self.group.storage.mark(page.request.request)
        return results

    async def _give_up(self, member: Collector, request: Request, error: BaseException) -> list[Any]:
        """Run the callbacks of a request that fails for good."""
        if isinstance(error, StatusError):
            response = error.response
        else:
            no_response = Response(request.url, 0, request=request)
            _, response = self._failed_pages.pop(id(error), (error, no_response))
        page = _Page(member, response)
        self.group.emit("error", member, request.url, {"error": str(error), "status": response.status})
        with self.group.callbacks_of(page.request):
            for callback in member.callbacks.error:
                await page.call(callback, page.response, error)
        return page.close()


class _Page:
    """A response while its callbacks run."""

    def __init__(self, member: Collector, response: Response) -> None:
        request = response.request
        assert request is not None
        self._member = member
        self._raw = response
        self._knows_prefixes = False
        self._visits = PendingRequests(response)
        self._runner = _runner_of(member.group)
        self.request = CollectorRequest(member, request, self._visits, response)
        self.response = CollectorResponse(self.request, response)

    def close(self) -> list[Any]:
        """Return the results of the page. Raises :class:`~skitter.errors.RetryRequest` if a callback asked for a retry."""
        visits = self._visits.close()
        if self.request.wants_retry:
            raise RetryRequest("the callback asked for a retry")
        return visits

    async def call(self, callback: Callback, *arguments: Any) -> None:
        """Call a callback, and add its results."""
        value = await self._runner.call(callback, *arguments)
        if value is not None and value.__class__ is not VisitRefusal:
            self._visits.add(await results_of(value))
        if self._member.group.new_cookies:
            await self._member.group.store_cookies()

    async def run(self) -> None:
        """Run all callbacks in order, until one aborts."""
        callbacks = self._member.callbacks
        await self._each("response", callbacks.response, self.response)
        if self._raw.page is not None:
            await self._each("page", callbacks.page, self.response, self._raw.page)
        if callbacks.html and self._raw.is_html:
            for query, callback in callbacks.html:
                await self._select("html", query, callback)
        if callbacks.xml and (self._raw.is_html or self._raw.is_xml):
            for query, callback in callbacks.xml:
                await self._select("xml", query, callback)
        await self._each("scraped", callbacks.scraped, self.response)

    async def _each(self, point: str, callbacks: tuple[Callback, ...], *subjects: object) -> None:
        if not self._continues():
            return
        self._member.group.emit(point, self._member, self._raw.url, {"status": self._raw.status})
        for callback in callbacks:
            if self._continues():
                await self.call(callback, *subjects)

    async def _select(self, point: str, query: str, callback: Callback) -> None:
        if not self._continues():
            return
        html = point == "html"
        make = Element if html else XmlElement
        found = self._raw.css(query) if html else select_xpath(self._xml_page(), query)
        for index, selector in enumerate(found):
            self._member.group.emit(point, self._member, self._raw.url, {"query": query})
            await self.call(callback, make(self.response, selector, index))
            if not self._continues():
                return

    def _xml_page(self) -> Selector:
        """Return the page as a selector that knows the namespace prefixes that the page declares."""
        page = self._raw.selector
        if self._raw.is_xml and not self._knows_prefixes:
            self._knows_prefixes = True
            for _, (prefix, uri) in etree.iterwalk(page.root, events=["start-ns"]):
                if prefix:
                    page.register_namespace(prefix, uri)
        return page

    def _continues(self) -> bool:
        return not (self.request.aborted or self.request.wants_retry)


def _is_final(error: Exception, response: Response) -> bool:
    """Return whether an error of a callback is passed to ``on_error`` next, without a retry and not replaced by another error."""
    is_page_lost = response.open_page is not None and response.open_page.failure is not None
    return not isinstance(error, (FetchError, RetryRequest)) and not is_page_lost


def _runner_of(group: CollectorGroup) -> CallbackRunner:
    return CallbackRunner() if group.worker is None else group.worker.callbacks


def _with_options(member: Collector, request: Request) -> Request:
    """Return a request with the options in which its collector differs from the job."""
    options, common = member.options, member.group.root.options
    if options is common:
        return request
    headers = {} if options.headers == common.headers else dict(options.headers)
    if options.user_agent and options.user_agent != common.user_agent:
        headers["User-Agent"] = options.user_agent
    changes: dict[str, Any] = {}
    if headers:
        changes["headers"] = headers | request.headers
    if options.proxy != common.proxy and request.proxy is None:
        changes["proxy"] = options.proxy
    if options.timeout != common.timeout and request.timeout is None:
        changes["timeout"] = options.timeout
    return request.replace(**changes) if changes else request


async def _each(seeds: Any) -> AsyncIterator[Any]:
    if isinstance(seeds, AsyncIterable):
        async for seed in seeds:
            yield seed
    elif isinstance(seeds, (str, Request)):
        yield seeds
    else:
        for seed in seeds or ():
            yield seed


def pack_request(request: Request) -> str | dict[str, str]:
    """Return a request as a plain value for the arguments of a job, which worker processes receive."""
    record = encode_request(request)
    if record == encode_request(Request(request.url)):
        return request.url
    return {"url": request.url, "record": b64encode(record).decode()}


def unpack_request(kept: Any) -> Request:
    """Return the request from a value of :func:`pack_request`."""
    if isinstance(kept, str):
        return Request(kept)
    return decode_request(kept["url"], b64decode(kept["record"]))
