"""CollectorGroup: a collector with its clones: the collectors of one job."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from skitter.errors import SpiderError, UsageError
from skitter.frontends.collector.debug import Debugger, Event
from skitter.frontends.collector.request import CollectorRequest, PendingRequests
from skitter.request import Request
from skitter.scope import Scope
from skitter.web.urls import host_of

if TYPE_CHECKING:
    from skitter.frontends.collector.collector import Collector
    from skitter.worker.worker import Worker
from typing import NamedTuple

current: ContextVar[CollectorRequest | None] = ContextVar("current", default=None)
"""The request whose callback is running."""


class CollectorGroup:
    """What a collector and its clones have in common.

    ``pending``
        PendingRequests from outside of callbacks: the beginning of the crawl.
    ``worker``
        That is at work on the job in this process, while one is.
    """

    def __init__(self, debugger: Debugger | None) -> None:
        self.members: dict[str | None, Collector] = {}
        """By the callback that their requests name."""
        self.pending = PendingRequests()
        self.seeds: Callable[..., Any] | None = None
        self.debugger = debugger
        self.worker: Worker | None = None
        self.is_running = False
        """Whether a run that began here goes on."""
        self.stop_run: Callable[[str], None] | None = None
        self._scopes: dict[Collector, Scope] | None = None

    def add(self, member: Collector) -> None:
        """Take in a clone. Raises :class:`~skitter.errors.UsageError` for a name that is taken."""
        if member.callback in self.members:
            raise UsageError(
                f"there is a collector {member.name!r} already", remedy="give the clone another name"
            )
        self.members[member.callback] = member

    def collector_of(self, request: Request) -> Collector:
        """Return the collector that a request belongs to.

        Raises :class:`~skitter.errors.SpiderError`: an earlier run had one that is not there now.
        """
        name = request.callback if isinstance(request.callback, str) else None
        member = self.members.get(name)
        if member is None:
            raise SpiderError(
                f"there is no collector {name!r}",
                remedy="keep the names and the order of clones while a job lasts",
            )
        return member

    @property
    def root(self) -> Collector:
        """The first of them, whose options are the job's."""
        return self.members[None]

    def have(self, *points: str) -> bool:
        """Tell whether any of them has a callback at one of the points, or a debugger wants to hear of it."""
        return self.debugger is not None or any(
            getattr(member.callbacks, point) for member in self.members.values() for point in points
        )

    def emit(self, kind: str, member: Collector, url: str, values: dict[str, Any]) -> None:
        """Tell the debugger; only for when there is one."""
        if self.debugger is not None:
            self.debugger.event(Event(kind, member.name, url, values))

    # Bounds

    @property
    def share_bounds(self) -> bool:
        """Whether all have the same bounds, which are those of the job then."""
        bounds = [(m.options.allowed_domains, m.options.scope_settings()) for m in self.members.values()]
        return all(bound == bounds[0] for bound in bounds)

    def admits(self, member: Collector, request: Request) -> bool:
        """Tell whether a collector may fetch a request, where each has bounds of its own."""
        if self._scopes is None:
            self._scopes = {one: one.options.scope() for one in self.members.values()}
        scope = self._scopes[member]
        return not scope.too_deep(request.depth) and scope.refuse(request.url, host_of(request.url)) is None

    # What only a running worker can do

    async def knows(self, request: Request) -> bool:
        """Tell whether the job has met a request. Raises :class:`~skitter.errors.UsageError` where none runs."""
        if self.worker is None:
            raise UsageError("no crawl is running", remedy="ask within a callback")
        return await self.worker.knows(request)

    def stop(self, reason: str) -> None:
        """Stop the crawl gracefully. Raises :class:`~skitter.errors.UsageError` where none runs."""
        if self.worker is not None:
            self.worker.stop(reason)
        elif self.stop_run is not None:
            self.stop_run(reason)
        else:
            raise UsageError("no crawl is running", remedy="stop it within a callback, or while it runs")


Callback = Callable[..., Any]


class QueryCallback(NamedTuple):
    """A callback for the elements that a query finds."""

    query: str
    callback: Callback


class Callbacks:
    """The callbacks of one collector, by point. Those of a point may change while it is being gone through."""

    def __init__(self) -> None:
        self.request: tuple[Callback, ...] = ()
        self.request_headers: tuple[Callback, ...] = ()
        self.response_headers: tuple[Callback, ...] = ()
        self.response: tuple[Callback, ...] = ()
        self.html: tuple[QueryCallback, ...] = ()
        self.xml: tuple[QueryCallback, ...] = ()
        self.error: tuple[Callback, ...] = ()
        self.scraped: tuple[Callback, ...] = ()

    def add(self, point: str, callback: Callback) -> None:
        """Register a callback at a point without a query. Raises :class:`~skitter.errors.UsageError`."""
        setattr(self, point, (*getattr(self, point), _callable(callback, point)))

    def select(self, point: str, query: str, callback: Callback) -> None:
        """Register a callback for elements. Raises :class:`~skitter.errors.UsageError`."""
        setattr(self, point, (*getattr(self, point), QueryCallback(query, _callable(callback, point))))

    def drop_query(self, point: str, query: str) -> bool:
        """Forget the callbacks of a query; returns whether there were any."""
        before: tuple[QueryCallback, ...] = getattr(self, point)
        after = tuple(selected for selected in before if selected.query != query)
        setattr(self, point, after)
        return len(after) < len(before)

    def drop(self, callback: Callback) -> bool:
        """Forget a callback at all points; returns whether it stood anywhere."""
        found = False
        for point, before in list(vars(self).items()):
            after = tuple(
                one
                for one in before
                if (one.callback if isinstance(one, QueryCallback) else one) is not callback
            )
            found |= len(after) < len(before)
            setattr(self, point, after)
        return found


def _callable(callback: Any, point: str) -> Callback:
    if not callable(callback):
        raise UsageError(
            f"on_{point} got {callback!r}, which cannot be called", remedy="pass a function, or decorate one"
        )
    wanted: Callback = callback
    return wanted
