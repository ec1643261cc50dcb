"""Modules of a managed crawl: downloaders, analyzers and pipelines, their registry, and load balancing among them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from itertools import count
from typing import Any, ClassVar, cast

import msgspec

from skitter.errors import FetchError, RetryRequest, SkitterError, UsageError
from skitter.fetch.contract import (
    UNCONDITIONAL,
    Fetcher,
    FetcherCapabilities,
    HeaderHook,
    SendPermit,
    UnsendableRequest,
    fetch_with_hook,
)
from skitter.fetch.identity.contract import SourceContext
from skitter.item import is_item
from skitter.request import Request
from skitter.response import Response
from skitter.spider import Spider
from skitter.worker.callbacks import describe, run_callback
from skitter.worker.hooks import HookAction, call


class ModuleKind(StrEnum):
    """Kinds of modules, and components of a crawl that errors come from."""

    DOWNLOADER = "downloader"
    """Fetching: no response, an error status, robots.txt, redirects."""
    ANALYZER = "analyzer"
    """User code that reads pages, including hooks."""
    PIPELINE = "pipeline"
    """Processors of items, and stores."""
    SCHEDULER = "scheduler"
    """The crawl itself: undecodable records, failing seeds, an unavailable frontier. No modules are of this kind."""


class ModuleError(SkitterError):
    """An error in a module. The message is one line with the module and the cause."""

    def __init__(self, component: ModuleKind, module: str, message: str) -> None:
        super().__init__(f"{component} {module}: {message}")
        self.component = component
        self.module = module

    @property
    def root(self) -> BaseException:
        """The error of user code that caused this one."""
        return self.__cause__ or self


class Counts(msgspec.Struct):
    """Counts of the calls of a module since it was registered."""

    called: int = 0
    accepted: int = 0
    """Calls with valid input."""
    completed: int = 0
    """Successful calls."""
    handling: int = 0
    """Calls in progress."""


class Module:
    """Base of downloaders, analyzers and pipelines. ``id`` is unique in the crawl; empty: it is generated."""

    component: ClassVar[ModuleKind]

    def __init__(self, id: str = "") -> None:  # noqa: A002 - the usual name
        self.id = id
        self.counts = Counts()
        self.failures = 0
        """Number of consecutive failures."""
        self.turn = 0
        """Serial number of the last call, counted over all modules of the crawl."""

    @contextmanager
    def working(self) -> Iterator[Counts]:
        """Count a call. The caller counts accepted input."""
        counts = self.counts
        counts.called += 1
        counts.handling += 1
        try:
            yield counts
        except Exception:
            self.failures += 1
            raise
        else:
            counts.completed += 1
            self.failures = 0
        finally:
            counts.handling -= 1

    def extra(self) -> dict[str, Any]:
        """Return further values for the summary."""
        return {}


def _check_functions(functions: Sequence[object], owner: str, noun: str) -> None:
    if not functions:
        raise UsageError(f"{owner} needs at least one {noun}", remedy="pass a function", field=f"{noun}s")
    for function in functions:
        if not callable(function):
            raise UsageError(
                f"{noun} {function!r:.60} is not callable", remedy="pass functions", field=f"{noun}s"
            )


Parser = Callable[[Response], Any]
"""A plain function, coroutine function, generator or async generator of items, requests and links."""


class Analyzer(Module):
    """Runs its parsers on each page, in order, and joins their results.

    If a parser fails, the results of the page are dropped, and the page becomes a dead letter with the errors of all
    parsers, which can be replayed after a fix.

    Raises :class:`~skitter.errors.UsageError` without parsers, and for a parser that is not callable.
    """

    component = ModuleKind.ANALYZER

    def __init__(self, *parsers: Parser, id: str = "") -> None:  # noqa: A002 - as in Module
        super().__init__(id)
        _check_functions(parsers, "an analyzer", "parser")
        self._parsers = parsers

    async def analyze(self, response: Response) -> list[Any]:
        """Run all parsers. Raises :class:`ModuleError` if any parser fails."""
        results: list[Any] = []
        errors: list[Exception] = []
        with self.working() as counts:
            counts.accepted += 1
            for parser in self._parsers:
                try:
                    results += await run_callback(parser, response)
                except RetryRequest:
                    raise
                except Exception as error:  # noqa: BLE001 - user code; the errors are reported together below
                    errors.append(error)
            if errors:
                text = "; ".join(describe(error) for error in errors)
                raise ModuleError(self.component, self.id, text) from errors[0]
        return results

    def extra(self) -> dict[str, Any]:
        """Return the number of parsers."""
        return {"parsers": len(self._parsers)}


Processor = Callable[[Any], Any]
"""Takes an item, and returns the item to continue with, ``None`` to keep it unchanged, or ``HookAction.DROP``. A plain or a
coroutine function."""


class Pipeline(Module):
    """Runs its processors on each item, in order.

    ``fail_fast``
        ``False``, the default: if a processor fails, the error is reported, and the item continues unchanged with the next
        processor. ``True``: the page fails with all its items, and becomes a dead letter that can be replayed.

    Raises :class:`~skitter.errors.UsageError` without processors, and for a processor that is not callable.
    """

    component = ModuleKind.PIPELINE

    def __init__(
        self,
        *processors: Processor,
        id: str = "",  # noqa: A002 - as in Module
        fail_fast: bool = False,
    ) -> None:
        super().__init__(id)
        _check_functions(processors, "a pipeline", "processor")
        self._processors = processors
        self.fail_fast = fail_fast
        self.dropped = 0
        """Number of items that a processor dropped."""

    async def process(self, item: Any, report: Callable[[ModuleError], None]) -> Any:
        """Return the item to store, or ``HookAction.DROP``. ``report`` receives the errors of processors.

        With ``fail_fast``, raises :class:`ModuleError` instead.
        """
        try:
            with self.working() as counts:
                counts.accepted += 1
                return await self._apply(item, report)
        except _ProcessorFailed as found:
            return found.item

    async def _apply(self, item: Any, report: Callable[[ModuleError], None]) -> Any:
        failed = False
        for processor in self._processors:
            try:
                result = await _process(processor, item)
            except Exception as error:
                name = getattr(processor, "__name__", type(processor).__name__)
                wrapped = ModuleError(self.component, self.id, f"{name}: {describe(error)}")
                wrapped.__cause__ = error
                if self.fail_fast:
                    raise wrapped from error
                report(wrapped)
                failed = True
                continue
            if result is HookAction.DROP:
                self.dropped += 1
                return result
            item = item if result is None else result
        if failed:
            raise _ProcessorFailed(item)
        return item

    def extra(self) -> dict[str, Any]:
        """Return the number of processors, ``fail_fast``, and the number of dropped items."""
        return {"processors": len(self._processors), "fail_fast": self.fail_fast, "dropped": self.dropped}


class _ProcessorFailed(Exception):
    """A processor failed; the item continues, and the call does not count as completed."""

    def __init__(self, item: Any) -> None:
        super().__init__()
        self.item = item


async def _process(processor: Processor, item: Any) -> Any:
    result = await call(processor, item)
    if result is not None and result is not HookAction.DROP and not is_item(result):
        raise TypeError(f"the processor returned {type(result).__name__} instead of an item")
    return result


MakeFetcher = Callable[[SourceContext], Fetcher]


class Downloader(Module):
    """One way to fetch. ``make`` is a class or function that returns a new fetcher; default: plain HTTP.

    A fetcher lives for one run of the crawl, a downloader for all runs. The concurrency belongs to the job, so several
    downloaders do not fetch more at a time. Use several for different ways to fetch: proxies, network interfaces, a
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
    from skitter.fetch.http import HttpFetcher  # noqa: PLC0415 - a process that only watches a fleet needs no fetcher

    return HttpFetcher(context.settings, NoCookies(), context.guard)


LoadBalancing = Callable[[Sequence[Module]], Module]
"""Chooses one of at least two modules of a kind. Called for each piece of work, so it must be fast."""

_MAX_FAILURES = 8
"""Maximum number of consecutive failures that count, so that a module that has recovered gets work under load."""


def least_busy(modules: Sequence[Module]) -> Module:
    """Choose the module with the least work in progress; if several have equally little, the least recently used one.

    Consecutive failures count like work in progress. Otherwise a module that fails immediately would look idle and get
    all work. A new module gets its share, because past work does not count.
    """

    def load(module: Module) -> tuple[int, int]:
        return module.counts.handling + min(module.failures, _MAX_FAILURES), module.turn

    return min(modules, key=load)


def seed_score(counts: Counts) -> int:
    """Return the score of gopcp: called + 2 accepted + 4 completed + 16 handling."""
    return counts.called + 2 * counts.accepted + 4 * counts.completed + 16 * counts.handling


def lowest_score(score: Callable[[Counts], float] = seed_score) -> LoadBalancing:
    """Return load balancing by a score: the lowest score is chosen; with equal scores, the least recently used module."""

    def choose(modules: Sequence[Module]) -> Module:
        return min(modules, key=lambda module: (score(module.counts), module.turn))

    return choose


class ModuleRegistry:
    """Stores the modules of a crawl, and chooses one for each piece of work."""

    def __init__(self, modules: Iterable[Module] = (), balance: LoadBalancing = least_busy) -> None:
        self._balance = balance
        self._modules: dict[str, Module] = {}
        self._by_kind: dict[ModuleKind, list[Module]] = {kind: [] for kind in ModuleKind}
        self._turn = 0
        for module in modules:
            self.register(module)

    def register(self, module: Module) -> str:
        """Add a module. Return its id, such as ``downloader-2`` if it had none.

        Raises :class:`~skitter.errors.UsageError` for another type of object, and for an id that is taken.
        """
        if not isinstance(module, Module):
            raise UsageError(
                f"{module!r:.60} ({type(module).__name__}) is not a module",
                remedy="register a Downloader, an Analyzer or a Pipeline",
                field="module",
            )
        if not module.id:
            kind = module.component
            names = (f"{kind}-{number}" for number in count(len(self._by_kind[kind]) + 1))
            module.id = next(name for name in names if name not in self._modules)
        if module.id in self._modules:
            raise UsageError(
                f"a module {module.id!r} is already registered",
                remedy="give each module a unique id",
                field="id",
            )
        self._modules[module.id] = module
        self._by_kind[module.component].append(module)
        return module.id

    def unregister(self, name: str) -> Module:
        """Remove a module. It finishes its work in progress.

        Raises :class:`~skitter.errors.UsageError` for an unknown id, and for the last module of a kind, so that every page
        always has a module.
        """
        module = self.get(name)
        kind = self._by_kind[module.component]
        if len(kind) == 1:
            raise UsageError(
                f"{name!r} is the last {module.component} of the crawl",
                remedy="register another one first",
                field="id",
            )
        kind.remove(module)
        del self._modules[name]
        return module

    def get(self, name: str) -> Module:
        """Return a module by its id. Raises :class:`~skitter.errors.UsageError` for an unknown id."""
        if name not in self._modules:
            raise UsageError(
                f"unknown module {name!r}",
                remedy=f"use one of: {', '.join(self._modules)}"
                if self._modules
                else "register a module first",
                field="id",
            )
        return self._modules[name]

    def of(self, kind: ModuleKind) -> list[Module]:
        """Return the modules of a kind in the order of registration."""
        return list(self._by_kind[kind])

    def all(self) -> list[Module]:
        """Return all modules, sorted by id."""
        return [self._modules[name] for name in sorted(self._modules)]

    def pick(self, kind: ModuleKind) -> Module:
        """Choose the module of a kind for the next piece of work. The kind must have a module."""
        modules = self._by_kind[kind]
        chosen = modules[0] if len(modules) == 1 else self._balance(modules)
        self._turn += 1
        chosen.turn = self._turn
        return chosen


class AnalyzerSpider(Spider):
    """The spider of a crawl with analyzers. Its start requests are passed to ``start`` of the crawl."""

    registry: ClassVar[ModuleRegistry]

    async def start(self) -> AsyncIterator[Request | str]:
        """Yield nothing: the crawl adds the first requests."""
        nothing: tuple[Request, ...] = ()
        for request in nothing:
            yield request

    async def parse(self, response: Response) -> list[Any]:
        """Read a page with the analyzer that load balancing chooses."""
        return await cast(Analyzer, self.registry.pick(ModuleKind.ANALYZER)).analyze(response)


def analyzer_spider(registry: ModuleRegistry, domains: list[str]) -> type[AnalyzerSpider]:
    """Return a spider class for the analyzers of a registry."""
    return type("Analyzers", (AnalyzerSpider,), {"registry": registry, "allowed_domains": domains})


class BalancedFetcher:
    """Passes each request to one of the downloaders. Its caller handles cookies, so all downloaders share them."""

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
