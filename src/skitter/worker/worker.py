"""Worker: one process running the loop. What it does with each request is :class:`~skitter.worker.pipeline.RequestPipeline`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Sequence
from typing import Any

from msgspec import UNSET

from skitter.errors import CrawlFailed, SkitterError, is_usage
from skitter.fetch.contract import Fetcher
from skitter.frontier.contract import Frontier
from skitter.frontier.options import SettingsChanges
from skitter.frontier.records import Entry, JobInfo, JobState
from skitter.politeness import QueueLimits
from skitter.request import Request
from skitter.scope import Scope
from skitter.settings import Settings
from skitter.spider import Spider
from skitter.store.contract import Store, buffering_of
from skitter.worker.backpressure import QueueCapacity
from skitter.worker.callbacks import describe
from skitter.worker.committer import Committer
from skitter.worker.heartbeat import Heartbeat
from skitter.worker.hooks import HookAction, Hooks, call
from skitter.worker.leaser import Leaser
from skitter.worker.links import LinkCollector
from skitter.worker.pipeline import RequestPipeline
from skitter.worker.queue_budget import make_queue_budget
from skitter.worker.robots import RobotsGate
from skitter.worker.routing import RoutedStores
from skitter.worker.seeds import SeedKeyReader, SeedLoader

log = logging.getLogger("skitter.crawl")

_SEEDS_AGAIN = 1.0
"""Seconds between two looks whether the duty of loading the seeds has become free."""


class Worker:
    """Leases requests, fetches them, runs callbacks and hooks, stores items and commits."""

    def __init__(
        self,
        name: str,
        spider: Spider,
        settings: Settings,
        frontier: Frontier,
        fetcher: Fetcher,
        stores: Sequence[Store],
        scope: Scope,
        hooks: Hooks | None = None,
        sorting: RoutedStores | None = None,
        queues: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.spider = spider
        self.settings = settings
        self._frontier = frontier
        self._fetcher = fetcher
        self._scope = scope
        self._hooks = hooks if hooks is not None else Hooks()
        buffering = buffering_of(stores)
        appetite = make_queue_budget(queues, settings.queue_sizes())
        size = None if appetite is None else appetite.concurrency
        self._concurrency = settings.concurrency if size is None else size
        self._pump = Leaser(name, frontier, self._concurrency, buffering.items if buffering else 0, appetite)
        self._room = QueueCapacity()
        self._committer = Committer(
            frontier,
            stores,
            self._hooks,
            self._obey,
            self._learn,
            self._pump.report_landings,
            self._room,
            self._pump.in_hand,
            settings.group_key,
            sorting,
        )
        self._announcer = Heartbeat(name, frontier, self._pump, self._committer, tuple(queues))
        self._committer.set_aside = self._pump.set_aside
        if settings.max_queued is not None:
            self._pump.on_room = self._hear_of_room
        self._robots = RobotsGate(fetcher, frontier, settings) if settings.robots else None
        self._gatherer: LinkCollector
        self._errands: set[asyncio.Task[Any]] = set()
        self._pumping: asyncio.Task[JobState] | None = None
        self._failure: CrawlFailed | None = None
        self._stopping: asyncio.Future[JobState] | None = None

    # --- life ------------------------------------------------------------------------------------------

    async def run(self, info: JobInfo) -> JobState:
        """Work until the job is finished or stopped; returns its state.

        Raises :class:`~skitter.errors.CrawlFailed` if a hook, the seeds, a store or the frontier ended the crawl.
        """
        settings = self.settings
        self._gatherer = LinkCollector(
            self._scope,
            settings.politeness(),
            info.fingerprint_seed,
            known_for_ever=settings.visited_ttl is None and settings.failed_stay_known,
            fingerprint_keys=settings.fingerprint_keys,
            group_key=settings.group_key,
        )
        self._pump.on_data_loss = self._gatherer.memory.forget
        self._pump.on_change = self._obey_changes
        await self._each_hook("on_start")
        if settings.seed_keys:
            seed_keys = self._frontier.seed_keys
            assert seed_keys is not None, "the run checked it"
            self.undertake(SeedKeyReader(seed_keys, self._gatherer, self._room).run())
        walk = RequestPipeline(
            self.spider,
            settings,
            self._fetcher,
            self._hooks,
            self._robots,
            self._gatherer,
            self._obey,
            self._frontier.control.pause_slot,
        )
        self._pumping = asyncio.create_task(self._pump.run(walk.through, self._committer.put))
        committing = self.undertake(self._committer.run(self._pump.closed))
        for duty in (
            self._pump.renew_forever(info.lease_seconds / 3),
            self._load_seeds(),
            self._announcer.run(),
        ):
            self.undertake(duty)
        try:
            state = await self._pumping
            self._committer.close()
            # The frontier may know of the end before the answer to the last commit is here.
            await asyncio.wait([committing])
            if self._stopping is not None:
                state = await self._stopping
        except asyncio.CancelledError:
            if self._failure is None:
                raise
            raise self._failure from self._failure.__cause__
        finally:
            await self._shut_down()
        await self._each_hook("on_stop")
        return state

    def _hear_of_room(self, left: int | None) -> None:
        self._room.told(left)
        self._committer.look_for_room()

    async def _obey_changes(self) -> None:
        """Take over the one changed setting that is the workers' own; the frontier sees to the others."""
        changes = await self._frontier.control.settings_changes()
        wanted = changes.concurrency
        self._pump.concurrency = self._concurrency if wanted is UNSET else wanted

    def _learn(self, urls: Sequence[str]) -> None:
        self._gatherer.memory.learn(urls)

    def drain(self) -> None:
        """Lease nothing more; finish what is in hand, then leave."""
        self._pump.drain()

    def stop(self, where: str) -> None:
        """Stop the crawl gracefully, on all workers; ``where`` names who wants it, for the log."""
        self._obey(HookAction.STOP, where)

    async def knows(self, request: Request) -> bool:
        """Tell whether the job has met a request before: queued, under way, done or given up.

        A request that the scope refuses is never known. Other workers may add it at any moment.
        """
        entry = self._gatherer.entry(request)
        if not isinstance(entry, Entry):
            return False
        return not next(iter(await self._frontier.unknown([entry.fingerprint])))

    async def limit_domains(self, limits: dict[str, QueueLimits]) -> None:
        """Let limits hold for the hosts of some domains, over all workers; those that held before do no more."""
        before = (await self._frontier.control.settings_changes()).domain_limits
        if (before or {}) != limits:
            await self._frontier.control.change_settings(SettingsChanges(domain_limits=limits))

    async def drop_task(self, task: str, rest: float) -> int:
        """Remove what waits of a task from the queue; returns how many.

        ``rest``: seconds in which it is done once, by whichever worker is first.
        """
        mine = self.name.encode()
        if not await self._frontier.notes.compare_and_swap(f"skitter:drop-task:{task}", None, mine, rest):
            return 0
        dropped = await self._frontier.control.drop_group(task)
        if dropped:
            log.info("task %s is closed: %d requests were dropped", task, dropped)
        return dropped

    async def _shut_down(self) -> None:
        for errand in self._errands:
            errand.cancel()
        await asyncio.gather(*self._errands, return_exceptions=True)
        if self._robots is not None:
            await self._robots.close()
        await self._announcer.leave()
        with contextlib.suppress(SkitterError):  # a frontier that is gone has nothing to take back
            await self._pump.break_off()

    def undertake(self, duty: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run something beside the crawl, which is cancelled at its end; if it fails the crawl fails."""
        task = asyncio.get_running_loop().create_task(duty)
        self._errands.add(task)
        task.add_done_callback(self._duty_ended)
        return task

    def _duty_ended(self, duty: asyncio.Task[Any]) -> None:
        self._errands.discard(duty)
        if duty.cancelled() or (error := duty.exception()) is None:
            return
        remedy = error.remedy if isinstance(error, SkitterError) else ""
        failure = CrawlFailed(
            str(error) if isinstance(error, SkitterError) else describe(error),
            remedy=remedy or "run the same command again: it resumes",
            is_usage=is_usage(error),
        )
        failure.__cause__ = error
        self._fail(failure)

    def _fail(self, failure: CrawlFailed) -> None:
        if self._failure is None:
            self._failure = failure
        if self._pumping is not None:
            self._pumping.cancel()

    def _obey(self, signal: HookAction, where: str) -> None:
        """Carry out a signal that concerns the whole crawl."""
        if signal is HookAction.STOP:
            log.info("stopping, as %s asked", where)
            if self._stopping is None:
                self._stopping = asyncio.ensure_future(self._frontier.control.set_state(JobState.STOPPING))
            self._pump.drain()  # here at once; the other workers hear of it from the frontier
        elif signal is HookAction.FAIL:
            remedy = "see the log for what it found; the same command resumes"
            self._fail(CrawlFailed(f"the crawl was failed by {where}", remedy=remedy))

    async def _each_hook(self, point: str) -> None:
        for hook in self._hooks[point]:
            try:
                await call(hook, self)
            except Exception as error:
                raise CrawlFailed(f"hook {point}: {describe(error)}", remedy="correct the hook") from error

    async def _load_seeds(self) -> None:
        others_come = bool(self.settings.seed_keys) or self.settings.seconds_to_wait() > 0
        loader = SeedLoader(
            self.spider, self._frontier, self._gatherer, self.name, self._room, others_come=others_come
        )
        await loader.run()
        while (await self._frontier.status()).seeds_loading:
            # Another worker has the duty, or this one has lost it; it becomes free when who has it is silent.
            await asyncio.sleep(_SEEDS_AGAIN)
            await loader.run()
