"""Debugger: an interface that receives all events of a collector, and a debugger that writes them to a log."""

from __future__ import annotations

import logging
from typing import Any, Protocol

import msgspec


class Event(msgspec.Struct, frozen=True):
    """An event of a request.

    ``kind`` is ``request``, ``request_headers``, ``response_headers``, ``response``, ``page``, ``html``, ``xml``, ``error``
    or ``scraped``: the event whose callbacks run next.
    """

    kind: str
    collector: str
    url: str
    values: dict[str, Any] = {}
    """Details of the event as plain values, such as ``status``, ``query`` and ``error``."""


class Debugger(Protocol):
    """Receives all events of a worker process. It must not block."""

    def event(self, event: Event) -> None:
        """Handle an event."""


class LogDebugger:
    """Writes events to a logger, one line each. Implements :class:`Debugger`.

    ``logger``: default ``skitter.frontends.collector``. ``level``: default ``INFO``, which the command line shows with
    ``--log-level info``.
    """

    def __init__(self, logger: logging.Logger | None = None, level: int = logging.INFO) -> None:
        self._logger = logging.getLogger("skitter.frontends.collector") if logger is None else logger
        self._level = level

    def event(self, event: Event) -> None:
        details = "".join(f" {name}={value!r}" for name, value in event.values.items())
        self._logger.log(self._level, "%s [%s] %s%s", event.collector, event.kind, event.url, details)
