"""RoutingFetcher: sends each request by the fetcher that the request, a rule or the settings choose."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from fnmatch import translate
from typing import Any

import msgspec

from skitter.browsing import Browsing, browsing_of
from skitter.errors import RequestError, SettingsError, SkitterError
from skitter.fetch.contract import (
    UNCONDITIONAL,
    Fetcher,
    FetcherCapabilities,
    HeaderHook,
    SendPermit,
    UnsendableRequest,
    WrappingFetcher,
    fetch_with_hook,
)
from skitter.fetch.tdmrep import SITE_FILES
from skitter.request import Request
from skitter.response import Response
from skitter.web.headers import with_defaults
from skitter.web.urls import ascii_domain, host_of, without_port


class FetcherRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The fetcher of the requests that a pattern matches, and how a browser loads them if the request does not say so.

    ``domain_glob`` (``*.example.com``) or ``domain_regexp`` must match the whole host name; ``url_regexp`` is searched in
    the URL.
    """

    domain_glob: str | None = None
    domain_regexp: str | None = None
    url_regexp: str | None = None
    fetcher: str = "browser"
    browsing: Browsing | None = None

    def matcher(self) -> Callable[[str], bool]:
        """Return the test of URLs. Raises :class:`~skitter.errors.SettingsError` for an invalid pattern."""
        patterns = [self.domain_glob, self.domain_regexp, self.url_regexp]
        if len([pattern for pattern in patterns if pattern is not None]) != 1:
            raise SettingsError(
                "a fetcher rule needs one of domain_glob, domain_regexp and url_regexp",
                remedy='write a rule like {"domain_glob": "*.example.com", "fetcher": "browser"}',
                field="fetcher_rules",
            )
        source = self.domain_regexp or self.url_regexp or ""
        try:
            if self.domain_glob is not None:
                source = translate(ascii_domain(self.domain_glob))
            pattern = re.compile(source, re.IGNORECASE)
        except re.error as error:
            raise SettingsError(
                f"invalid regular expression {source!r} in a fetcher rule: {error}",
                remedy="correct it, or use domain_glob",
                field="fetcher_rules",
            ) from error
        if self.url_regexp is not None:
            return lambda url: pattern.search(url) is not None
        return lambda url: _matches_host(pattern, host_of(url))


def _matches_host(pattern: re.Pattern[str], host: str) -> bool:
    return bool(pattern.fullmatch(host) or pattern.fullmatch(without_port(host)))


def fetcher_rules(values: Sequence[Mapping[str, Any]]) -> list[FetcherRule]:
    """Return the rules of the setting ``fetcher_rules``. Raises :class:`~skitter.errors.SettingsError`."""
    rules = []
    for value in values:
        try:
            fields = dict(value)
            if fields.get("browsing") is not None:
                fields["browsing"] = msgspec.to_builtins(browsing_of(fields["browsing"]))
            rule = msgspec.convert(fields, FetcherRule)
        except (msgspec.ValidationError, RequestError) as error:
            raise SettingsError(
                f"fetcher rule {dict(value)}: {error}", remedy="correct the field", field="fetcher_rules"
            ) from error
        rule.matcher()
        rules.append(rule)
    return rules


class HeaderFetcher(WrappingFetcher):
    """Adds headers to the requests of a fetcher that does not know the settings. Headers of a request override them."""

    def __init__(self, fetcher: Fetcher, headers: Mapping[str, str]) -> None:
        super().__init__(fetcher)
        self._headers = headers

    def fetch(
        self,
        request: Request,
        *,
        permit: SendPermit = UNCONDITIONAL,
        on_headers: HeaderHook | None = None,
    ) -> Coroutine[Any, Any, Response]:
        """Fetch one request with the headers. Raises :class:`~skitter.errors.FetchError`."""
        request = request.replace(headers=with_defaults(request.headers, self._headers))
        return fetch_with_hook(self._fetcher, request, permit, on_headers)


class RoutingFetcher:
    """The fetchers of one worker. ``default`` fetches the requests for which neither the request nor a rule names a fetcher.

    Implements :class:`Fetcher`.

    ``make``: returns a fetcher by its name. It is called once for each name, at its first request.
    """

    def __init__(
        self,
        default: str,
        fetchers: dict[str, Fetcher],
        make: Callable[[str], Fetcher],
        rules: Sequence[FetcherRule],
    ) -> None:
        self._name = default
        self._default = fetchers[default]
        self._fetchers = fetchers
        self._make = make
        self._rules = [(rule.matcher(), rule) for rule in rules]
        self._is_simple = not rules and not self._default.capabilities.renders_pages
        self._opening = asyncio.Lock()
        self._opened: set[str] = set()

    @property
    def capabilities(self) -> FetcherCapabilities:
        """The capabilities of the default fetcher. All fetchers that can show headers do so."""
        return self._default.capabilities

    async def open(self) -> None:
        """Open the default fetcher and the fetchers that rules name. Others are opened for their first request."""
        try:
            for name in (self._name, *(rule.fetcher for _, rule in self._rules)):
                await self._opened_fetcher(name)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        opened, self._opened = self._opened, set()
        async with AsyncExitStack() as closing:  # closes all, even if closing one of them fails
            for name in opened:
                closing.push_async_callback(self._fetchers[name].close)

    def fetch(
        self,
        request: Request,
        *,
        permit: SendPermit = UNCONDITIONAL,
        on_headers: HeaderHook | None = None,
    ) -> Coroutine[Any, Any, Response]:
        if not request.fetcher and self._is_simple:  # the usual case
            if on_headers is None:
                return self._default.fetch(request, permit=permit)
            return fetch_with_hook(self._default, request, permit, on_headers)
        return self._route(request, permit, on_headers)

    async def _route(self, request: Request, permit: SendPermit, on_headers: HeaderHook | None) -> Response:
        name = request.fetcher
        if not name and request.url.endswith(SITE_FILES):
            name = "http"
        elif not name:
            rule = next((rule for matches, rule in self._rules if matches(request.url)), None)
            if rule is not None:
                name = rule.fetcher
                if rule.browsing is not None:
                    own = request.browsing
                    request = request.replace(browsing=own.over(rule.browsing) if own else rule.browsing)
        try:
            fetcher = await self._opened_fetcher(name or self._name)
        except SkitterError as error:
            raise UnsendableRequest(
                f"fetcher {name!r}: {error}", remedy=error.remedy, field=error.field or "fetcher"
            ) from error
        return await fetch_with_hook(fetcher, request, permit, on_headers)

    async def _opened_fetcher(self, name: str) -> Fetcher:
        if name in self._opened:
            return self._fetchers[name]
        async with self._opening:
            if name not in self._opened:
                if name not in self._fetchers:
                    self._fetchers[name] = await asyncio.to_thread(self._make, name)
                await self._fetchers[name].open()
                self._opened.add(name)
            return self._fetchers[name]
