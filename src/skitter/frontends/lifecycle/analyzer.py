"""Analyzer: a module with parsers of pages, and the spider that passes its pages to analyzers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, ClassVar, cast

from skitter.errors import RetryRequest, UsageError
from skitter.frontends.lifecycle.modules import Module, ModuleError, ModuleKind, ModuleRegistry
from skitter.request import Request
from skitter.response import Response
from skitter.spider import Spider
from skitter.worker.callbacks import describe, run_callback

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
        if not parsers:
            raise UsageError(
                "an analyzer needs at least one parser", remedy="pass a function", field="parsers"
            )
        for parser in parsers:
            if not callable(parser):
                raise UsageError(
                    f"parser {parser!r:.60} is not callable", remedy="pass functions", field="parsers"
                )
        self._parsers = parsers

    async def analyze(self, response: Response) -> list[Any]:
        """Run all parsers. Raises :class:`~skitter.frontends.lifecycle.modules.ModuleError` if any parser fails."""
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
