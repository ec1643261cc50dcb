"""Worker: one process that runs the loop.

:class:`~skitter.worker.pipeline.RequestPipeline` shows what happens to each request.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from skitter.errors import CrawlFailed, SkitterError, counted
from skitter.fetch.cookies import cookies_in
from skitter.fetch.tdmrep import TdmFiles
from skitter.frontier.contract import Frontier
from skitter.frontier.options import SettingsChanges
from skitter.frontier.records import Entry, JobInfo, JobState, LeaseResult
from skitter.politeness import HostLimits
from skitter.request import Request
from skitter.response import Response
from skitter.worker import DRAIN_SECONDS, WorkerParts
from skitter.worker.callbacks import describe
from skitter.worker.committer import Committer
from skitter.worker.crawl_control import CrawlControl
from skitter.worker.heartbeat import WorkerReporter
from skitter.worker.hooks import call
from skitter.worker.inflight import REPORT_DELAY, Inflight, make_queue_budget
from skitter.worker.lease_loop import LeaseLoop
from skitter.worker.leaser import Leaser
from skitter.worker.links import LinkStream
from skitter.worker.pipeline import RequestPipeline
from skitter.worker.revisit import Revisits, RevisitSchedule
from skitter.worker.robots import RobotsGate
from skitter.worker.seeds import ExternalSeedReader, SeedLoader

if TYPE_CHECKING:  # few crawls download files
    from skitter.worker.media import MediaPipeline

log = logging.getLogger("skitter.crawl")

_SEED_POLL_INTERVAL = 1.0
"""Seconds between two checks whether another worker has loaded the seeds or has stopped loading them."""


class Worker:
    """Leases requests, fetches them, runs callbacks and hooks, stores items and commits.

    ``queues``: the queues that it serves; empty: all. ``on_leases``: called with the number of leases in each result of
    the frontier, for the process that watches the worker.
    """

    def __init__(
        self,
        name: str,
        parts: WorkerParts,
        frontier: Frontier,
        info: JobInfo,
        queues: Sequence[str] = (),
        on_leases: Callable[[int], object] | None = None,
    ) -> None:
        self.name = name
        self._loop = asyncio.get_running_loop()
        self.spider = parts.spider
        self.settings = settings = parts.settings
        self._hooks = parts.hooks
        self._frontier = frontier
        budget = make_queue_budget(queues, settings.queue_sizes())
        concurrency = None if budget is None else budget.concurrency
        concurrency = settings.concurrency if concurrency is None else concurrency
        self._max_fetches = limit = parts.fetcher.capabilities.concurrency
        buffering = parts.outputs.buffering
        self._inflight = Inflight(
            concurrency if limit is None else min(concurrency, limit),
            0 if buffering is None else buffering.items,
            budget,
            max_aside=settings.max_first_contacts(),
            report_delay=REPORT_DELAY if frontier.shared else 0.0,
            tracer=parts.tracer,
        )
        self._control = CrawlControl(frontier, self._inflight)
        self._robots = RobotsGate(parts.site_file_fetcher, frontier, settings) if settings.robots else None
        self._tdm_files: TdmFiles | None = None
        if settings.obey_tdm or settings.directives_field is not None:
            self._tdm_files = TdmFiles(parts.site_file_fetcher, settings.robots_ttl, frontier.notes)
        self._links = parts.links
        self._guard = parts.guard
        self._cookies = parts.cookies
        self._committer = Committer(
            frontier,
            parts.outputs,
            self._hooks,
            self._inflight,
            self._links,
            self._control,
            self.spider.stats,
        )
        self._revisits = _revisits_of(parts)
        pipeline = RequestPipeline(
            parts,
            self._control,
            LinkStream(frontier, self._inflight.capacity),
            robots=self._robots,
            tdm_files=self._tdm_files,
            media=_media_of(parts, frontier, name),
            revisits=self._revisits,
        )
        self.callbacks = pipeline.callbacks
        """Runs the callbacks of the job."""
        leaser = Leaser(name, frontier, self._inflight, pipeline, self._committer, self._on_result)
        self._on_leases = on_leases
        self._sharing = parts.sharing
        self._cookie_keeper = parts.cookie_keeper
        self._default_concurrency = self._inflight.concurrency
        self._revision = 0
        """Number of the settings changes that the worker has applied."""
        self._pass_number = 0
        self._schedule: RevisitSchedule | None = None
        """Chooses the pages to fetch again; ``None``: all."""
        self._saving: asyncio.Task[None] | None = None
        reporter = WorkerReporter(
            name, frontier, self._inflight, self._committer, tuple(queues), parts.fetcher.capabilities.outage
        )
        self._lease_loop = LeaseLoop(name, frontier, info, self._control, leaser, self._committer, reporter)

    # --- running ---------------------------------------------------------------------------------------

    async def run(self) -> JobState:
        """Work until the job is finished or stopped. Return its state.

        Raises :class:`~skitter.errors.CrawlFailed` if a hook, the seeds or a store ended the crawl, and this error or
        :class:`~skitter.errors.FrontierError` if the frontier did.
        """
        try:
            await self._begin_pass((await self._frontier.status()).pass_number)
            await self._call_hooks("on_start")
            if self._cookie_keeper is not None:
                self._control.start(self._cookie_keeper.run())
            readers = [reader.run() for reader in self._seed_readers()]
            state = await self._lease_loop.run(self._load_seeds(), *readers)
        finally:
            await self._shut_down()
        if self._schedule is not None:
            await self._schedule.save(self._frontier.notes)
        await self._call_hooks("on_stop")
        return state

    def _seed_readers(self) -> Iterator[ExternalSeedReader]:
        """Yield the readers of seeds that other programs write."""
        sources = [
            self._frontier.seed_keys if self.settings.seed_keys else None,
            self._frontier.topic_seeds,
        ]
        for source in filter(None, sources):
            yield ExternalSeedReader(
                source,
                self._links,
                self.name,
                self._inflight.capacity,
                self._guard,
                self.spider,
                self.settings.seed_format,
            )

    async def _begin_pass(self, number: int) -> None:
        """Prepare for a pass, if the job remembers its pages."""
        self._pass_number = number
        if self._revisits is None:
            return
        share = self.settings.revisit_share
        if share < 1:
            if self._saving is not None:
                self._saving.cancel()
            self._schedule = await RevisitSchedule.load(self._frontier.notes, share, number)
            self._saving = self._control.start(self._schedule.keep_saved(self._frontier.notes))
        self._revisits.begin_pass(number, self._schedule)

    async def _follow_pass(self) -> None:
        """Continue with a pass that another machine started before this worker noticed the end of the previous pass.

        The process that started it may die before it has loaded the seeds.
        """
        number = (await self._frontier.status()).pass_number
        if number != self._pass_number:
            await self._begin_pass(number)
            self._control.start(self._load_seeds())

    async def _shut_down(self) -> None:
        await self._lease_loop.release()
        self.callbacks.close()
        # Pages that wait for robots.txt must be cancelled before, or they would treat this cancellation as an error.
        if self._robots is not None:
            await self._robots.close()
        if self._tdm_files is not None:
            await self._tdm_files.close()
        if self._cookie_keeper is not None:
            with contextlib.suppress(SkitterError):  # without its frontier, the run ends anyway
                await self._cookie_keeper.save()
        await self._lease_loop.leave()

    async def _on_result(self, result: LeaseResult) -> None:
        """Apply the changes that a result of the frontier reports."""
        if self._on_leases is not None:
            self._on_leases(len(result.leases))
        if result.known_urls or result.compared_pages:
            self._links.learn(result.known_urls, result.compared_pages)
        if result.data_loss:
            self._links.cache.forget()
            self._control.start(self._guard.restore())
        if result.revision != self._revision:
            self._revision = result.revision
            self._links.cache.forget()  # it may refuse links to a host whose ban was lifted or whose budget was raised
            changes = await self._frontier.control.settings_changes()
            wanted = changes.settings.get("concurrency", self._default_concurrency)
            limit = self._max_fetches
            self._inflight.concurrency = wanted if limit is None else min(wanted, limit)
            if changes.shared_cookies and self._sharing is not None:
                self._sharing.is_on = True
            await self._follow_pass()

    async def _call_hooks(self, point: str) -> None:
        for hook in self._hooks[point]:
            try:
                await call(hook, self)
            except SkitterError as error:
                raise CrawlFailed(f"hook {point}: {error}", remedy=error.remedy) from error
            except Exception as error:
                raise CrawlFailed(f"hook {point}: {describe(error)}", remedy="correct the hook") from error

    async def _load_seeds(self) -> None:
        accepts_external = bool(self.settings.seed_keys) or self.settings.seconds_to_wait() > 0
        loader = SeedLoader(
            self.spider,
            self._frontier,
            self._links,
            self.name,
            self._inflight.capacity,
            accepts_external=accepts_external,
            guard=self._guard,
        )
        await loader.run()
        while (await self._frontier.status()).seeds_loading:
            # Another worker has the claim, or this one has lost it. The claim is released when the heartbeats of its
            # holder stop.
            await asyncio.sleep(_SEED_POLL_INTERVAL)
            await loader.run()

    # --- for hooks and spiders -------------------------------------------------------------------------

    def drain(self) -> None:
        """Stop leasing, finish the requests in progress, then end. An outage of the frontier does not delay the end."""
        self._inflight.drain()
        self._frontier.limit_outages(DRAIN_SECONDS)

    def stop(self, source: str) -> None:
        """Stop the crawl gracefully, on all workers.

        ``source`` names the caller, for the log. Can be called from any thread.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self._loop.call_soon_threadsafe(self._control.stop, source)
        else:
            self._control.stop(source)

    def start_task(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine concurrently with the crawl. It is cancelled at the end; an error in it fails the crawl."""
        return self._control.start(work)

    def refusal(self, url: str, depth: int) -> str | None:
        """Return the reason why the scope refuses a URL at a depth, such as ``host``, or ``None``."""
        return self._links.refusal(url, depth)

    async def add(self, requests: Iterable[Any], parent: Request) -> None:
        """Add requests and links now, as children of a request whose callback has not run yet. They are durable on return.

        Raises :class:`~skitter.errors.SpiderError` for anything else.
        """
        found = self._links.collect(requests, parent)
        entries = found.entries + [entry for batch in found.batches for entry in batch.entries()]
        for reason, amount in found.refused.items():
            log.warning(
                "refused %s before the response of %s: %s", counted(amount, "request"), parent.url, reason
            )
        await self._inflight.capacity.wait()
        self._inflight.capacity.take(len(entries))
        await self._frontier.add(entries)

    async def knows(self, request: Request) -> bool:
        """Return whether the job knows a request: it is queued, leased, done or failed.

        A request that the scope refuses is never known. Other workers may add the request at any moment.
        """
        entry = self._links.entry(request)
        if not isinstance(entry, Entry):
            return False
        return not next(iter(await self._frontier.unknown([entry.fingerprint])))

    async def cookies(self, url: str, session: str = "") -> dict[str, str]:
        """Return the cookies that a request for a URL would send, by name."""
        header = await self._cookies.header_for(Request(url, session=session))
        return cookies_in(header)

    async def set_cookies(self, url: str, lines: Sequence[str], session: str = "") -> None:
        """Set cookies as a response from this URL with these ``Set-Cookie`` values would.

        All workers that share cookies see them.
        """
        headers = "".join(f"Set-Cookie: {line}\r\n" for line in lines).encode()
        await self._cookies.absorb(Response(url, headers=headers, request=Request(url, session=session)))

    async def limit_domains(self, limits: dict[str, HostLimits]) -> None:
        """Replace the limits per domain, for all workers."""
        before = (await self._frontier.control.settings_changes()).domain_limits
        if (before or {}) != limits:
            await self._frontier.control.change_settings(SettingsChanges(domain_limits=limits))

    async def drop_task(self, task: str, interval: float) -> int:
        """Remove the waiting requests of a task from the queue. Return their number.

        If several workers call it within ``interval`` seconds, only the first call has an effect; the others return 0.
        """
        claimant = self.name.encode()
        if not await self._frontier.notes.compare_and_swap(
            f"skitter:drop-task:{task}", None, claimant, interval
        ):
            return 0
        dropped = await self._frontier.control.drop_task(task)
        if dropped:
            log.info("task %s is closed: dropped %s", task, counted(dropped, "waiting request"))
        return dropped


def _revisits_of(parts: WorkerParts) -> Revisits | None:
    if parts.settings.changes is None:
        return None
    return Revisits(
        parts.settings,
        renders_pages=parts.fetcher.capabilities.renders_pages,
        listing_callbacks=parts.spider.streaming_callbacks,
    )


def _media_of(parts: WorkerParts, frontier: Frontier, worker: str) -> MediaPipeline | None:
    if parts.files is None:
        return None
    from skitter.worker.media import MediaPipeline  # noqa: PLC0415 - few crawls download files

    sends_by_http = parts.fetcher.capabilities.renders_pages or bool(parts.settings.fetcher_rules)
    return MediaPipeline(
        parts.files, parts.settings, parts.links, frontier.notes, worker, sends_by_http=sends_by_http
    )
