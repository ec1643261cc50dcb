"""RequestDefaults: the fields that a task sets on all its requests, and the domains to which its requests are limited."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from skitter import scope as reasons
from skitter.frontier.records import TASK
from skitter.links import Links, SkippedLinks
from skitter.request import Request
from skitter.response import Response
from skitter.scope import Scope
from skitter.web.urls import host_of, join_all, normalize

RECRAWL = "round"
"""Key of ``meta`` for the recrawl that fetches a page. Part of the request's fingerprint."""


@dataclass(kw_only=True)
class RequestDefaults:
    """Marks requests as requests of a task."""

    name: str = ""
    """Name of the task. Empty for a job that is a single task."""
    allowed_domains: Sequence[str] = ()
    """Domains that requests stay within. Empty: all domains."""
    cookie_domains: Sequence[str] = ()
    """Domains that receive ``cookies``."""
    cookies: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    fetcher: str = ""
    """Fetcher of requests that do not name a fetcher."""
    priority: int = 0
    """Added to the priority of each request."""
    depth_limit: int | None = None
    reload: float | None = None
    """Length of a period in seconds; each page is fetched once per period."""
    scheduled: bool = False
    """Whether each page is fetched once per recrawl of a schedule."""

    @property
    def reloads(self) -> bool:
        """Whether each period or recrawl fetches the pages again."""
        return self.scheduled or self.reload is not None

    @cached_property
    def is_empty(self) -> bool:
        """Whether requests stay unchanged."""
        return not (
            self.name
            or self.allowed_domains
            or self.cookies
            or self.headers
            or self.fetcher
            or self.priority
            or self.depth_limit is not None
            or self.reloads
        )

    def admits(self, host: str) -> bool:
        """Return whether the task may fetch from a host (in lower case, with its port)."""
        return self._bounds is None or self._bounds.admits_host(host)

    def current_period(self) -> int:
        """Return the number of the current period. 0 if the task has no periods."""
        return 0 if self.reload is None else int(time.time() // self.reload)

    def apply_to_page(self, results: Iterable[Any], response: Response) -> list[Any]:
        """Return the results of a page, with its requests marked for the recrawl that has fetched the page."""
        number = response.meta.get(RECRAWL, 0)
        return [marked for result in results for marked in self.apply(result, number)]

    def apply(self, result: Any, recrawl: int) -> list[Any]:
        """Return a result of a rule, with its requests marked. Requests to other domains are counted as skipped."""
        if self.is_empty:
            return [result]
        if isinstance(result, Request):
            host = _host(normalize(result.url))
            if not self.admits(host):
                return [SkippedLinks(reasons.HOST)]
            names = (name for name in result.__struct_fields__ if name != "url")
            own = {name: value for name in names if (value := getattr(result, name)) != getattr(_PLAIN, name)}
            fields = self._fields(own, recrawl, cookies=self._gets_cookies(host))
            return [Request(result.url, **fields)]
        return self._links(result, recrawl) if isinstance(result, Links) else [result]

    @cached_property
    def _bounds(self) -> Scope | None:
        return Scope(allowed_domains=self.allowed_domains) if self.allowed_domains else None

    @cached_property
    def _cookie_scope(self) -> Scope | None:
        is_limited = self.cookies and self.cookie_domains
        return Scope(allowed_domains=self.cookie_domains) if is_limited else None

    def _links(self, links: Links, recrawl: int) -> list[Links | SkippedLinks]:
        if self._bounds is None and self._cookie_scope is None:
            return [Links(links.base_url, links.hrefs, self._fields(links.fields, recrawl, cookies=False))]
        by_cookies: dict[bool, list[str]] = {}
        skipped = 0
        for href, url in zip(links.hrefs, join_all(links.base_url, links.hrefs), strict=True):
            host = _host(url)
            if host and not self.admits(host):
                skipped += 1
            else:
                by_cookies.setdefault(self._gets_cookies(host), []).append(href)
        marked: list[Links | SkippedLinks] = [
            Links(links.base_url, hrefs, self._fields(links.fields, recrawl, cookies=cookies))
            for cookies, hrefs in by_cookies.items()
        ]
        return [*marked, SkippedLinks(reasons.HOST, skipped)] if skipped else marked

    def _fields(self, request_fields: Mapping[str, Any], recrawl: int, *, cookies: bool) -> dict[str, Any]:
        meta, keys = dict(request_fields.get("meta", {})), list(request_fields.get("fingerprint_keys", ()))
        for key, value in ((TASK, self.name), (RECRAWL, recrawl if self.reloads else "")):
            if value != "":
                meta[key] = value
                keys += [key] if key not in keys else []
        fields = {**request_fields, "meta": meta, "fingerprint_keys": tuple(keys)}
        fields["priority"] = request_fields.get("priority", 0) + self.priority
        if self.name:
            fields["cb_kwargs"] = {**request_fields.get("cb_kwargs", {}), TASK: self.name}
            fields["session"] = request_fields.get("session") or f"task:{self.name}"
        if self.headers:
            fields["headers"] = {**self.headers, **request_fields.get("headers", {})}
        if self.fetcher:
            fields["fetcher"] = request_fields.get("fetcher") or self.fetcher
        if cookies:
            fields["cookies"] = {**self.cookies, **request_fields.get("cookies", {})}
        if self.depth_limit is not None:
            fields["depth_limit"] = self.depth_limit
        return fields

    def _gets_cookies(self, host: str) -> bool:
        return self._cookie_scope is not None and bool(host) and self._cookie_scope.admits_host(host)


def _host(url: str | None) -> str:
    return host_of(url) if url is not None and url.startswith(("http://", "https://")) else ""


_PLAIN = Request("")
