"""Build the parts of a job (spider, hooks, scope, fetcher, stores, worker) from its plain description."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from skitter.request import Request

if TYPE_CHECKING:  # the owner of a fleet needs no worker
    from skitter.worker.worker import Worker
import asyncio
import os
import uuid
from typing import TYPE_CHECKING

from skitter.errors import SpiderError, UsageError
from skitter.frontier.contract import Frontier
from skitter.frontier.options import FrontierContext
from skitter.frontier.records import Entry, JobInfo, JobState
from skitter.run.job import JobFolder, JobSpec
from skitter.run.loader import build_spider, load_spider_class
from skitter.scope import Scope
from skitter.settings import Settings, build_settings, frontier_options
from skitter.spider import Spider
from skitter.store.contract import Store, StoreContext
from skitter.store.outputs import open_output, stores_for
from skitter.worker.hooks import Hooks
from skitter.worker.routing import OutputRouter, RoutedStores

if TYPE_CHECKING:  # imported when a worker is made: the owner of a fleet makes none
    from skitter._utils.notes import Notes
    from skitter.fetch.contract import Fetcher
    from skitter.worker.worker import Worker


class RunOverrides(msgspec.Struct, frozen=True):
    """Additions of this process to a job. They are not kept with the job, and worker processes know nothing of them."""

    hooks: Sequence[object] = ()
    """Hook collections. They stand before the spider's own, so that none of those can answer in their place."""
    settings: Mapping[str, Any] = {}
    """Settings that are objects, such as a fetcher; on top of the spider's, below those of the job."""
    first: Sequence[Request] = ()
    """Requests that are added when the run begins, besides the seeds of the spider; what is known stays known."""


class WorkerSet:
    """Hears of each worker of this process that begins or ends.

    A worker that comes after :meth:`drain`, because it was still opening its stores or its fetcher, is drained as
    it comes.
    """

    def __init__(self) -> None:
        self._workers: list[Worker] = []
        self._draining = False

    def enter(self, worker: Worker) -> None:
        """Take note of a worker that is about to run."""
        self._workers.append(worker)
        if self._draining:
            worker.drain()

    def leave(self, worker: Worker) -> None:
        """Take note of a worker that has ended."""
        self._workers.remove(worker)

    def drain(self) -> None:
        """Let all of them lease nothing more, finish what is in hand, and leave."""
        self._draining = True
        for worker in self._workers:
            worker.drain()


_PARTS = ("fetcher", "user_agents", "proxies", "sessions", "cookies", "cookie_file")
_DEFAULTS = Settings()


class JobBuilder:
    """The parts of one job in this process, made from its spec.

    ``spider_class`` is the spider if it is at hand; otherwise it is found by its name. ``equipment`` is what this
    process adds.

    Raises, when made, the errors of a spider that cannot be loaded and of settings that do not fit.
    """

    equipment = RunOverrides()

    def __init__(
        self, spec: JobSpec, spider_class: type[Spider] | None = None, equipment: RunOverrides | None = None
    ) -> None:
        self.spec = spec
        if equipment is not None:
            self.equipment = equipment
        self.folder = JobFolder(spec.job, spec.home)
        self.spider: Spider = build_spider(
            load_spider_class(spec.spider) if spider_class is None else spider_class, spec.arguments
        )
        self.settings: Settings = build_settings(
            {**self.spider.custom_settings, **self.equipment.settings}, spec.settings
        )
        _refuse_objects(spec.settings)
        self.scope = _scope(self.spider, self.settings)
        self.settings.politeness()  # a bad limit rule is found now, not by the first worker
        self.settings.queue_sizes()
        if any(getattr(self.settings, name) != getattr(_DEFAULTS, name) for name in _PARTS):
            self.fetcher()  # and so is a part that is not there

    def frontier_context(self, *, joining: bool = False) -> FrontierContext:
        """Return what a frontier backend is told; ``joining``: others are at work on the job."""
        settings = self.settings
        return FrontierContext(
            self.spec.job, str(self.folder.path), settings.politeness(), frontier_options(settings), joining
        )

    def fetcher(self, notes: Notes | None = None) -> Fetcher:
        """Return the fetcher of one worker; ``notes`` are what the workers share."""
        from skitter.run.fetcher_factory import make_fetcher  # noqa: PLC0415 - see above

        return make_fetcher(self.settings, notes)

    def hooks(self) -> Hooks:
        """Return this process's hooks, and the spider's: methods named like a point, and its ``hooks`` collections."""
        hooks = Hooks()
        for collection in self.equipment.hooks:
            hooks.register_all(collection)
        hooks.register_all(self.spider)
        for collection in getattr(self.spider, "hooks", ()):
            hooks.register_all(collection)
        return hooks

    def first_entries(self, info: JobInfo) -> list[Entry]:
        """Return the requests that this process adds, as entries for the frontier.

        Raises :class:`~skitter.errors.UsageError` for one that the scope refuses.
        """
        if not self.equipment.first:
            return []
        from skitter.worker.links import LinkCollector  # noqa: PLC0415 - see above

        settings = self.settings
        gatherer = LinkCollector(
            self.scope,
            settings.politeness(),
            info.fingerprint_seed,
            fingerprint_keys=settings.fingerprint_keys,
            group_key=settings.group_key,
        )
        entries = []
        for request in self.equipment.first:
            entry = gatherer.entry(request)
            if isinstance(entry, str):
                raise UsageError(
                    f"first request {request.url!r} is refused: {entry}",
                    remedy="give an absolute http(s) URL within the scope of the crawl",
                )
            entries.append(entry)
        return entries

    async def work(
        self,
        frontier: Frontier,
        info: JobInfo,
        name: str,
        at_work: WorkerSet,
        queues: Sequence[str] = (),
    ) -> JobState:
        """Run one worker in this process until the job is finished or stopped.

        ``at_work`` knows it while it works, for those who want to drain it. ``queues``: those that it
        serves; none: all.
        """
        worker_class = await asyncio.to_thread(_worker_class)
        stores = await self._open_stores(name)
        sorting = self._sorting(name)
        fetcher = await asyncio.to_thread(self.fetcher, frontier.notes)  # it may look for installed parts
        await fetcher.open()
        worker = worker_class(
            name,
            self.spider,
            self.settings,
            frontier,
            fetcher,
            stores,
            self.scope,
            self.hooks(),
            sorting,
            queues,
        )
        at_work.enter(worker)
        try:
            return await worker.run(info)
        finally:
            at_work.leave(worker)
            await fetcher.close()
            for store in [*stores, *(sorting.opened if sorting is not None else ())]:
                await store.close()

    def _store_context(self, worker: str) -> StoreContext:
        return StoreContext(self.spec.job, worker, str(self.folder.path), self.settings.durability)

    async def _open_stores(self, worker: str) -> Sequence[Store]:
        stores = stores_for(open_output(target) for target in self.spec.outputs)
        for store in stores:
            await store.open(self._store_context(worker))
        return stores

    def _sorting(self, worker: str) -> RoutedStores | None:
        return (
            RoutedStores(self.spider, self._store_context(worker))
            if isinstance(self.spider, OutputRouter)
            else None
        )


def _worker_class() -> type[Worker]:
    """Load what a worker needs, which takes a tenth of a second: not on the event loop."""
    import skitter.fetch.http  # noqa: F401, PLC0415 - see above
    from skitter.worker.worker import Worker  # noqa: PLC0415 - see above

    return Worker


def _refuse_objects(settings: Mapping[str, Any]) -> None:
    """Refuse what could not be kept with the job, nor be told to another process."""
    for name, value in settings.items():
        try:
            msgspec.json.encode(value)
        except TypeError:
            raise UsageError(
                f"setting {name} is an object, which a job cannot keep: {value!r:.60}",
                remedy="set it in the spider's custom_settings, or name it by package.module:Name",
            ) from None


def worker_name() -> str:
    """Return a name that no other worker has, had or will have."""
    return f"{os.getpid()}-{uuid.uuid4().hex[:12]}"


def _scope(spider: Spider, settings: Settings) -> Scope:
    seeds: Any = spider.start_urls
    if settings.scope != "any" and not seeds:
        raise SpiderError(
            f"scope {settings.scope!r} needs start_urls, and spider {spider.name!r} has none",
            remedy="set allowed_domains, or allow patterns, instead",
        )
    return Scope(
        allowed_domains=spider.allowed_domains,
        scope=settings.scope,
        seeds=[seeds] if isinstance(seeds, str) else list(seeds) if settings.scope != "any" else (),
        allow=settings.allow,
        deny=settings.deny,
        depth_limit=settings.depth_limit,
        max_url_length=settings.max_url_length,
    )
