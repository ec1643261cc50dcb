"""Logging to a pipe that several processes share: each record is written as one or several frames.

A pipe never mixes writes of at most ``PIPE_BUF`` bytes (POSIX), so each frame is one such write: a JSON text between
RS and LF (RFC 7464). The RS separates it from other output in the pipe, such as the last message of a crashing
interpreter. A line that is too long for one frame is sent in parts. A writer never waits: lines that a full pipe
does not accept are counted, and the next frame reports their number.
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

from skitter.errors import SkitterError, counted

MARK = b"\x1e"
_MAX_FRAME = 4096
"""PIPE_BUF on Linux. On macOS it is 512: long lines of concurrent writers may be mixed there."""
_MAX_PART = 2500
"""Maximum bytes of text in one part of a line. The other fields of a frame fit into the rest."""
_MAX_TEXT = 16_000
"""Maximum characters of a message or a traceback. Longer texts lose their middle."""
_MAX_NAME = 80
LEVELS = ("debug", "info", "warning", "error", "critical")


class LogLine(msgspec.Struct, omit_defaults=True):
    """One line of the log of a run."""

    time: float
    """Unix time."""
    level: str
    """One of :data:`LEVELS`."""
    logger: str
    """Name of the logger; ``stderr`` and ``stdout`` for printed text."""
    message: str = ""
    node: str = ""
    worker: str = ""
    """Name of the worker process, or the process id of the process that runs the job on the node; empty if unknown."""
    traceback: str = ""
    fields: dict[str, Any] = {}
    """Additional fields of the record."""
    part: int = 0
    """Number of the part, if the line is sent in several frames."""
    more: bool = False
    """Whether more parts follow."""

    @property
    def severity(self) -> int:
        """The level as a number of :mod:`logging`."""
        return severity_of(self.level)


def severity_of(level: str) -> int:
    """Return the number of a level, as in :mod:`logging`. Unknown levels count as critical."""
    return 10 * (LEVELS.index(level) + 1) if level in LEVELS else logging.CRITICAL


def level_name(number: int) -> str:
    """Return the name of a level; for a number between two levels, the name of the lower one."""
    return LEVELS[min(max(number // 10, 1), len(LEVELS)) - 1]


def frames_of(line: LogLine) -> Iterator[bytes]:
    """Return the frames of a line."""
    encoded = _encoded(line)
    if len(encoded) <= _MAX_FRAME:
        yield encoded
        return
    texts = [("message", piece) for piece in _pieces(line.message)]
    texts += [("traceback", piece) for piece in _pieces(line.traceback)]
    for part, (field, text) in enumerate(texts):
        frame = LogLine(line.time, line.level, line.logger, worker=line.worker)
        frame.part, frame.more = part, part < len(texts) - 1
        setattr(frame, field, text)
        yield _encoded(frame)


def _encoded(line: LogLine) -> bytes:
    return MARK + msgspec.json.encode(line, enc_hook=repr) + b"\n"


def _pieces(text: str) -> Iterator[str]:
    if len(msgspec.json.encode(text)) <= _MAX_PART:
        if text:
            yield text
        return
    half = len(text) // 2
    yield from _pieces(text[:half])
    yield from _pieces(text[half:])


def _bounded(text: str) -> str:
    """Return a text in encodable form, without its middle if it is too long."""
    if len(text) > _MAX_TEXT:
        half = _MAX_TEXT // 2
        text = f"{text[:half]}\n... {len(text) - 2 * half} characters omitted ...\n{text[-half:]}"
    return text.encode("utf-8", "replace").decode()


class LogFrameHandler(logging.Handler):
    """A logging handler that writes frames to a pipe and never waits.

    Its descriptor stays open after :func:`logging.shutdown`, for messages that are logged while the process ends.
    """

    def __init__(self, descriptor: int, worker: str) -> None:
        super().__init__()
        self._worker = worker[:_MAX_NAME]
        self._lost = 0
        # Open the pipe again, because other writers of the same file description do not expect it to refuse data.
        try:
            self._out = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # no /proc on this system: the handler blocks instead
            self._out = os.dup(descriptor)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        try:
            line = self._line(record)
            self.flush()
            if not self._write(line):
                self._lost += 1
        except Exception:  # noqa: BLE001 - formatting arguments of user code may raise any error
            self.handleError(record)

    def flush(self) -> None:
        """Report lost lines. Called at the end of the process as well."""
        text = f"lost {counted(self._lost, 'line')}, because the node did not read fast enough"
        if self._lost and self._write(LogLine(time.time(), "warning", __name__, text, worker=self._worker)):
            self._lost = 0

    def _line(self, record: logging.LogRecord) -> LogLine:
        trace = ""
        if record.exc_info:
            trace = (self.formatter or logging.Formatter()).formatException(record.exc_info)
        return LogLine(
            record.created, level_name(record.levelno), _bounded(record.name[:_MAX_NAME]),
            _bounded(record.getMessage().rstrip()), worker=self._worker, traceback=_bounded(trace),
            fields=extra_fields(record),
        )  # fmt: skip

    def _write(self, line: LogLine) -> bool:
        try:
            for frame in frames_of(line):
                os.write(self._out, frame)
        except BlockingIOError:
            return False
        except OSError:  # the node has ended, and this process ends soon
            return True
        return True


class StreamToLog(io.TextIOBase):
    """Replaces standard output or error: each printed line becomes a log record."""

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
        """Reentrant: a finalizer may print while its thread is printing."""

    def writable(self) -> bool:
        """Return ``True``."""
        return True

    def fileno(self) -> int:
        """Return the original descriptor, for child processes that inherit it."""
        return self._original.fileno()

    def write(self, text: str) -> int:
        """Log all complete lines."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        with self._lock:
            *lines, self._rest = (self._rest + text).split("\n")
            if len(self._rest) > _MAX_TEXT:
                lines.append(self._rest)
                self._rest = ""
        self._log(lines)
        return len(text)

    def flush(self) -> None:
        """Log an incomplete line."""
        with self._lock:
            line, self._rest = self._rest, ""
        self._log([line])

    def _log(self, lines: list[str]) -> None:
        for line in lines:
            if line.strip():
                record = logging.LogRecord(self._name, self._level, "", 0, line.rstrip("\r"), None, None)
                self._handler.handle(record)


def log_cause(error: SkitterError) -> None:
    """Log the cause of an error that ends this process. The error itself is reported elsewhere, without its cause."""
    if error.__cause__ is not None:
        logging.getLogger("skitter").error("%s", error, exc_info=error.__cause__)


def send_frames(level: str, worker: str) -> None:
    """Send log records, warnings, printed text and fatal errors of this process to standard error, as frames.

    Records of all loggers are sent, from ``level`` on, not only skitter's, because a spider may have its own loggers.
    """
    handler = LogFrameHandler(2, worker)
    root, skitter = logging.getLogger(), logging.getLogger("skitter")
    root.handlers[:], skitter.handlers[:] = [handler], []
    root.setLevel(level.upper())
    skitter.setLevel(logging.NOTSET)
    skitter.propagate = True
    logging.captureWarnings(capture=True)
    faulthandler.enable(2)
    sys.stdout = StreamToLog("stdout", logging.INFO, sys.stdout, handler)
    sys.stderr = StreamToLog("stderr", logging.WARNING, sys.stderr, handler)

    def log_fatal(
        kind: type[BaseException], error: BaseException | None, trace: TracebackType | None, where: str
    ) -> None:
        if error is not None and not issubclass(kind, SystemExit):
            skitter.critical("%s ended by %s", where, kind.__name__, exc_info=(kind, error, trace))

    sys.excepthook = lambda kind, error, trace: log_fatal(kind, error, trace, "the process")
    threading.excepthook = lambda found: log_fatal(
        found.exc_type, found.exc_value, found.exc_traceback, "a thread"
    )


def extra_fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the additional fields of a log record: ``extra={"fields": {...}}``, which most records lack."""
    fields = vars(record).get("fields")
    return fields if isinstance(fields, dict) else {}
