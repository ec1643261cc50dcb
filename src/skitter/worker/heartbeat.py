"""Heartbeat: tells the frontier, every few seconds, that a worker is there and how it fares."""

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
from skitter.worker.leaser import Leaser

HEARTBEAT_SECONDS = 2.0
"""Seconds between two announcements."""
_BELIEVED = 10.0
"""Seconds after which a worker of which nothing is heard is no longer listed."""


class Heartbeat:
    """Announces one worker for as long as it works."""

    def __init__(
        self,
        worker: str,
        frontier: Frontier,
        pump: Leaser,
        committer: Committer,
        queues: tuple[str, ...] = (),
    ) -> None:
        self._worker = worker
        self._queues = queues
        self._frontier = frontier
        self._pump = pump
        self._committer = committer
        self._began = time.monotonic()
        self._pace = Throughput()
        self._host = socket.gethostname()

    def report(self) -> WorkerReport:
        """Return how the worker is now."""
        age = time.monotonic() - self._began
        committed = self._committer.committed
        return WorkerReport(
            name=self._worker, host=self._host, pid=os.getpid(), version=VERSION, age=age,
            concurrency=self._pump.concurrency, fetching=self._pump.fetching, held=self._pump.held,
            pages=committed["pages"], items=committed["items"], bytes=committed["bytes"],
            pages_per_second=round(self._pace.note(age, committed["pages"]), 2), queues=self._queues,
        )  # fmt: skip

    async def run(self) -> None:
        """Announce until cancelled."""
        while True:
            await self._frontier.reports.announce(self.report(), _BELIEVED)
            await asyncio.sleep(HEARTBEAT_SECONDS)

    async def leave(self) -> None:
        """Say that the worker has left; a frontier that is gone will notice by itself."""
        with contextlib.suppress(SkitterError):
            await self._frontier.reports.announce(self.report(), 0.0)
