"""Running: a process that runs a job on this node, seen from the node."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable

import msgspec

from skitter.run.job import JobSpec
from skitter.service.access import ENVIRONMENT
from skitter.service.items import STORE
from skitter.service.log_lines import LogLine
from skitter.service.log_pipe import LogPipe
from skitter.service.runner import RunEnd, RunOrder
from skitter.worker import DRAIN_SECONDS

_PATIENCE = DRAIN_SECONDS + 15.0
"""Seconds after which a process that was asked to stop is killed. What it held goes back by the leases."""


class RunStart(msgspec.Struct):
    """What is to be run."""

    job: str
    leg: int
    spec: JobSpec
    items: str
    """Where its items are kept; see :data:`~skitter.service.items.STORE`."""
    log_level: str
    """Least severity of what it and its workers tell."""


class Running:
    """One process. Made by :meth:`start`."""

    def __init__(
        self, order: RunStart, process: asyncio.subprocess.Process, pipe: int, said: LogPipe
    ) -> None:
        self.job = order.job
        self.leg = order.leg
        self._process = process
        self._pipe = pipe
        self._said = said
        self._asked = 0.0
        self._end: RunEnd | None = None

    @classmethod
    async def start(cls, order: RunStart, take: Callable[[LogLine], None]) -> Running:
        """Start the process; ``take`` is given each line that it and its workers have to say."""
        given = RunOrder(order.spec, os.getpid(), order.log_level)
        said = LogPipe(take)
        reader, writer = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "skitter.service.runner", str(writer),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, stderr=said.writer,
                pass_fds=(writer,), start_new_session=True, env=_environment(order.items),
            )  # fmt: skip
        except BaseException:
            os.close(reader)
            said.discard()
            raise
        finally:
            os.close(writer)
        said.listen()
        assert process.stdin is not None
        with contextlib.suppress(ConnectionError):
            process.stdin.write(msgspec.json.encode(given))
            await process.stdin.drain()
        process.stdin.close()
        return cls(order, process, reader, said)

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.returncode is not None

    @property
    def status(self) -> int | None:
        """Its exit status; a signal's number, negative, if one ended it."""
        return self._process.returncode

    @property
    def is_asked_to_stop(self) -> bool:
        """Whether :meth:`stop` was called."""
        return self._asked > 0

    def stop(self) -> None:
        """Ask it to finish what is in hand and end."""
        if not self._asked:
            self._asked = time.monotonic()
            self._signal(signal.SIGTERM)

    def insist(self) -> None:
        """Kill it if it was asked long ago."""
        if self._asked and time.monotonic() - self._asked > _PATIENCE:
            self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def wait(self) -> RunEnd | None:
        """Wait for its end and return what it says of it; ``None`` if it was killed. Kills it if it takes too long."""
        try:
            await asyncio.wait_for(self._process.wait(), _PATIENCE)
        except TimeoutError:
            self._signal(signal.SIGKILL)
            await self._process.wait()
        if self._pipe >= 0:
            self._said.close()
            data, self._pipe = _read_all(self._pipe), -1
            with contextlib.suppress(msgspec.MsgspecError):
                self._end = msgspec.json.decode(data, type=RunEnd)
        return self._end


def _environment(items: str) -> dict[str, str]:
    """Return that of a run: the tokens are no business of a spider."""
    return {name: value for name, value in os.environ.items() if name != ENVIRONMENT} | {STORE: items}


def _read_all(pipe: int) -> bytes:
    """Read what was written into a pipe whose writer has ended; it was written in one piece."""
    os.set_blocking(pipe, False)
    try:
        return os.read(pipe, 1 << 16)
    except BlockingIOError:  # a grandchild holds it open
        return b""
    finally:
        os.close(pipe)
