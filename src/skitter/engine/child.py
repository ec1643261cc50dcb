"""Child: one worker process of a fleet on this machine (``python -m skitter.engine.child PIPE``).

Reads the job's spec as JSON from its standard input, reaches the frontier over the owner's socket, and ends
when the job is finished or stopped, or when the owner is gone. What it says of its end goes into the pipe whose number is its argument: standard output belongs to
the spider.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from skitter.engine.assembly import Assembly, worker_name
from skitter.engine.job import JobSpec
from skitter.engine.process import run_async, set_up_logging
from skitter.engine.worker import Worker
from skitter.errors import SkitterError
from skitter.frontier.base import Landing, LeaseResult
from skitter.frontier.client import OwnerGone, RemoteFrontier

HAD_WORK = b"+"
"""First thing that a worker reports: from here on the frontier bounds how often it may die."""


class ChildEnd(msgspec.Struct):
    """How a worker process ended."""

    failure: str = ""
    """Why the crawl is to fail; empty if it is not. Cut to what a pipe holds."""
    remedy: str = ""


class ChildOrder(msgspec.Struct):
    """What a worker process is to do."""

    spec: JobSpec
    socket: str
    log_level: str = "info"
    log_format: str = "text"


class _ReportedFrontier(RemoteFrontier):
    """Reports the first lease."""

    def __init__(self, path: Path, worker: str, pipe: int) -> None:
        super().__init__(path, worker)
        self._pipe = pipe
        self._reported = False

    async def lease(self, worker: str, limit: int, landed: Sequence[Landing] = ()) -> LeaseResult:
        """Hand out requests."""
        result = await super().lease(worker, limit, landed)
        if result.leases and not self._reported:
            self._reported = True
            _report(self._pipe, HAD_WORK)
        return result


def _report(pipe: int, what: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(pipe, what)


async def _work(order: ChildOrder, pipe: int) -> None:
    loop = asyncio.get_running_loop()
    assembly = Assembly(order.spec)
    name = worker_name()
    frontier = _ReportedFrontier(assembly.folder.socket, name, pipe)
    running: list[Worker] = []
    loop.add_signal_handler(signal.SIGTERM, _drain, running)
    info = await frontier.open()
    work = loop.create_task(assembly.work(frontier, info, name, running))
    gone = loop.create_task(frontier.wait_closed())
    await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
    gone.cancel()
    if not work.done():
        work.cancel()  # an orphan can commit nothing: the next owner gives its leases to others
        with contextlib.suppress(asyncio.CancelledError, SkitterError):
            await work
        raise OwnerGone("the owner of the job has ended")
    await work
    await frontier.close()


def _drain(running: list[Worker]) -> None:
    for worker in running:
        worker.drain()


def main() -> int:
    """Run one worker to its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the owner tells its workers when to stop
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=ChildOrder)
    set_up_logging(order.log_level, order.log_format)
    end = ChildEnd()
    pipe = int(sys.argv[1])
    try:
        run_async(_work(order, pipe))
    except OwnerGone:
        return 1  # no report: an owner that is there after all replaces this worker
    except SkitterError as error:
        end = ChildEnd(str(error)[:8000], error.remedy[:8000])
    _report(pipe, msgspec.json.encode(end))
    return 1 if end.failure else 0


if __name__ == "__main__":
    sys.exit(main())
