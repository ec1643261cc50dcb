"""Heartbeat: reports a worker and its figures to the frontier every few seconds."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time

from skitter._utils.throughput import Throughput
from skitter._version import VERSION
from skitter.errors import SkitterError
from skitter.frontier.contract import Frontier
from skitter.frontier.workers import WorkerReport
from skitter.worker.committer import Committer
from skitter.worker.inflight import Inflight

HEARTBEAT_SECONDS = 2.0
"""Seconds between two reports."""
_TTL = 10.0
"""Time in seconds after which a silent worker is no longer listed."""


class Heartbeat:
    """Reports one worker until it ends."""

    def __init__(
        self,
        worker: str,
        frontier: Frontier,
        inflight: Inflight,
        committer: Committer,
        queues: tuple[str, ...] = (),
    ) -> None:
        self._worker = worker
        self._queues = queues
        self._frontier = frontier
        self._inflight = inflight
        self._committer = committer
        self._started = time.monotonic()
        self._throughput = Throughput()
        self._host = socket.gethostname()

    def report(self) -> WorkerReport:
        """Return the current figures of the worker."""
        age = time.monotonic() - self._started
        committed = self._committer.committed
        return WorkerReport(
            name=self._worker, host=self._host, pid=os.getpid(), version=VERSION, age=age,
            concurrency=self._inflight.concurrency, fetching=self._inflight.fetching, held=self._inflight.held,
            pages=committed["pages"], items=committed["items"], bytes=committed["bytes"],
            pages_per_second=round(self._throughput.note(age, committed["pages"]), 2), queues=self._queues,
        )  # fmt: skip

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            await self._frontier.reports.announce(self.report(), _TTL)
            await asyncio.sleep(HEARTBEAT_SECONDS)

    async def leave(self) -> None:
        """Report that the worker has ended, if the frontier is still there."""
        with contextlib.suppress(SkitterError):
            await self._frontier.reports.announce(self.report(), 0.0)
