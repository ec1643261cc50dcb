"""Analyzer: parsers that are registered by an id, and the spider that hands them its pages."""

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
"""A plain function, coroutine function, generator or async generator; gives items, requests and links."""


class Analyzer(Module):
    """Several parsers for each page, in their order; what they give is joined.

    A page is completed only if none of them fails: else nothing of it is kept, and it is a dead letter with the
    errors of all of them, to be tried again when they are mended.

    Raises, when made, :class:`~skitter.errors.UsageError` for no parsers, and for one that cannot be called.
    """

    component = ModuleKind.ANALYZER

    def __init__(self, *parsers: Parser, id: str = "") -> None:  # noqa: A002 - as in Module
        super().__init__(id)
        if not parsers:
            raise UsageError(
                "an analyzer without parsers reads nothing", remedy="give it one function at least"
            )
        for parser in parsers:
            if not callable(parser):
                raise UsageError(f"parser {parser!r:.60} cannot be called", remedy="give functions")
        self._parsers = parsers

    async def analyze(self, response: Response) -> list[Any]:
        """Run all parsers. Raises :class:`~skitter.frontends.lifecycle.modules.ModuleError` if any of them fails."""
        given: list[Any] = []
        errors: list[Exception] = []
        with self.at_work() as counts:
            counts.accepted += 1
            for parser in self._parsers:
                try:
                    given += await run_callback(parser, response)
                except RetryRequest:
                    raise
                except Exception as error:  # noqa: BLE001 - user code; all of them are told below
                    errors.append(error)
            if errors:
                text = "; ".join(describe(error) for error in errors)
                raise ModuleError(self.component, self.id, text) from errors[0]
        return given

    def extra(self) -> dict[str, Any]:
        """Return the number of parsers."""
        return {"parsers": len(self._parsers)}


class AnalyzerSpider(Spider):
    """The spider of a crawl that is made of analyzers. Where it starts, ``start`` of the crawl is told."""

    registry: ClassVar[ModuleRegistry]

    async def start(self) -> AsyncIterator[Request | str]:
        """Yield nothing: the first requests are added beside."""
        nothing: tuple[Request, ...] = ()
        for request in nothing:
            yield request

    async def parse(self, response: Response) -> list[Any]:
        """Read a page by the analyzer that the balance chooses."""
        return await cast(Analyzer, self.registry.pick(ModuleKind.ANALYZER)).analyze(response)


def analyzer_spider(registry: ModuleRegistry, domains: list[str]) -> type[AnalyzerSpider]:
    """Return a spider class for the analyzers of a registry."""
    return type("Analyzers", (AnalyzerSpider,), {"registry": registry, "allowed_domains": domains})
