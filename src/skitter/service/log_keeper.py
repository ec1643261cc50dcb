"""LogKeeper: takes what is said of a run on this node, and brings it to where the log of the run is kept.

Nobody who speaks is ever kept waiting by it: lines gather here for a moment, as many as may, while the store takes those before.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Iterator

import msgspec

from skitter._utils.redaction import Redactor
from skitter.errors import SkitterError
from skitter.run.log_frames import LEVELS
from skitter.service.log_lines import LogLine, severity_of
from skitter.service.run_logs import RunLog

log = logging.getLogger("skitter.service")
_told = logging.getLogger("skitter.service.runs")
"""What runs have to say, in the log of the node."""

_GATHER = 0.2
"""Seconds in which lines gather before they are kept."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 10.0
"""Seconds before a store that refuses is tried again."""
_AT_ONCE = 1 << 18
_MOST = 1 << 20
"""Bytes of lines that wait for the store. What comes when there are more is counted."""
_NUMBERS = dict(zip(LEVELS, range(10, 60, 10), strict=True))


class LogKeeper:
    """That of one run on one node, at work from when it is made, in an event loop, until :meth:`close`."""

    def __init__(
        self, run: str, kept: RunLog, mask: Redactor, node: str, level: str, calls: Iterator[int]
    ) -> None:
        self._run = run
        self._kept = kept
        self._mask = mask
        self._node = node
        self._least = severity_of(level)
        self._calls = calls
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._lost = 0
        self._batch: tuple[int, list[bytes]] | None = None
        """What the store was given and has not confirmed: the same again, until it does."""
        self._came = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        self._refused_since = 0.0
        self._is_told = False
        self._work = asyncio.create_task(self._keep_on())

    # --- taking ------------------------------------------------------------------------------------------

    def take(self, line: LogLine) -> None:
        """Take a line of a process: for the log of the run, and for that of the node, by the level of each."""
        number = _NUMBERS[line.level]
        is_for_node = _told.isEnabledFor(number)
        if line.severity < self._least and not is_for_node:
            return
        if self._size > _MOST:
            self._lost += 1
            return
        line.message, line.traceback = self._mask.of_text(line.message), self._mask.of_text(line.traceback)
        if line.fields:
            line.fields = self._mask.of_value(line.fields)
        line.node = self._node
        if is_for_node:
            said = f"{line.message}\n{line.traceback}" if line.traceback else line.message
            fields = {"run": self._run, "worker": line.worker, **line.fields}
            _told.log(number, "%s: %s", self._run, said, extra={"fields": fields})
        if line.severity >= self._least:
            self._add(line)

    def note(self, level: str, text: str) -> None:
        """Say something of the run in the name of the node; its own log has it already."""
        if severity_of(level) >= self._least:
            self._add(LogLine(time.time(), level, log.name, self._mask.of_text(text), self._node))

    def _add(self, line: LogLine) -> None:
        self._add_loss()
        data = msgspec.json.encode(line)
        self._waiting.append(data)
        self._size += len(data)
        self._came.set()

    def _add_loss(self) -> None:
        if self._lost:
            text = f"{self._lost} lines are missing here: they came faster than they could be kept"
            self._lost = 0
            self._add(LogLine(time.time(), "warning", log.name, text, self._node))

    # --- keeping -----------------------------------------------------------------------------------------

    async def _keep_on(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            await self._came.wait()
            await asyncio.sleep(_GATHER)
            if await self._keep():
                pause = _FIRST_PAUSE
            else:
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    async def _keep(self) -> bool:
        """Give the store all that waits; tell whether it took it."""
        async with self._one_at_a_time:
            self._came.clear()
            try:
                while batch := self._next_batch():
                    call, lines = batch
                    await self._kept.keep(lines, call)
                    self._batch = None
            except SkitterError as error:
                self._came.set()
                self._tell(error)
                return False
            self._tell_end()
            return True

    def _next_batch(self) -> tuple[int, list[bytes]] | None:
        if self._batch is None and self._waiting:
            lines, size = [], 0
            while self._waiting and size < _AT_ONCE:
                lines.append(self._waiting.popleft())
                size += len(lines[-1])
            self._size -= size
            self._batch = (next(self._calls), lines)
        return self._batch

    def _tell(self, error: SkitterError) -> None:
        if not self._is_told:
            self._is_told = True
            self._refused_since = time.monotonic()
            log.warning("the log of %s cannot be kept; the run goes on: %s", self._run, error)

    def _tell_end(self) -> None:
        if self._is_told:
            self._is_told = False
            seconds = time.monotonic() - self._refused_since
            log.warning("the log of %s is kept again after %.1f s", self._run, seconds)

    async def close(self) -> None:
        """Give the store what is left, once, and let go of it."""
        async with (
            self._one_at_a_time
        ):  # a call that is under way is waited for: what came of it has to be known
            self._work.cancel()
        await asyncio.gather(self._work, return_exceptions=True)
        self._add_loss()
        await self._keep()
        with contextlib.suppress(SkitterError):
            await self._kept.close()
