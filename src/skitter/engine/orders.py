"""Orders: what the owner of a fleet and its worker processes tell each other."""

from __future__ import annotations

import msgspec

from skitter.engine.job import JobSpec

READY = b"."
"""First thing that a worker reports: it has asked for work."""
HAD_WORK = b"+"
"""Second thing that a worker reports: from here on the frontier bounds how often it may die."""


class ChildEnd(msgspec.Struct):
    """How a worker process ended."""

    failure: str = ""
    """Why the crawl is to fail; empty if it is not. Cut to what a pipe holds."""
    remedy: str = ""
    is_usage: bool = False
    """Whether the failure is a mistake of the caller."""


class ChildOrder(msgspec.Struct):
    """What a worker process is to do."""

    spec: JobSpec
    owner: int
    """Its process id."""
    shared: bool
    """Whether the worker reaches the frontier by its URL, not over the owner's socket."""
    log_level: str = "info"
    log_format: str = "text"
    queues: list[str] = []
    """Those that it serves; empty: all."""
