"""Monitor: looks at a crawl at intervals, tells what is new, and stops it when there is nothing to do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from enum import IntEnum

from skitter.errors import UsageError
from skitter.frontends.lifecycle.crawl import ManagedCrawl
from skitter.frontends.lifecycle.status import IllegalTransition, Status

log = logging.getLogger("skitter.frontends.lifecycle")

_AT_WORK = {Status.STARTING, Status.STARTED, Status.STOPPING}
_BEGUN = _AT_WORK | {Status.STOPPED}
_CLOSEST_CHECKS = 0.1
_CLOSEST_SUMMARIES = 1.0


class Level(IntEnum):
    """How much a line of the monitor matters."""

    INFO = 0
    WARNING = 1
    ERROR = 2


Report = Callable[[Level, str], None]

_LOGGED = {Level.INFO: logging.INFO, Level.WARNING: logging.WARNING, Level.ERROR: logging.ERROR}


def to_log(level: Level, text: str) -> None:
    """Report to the logger ``skitter.frontends.lifecycle``."""
    log.log(_LOGGED[level], "%s", text)


class Monitor:
    """Watches one run of a crawl.

    ``check_every``
        Seconds between two looks, 0.1 or more; default 0.5.
    ``summary_every``
        Seconds between two summaries, 1 or more; default 5. One that equals the last is not told.
    ``auto_stop``
        Stop when there is nothing to do. Only a crawl with the setting ``wait_for_seeds`` needs it: every other ends
        by itself. It is one exact reading, so one is enough.
    ``report``
        Gets each line with its level; default: the log. Errors are told as warnings, those of the crawl itself as
        errors.

    Raises :class:`~skitter.errors.UsageError` for shorter intervals.
    """

    def __init__(
        self,
        crawl: ManagedCrawl,
        *,
        check_every: float = 0.5,
        summary_every: float = 5.0,
        auto_stop: bool = False,
        report: Report = to_log,
    ) -> None:
        for name, value, least in (
            ("check_every", check_every, _CLOSEST_CHECKS),
            ("summary_every", summary_every, _CLOSEST_SUMMARIES),
        ):
            if not value >= least:
                raise UsageError(f"{name} is {value}", remedy=f"give {least:g} seconds or more")
        self._crawl = crawl
        self._check_every = check_every
        self._summary_every = summary_every
        self._auto_stop = auto_stop
        self._report = report

    async def run(self) -> int:
        """Watch until the run is over; returns how often it looked. Cancelling it leaves the crawl alone.

        Raises :class:`~skitter.errors.UsageError` for a crawl that was never started.
        """
        if self._crawl.status not in _BEGUN:
            raise UsageError("there is no run to be watched", remedy="await crawl.start() first")
        relaying = asyncio.create_task(self._relay())
        try:
            checks = await self._look_on()
            if self._crawl.status is Status.STOPPED:
                await relaying  # what is still unread, and then it ends by itself
        finally:
            relaying.cancel()
        self._report(Level.INFO, (await self._crawl.summary()).text())
        return checks

    async def _look_on(self) -> int:
        loop = asyncio.get_running_loop()
        checks, told, next_summary = 0, None, loop.time()
        while self._crawl.status in _AT_WORK:
            checks += 1
            if loop.time() >= next_summary:
                next_summary = loop.time() + self._summary_every
                summary = await self._crawl.summary()
                if summary != told:
                    told = summary
                    self._report(Level.INFO, summary.text())
            if self._auto_stop and await self._crawl.idle():
                await self._stop()
                break
            await asyncio.sleep(self._check_every)
        return checks

    async def _stop(self) -> None:
        try:
            await self._crawl.stop("nothing is left to do")
        except IllegalTransition:  # somebody else was first
            await self._crawl.wait()

    async def _relay(self) -> None:
        errors = self._crawl.errors()
        missed = 0
        async for error in errors:
            if errors.missed > missed:
                self._report(Level.WARNING, f"{errors.missed - missed} errors came too fast to be told")
                missed = errors.missed
            level = Level.ERROR if error.component == "scheduler" else Level.WARNING
            self._report(level, f"{error.component}: {' '.join(filter(None, (error.url, error.message)))}")
