"""Status: what a managed crawl is at, which call is legal when, and what a refused one is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from threading import Lock
from typing import Any

import msgspec

from skitter.errors import UsageError
from skitter.frontends.lifecycle.errors import ErrorFeed
from skitter.frontends.lifecycle.modules import Module
from skitter.frontier.records import FrontierStatus


class Status(StrEnum):
    """The seven statuses of the scheduler of gopcp.v2, chapter 6."""

    UNINITIALIZED = "uninitialized"
    INITIALIZING = "initializing"
    INITIALIZED = "initialized"
    STARTING = "starting"
    STARTED = "started"
    STOPPING = "stopping"
    STOPPED = "stopped"


_NOTHING: frozenset[Status] = frozenset()

LEGAL: Mapping[Status, frozenset[Status]] = {
    Status.UNINITIALIZED: frozenset({Status.INITIALIZING}),
    Status.INITIALIZING: _NOTHING,
    Status.INITIALIZED: frozenset({Status.INITIALIZING, Status.STARTING}),
    Status.STARTING: _NOTHING,
    Status.STARTED: frozenset({Status.STOPPING}),
    Status.STOPPING: _NOTHING,
    Status.STOPPED: frozenset({Status.INITIALIZING, Status.STARTING}),
}
"""What may be wished for in each status; the others follow by themselves."""

_COMPLETED = {
    Status.INITIALIZING: Status.INITIALIZED,
    Status.STARTING: Status.STARTED,
    Status.STOPPING: Status.STOPPED,
}

_CALLS = {Status.INITIALIZING: "initialized", Status.STARTING: "started", Status.STOPPING: "stopped"}

_WHY = {
    Status.UNINITIALIZED: ("it has not been initialized", "await initialize() first"),
    Status.INITIALIZING: ("it is being initialized", "wait until that has ended"),
    Status.INITIALIZED: ("it has not been started", "await start() first"),
    Status.STARTING: ("it is being started", "wait until that has ended"),
    Status.STARTED: ("it has been started", "await stop() first"),
    Status.STOPPING: ("it is being stopped", "wait until that has ended"),
    Status.STOPPED: ("it has been stopped", "await start() first"),
}


class IllegalTransition(UsageError):
    """A call that does not fit the status; it has changed nothing."""

    def __init__(self, status: Status, wish: Status) -> None:
        why, remedy = _WHY[status]
        super().__init__(f"the crawl cannot be {_CALLS.get(wish, wish)}: {why}", remedy=remedy)
        self.status = status
        self.wish = wish


class StatusMachine:
    """Tests and sets in one step, whichever thread asks."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._status = Status.UNINITIALIZED
        self._before = Status.UNINITIALIZED

    @property
    def status(self) -> Status:
        """What holds now."""
        return self._status

    def begin(self, wish: Status) -> None:
        """Enter ``INITIALIZING``, ``STARTING`` or ``STOPPING``.

        Raises :class:`IllegalTransition`, with nothing changed, where :data:`LEGAL` does not allow it. Who got
        past this, and nobody else, calls :meth:`complete` or :meth:`back`.
        """
        with self._lock:
            if wish not in LEGAL[self._status]:
                raise IllegalTransition(self._status, wish)
            self._before, self._status = self._status, wish

    def complete(self) -> None:
        """End what was begun: initializing with ``INITIALIZED``, and so on."""
        with self._lock:
            self._status = _COMPLETED[self._status]

    def back(self) -> None:
        """Return to the status that held before :meth:`begin`: what was begun has failed."""
        with self._lock:
            self._status = self._before

    @contextmanager
    def passing(self, wish: Status) -> Iterator[None]:
        """Complete the transition if the block succeeds; go back if it fails, or is cancelled."""
        self.begin(wish)
        try:
            yield
        except BaseException:
            self.back()
            raise
        self.complete()


class ModuleSummary(msgspec.Struct, frozen=True):
    """One module."""

    id: str
    component: str
    called: int
    accepted: int
    completed: int
    handling: int
    extra: dict[str, Any]


class ErrorSummary(msgspec.Struct, frozen=True):
    """The errors told since the crawl was initialized."""

    total: int
    dropped: int
    """Pushed out before anybody read them."""
    by_component: dict[str, int]


class CrawlSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Equal if nothing has happened between two of them: there is no clock in it.

    Counts of requests are one consistent reading of the frontier, over all runs and workers of the job;
    ``added == queued + delayed + in_flight + done + failed``. They are 0 before the first run.
    """

    job: str
    status: str
    runs: int
    """How often it was started."""
    reason: str
    """Why the last run stopped; empty while it is at work and if the job is finished."""
    spider: str
    frontier: str
    workers: int
    settings: dict[str, Any]
    allowed_domains: list[str]
    """Empty: any."""
    modules: list[ModuleSummary]
    """By id."""
    idle: bool
    """Nothing is queued, delayed or under way, and no seeds are loading."""
    added: int = 0
    queued: int = 0
    delayed: int = 0
    in_flight: int = 0
    done: int = 0
    failed: int = 0
    """Dead letters."""
    counters: dict[str, int] = {}
    """Pages, items, statuses, and refusals and failures by kind."""
    errors: ErrorSummary

    def json(self) -> str:
        """Return it as one JSON object, keys in a fixed order."""
        return msgspec.json.encode(self, order="sorted").decode()

    def text(self) -> str:
        """Return it as lines for people."""
        waiting = f"{self.queued} queued, {self.delayed} delayed, {self.in_flight} in flight"
        lines = [
            f"job {self.job}: {self.status}{', idle' if self.idle else ''}{self._because()}",
            f"requests: {self.added} added, {waiting}, {self.done} done, {self.failed} failed",
        ]
        lines += [
            f"{module.id}: {module.called} called, {module.accepted} accepted, {module.completed} completed,"
            f" {module.handling} handling{_listed(module.extra)}"
            for module in self.modules
        ]
        lines.append(
            f"errors: {self.errors.total}, {self.errors.dropped} of them unread and dropped"
            f"{_listed(self.errors.by_component)}"
        )
        return "\n".join(lines)

    def _because(self) -> str:
        return f" ({self.reason})" if self.reason else ""


def _listed(values: dict[str, Any]) -> str:
    told = ", ".join(f"{name} {value}" for name, value in values.items() if value)
    return f" ({told})" if told else ""


def module_summary(module: Module) -> ModuleSummary:
    """Sum up a module."""
    counts = module.counts
    return ModuleSummary(
        module.id,
        str(module.component),
        counts.called,
        counts.accepted,
        counts.completed,
        counts.handling,
        module.extra(),
    )


def error_summary(feed: ErrorFeed) -> ErrorSummary:
    """Sum up what was told to a feed."""
    return ErrorSummary(feed.total, feed.dropped, {str(kind): n for kind, n in feed.by_component.items()})


def is_idle(status: FrontierStatus) -> bool:
    """Tell whether a reading shows nothing to do. A page counts as under way until its links are added."""
    return not (status.queued or status.delayed or status.leased or status.seeds_loading)
