"""LimitedProcess: a child process with limits of time and memory, for work whose input may be hostile.

The kernel kills the process when a call has used up its CPU time, and the parent kills it if it does not reply although it
uses none: it sleeps, or waits for something. So nothing that the work does can prevent it, and a crash affects nothing
else. The next call starts a new process.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import IO, Any

import msgspec

from skitter.errors import SkitterError

_EXTRA_SECONDS = 60.0
"""Seconds that a call may take in addition to its CPU time: to start the process, and to wait for the CPU of a busy machine."""


class ProcessDied(SkitterError):
    """The process was killed because a call exceeded its time limit (``timed_out``), or it crashed."""

    def __init__(self, message: str, *, timed_out: bool) -> None:
        super().__init__(message)
        self.timed_out = timed_out


class LimitedProcess:
    """Calls a module in a child process. Calls block, so make them in a thread. They run one at a time.

    ``module``: name of a module that calls :func:`serve`.
    ``seconds``: maximum CPU time of one call.
    ``arguments``: additional command-line arguments of the module.
    ``environment``: environment variables of the process; ``None``: the same as in this process.
    """

    def __init__(
        self, module: str, seconds: float, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> None:
        self._environment = environment
        self._command = [sys.executable, "-m", module, str(seconds), *arguments]
        self._seconds = seconds
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None

    def call(self, message: msgspec.Struct) -> bytes:
        """Send a message and return the reply, as JSON. Raises :class:`ProcessDied`."""
        with self._lock:
            process = self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                _write(process.stdin, message)
                limit = self._seconds + _EXTRA_SECONDS
                if not _is_ready(process.stdout, limit):
                    self._close()
                    raise ProcessDied(f"did not reply within {limit:g} s", timed_out=True)
                reply = _read(process.stdout)
            except OSError:
                reply = None
            except KeyboardInterrupt:  # the next call must not receive the reply of this one
                self._close()
                raise
            if reply is None:
                raise self._end_of(process)
            return reply

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self._environment
            )
            self._finalizer = weakref.finalize(self, _end, self._process)
        return self._process

    def _end_of(self, process: subprocess.Popen[bytes]) -> ProcessDied:
        """Forget an ended process, and return why it ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        code = process.returncode
        self._close()
        if code == -signal.SIGPROF:
            return ProcessDied(f"ran longer than {self._seconds:g} s", timed_out=True)
        return ProcessDied(f"the process died with exit code {code}", timed_out=False)

    @property
    def pid(self) -> int | None:
        """The process id; ``None`` while no process runs."""
        return None if self._process is None else self._process.pid

    def close(self) -> None:
        """End the process. The next call starts a new one."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._finalizer is not None:
            self._finalizer()
        self._process = self._finalizer = None


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):  # unsent data
                stream.close()


def serve(handle: Callable[[bytes], msgspec.Struct]) -> None:
    """Handle calls in the child process until the end of its input. The first command-line argument is the CPU time."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C stops the parent, which then ends this process
    seconds = float(sys.argv[1])
    calls, replies = sys.stdin.buffer, sys.stdout.buffer
    while (call := _read(calls)) is not None:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        result = handle(call)
        signal.setitimer(signal.ITIMER_PROF, 0)
        _write(replies, result)


def limit_memory(size: int) -> None:
    """Limit the memory that this process may allocate from now on, in bytes. Only works on Linux."""
    with contextlib.suppress(OSError, ValueError):
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - no path object is worth a module
            used = int(file.read().split()[0]) * os.sysconf("SC_PAGESIZE")
        resource.setrlimit(resource.RLIMIT_AS, (used + size, resource.RLIM_INFINITY))


def _is_ready(stream: IO[bytes], seconds: float) -> bool:
    """Wait for data, or for the end of a stream whose buffered data was read. Return ``False`` after a timeout."""
    poll = select.poll()
    poll.register(stream, select.POLLIN)
    return bool(poll.poll(1000 * seconds))


def _write(stream: IO[bytes], message: msgspec.Struct) -> None:
    """Send a message as JSON, preceded by its length. Raises :class:`OSError` if the reader is gone."""
    encoded = msgspec.json.encode(message)
    stream.write(len(encoded).to_bytes(4, "big") + encoded)
    stream.flush()


def _read(stream: IO[bytes]) -> bytes | None:
    """Return the next message, or ``None`` at the end of the stream."""
    head = stream.read(4)
    if len(head) < 4:
        return None
    length = int.from_bytes(head, "big")
    body = stream.read(length)
    return body if len(body) == length else None
