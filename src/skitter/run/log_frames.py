"""Frames: what a process logs and prints, as it goes through a pipe that it shares with others.

A pipe mixes nothing that is written in one piece of at most ``PIPE_BUF`` bytes (POSIX), so each frame is one: a JSON
text between RS and LF (RFC 7464), which tells it from what else arrives there, such as the last words of an interpreter that
crashes. A line that is longer than a frame is sent in several. Nobody ever waits: what a full pipe does not take is counted, and told
by the next frame.
"""

from __future__ import annotations

import faulthandler
import io
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, TextIO

import msgspec

from skitter.errors import SkitterError
from skitter.run.process import extra_fields

MARK = b"\x1e"
_LARGEST = 4096
"""PIPE_BUF of Linux. It is less on macOS (512): there long lines of processes that write at once may be mixed up."""
_PIECE = 2500
"""Bytes of text in one of several frames; what else there is in a frame has room beside it."""
_LONGEST = 16_000
"""Characters of a message or a traceback that are kept: its beginning and its end."""
_LONGEST_NAME = 80
LEVELS = ("debug", "info", "warning", "error", "critical")


class LogFrame(msgspec.Struct, array_like=True):
    """A line of a log, or, if ``more`` come, a part of it."""

    time: float
    level: str
    logger: str
    worker: str
    message: str = ""
    traceback: str = ""
    first: bool = True
    more: bool = False
    fields: dict[str, Any] = {}


def level_name(number: int) -> str:
    """Return the name of a level, or of the next one below it."""
    return LEVELS[min(max(number // 10, 1), len(LEVELS)) - 1]


def frames_of(line: LogFrame) -> Iterator[bytes]:
    """Return a line as what is written, each in one piece."""
    whole = _encoded(line)
    if len(whole) <= _LARGEST:
        yield whole
        return
    parts = [*(("message", piece) for piece in _pieces(line.message)),
             *(("traceback", piece) for piece in _pieces(line.traceback))]  # fmt: skip
    for number, (place, piece) in enumerate(parts):
        part = LogFrame(line.time, line.level, line.logger, line.worker)
        setattr(part, place, piece)
        part.first, part.more = number == 0, number < len(parts) - 1
        yield _encoded(part)


def _encoded(frame: LogFrame) -> bytes:
    return MARK + msgspec.json.encode(frame, enc_hook=repr) + b"\n"


def _pieces(text: str) -> Iterator[str]:
    if len(msgspec.json.encode(text)) <= _PIECE:
        if text:
            yield text
        return
    half = len(text) // 2
    yield from _pieces(text[:half])
    yield from _pieces(text[half:])


def _bounded(text: str) -> str:
    """Return a text that can be encoded, without its middle if it is too long."""
    if len(text) > _LONGEST:
        half = _LONGEST // 2
        text = f"{text[:half]}\n... {len(text) - 2 * half} characters are left out ...\n{text[-half:]}"
    return text.encode("utf-8", "replace").decode()


class LogFrameHandler(logging.Handler):
    """Writes each record as a frame, and never waits. Its descriptor stays open: what is said last comes after logging ends."""

    def __init__(self, descriptor: int, worker: str) -> None:
        super().__init__()
        self._worker = worker[:_LONGEST_NAME]
        self._lost = 0
        # Only our own writing must not wait; who else writes there knows nothing of a pipe that refuses.
        try:
            self._out = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # no such folder on this system: a reader that hangs is waited for
            self._out = os.dup(descriptor)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        try:
            line = self._line(record)
            self.flush()
            if not self._write(line):
                self._lost += 1
        except Exception:  # noqa: BLE001 - what a record holds is the user's: its text may fail in any way
            self.handleError(record)

    def flush(self) -> None:
        """Tell what was lost, also when the process ends."""
        if self._lost and self._write(self._loss()):
            self._lost = 0

    def _line(self, record: logging.LogRecord) -> LogFrame:
        trace = ""
        if record.exc_info:
            trace = (self.formatter or logging.Formatter()).formatException(record.exc_info)
        line = LogFrame(
            record.created, level_name(record.levelno), record.name[:_LONGEST_NAME], self._worker,
            _bounded(record.getMessage().rstrip()), _bounded(trace),
        )  # fmt: skip
        line.logger = _bounded(line.logger)
        line.fields = extra_fields(record)
        return line

    def _loss(self) -> LogFrame:
        text = f"{self._lost} lines were lost: they came faster than the node reads"
        return LogFrame(time.time(), "warning", __name__, self._worker, text)

    def _write(self, line: LogFrame) -> bool:
        try:
            for frame in frames_of(line):
                os.write(self._out, frame)
        except BlockingIOError:
            return False
        except OSError:  # the node is gone, and this process soon, too
            return True
        return True


class StreamToLog(io.TextIOBase):
    """Standard output or error of a process whose log goes into frames: each line that is printed is one of the log."""

    encoding = "utf-8"
    errors = "replace"

    def __init__(self, name: str, level: int, original: TextIO, handler: logging.Handler) -> None:
        self.buffer = original.buffer
        self._name = name
        self._level = level
        self._original = original
        self._handler = handler
        self._rest = ""
        self._lock = threading.RLock()
        """Of a kind that a finaliser may take, which prints while its thread is printing."""

    def writable(self) -> bool:
        """Tell that it can be written."""
        return True

    def fileno(self) -> int:
        """Return the descriptor below it, for processes that are to inherit it."""
        return self._original.fileno()

    def write(self, text: str) -> int:
        """Log all lines that are complete."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        with self._lock:
            *lines, self._rest = (self._rest + text).split("\n")
            if len(self._rest) > _LONGEST:
                lines.append(self._rest)
                self._rest = ""
        self._log(lines)
        return len(text)

    def flush(self) -> None:
        """Log a line that is not complete."""
        with self._lock:
            rest, self._rest = self._rest, ""
        self._log([rest])

    def _log(self, lines: list[str]) -> None:
        for line in lines:
            if line.strip():
                self._handler.handle(
                    logging.LogRecord(self._name, self._level, "", 0, line.rstrip("\r"), None, None)
                )


def tell_cause(error: SkitterError) -> None:
    """Log what is behind an error that ends this process: the line in which it is told elsewhere is not all there is."""
    if error.__cause__ is not None:
        logging.getLogger("skitter").error("%s", error, exc_info=error.__cause__)


def send_frames(level: str, worker: str) -> None:
    """Send all that this process logs, warns of, prints and dies of to standard error, as frames.

    That is what any logger tells from a level on, not only those of skitter: a spider has loggers of its own.
    """
    handler = LogFrameHandler(2, worker)
    root, ours = logging.getLogger(), logging.getLogger("skitter")
    root.handlers[:], ours.handlers[:] = [handler], []
    root.setLevel(level.upper())
    ours.setLevel(logging.NOTSET)
    ours.propagate = True
    logging.captureWarnings(capture=True)
    faulthandler.enable(2)
    sys.stdout = StreamToLog("stdout", logging.INFO, sys.stdout, handler)
    sys.stderr = StreamToLog("stderr", logging.WARNING, sys.stderr, handler)

    def tell(
        kind: type[BaseException], error: BaseException | None, trace: TracebackType | None, where: str
    ) -> None:
        if error is not None and not issubclass(kind, SystemExit):
            ours.critical("%s ended by %s", where, kind.__name__, exc_info=(kind, error, trace))

    sys.excepthook = lambda kind, error, trace: tell(kind, error, trace, "the process")
    threading.excepthook = lambda found: tell(
        found.exc_type, found.exc_value, found.exc_traceback, "a thread"
    )
