"""WorkerProcess: a worker process, seen from the owner of its job."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Callable

import msgspec

from skitter.run.builder import worker_name
from skitter.run.job import JobSpec

_LONGEST_REPORT = 60_000


class WorkerProcess:
    """One worker process; :meth:`start` makes it. ``name`` is the worker's name in the frontier."""

    def __init__(
        self, name: str, process: asyncio.subprocess.Process, pipe: int, on_ready: Callable[[], None]
    ) -> None:
        self.name = name
        self._process = process
        self._pipe = pipe
        self._on_ready = on_ready
        self._started = time.monotonic()
        self._said = b""

    @classmethod
    async def start(cls, on_ready: Callable[[], None]) -> WorkerProcess:
        """Start a process, which waits for its order; ``on_ready`` is called when it first asks for work."""
        name = worker_name()
        read_end, write_end = os.pipe()
        os.set_blocking(read_end, False)  # a process that the spider left behind may hold the other end
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "skitter.run.child", str(write_end), name,
                stdin=asyncio.subprocess.PIPE, pass_fds=(write_end,),
                start_new_session=True,  # a Ctrl-C is for the owner, which lets its workers drain
            )  # fmt: skip
        except BaseException:
            os.close(read_end)
            raise
        finally:
            os.close(write_end)
        return cls(name, process, read_end, on_ready)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self._process.returncode is None

    @property
    def is_ready(self) -> bool:
        """Whether it is alive and has asked for work."""
        return self.is_alive and self._said.startswith(READY)

    @property
    def had_work(self) -> bool:
        """Whether it was ever given anything to fetch."""
        return self._said.startswith(READY + HAD_WORK)

    @property
    def status(self) -> int | None:
        """Exit status; a signal's number, negative, if one ended it; ``None`` while it lives."""
        return self._process.returncode

    @property
    def age(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self._started

    async def work(self, order: bytes) -> WorkerResult | None:
        """Give it its order and wait for its end; returns what it said of that, ``None`` if nothing."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._pipe, self._listen)
        try:
            with contextlib.suppress(RuntimeError):  # uvloop's, where it died before it could be told
                await self._process.communicate(order)
            await self._process.wait()
            self._read()
        finally:
            loop.remove_reader(self._pipe)
            os.close(self._pipe)
        report = self._said.lstrip(READY + HAD_WORK)
        return msgspec.json.decode(report, type=WorkerResult) if report else None

    def _listen(self) -> None:
        was_ready = self.is_ready
        if not self._read():
            asyncio.get_running_loop().remove_reader(self._pipe)
        elif self.is_ready and not was_ready:
            self._on_ready()

    def _read(self) -> bytes:
        try:
            more = os.read(self._pipe, _LONGEST_REPORT)
        except BlockingIOError:
            return b""
        self._said += more
        return more

    def terminate(self) -> None:
        """Ask it to finish what is in hand and end."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()

    async def kill(self) -> None:
        """End it at once, if it has not ended."""
        if self.is_alive:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()


READY = b"."
"""First thing that a worker reports: it has asked for work."""
HAD_WORK = b"+"
"""Second thing that a worker reports: from here on the frontier bounds how often it may die."""


class WorkerResult(msgspec.Struct):
    """How a worker process ended."""

    failure: str = ""
    """Why the crawl is to fail; empty if it is not. Cut to what a pipe holds."""
    remedy: str = ""
    is_usage: bool = False
    """Whether the failure is a mistake of the caller."""


class WorkerCommand(msgspec.Struct):
    """What a worker process is to do."""

    spec: JobSpec
    owner: int
    """Its process id."""
    shared: bool
    """Whether the worker reaches the frontier by its URL, not over the owner's socket."""
    log_level: str = "info"
    log_format: str = "text"
    queues: list[str] = []
    """Those that it serves; empty: all."""
