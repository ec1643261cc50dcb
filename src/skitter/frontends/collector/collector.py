"""Collector: callbacks for what a page holds, after the model of Colly, on the engine of every spider."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from lxml import etree

from skitter.errors import SettingsError, UsageError
from skitter.frontends.collector import run
from skitter.frontends.collector.debug import Debugger
from skitter.frontends.collector.group import Callback, Callbacks, CollectorGroup, current
from skitter.frontends.collector.options import CLONE_OPTIONS, read_options
from skitter.frontends.collector.request import CollectorRequest, FormFile
from skitter.html.query import compile_css
from skitter.politeness import LimitRule
from skitter.request import Request

if TYPE_CHECKING:
    from skitter.run.crawl import RunResult
    from skitter.spider import Spider

Function = TypeVar("Function", bound=Callback)


class Collector:
    """Visits pages and calls functions for what they hold.

    ``name``
        Of the job, where it is given no other; default: the name of its file.
    ``debugger``
        Hears of every event.
    ``options``
        See :class:`~skitter.frontends.collector.options.CollectorOptions`; environment variables ``SKITTER_...`` win over them.

    The points of a request, in their order: ``on_request``, ``on_request_headers``, ``on_response_headers``,
    ``on_response``, ``on_html``, ``on_xml``, ``on_scraped``; or ``on_error`` for one that is given up. Each ``on_...``
    is a decorator, or takes the function as its last argument; several functions may stand at a point, plain or
    ``async``, generators too: what they return or yield from ``on_response`` on is items and requests.

    Raises :class:`~skitter.errors.SettingsError` for an unknown option or a value that does not fit.
    """

    def __init__(self, name: str = "", *, debugger: Debugger | None = None, **options: Any) -> None:
        self.name = name or "collector"
        self.job_name = name
        self.options = read_options(options, os.environ)
        self.callbacks = Callbacks()
        self.callback: str | None = None
        """What its requests name in place of a spider's method."""
        self.limits: list[LimitRule] = []
        self.group = CollectorGroup(debugger)
        self.group.add(self)

    # Registration

    def on_request(self, callback: Function) -> Function:
        """Call with each :class:`CollectorRequest` before it is sent; it may be edited or aborted."""
        return self._register("request", callback)

    def on_request_headers(self, callback: Function) -> Function:
        """Call at the last moment before a request is sent, when robots.txt allows it."""
        return self._register("request_headers", callback)

    def on_response_headers(self, callback: Function) -> Function:
        """Call with a :class:`CollectorResponse` that has no body yet; ``response.request.abort()`` leaves it unread."""
        return self._register("response_headers", callback)

    def on_response(self, callback: Function) -> Function:
        """Call with each :class:`CollectorResponse`."""
        return self._register("response", callback)

    def on_error(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """Call with a :class:`CollectorResponse` and the error of each request that is given up.

        That is after all retries. What it gives or visits stands for the page; if it gives nothing the request
        becomes a dead letter. ``response.request.retry()`` tries also what the rules would not.
        """
        return self._register("error", callback)

    def on_scraped(self, callback: Function) -> Function:
        """Call with each :class:`CollectorResponse` after all other callbacks of the page."""
        return self._register("scraped", callback)

    def on_html(self, query: str, callback: Callback | None = None) -> Any:
        """Call with each :class:`Element` of HTML pages that a CSS query finds.

        Raises :class:`~skitter.errors.UsageError` for what is no CSS.
        """
        compile_css(query)
        return self._register_query("html", query, callback)

    def on_xml(self, query: str, callback: Callback | None = None) -> Any:
        """Call with each :class:`XmlElement` of XML and HTML pages that an XPath query finds.

        Raises :class:`~skitter.errors.UsageError` for what is no XPath.
        """
        try:
            etree.XPath(query)
        except etree.XPathSyntaxError as error:
            raise UsageError(
                f"{query!r} is no XPath query: {error}", remedy="correct it (this is XPath 1.0)"
            ) from None
        return self._register_query("xml", query, callback)

    def on_html_detach(self, query: str) -> bool:
        """Forget the callbacks of a CSS query, in this process; returns whether there were any."""
        return self.callbacks.drop_query("html", query)

    def on_xml_detach(self, query: str) -> bool:
        """Forget the callbacks of an XPath query, in this process; returns whether there were any."""
        return self.callbacks.drop_query("xml", query)

    def detach(self, callback: Callback) -> bool:
        """Forget a callback wherever it stands, in this process; returns whether it stood anywhere."""
        return self.callbacks.drop(callback)

    def seeds(self, function: Function) -> Function:
        """Name the function that gives the first URLs and requests, as many as there are; as a decorator.

        A generator (``async`` or not) or a function that returns a list, or calls ``visit`` and its like. It gets the
        arguments of the command line (``-a NAME=VALUE``) by their names. It has to give the same in the same order each time.
        """
        self.group.seeds = function
        return function

    def set_proxy_func(self, choose: Callable[[CollectorRequest], str | None]) -> None:
        """Have each request sent by the proxy that a function names; ``None``: as the job has it."""

        def set_proxy(request: CollectorRequest) -> None:
            request.proxy = choose(request) or request.proxy

        self.callbacks.add("request", set_proxy)

    def limit(self, rule: LimitRule | None = None, **fields: Any) -> None:
        """Add a :class:`~skitter.politeness.LimitRule`, given as such or by its fields. The first that matches holds.

        Each host has its own delay and concurrency_per_slot; ``unit="rule"`` makes one pool of all hosts that it matches.
        Raises :class:`~skitter.errors.SettingsError`.
        """
        if rule is None:
            try:
                rule = msgspec.convert(fields, LimitRule)
            except msgspec.ValidationError as error:
                raise SettingsError(
                    f"limit rule {fields}: {error}", remedy="see LimitRule in the manual"
                ) from error
        self.group.root.limits.append(rule)

    # Visits

    def visit(self, url: str, **fields: Any) -> None:
        """Fetch a URL with this collector.

        Within a callback it comes from that page, one step deeper, with no context of its own (see
        :meth:`CollectorRequest.visit` for one that takes the context along). Elsewhere it is one of the first pages,
        for the next :meth:`run`. ``fields`` are those of :class:`~skitter.request.Request`, and ``ctx``.
        """
        if fields:
            self.send("GET", url, **fields)
        else:
            self.visit_all([url])

    def visit_all(self, urls: Iterable[str]) -> None:
        """Fetch many URLs."""
        self._origin.visit_all(urls, via=self, ctx={})

    def head(self, url: str, **fields: Any) -> None:
        """Ask for the headers of a URL."""
        self.send("HEAD", url, **fields)

    def post(self, url: str, data: Mapping[str, str], **fields: Any) -> None:
        """Send a form."""
        self._origin.post(url, data, via=self, **self._bare(fields))

    def post_raw(self, url: str, body: bytes | str, content_type: str = "", **fields: Any) -> None:
        """Send a body as it is."""
        self._origin.post_raw(url, body, content_type, via=self, **self._bare(fields))

    def post_multipart(self, url: str, parts: Mapping[str, str | bytes | FormFile], **fields: Any) -> None:
        """Send a form of several parts, files among them."""
        self._origin.post_multipart(url, parts, via=self, **self._bare(fields))

    def send(self, method: str, url: str, **fields: Any) -> None:
        """Send any request."""
        self._origin.send(method, url, via=self, **self._bare(fields))

    async def has_visited(self, url: str) -> bool:
        """Tell whether the job has met a URL: queued, under way, done or given up. Only while it runs."""
        return await self.group.knows(Request(url))

    @property
    def _origin(self) -> CollectorRequest:
        """The page that a visit comes from: that of the callback at work, or none."""
        page = current.get()
        if page is not None and page.collector.group is self.group:
            return page
        return CollectorRequest(self, Request(""), self.group.pending)

    @staticmethod
    def _bare(fields: dict[str, Any]) -> dict[str, Any]:
        return {"ctx": {}, **fields}

    def fields(self, context: dict[str, Any]) -> dict[str, Any]:
        """Return what the requests of this collector have in common, those with some context."""
        fields: dict[str, Any] = {}
        if self.callback is not None:
            fields["callback"] = self.callback
        if self.callbacks.error:
            fields["errback"] = f"error:{self.callback or ''}"
        if context:
            fields["meta"] = context
        if self.options.allow_url_revisit:
            fields["dont_filter"] = True
        return fields

    # Runs

    def clone(self, name: str = "", **options: Any) -> Collector:
        """Return another collector of the same job, with the same options and no callbacks.

        ``name``
            Requests name it, so it has to be the same in every process and run; default: its number.
        ``options``
            Those of :data:`~skitter.frontends.collector.options.CLONE_OPTIONS` may be replaced; the others belong to the job.

        Raises :class:`~skitter.errors.SettingsError` for one of those, and for a value outside its range.
        """
        if foreign := set(options) - CLONE_OPTIONS:
            raise SettingsError(
                f"a clone has no {min(foreign)!r} of its own",
                remedy="set it where the first collector is made",
            )
        other = Collector.__new__(Collector)
        other.name = name or f"clone-{len(self.group.members)}"
        other.job_name = ""
        given = {field: getattr(self.options, field) for field in self.options.__struct_fields__}
        other.options = read_options(given | options, {})
        other.callbacks = Callbacks()
        other.callback = f"collector:{other.name}"
        other.limits = []
        other.group = self.group
        self.group.add(other)
        return other

    def run(self, **options: Any) -> RunResult:
        """Crawl what was visited, and what that leads to, to its end; see :func:`~skitter.frontends.collector.run.crawl`.

        The first Ctrl-C stops gracefully, the second at once. Raises :class:`~skitter.errors.UsageError` on an event loop,
        where ``await crawler.crawl()`` is what is meant, and while skitter imports the file.
        """
        return run.run(self.group, options)

    wait = run
    """Colly's name for the moment at which a script waits for its crawl."""

    async def crawl(self, **options: Any) -> RunResult:
        """Do the same on the running event loop; cancelling it breaks the crawl off."""
        return await run.crawl(self.group, **options)

    def stop(self, reason: str = "the collector was stopped") -> None:
        """Stop the crawl gracefully, on all machines: what is in hand is finished. From a callback or the same loop."""
        self.group.stop(reason)

    def __spider__(self, name: str, job: str) -> type[Spider] | None:
        """Return the spider that works for this collector and its clones; see :mod:`skitter.run.loader`."""
        return run.spider_class(self.group, name, job) if self.group.root is self else None

    # Inside

    def _register(self, point: str, callback: Function) -> Function:
        self.callbacks.add(point, callback)
        return callback

    def _register_query(self, point: str, query: str, callback: Callback | None) -> Any:
        if callback is not None:
            self.callbacks.select(point, query, callback)
            return callback

        def decorate(function: Function) -> Function:
            self.callbacks.select(point, query, function)
            return function

        return decorate

    def __repr__(self) -> str:
        return f"<Collector {self.name}>"
