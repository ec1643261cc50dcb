"""Task: one crawl among the many of a job: where it starts, its tree of rules, its limits."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from skitter.errors import SpiderError, did_you_mean
from skitter.frontends.request_defaults import RequestDefaults
from skitter.html.selector import SelectorList
from skitter.links import Links
from skitter.politeness import Rate
from skitter.request import Request
from skitter.response import Response
from skitter.web.urls import host_of, normalize
from skitter.worker.hooks import HookAction

type_of_root = Sequence[str | Request] | Callable[[], Any]


class Limits:
    """How gently a task is fetched, over all workers: one pool for all its hosts.

    ``delay`` and ``wait`` are seconds: between two fetches, and up to so much more at random. ``rates`` all have to
    agree: ``("1/2s", "20/60s")``. ``concurrency_per_slot`` is the number of fetches in flight. What is not given is as the
    settings of the job say.

    Raises, when made, :class:`~skitter.errors.SettingsError` for a rate that is none.
    """

    def __init__(
        self,
        *,
        delay: float | None = None,
        wait: float | None = None,
        rates: Sequence[str] = (),
        concurrency_per_slot: int | None = None,
    ) -> None:
        self.delay = delay
        self.wait = wait
        self.rates = tuple(rates)
        self.concurrency_per_slot = concurrency_per_slot
        for rate in self.rates:
            Rate.parse(rate)

    def __bool__(self) -> bool:
        return self != _NO_LIMITS

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Limits) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # they are compared, never looked up


class Task:
    """One crawl of a job.

    ``name``
        Its requests refer to it by this name, so they can be stored, and taken by any worker.
    ``root``
        First URLs or requests, or a function that gives them (any of the four kinds).
    ``trunk``
        Its rules by name: functions (of any kind) that get a :class:`RuleContext` and give items, requests and
        batches of links. A request names its rule; one that names none goes to the rule that made it, a root to
        the first one.
    ``max_depth``
        Links followed from a root at most; ``None``: the setting ``depth_limit`` alone. The engine counts.
    ``limits``
        For the hosts of the task; see :class:`Limits`.
    ``cookies``, ``headers``
        Sent with its requests, the cookies to its own domains only.
    ``domains``
        Outside which it follows nothing, subdomains included; default: the hosts of a ``root`` that is a list.
        Empty: no bound.
    ``priority``
        Added to that of each request.
    ``reload``
        Seconds of a period in which each page is fetched once; ``None``: once and for all.
    ``outputs``
        Where its items go, and only there; none: to the outputs of the job.
    ``paused``
        Nothing of it is fetched; what is queued of it stays, and so does its job.
    ``closed``
        Its queued requests are dropped, counted as ``refused/hook``, and it gives no new ones.

    Raises, when made, :class:`~skitter.errors.SpiderError` without a name or rules, and for a ``reload`` that is
    not above 0.
    """

    def __init__(
        self,
        name: str,
        *,
        root: type_of_root,
        trunk: Mapping[str, Callable[[RuleContext], Any]],
        max_depth: int | None = None,
        limits: Limits | None = None,
        cookies: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        domains: Sequence[str] | None = None,
        priority: int = 0,
        reload: float | None = None,
        outputs: Sequence[str] = (),
        paused: bool = False,
        closed: bool = False,
    ) -> None:
        if not name or not trunk:
            raise SpiderError(f"task {name!r} has no name or no rules", remedy="give both")
        if reload is not None and reload <= 0:
            raise SpiderError(f"task {name!r} has reload {reload}", remedy="give seconds above zero, or None")
        self.name = name
        self.trunk = dict(trunk)
        self.limits = limits or Limits()
        self.domains = _domains_of(root) if domains is None else list(domains)
        self.outputs = tuple(outputs)
        self.paused = paused
        self.closed = closed
        self._root = root
        self.stamp = RequestDefaults(
            name, bounds=self.domains, home=self.domains, cookies=cookies, headers=headers, priority=priority,
            depth_limit=max_depth, reload=reload,
        )  # fmt: skip

    def may_fetch_from(self, host: str) -> bool:
        """Tell whether it is at work and may have requests for a host (as in a URL, with its port)."""
        return not (self.paused or self.closed) and self.stamp.admits(host)

    async def roots(self) -> AsyncIterator[Request]:
        """Give the first requests, each naming its rule, always in the same order."""
        given = self._root() if callable(self._root) else self._root
        if inspect.isawaitable(given):
            given = await given
        first = next(iter(self.trunk))
        async for one in _each(given):
            yield with_rule(Request(one) if isinstance(one, str) else one, first)

    async def read(
        self,
        response: Response,
        rule: str,
        data: Mapping[str, Any],
        run: Callable[..., Any],
        *,
        page: str = "",
        sitemap: int | None = None,
    ) -> list[Any]:
        """Return what a rule gives for a page. Raises :class:`~skitter.errors.SpiderError` for an unknown rule."""
        del page, sitemap  # words of recipes
        function = self.trunk.get(rule or next(iter(self.trunk)))
        if function is None:
            raise SpiderError(
                f"task {self.name!r} has no rule {rule!r}", remedy=did_you_mean(rule, self.trunk)
            )
        given: list[Any] = await run(function, RuleContext(response, self.name, rule, data))
        return [with_rule(one, rule) for one in given]

    async def step(self, name: str, response: Response) -> Iterable[Request]:
        """Do a step of a login. Raises :class:`~skitter.errors.SpiderError`: only recipes have one."""
        del response
        raise SpiderError(f"task {self.name!r} has no {name}", remedy="it was changed: start the job anew")

    def after_request(self, response: Response) -> HookAction | None:
        """Decide over a response before its status does; see :class:`~skitter.worker.hooks.Hooks`."""
        del response
        return None

    async def close(self) -> None:
        """Give back what it holds in this process."""


def with_rule(given: Any, rule: str) -> Any:
    """Return a request, or a batch of links, that names a rule: its own, or else this one."""
    if isinstance(given, Request) and "rule" not in given.cb_kwargs:
        return given.replace(cb_kwargs={**given.cb_kwargs, "rule": rule})
    if isinstance(given, Links) and "rule" not in given.fields.get("cb_kwargs", {}):
        arguments = {**given.fields.get("cb_kwargs", {}), "rule": rule}
        return Links(given.base_url, given.hrefs, {**given.fields, "cb_kwargs": arguments})
    return given


class RuleContext:
    """What a rule sees: the page, and what travelled to it.

    ``data``: values from the pages before. A child gets a copy of them with what is added, so that siblings do not
    see each other's.
    """

    def __init__(self, response: Response, task: str, rule: str, data: Mapping[str, Any]) -> None:
        self.response = response
        self.task = task
        self.rule = rule
        self.data = dict(data)

    @property
    def url(self) -> str:
        """Of the page."""
        return self.response.url

    def css(self, query: str) -> SelectorList:
        """Select from the page by CSS."""
        return self.response.css(query)

    def xpath(self, query: str) -> SelectorList:
        """Select from the page by XPath."""
        return self.response.xpath(query)

    def output(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return an item that says where it is from: task, rule, URL and time beside its ``data``."""
        return {
            "task": self.task,
            "rule": self.rule,
            "url": self.url,
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "data": dict(data),
        }

    def follow(
        self, link: Any, rule: str = "", data: Mapping[str, Any] | None = None, **fields: Any
    ) -> Request:
        """Return a request for a link of the page; see :meth:`Response.follow <skitter.response.Response.follow>`."""
        return self.response.follow(link, cb_kwargs=self._arguments(rule, data), **fields)

    def follow_all(
        self, css: str = "a", rule: str = "", data: Mapping[str, Any] | None = None, **fields: Any
    ) -> Links:
        """Return all links that a query finds as one batch."""
        return self.response.follow_all(css=css, cb_kwargs=self._arguments(rule, data), **fields)

    def follow_matches(self, regexp: str, rule: str = "", data: Mapping[str, Any] | None = None) -> Links:
        """Return the links that a regular expression finds in the page's text: its first group, or all of it."""
        found = [
            match[1] if match.re.groups else match[0] for match in re.finditer(regexp, self.response.text)
        ]
        return Links(self.response.base_url, found, {"cb_kwargs": self._arguments(rule, data)})

    def _arguments(self, rule: str, data: Mapping[str, Any] | None) -> dict[str, Any]:
        travelling = {**self.data, **(data or {})}
        return {"rule": rule or self.rule} | ({"data": travelling} if travelling else {})


async def _each(given: Any) -> AsyncIterator[Any]:
    if hasattr(given, "__aiter__"):
        async for one in given:
            yield one
    elif isinstance(given, Iterable) and not isinstance(given, str):
        for one in given:
            yield one
    else:
        raise SpiderError(f"the root of a task gave {given!r:.60}", remedy="give URLs or requests")


def _domains_of(root: type_of_root) -> list[str]:
    if callable(root):
        return []
    urls = [normalize(one if isinstance(one, str) else one.url) for one in root]
    hosts = [re.sub(r":\d+$", "", host_of(url)) for url in urls if url is not None]
    return list(dict.fromkeys(host for host in hosts if host))


_NO_LIMITS = Limits()
