"""The reports of a worker about its progress, and the heartbeats that keep its leases."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence

from skitter._utils.concurrency import wait_until_set
from skitter._version import VERSION
from skitter.errors import SkitterError
from skitter.frontier.contract import Frontier, Liveness
from skitter.frontier.workers import HEARTBEAT_SECONDS, WorkerReport
from skitter.worker.committer import Committer
from skitter.worker.inflight import Inflight
from skitter.worker.timings import Throughput

log = logging.getLogger("skitter.crawl")

_REPORT_SECONDS = 2.0
"""Seconds between two reports."""
_RETRY_SECONDS = 1.0
"""Seconds between two heartbeats while the server does not respond."""
_TTL = 10.0
"""Seconds after its last report until a worker is removed from the list."""


class WorkerReporter:
    """Reports the figures of one worker until it ends.

    ``outage``: returns why its requests wait; an empty string if they do not.
    """

    def __init__(
        self,
        worker: str,
        frontier: Frontier,
        inflight: Inflight,
        committer: Committer,
        queues: tuple[str, ...] = (),
        outage: Callable[[], str] | None = None,
    ) -> None:
        self._worker = worker
        self._outage = outage
        self._queues = queues
        self._frontier = frontier
        self._inflight = inflight
        self._committer = committer
        self._started = time.monotonic()
        self._throughput = Throughput()
        self._host = socket.gethostname()
        self.ttl = _TTL
        """Seconds for which a report lists the worker. If it dies, other workers abandon it earlier."""

    def report(self) -> WorkerReport:
        """Return the current figures of the worker."""
        age = time.monotonic() - self._started
        committed = self._committer.committed
        return WorkerReport(
            name=self._worker, host=self._host, pid=os.getpid(), version=VERSION, age=age,
            concurrency=self._inflight.concurrency, fetching=self._inflight.fetching, held=self._inflight.held,
            pages=committed["pages"], items=committed["items"], bytes=committed["bytes"],
            pages_per_second=round(self._throughput.record(age, committed["pages"]), 2), queues=self._queues,
            waits="" if self._outage is None else self._outage(),
        )  # fmt: skip

    async def announce(self) -> None:
        """Report once."""
        await self._frontier.reports.announce(self.report(), self.ttl)

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            await self.announce()
            await asyncio.sleep(_REPORT_SECONDS)

    async def leave(self) -> None:
        """Report that the worker has ended, if the frontier is still reachable."""
        with contextlib.suppress(SkitterError):
            await self._frontier.reports.announce(self.report(), 0.0)


class Heartbeat:
    """Sends the heartbeats of one worker from a separate thread, because a callback may block the event loop.

    ``on_dead`` is called on the event loop of the worker with the names of workers that have died.
    """

    def __init__(self, worker: str, liveness: Liveness, on_dead: Callable[[Sequence[str]], object]) -> None:
        self._worker = worker
        self._liveness = liveness
        self._on_dead = on_dead
        self._owner = asyncio.get_running_loop()
        self._has_begun = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()

    async def start(self) -> None:
        """Start the thread and wait for the first heartbeat, successful or not. Call this before the first lease."""
        self._loop = asyncio.new_event_loop()
        self._thread.start()
        await self._has_begun.wait()

    async def stop(self) -> None:
        """Stop the thread, if it was started."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the thread has ended
                self._loop.call_soon_threadsafe(self._stopping.set)
            await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        loop = self._loop
        assert loop is not None, "start() sets it"
        try:
            loop.run_until_complete(self._beat())
        finally:
            loop.close()
            self._owner.call_soon_threadsafe(self._has_begun.set)

    async def _beat(self) -> None:
        is_open = has_failed = False
        while not self._stopping.is_set():
            try:
                if not is_open:
                    await self._liveness.open()
                    is_open = True
                if dead := await self._liveness.beat(self._worker):
                    self._owner.call_soon_threadsafe(self._on_dead, dead)
                pause, has_failed = HEARTBEAT_SECONDS, False
            except SkitterError as error:  # the worker reports the same error after its own calls
                log.debug("no heartbeat: %s", error)
                is_open, pause = False, _RETRY_SECONDS
            except Exception:  # without heartbeats, others would take the leases of a worker that is alive
                log.log(logging.DEBUG if has_failed else logging.ERROR, "no heartbeat", exc_info=True)
                has_failed, is_open, pause = True, False, _RETRY_SECONDS
            if not is_open:
                with contextlib.suppress(Exception):  # the next heartbeat opens a new connection
                    await self._liveness.close()
            self._owner.call_soon_threadsafe(self._has_begun.set)
            await wait_until_set(self._stopping, pause)
        with contextlib.suppress(Exception):  # the worker is about to end
            await self._liveness.close()
