"""ManagedCrawl: a job inside your own program that can be initialized, started, stopped and started again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Self, cast

from msgspec.structs import asdict

from skitter._utils.concurrency import cancel_and_wait
from skitter.errors import SkitterError, UsageError
from skitter.frontends.lifecycle.arguments import CrawlArguments
from skitter.frontends.lifecycle.errors import ErrorFeed, ErrorObserver, ErrorReader
from skitter.frontends.lifecycle.modules import (
    BalancedFetcher,
    Module,
    ModuleError,
    ModuleKind,
    ModuleRegistry,
    Pipeline,
    analyzer_spider,
)
from skitter.frontends.lifecycle.status import (
    CrawlSummary,
    ErrorSummary,
    ModuleSummary,
    Status,
    StatusMachine,
    is_idle,
)
from skitter.request import Request
from skitter.run.builder import RunOverrides
from skitter.run.crawl import Crawl, RunResult
from skitter.run.job import JobFolder
from skitter.run.seeding import requests_in
from skitter.worker.callbacks import describe
from skitter.worker.hooks import HookAction

if TYPE_CHECKING:
    from skitter.frontier.records import AddResult, FrontierStatus
    from skitter.response import Response
    from skitter.spider import Spider


class ManagedCrawl:
    """The life cycle of a job on this machine. A process can have any number of managed crawls, each with its own job.

    A managed crawl belongs to the event loop on which it is used, installs no signal handlers, and leaves no task
    behind after a run. A call that the status does not allow raises
    :class:`~skitter.frontends.lifecycle.status.IllegalTransition` and changes nothing.
    """

    def __init__(self) -> None:
        self._machine = StatusMachine()
        self._feed = ErrorFeed()
        self._factory: RunFactory | None = None
        """The arguments, modules and errors. ``None`` before ``initialize``."""
        self._first: dict[str, Request] = {}
        """All first requests so far, for a run that starts from the beginning."""
        self._domains: list[str] = []
        self._run: Crawl | None = None
        self._task: asyncio.Task[RunResult] | None = None
        self._last: FrontierStatus | None = None
        self._reason = ""
        self._runs = 0

    # --- life cycle ------------------------------------------------------------------------------------

    @property
    def status(self) -> Status:
        """The current status."""
        return self._machine.status

    async def initialize(self, arguments: CrawlArguments) -> None:
        """Check the arguments, the spider, the settings and the modules, and apply all of them or none.

        Allowed before the first run and after a stop. Errors and first requests are reset; modules that are passed again
        keep their counts. Raises :class:`~skitter.errors.SkitterError` for invalid arguments.
        """
        with self._machine.passing(Status.INITIALIZING):
            arguments.check()
            factory = RunFactory(arguments)
            domains = arguments.domains()
            await asyncio.to_thread(factory.make, domains, [])
        self._feed.close()  # let readers of the previous errors end
        self._factory, self._feed, self._domains = factory, factory.feed, domains
        self._first, self._last, self._runs, self._reason = {}, None, 0, ""

    async def start(self, *first: Request | str, fresh: bool = False, recrawl: bool = False) -> None:
        """Start a run, and return when it is running. A run after a stop continues where the last one ended.

        ``first``
            Requests or URLs to start with, in addition to the seeds of the spider. A crawl with analyzers needs at least
            one the first time. Their primary domains are allowed from now on.
        ``fresh``
            Delete the stored state of the job first.
        ``recrawl``
            Start a finished job again.

        Raises :class:`~skitter.errors.SkitterError` if the run cannot start, for example because the job has nothing
        left to do. The previous status is then restored.
        """
        with self._machine.passing(Status.STARTING):
            await self._begin(self._initialized(), first, fresh=fresh, recrawl=recrawl)
        if self._task is not None and self._task.done():  # the run has already ended
            self._settle()

    async def add(self, requests: Iterable[Request | str]) -> AddResult:
        """Add requests or URLs to the run; see :meth:`Crawl.add <skitter.Crawl.add>`. Return how many were new.

        Unlike requests that are passed to :meth:`start`, their domains have to be allowed already. With a frontier in
        memory, later starts also begin with these requests. Raises :class:`~skitter.errors.UsageError` unless the crawl is
        started or stopping.
        """
        run = self._run
        if run is None or self.status not in {Status.STARTED, Status.STOPPING}:
            raise UsageError(
                f"requests cannot be added to a crawl that is {self.status.value}",
                remedy="pass them to start, or start the crawl first; wait_for_seeds keeps it open",
                field="requests",
            )
        if self._initialized().arguments.frontier != "memory:":
            return await run.add(requests)
        from skitter.worker.seeds import read_seed  # noqa: PLC0415 - most programs add no requests

        wanted = requests_in(requests)
        result = await run.add(wanted)
        self._first |= _named(read_seed(seed) if isinstance(seed, str) else seed for seed in wanted)
        return result

    async def stop(self, reason: str = "stopped") -> RunResult:
        """Stop gracefully: requests in progress are finished and committed. Return the result of the run.

        Raises the error of the run if it has failed. Cancelling this call does not cancel the stop.
        """
        self._machine.begin(Status.STOPPING)
        assert self._run is not None
        self._run.stop(reason)
        return await self.wait()

    async def wait(self) -> RunResult:
        """Wait for the end of the last run, and return its result.

        Raises the error of the run if it failed, and :class:`~skitter.errors.UsageError` if no run was started.
        """
        if self._task is None:
            raise UsageError("the crawl has not been started", remedy="await start() first")
        return await asyncio.shield(self._task)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop the crawl if it is running."""
        if self.status is Status.STARTED:
            await self.stop()
        elif self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _begin(
        self, factory: RunFactory, seeds: tuple[Request | str, ...], *, fresh: bool, recrawl: bool
    ) -> None:
        arguments = factory.arguments
        requests = [Request(seed) if isinstance(seed, str) else seed for seed in seeds]
        known = {} if fresh and seeds else self._first
        together = known | _named(requests)
        from_beginning = fresh or recrawl or arguments.frontier == "memory:"
        first = list(together.values()) if from_beginning else requests
        domains = arguments.domains(request.url for request in together.values())
        if arguments.analyzers and not first:
            await asyncio.to_thread(factory.require_first, fresh=fresh)
        signal = StartSignal(arguments.processes == 1)
        run = await asyncio.to_thread(factory.make, domains, first, signal, fresh=fresh, recrawl=recrawl)
        await self._launch(run, signal.started)
        self._first, self._domains = together, domains

    async def _launch(self, run: Crawl, started: asyncio.Future[None]) -> None:
        """Start a run, and wait until it is running. Raises the error that prevents the start."""
        before, self._reason = self._reason, ""
        self._feed.open()
        task = asyncio.create_task(self._supervise(run))
        try:
            await asyncio.wait((task, started), return_when=asyncio.FIRST_COMPLETED)
            has_nothing_to_do = not started.done() and task.result().already_finished
        except BaseException:
            await cancel_and_wait([task])
            self._reason = before
            raise
        if has_nothing_to_do:
            self._reason = before
            raise UsageError(
                f"job {run.spec.job!r} is finished: nothing is left to do",
                remedy="start it with recrawl=True, fresh=True, or new requests",
                field="job",
            )
        self._run, self._task = run, task
        self._runs += 1
        # Otherwise asyncio warns of an error that the program never retrieves.
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())

    async def _supervise(self, run: Crawl) -> RunResult:
        try:
            result = await run.run()
        except BaseException as error:
            if not isinstance(error, asyncio.CancelledError):
                text = str(error) if isinstance(error, SkitterError) else describe(error)
                self._feed.add(ModuleKind.SCHEDULER, error, text)
                self._reason = text
            raise
        else:
            self._last, self._reason = result.status, result.reason
            return result
        finally:
            self._feed.close()
            self._settle()

    def _settle(self) -> None:
        """Update the status after a run that ended by itself or was stopped."""
        if self.status is Status.STARTED:
            self._machine.begin(Status.STOPPING)
        if self.status is Status.STOPPING:
            self._machine.complete()

    # --- modules ---------------------------------------------------------------------------------------

    def register(self, module: Module) -> str:
        """Add a module, before or during a run. Return its id.

        Raises :class:`~skitter.errors.UsageError` for an id that is taken, before ``initialize``, and for the first
        module of a kind: the arguments determine the kinds of modules.
        """
        registry = self._initialized().registry
        if isinstance(module, Module) and not registry.of(module.component):
            raise UsageError(
                f"this crawl was initialized without any {module.component}",
                remedy=f"initialize it with a {module.component}, then register more",
            )
        return registry.register(module)

    def unregister(self, name: str) -> Module:
        """Remove a module. It finishes its work in progress.

        Raises :class:`~skitter.errors.UsageError` for an unknown id, and for the last module of a kind.
        """
        return self._initialized().registry.unregister(name)

    def modules(self) -> list[Module]:
        """Return all modules, sorted by id."""
        return [] if self._factory is None else self._factory.registry.all()

    def _initialized(self) -> RunFactory:
        if self._factory is None:
            raise UsageError("the crawl has not been initialized", remedy="await initialize() first")
        return self._factory

    # --- observation -----------------------------------------------------------------------------------

    def errors(self) -> ErrorReader:
        """Return a reader of the errors that ends with the run: ``async for error in crawl.errors()``.

        Each reader receives all stored and all future errors. A slow reader misses the oldest ones
        (``reader.missed``); the crawl never waits for readers. Errors of other processes appear only in the counters.
        """
        return self._feed.read()

    async def idle(self) -> bool:
        """Return whether there is nothing to do, by one exact reading of the frontier, over all workers.

        The reading misses nothing: a page is leased until it is committed together with its links.
        """
        status = await self._reading()
        return status is None or is_idle(status)

    async def summary(self) -> CrawlSummary:
        """Return a summary. Available in every status."""
        last = await self._reading()
        spec = None if self._factory is None else self._factory.arguments.spec()
        counts: dict[str, Any] = {}
        if last is not None:
            counts = {
                "added": last.added, "queued": last.queued, "delayed": last.delayed, "in_flight": last.leased,
                "done": last.done, "failed": last.failed, "counters": dict(sorted(last.counters.items())),
            }  # fmt: skip
        return CrawlSummary(
            job="" if spec is None else spec.job,
            status=str(self.status),
            runs=self._runs,
            reason=self._reason,
            spider="" if spec is None else spec.spider,
            frontier="" if spec is None else spec.frontier,
            workers=0 if spec is None else spec.workers,
            settings={} if spec is None else spec.settings,
            allowed_domains=self._domains,
            modules=[
                ModuleSummary(module.id, str(module.component), **asdict(module.counts), extra=module.extra())
                for module in self.modules()
            ],
            idle=last is None or is_idle(last),
            errors=ErrorSummary(
                self._feed.total,
                self._feed.dropped,
                {str(kind): n for kind, n in self._feed.by_component.items()},
            ),
            **counts,
        )

    async def _reading(self) -> FrontierStatus | None:
        """Return the current status of the frontier, or the last known one."""
        if self._run is not None:
            # The run itself fails with the same error, and reports it.
            with contextlib.suppress(SkitterError):
                self._last = await self._run.status() or self._last
        return self._last


class StartSignal:
    """Detects that a run is running: by its worker, or, if that is another process, by the first progress."""

    def __init__(self, by_worker: bool) -> None:
        self.by_worker = by_worker
        self.started: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_start(self, _worker_or_progress: object) -> None:
        """Handle the start of the worker, which can be stopped from now on, or the progress of a fleet."""
        if not self.started.done():
            self.started.set_result(None)


class PipelineHook:
    """Hook that passes each item to the pipeline that load balancing chooses."""

    def __init__(self, registry: ModuleRegistry, feed: ErrorFeed) -> None:
        self._registry = registry
        self._feed = feed

    async def before_save(self, response: Response | None, items: list[Any]) -> None:
        """Replace the items of a page by the results of the pipelines."""
        url = "" if response is None else response.url

        def report(error: ModuleError) -> None:
            self._feed.add(error.component, error.root, str(error), error.module, url)

        kept = []
        for item in items:
            pipeline = cast(Pipeline, self._registry.pick(ModuleKind.PIPELINE))
            processed = await pipeline.process(item, report)
            if processed is not HookAction.DROP:
                kept.append(processed)
        items[:] = kept


def _named(requests: Iterable[Request]) -> dict[str, Request]:
    """Return requests by the values that distinguish them."""
    return {f"{request.method} {request.url} {request.body!r}": request for request in requests}


class RunFactory:
    """Creates the runs of a managed crawl from its arguments, modules and error feed."""

    def __init__(self, arguments: CrawlArguments) -> None:
        self.arguments = arguments
        self.registry = ModuleRegistry(arguments.modules(), arguments.balance)
        self.feed = ErrorFeed(arguments.error_capacity)

    def make(
        self,
        domains: list[str],
        first: list[Request],
        signal: StartSignal | None = None,
        *,
        fresh: bool = False,
        recrawl: bool = False,
    ) -> Crawl:
        """Create a run. Reads files, so do not call it on the event loop."""
        arguments = self.arguments
        settings: dict[str, Any] = {}
        if arguments.downloaders:
            settings["fetcher"] = partial(BalancedFetcher, self.registry)
        hooks: list[object] = [ErrorObserver(self.feed)] if arguments.processes == 1 else []
        if arguments.pipelines:
            hooks.append(PipelineHook(self.registry, self.feed))
        if signal is not None and signal.by_worker:
            hooks.append(signal)
        return Crawl(
            arguments.spec(),
            spider_class=self._spider(domains),
            overrides=RunOverrides(hooks, settings, first),
            watcher=None if signal is None or signal.by_worker else signal.on_start,
            fresh=fresh,
            recrawl=recrawl,
            resume=True,
        )

    def require_first(self, *, fresh: bool) -> None:
        """Raise :class:`~skitter.errors.UsageError` for a run without start requests.

        A job on a server may have requests that another program added.
        """
        arguments = self.arguments
        kind = arguments.frontier.partition(":")[0]
        exists = not fresh and kind == "sqlite" and JobFolder(arguments.job, arguments.home).exists()
        if kind in {"memory", "sqlite"} and not exists and not arguments.settings.get("wait_for_seeds"):
            raise UsageError("the crawl has no start requests", remedy="pass a URL: await crawl.start(URL)")

    def _spider(self, domains: list[str]) -> type[Spider] | None:
        arguments = self.arguments
        if arguments.analyzers:
            return analyzer_spider(self.registry, domains)
        if not domains and isinstance(arguments.spider, str):
            return None
        from skitter.run.loader import load_spider_class  # noqa: PLC0415 - a crawl with analyzers loads no spider

        spider = (
            load_spider_class(arguments.spider) if isinstance(arguments.spider, str) else arguments.spider
        )
        return type(spider.__name__, (spider,), {"allowed_domains": domains}) if domains else spider
