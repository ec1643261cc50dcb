"""The process in which a node runs one job (``python -m skitter.service.runner PIPE``).

It reads its command as JSON from standard input. After SIGTERM, it finishes the requests in progress and ends. If its
node is gone, it ends at once; its leases expire. It writes its result to the pipe with the number PIPE. Everything that
it logs or prints goes to standard error, as frames.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys

import msgspec

from skitter.errors import CrawlFailed, SkitterError
from skitter.run.builder import RunOverrides
from skitter.run.crawl import Crawl
from skitter.run.job import JobSpec
from skitter.run.log_frames import log_cause
from skitter.run.passes import Passes
from skitter.run.process import FRAMES, LogOptions, run_async, set_up_logging
from skitter.run.profiling import MemoryTracer

_POLL_INTERVAL = 0.25
"""Time between two checks whether the node is alive, in seconds."""
_MAX_ERROR_LENGTH = 8000
"""Maximum characters of an error. The result has to fit into the pipe, because it is read only after the process ends."""
_EMPTY_REMEDY = "see its log and its failed requests; to fetch them again, retry them and resume the job"


class RunCommand(msgspec.Struct):
    """What the process should run."""

    spec: JobSpec
    node: int
    """Process id of the node."""
    log_level: str = "info"
    """Lowest level that the process and its workers send."""
    passes: Passes | None = None
    """Passes of earlier runs, whose history the first pass of the run continues."""


class RunOutcome(msgspec.Struct):
    """The result of the process."""

    state: str = ""
    """State of the job in its frontier; empty if the run failed."""
    reason: str = ""
    error: str = ""
    remedy: str = ""
    final: bool = False
    """Whether a new attempt would fail on any node: a hook of the spider, or its seeds, ended the crawl, or no page of its
    seeds could be fetched."""


async def _run(command: RunCommand) -> RunOutcome:
    overrides = RunOverrides(passes=command.passes)
    crawl = Crawl(command.spec, resume=True, log=LogOptions(command.log_level, FRAMES), overrides=overrides)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, crawl.stop, "stopped by its node")
    MemoryTracer(crawl.folder).listen()
    watching = asyncio.create_task(_watch_node(crawl, command.node))
    try:
        result = await crawl.run()
    finally:
        watching.cancel()
    if result.fetched_nothing:
        return RunOutcome(error=result.empty_because, remedy=_EMPTY_REMEDY, final=True)
    return RunOutcome(result.state.value, result.reason)


async def _watch_node(crawl: Crawl, node: int) -> None:
    while os.getppid() == node:  # noqa: ASYNC110 - the parent process cannot set an event
        await asyncio.sleep(_POLL_INTERVAL)
    crawl.kill()
    os._exit(1)


def main() -> int:
    """Run one job to its end and return the exit status."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the node decides when to stop
    command = msgspec.json.decode(sys.stdin.buffer.read(), type=RunCommand)
    set_up_logging(command.log_level, FRAMES)
    try:
        outcome = run_async(_run(command))
    except SkitterError as error:
        log_cause(error)
        final = isinstance(error, CrawlFailed)
        outcome = RunOutcome(
            error=str(error)[:_MAX_ERROR_LENGTH], remedy=error.remedy[:_MAX_ERROR_LENGTH], final=final
        )
    with contextlib.suppress(BrokenPipeError):
        os.write(int(sys.argv[1]), msgspec.json.encode(outcome))
    return 1 if outcome.error else 0


if __name__ == "__main__":
    sys.exit(main())
