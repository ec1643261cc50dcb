"""Task: one of the crawls of a job, with its start requests, its rules and its limits."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from skitter.errors import SpiderError, did_you_mean
from skitter.fetch.cookies import cookies_in
from skitter.fetch.identity.contract import IdentitySources
from skitter.frontends.request_defaults import RequestDefaults
from skitter.frontends.tasks.changes import TaskChange
from skitter.html.selector import SelectorList
from skitter.links import Links
from skitter.politeness import HostLimits
from skitter.request import Request
from skitter.response import Response
from skitter.web.urls import host_of, normalize, without_port
from skitter.worker.hooks import HookAction

StartRequests = Sequence[str | Request] | Callable[[], Any]


@dataclass(eq=False)
class Task:
    """One crawl of a job. All arguments besides the name are keywords.

    Raises :class:`~skitter.errors.SpiderError` if the name or the rules are empty, and for a ``reload`` that is not
    above 0; :class:`~skitter.errors.SettingsError` for a fetcher, a user agent source or a proxy that does not exist.
    """

    name: str
    """Unique among the open tasks of the job. Requests refer to their task, so every worker can fetch them."""
    _: KW_ONLY
    start: StartRequests
    """URLs or requests to start with, or a function of any kind that returns them."""
    rules: Mapping[str, Callable[[RuleContext], Any]]
    """Rules by name: functions of any kind that take a :class:`RuleContext` and return items, requests and batches of
    links. A request without a rule name uses the rule that created it; a start request uses the first rule."""
    depth_limit: int | None = None
    """Maximum number of links between a start URL and a page. ``None``: only the setting ``depth_limit`` applies."""
    limits: HostLimits = field(default_factory=HostLimits)
    """For the hosts of the task; see :class:`~skitter.politeness.HostLimits`."""
    cookies: Mapping[str, str] | str = field(default_factory=dict)
    """Sent with its requests, to its own domains only: by name, or as the text of a ``Cookie`` header."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Sent with its requests."""
    fetcher: str = ""
    """Name of the fetcher of its requests, as in ``Request.fetcher``. Empty: the fetcher in the settings."""
    user_agents: Any = None
    """Source of its browser headers, like the setting ``user_agents``. ``None``: the source in the settings."""
    proxies: Any = None
    """Its proxies, like the setting ``proxies``; ``"none"``: no proxies. ``None``: the proxies in the settings."""
    allowed_domains: Sequence[str] | None = None
    """Domains, with their subdomains, to which the task is limited. ``None``: the hosts of a ``start`` list. Empty: all
    domains."""
    priority: int = 0
    """Added to the priority of its requests."""
    reload: float | None = None
    """Length of a period in seconds; each page is fetched once per period. ``None``: each page is fetched once."""
    outputs: Sequence[str] = ()
    """Outputs that receive its items. Empty: the outputs of the job."""
    paused: bool = False
    """Fetch nothing for the task. Its queued requests stay, and the job does not finish."""
    closed: bool = False
    """Drop the queued requests of the task, counted as ``refused/hook``, and add no new ones."""

    def __post_init__(self) -> None:
        if not self.name:
            raise SpiderError("a task has an empty name", remedy="give it a name", field="name")
        if not self.rules:
            raise SpiderError(f"task {self.name!r} has no rules", remedy="give at least one", field="rules")
        if self.reload is not None and self.reload <= 0:
            raise SpiderError(
                f"task {self.name!r}: reload must be above 0 (got {self.reload})",
                remedy="give a number of seconds, or None",
                field="reload",
            )
        self.key = self.name
        """The key that requests refer to: the name, or the name and a number if a closed task had the name before."""
        self.rules = dict(self.rules)
        self.outputs = tuple(self.outputs)
        self.bounds = _hosts_of(self.start) if self.allowed_domains is None else list(self.allowed_domains)
        """Domains to which the task is limited, from ``allowed_domains`` or ``start``."""
        self.cookies = cookies_in(self.cookies) if isinstance(self.cookies, str) else self.cookies
        self.defaults = RequestDefaults(
            name=self.name, allowed_domains=self.bounds, cookie_domains=self.bounds, cookies=self.cookies,
            headers=self.headers, fetcher=self.fetcher, priority=self.priority, depth_limit=self.depth_limit,
            reload=self.reload,
        )  # fmt: skip
        self.identity = self._own_identity()
        """Its sources of identity; ``None``: the sources in the settings."""

    def _own_identity(self) -> IdentitySources | None:
        if self.fetcher or self.user_agents is not None or self.proxies is not None:
            from skitter.run.fetcher_factory import check_task  # noqa: PLC0415 - few tasks need the fetchers

            identity = IdentitySources(self.user_agents, self.proxies)
            check_task(self.fetcher, identity)
            if self.user_agents is not None or self.proxies is not None:
                return identity
        return None

    def added_by(self, change: TaskChange) -> Task:
        """Return this task with the values of the task file's line that adds it."""
        task = copy(self)
        task.key = change.task
        task.outputs = tuple(change.outputs) or task.outputs
        task.defaults = replace(self.defaults, name=task.key, scheduled=bool(change.schedule))
        return task

    def may_fetch_from(self, host: str) -> bool:
        """Return whether the task is active and may have requests for a host (as in a URL, with its port)."""
        return not (self.paused or self.closed) and self.defaults.admits(host)

    async def start_requests(self) -> AsyncIterator[Request]:
        """Yield the start requests, each with the name of its rule, always in the same order."""
        results = self.start() if callable(self.start) else self.start
        if inspect.isawaitable(results):
            results = await results
        first = next(iter(self.rules))
        async for result in _each(results):
            yield with_rule(Request(result) if isinstance(result, str) else result, first)

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
        """Return the results of a rule for a page. Raises :class:`~skitter.errors.SpiderError` for an unknown rule."""
        del page, sitemap  # only recipes have them
        function = self.rules.get(rule or next(iter(self.rules)))
        if function is None:
            raise SpiderError(
                f"task {self.name!r} has no rule {rule!r}",
                remedy=did_you_mean(rule, self.rules),
                field="rule",
            )
        results: list[Any] = await run(function, RuleContext(response, self.name, rule, data))
        return [with_rule(result, rule) for result in results]

    async def step(self, name: str, response: Response) -> Iterable[Request]:
        """Perform a step of a login. Raises :class:`~skitter.errors.SpiderError`: only recipes have a login."""
        del response
        raise SpiderError(
            f"task {self.name!r} has no login, although a stored request names its step {name!r}",
            remedy="the task has changed: start the job again with --fresh",
        )

    def after_request(self, response: Response) -> HookAction | None:
        """Handle a response before its status is checked; see :class:`~skitter.worker.hooks.Hooks`."""
        del response
        return None

    async def close(self) -> None:
        """Close the resources of the task in this process."""


def with_rule(result: Any, rule: str) -> Any:
    """Return a request or a batch of links that names a rule: its own rule, or otherwise ``rule``."""
    if isinstance(result, Request) and "rule" not in result.cb_kwargs:
        return result.replace(cb_kwargs={**result.cb_kwargs, "rule": rule})
    if isinstance(result, Links) and "rule" not in result.fields.get("cb_kwargs", {}):
        arguments = {**result.fields.get("cb_kwargs", {}), "rule": rule}
        return Links(result.base_url, result.hrefs, {**result.fields, "cb_kwargs": arguments})
    return result


class RuleContext:
    """The argument of a rule: a page, and the data of its request.

    ``data``: values from earlier pages. Each child receives a copy plus the values that the rule adds, so siblings
    never see each other's data.
    """

    def __init__(self, response: Response, task: str, rule: str, data: Mapping[str, Any]) -> None:
        self.response = response
        self.task = task
        self.rule = rule
        self.data = dict(data)

    @property
    def url(self) -> str:
        """The URL of the page."""
        return self.response.url

    def css(self, query: str) -> SelectorList:
        """Select elements of the page with a CSS query."""
        return self.response.css(query)

    def xpath(self, query: str) -> SelectorList:
        """Select elements of the page with an XPath query."""
        return self.response.xpath(query)

    def output(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return an item with the fields of ``data`` and its origin: ``task``, ``rule``, ``url`` and ``time``.

        A field of ``data`` replaces the origin of the same name.
        """
        return {
            "task": self.task,
            "rule": self.rule,
            "url": self.url,
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            **data,
        }

    def follow(
        self, link: Any, rule: str = "", data: Mapping[str, Any] | None = None, **fields: Any
    ) -> Request:
        """Return a request for a link of the page; see :meth:`Response.follow <skitter.response.Response.follow>`."""
        return self.response.follow(link, cb_kwargs=self._arguments(rule, data), **fields)

    def follow_all(
        self, css: str = "a", rule: str = "", data: Mapping[str, Any] | None = None, **fields: Any
    ) -> Links:
        """Return the links of all elements that a query matches, as one batch."""
        return self.response.follow_all(css=css, cb_kwargs=self._arguments(rule, data), **fields)

    def follow_matches(self, regexp: str, rule: str = "", data: Mapping[str, Any] | None = None) -> Links:
        """Return the links that a regular expression matches in the page's text: its first group, or the whole match."""
        found = [
            match[1] if match.re.groups else match[0] for match in re.finditer(regexp, self.response.text)
        ]
        return self.response.follow_all(found, cb_kwargs=self._arguments(rule, data))

    def _arguments(self, rule: str, data: Mapping[str, Any] | None) -> dict[str, Any]:
        carried = {**self.data, **(data or {})}
        return {"rule": rule or self.rule} | ({"data": carried} if carried else {})


async def _each(starts: Any) -> AsyncIterator[Any]:
    if isinstance(starts, AsyncIterable):
        async for start in starts:
            yield start
    elif isinstance(starts, Iterable) and not isinstance(starts, str):
        for start in starts:
            yield start
    else:
        raise SpiderError(
            f"invalid start requests of a task: {starts!r:.60}",
            remedy="return URLs or requests",
            field="start",
        )


def _hosts_of(start: StartRequests) -> list[str]:
    if callable(start):
        return []
    urls = [normalize(seed if isinstance(seed, str) else seed.url) for seed in start]
    hosts = [without_port(host_of(url)) for url in urls if url is not None]
    return list(dict.fromkeys(host for host in hosts if host))
