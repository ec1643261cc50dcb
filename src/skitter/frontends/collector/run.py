"""Runs a collector as a job."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from skitter.errors import SpiderError, UsageError
from skitter.frontends.collector.group import CollectorGroup
from skitter.plugins import FILE_MODULE
from skitter.run.job import HOME, JobSpec

if TYPE_CHECKING:
    from skitter.run.crawl import RunResult, Watcher
    from skitter.spider import Spider


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of one run: the arguments of :meth:`Collector.run <skitter.frontends.collector.collector.Collector.run>`."""

    frontier: str = "memory:"
    """Frontier of the job. By default it is in memory, and the next run starts from the beginning."""
    job: str = ""
    """Name of the job. Default: the name of the collector, or of its file."""
    workers: int = 1
    """Number of processes. With 1, callbacks run in this process. More workers import the file of the collector:
    callbacks must then be registered when the file is imported."""
    outputs: Sequence[str] = ()
    """Outputs of the items, as in :class:`~skitter.run.job.JobSpec`."""
    settings: Mapping[str, Any] = {}
    """Settings of the job. They override the settings of the collector."""
    arguments: Mapping[str, Any] = {}
    """Arguments of the ``seeds`` function."""
    home: str | Path = ""
    """Folder of the job, as in :class:`~skitter.run.job.JobSpec`."""
    fresh: bool = False
    """Delete the stored state of the job first."""
    recrawl: bool = False
    """Start a finished job again."""
    resume: bool = False
    """Continue a stored job."""
    watcher: Watcher | None = None
    """Receives the progress, as in :class:`~skitter.run.crawl.Crawl`."""
    log_level: str = "warning"
    """Log level of worker processes. Logging in this process is left to the program."""


async def crawl(group: CollectorGroup, options: RunOptions) -> RunResult:
    """Crawl the pages that the collectors of a group visit, until the end.

    Raises a :class:`~skitter.errors.SkitterError` if the crawl cannot start or fails.
    """
    if group.is_running:
        raise UsageError(
            "this collector is already running", remedy="wait for its end, or create another collector"
        )
    group.is_running = True
    try:
        # Registering callbacks does not need the engine. Another thread may be importing it, and the loop must not wait for that.
        await asyncio.to_thread(import_module, "skitter.run.crawl")
        from skitter.run.crawl import Crawl  # noqa: PLC0415 - see above
        from skitter.run.process import LogOptions  # noqa: PLC0415 - see above

        place, name = await asyncio.to_thread(_locate, group, needed=options.workers > 1)
        stem = Path(place).stem if place.endswith(".py") else place.rpartition(".")[2]
        spider = spider_class(group, name, name if place == _NO_MODULE else stem)
        async with _home(options.home, options.frontier) as folder:
            run = Crawl(
                _job_spec(group, options, spider.name, f"{place}:{name}", folder),
                watcher=options.watcher,
                fresh=options.fresh,
                recrawl=options.recrawl,
                resume=options.resume,
                log=LogOptions(options.log_level),
                spider_class=spider,
            )
            group.stop_run = run.stop
            return await run.run()
    finally:
        group.is_running, group.stop_run, group.worker = False, None, None
        group.pending.take()


def _job_spec(group: CollectorGroup, options: RunOptions, name: str, spider: str, home: str) -> JobSpec:
    from skitter.frontends.collector.spider import pack_request  # noqa: PLC0415 - registering callbacks does not need it

    other_processes = options.workers > 1 or options.frontier != "memory:"
    outputs: Any = options.outputs  # JobSpec refuses a string instead of a list
    visits = [pack_request(request) for request in group.pending.peek()] if other_processes else []
    return JobSpec(
        job=options.job or name,
        spider=spider,
        arguments={**options.arguments, **({"visits": visits} if visits else {})},
        settings={
            **({"initial_cookies": group.initial_cookies} if group.initial_cookies else {}),
            **options.settings,
        },
        outputs=outputs,
        frontier=options.frontier,
        workers=options.workers,
        home=home,
    )


@asynccontextmanager
async def _home(home: str | Path, frontier: str) -> AsyncIterator[str]:
    """Yield the folder of the job: a temporary folder if the job is in memory and no folder is given."""
    if home or frontier != "memory:":
        yield str(home or HOME)
        return
    folder = await asyncio.to_thread(tempfile.mkdtemp, prefix="skitter-")
    try:
        yield folder
    finally:
        await asyncio.to_thread(shutil.rmtree, folder)


def run(group: CollectorGroup, options: RunOptions) -> RunResult:
    """Run the crawl on a new event loop.

    Raises the same errors as :func:`crawl`, and an error on a running event loop or while skitter imports the file.
    """
    from skitter.run.loader import is_importing  # noqa: PLC0415 - registering callbacks does not need it
    from skitter.run.process import run_async  # noqa: PLC0415 - registering callbacks does not need it

    if is_importing():
        raise SpiderError(
            "a collector cannot run while skitter imports its file",
            remedy='move the call below: if __name__ == "__main__":',
        )
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass  # run outside of this block, so that errors of the run do not have this error as their context
    else:
        raise UsageError(
            "an event loop is running", remedy="use await crawler.crawl() instead of crawler.run()"
        )
    return run_async(_interruptible(group, options))


async def _interruptible(group: CollectorGroup, options: RunOptions) -> RunResult:
    loop = asyncio.get_running_loop()
    if threading.current_thread() is not threading.main_thread():
        return await crawl(group, options)

    def interrupt() -> None:
        loop.remove_signal_handler(signal.SIGINT)  # the next Ctrl-C raises KeyboardInterrupt
        if group.stop_run is not None:
            group.stop_run("interrupted")

    loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        return await crawl(group, options)
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def spider_class(group: CollectorGroup, name: str, job: str) -> type[Spider]:
    """Create the spider class of a group, with the name under which its module holds the collector."""
    from skitter.frontends.collector.spider import CollectorSpider  # noqa: PLC0415 - registering callbacks does not need it

    root = group.root
    bounds = root.options.scope_settings() if group.share_bounds else {}
    limits = tuple(
        {name: value for name, value in msgspec.structs.asdict(rule).items() if value is not None}
        for rule in root.limits
    )
    if (storage := group.storage) is not None:
        from skitter.frontends.collector.storage import StorageCookies  # noqa: PLC0415 - registering callbacks does not need it

        stored = {"cookies": lambda context: StorageCookies(storage, context.settings.initial_cookies)}
    else:
        stored = {}
    settings = {
        **stored,
        **root.options.job_settings(),
        **bounds,
        **({"limit_rules": limits} if limits else {}),
        **({"initial_cookies": group.initial_cookies} if group.initial_cookies else {}),
        **root.options.settings,
    }
    return type(
        name,
        (CollectorSpider,),
        {
            "group": group,
            "name": root.job_name or job,
            "allowed_domains": root.options.allowed_domains if group.share_bounds else (),
            "custom_settings": settings,
        },
    )


_NO_MODULE = "-"


def _locate(group: CollectorGroup, *, needed: bool) -> tuple[str, str]:
    """Return the module that holds the collector, and its name there."""
    root = group.root
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        for name, value in list(vars(module).items()) if file else ():
            if value is root:
                by_path = module.__name__ == "__main__" or module.__name__.startswith(FILE_MODULE)
                return (str(Path(str(file)).resolve()) if by_path else module.__name__), name
    if needed:
        raise UsageError(
            "worker processes cannot import the collector",
            remedy="create it at the top level of a file, or run with workers=1",
            field="workers",
        )
    return _NO_MODULE, root.name
