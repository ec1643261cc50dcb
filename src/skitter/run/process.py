"""Sets up a process: event loop, garbage collector and logging."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import signal
import sys
from collections.abc import Coroutine
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import msgspec

from skitter._utils.visible import VisibleFormatter, visible
from skitter.item import without_surrogates
from skitter.run.log_frames import extra_fields, send_frames

if TYPE_CHECKING:
    from skitter.settings import Settings

Result = TypeVar("Result")
_ALLOCATOR = {
    "M_TRIM_THRESHOLD": (-1, 40 * 1024 * 1024),
    "M_MMAP_THRESHOLD": (-3, 1024 * 1024),
    "M_ARENA_MAX": (-8, 2),
}
"""Options of glibc (``mallopt``) with their numbers and values."""
FRAMES = "frames"
"""Log format for a parent process that reads the log; see :mod:`skitter.run.log_frames`."""


class LogOptions(msgspec.Struct, frozen=True):
    """How a process logs."""

    level: str = "info"
    format: str = "text"
    """``text``, ``json`` or ``frames``."""


def run_async(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine on the fastest event loop available."""
    # A page creates thousands of short-lived objects and few cycles. Collecting less often saves a tenth of the time.
    gc.set_threshold(50_000, 20, 50)
    return_large_blocks()
    _separate_forked_processes()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)


@cache
def _separate_forked_processes() -> None:
    os.register_at_fork(after_in_child=_reset_signals)


def _reset_signals() -> None:
    """Restore the default handling of SIGTERM in a process that user code has forked, unless user code handles it.

    The process has copies of the event loop's handlers, and of the socket that they write to. A signal would not end the
    forked process, but stop this one.
    """
    with contextlib.suppress(ValueError):
        signal.set_wakeup_fd(-1)
        if _is_of_event_loop(signal.getsignal(signal.SIGTERM)):
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _is_of_event_loop(handler: object) -> bool:
    """Return whether a signal handler was set by an event loop. uvloop sets a method of the loop, asyncio a function."""
    if isinstance(handler, MethodType):
        return isinstance(handler.__self__, asyncio.AbstractEventLoop)
    return isinstance(handler, FunctionType) and str(handler.__module__).startswith("asyncio.")


def return_large_blocks() -> None:
    """Let the allocator return the memory of large bodies to the system as soon as they are freed.

    By default, once glibc has freed a block of up to 32 MB, it keeps blocks of that size in its heaps, one per thread.
    Environment variables that configure the allocator take precedence. Other C libraries need no such option.
    """
    if sys.platform != "linux" or any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ):
        return
    with contextlib.suppress(AttributeError):
        for number, value in _ALLOCATOR.values():
            ctypes.CDLL(None).mallopt(number, value)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop of the fastest kind available."""
    try:
        import uvloop  # noqa: PLC0415 - not available on Windows
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def set_up_logging(level: str, form: str, worker: str = "") -> None:
    """Log to standard error as text, as JSON lines, or as frames for a parent process.

    ``worker``: name of the worker, which is part of each frame.
    """
    if form == FRAMES:
        send_frames(level, worker or str(os.getpid()))
        return
    handler = ConsoleHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter("%H:%M:%S"))
    root = logging.getLogger()
    root.handlers[:] = [*(old for old in root.handlers if not isinstance(old, ConsoleHandler)), handler]
    root.setLevel(level.upper())
    logging.captureWarnings(capture=True)


def apply_log_settings(settings: Settings, form: str) -> None:
    """Apply the settings ``log_levels`` and ``log_file`` to this process. ``form``: as for :func:`set_up_logging`.

    Raises :class:`~skitter.errors.UsageError` if the file cannot be opened.
    """
    for name, level in settings.log_levels.items():
        logging.getLogger(name).setLevel(level.upper())
    if settings.log_file is None:
        return
    from skitter.run.log_file import SharedLogFile  # noqa: PLC0415 - few runs have a log file

    handler = SharedLogFile(Path(settings.log_file), settings.log_file_size, settings.log_file_backups)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter("%Y-%m-%d %H:%M:%S"))
    logging.getLogger().addHandler(handler)


class ConsoleHandler(logging.StreamHandler[TextIO]):
    """Writes the log of this process to standard error."""


class TextFormatter(VisibleFormatter):
    """Formats a record as text: time, level and message, and the name of any logger that is not skitter's."""

    def __init__(self, time_format: str) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(origin)s%(message)s", time_format)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name in logging
        """Return the line of a record."""
        is_own = record.name == "skitter" or record.name.startswith("skitter.")
        record.origin = "" if is_own else f"{record.name}: "
        return super().formatMessage(record)


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object: time (UTC), level, logger, message, and the traceback if there is one.

    ``extra={"fields": {...}}`` of a record adds further fields.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a line of JSON."""
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields |= extra_fields(record)
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        try:
            line = msgspec.json.encode(fields)
        except UnicodeEncodeError:  # a lone surrogate
            line = msgspec.json.encode(without_surrogates(msgspec.to_builtins(fields)))
        return visible(line.decode())
