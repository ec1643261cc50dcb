"""Monitor: watches a crawl at intervals, reports changes, and can stop the crawl when it is idle."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from enum import IntEnum

from skitter.errors import UsageError, counted
from skitter.frontends.lifecycle.crawl import ManagedCrawl
from skitter.frontends.lifecycle.modules import ModuleKind
from skitter.frontends.lifecycle.status import IllegalTransition, Status

log = logging.getLogger("skitter.frontends.lifecycle")

_PENDING = {Status.INITIALIZING, Status.INITIALIZED, Status.STARTING}
_ACTIVE = {Status.STARTED, Status.STOPPING}
_MIN_CHECK_INTERVAL = 0.1
"""Seconds."""
_MIN_SUMMARY_INTERVAL = 1.0
"""Seconds."""


class Level(IntEnum):
    """Severity of a line of the monitor."""

    INFO = logging.INFO
    WARNING = logging.WARNING
    ERROR = logging.ERROR


Report = Callable[[Level, str], None]


def to_log(level: Level, text: str) -> None:
    """Write a line to the logger ``skitter.frontends.lifecycle``."""
    log.log(level, "%s", text)


class Monitor:
    """Watches one run of a crawl.

    ``check_every``
        Seconds between two checks, at least 0.1; default 0.5.
    ``summary_every``
        Seconds between two summaries, at least 1; default 5. An unchanged summary is not reported.
    ``auto_stop``
        Stop the crawl when it is idle. Only crawls with the setting ``wait_for_seeds`` need this; all others end by
        themselves. The check is exact, so a single check is enough.
    ``report``
        Receives each line with its level; default: the log. Errors are reported as warnings, errors of the crawl itself as
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
            ("check_every", check_every, _MIN_CHECK_INTERVAL),
            ("summary_every", summary_every, _MIN_SUMMARY_INTERVAL),
        ):
            if not value >= least:
                raise UsageError(
                    f"{name} must be at least {least:g} s (got {value})",
                    remedy="give a larger number",
                    field=name,
                )
        self._crawl = crawl
        self._check_every = check_every
        self._summary_every = summary_every
        self._auto_stop = auto_stop
        self._report = report

    async def run(self) -> int:
        """Watch until the run is over, and return the number of checks. Cancelling the call does not affect the crawl.

        It waits for the start of a crawl that is only initialized. Raises :class:`~skitter.errors.UsageError` for a crawl
        that is not initialized.
        """
        if self._crawl.status is Status.UNINITIALIZED:
            raise UsageError(
                "the crawl has not been initialized",
                remedy="await crawl.initialize() before the monitor runs",
            )
        while self._crawl.status in _PENDING:  # noqa: ASYNC110 - other threads may change the status
            await asyncio.sleep(_MIN_CHECK_INTERVAL)
        relaying = asyncio.create_task(self._relay())
        try:
            checks = await self._watch()
            if self._crawl.status is Status.STOPPED:
                await relaying  # reports the remaining errors, then ends
        finally:
            relaying.cancel()
        self._report(Level.INFO, (await self._crawl.summary()).text())
        return checks

    async def _watch(self) -> int:
        loop = asyncio.get_running_loop()
        checks, reported, next_summary = 0, None, loop.time()
        while self._crawl.status in _ACTIVE:
            checks += 1
            if loop.time() >= next_summary:
                next_summary = loop.time() + self._summary_every
                summary = await self._crawl.summary()
                if summary != reported:
                    reported = summary
                    self._report(Level.INFO, summary.text())
            if self._auto_stop and self._crawl.status is Status.STARTED and await self._crawl.idle():
                try:
                    await self._crawl.stop("idle")
                except IllegalTransition:  # another caller stopped it first
                    await self._crawl.wait()
                break
            await asyncio.sleep(self._check_every)
        return checks

    async def _relay(self) -> None:
        errors = self._crawl.errors()
        missed = 0
        async for error in errors:
            if errors.missed > missed:
                self._report(
                    Level.WARNING,
                    f"not reported: {counted(errors.missed - missed, 'error')} that arrived too fast",
                )
                missed = errors.missed
            level = Level.ERROR if error.component is ModuleKind.SCHEDULER else Level.WARNING
            self._report(level, f"{error.component}: {' '.join(filter(None, (error.url, error.message)))}")
