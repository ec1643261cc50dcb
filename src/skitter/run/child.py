"""Child: one worker process of a fleet on this machine (``python -m skitter.run.child PIPE NAME``).

Reads the job's spec as JSON from its standard input, reaches the frontier by its URL, or over the owner's socket if it is not shared, and ends
when the job is finished or stopped, or when the owner is gone. What it says of its end goes into the pipe whose number is its argument: standard output belongs to
the spider.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from skitter.errors import SkitterError, is_usage
from skitter.frontier.contract import Frontier
from skitter.frontier.records import FetchReport, LeaseResult
from skitter.frontier.rpc.client import OwnerGone, RemoteFrontier, remote_frontier
from skitter.queues import QueueQuotas
from skitter.run.builder import JobBuilder, WorkerSet
from skitter.run.process import FRAMES, run_async, set_up_logging
from skitter.run.worker_process import HAD_WORK, READY, WorkerCommand, WorkerResult

_LOOK_EVERY = 0.5
"""Seconds between two looks whether the owner is still there, where no connection tells."""


class _ReportedFrontier:
    """Reports the first answer to the question for work, and the first lease."""

    def __init__(self, frontier: Frontier, pipe: int) -> None:
        self._frontier = frontier
        self._pipe = pipe
        self._is_ready = self._had_work = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._frontier, name)

    async def lease(
        self, worker: str, limit: int, landed: Sequence[FetchReport] = (), *shares: QueueQuotas
    ) -> LeaseResult:
        """Hand out requests."""
        result = await self._frontier.lease(worker, limit, landed, *shares)
        if not self._had_work:
            self._had_work = bool(result.leases)
            _report(self._pipe, b"" if self._is_ready else READY)
            _report(self._pipe, HAD_WORK if self._had_work else b"")
            self._is_ready = True
        return result


def _report(pipe: int, what: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(pipe, what)


def _reach(assembly: JobBuilder, order: WorkerCommand, name: str) -> Frontier:
    if not order.shared:
        return remote_frontier(assembly.folder.socket, name)
    from skitter.frontier.registry import make_frontier  # noqa: PLC0415 - loads what the owner alone needs elsewhere

    return make_frontier(assembly.spec.frontier, assembly.frontier_context(joining=True))


async def _owner_ended(frontier: Frontier, owner: int) -> None:
    """Return when the process that started this one is gone."""
    if isinstance(frontier, RemoteFrontier):
        await frontier.wait_closed()
        return
    while os.getppid() == owner:  # noqa: ASYNC110 - the fact to wait for is in another process
        await asyncio.sleep(_LOOK_EVERY)


async def _work(order: WorkerCommand, pipe: int, name: str) -> None:
    loop = asyncio.get_running_loop()
    assembly = JobBuilder(order.spec)
    frontier = _reach(assembly, order, name)
    reported = cast(Frontier, _ReportedFrontier(frontier, pipe))
    at_work = WorkerSet()
    loop.add_signal_handler(signal.SIGTERM, at_work.drain)
    info = await frontier.open()
    work = loop.create_task(assembly.work(reported, info, name, at_work, order.queues))
    gone = loop.create_task(_owner_ended(frontier, order.owner))
    await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
    gone.cancel()
    if not work.done():
        work.cancel()  # an orphan can commit nothing: the next owner gives its leases to others
        with contextlib.suppress(asyncio.CancelledError, SkitterError):
            await work
        await frontier.close()
        raise OwnerGone("the owner of the job has ended")
    await work
    await frontier.close()


def main() -> int:
    """Run one worker to its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the owner tells its workers when to stop
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=WorkerCommand)
    pipe, name = int(sys.argv[1]), sys.argv[2]
    set_up_logging(order.log_level, order.log_format, name)
    end = WorkerResult()
    try:
        run_async(_work(order, pipe, name))
    except OwnerGone:
        return 1  # no report: an owner that is there after all replaces this worker
    except SkitterError as error:
        if order.log_format == FRAMES:
            from skitter.run.log_frames import log_cause  # noqa: PLC0415 - only processes of a service need it

            log_cause(error)
        end = WorkerResult(str(error)[:8000], error.remedy[:8000], is_usage=is_usage(error))
    _report(pipe, msgspec.json.encode(end))
    gc.freeze()  # everything goes at once now: the interpreter need not look for cycles in all that a worker knows
    return 1 if end.failure else 0


if __name__ == "__main__":
    sys.exit(main())
