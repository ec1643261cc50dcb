"""The log of a run on its way from the processes to the storage: a pipe to read from, and a bounded buffer of lines.

Processes that log never wait for the storage.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterator

import msgspec

from skitter._utils.backoff import Backoff
from skitter._utils.concurrency import cancel_and_wait
from skitter._utils.redaction import Redactor
from skitter.errors import SkitterError, counted
from skitter.run.log_frames import LEVELS, MARK, LogLine, severity_of
from skitter.service.storage import AppendLog

log = logging.getLogger("skitter.service")
_runs_log = logging.getLogger("skitter.service.runs")
"""Messages of runs in the log of the node."""

_PIPE_SIZE = 1 << 18
"""Bytes that the kernel should buffer while the node is busy."""
_READ_SIZE = 1 << 14
"""Maximum bytes of one read, after which other tasks run. They may contain hundreds of lines."""
_MAX_LINE = 1 << 15
"""Maximum bytes of a line of text. The rest becomes another line."""
_MAX_PARTIAL = 200
"""Maximum number of incomplete lines."""
_MAX_TIME = 253402300799.0
"""Unix time of the end of the year 9999."""
_BATCH_DELAY = 0.2
"""Time for which lines are collected before they are stored, in seconds."""
_FIRST_RETRY, _MAX_RETRY = 0.5, 10.0
"""Delay before a failed write is repeated, in seconds: after the first failure, and the maximum."""
_BATCH_SIZE = 1 << 18
"""Maximum bytes of lines in one write."""
_MAX_WAITING = 1 << 20
"""Maximum bytes of lines that wait for the storage. Further lines are dropped and counted."""
_decoder = msgspec.json.Decoder(LogLine)


class LogFrameReader:
    """Decodes the content of a pipe, including incomplete frames of processes that were killed, and plain text."""

    def __init__(self) -> None:
        self._rest = b""
        self._partial: dict[str, LogLine] = {}
        """Lines with missing parts, by worker."""

    def feed(self, data: bytes) -> list[LogLine]:
        """Return the lines that these bytes complete."""
        *texts, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _MAX_LINE:
            texts.append(self._rest)
            self._rest = b""
        return [line for text in texts for line in self._lines(text)]

    def end(self) -> list[LogLine]:
        """Return the lines that remain incomplete."""
        rest, self._rest = self._rest, b""
        found = [*self._lines(rest), *map(_checked, self._partial.values())]
        self._partial.clear()
        return found

    def _lines(self, text: bytes) -> Iterator[LogLine]:
        raw, *frames = text.split(MARK)  # a frame may follow printed text without a line break
        yield from _plain(raw)
        for data in frames:
            try:
                frame = _decoder.decode(data)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                yield from _plain(data)
            else:
                yield from self._joined(frame)

    def _joined(self, frame: LogLine) -> Iterator[LogLine]:
        line = self._partial.pop(frame.worker, None)
        if line is not None and frame.part == 0:  # the writer of the incomplete line could not send the rest
            yield _checked(line)
            line = None
        if line is None:
            line = frame
        else:
            line.message += frame.message
            line.traceback += frame.traceback
            line.more = frame.more
        is_bounded = len(line.message) + len(line.traceback) < _MAX_LINE and len(self._partial) < _MAX_PARTIAL
        if line.more and is_bounded:
            self._partial[line.worker] = line
        else:
            yield _checked(line)


def _plain(text: bytes) -> Iterator[LogLine]:
    message = text.decode("utf-8", "replace").rstrip("\r")
    if message.strip():
        yield LogLine(time.time(), "warning", "stderr", message)


def _checked(line: LogLine) -> LogLine:
    """Return the line with a valid level and time, whatever was written to the pipe."""
    line.part, line.more, line.node = 0, False, ""
    line.level = line.level if line.level in LEVELS else "warning"
    line.time = line.time if 0 <= line.time <= _MAX_TIME else time.time()
    return line


class LogPipe:
    """The pipe of a process and its child processes. ``take`` receives each line."""

    def __init__(self, take: Callable[[LogLine], None]) -> None:
        self._take = take
        self._reader = LogFrameReader()
        self._pipe, self.writer = os.pipe()
        os.set_blocking(self._pipe, False)
        # If the system does not support it or has too many pipes, the size is not changed.
        with contextlib.suppress(OSError, AttributeError):
            fcntl.fcntl(self._pipe, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)

    def listen(self) -> None:
        """Start reading. Only the writers hold the other end from now on."""
        os.close(self.writer)
        asyncio.get_running_loop().add_reader(self._pipe, self._read)

    def _read(self) -> bool:
        """Read available data; return whether there may be more."""
        try:
            data = os.read(self._pipe, _READ_SIZE)
        except BlockingIOError:
            return False
        if not data:
            asyncio.get_running_loop().remove_reader(self._pipe)
        for line in self._reader.feed(data):
            self._take(line)
        return bool(data)

    def close(self) -> None:
        """Read the remaining data of ended processes, and close. Does not wait for processes that still write."""
        for _ in range(_PIPE_SIZE // _READ_SIZE + 1):
            if not self._read():
                break
        for line in self._reader.end():
            self._take(line)
        asyncio.get_running_loop().remove_reader(self._pipe)
        os.close(self._pipe)

    def discard(self) -> None:
        """Close a pipe that has no writer."""
        os.close(self.writer)
        os.close(self._pipe)


class LogBuffer:
    """Lines of one run on one node that wait for the storage. It writes in the background until :meth:`close`.

    ``stored``: where the lines are written.
    ``level``: lowest level that is stored.
    ``batches``: numbers of the writes, growing for all runs of the node.
    """

    def __init__(
        self, run: str, stored: AppendLog, redactor: Redactor, node: str, level: str, batches: Iterator[int]
    ) -> None:
        self._run = run
        self._stored = stored
        self._redactor = redactor
        self._node = node
        self._severity = severity_of(level)
        self._batches = batches
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._lost = 0
        self._batch: tuple[int, list[bytes]] | None = None
        """The lines of a write that is not confirmed. The write is repeated unchanged."""
        self._has_lines = asyncio.Event()
        self._writing = asyncio.Lock()
        self._backoff = Backoff(f"the log of {run}", first=_FIRST_RETRY, maximum=_MAX_RETRY, logger=log.name)
        self._task = asyncio.create_task(self._write_all())

    def take(self, line: LogLine) -> None:
        """Add a line of a process to the log of the run, and to the log of the node, each if its level is high enough."""
        goes_to_node = _runs_log.isEnabledFor(line.severity)
        if line.severity < self._severity and not goes_to_node:
            return
        if self._size > _MAX_WAITING:
            self._lost += 1
            return
        line.message = self._redactor.of_text(line.message)
        line.traceback = self._redactor.of_text(line.traceback)
        if line.fields:
            line.fields = self._redactor.of_value(line.fields)
        line.node = self._node
        if goes_to_node:
            text = f"{line.message}\n{line.traceback}" if line.traceback else line.message
            fields = {"run": self._run, "worker": line.worker, **line.fields}
            _runs_log.log(line.severity, "%s: %s", self._run, text, extra={"fields": fields})
        if line.severity >= self._severity:
            self._add(line)

    def add_message(self, level: str, text: str) -> None:
        """Add a message of the node about the run. It is not repeated in the log of the node."""
        if severity_of(level) >= self._severity:
            self._add(LogLine(time.time(), level, log.name, self._redactor.of_text(text), self._node))

    def _add(self, line: LogLine) -> None:
        self._add_loss()
        data = msgspec.json.encode(line)
        self._waiting.append(data)
        self._size += len(data)
        self._has_lines.set()

    def _add_loss(self) -> None:
        if self._lost:
            text = f"lost {counted(self._lost, 'line')} that could not be stored fast enough"
            self._lost = 0
            self._add(LogLine(time.time(), "warning", log.name, text, self._node))

    async def _write_all(self) -> None:
        while True:
            await self._has_lines.wait()
            await asyncio.sleep(_BATCH_DELAY)
            if await self._write():
                self._backoff.reset()
            else:
                await self._backoff.wait()

    async def _write(self) -> bool:
        """Write all waiting lines; return whether the storage accepted them."""
        async with self._writing:
            self._has_lines.clear()
            try:
                while batch := self._next_batch():
                    number, lines = batch
                    await self._stored.append(lines, number)
                    self._batch = None
            except SkitterError as error:
                self._has_lines.set()
                self._backoff.outage.report_failure("cannot be stored; the run continues: %s", error)
                return False
            self._backoff.outage.end()
            return True

    def _next_batch(self) -> tuple[int, list[bytes]] | None:
        if self._batch is None and self._waiting:
            lines, size = [], 0
            while self._waiting and size < _BATCH_SIZE:
                lines.append(self._waiting.popleft())
                size += len(lines[-1])
            self._size -= size
            self._batch = (next(self._batches), lines)
        return self._batch

    async def close(self) -> None:
        """Try once to write the remaining lines, and disconnect."""
        async with self._writing:  # wait for a write in progress, so that its result is known
            await cancel_and_wait([self._task])
        self._add_loss()
        await self._write()
        with contextlib.suppress(SkitterError):
            await self._stored.close()
