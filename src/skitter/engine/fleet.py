"""Fleet: the worker processes of one job on this machine. A worker that dies is replaced."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from skitter.engine.assembly import worker_name
from skitter.engine.orders import DRAIN_SECONDS, HAD_WORK, ChildEnd, ChildOrder
from skitter.errors import CrawlFailed, SkitterError

log = logging.getLogger("skitter.engine")

_LONGEST_REPORT = 60_000
_FAILED_STARTS = 5
"""So many workers in a row that died before they began to work, and the fleet gives up. Deaths at work are
bounded by the frontier: a request that was lost too often becomes a dead letter."""


class Fleet:
    """Starts, watches, replaces and ends worker processes."""

    def __init__(
        self, orders: Sequence[ChildOrder], abandon: Callable[[str], Awaitable[object]] | None = None
    ) -> None:
        self._abandon = abandon
        """Takes back what a dead worker held, where no connection to this process tells of its death."""
        self._orders = [msgspec.json.encode(order) for order in orders]
        """One for each worker."""
        self._processes: set[asyncio.subprocess.Process] = set()
        self._stopping = False
        self._failed_starts = 0

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers alive."""
        return [process.pid for process in self._processes if process.returncode is None]

    async def run(self) -> None:
        """Keep the workers running until each has ended by itself.

        Raises :class:`~skitter.errors.CrawlFailed` if a worker says that the crawl has failed, or if
        workers die as soon as they are started.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for order in self._orders:
                    group.create_task(self._keep_one(order))
        except* CrawlFailed as failures:
            raise failures.exceptions[0] from None
        finally:
            await self.kill()

    async def _keep_one(self, order: bytes) -> None:
        while not self._stopping:
            started = time.monotonic()
            name = worker_name()
            read_end, write_end = os.pipe()
            os.set_blocking(read_end, False)  # a process that the spider left behind may hold the other end
            try:
                process = await self._start(name, write_end)
                with contextlib.suppress(RuntimeError):  # uvloop's, where it died before it could be told
                    await process.communicate(order)
                await process.wait()
                self._processes.discard(process)
                said = _read(read_end)
            finally:
                os.close(read_end)
            if _ended_well(said):
                return
            if self._abandon is not None:
                with contextlib.suppress(SkitterError):  # the other workers meet the same error, and tell it
                    await self._abandon(name)
            self._count_death(process.returncode, time.monotonic() - started, had_work=bool(said))

    async def _start(self, name: str, write_end: int) -> asyncio.subprocess.Process:
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "skitter.engine.child", str(write_end), name,
                stdin=asyncio.subprocess.PIPE, pass_fds=(write_end,),
                start_new_session=True,  # a Ctrl-C is for the owner, which lets its workers drain
            )  # fmt: skip
        finally:
            os.close(write_end)
        self._processes.add(process)
        if self._stopping:  # while it was being started
            self._tell_to_stop(process)
        return process

    def _count_death(self, status: int | None, lived: float, *, had_work: bool) -> None:
        log.warning("a worker died (status %s) after %.1f s and is replaced", status, lived)
        self._failed_starts = 0 if had_work else self._failed_starts + 1
        if self._failed_starts >= _FAILED_STARTS:
            raise CrawlFailed(
                f"workers die as soon as they start (status {status})",
                remedy="see the log above for the reason",
            )

    async def stop(self) -> None:
        """Replace nobody any more; end what has not drained in good time."""
        self._stopping = True
        for process in self._processes:
            self._tell_to_stop(process)
        await asyncio.sleep(DRAIN_SECONDS + 5.0)
        await self.kill()

    def _tell_to_stop(self, process: asyncio.subprocess.Process) -> None:
        if self._abandon is not None:  # no frontier of ours tells it
            with contextlib.suppress(ProcessLookupError):
                process.terminate()

    async def kill(self) -> None:
        """End all workers at once; their leases go back when their connections close."""
        for process in list(self._processes):
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()


def _read(pipe: int) -> bytes:
    try:
        return os.read(pipe, _LONGEST_REPORT)
    except BlockingIOError:
        return b""


def _ended_well(said: bytes) -> bool:
    """Read a worker's report. Raises CrawlFailed if it says so; False if it never came to report."""
    report = said.removeprefix(HAD_WORK)
    if not report:
        return False
    end = msgspec.json.decode(report, type=ChildEnd)
    if end.failure:
        raise CrawlFailed(end.failure, remedy=end.remedy)
    return True
