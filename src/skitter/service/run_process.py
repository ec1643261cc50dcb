"""The process that runs a job on this node, as the node controls it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Callable

import msgspec

from skitter.run.log_frames import LogLine
from skitter.service.config import RunFolder, child_environment
from skitter.service.items import ITEMS_VARIABLE
from skitter.service.log_collector import LogPipe
from skitter.service.runner import RunCommand, RunOutcome
from skitter.worker import DRAIN_SECONDS

_STOP_TIMEOUT = DRAIN_SECONDS + 15.0
"""Time that a process may take to stop before it is killed, in seconds. After a kill, its leases expire."""


class RunProcess:
    """The process of one attempt to run a job. Create it with :meth:`start`."""

    def __init__(
        self, job: str, attempt: int, folder: RunFolder, process: Process, result_pipe: int, log_pipe: LogPipe
    ) -> None:
        self.job = job
        self.attempt = attempt
        self.folder = folder
        self._process = process
        self._result_pipe = result_pipe
        self._log_pipe = log_pipe
        self._stopped_at = 0.0
        self._outcome: RunOutcome | None = None

    @classmethod
    async def start(
        cls, job: str, attempt: int, command: RunCommand, items: str, take: Callable[[LogLine], None]
    ) -> RunProcess:
        """Start the process; ``take`` receives each log line of the process and its workers.

        ``items``: location of the items; see :data:`~skitter.service.items.ITEMS_VARIABLE`.
        """
        log_pipe = LogPipe(take)
        reader, writer = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "skitter.service.runner", str(writer),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, stderr=log_pipe.writer,
                pass_fds=(writer,), start_new_session=True, env=child_environment() | {ITEMS_VARIABLE: items},
            )  # fmt: skip
        except BaseException:
            os.close(reader)
            log_pipe.discard()
            raise
        finally:
            os.close(writer)
        log_pipe.listen()
        run = cls(job, attempt, RunFolder(command.spec), process, reader, log_pipe)
        try:
            await run._send(command)
        except BaseException:
            run._signal(signal.SIGKILL)
            await run.wait()
            raise
        return run

    async def _send(self, command: RunCommand) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        with contextlib.suppress(ConnectionError):
            stdin.write(msgspec.json.encode(command))
            await stdin.drain()
        stdin.close()

    @property
    def status(self) -> int | None:
        """The exit status; negative if a signal ended the process; ``None`` while it runs."""
        return self._process.returncode

    @property
    def is_stopping(self) -> bool:
        """Whether :meth:`stop` was called."""
        return self._stopped_at > 0

    def stop(self) -> None:
        """Ask the process to finish its requests in progress and end."""
        if not self._stopped_at:
            self._stopped_at = time.monotonic()
            self._signal(signal.SIGTERM)

    def kill_if_overdue(self) -> None:
        """Kill the process if it has not ended in time after a stop request."""
        if self._stopped_at and time.monotonic() - self._stopped_at > _STOP_TIMEOUT:
            self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def wait(self) -> RunOutcome | None:
        """Wait for the end and return the result, or ``None`` if the process was killed. Kills a process that takes too long."""
        try:
            async with asyncio.timeout(_STOP_TIMEOUT):
                await self._process.wait()
        except TimeoutError:
            self._signal(signal.SIGKILL)
            await self._process.wait()
        if self._result_pipe >= 0:
            self._log_pipe.close()
            data, self._result_pipe = _read_all(self._result_pipe), -1
            with contextlib.suppress(msgspec.MsgspecError):
                self._outcome = msgspec.json.decode(data, type=RunOutcome)
        return self._outcome


def _read_all(pipe: int) -> bytes:
    """Return everything that an ended process has written to a pipe."""
    os.set_blocking(pipe, False)
    try:
        return os.read(pipe, 1 << 16)
    except BlockingIOError:  # a child of the process holds the pipe open
        return b""
    finally:
        os.close(pipe)
