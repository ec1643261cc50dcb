"""Sets up a process: event loop, garbage collector and logging."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from skitter._utils.visible import VisibleFormatter, visible
from skitter.item import without_surrogates
from skitter.run.log_frames import extra_fields, send_frames

Result = TypeVar("Result")
FRAMES = "frames"
"""Log format for a parent process that reads the log; see :mod:`skitter.run.log_frames`."""


class LogOptions(msgspec.Struct, frozen=True):
    """How a process logs."""

    level: str = "info"
    format: str = "text"
    """``text``, ``json`` or ``frames``."""


def run_async(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine on the fastest event loop available."""
    # A page creates thousands of short-lived objects and few cycles: collecting rarely saves a tenth of the time.
    gc.set_threshold(50_000, 20, 50)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)


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
    handler = logging.StreamHandler(sys.stderr)
    if form == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(VisibleFormatter("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S"))
    logger = logging.getLogger("skitter")
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False


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
