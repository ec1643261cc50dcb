"""Runner: the process in which a node runs one job (``python -m skitter.service.runner PIPE``).

Reads its order as JSON from standard input. SIGTERM lets it finish what is in hand and end. If its node is gone it ends
at once: what it held goes back by the leases. What it says of its end goes into the pipe whose number is its argument,
what it logs and prints, as frames, to standard error.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys

import msgspec

from skitter.errors import CrawlFailed, SkitterError
from skitter.run.crawl import Crawl
from skitter.run.job import JobSpec
from skitter.run.log_frames import tell_cause
from skitter.run.process import FRAMES, LogOptions, run_async, set_up_logging

_LOOK_EVERY = 0.25
"""Seconds between two looks whether the node is still there."""
_LONGEST = 8000
"""Characters of an error; what is written has to fit into a pipe that nobody reads yet."""


class RunOrder(msgspec.Struct):
    """What a runner is to do."""

    spec: JobSpec
    node: int
    """Process id of the node."""
    log_level: str = "info"


class RunEnd(msgspec.Struct):
    """How a runner ended."""

    state: str = ""
    """Of the job on its frontier; empty if the run broke off."""
    reason: str = ""
    error: str = ""
    remedy: str = ""
    final: bool = False
    """Whether the same again would fail again on any node: a spider's own hook, or its seeds, ended the crawl."""


async def _run(order: RunOrder) -> RunEnd:
    crawl = Crawl(order.spec, resume=True, log=LogOptions(order.log_level, FRAMES))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, crawl.stop, "stopped by its node")
    watching = asyncio.create_task(_watch_node(crawl, order.node))
    try:
        result = await crawl.run()
    finally:
        watching.cancel()
    return RunEnd(result.state.value, result.reason)


async def _watch_node(crawl: Crawl, node: int) -> None:
    while os.getppid() == node:  # noqa: ASYNC110 - the fact to wait for is in another process
        await asyncio.sleep(_LOOK_EVERY)
    crawl.kill()
    os._exit(1)


def main() -> int:
    """Run one job to its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the node tells its runners when to stop
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=RunOrder)
    set_up_logging(order.log_level, FRAMES)
    try:
        end = run_async(_run(order))
    except SkitterError as error:
        tell_cause(error)
        final = isinstance(error, CrawlFailed)
        end = RunEnd(error=str(error)[:_LONGEST], remedy=error.remedy[:_LONGEST], final=final)
    with contextlib.suppress(BrokenPipeError):
        os.write(int(sys.argv[1]), msgspec.json.encode(end))
    return 1 if end.error else 0


if __name__ == "__main__":
    sys.exit(main())
