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

import msgspec

from skitter.engine.assembly import Assembly, worker_name
from skitter.engine.job import JobSpec
from skitter.engine.process import run_async, set_up_logging
from skitter.engine.worker import Worker
from skitter.errors import SkitterError
from skitter.frontier.client import OwnerGone, RemoteFrontier


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


async def _work(order: ChildOrder) -> None:
    loop = asyncio.get_running_loop()
    assembly = Assembly(order.spec)
    name = worker_name()
    frontier = RemoteFrontier(assembly.folder.socket, name)
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
        return
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
    try:
        run_async(_work(order))
    except OwnerGone:
        pass
    except SkitterError as error:
        end = ChildEnd(str(error)[:8000], error.remedy[:8000])
    with contextlib.suppress(BrokenPipeError):
        os.write(int(sys.argv[1]), msgspec.json.encode(end))
    return 1 if end.failure else 0


if __name__ == "__main__":
    sys.exit(main())
