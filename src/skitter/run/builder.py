"""JobBuilder: builds the parts of a job (spider, hooks, scope, fetcher, stores, worker) from its specification."""

from __future__ import annotations

import asyncio
import inspect
import os
import platform
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from skitter._utils.backoff import Unavailable
from skitter.errors import SettingsError, SpiderError, StoreError, UsageError, with_article
from skitter.frontier.contract import Frontier
from skitter.frontier.options import FrontierContext, SettingsChanges
from skitter.frontier.records import Entry, JobInfo, JobState
from skitter.plugins import needing
from skitter.request import Request
from skitter.run.job import JobFolder, JobSpec, split_reference
from skitter.run.loader import build_spider, check_hooks, check_spider, load_spider_class
from skitter.run.passes import NOTE, Passes, decode_passes
from skitter.scope import Scope
from skitter.secrets import credentials_in, referenced_argument, referenced_secret
from skitter.settings import Settings, build_settings, frontier_settings
from skitter.spider import Spider
from skitter.stats import Stats
from skitter.store.contract import ArchiveStore, Output, Store, StoreContext, close_all
from skitter.store.outputs import archive_stores_for, open_output, stores_for
from skitter.worker import WorkerParts
from skitter.worker.callbacks import CallbackNames, CallbackRunner
from skitter.worker.hooks import Hooks
from skitter.worker.routing import ItemWriter, OutputRouter, RoutedStores

if TYPE_CHECKING:  # loaded with the first worker: the parent of several worker processes runs none itself
    from types import ModuleType

    from skitter._utils.notes import Notes
    from skitter.fetch.address_guard import AddressGuard
    from skitter.fetch.contract import Fetcher
    from skitter.fetch.identity.cookies import CookieSharing
    from skitter.monitors import CompiledMonitor
    from skitter.run.fetcher_factory import JobCookies
    from skitter.store.media import MediaStore
    from skitter.worker.links import LinkCollector
    from skitter.worker.tracing import Tracer
    from skitter.worker.worker import Worker

_StoreT = TypeVar("_StoreT", bound=Store)


class RunnableWorker(Protocol):
    """What the process that runs a worker needs of it."""

    async def run(self) -> JobState:
        """Work until the job is finished or stopped. Return its state.

        Raises :class:`~skitter.errors.CrawlFailed` if a hook, the seeds or a store ended the crawl, and this error or
        :class:`~skitter.errors.FrontierError` if the frontier did.
        """

    def drain(self) -> None:
        """Stop leasing, finish the requests in progress, then end."""


class WorkerFactory(Protocol):
    """Creates a worker that fetches requests of a job with another program."""

    def __call__(
        self,
        *,
        settings: Settings,
        name: str,
        frontier: Frontier,
        info: JobInfo,
        outputs: ItemWriter,
        links: LinkCollector,
    ) -> RunnableWorker:
        """Return the worker. ``outputs`` is open, and is closed after the worker has ended."""


class RunOverrides(msgspec.Struct, frozen=True):
    """Additions of this process to a job. They are not stored with the job, and worker processes do not have them."""

    hooks: Sequence[object] = ()
    """Hook collections. They run before the hooks of the spider."""
    settings: Mapping[str, Any] = {}
    """Settings that are objects, such as a fetcher. They override the settings of the spider, but not those of the job."""
    requests: Sequence[Request] = ()
    """Requests to add when the run starts, besides the seeds of the spider. Known requests are not added again."""
    passes: Passes | None = None
    """Earlier passes, whose history a job on a new frontier continues."""
    make_worker: WorkerFactory | None = None
    """Creates a worker, if another program fetches the requests of the job. ``None``: skitter fetches them."""


_PLUGIN_SETTINGS = (
    "fetcher",
    "user_agents",
    "proxies",
    "sessions",
    "cookies",
    "cookie_file",
    "credentials",
    "initial_cookies",
)
_DEFAULTS = Settings()


def _named_by_file(spec: JobSpec) -> JobSpec:
    """Return a specification that names a spider of the running program by its file, which worker processes can import.

    Raises :class:`~skitter.errors.UsageError` for a program without a file, such as a notebook.
    """
    place, name = split_reference(spec.spider)
    if place != "__main__":
        return spec
    file = vars(sys.modules[place]).get("__file__")
    if file is None or not Path(file).is_file():
        raise UsageError(
            f"worker processes cannot import spider {name}, which is not in a file",
            remedy="define it in a file, or run with workers=1",
            field="workers",
        )
    return msgspec.structs.replace(spec, spider=f"{Path(file).resolve()}:{name}")


class JobBuilder:
    """The parts of one job in this process.

    ``spider``: the spider or its class, if this process has it; by default it is loaded by its name.
    ``overrides``: the additions of this process.

    Raises the errors of a spider that cannot be loaded, and of invalid settings.
    """

    def __init__(
        self,
        spec: JobSpec,
        spider: Spider | type[Spider] | None = None,
        overrides: RunOverrides | None = None,
    ) -> None:
        self.spec = spec
        self._overrides = RunOverrides() if overrides is None else overrides
        self.passes = self._overrides.passes
        """Earlier passes, if the job starts on a new frontier."""
        self.folder = JobFolder(spec.job, spec.home)
        self._running: list[RunnableWorker] = []
        self._is_draining = False
        self.is_fleet = False
        """Whether workers on other machines may belong to the job. Set together with its frontier."""
        _refuse_objects(
            "argument", spec.arguments, "make it an attribute of the spider class, or a name in its module"
        )
        if not isinstance(spider, Spider):
            arguments = spec.arguments
            if spec.reads_references:
                arguments = {name: referenced_argument(name, value) for name, value in arguments.items()}
            spider = build_spider(load_spider_class(spec.spider) if spider is None else spider, arguments)
        self.spider: Spider = spider
        if len(spec.queues_per_worker()) > 1:
            _refuse_changed(spec.arguments)
            self.spec = spec = _named_by_file(spec)
        check_spider(spider)
        check_hooks(self._overrides.hooks)
        if isinstance(spider.hooks, Collection):  # a generator can be read only once
            check_hooks(spider.hooks)
        attributes = {"monitors": spider.monitors, "item_schema": spider.item_schema}
        self.settings: Settings = build_settings(
            {name: value for name, value in attributes.items() if value},
            {**spider.custom_settings, **self._overrides.settings},
            spec.settings,
        )
        self._fill_in_names()
        if spec.reads_references:
            self._read_references()
        self._take_credentials()
        spider.settings = self.settings
        spider.stats = Stats()  # set again, because a user's __init__ may not call Spider.__init__
        remedy = "set it in custom_settings of the spider, or name it as package.module:Name"
        _refuse_objects("setting", spec.settings, remedy)
        self.scope = _scope(spider, self.settings)
        # Raise errors now, not in the first worker.
        self.settings.politeness()
        self.settings.queue_sizes()
        self.rules: list[CompiledMonitor] = []
        """The monitors of the job."""
        if self.settings.monitors or self.settings.item_schema is not None:
            from skitter.monitors import compile_monitors  # noqa: PLC0415 - few jobs need it
            from skitter.worker.item_meter import make_item_meter  # noqa: PLC0415 - few jobs need it

            self.rules = compile_monitors(self.settings.monitors)
            make_item_meter(self.settings)

    def _fill_in_names(self) -> None:
        """Replace ``%(name)s``, ``%(spider)s`` and ``%(job)s`` in the names of outputs and seed keys."""
        names = {"name": self.spider.name, "spider": self.spider.name, "job": self.spec.job}

        def fill_in(text: str) -> str:
            for name, value in names.items():
                text = text.replace(f"%({name})s", value)
            return text

        outputs, keys = self.spec.outputs, tuple(map(fill_in, self.settings.seed_keys))
        if any("%(" in output for output in outputs):
            self.spec = msgspec.structs.replace(self.spec, outputs=[*map(fill_in, outputs)])
        if keys != self.settings.seed_keys:
            self.settings = msgspec.structs.replace(self.settings, seed_keys=keys)
        for key in keys:
            if "%(" in key:
                raise SettingsError(
                    f"unknown name in the seed key {key!r}",
                    remedy="use %(name)s or %(spider)s for the name of the spider, and %(job)s for the name of the job",
                    field="seed_keys",
                )

    def _read_references(self) -> None:
        """Replace references to secrets in headers and proxies. References in other settings are read where they are used."""
        settings = self.settings
        headers = {
            name: referenced_secret(value, f"header {name}") for name, value in settings.headers.items()
        }
        proxy, proxies = settings.proxy, settings.proxies
        if proxy:
            proxy = referenced_secret(proxy, "proxy")
        if isinstance(proxies, str) and proxies.startswith("env:"):  # "file:" names a list, not a secret
            proxies = referenced_secret(proxies, "proxies")
        if (headers, proxy, proxies) != (settings.headers, settings.proxy, settings.proxies):
            self.settings = msgspec.structs.replace(settings, headers=headers, proxy=proxy, proxies=proxies)

    def _take_credentials(self) -> None:
        """Move user names and passwords from the start URLs to the settings, so that no request contains them."""
        start_urls = self.spider.start_urls
        start_urls = [start_urls] if isinstance(start_urls, str) else start_urls
        if not isinstance(start_urls, (list, tuple)) or not any(
            "@" in url for url in start_urls if isinstance(url, str)
        ):
            return
        urls, credentials = credentials_in(start_urls)
        if credentials:
            self.spider.start_urls = urls
            self.settings = msgspec.structs.replace(
                self.settings, credentials={**credentials, **self.settings.credentials}
            )

    def check_plugins(self) -> None:
        """Check that all plugins and secrets that the settings name exist. May read files.

        Raises :class:`~skitter.errors.SettingsError`.
        """
        if any(getattr(self.settings, name) != getattr(_DEFAULTS, name) for name in _PLUGIN_SETTINGS):
            self.fetcher()
        if self.settings.tracing:
            _tracing_module().check_environment()
        if self.settings.notify:
            from skitter.run.notify import check_targets  # noqa: PLC0415 - few jobs need it

            check_targets(self.settings)

    def check_parse(self) -> None:
        """Raise :class:`~skitter.errors.SpiderError` if the start URLs need the callback ``parse``, and it does not exist or takes no response."""
        spider = self.spider
        if spider.start_urls and type(spider).start is Spider.start and not spider.rules:
            parse = CallbackRunner().find(spider, None)
            if not _takes_response(parse):
                raise SpiderError(
                    f"parse of spider {spider.name!r} takes no response",
                    remedy="write def parse(self, response)",
                    field="callback",
                )

    @property
    def has_foreign_worker(self) -> bool:
        """Whether another program fetches the requests of the job."""
        return self._overrides.make_worker is not None

    def frontier_context(self, *, joining: bool = False) -> FrontierContext:
        """Return the context for a frontier backend. ``joining``: other processes already work on the job."""
        settings = self.settings
        return FrontierContext(
            self.spec.created_as,
            str(self.folder.path),
            settings.politeness(),
            frontier_settings(settings),
            joining=joining,
            fingerprint_seed=self.spec.fingerprint_seed,
        )

    def guard(self, notes: Notes | None = None) -> AddressGuard:
        """Return the guard of the connections of one process. ``notes``: shared by all workers of the job."""
        from skitter.run.fetcher_factory import make_guard  # noqa: PLC0415 - only processes with workers need it

        return make_guard(self.settings, notes)

    def fetcher(
        self,
        notes: Notes | None = None,
        guard: AddressGuard | None = None,
        sharing: CookieSharing | None = None,
        cookies: JobCookies | None = None,
    ) -> Fetcher:
        """Return the fetcher of one worker, not yet open. ``notes``: shared by all workers of the job.

        ``guard``: checks its connections; default: a guard from the settings. ``sharing``: given for a job with several
        workers. ``cookies``: default: the result of :meth:`cookies`.
        """
        from skitter.fetch.identity.contract import IdentityChooser  # noqa: PLC0415 - only processes with workers need it
        from skitter.run.fetcher_factory import make_fetcher  # noqa: PLC0415 - only processes with workers need it

        chooser = self.spider if isinstance(self.spider, IdentityChooser) else None
        return make_fetcher(self.settings, notes, guard, sharing, chooser, cookies)

    def cookies(self, notes: Notes, sharing: CookieSharing | None) -> JobCookies:
        """Return the cookies of one worker. May block."""
        from skitter.run.fetcher_factory import make_cookies  # noqa: PLC0415 - only processes with workers need it

        return make_cookies(self.settings, notes, sharing)

    def release_spider(self) -> None:
        """Release the spider's resources at the end of the process. This writes files that the spider did not close.

        The interpreter would not do that: the spider is part of reference cycles, which are no longer collected.
        """
        vars(self.spider).clear()

    def hooks(self) -> Hooks:
        """Return the hooks of this process, then the hooks of the spider and of the collections in its ``hooks``."""
        hooks = Hooks()
        for collection in (*self._overrides.hooks, self.spider, *self.spider.hooks):
            hooks.register_all(collection)
        return hooks

    def link_collector(self, info: JobInfo) -> LinkCollector:
        """Return the object that turns requests into entries for the frontier, as the workers of the job do."""
        from skitter.worker.links import LinkCollector  # noqa: PLC0415 - only processes with workers need it

        settings = self.settings
        links = LinkCollector(
            self.scope,
            settings.politeness(),
            info.fingerprint_seed,
            known_forever=settings.visited_ttl is None
            and settings.max_queued_per_slot is None
            and not settings.refetch_failed,
            fingerprint_keys=settings.fingerprint_keys,
            max_links=settings.max_links,
            group_key=settings.group_key,
        )
        if settings.trap_detection:
            from skitter.worker.traps import TrapDetector  # noqa: PLC0415 - only processes with workers need it

            links.traps = TrapDetector(settings)
        links.callback_names = CallbackNames(self.spider)
        links.unscoped_callbacks = self.spider.unscoped_callbacks
        return links

    def first_entries(self, info: JobInfo) -> list[Entry]:
        """Return the requests that this process adds, as entries for the frontier.

        Raises :class:`~skitter.errors.UsageError` for a request that the scope refuses.
        """
        if not self._overrides.requests:
            return []
        links, entries = self.link_collector(info), []
        for request in self._overrides.requests:
            entry = links.entry(request)
            if isinstance(entry, str):
                raise UsageError(
                    f"request {request.url!r} was refused: {entry}",
                    remedy="use an absolute http(s) URL within the scope of the crawl",
                )
            entries.append(entry)
        return entries

    async def work(
        self,
        frontier: Frontier,
        info: JobInfo,
        name: str,
        queues: Sequence[str] = (),
        on_leases: Callable[[int], object] | None = None,
    ) -> JobState:
        """Run one worker in this process until the job is finished or stopped.

        ``queues``: the queues that it serves; empty: all.
        ``on_leases``: called with the number of leases in each result of the frontier.
        """
        self.is_fleet = frontier.shared
        worker_module = await asyncio.to_thread(load_worker_modules)
        hooks = self.hooks()
        async with AsyncExitStack() as opened:
            outputs = await self._item_writer(name, hooks)
            opened.push_async_callback(outputs.close)
            if self._overrides.make_worker is not None:
                foreign = self._overrides.make_worker(
                    settings=self.settings,
                    name=name,
                    frontier=frontier,
                    info=info,
                    outputs=outputs,
                    links=self.link_collector(info),
                )
                return await self._run(foreign)
            parts = await self._worker_parts(frontier, info, name, hooks, outputs, opened)
            worker: Worker = worker_module.Worker(name, parts, frontier, info, queues, on_leases)
            return await self._run(worker)

    async def _item_writer(self, worker: str, hooks: Hooks) -> ItemWriter:
        """Open the stores and archives of one worker, and return their writer."""
        routed = None
        if isinstance(self.spider, OutputRouter):
            routed = RoutedStores(self.spider, self._store_context(worker))
        archives = await self.open_archives(worker)
        try:
            stores = await self.open_stores(worker)
        except BaseException:
            await close_all(archives)
            raise
        return ItemWriter(stores, hooks, routed, archives)

    async def _worker_parts(
        self,
        frontier: Frontier,
        info: JobInfo,
        name: str,
        hooks: Hooks,
        outputs: ItemWriter,
        opened: AsyncExitStack,
    ) -> WorkerParts:
        """Return the parts of one worker. Its fetcher and its tracer are open, and ``opened`` closes them."""
        sharing = await self._cookie_sharing(frontier)

        def make_fetcher() -> tuple[AddressGuard, JobCookies, Fetcher]:
            guard = self.guard(frontier.notes)
            cookies = self.cookies(frontier.notes, sharing)
            return guard, cookies, self.fetcher(frontier.notes, guard, sharing, cookies)

        # In a thread, because this may search the installed packages for plugins.
        guard, cookies, fetcher = await asyncio.to_thread(make_fetcher)
        keeper = None
        if self.settings.cookies == "auto" and sharing is None and not self.spec.is_in_memory:
            from skitter.fetch.identity.cookies import CookieKeeper  # noqa: PLC0415 - few jobs store cookies

            keeper = CookieKeeper(cookies.jars, frontier.notes, partial(_begin_sharing, frontier))
        tracer = await self._tracer(frontier, info, name) if self.settings.tracing else None
        if tracer is not None:
            opened.push_async_callback(tracer.close)
        files = await asyncio.to_thread(self.open_files_store) if self.settings.files_store else None
        site_file_fetcher = fetcher
        if outputs.has_archives:
            from skitter.archive.store import RecordingFetcher  # noqa: PLC0415 - few jobs write archives

            site_file_fetcher = RecordingFetcher(fetcher, outputs.add_capture)
        await fetcher.open()
        opened.push_async_callback(fetcher.close)
        return WorkerParts(
            spider=self.spider,
            settings=self.settings,
            links=self.link_collector(info),
            hooks=hooks,
            fetcher=fetcher,
            site_file_fetcher=site_file_fetcher,
            outputs=outputs,
            guard=guard,
            cookies=cookies.access,
            sharing=sharing,
            cookie_keeper=keeper,
            files=files,
            tracer=tracer,
        )

    async def _run(self, worker: RunnableWorker) -> JobState:
        self._running.append(worker)
        if self._is_draining:  # drain() was called while the worker was being built
            worker.drain()
        try:
            return await worker.run()
        finally:
            self._running.remove(worker)

    def drain(self) -> None:
        """Let the workers of this process stop leasing, finish the requests in progress, and end."""
        self._is_draining = True
        for worker in self._running:
            worker.drain()

    async def _tracer(self, frontier: Frontier, info: JobInfo, worker: str) -> Tracer | None:
        """Return the tracer of one worker; ``None`` if the environment disables OpenTelemetry."""
        if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
            return None
        note = await frontier.notes.get(NOTE)
        labels = {
            "skitter.job": self.spec.job, "skitter.pass": decode_passes(note).number, "service.instance.id": worker,
            "host.name": platform.node(), "process.pid": os.getpid(),
        }  # fmt: skip

        def make() -> Tracer:  # loads many modules
            tracing = _tracing_module()
            tracer: Tracer = tracing.Tracer(
                self.settings.tracing,
                info.fingerprint_seed,
                labels["skitter.pass"],
                labels,
                tracing.check_environment(),
            )
            return tracer

        return await asyncio.to_thread(make)

    def open_files_store(self) -> MediaStore | None:
        """Return the store of downloaded files, if the job has one. Blocks. Raises :class:`~skitter.errors.StoreError`."""
        settings = self.settings
        if not settings.files_store:
            return None
        for name in ("max_pages_per_slot", "max_bytes_per_slot", "max_queued_per_slot"):
            if getattr(settings, name) is not None:
                raise SettingsError(
                    f"{name} cannot be combined with files_store: a slot whose budget is used up would drop waiting items",
                    remedy=f"leave out {name}, or files_store",
                    field=name,
                )
        from skitter.store.media import MediaStore  # noqa: PLC0415 - only processes with workers need it

        store = MediaStore(
            settings.files_store, ttl=settings.files_ttl, thumbnails=settings.image_thumbnails,
            durability=settings.durability,
        )  # fmt: skip

        try:
            store.open()
        except Unavailable as error:
            raise StoreError(
                f"files_store {settings.files_store} cannot be reached: {error}",
                remedy="start the server, or correct the URL",
                field="files_store",
            ) from error
        return store

    async def _cookie_sharing(self, frontier: Frontier) -> CookieSharing | None:
        """Return how the workers start to share cookies; ``None`` if there is only one worker and no cookies are stored."""
        is_alone = not frontier.shared and len(self.spec.queues_per_worker()) == 1
        if is_alone and not (await frontier.control.settings_changes()).shared_cookies:
            return None
        from skitter.fetch.identity.cookies import CookieSharing  # noqa: PLC0415 - only processes with workers need it

        sharing = CookieSharing(partial(_begin_sharing, frontier))
        # All workers have these cookies from the start.
        sharing.is_on = self.settings.cookie_file is not None or bool(self.settings.initial_cookies)
        return sharing

    async def open_stores(self, worker: str) -> Sequence[Store]:
        """Open the stores of one worker for the items of the job."""
        outputs = [output for output in self._outputs() if not output.holds_responses]
        return await self._opened(worker, stores_for(outputs, fleet=self.is_fleet))

    async def open_archives(self, worker: str) -> Sequence[ArchiveStore]:
        """Open the stores of one worker for the archives of the job."""
        return await self._opened(worker, archive_stores_for(self._outputs(), fleet=self.is_fleet))

    def _outputs(self) -> list[Output]:
        return [open_output(target) for target in self.spec.outputs]

    async def _opened(self, worker: str, stores: Sequence[_StoreT]) -> Sequence[_StoreT]:
        for count, store in enumerate(stores, 1):
            try:
                await store.open(self._store_context(worker))
            except BaseException:
                await close_all(stores[:count])
                raise
        return stores

    def _store_context(self, worker: str) -> StoreContext:
        from skitter.fetch.transfer import default_headers  # noqa: PLC0415 - only workers load libcurl

        return StoreContext(
            self.spec.created_as, worker, str(self.folder.path), self.settings.durability, fleet=self.is_fleet,
            request_headers=default_headers(self.settings),
        )  # fmt: skip


def load_worker_modules() -> ModuleType:
    """Load the modules that a worker needs, and return the module of the worker.

    It takes a tenth of a second, so call it in a thread where an event loop runs.
    """
    import skitter.fetch.http  # noqa: PLC0415 - only processes with workers need it
    import skitter.run.fetcher_factory  # noqa: PLC0415 - only processes with workers need it
    import skitter.worker.worker  # noqa: PLC0415 - only processes with workers need it

    return skitter.worker.worker


def _tracing_module() -> ModuleType:
    with needing("otel", "tracing"):
        import skitter.worker.tracing  # noqa: PLC0415 - an extra

    return skitter.worker.tracing


def _refuse_objects(kind: str, values: Mapping[str, Any], remedy: str) -> None:
    """Refuse settings or arguments that are objects: they can be neither stored with the job nor passed to another process."""
    for name, value in values.items():
        try:
            msgspec.json.encode(value)
        except TypeError:
            raise UsageError(
                f"{kind} {name} cannot be stored with the job, because it is an object: {value!r:.60}",
                remedy=remedy,
                field=name,
            ) from None


def _refuse_changed(arguments: Mapping[str, Any]) -> None:
    """Refuse arguments that worker processes would receive as other values, such as a date as text.

    A tuple becomes a list.
    """
    for name, value in arguments.items():
        received = msgspec.json.decode(msgspec.json.encode(value))
        if received != _with_lists(value):
            raise UsageError(
                f"argument {name} is {with_article(type(value).__name__)}, which worker processes would receive as"
                f" {received!r:.60}",
                remedy="pass text, numbers, lists or dicts, and convert them in the spider's __init__",
                field=name,
            )


def _with_lists(value: Any) -> Any:
    """Return a value with lists in place of its tuples."""
    if isinstance(value, (list, tuple)):
        return [_with_lists(element) for element in value]
    return {key: _with_lists(inner) for key, inner in value.items()} if isinstance(value, dict) else value


def _takes_response(callback: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(callback).parameters.values()
    except (TypeError, ValueError):  # a callable without a signature
        return True
    positional = {
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.VAR_POSITIONAL,
    }
    return any(parameter.kind in positional for parameter in parameters)


async def _begin_sharing(frontier: Frontier) -> None:
    """Record in the job that the frontier stores its cookies."""
    if not (await frontier.control.settings_changes()).shared_cookies:
        await frontier.control.change_settings(SettingsChanges(shared_cookies=True))


def _scope(spider: Spider, settings: Settings) -> Scope:
    seeds: Any = spider.start_urls
    if settings.scope != "any" and not seeds:
        raise SpiderError(
            f"scope {settings.scope!r} needs start_urls, which spider {spider.name!r} lacks",
            remedy="set start_urls, or use allowed_domains or allow patterns instead of a scope",
            field="scope",
        )
    return Scope(
        allowed_domains=spider.allowed_domains,
        scope=settings.scope,
        seeds=list(seeds) if settings.scope != "any" else (),
        allow=settings.allow,
        deny=settings.deny,
        depth_limit=settings.depth_limit,
        max_url_length=settings.max_url_length,
    )
