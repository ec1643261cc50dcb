"""ManagedCrawl: a job within a program of your own, which is initialized, started, stopped and started again."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Self

from skitter.errors import SkitterError, UsageError
from skitter.frontends.lifecycle.arguments import CrawlArguments
from skitter.frontends.lifecycle.component import Component
from skitter.frontends.lifecycle.feed import ErrorFeed, ErrorReader
from skitter.frontends.lifecycle.module import Module
from skitter.frontends.lifecycle.registry import Registry
from skitter.frontends.lifecycle.run import Begun, make_run, need_first
from skitter.frontends.lifecycle.status import Status, StatusMachine
from skitter.frontends.lifecycle.summary import CrawlSummary, error_summary, is_idle, module_summary
from skitter.request import Request
from skitter.run.crawl import Crawl, RunResult
from skitter.worker.callbacks import describe

if TYPE_CHECKING:
    from skitter.frontier.records import FrontierStatus


class ManagedCrawl:
    """The life cycle of a job on this machine. Any number of them run in one process, each with a job of its own.

    It belongs to the event loop on which it is used, installs no signal handlers, and leaves no task behind
    when a run is over. A call that does not fit the status raises
    :class:`~skitter.frontends.lifecycle.status.IllegalTransition` and changes nothing.
    """

    def __init__(self) -> None:
        self._machine = StatusMachine()
        self._arguments: CrawlArguments
        self._registry = Registry()
        self._feed = ErrorFeed()
        self._first: dict[str, Request | str] = {}
        """What it was ever started with, for a run that begins anew."""
        self._domains: list[str] = []
        self._run: Crawl | None = None
        self._task: asyncio.Task[RunResult] | None = None
        self._last: FrontierStatus | None = None
        self._reason = ""
        self._runs = 0

    # --- life ------------------------------------------------------------------------------------------

    @property
    def status(self) -> Status:
        """Where it is in its life."""
        return self._machine.status

    async def initialize(self, arguments: CrawlArguments) -> None:
        """Check the arguments, spider, settings and parts, and take them over: all of them, or none.

        Legal before the first run and after a stop. Errors and first requests begin anew; a module that is given
        again brings its counts along.
        Raises :class:`~skitter.errors.SkitterError` for what does not fit.
        """
        with self._machine.passing(Status.INITIALIZING):
            arguments.check()
            registry = Registry(arguments.modules(), arguments.balance)
            feed = ErrorFeed(arguments.error_capacity)
            domains = arguments.domains()
            await asyncio.to_thread(make_run, arguments, registry, feed, domains, [])
        self._feed.close()  # whoever reads of what is no more
        self._arguments, self._registry, self._feed, self._domains = arguments, registry, feed, domains
        self._first, self._last, self._runs, self._reason = {}, None, 0, ""

    async def start(self, *first: Request | str, fresh: bool = False, recrawl: bool = False) -> None:
        """Begin a run; returns when it is at work. After a stop the next run goes on where that one left.

        ``first``
            Requests or URLs to begin with, besides the seeds of the spider; a crawl of analyzers needs one the first
            time. Their primary domains are accepted from now on.
        ``fresh``
            Forget all that the job has kept.
        ``recrawl``
            Begin a finished job again.

        Raises :class:`~skitter.errors.SkitterError` if the run cannot begin; the status is then as before. A job
        with nothing left to do cannot begin.
        """
        with self._machine.passing(Status.STARTING):
            await self._begin(first, fresh=fresh, recrawl=recrawl)
        if self._task is not None and self._task.done():  # so little was to be done
            self._settle()

    async def stop(self, reason: str = "stopped") -> RunResult:
        """Stop gracefully: what is in hand is finished and committed, the rest is kept. Returns how the run ended.

        Raises what made the run fail, if it failed meanwhile. Cancelling this call does not call off the stop.
        """
        self._machine.begin(Status.STOPPING)
        assert self._run is not None
        self._run.stop(reason)
        return await self.wait()

    async def wait(self) -> RunResult:
        """Wait for the end of the run that was started last, and return how it ended.

        Raises what made it fail, and :class:`~skitter.errors.UsageError` if none was started.
        """
        if self._task is None:
            raise UsageError("the crawl has not been started", remedy="await start() first")
        return await asyncio.shield(self._task)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop, if it is at work."""
        if self.status is Status.STARTED:
            await self.stop()
        elif self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _begin(self, given: tuple[Request | str, ...], *, fresh: bool, recrawl: bool) -> None:
        requests = [Request(one) if isinstance(one, str) else one for one in given]
        known = {} if fresh and given else self._first
        together: dict[str, Request | str] = {**known, **{_key(request): request for request in requests}}
        anew = fresh or recrawl or self._arguments.frontier == "memory:"
        begin_with = list(together.values()) if anew else requests
        domains = self._arguments.domains(_url(request) for request in together.values())
        if self._arguments.analyzers and not begin_with:
            await asyncio.to_thread(need_first, self._arguments, fresh=fresh)
        begun = Begun(self._arguments.processes == 1)
        run = await asyncio.to_thread(
            make_run, self._arguments, self._registry, self._feed, domains, begin_with, begun,
            fresh=fresh, recrawl=recrawl,
        )  # fmt: skip
        await self._launch(run, begun.at_work)
        self._first, self._domains = together, domains

    async def _launch(self, run: Crawl, begun: asyncio.Future[None]) -> None:
        """Start a run, and wait until it is at work. Raises what keeps it from that."""
        before, self._reason = self._reason, ""
        self._feed.open()
        task = asyncio.create_task(self._see_through(run))
        try:
            await self._at_work(task, run, begun)
        except BaseException:
            self._reason = before
            raise
        self._run, self._task = run, task
        self._runs += 1
        task.add_done_callback(_look_at)

    @staticmethod
    async def _at_work(task: asyncio.Task[RunResult], run: Crawl, begun: asyncio.Future[None]) -> None:
        try:
            await asyncio.wait((task, begun), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise
        if not begun.done() and task.result().already_finished:
            raise UsageError(
                f"job {run.spec.job!r} is finished: there is nothing left to do",
                remedy="start it with recrawl=True, fresh=True, or requests that it has not met",
            )

    async def _see_through(self, run: Crawl) -> RunResult:
        try:
            result = await run.run()
        except BaseException as error:
            if not isinstance(error, asyncio.CancelledError):
                text = str(error) if isinstance(error, SkitterError) else describe(error)
                self._feed.tell(Component.SCHEDULER, error, text)
                self._reason = text
            raise
        else:
            self._last, self._reason = result.status, result.reason
            return result
        finally:
            self._feed.close()
            self._settle()

    def _settle(self) -> None:
        """Take note that a run is over, by itself or because it was stopped."""
        if self.status is Status.STARTED:
            self._machine.begin(Status.STOPPING)
        if self.status is Status.STOPPING:
            self._machine.complete()

    # --- modules ---------------------------------------------------------------------------------------

    def register(self, module: Module) -> str:
        """Add a module, in the middle of a run too; returns its id.

        Raises :class:`~skitter.errors.UsageError` for an id that is taken, before ``initialize``, and for the first
        module of its kind: which kinds there are is a matter of the arguments.
        """
        self._need_arguments()
        if isinstance(module, Module) and not self._registry.of(module.component):
            raise UsageError(
                f"this crawl has no {module.component}s of its own",
                remedy="initialize it with one, then more can be registered",
            )
        return self._registry.register(module)

    def unregister(self, name: str) -> Module:
        """Take a module out; what it has in hand it finishes.

        Raises :class:`~skitter.errors.UsageError` if there is none of that id, or if it is the last of its kind.
        """
        self._need_arguments()
        return self._registry.unregister(name)

    def modules(self) -> list[Module]:
        """Return all modules by id."""
        return self._registry.all()

    def _need_arguments(self) -> None:
        if not hasattr(self, "_arguments"):
            raise UsageError("the crawl has not been initialized", remedy="await initialize() first")

    # --- looking at it ---------------------------------------------------------------------------------

    def errors(self) -> ErrorReader:
        """Return a reader of the errors, ``async for error in crawl.errors()``, that ends with the run.

        Each reader gets all that are kept and all that come. A reader that is slow misses the oldest
        (``reader.missed``); nobody ever waits for it. Errors in other processes are counted by the frontier alone.
        """
        return self._feed.read()

    async def idle(self) -> bool:
        """Tell whether there is nothing to do: one exact reading of the frontier, over all workers.

        Nothing can be on its way unseen: a page is leased until it is committed together with its links.
        """
        status = await self._reading()
        return status is None or is_idle(status)

    async def summary(self) -> CrawlSummary:
        """Sum up. Never fails for the status; before ``initialize`` there is little in it."""
        last = await self._reading()
        arguments = getattr(self, "_arguments", None)
        counts: dict[str, Any] = {}
        if last is not None:
            counts = {
                "added": last.added, "queued": last.queued, "delayed": last.delayed, "in_flight": last.leased,
                "done": last.done, "failed": last.failed, "counters": dict(sorted(last.counters.items())),
            }  # fmt: skip
        spec = None if arguments is None else arguments.spec()
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
            modules=[module_summary(module) for module in self._registry.all()],
            idle=last is None or is_idle(last),
            errors=error_summary(self._feed),
            **counts,
        )

    async def _reading(self) -> FrontierStatus | None:
        """Return what the frontier says, or said last."""
        if self._run is not None:
            with contextlib.suppress(SkitterError):  # the run meets the same error, and tells it
                self._last = await self._run.status() or self._last
        return self._last


def _url(request: Request | str) -> str:
    return request if isinstance(request, str) else request.url


def _key(request: Request) -> str:
    return f"{request.method} {request.url} {request.body!r}"


def _look_at(task: asyncio.Task[RunResult]) -> None:
    """Take note of how a run ended: nobody has to ask, and asyncio complains about what nobody asked for."""
    if not task.cancelled():
        task.exception()
