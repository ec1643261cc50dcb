"""Sessions: headers, a proxy and cookies that are used together for as long as their requests succeed.

The design follows crawlee's session pool and the module scores of "Go Concurrent Programming" (gopcp.v2), but avoids
the flaws of those scores. Here, a score reflects the present, not the whole past, so a new session is not flooded with
requests until it has caught up. A new session needs no special score: it starts as a good one. And a session that
fails fast does not look idle.
"""

from __future__ import annotations

import logging
import os
import random
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from skitter._utils.notes import Notes
from skitter.errors import FetchError, SettingsError, counted
from skitter.fetch.contract import ProxyError
from skitter.request import Request

log = logging.getLogger("skitter.fetch")

POOLED = "~"
"""First character of the names that the pool assigns; a session that the spider names is never retired."""
_SAMPLE_SIZE = 8
"""Number of sessions compared for each request. The best of a few random sessions is nearly as good as the best of all
(Mitzenmacher 2001), at a cost that does not grow with the pool.
"""
_MAX_NAMED = 10_000
"""Maximum number of sessions named by the spider; the least recently used one is dropped first."""


@dataclass(eq=False, slots=True)
class Session:
    """One identity: headers, proxy and cookies."""

    name: str
    """``Request.session`` of the requests that are sent. It also identifies the cookies of the session."""
    headers: Mapping[str, str]
    proxy: str
    """Empty for a direct connection."""
    born: float
    uses: int = 0
    in_flight: int = 0
    error_score: float = 0.0
    retired: bool = False

    @property
    def load(self) -> float:
        """Load of the session. Sessions with a low load are preferred."""
        return self.in_flight + 4.0 * self.error_score


class SharedSession(msgspec.Struct, array_like=True):
    """The part of a session that other workers need to continue it."""

    headers: dict[str, str]
    proxy: str


class PoolOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The size of the pool and the lifetime of its sessions."""

    size: int = 100
    """Number of concurrent sessions of one worker."""
    max_uses: int = 50
    """Maximum number of requests of one session."""
    max_age: float = 3000.0
    """Maximum age of a session, in seconds."""
    max_error_score: float = 3.0
    """A failure adds 1 and a success subtracts 0.5; at this score the session is retired."""
    blocked_statuses: tuple[int, ...] = (403, 429)
    """Statuses with which a site blocks a session, which is retired at once."""

    def __post_init__(self) -> None:
        for name in ("size", "max_uses", "max_age", "max_error_score"):
            if not getattr(self, name) > 0:
                raise SettingsError(
                    f"sessions: {name} must be greater than 0 (got {getattr(self, name)})",
                    remedy="give a positive number",
                    field=f"sessions.{name}",
                )


MakeIdentity = Callable[[Request, str], tuple[Mapping[str, str], str]]
"""Returns headers and proxy for the session of a request and a session name."""
IsUsable = Callable[[str], bool]
"""Returns whether a proxy may still be used."""


class SessionPool:
    """Assigns a session to each request, and rates sessions by the results.

    A request without a session gets a session of the pool. A request that names a session gets the named session, which is
    created on first use: its headers never change, and its proxy changes only when it fails. With ``notes``, other workers
    continue a session of this pool if a request names it. The next request of a redirect does so, and callbacks may.
    """

    def __init__(
        self, options: PoolOptions | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.options = options or PoolOptions()
        self._clock = clock
        self._pool: list[Session] = []
        self._by_name: dict[str, Session] = {}
        self._named: OrderedDict[str, Session] = OrderedDict()
        self._make: MakeIdentity = lambda _request, _name: ({}, "")
        self._usable: IsUsable = lambda _proxy: True
        self._notes: Notes | None = None

    def equip(self, make: MakeIdentity, usable: IsUsable, notes: Notes | None) -> None:
        """Set how sessions get headers and proxies, and where they are shared (``None``: they are not).

        Without this call, sessions have neither, and are not shared.
        """
        self._make = make
        self._usable = usable
        self._notes = notes

    def __len__(self) -> int:
        return len(self._pool)

    # --- selecting -------------------------------------------------------------------------------------

    async def take(self, request: Request) -> Session:
        """Return the session of a request; pass it to :meth:`settle` later. Raises the errors of selecting a proxy."""
        name = request.session
        session = None
        if name.startswith(POOLED):
            session = self._alive(self._by_name.get(name)) or await self._adopt(name)
        elif name:
            session = self._by_own_name(request)
        if session is None:
            session = await self._pick(request)
        session.uses += 1
        session.in_flight += 1
        return session

    def _alive(self, session: Session | None) -> Session | None:
        """Return the session if it may still be used. Otherwise retire it and return ``None``."""
        if session is None or session.retired:
            return None
        options = self.options
        worn = session.uses >= options.max_uses or self._clock() - session.born >= options.max_age
        if worn or (session.proxy and not self._usable(session.proxy)):
            self._remove(session)
            return None
        return session

    def _by_own_name(self, request: Request) -> Session:
        name = request.session
        session = self._named.get(name)
        if session is None:
            headers, proxy = self._make(request, name)
            session = self._named[name] = Session(name, headers, proxy, self._clock())
            if len(self._named) > _MAX_NAMED:
                self._named.popitem(last=False)
        else:
            self._named.move_to_end(name)
            if session.proxy and not self._usable(session.proxy):
                session.proxy = self._make(request, name)[1]
        return session

    async def _pick(self, request: Request) -> Session:
        while len(self._pool) >= self.options.size:
            sample = random.sample(self._pool, min(_SAMPLE_SIZE, len(self._pool)))
            alive = [session for session in sample if self._alive(session) is not None]
            if alive:
                return min(alive, key=lambda session: session.load)
        return await self._create(request)

    async def _create(self, request: Request) -> Session:
        name = POOLED + os.urandom(8).hex()
        headers, proxy = self._make(request, name)
        session = self._add(Session(name, headers, proxy, self._clock()))
        if self._notes is not None:
            identity = msgspec.msgpack.encode(SharedSession(dict(headers), proxy))
            await self._notes.put(_key(name), identity, self.options.max_age)
        return session

    async def _adopt(self, name: str) -> Session | None:
        """Continue a session that another worker created. Return ``None`` if it is retired or unknown."""
        if self._notes is None:
            return None
        note = await self._notes.get(_key(name))
        if not note:
            return None
        session = self._by_name.get(name)  # created while the note was read
        if session is not None:
            return self._alive(session)
        identity = msgspec.msgpack.decode(note, type=SharedSession)
        return self._alive(self._add(Session(name, identity.headers, identity.proxy, self._clock())))

    def _add(self, session: Session) -> Session:
        self._pool.append(session)
        self._by_name[session.name] = session
        return session

    # --- rating ----------------------------------------------------------------------------------------

    async def settle(
        self, session: Session, status: int | None = None, error: FetchError | None = None
    ) -> None:
        """Return a session with the result of its request. Without a status or an error, the score does not change."""
        session.in_flight -= 1
        pooled = session.name.startswith(POOLED)
        if not pooled or session.retired or (status is None and error is None):
            return
        options = self.options
        if status in options.blocked_statuses:
            log.info(
                "session %s was blocked (status %s) after %s",
                session.name,
                status,
                counted(session.uses, "request"),
            )
        elif isinstance(error, ProxyError) and not self._usable(session.proxy):
            log.info("session %s has lost its proxy", session.name)
        elif not _rate(session, status, error) or session.error_score < options.max_error_score:
            return
        await self.retire(session.name)

    async def retire(self, name: str) -> None:
        """Retire a session of a pool, in this worker and in workers that have not continued it yet. Ignores other names."""
        session = self._by_name.get(name)
        if session is not None:
            self._remove(session)
        if self._notes is not None and name.startswith(POOLED):
            # An empty note keeps other workers from continuing it.
            await self._notes.put(_key(name), b"", self.options.max_age)

    def _remove(self, session: Session) -> None:
        session.retired = True
        self._pool.remove(session)
        del self._by_name[session.name]


def _rate(session: Session, status: int | None, error: FetchError | None) -> bool:
    """Update a session's score. Return whether it got worse."""
    if error is not None and not error.retryable:
        return False  # a bad certificate or a large body is not caused by the session or the proxy
    failed = error is not None or (status is not None and status >= 500)
    session.error_score = max(0.0, session.error_score + (1.0 if failed else -0.5))
    return failed


def _key(name: str) -> str:
    return f"session:{name}"


def pool_of(value: Any) -> SessionPool:
    """Create a pool from a setting: its size, or a mapping of options.

    Raises :class:`~skitter.errors.SettingsError`.
    """
    options = {"size": value} if isinstance(value, (int, str)) else value
    try:
        return SessionPool(msgspec.convert(options, PoolOptions, strict=False))
    except msgspec.ValidationError as error:
        raise SettingsError(
            f"invalid setting sessions: {value!r}: {error}",
            remedy=f"give a number, or a mapping with some of {', '.join(PoolOptions.__struct_fields__)}",
            field="sessions",
        ) from None
