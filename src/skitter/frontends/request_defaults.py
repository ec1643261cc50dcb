"""RequestDefaults: what a task puts on every request that is made in its name, and where it may lead."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from skitter import scope as reasons
from skitter.frontier.group_filter import TASK
from skitter.links import Links, SkippedLinks
from skitter.request import Request
from skitter.scope import Scope
from skitter.web.urls import host_of, join_all, normalize

ROUND = "round"
"""Key of ``meta``: the period in which a task that reloads fetches the page. Part of its identity."""


class RequestDefaults:
    """Marks requests as those of a task.

    ``name``: of the task; empty for a job that is one task only. ``bounds``: domains outside which nothing is
    followed, empty for no bound. ``home``: domains that the cookies are sent to. ``reload``: seconds of a period in
    which each page is fetched once; ``rounds``: it is fetched once in each round that somebody begins.
    """

    def __init__(
        self,
        name: str = "",
        *,
        bounds: Sequence[str] = (),
        home: Sequence[str] = (),
        cookies: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        priority: int = 0,
        depth_limit: int | None = None,
        reload: float | None = None,
        rounds: bool = False,
    ) -> None:
        self._name = name
        self.reloads = rounds or reload is not None
        """Whether pages are fetched anew in each period or round."""
        self._bounds = Scope(allowed_domains=bounds) if bounds else None
        self._home = Scope(allowed_domains=home) if cookies and home else None
        self._cookies = dict(cookies or {})
        self._headers = dict(headers or {})
        self._priority = priority
        self._depth_limit = depth_limit
        self._reload = reload
        self.does_nothing = not (
            name or bounds or cookies or headers or priority or depth_limit is not None or self.reloads
        )

    def admits(self, host: str) -> bool:
        """Tell whether a request for a host (in small letters, with its port) may be one of the task's."""
        return _within(self._bounds, host)

    def round_now(self) -> int:
        """Return the number of the period that it is now; 0 for a task that does not reload."""
        return 0 if self._reload is None else int(time.time() // self._reload)

    def on(self, given: Any, round_number: int) -> list[Any]:
        """Return what a rule gave, its requests marked as those of a round; what leads out is refused."""
        if self.does_nothing:
            return [given]
        if isinstance(given, Request):
            host = _host(normalize(given.url))
            if not _within(self._bounds, host):
                return [SkippedLinks(reasons.HOST)]
            return [Request(given.url, **self._fields(_said(given), round_number, home=self._is_home(host)))]
        return self._links(given, round_number) if isinstance(given, Links) else [given]

    def _links(self, links: Links, round_number: int) -> list[Links | SkippedLinks]:
        if self._bounds is None and self._home is None:
            return [Links(links.base_url, links.hrefs, self._fields(links.fields, round_number, home=False))]
        parts: dict[bool, list[str]] = {}
        refused = 0
        for href, url in zip(links.hrefs, join_all(links.base_url, links.hrefs), strict=True):
            host = _host(url)
            if host and not _within(self._bounds, host):
                refused += 1
            else:
                parts.setdefault(self._is_home(host), []).append(href)
        marked: list[Links | SkippedLinks] = [
            Links(links.base_url, hrefs, self._fields(links.fields, round_number, home=home))
            for home, hrefs in parts.items()
        ]
        return [*marked, SkippedLinks(reasons.HOST, refused)] if refused else marked

    def _fields(self, said: Mapping[str, Any], round_number: int, *, home: bool) -> dict[str, Any]:
        meta, keys = dict(said.get("meta", {})), list(said.get("fingerprint_keys", ()))
        for key, value in ((TASK, self._name), (ROUND, round_number if self.reloads else "")):
            if value != "":
                meta[key] = value
                keys += [key] if key not in keys else []
        fields = {**said, "meta": meta, "fingerprint_keys": tuple(keys)}
        fields["priority"] = said.get("priority", 0) + self._priority
        if self._name:
            fields["cb_kwargs"] = {**said.get("cb_kwargs", {}), TASK: self._name}
            fields["session"] = said.get("session") or f"task:{self._name}"
        if self._headers:
            fields["headers"] = {**self._headers, **said.get("headers", {})}
        if home:
            fields["cookies"] = {**self._cookies, **said.get("cookies", {})}
        if self._depth_limit is not None:
            fields["depth_limit"] = self._depth_limit
        return fields

    def _is_home(self, host: str) -> bool:
        return self._home is not None and bool(host) and self._home.admits_host(host)


def _within(scope: Scope | None, host: str) -> bool:
    return scope is None or scope.admits_host(host)


def _host(url: str | None) -> str:
    return host_of(url) if url is not None and url.startswith(("http://", "https://")) else ""


def _said(request: Request) -> dict[str, Any]:
    """Return what was said of a request, without what was left at its default."""
    names = (name for name in request.__struct_fields__ if name != "url")
    return {name: getattr(request, name) for name in names if getattr(request, name) != getattr(_PLAIN, name)}


_PLAIN = Request("")
