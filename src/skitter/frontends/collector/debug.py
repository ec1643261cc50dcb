"""Debuggers: who watches a collector sees each of its events."""

from __future__ import annotations

import logging
from typing import Any, Protocol

import msgspec


class Event(msgspec.Struct, frozen=True):
    """Something that happened to a request.

    ``kind`` is ``request``, ``request_headers``, ``response_headers``, ``response``, ``html``, ``xml``, ``error`` or
    ``scraped``: the point whose callbacks run next.
    """

    kind: str
    collector: str
    url: str
    values: dict[str, Any] = {}
    """``status``, ``query``, ``error``: what the point is about, as plain values."""


class Debugger(Protocol):
    """Hears of every event, in each worker process of those that happen there. It must not block."""

    def event(self, event: Event) -> None:
        """Take note."""
        ...


class LogDebugger:
    """Writes events to a logger, one line each.

    ``logger``: default ``skitter.frontends.collector``. ``level``: default ``INFO``; the command line shows it with ``--log-level info``.
    """

    def __init__(self, logger: logging.Logger | None = None, level: int = logging.INFO) -> None:
        self._logger = logging.getLogger("skitter.frontends.collector") if logger is None else logger
        self._level = level

    def event(self, event: Event) -> None:
        """Log it."""
        details = "".join(f" {name}={value!r}" for name, value in event.values.items())
        self._logger.log(self._level, "%s [%s] %s%s", event.collector, event.kind, event.url, details)
