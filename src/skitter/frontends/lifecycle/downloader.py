"""Downloader: a fetcher that is registered by its id, and the fetcher that shares the work among several."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from skitter.errors import SkitterError, UsageError
from skitter.fetch.contract import (
    UNCONDITIONAL,
    Fetcher,
    FetcherCapabilities,
    FetchError,
    HeaderHook,
    SendPermit,
    UnsendableRequest,
    fetch_with_hook,
)
from skitter.fetch.identity.contract import SourceContext
from skitter.frontends.lifecycle.component import Component, ModuleError
from skitter.frontends.lifecycle.module import Module
from skitter.frontends.lifecycle.registry import Registry
from skitter.request import Request
from skitter.response import Response
from skitter.worker.callbacks import describe

MakeFetcher = Callable[[SourceContext], Fetcher]


class Downloader(Module):
    """One way to fetch. ``make`` is a class or function that returns a new fetcher; default: plain HTTP.

    A fetcher lives for one run of the crawl, a downloader for all of them. Concurrency is the job's: one downloader
    has as many requests in flight as all of them together. Several are for several ways: proxies, interfaces,
    a browser.

    Raises, when made, :class:`~skitter.errors.UsageError` for a ``make`` that cannot be called.
    """

    component = Component.DOWNLOADER

    def __init__(self, make: MakeFetcher | None = None, id: str = "") -> None:  # noqa: A002 - as in Module
        super().__init__(id)
        if make is not None and not callable(make):
            raise UsageError(
                f"downloader {make!r:.60} cannot be called",
                remedy="give a class or function that takes a SourceContext and returns a fetcher",
            )
        self.make = _plain if make is None else make


def _plain(context: SourceContext) -> Fetcher:
    from skitter.fetch.cookies import NoCookies  # noqa: PLC0415 - who only watches a fleet needs no fetcher
    from skitter.fetch.http import HttpFetcher  # noqa: PLC0415 - as above

    return HttpFetcher(context.fetch, NoCookies())


class BalancedFetcher:
    """Hands each request to one of the downloaders. Cookies are above it, so they are the same for all."""

    capabilities = FetcherCapabilities(shows_headers=True)

    def __init__(self, registry: Registry, context: SourceContext) -> None:
        self._registry = registry
        self._context = context
        self._fetchers: dict[Downloader, Fetcher] = {}
        self._opening = asyncio.Lock()

    async def open(self) -> None:
        """Open what is registered; who comes later is opened with its first request."""
        for module in self._registry.of(Component.DOWNLOADER):
            await self._fetcher_of(cast(Downloader, module))

    async def close(self) -> None:
        """Close all fetchers of this run."""
        fetchers, self._fetchers = self._fetchers, {}
        for fetcher in fetchers.values():
            await fetcher.close()

    async def fetch(
        self,
        request: Request,
        *,
        permit: SendPermit = UNCONDITIONAL,
        on_headers: HeaderHook | None = None,
    ) -> Response:
        """Fetch with the downloader that the load balancing chooses. An error carries its id as ``module``."""
        module = cast(Downloader, self._registry.pick(Component.DOWNLOADER))
        try:
            with module.at_work() as counts:
                fetcher = self._fetchers.get(module) or await self._fetcher_of(module)
                counts.accepted += 1
                return await fetch_with_hook(fetcher, request, permit, on_headers)
        except FetchError as error:
            error.module = module.id
            if isinstance(error, UnsendableRequest):
                module.counts.accepted -= 1
            raise
        except SkitterError:
            raise
        except Exception as error:
            raise ModuleError(module.component, module.id, describe(error)) from error

    async def _fetcher_of(self, module: Downloader) -> Fetcher:
        async with self._opening:
            if module not in self._fetchers:
                fetcher = await asyncio.to_thread(module.make, self._context)
                await fetcher.open()
                self._fetchers[module] = fetcher
        return self._fetchers[module]
