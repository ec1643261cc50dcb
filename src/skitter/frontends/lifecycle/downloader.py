"""Downloader: a module that fetches, and the fetcher that distributes requests among several downloaders."""

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
from skitter.frontends.lifecycle.modules import Module, ModuleError, ModuleKind, ModuleRegistry
from skitter.request import Request
from skitter.response import Response
from skitter.worker.callbacks import describe

MakeFetcher = Callable[[SourceContext], Fetcher]


class Downloader(Module):
    """One way to fetch. ``make`` is a class or function that returns a new fetcher; default: plain HTTP.

    A fetcher lives for one run of the crawl, a downloader for all runs. The concurrency belongs to the job, so a single
    downloader fetches as concurrently as many. Use several for different ways to fetch: proxies, network interfaces, a
    browser.

    Raises :class:`~skitter.errors.UsageError` for a ``make`` that is not callable.
    """

    component = ModuleKind.DOWNLOADER

    def __init__(self, make: MakeFetcher | None = None, id: str = "") -> None:  # noqa: A002 - as in Module
        super().__init__(id)
        if make is not None and not callable(make):
            raise UsageError(
                f"downloader {make!r:.60} is not callable",
                remedy="pass a class or function that takes a SourceContext and returns a fetcher",
                field="make",
            )
        self.make = _plain if make is None else make


def _plain(context: SourceContext) -> Fetcher:
    from skitter.fetch.cookies import NoCookies  # noqa: PLC0415 - a process that only watches a fleet needs no fetcher
    from skitter.fetch.http import HttpFetcher  # noqa: PLC0415 - as above

    return HttpFetcher(context.settings, NoCookies(), context.guard)


class BalancedFetcher:
    """Passes each request to one of the downloaders. Cookies are handled above it, so all downloaders share them."""

    capabilities = FetcherCapabilities(shows_headers=True)

    def __init__(self, registry: ModuleRegistry, context: SourceContext) -> None:
        self._registry = registry
        self._context = context
        self._fetchers: dict[Downloader, Fetcher] = {}
        self._opening = asyncio.Lock()

    async def open(self) -> None:
        """Open the fetchers of all registered downloaders. Others are opened at their first request."""
        for module in self._registry.of(ModuleKind.DOWNLOADER):
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
        module = cast(Downloader, self._registry.pick(ModuleKind.DOWNLOADER))
        try:
            with module.working() as counts:
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
