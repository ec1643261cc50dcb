"""Status: what a managed crawl is at, which call is legal when, and what a refused one is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from threading import Lock

from skitter.errors import UsageError


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
