"""CollectorGroup: the collectors of one job (a collector and its clones), and the callbacks of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from skitter.errors import SpiderError, UsageError
from skitter.frontends.collector.debug import Debugger, Event
from skitter.frontends.collector.request import CollectorRequest, PendingRequests, VisitRefusal
from skitter.frontends.collector.storage import StorageThread
from skitter.request import Request
from skitter.scope import Scope

if TYPE_CHECKING:
    from skitter.frontends.collector.collector import Collector
    from skitter.worker.worker import Worker

_current_request: ContextVar[CollectorRequest | None] = ContextVar("current_request", default=None)
"""The request whose callback is running. Callbacks, and tasks and threads that they start, call ``collector.visit()``
without an argument for the page, so the page is known only from this context."""


class CollectorGroup:
    """A collector and its clones, with the state that they share.

    ``pending``
        Visits from outside of callbacks: the start requests of the crawl.
    ``worker``
        The worker that runs the job in this process, while there is one.

    Raises :class:`~skitter.errors.UsageError` for a debugger that is a class.
    """

    def __init__(self, debugger: Debugger | None) -> None:
        self.members: dict[str | None, Collector] = {}
        """Collectors by the callback name of their requests."""
        self.pending = PendingRequests()
        self.initial_cookies: dict[str, list[str]] = {}
        """Cookies with which the job starts: values of ``Set-Cookie`` by URL."""
        self.new_cookies: list[tuple[str, list[str], str]] = []
        """Cookies that callbacks have set since they were last stored: URL, values of ``Set-Cookie``, session."""
        self.storage: StorageThread | None = None
        self.seeds: Callable[..., Any] | None = None
        if isinstance(debugger, type):
            raise UsageError(
                f"the debugger is a class: {debugger.__name__}",
                remedy=f"pass an object: debugger={debugger.__name__}()",
                field="debugger",
            )
        self.debugger = debugger
        self.worker: Worker | None = None
        self.is_running = False
        """Whether a run that this process started is in progress."""
        self.stop_run: Callable[[str], None] | None = None
        self._scopes: dict[Collector, Scope] = {}

    @property
    def current_request(self) -> CollectorRequest | None:
        """The request whose callback is running, if it belongs to this group."""
        request = _current_request.get()
        return request if request is not None and request.collector.group is self else None

    @contextmanager
    def callbacks_of(self, request: CollectorRequest) -> Iterator[None]:
        """Make a request the current one while its callbacks run: their visits become its children."""
        token = _current_request.set(request)
        try:
            yield
        finally:
            _current_request.reset(token)

    def set_current(self, request: CollectorRequest | None) -> None:
        """Set the current request for the next step of a generator, because each step may run in another context."""
        _current_request.set(request)

    def add(self, member: Collector) -> None:
        """Add a clone. Raises :class:`~skitter.errors.UsageError` for a name that is taken."""
        if member.callback in self.members:
            raise UsageError(
                f"a collector named {member.name!r} exists already",
                remedy="give the clone another name",
                field="name",
            )
        self.members[member.callback] = member

    def collector_of(self, request: Request) -> Collector:
        """Return the collector of a request.

        Raises :class:`~skitter.errors.SpiderError` for a collector of an earlier run that no longer exists.
        """
        name = request.callback if isinstance(request.callback, str) else None
        member = self.members.get(name)
        if member is None:
            raise SpiderError(
                f"unknown collector {name!r}",
                remedy="keep the names and the order of clones for the life of a job",
            )
        return member

    @property
    def root(self) -> Collector:
        """The first collector. Its options are the options of the job."""
        return self.members[None]

    def have(self, *points: str) -> bool:
        """Return whether any collector has a callback for one of the events, or there is a debugger."""
        return self.debugger is not None or any(
            getattr(member.callbacks, point) for member in self.members.values() for point in points
        )

    def emit(self, kind: str, member: Collector, url: str, values: dict[str, Any]) -> None:
        """Pass an event to the debugger, if there is one."""
        if self.debugger is not None:
            self.debugger.event(Event(kind, member.name, url, values))

    # Scope

    @property
    def share_bounds(self) -> bool:
        """Whether all collectors have the same scope, which is then the scope of the job."""
        bounds = [(m.options.allowed_domains, m.options.scope_settings()) for m in self.members.values()]
        return all(bound == bounds[0] for bound in bounds)

    def admits(self, member: Collector, request: Request) -> bool:
        """Return whether a collector may fetch a request, if each collector has its own scope."""
        return self._scope_of(member).refusal(request.url, request.depth) is None

    def refusal(self, member: Collector, url: str, depth: int) -> VisitRefusal | None:
        """Return the reason for which a visit by a collector is out of scope, or ``None``."""
        refusal = self._scope_of(member).refusal(url, depth)
        if refusal is None and self.worker is not None:
            refusal = self.worker.refusal(url, depth)
        return None if refusal is None else VisitRefusal(refusal)

    def _scope_of(self, member: Collector) -> Scope:
        if member not in self._scopes:
            self._scopes[member] = member.options.scope()
        return self._scopes[member]

    # Only during a run

    async def store_cookies(self) -> None:
        """Store the cookies that callbacks have set."""
        while self.new_cookies and self.worker is not None:
            await self.worker.set_cookies(*self.new_cookies.pop(0))

    async def knows(self, request: Request) -> bool:
        """Return whether a request is known to the job. Raises :class:`~skitter.errors.UsageError` outside of a run."""
        if self.worker is None:
            raise UsageError("no crawl is running", remedy="call has_visited in a callback")
        return await self.worker.knows(request)

    def stop(self, reason: str) -> None:
        """Stop the crawl gracefully. Raises :class:`~skitter.errors.UsageError` outside of a run."""
        if self.worker is not None:
            self.worker.stop(reason)
        elif self.stop_run is not None:
            self.stop_run(reason)
        else:
            raise UsageError("no crawl is running", remedy="call stop in a callback, or during a run")


Callback = Callable[..., Any]


class QueryCallback(NamedTuple):
    """A callback for the elements that a query matches."""

    query: str
    callback: Callback


class Callbacks:
    """The callbacks of one collector by event. They may change while they are called."""

    def __init__(self) -> None:
        self.request: tuple[Callback, ...] = ()
        self.request_headers: tuple[Callback, ...] = ()
        self.response_headers: tuple[Callback, ...] = ()
        self.response: tuple[Callback, ...] = ()
        self.page: tuple[Callback, ...] = ()
        self.html: tuple[QueryCallback, ...] = ()
        self.xml: tuple[QueryCallback, ...] = ()
        self.error: tuple[Callback, ...] = ()
        self.scraped: tuple[Callback, ...] = ()

    def add(self, point: str, callback: Callback) -> None:
        """Register a callback for an event. Raises :class:`~skitter.errors.UsageError` if it is not callable."""
        setattr(self, point, (*getattr(self, point), _callable(callback, point)))

    def select(self, point: str, query: str, callback: Callback) -> None:
        """Register a callback for elements. Raises :class:`~skitter.errors.UsageError` if it is not callable."""
        setattr(self, point, (*getattr(self, point), QueryCallback(query, _callable(callback, point))))

    def drop_query(self, point: str, query: str) -> bool:
        """Remove the callbacks of a query. Return whether there were any."""
        before: tuple[QueryCallback, ...] = getattr(self, point)
        after = tuple(selected for selected in before if selected.query != query)
        setattr(self, point, after)
        return len(after) < len(before)

    def drop(self, callback: Callback) -> bool:
        """Remove a callback from all events. Return whether it was registered."""
        found = False
        for point, before in list(vars(self).items()):
            after = tuple(
                entry
                for entry in before
                if (entry.callback if isinstance(entry, QueryCallback) else entry) is not callback
            )
            found |= len(after) < len(before)
            setattr(self, point, after)
        return found


def _callable(callback: Any, point: str) -> Callback:
    if not callable(callback):
        raise UsageError(
            f"on_{point}: {callback!r} is not callable",
            remedy="pass a function, or decorate one",
            field="callback",
        )
    chosen: Callback = callback
    return chosen
