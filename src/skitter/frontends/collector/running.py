"""Running: from a collector in a script to a job of the engine."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from skitter.errors import SpiderError, UsageError
from skitter.frontends.collector.family import Family
from skitter.run.job import HOME

if TYPE_CHECKING:
    from skitter.run.crawl import RunResult, Watcher
    from skitter.spider import Spider


async def crawl(
    family: Family,
    *,
    frontier: str = "memory:",
    job: str = "",
    workers: int = 1,
    outputs: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    arguments: Mapping[str, Any] | None = None,
    home: str | Path = "",
    fresh: bool = False,
    recrawl: bool = False,
    resume: bool = False,
    watcher: Watcher | None = None,
    log_level: str = "warning",
) -> RunResult:
    """Crawl what the collectors of a family were told to visit, to the end.

    ``frontier``
        Where the job is kept; default: in memory, and the next run knows nothing of it.
    ``job``
        Its name; default: the collector's, or the name of its file.
    ``workers``
        Processes. With 1, the default, callbacks run in this one. More import the file of the collector: callbacks have
        to be registered there when it is imported.
    ``outputs``, ``settings``, ``home``, ``fresh``, ``recrawl``, ``resume``, ``watcher``
        As in :class:`~skitter.run.job.JobSpec` and :class:`~skitter.run.crawl.Crawl`.
    ``arguments``
        For the ``seeds`` function.
    ``log_level``
        Of worker processes; what is logged in this process is up to it.

    Raises a :class:`~skitter.errors.SkitterError` if the crawl cannot begin or fails.
    """
    from skitter.run.crawl import Crawl  # noqa: PLC0415 - to register callbacks needs no engine
    from skitter.run.job import JobSpec  # noqa: PLC0415 - as above
    from skitter.run.process import LogOptions  # noqa: PLC0415 - as above

    if family.is_running:
        raise UsageError(
            "this collector is running already", remedy="wait for its end, or make another collector"
        )
    family.is_running = True
    try:
        place, name = await asyncio.to_thread(_whereabouts, family, needed=workers > 1)
        spider = spider_class(family, name, name if place == _NOWHERE else _stem(place))
        visits = _visits(family, kept=workers > 1 or frontier != "memory:")
        async with _home(home, frontier) as folder:
            spec = JobSpec(
                job=job or spider.name,
                spider=f"{place}:{name}",
                arguments={**(arguments or {}), **visits},
                settings=dict(settings or {}),
                outputs=list(outputs),
                frontier=frontier,
                workers=workers,
                home=folder,
            )
            run = Crawl(
                spec,
                watcher=watcher,
                fresh=fresh,
                recrawl=recrawl,
                resume=resume,
                log=LogOptions(log_level),
                spider_class=spider,
            )
            family.stop_run = run.stop
            return await run.run()
    finally:
        family.is_running, family.stop_run, family.worker = False, None, None
        family.recorded.take()


@asynccontextmanager
async def _home(given: str | Path, frontier: str) -> AsyncIterator[str]:
    """Give the folder of the job: one that passes with the run, where nothing is to be resumed."""
    if given or frontier != "memory:":
        yield str(given or HOME)
        return
    folder = await asyncio.to_thread(tempfile.mkdtemp, prefix="skitter-")
    try:
        yield folder
    finally:
        await asyncio.to_thread(shutil.rmtree, folder)


def run(family: Family, options: Mapping[str, Any]) -> RunResult:
    """Crawl on an event loop of its own.

    Raises as the coroutine does, and where it cannot be done: while skitter imports the file, and on an event loop.
    """
    from skitter.run.loader import is_importing  # noqa: PLC0415 - as above
    from skitter.run.process import run_async  # noqa: PLC0415 - as above

    if is_importing():
        raise SpiderError(
            "a collector was run while skitter imports its file",
            remedy='put it below: if __name__ == "__main__":',
        )
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return run_async(_interruptible(family, options))
    raise UsageError("an event loop is running", remedy="await crawler.crawl() in place of crawler.run()")


async def _interruptible(family: Family, options: Mapping[str, Any]) -> RunResult:
    loop = asyncio.get_running_loop()
    if threading.current_thread() is not threading.main_thread():
        return await crawl(family, **options)

    def interrupt() -> None:
        loop.remove_signal_handler(signal.SIGINT)  # the next one is a KeyboardInterrupt
        if family.stop_run is not None:
            family.stop_run("interrupted")

    loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        return await crawl(family, **options)
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def spider_class(family: Family, name: str, job: str) -> type[Spider]:
    """Return the spider class of a family, under a name by which the engine knows it."""
    from skitter.frontends.collector.spider import CollectorSpider  # noqa: PLC0415 - as above

    root = family.root
    bounds = root.options.scope_settings() if family.share_bounds else {}
    limits = [msgspec.to_builtins(rule) for rule in root.limits]
    settings = {
        **root.options.job_settings(),
        **bounds,
        **({"limit_rules": tuple(_written(rule) for rule in limits)} if limits else {}),
        **root.options.settings,
    }
    return type(
        name,
        (CollectorSpider,),
        {
            "family": family,
            "name": root.job_name or job,
            "allowed_domains": root.options.allowed_domains if family.share_bounds else (),
            "custom_settings": settings,
        },
    )


def _written(rule: dict[str, Any]) -> dict[str, Any]:
    """Return a limit rule as settings have it, its rates as text."""
    rates = [f"{rate['count']}/{rate['per']:g}s" for rate in rule["rates"]]
    return {name: value for name, value in rule.items() if value is not None} | {"rates": rates}


def _visits(family: Family, *, kept: bool) -> dict[str, Any]:
    """Return what was visited before the run as an argument of the job, if other processes have to know."""
    from skitter.frontends.collector.spider import frozen  # noqa: PLC0415 - as above

    visits = family.recorded.peek() if kept else []
    return {"visits": [frozen(request) for request in visits]} if visits else {}


_NOWHERE = "-"


def _stem(place: str) -> str:
    return Path(place).stem if place.endswith(".py") else place.rpartition(".")[2]


def _whereabouts(family: Family, *, needed: bool) -> tuple[str, str]:
    """Find the module that holds the collector, and the name it has there."""
    root = family.root
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        for name, value in list(vars(module).items()) if file else ():
            if value is root:
                by_path = module.__name__ == "__main__" or module.__name__.startswith("skitter_spider_")
                return (str(Path(str(file)).resolve()) if by_path else module.__name__), name
    if needed:
        raise UsageError(
            "worker processes cannot find the collector",
            remedy="make it at the top of a file, or run with workers=1",
        )
    return _NOWHERE, root.name
