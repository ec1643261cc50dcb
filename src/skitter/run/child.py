"""A worker process of a job (``python -m skitter.run.child PIPE SUFFIX``). ``SUFFIX`` is part of the worker's name.

The process reads a WorkerCommand as JSON from standard input. It opens the frontier by its URL, or connects to the
socket of the owner if the frontier is not shared. It ends when the job is finished or stopped, or soon after the owner.
It reports to the pipe whose number is its argument, since standard output belongs to the spider.

A command forks its first workers instead (:func:`forked_workers`). They run the same code.
"""

from __future__ import annotations

# ruff: noqa: E402 - garbage collection is postponed before the imports
import gc

gc.set_threshold(1_000_000)  # the imports create no garbage

import asyncio
import atexit
import contextlib
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import msgspec

from skitter.errors import SkitterError, is_usage
from skitter.frontier.contract import Frontier
from skitter.frontier.records import JobState
from skitter.frontier.rpc.client import OwnerGone, RemoteFrontier, remote_frontier
from skitter.frontier.workers import worker_name
from skitter.run.builder import JobBuilder, load_worker_modules
from skitter.run.process import FRAMES, apply_log_settings, run_async, set_up_logging
from skitter.run.profiling import MemoryTracer
from skitter.run.supervisor import HAD_WORK, READY, ForkedProcess, WorkerCommand, WorkerResult

_OWNER_POLL_INTERVAL = 0.5
"""Seconds between two checks whether the owner still runs."""
_GRACE = 2.0
"""Seconds that a worker has to end by itself after its owner has ended."""


class _StartReporter:
    """Reports two events to the owner: the first result of a request for leases, and the first lease."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._is_ready = self._had_work = False

    def on_leases(self, leases: int) -> None:
        if not self._is_ready:
            self._is_ready = True
            _report(self._pipe, READY)
        if leases and not self._had_work:
            self._had_work = True
            _report(self._pipe, HAD_WORK)


def _report(pipe: int, text: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(pipe, text)


def _make_frontier(builder: JobBuilder, command: WorkerCommand, name: str) -> Frontier:
    if not command.shared:
        return remote_frontier(builder.folder.socket, name)
    from skitter.frontier.registry import make_frontier  # noqa: PLC0415 - other workers need none of its modules

    return make_frontier(builder.spec.frontier, builder.frontier_context(joining=True))


async def _owner_ended(frontier: Frontier, owner: int) -> None:
    """Return when the process that started this one has ended."""
    if isinstance(frontier, RemoteFrontier):
        await frontier.wait_closed()
        return
    while os.getppid() == owner:  # noqa: ASYNC110 - the event is in another process
        await asyncio.sleep(_OWNER_POLL_INTERVAL)


def _end_after(owner: int) -> None:
    """End this process soon after its owner, even if a callback blocks the event loop. Runs in its own thread.

    Nothing is lost, just as after a SIGKILL.
    """
    while os.getppid() == owner:
        time.sleep(_OWNER_POLL_INTERVAL)
    time.sleep(_GRACE)
    os._exit(1)


async def _work(command: WorkerCommand, pipe: int, name: str) -> JobState:
    builder = JobBuilder(command.spec)
    try:
        return await _work_with(builder, command, pipe, name)
    finally:
        builder.release_spider()


async def _work_with(builder: JobBuilder, command: WorkerCommand, pipe: int, name: str) -> JobState:
    loop = asyncio.get_running_loop()
    apply_log_settings(builder.settings, command.log.format)
    frontier = _make_frontier(builder, command, name)
    loop.add_signal_handler(signal.SIGTERM, builder.drain)
    MemoryTracer(builder.folder.path).listen()
    info = await frontier.open()
    work = loop.create_task(
        builder.work(frontier, info, name, command.queues, _StartReporter(pipe).on_leases)
    )
    owner_ended = loop.create_task(_owner_ended(frontier, command.owner))
    await asyncio.wait({work, owner_ended}, return_when=asyncio.FIRST_COMPLETED)
    owner_ended.cancel()
    if not work.done():
        work.cancel()  # without an owner nothing can be committed; the next owner reclaims the leases
        with contextlib.suppress(asyncio.CancelledError, SkitterError):
            await work
        await frontier.close()
        raise OwnerGone("the owner of the job has ended")
    state = await work
    await frontier.close()
    return state


def main() -> int:
    """Run one worker until it ends. Return the exit status."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the owner decides when its workers stop
    try:
        command = msgspec.json.decode(sys.stdin.buffer.read(), type=WorkerCommand)
    except msgspec.DecodeError:
        return 1  # the owner was killed while it wrote the command
    pipe, name = int(sys.argv[1]), worker_name(sys.argv[2])
    set_up_logging(command.log.level, command.log.format, name)
    threading.Thread(target=_end_after, args=(command.owner,), name="owner", daemon=True).start()
    result = WorkerResult()
    try:
        result.is_finished = run_async(_work(command, pipe, name)) is JobState.FINISHED
    except OwnerGone:
        return 1  # without a report; if the owner still runs, it replaces this worker
    except SkitterError as error:
        if command.log.format == FRAMES:
            from skitter.run.log_frames import log_cause  # noqa: PLC0415 - only processes of a service need it

            log_cause(error)
        result = WorkerResult(str(error)[:8000], error.remedy[:8000], is_usage=is_usage(error))
    _report(pipe, msgspec.json.encode(result))
    gc.freeze()  # skip the last garbage collection of the process
    return 1 if result.failure else 0


@contextlib.contextmanager
def forked_workers(number: int, frontier: str) -> Iterator[list[ForkedProcess]]:
    """Fork worker processes. The list is empty if that is not possible or not safe.

    The processes have already imported all modules of skitter, including the modules of the frontier with this URL. This
    saves at least 0.13 s of CPU time for each process (``docs/design/performance.md``). Call it before the spider is
    loaded: a fork has a copy of everything that the process has opened, but none of its threads. Processes that are still
    in the list at the end of the block have received no command, and are ended.
    """
    processes: list[ForkedProcess] = []
    try:
        if _can_fork():
            load_worker_modules()
            from skitter.frontier.registry import load_frontier_modules  # noqa: PLC0415 - other processes need none of its modules

            load_frontier_modules(frontier)
            _flush_standard_streams()  # otherwise each process would write the buffered text
            gc.freeze()  # a collection would write to the memory that the processes share
            with contextlib.suppress(OSError):  # such as a limit on processes; the crawl will report it
                for _ in range(number):
                    processes.append(_fork(processes))
        yield processes
    finally:
        for process in processes:
            process.discard()


def _can_fork() -> bool:
    if sys.platform != "linux" or sys.stdin is None:
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
        return len([*Path("/proc/self/task").iterdir()]) == 1
    except OSError:  # an old kernel, a filter of system calls, or no /proc
        return False


def _fork(earlier: list[ForkedProcess]) -> ForkedProcess:
    suffix = os.urandom(6).hex()
    command, command_pipe = os.pipe()
    report_pipe, report = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        for end in (command, command_pipe, report_pipe, report):
            os.close(end)
        raise
    if pid == 0:
        os.close(command_pipe)
        os.close(report_pipe)
        for process in earlier:  # a copy of their pipe would hide the end of the owner from them
            process.close_pipes()
        os.dup2(command, 0)
        os.close(command)
        _run_forked(report, suffix)
    os.close(command)
    os.close(report)
    os.set_blocking(report_pipe, False)  # a process started by the spider may keep the other end open
    return ForkedProcess(worker_name(suffix, pid), pid, command_pipe, report_pipe)


def _flush_standard_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):  # such as a broken pipe
                stream.flush()


def _flush_files(modules: Iterable[str]) -> None:
    """Flush the files that modules of the user leave open, as interpreter shutdown does."""
    for module in map(sys.modules.get, modules):
        for value in list(vars(module).values()) if isinstance(module, ModuleType) else ():
            if isinstance(value, io.IOBase) and not value.closed:
                with contextlib.suppress(OSError, ValueError):
                    value.flush()


def _run_forked(report: int, suffix: str) -> NoReturn:
    """Run a worker as this module does, and end the process."""
    status, own = 1, set(sys.modules)
    try:
        os.setsid()  # Ctrl-C must reach only the owner, which drains its workers
        sys.argv = [__file__, str(report), suffix]
        if not sys.flags.safe_path:
            sys.path[0] = str(Path.cwd())
        status = main()
    except BaseException:  # noqa: BLE001 - no code of the forking command may continue in this process
        sys.excepthook(*sys.exc_info())
    # End like a forked process of multiprocessing. Interpreter finalization would touch, and so copy, all shared memory.
    with contextlib.suppress(Exception):
        threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - see above
        atexit._run_exitfuncs()  # noqa: SLF001 - see above
        _flush_files(sys.modules.keys() - own)
        _flush_standard_streams()
    os._exit(status)


if __name__ == "__main__":
    sys.exit(main())
