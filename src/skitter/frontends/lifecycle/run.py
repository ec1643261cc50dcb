"""Run: makes one run of a managed crawl out of its arguments and modules, and finds out when it is at work."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from skitter.errors import UsageError
from skitter.frontends.lifecycle.analyzer import analyzer_spider
from skitter.frontends.lifecycle.arguments import CrawlArguments
from skitter.frontends.lifecycle.downloader import BalancedFetcher
from skitter.frontends.lifecycle.feed import ErrorFeed
from skitter.frontends.lifecycle.observer import Observer
from skitter.frontends.lifecycle.pipeline import Pipelines
from skitter.frontends.lifecycle.registry import Registry
from skitter.run.builder import RunOverrides
from skitter.run.crawl import Crawl, Progress
from skitter.run.job import JobFolder

if TYPE_CHECKING:
    from skitter.fetch.identity.contract import SourceContext
    from skitter.spider import Spider


class Begun:
    """Finds out that a run is at work: by its worker, or, where that is another process, by its first reading."""

    def __init__(self, by_worker: bool) -> None:
        self.by_worker = by_worker
        self.at_work: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_start(self, _worker: object) -> None:
        """Hear from the worker, which can be stopped from now on."""
        self._tell()

    def watch(self, _progress: Progress) -> None:
        """Hear from the run that its fleet is being looked after."""
        self._tell()

    def _tell(self) -> None:
        if not self.at_work.done():
            self.at_work.set_result(None)


def make_run(
    arguments: CrawlArguments,
    registry: Registry,
    feed: ErrorFeed,
    domains: list[str],
    first: list[Any],
    begun: Begun | None = None,
    *,
    fresh: bool = False,
    recrawl: bool = False,
) -> Crawl:
    """Make a run from its parts; it looks at files, so not on the event loop."""
    settings: dict[str, Any] = {}
    if arguments.downloaders:

        def fetcher(context: SourceContext) -> BalancedFetcher:
            return BalancedFetcher(registry, context)

        settings["fetcher"] = fetcher
    hooks: list[object] = [Observer(feed)] if arguments.processes == 1 else []
    if arguments.pipelines:
        hooks.append(Pipelines(registry, feed))
    if begun is not None and begun.by_worker:
        hooks.append(begun)
    return Crawl(
        arguments.spec(),
        spider_class=_spider(arguments, registry, domains),
        overrides=RunOverrides(hooks, settings, first),
        watcher=None if begun is None or begun.by_worker else begun.watch,
        fresh=fresh,
        recrawl=recrawl,
        resume=True,
    )


def need_first(arguments: CrawlArguments, *, fresh: bool) -> None:
    """Refuse a run that would have nothing to do; a job in a server may have been begun by somebody else."""
    kind = arguments.frontier.partition(":")[0]
    begun = not fresh and kind == "sqlite" and JobFolder(arguments.job, arguments.home).exists()
    if kind in {"memory", "sqlite"} and not begun and not arguments.settings.get("wait_for_seeds"):
        raise UsageError("there is nothing to start from", remedy="name a URL: await crawl.start(URL)")


def _spider(arguments: CrawlArguments, registry: Registry, domains: list[str]) -> type[Spider] | None:
    if arguments.analyzers:
        return analyzer_spider(registry, domains)
    if not domains and isinstance(arguments.spider, str):
        return None
    from skitter.run.loader import load_spider_class  # noqa: PLC0415 - a crawl of analyzers loads nothing

    spider = load_spider_class(arguments.spider) if isinstance(arguments.spider, str) else arguments.spider
    return type(spider.__name__, (spider,), {"allowed_domains": domains}) if domains else spider
