"""Supervisor: starts and replaces the worker processes of one job on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from skitter._utils.concurrency import wait_until_set
from skitter.errors import CrawlFailed, SkitterError
from skitter.frontier.workers import worker_name
from skitter.run.job import JobSpec
from skitter.run.process import LogOptions
from skitter.worker import DRAIN_SECONDS

log = logging.getLogger("skitter.crawl")

_MAX_FAILED_STARTS = 5
"""Maximum number of consecutive workers that may die before they have a lease. The frontier limits later deaths: a
request whose lease is lost too often becomes a dead letter."""
_MIN_RESTART_DELAY = 0.5
_MAX_RESTART_DELAY = 60.0
"""Seconds before a worker that died at its start is replaced. Doubles each time, with jitter."""
_MAX_READ = 60_000
"""Maximum bytes of a report that are read at a time."""
_UNKNOWN_STATUS = 255
"""Exit status of a process that only the kernel has waited for, as in :mod:`asyncio`."""

READY = b"."
"""First byte that a worker reports: its first request for leases has returned."""
HAD_WORK = b"+"
"""Second byte: the worker has a lease. From now on the frontier limits how often it may die."""


class WorkerResult(msgspec.Struct):
    """How a worker process ended."""

    failure: str = ""
    """Why the crawl fails; empty if it does not fail. Limited to the capacity of a pipe."""
    remedy: str = ""
    is_usage: bool = False
    """Whether the caller caused the failure."""
    is_finished: bool = False
    """Whether the worker has found that the job is finished."""


class WorkerCommand(msgspec.Struct):
    """The work of one worker process."""

    spec: JobSpec
    owner: int
    """Process id of the owner."""
    shared: bool
    """Whether the worker opens the frontier by its URL. Otherwise it connects to the socket of the owner."""
    log: LogOptions = LogOptions()
    queues: list[str] = []
    """The queues that it serves; empty: all."""


class ForkedProcess:
    """A worker process that was forked, and that waits for its command (Linux only).

    It has the methods of :class:`asyncio.subprocess.Process` that :class:`WorkerProcess` uses.
    """

    def __init__(self, name: str, pid: int, command_pipe: int, report_pipe: int) -> None:
        self.name = name
        """The name of the worker in the frontier."""
        self.pid = pid
        self.returncode: int | None = None
        """See :attr:`asyncio.subprocess.Process.returncode`."""
        self.report_pipe = report_pipe
        """The read end of the pipe for reports. The owner of the process closes it."""
        self._command_pipe = open(command_pipe, "wb", buffering=0)  # noqa: SIM115 - closed when the command is sent
        # The process reads its command up to the end, so no process that the spider forks may keep the pipe open.
        os.register_at_fork(after_in_child=self._command_pipe.close)
        self._handle = os.pidfd_open(pid)
        self._ended: asyncio.Event | None = None

    async def communicate(self, command: bytes) -> None:
        """Send the command and wait for the end of the process."""
        await asyncio.to_thread(self._send, command)
        await self.wait()

    def _send(self, command: bytes) -> None:
        with contextlib.suppress(BrokenPipeError), self._command_pipe as pipe:
            while command:
                command = command[pipe.write(command) :]

    async def wait(self) -> None:
        """Wait for the end of the process."""
        if self.returncode is not None:
            return
        if self._ended is None:
            self._ended = asyncio.Event()
            asyncio.get_running_loop().add_reader(self._handle, self._on_end)
        await self._ended.wait()

    def _on_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._handle)
        self._reap()
        if self._ended is not None:
            self._ended.set()

    def _reap(self) -> None:
        os.close(self._handle)
        try:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        except ChildProcessError:  # SIGCHLD is ignored, or other code has waited for all processes
            self.returncode = _UNKNOWN_STATUS

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self.returncode is None:
            signal.pidfd_send_signal(self._handle, number)

    def discard(self) -> None:
        """End a process that got no command."""
        with contextlib.suppress(ProcessLookupError):
            self.kill()
        self._reap()
        self.close_pipes()

    def close_pipes(self) -> None:
        """Close the pipes of a process that got no command."""
        self._command_pipe.close()
        os.close(self.report_pipe)


class WorkerProcess:
    """One worker process, as its owner sees it. ``name`` is the name of the worker in the frontier."""

    def __init__(
        self,
        name: str,
        process: asyncio.subprocess.Process | ForkedProcess,
        pipe: int,
        on_ready: Callable[[], None],
    ) -> None:
        self.name = name
        self.process = process
        self.started = time.monotonic()
        self._pipe = pipe
        self._on_ready = on_ready
        self._received = b""

    @classmethod
    async def start(cls, on_ready: Callable[[], None]) -> WorkerProcess:
        """Start a process, which waits for its command. ``on_ready`` is called when it is ready for work."""
        suffix = os.urandom(6).hex()
        read_end, write_end = os.pipe()
        os.set_blocking(read_end, False)  # a process started by the spider may keep the other end open
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "skitter.run.child", str(write_end), suffix,
                stdin=asyncio.subprocess.PIPE, pass_fds=(write_end,),
                start_new_session=True,  # Ctrl-C goes to the owner only, which drains its workers
            )  # fmt: skip
        except BaseException:
            os.close(read_end)
            raise
        finally:
            os.close(write_end)
        try:
            name = await asyncio.to_thread(worker_name, suffix, process.pid)  # reads files
        except BaseException:  # another worker has failed, for example
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            os.close(read_end)
            raise
        return cls(name, process, read_end, on_ready)

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self.process.returncode is None

    @property
    def is_ready(self) -> bool:
        """Whether the process runs and has asked for leases."""
        return self.is_alive and self._received.startswith(READY)

    @property
    def had_work(self) -> bool:
        """Whether the worker ever had a lease."""
        return self._received.startswith(READY + HAD_WORK)

    async def work(self, command: bytes) -> WorkerResult | None:
        """Send the command and wait for the end of the process. Return its result; ``None`` if it died without a result."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._pipe, self._on_readable)
        try:
            with contextlib.suppress(RuntimeError):  # raised by uvloop if the process is dead already
                await self.process.communicate(command)
            await self.process.wait()
            self._read()
        finally:
            loop.remove_reader(self._pipe)
            os.close(self._pipe)
        try:
            return msgspec.json.decode(self._received.lstrip(READY + HAD_WORK), type=WorkerResult)
        except msgspec.DecodeError:  # no report, or a partial one: the process was killed
            return None

    def _on_readable(self) -> None:
        was_ready = self.is_ready
        if not self._read():
            asyncio.get_running_loop().remove_reader(self._pipe)
        elif self.is_ready and not was_ready:
            self._on_ready()

    def _read(self) -> bytes:
        try:
            more = os.read(self._pipe, _MAX_READ)
        except BlockingIOError:
            return b""
        self._received += more
        return more

    def terminate(self) -> None:
        """Ask the worker to finish its requests in progress and to end."""
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()

    async def kill(self) -> None:
        """Kill the process, if it still runs."""
        if self.is_alive:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()


class Supervisor:
    """Starts, watches, replaces and ends worker processes.

    A worker that dies at its start is replaced after increasing delays, as long as any other worker continues the job.

    ``commands``: one for each worker.
    ``abandon``: reclaims the leases of a dead worker, whose connection may stay open in a process that the spider forked.
    ``forked``: processes that wait for a command. The supervisor takes them from the list before it starts new ones.
    """

    def __init__(
        self,
        commands: Sequence[WorkerCommand],
        abandon: Callable[[str], Awaitable[object]],
        forked: list[ForkedProcess] | None = None,
    ) -> None:
        self._abandon = abandon
        self._forked = [] if forked is None else forked
        self._is_shared = any(command.shared for command in commands)
        self._commands = [msgspec.json.encode(command) for command in commands]
        self._workers: dict[int, WorkerProcess] = {}
        """The running workers, by the index of their command."""
        self._stopping = False
        self._is_over = asyncio.Event()
        """Set when workers that could not start are no longer needed."""
        self._some_ended = False
        """Whether a worker has found that the job is finished or stopped."""
        self._is_finished = False
        """Whether a worker has found that the job is finished."""
        self._failed_starts_of: dict[int, int] = {}
        """Failed starts in a row, by the index of the command."""
        self._failed_starts = 0
        """Failed starts in a row, of all workers."""
        self._missing: set[int] = set()
        """Indexes of commands whose last worker died at its start."""
        self._missing_logged = False
        """Whether it was logged that workers are missing."""

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers alive."""
        return [worker.process.pid for worker in self._workers.values() if worker.is_alive]

    async def run(self) -> bool:
        """Keep the workers running until each has ended by itself. Return whether one has found that the job is finished.

        Raises :class:`~skitter.errors.CrawlFailed` if a worker reports that the crawl has failed, or if
        workers die at their start and none is left.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for index, command in enumerate(self._commands):
                    group.create_task(self._keep_running(index, command))
        except* CrawlFailed as failures:
            raise failures.exceptions[0] from None
        finally:
            await self.kill()
        return self._is_finished

    async def _keep_running(self, index: int, command: bytes) -> None:
        while not self._stopping:
            worker = await self._start(index)
            result = await worker.work(command)
            if result is not None:
                if result.failure:
                    raise CrawlFailed(result.failure, remedy=result.remedy, is_usage=result.is_usage)
                self._some_ended = True
                self._is_finished = self._is_finished or result.is_finished
                break
            with contextlib.suppress(SkitterError):  # the other workers encounter and report the same error
                await self._abandon(worker.name)
            if self._some_ended and not worker.had_work and not self._ready:
                break
            self._count_death(index, worker)
            if await self._is_over_after_delay(index):
                break
        if not self._ready:  # workers that could not start are no longer needed
            self._is_over.set()

    async def _start(self, index: int) -> WorkerProcess:
        if self._forked:
            forked = self._forked.pop()
            worker = WorkerProcess(forked.name, forked, forked.report_pipe, lambda: self._worker_ready(index))
        else:
            worker = await WorkerProcess.start(lambda: self._worker_ready(index))
        self._workers[index] = worker
        if self._stopping:  # while the process was starting
            self._stop_worker(worker)
        return worker

    @property
    def _ready(self) -> int:
        """Number of workers that have asked for leases."""
        return sum(worker.is_ready for worker in self._workers.values())

    def _worker_ready(self, index: int) -> None:
        self._missing.discard(index)
        if self._missing_logged and not self._missing:
            self._missing_logged = False
            log.warning("all %d workers run again", len(self._commands))

    def _count_death(self, index: int, worker: WorkerProcess) -> None:
        """Count and log a death. Raises CrawlFailed if workers die at their start and none is left."""
        if worker.had_work:
            self._failed_starts = 0
            self._failed_starts_of.pop(index, None)
        else:
            self._missing.add(index)
            self._failed_starts += 1
            self._failed_starts_of[index] = self._failed_starts_of.get(index, 0) + 1
        status, age = worker.process.returncode, time.monotonic() - worker.started
        too_many = self._failed_starts >= _MAX_FAILED_STARTS
        if too_many and not self._ready:
            raise CrawlFailed(
                f"workers die as soon as they start (status {status})",
                remedy="see the log above for the reason",
            )
        is_known = self._missing_logged and not worker.had_work
        level = logging.DEBUG if is_known else logging.WARNING
        log.log(level, "a worker died (status %s) after %.1f s; replacing it", status, age)
        if too_many and not self._missing_logged:
            self._missing_logged = True
            log.warning(
                "workers die as soon as they start (status %s): the crawl continues with %d of %d workers,"
                " and tries to start the others after increasing delays",
                status, self._ready, len(self._commands),
            )  # fmt: skip

    async def _is_over_after_delay(self, index: int) -> bool:
        """Wait before another start. Return whether the crawl has ended in the meantime, so that the worker is not needed."""
        failed = self._failed_starts_of.get(index, 0)
        if failed > 1:
            seconds = min(_MAX_RESTART_DELAY, _MIN_RESTART_DELAY * 2.0 ** min(failed - 2, 10))
            await wait_until_set(self._is_over, seconds * random.uniform(0.5, 1.0))
        return failed > 0 and self._is_over.is_set()

    async def stop(self) -> None:
        """Stop replacing workers, and kill those that do not end in time."""
        self._stopping = True
        self._is_over.set()
        for worker in self._workers.values():
            self._stop_worker(worker)
        await asyncio.sleep(DRAIN_SECONDS + 5.0)
        await self.kill()

    def _stop_worker(self, worker: WorkerProcess) -> None:
        if self._is_shared:  # otherwise the frontier notifies the worker of the stop
            worker.terminate()

    async def kill(self) -> None:
        """Kill all workers. Their leases end when their connections close, or with the frontier."""
        for worker in list(self._workers.values()):
            await worker.kill()
