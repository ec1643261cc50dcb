"""Collector: registers callbacks for pages and elements, modeled on Colly, and runs them on the engine of all spiders."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec
from lxml import etree

from skitter.errors import QueryError, SettingsError, UsageError
from skitter.fetch.cookies import CookieJars, cookies_in, given_cookies
from skitter.forms import FormFile
from skitter.frontends.collector import run
from skitter.frontends.collector.debug import Debugger
from skitter.frontends.collector.group import Callback, Callbacks, CollectorGroup
from skitter.frontends.collector.options import (
    CLONE_OPTIONS,
    METHODS_OF_COLLY,
    OPTION_NAMES,
    OPTIONS_OF_COLLY,
    read_options,
)
from skitter.frontends.collector.request import CollectorRequest, VisitRefusal
from skitter.frontends.collector.storage import Storage, StorageThread
from skitter.html.selector import compile_css
from skitter.politeness import LimitRule
from skitter.request import Request

if TYPE_CHECKING:
    from skitter.run.crawl import RunResult
    from skitter.spider import Spider

Function = TypeVar("Function", bound=Callback)


class Collector:
    """Visits pages, and calls functions for their contents.

    ``name``
        Default name of the job. Default: the name of the file.
    ``debugger``
        Receives all events.
    ``options``
        See :class:`~skitter.frontends.collector.options.CollectorOptions`. Environment variables ``SKITTER_...`` override
        them.

    The events of a request are, in order: ``on_request``, ``on_request_headers``, ``on_response_headers``,
    ``on_response``, ``on_page``, ``on_html``, ``on_xml`` and ``on_scraped``, or ``on_error`` for a request that fails for good. Each
    ``on_...`` method is a decorator, or takes the function as its last argument. An event can have several functions.
    They can be plain or ``async`` functions, or generators. From ``on_response`` on, they can return or yield items and
    requests.

    Raises :class:`~skitter.errors.SettingsError` for an unknown option or an invalid value, and
    :class:`~skitter.errors.UsageError` for a debugger that is a class.
    """

    def __init__(self, name: str = "", *, debugger: Debugger | None = None, **options: Any) -> None:
        self.name = name or "collector"
        self.job_name = name
        self.options = read_options(options, os.environ)
        self.callbacks = Callbacks()
        self.callback: str | None = None
        """Callback name of its requests."""
        self.limits: list[LimitRule] = []
        self.group = CollectorGroup(debugger)
        self.group.add(self)

    def __setattr__(self, name: str, value: object) -> None:
        """Set an attribute. Raises :class:`~skitter.errors.UsageError` for an option, because the job has its options already."""
        if name in OPTION_NAMES or name in OPTIONS_OF_COLLY:  # Colly sets options like c.UserAgent = "..."
            raise UsageError(
                f"the option {name!r} of a collector cannot be set as an attribute",
                remedy=f"{OPTIONS_OF_COLLY.get(name, 'pass it')} when you create the collector or the clone",
                field=name,
            )
        super().__setattr__(name, value)

    if not TYPE_CHECKING:  # a type checker reports such names by itself

        def __getattr__(self, name: str) -> Any:
            """Raise AttributeError for an attribute that a collector lacks. For a method of Colly, name what to use instead."""
            remedy = METHODS_OF_COLLY.get(name)
            message = f"a collector has no attribute {name!r}" + (f"; {remedy}" if remedy else "")
            raise AttributeError(message, name=name, obj=self)

    # Registration

    def on_request(self, callback: Function) -> Function:
        """Call a function with each :class:`CollectorRequest` before it is sent. It can edit or abort the request."""
        return self._register("request", callback)

    def on_request_headers(self, callback: Function) -> Function:
        """Call a function with each :class:`CollectorRequest` just before it is sent, after the check of robots.txt."""
        return self._register("request_headers", callback)

    def on_response_headers(self, callback: Function) -> Function:
        """Call a function with each :class:`CollectorResponse` before its body is read.

        ``response.request.abort()`` skips the body.
        """
        return self._register("response_headers", callback)

    def on_response(self, callback: Function) -> Function:
        """Call a function with each :class:`CollectorResponse`."""
        return self._register("response", callback)

    def on_page(self, callback: Function) -> Function:
        """Call a function with the :class:`CollectorResponse` and the open page of each response that a browser loaded.

        The page is an object of Playwright (``playwright.async_api.Page``). skitter always closes it after the callbacks
        of the response. The function is not called for responses that were fetched by HTTP.
        """
        return self._register("page", callback)

    def on_error(self, callback: Function) -> Function:
        """Call a function with a :class:`CollectorResponse` and the error of each request that fails for good.

        This happens after all retries. The items and visits of the function replace those of the page; without any, the
        request becomes a dead letter. ``response.request.retry()`` also retries errors that are not retried by default.
        """
        return self._register("error", callback)

    def on_scraped(self, callback: Function) -> Function:
        """Call a function with each :class:`CollectorResponse` after all other callbacks of the page."""
        return self._register("scraped", callback)

    @overload
    def on_html(self, query: str) -> Callable[[Function], Function]: ...
    @overload
    def on_html(self, query: str, callback: Function) -> Function: ...
    def on_html(
        self, query: str, callback: Function | None = None
    ) -> Function | Callable[[Function], Function]:
        """Call a function with each :class:`Element` of HTML pages that a CSS query matches.

        Raises :class:`~skitter.errors.UsageError` for an invalid query, and for ``:matches()``, which is a regular expression
        in Colly and ``:is()`` in CSS.
        """
        _check_query(query, 'on_html("a[href]")')
        compile_css(query)
        if ":matches(" in query.lower():
            from skitter.html.translation import remedy_of  # noqa: PLC0415 - importing parsel takes 0.1 s

            raise QueryError(
                f"ambiguous CSS query {query!r}: :matches() is a regular expression in Colly, and :is() in CSS",
                remedy=f"for CSS, write :is(). {remedy_of(query)}",
                field="query",
            )
        return self._register_query("html", query, callback)

    @overload
    def on_xml(self, query: str) -> Callable[[Function], Function]: ...
    @overload
    def on_xml(self, query: str, callback: Function) -> Function: ...
    def on_xml(
        self, query: str, callback: Function | None = None
    ) -> Function | Callable[[Function], Function]:
        """Call a function with each :class:`XmlElement` of XML and HTML pages that an XPath query matches.

        Raises :class:`~skitter.errors.UsageError` for an invalid query.
        """
        _check_query(query, 'on_xml("//item")')
        try:
            etree.XPath(query)
        except etree.XPathSyntaxError as error:
            raise UsageError(
                f"invalid XPath query {query!r}: {error}", remedy="correct it (XPath 1.0)", field="query"
            ) from None
        return self._register_query("xml", query, callback)

    def on_html_detach(self, query: str) -> bool:
        """Remove the callbacks of a CSS query in this process. Return whether there were any."""
        return self.callbacks.drop_query("html", query)

    def on_xml_detach(self, query: str) -> bool:
        """Remove the callbacks of an XPath query in this process. Return whether there were any."""
        return self.callbacks.drop_query("xml", query)

    def detach(self, callback: Callback) -> bool:
        """Remove a callback from all events in this process. Return whether it was registered."""
        return self.callbacks.drop(callback)

    def seeds(self, function: Function) -> Function:
        """Register the function that yields the start URLs and requests; a decorator.

        The function can be a generator (``async`` or not), return a list, or call :meth:`visit` and similar methods. It
        receives the arguments of the command line (``-a NAME=VALUE``) by name. It must yield the same requests in the
        same order each time.
        """
        self.group.seeds = function
        return function

    def set_proxy_func(self, choose: Callable[[CollectorRequest], str | None]) -> None:
        """Choose the proxy of each request with a function. ``None``: the proxy of the job."""

        def set_proxy(request: CollectorRequest) -> None:
            request.proxy = choose(request) or request.proxy

        self.callbacks.add("request", set_proxy)

    def set_redirect_handler(self, follows: Callable[[CollectorRequest, Sequence[str]], bool | None]) -> None:
        """Decide with a function whether a redirect is followed.

        The function receives the request for the new address, which it can change, and the URLs that redirected to it,
        oldest first. If it returns ``False``, the request is not sent.
        """

        def ask(request: CollectorRequest) -> None:
            if request.request.redirects and follows(request, request.request.redirects) is False:
                request.abort()

        self.callbacks.add("request", ask)

    def limit(self, rule: LimitRule | None = None, **fields: Any) -> None:
        """Add a :class:`~skitter.politeness.LimitRule`, or one with the given fields. The first matching rule applies.

        The limits apply to each host separately; with ``unit="rule"``, all matching hosts share them. Raises
        :class:`~skitter.errors.SettingsError` for invalid fields.
        """
        if rule is None:
            from skitter.settings import limit_rule  # noqa: PLC0415 - registering callbacks needs no settings

            rule = limit_rule(fields)
        self.group.root.limits.append(rule)

    def set_storage(self, storage: Storage) -> None:
        """Keep visited pages and cookies after this crawl; see :class:`~skitter.frontends.collector.storage.Storage`.

        Call it where callbacks are registered, so that every worker process calls it.
        """
        self.group.storage = StorageThread(storage)

    # Visits

    def visit(self, url: str, **fields: Any) -> VisitRefusal | None:
        """Fetch a URL with this collector.

        In a callback, the new request is a child of the page, one level deeper, with an empty context (to keep the
        context, use :meth:`CollectorRequest.visit`). Before a run, it is a start request of the next :meth:`run`.
        ``fields`` are fields of :class:`~skitter.request.Request`, and ``ctx``. Return the reason why the URL is out of
        scope, or ``None``; see :meth:`CollectorRequest.visit`.

        Raises :class:`~skitter.errors.UsageError` during a run outside of callbacks.
        """
        return self._origin.visit(url, via=self, **self._bare(fields))

    def visit_all(self, urls: Iterable[str]) -> None:
        """Fetch many URLs."""
        self._origin.visit_all(urls, via=self, ctx={})

    def head(self, url: str, **fields: Any) -> None:
        """Send a HEAD request."""
        self.send("HEAD", url, **fields)

    def post(self, url: str, data: Mapping[str, str], **fields: Any) -> None:
        """Send a form with POST, URL-encoded."""
        self._origin.post(url, data, via=self, **self._bare(fields))

    def post_raw(self, url: str, body: bytes | str, content_type: str = "", **fields: Any) -> None:
        """Send a raw body with POST."""
        self._origin.post_raw(url, body, content_type, via=self, **self._bare(fields))

    def post_multipart(self, url: str, parts: Mapping[str, str | bytes | FormFile], **fields: Any) -> None:
        """Send a multipart form with POST. Parts can be files."""
        self._origin.post_multipart(url, parts, via=self, **self._bare(fields))

    def send(self, method: str, url: str, **fields: Any) -> None:
        """Send a request with any method."""
        self._origin.send(method, url, via=self, **self._bare(fields))

    def set_cookies(self, url: str, cookies: Mapping[str, str] | Iterable[str]) -> None:
        """Set cookies as a response of a URL would: before a run for all workers and sessions, or in a callback.

        ``cookies``
            Values by name, or values of ``Set-Cookie`` with their attributes, such as ``"id=7; Path=/; Domain=example.com"``.

        In a callback, they are set for its session when the callback ends, before the requests that it made are sent.
        Raises :class:`~skitter.errors.SkitterError` for a cookie that the URL may not set, with ``disable_cookies``, and
        during a run outside of callbacks.
        """
        self._refuse_without_cookies()
        lines = (
            [f"{name}={value}; Path=/" for name, value in cookies.items()]
            if isinstance(cookies, Mapping)
            else list(cookies)
        )
        given_cookies({url: lines})
        request = self._origin.request
        if self.group.worker is None:
            self.group.initial_cookies.setdefault(url, []).extend(lines)
        else:
            self.group.new_cookies.append((url, lines, request.session))

    async def cookies(self, url: str) -> dict[str, str]:
        """Return the cookies that a request for a URL would send, by name."""
        self._refuse_without_cookies()
        current, worker = self.group.current_request, self.group.worker
        if worker is not None:
            return await worker.cookies(url, "" if current is None else current.request.session)
        jars = CookieJars()
        jars.seed(given_cookies(self.group.initial_cookies))
        return cookies_in(jars.header_for(Request(url)))

    def _refuse_without_cookies(self) -> None:
        if self.group.root.options.disable_cookies:
            raise UsageError(
                "the collector keeps no cookies", remedy="remove disable_cookies", field="cookies"
            )

    async def has_visited(self, url: str | Request) -> bool:
        """Return whether a URL or a request is known to the job: queued, leased, done or failed. Only during a run.

        A URL means a GET request. For a form that was posted, pass ``Request.form(url, data)``.
        """
        return await self.group.knows(url if isinstance(url, Request) else Request(url))

    @property
    def _origin(self) -> CollectorRequest:
        """The page of the running callback, or a source without a page outside of callbacks."""
        current = self.group.current_request
        if current is not None:
            return current
        if self.group.worker is not None:
            raise UsageError(
                "a visit during a run must come from a callback",
                remedy="call visit in a callback, or add the URL with `skitter add`",
            )
        return CollectorRequest(self, Request(""), self.group.pending)

    @staticmethod
    def _bare(fields: dict[str, Any]) -> dict[str, Any]:
        return {"ctx": {}, **fields}

    def fields(self, context: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of all requests of this collector that have a given context."""
        fields: dict[str, Any] = {}
        if self.callback is not None:
            fields["callback"] = self.callback
        if self.callbacks.error:
            fields["errback"] = f"error:{self.callback or ''}"
        if context:
            fields["meta"] = context
        if self.options.allow_url_revisit:
            fields["dont_filter"] = True
        if self.options.encoding is not None:
            fields["encoding"] = self.options.encoding
        return fields

    # Runs

    def clone(self, name: str = "", **options: Any) -> Collector:
        """Return another collector of the same job, with the same options and no callbacks.

        ``name``
            Must be the same in every process and run, because stored requests contain it. Default: a number.
        ``options``
            Replacements for options in :data:`~skitter.frontends.collector.options.CLONE_OPTIONS`. All other options
            belong to the job.

        Create clones before the run: the job is made of the collectors that exist when it starts. Raises
        :class:`~skitter.errors.UsageError` during a run, and :class:`~skitter.errors.SettingsError` for an option of the job
        and for an invalid value.
        """
        if self.group.worker is not None:
            raise UsageError(
                "a collector cannot be cloned during a run",
                remedy="create the clone where callbacks are registered; pass values to its callbacks in ctx",
                field="name",
            )
        if foreign := set(options) - CLONE_OPTIONS:
            raise SettingsError(
                f"a clone cannot have its own {min(foreign)!r}",
                remedy="set it on the first collector",
                field=min(foreign),
            )
        clone = Collector.__new__(Collector)
        clone.name = name or f"clone-{len(self.group.members)}"
        clone.job_name = ""
        clone.options = read_options(msgspec.structs.asdict(self.options) | options, {})
        clone.callbacks = Callbacks()
        clone.callback = f"collector:{clone.name}"
        clone.limits = []
        clone.group = self.group
        self.group.add(clone)
        return clone

    def run(self, **options: Any) -> RunResult:
        """Run the crawl until its end. ``options`` are the fields of :class:`~skitter.frontends.collector.run.RunOptions`.

        The first Ctrl-C stops the crawl gracefully, the second one immediately. Raises
        :class:`~skitter.errors.UsageError` on a running event loop (use ``await crawler.crawl()`` there), and while
        skitter imports the file. Raises another :class:`~skitter.errors.SkitterError` if the crawl cannot start or fails.
        """
        return run.run(self.group, run.RunOptions(**options))

    wait = run
    """Alias of :meth:`run`, the name in Colly."""

    async def crawl(self, **options: Any) -> RunResult:
        """Run the crawl like :meth:`run`, but on the running event loop. Cancelling the call aborts the crawl."""
        return await run.crawl(self.group, run.RunOptions(**options))

    def stop(self, reason: str = "the collector was stopped") -> None:
        """Stop the crawl gracefully on all machines: requests in progress are finished.

        Call it from a callback, or on the event loop of the crawl.
        """
        self.group.stop(reason)

    def __spider__(self, name: str, job: str) -> type[Spider] | None:
        """Return the spider class of this collector and its clones; see :mod:`skitter.run.loader`."""
        return run.spider_class(self.group, name, job) if self.group.root is self else None

    # Internals

    def _register(self, point: str, callback: Function) -> Function:
        self.callbacks.add(point, callback)
        return callback

    def _register_query(
        self, point: str, query: str, callback: Function | None
    ) -> Function | Callable[[Function], Function]:
        if callback is not None:
            self.callbacks.select(point, query, callback)
            return callback

        def decorate(function: Function) -> Function:
            self.callbacks.select(point, query, function)
            return function

        return decorate

    def __repr__(self) -> str:
        return f"<Collector {self.name}>"


def _check_query(query: object, example: str) -> None:
    if not isinstance(query, str):  # a function, if the decorator was used without a query
        raise UsageError(f"{query!r} is not a query", remedy=f"write @crawler.{example}", field="query")
