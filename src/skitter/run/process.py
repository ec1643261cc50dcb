"""Process: what every process of skitter sets up: event loop, garbage collector, logging."""

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

Result = TypeVar("Result")
FRAMES = "frames"
"""Form of a log for a process that reads it; see :mod:`skitter.run.log_frames`."""


def run_async(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine on the fastest event loop that is installed."""
    # A page makes thousands of short-lived objects and hardly a cycle: collecting rarely saves a tenth.
    gc.set_threshold(50_000, 20, 50)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(work)


def _loop_factory() -> Any:
    try:
        import uvloop  # noqa: PLC0415 - there is none for Windows
    except ImportError:
        return None
    return uvloop.new_event_loop


def set_up_logging(level: str, form: str, worker: str = "") -> None:
    """Log to standard error, as text, as JSON lines, or, for a process that reads them, as frames.

    ``worker``: whose log it is, which frames tell.
    """
    if form == FRAMES:
        from skitter.run.log_frames import send_frames  # noqa: PLC0415 - only processes of a service need it

        send_frames(level, worker or str(os.getpid()))
        return
    handler = logging.StreamHandler(sys.stderr)
    if form == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S"))
    logger = logging.getLogger("skitter")
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False


class JsonFormatter(logging.Formatter):
    """One JSON object a record: time (UTC), level, logger, message, and the traceback if there is one.

    What a record brings as ``extra={"fields": {...}}`` becomes fields of their own.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a line of JSON."""
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields |= getattr(record, "fields", {})
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(fields).decode()
