"""The status of a managed crawl with its legal transitions, and the summary of a crawl."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from threading import Lock
from typing import Any

import msgspec

from skitter.errors import UsageError
from skitter.frontier.records import FrontierStatus


class Status(StrEnum):
    """Status of a managed crawl."""

    UNINITIALIZED = "uninitialized"
    INITIALIZING = "initializing"
    INITIALIZED = "initialized"
    STARTING = "starting"
    STARTED = "started"
    STOPPING = "stopping"
    STOPPED = "stopped"


LEGAL: Mapping[Status, frozenset[Status]] = {
    Status.UNINITIALIZED: frozenset({Status.INITIALIZING}),
    Status.INITIALIZING: frozenset(),
    Status.INITIALIZED: frozenset({Status.INITIALIZING, Status.STARTING}),
    Status.STARTING: frozenset(),
    Status.STARTED: frozenset({Status.STOPPING}),
    Status.STOPPING: frozenset(),
    Status.STOPPED: frozenset({Status.INITIALIZING, Status.STARTING}),
}
"""The transitions that calls can request in each status. All other transitions happen by themselves."""

_COMPLETED = {
    Status.INITIALIZING: Status.INITIALIZED,
    Status.STARTING: Status.STARTED,
    Status.STOPPING: Status.STOPPED,
}

_REASONS = {
    Status.UNINITIALIZED: ("it has not been initialized", "await initialize() first"),
    Status.INITIALIZING: ("it is being initialized", "wait for the end of the call"),
    Status.INITIALIZED: ("it has not been started", "await start() first"),
    Status.STARTING: ("it is being started", "wait for the end of the call"),
    Status.STARTED: ("it has been started", "await stop() first"),
    Status.STOPPING: ("it is being stopped", "wait for the end of the call"),
    Status.STOPPED: ("it has been stopped", "await start() first"),
}


class IllegalTransition(UsageError):
    """A call that the status does not allow. The call has changed nothing."""

    def __init__(self, status: Status, target: Status) -> None:
        reason, remedy = _REASONS[status]
        super().__init__(
            f"the crawl cannot be {_COMPLETED.get(target, target)}: {reason}", remedy=remedy, field="status"
        )
        self.status = status
        self.target = target


class StatusMachine:
    """Tests and sets the status atomically, from any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._status = Status.UNINITIALIZED
        self._before = Status.UNINITIALIZED

    @property
    def status(self) -> Status:
        """The current status."""
        return self._status

    def begin(self, target: Status) -> None:
        """Enter ``INITIALIZING``, ``STARTING`` or ``STOPPING``.

        Raises :class:`IllegalTransition`, and changes nothing, if :data:`LEGAL` does not allow it. Only the caller that
        succeeded calls :meth:`complete` or :meth:`back`.
        """
        with self._lock:
            if target not in LEGAL[self._status]:
                raise IllegalTransition(self._status, target)
            self._before, self._status = self._status, target

    def complete(self) -> None:
        """Complete the transition: ``INITIALIZING`` becomes ``INITIALIZED``, and so on."""
        with self._lock:
            self._status = _COMPLETED[self._status]

    def back(self) -> None:
        """Restore the status from before :meth:`begin`, because the transition failed."""
        with self._lock:
            self._status = self._before

    @contextmanager
    def passing(self, target: Status) -> Iterator[None]:
        """Complete the transition if the block succeeds; restore the status if it fails or is cancelled."""
        self.begin(target)
        try:
            yield
        except BaseException:
            self.back()
            raise
        self.complete()


class ModuleSummary(msgspec.Struct, frozen=True):
    """Summary of one module."""

    id: str
    component: str
    called: int
    accepted: int
    completed: int
    handling: int
    extra: dict[str, Any]


class ErrorSummary(msgspec.Struct, frozen=True):
    """The errors since the crawl was initialized."""

    total: int
    dropped: int
    """Errors that were removed before any reader read them."""
    by_component: dict[str, int]


class CrawlSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Summary of a crawl. It contains no times, so two summaries are equal if nothing has happened between them.

    The counts of requests are one consistent reading of the frontier, over all runs and workers of the job:
    ``added == queued + delayed + in_flight + done + failed``. They are 0 before the first run.
    """

    job: str
    status: str
    runs: int
    """Number of runs."""
    reason: str
    """Reason why the last run stopped. Empty during a run, and for a finished job."""
    spider: str
    frontier: str
    workers: int
    settings: dict[str, Any]
    allowed_domains: list[str]
    """Empty: all domains."""
    modules: list[ModuleSummary]
    """Sorted by id."""
    idle: bool
    """Whether nothing is queued, delayed or in progress, and all seeds are loaded."""
    added: int = 0
    queued: int = 0
    delayed: int = 0
    in_flight: int = 0
    done: int = 0
    failed: int = 0
    """Dead letters."""
    counters: dict[str, int] = {}
    """Numbers of pages, items and statuses, and of refusals and failures by kind."""
    errors: ErrorSummary

    def json(self) -> str:
        """Return the summary as one JSON object with sorted keys."""
        return msgspec.json.encode(self, order="sorted").decode()

    def text(self) -> str:
        """Return the summary as readable lines."""
        waiting = f"{self.queued} queued, {self.delayed} delayed, {self.in_flight} in flight"
        because = f" ({self.reason})" if self.reason else ""
        lines = [
            f"job {self.job}: {self.status}{', idle' if self.idle else ''}{because}",
            f"requests: {self.added} added, {waiting}, {self.done} done, {self.failed} failed",
        ]
        lines += [
            f"{module.id}: {module.called} called, {module.accepted} accepted, {module.completed} completed,"
            f" {module.handling} handling{_listed(module.extra)}"
            for module in self.modules
        ]
        lines.append(
            f"errors: {self.errors.total}, {self.errors.dropped} dropped unread"
            f"{_listed(self.errors.by_component)}"
        )
        return "\n".join(lines)


def _listed(values: dict[str, Any]) -> str:
    listed = ", ".join(f"{name} {value}" for name, value in values.items() if value)
    return f" ({listed})" if listed else ""


def is_idle(status: FrontierStatus) -> bool:
    """Return whether a reading shows nothing to do. A page is in progress until its links are added."""
    return not (status.queued or status.delayed or status.leased or status.seeds_loading)
