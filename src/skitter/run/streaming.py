"""Items as an iterator, for programs and notebooks that process items themselves."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from skitter._utils.concurrency import LoopThread
from skitter._utils.visible import visible
from skitter.errors import CrawlFailed, FetchError, StatusError
from skitter.request import Request
from skitter.response import Response
from skitter.run.builder import RunOverrides
from skitter.run.crawl import Crawl, RunResult, Watcher
from skitter.run.job import JobSpec
from skitter.run.process import new_event_loop
from skitter.secrets import shown_url
from skitter.spider import Spider
from skitter.worker.callbacks import describe

_WAITING_PAGES = 64
"""Number of pages whose items may wait for the consumer before the crawl waits."""
_MAX_REASONS = 5
"""Number of URLs whose errors are named if nothing could be fetched."""


async def stream(
    spider: type[Spider] | str,
    *,
    arguments: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    watcher: Watcher | None = None,
) -> AsyncGenerator[Any, None]:
    """Crawl with a spider, and yield its items as the callbacks returned them.

    The crawl runs in this process, on the running event loop, with one worker and a frontier in memory. It fetches ahead
    of the consumer by at most 64 pages. It stops when the iterator is closed; enclose an iteration that may end early in
    :func:`contextlib.aclosing`.

    ``spider``
        A class, or a name such as ``FILE.py:Class``.
    ``arguments``, ``settings``
        As in :class:`~skitter.JobSpec`.
    ``watcher``
        Called twice a second and at the end with the progress, such as :class:`~skitter.ProgressLine`.

    Raises :class:`~skitter.errors.SkitterError` if the crawl cannot start or fails, and
    :class:`~skitter.errors.CrawlFailed` with the reasons if no page of any seed could be fetched and processed, as
    ``skitter run`` does with exit status 1.
    """
    home = await asyncio.to_thread(tempfile.mkdtemp, prefix="skitter-")
    spec = JobSpec(
        job="stream", spider=spider, arguments=dict(arguments or {}), settings=dict(settings or {}),
        frontier="memory:", home=home,
    )  # fmt: skip
    handover = _Handover()
    crawl = Crawl(
        spec,
        spider_class=None if isinstance(spider, str) else spider,
        overrides=RunOverrides(hooks=[handover]),
        watcher=watcher,
    )
    running = asyncio.create_task(crawl.run())
    try:
        while (items := await handover.next(running)) is not None:
            for item in items:
                yield item
        result = await running
        if result.fetched_nothing:
            raise handover.failure_of(result)
    finally:
        handover.close()
        crawl.stop("the consumer of its items has ended")
        await asyncio.wait([running])
        await asyncio.to_thread(shutil.rmtree, home, ignore_errors=True)


def iter_items(
    spider: type[Spider] | str,
    *,
    arguments: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    watcher: Watcher | None = None,
) -> Generator[Any, None, None]:
    """Crawl with a spider, and yield its items: :func:`stream` for programs without an event loop.

    The crawl runs in its own thread, so it also works where an event loop is already running, as in a notebook. Ctrl-C ends
    the crawl after its requests in progress.
    """
    loop = LoopThread("skitter", new_event_loop())
    items: Any = stream(spider, arguments=arguments, settings=settings, watcher=watcher)

    async def step() -> Any:
        return await anext(items, _END)

    async def close() -> None:
        async with aclosing(items):
            pass

    try:
        while (item := loop.run(step())) is not _END:
            yield item
    finally:
        # A second Ctrl-C does not wait for the crawl, which ends in its thread.
        if not items.ag_running:
            loop.run(close())
            loop.stop()


def _reason_of(error: BaseException) -> str:
    if isinstance(error, FetchError):
        return f"{error.kind}: {error}"
    return str(error) if isinstance(error, StatusError) else describe(error)


_END = object()


class _Handover:
    """A hook that passes saved items to the consumer, and waits if the consumer is slow."""

    def __init__(self) -> None:
        self._pages: asyncio.Queue[Sequence[Any]] = asyncio.Queue(_WAITING_PAGES)
        self._closed = False
        self._errors: dict[str, str] = {}
        """The last error of each URL."""

    def on_error(self, request: Request, error: BaseException) -> None:
        if request.url in self._errors or len(self._errors) < _MAX_REASONS:
            self._errors[request.url] = visible(_reason_of(error))

    def failure_of(self, result: RunResult) -> CrawlFailed:
        """Return the error of a crawl that fetched nothing, with its reasons."""
        counters = result.counters
        reasons = [f"{shown_url(url)}: {error}" for url, error in self._errors.items()]
        refused = sorted(name for name in counters if name.startswith("refused/") and counters[name])
        reasons += [f"{counters[name]} refused ({name.removeprefix('refused/')})" for name in refused]
        return CrawlFailed(
            f"{result.empty_because}: {'; '.join(reasons)}",
            remedy="check the URLs; the log of `skitter.crawl` has the details",
        )

    async def after_save(self, _response: Response, items: list[Any]) -> None:
        if not self._closed:
            await self._pages.put(list(items))

    async def next(self, running: asyncio.Task[Any]) -> Sequence[Any] | None:
        """Return the items of the next page; ``None`` if the crawl has ended and all items were returned."""
        if self._pages.empty() and not running.done():
            getting = asyncio.create_task(self._pages.get())
            try:
                await asyncio.wait([getting, running], return_when=asyncio.FIRST_COMPLETED)
                if getting.done():
                    return getting.result()
            finally:
                getting.cancel()
        return None if self._pages.empty() else self._pages.get_nowait()

    def close(self) -> None:
        """Discard the remaining items, and let the crawl continue without the consumer."""
        self._closed = True
        while not self._pages.empty():
            self._pages.get_nowait()
