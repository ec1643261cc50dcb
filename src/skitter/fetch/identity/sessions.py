"""Sessions: who we are to a site: headers, proxy and cookies that belong together, kept while they do well.

After crawlee's session pool, and the module scores of "Go Concurrent Programming" (gopcp.v2) without their flaws: a
score here is about now, not about all that ever was (a newcomer is not flooded until it has caught up), "no
score yet" is a good score and no special number, and what fails fast does not look idle.
"""

from __future__ import annotations

import logging
import random
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from skitter._utils.notes import Notes
from skitter.errors import SettingsError
from skitter.fetch.contract import FetchError, ProxyError
from skitter.request import Request

log = logging.getLogger("skitter.fetch")

POOLED = "~"
"""First character of the names that the pool gives; a session that the spider names is never retired."""
_SAMPLE = 8
"""Sessions compared when one is taken. The best of a few random ones is nearly the best of all
(Mitzenmacher 2001), at a cost that does not grow with the pool."""
_NAMED = 10_000
"""Sessions named by the spider that are kept at a time; the one unused for longest goes first."""


class Session:
    """One identity."""

    __slots__ = ("born", "error_score", "headers", "in_flight", "name", "proxy", "retired", "uses")

    def __init__(self, name: str, headers: Mapping[str, str], proxy: str, born: float) -> None:
        self.name = name
        """Also of its cookies: ``Request.session`` of what is sent."""
        self.headers = headers
        self.proxy = proxy
        """Empty for none."""
        self.born = born
        self.uses = 0
        self.in_flight = 0
        self.error_score = 0.0
        self.retired = False

    @property
    def load(self) -> float:
        """How little it should be chosen now."""
        return self.in_flight + 4.0 * self.error_score


class Likeness(msgspec.Struct, array_like=True):
    """What other workers must know of a session to go on as it."""

    headers: dict[str, str]
    proxy: str


class PoolOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many sessions there are, and how long each lasts."""

    size: int = 100
    """Sessions of one worker at a time."""
    max_uses: int = 50
    """Requests of one session."""
    max_age: float = 3000.0
    """Seconds from its making."""
    max_error_score: float = 3.0
    """A failure adds 1, a success takes off half; at this score the session is retired."""
    blocked_statuses: tuple[int, ...] = (403, 429)
    """Answers by which a site tells that it knows us: the session is retired at once."""

    def __post_init__(self) -> None:
        for name in ("size", "max_uses", "max_age", "max_error_score"):
            if not getattr(self, name) > 0:
                raise SettingsError(
                    f"sessions: {name} is {getattr(self, name)}", remedy="give more than zero"
                )


Make = Callable[[Request, str], tuple[Mapping[str, str], str]]
"""Gives headers and proxy to a session of a name."""
Usable = Callable[[str], bool]
"""Tells whether a proxy may still be used."""


class SessionPool:
    """Gives each request its session and judges sessions by what came of it.

    A request without a session gets one of the pool. A request that names a session gets that one, made when it is
    first named: its headers last, its proxy lasts while it works. With ``notes`` other workers go on as a
    session of this pool where a request names it (the next hop of a redirect does, and a callback may).
    """

    def __init__(
        self, options: PoolOptions | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.options = options or PoolOptions()
        self._clock = clock
        self._pool: list[Session] = []
        self._by_name: dict[str, Session] = {}
        self._named: OrderedDict[str, Session] = OrderedDict()
        self._make: Make
        self._usable: Usable
        self._notes: Notes | None = None

    def equip(self, make: Make, usable: Usable, notes: Notes | None) -> None:
        """Tell how sessions get their headers and proxies, and where they are shared (``None``: nowhere)."""
        self._make = make
        self._usable = usable
        self._notes = notes

    def __len__(self) -> int:
        return len(self._pool)

    # --- taking ----------------------------------------------------------------------------------------

    async def take(self, request: Request) -> Session:
        """Return the session of a request; it is to be settled. Raises what the choice of a proxy raises."""
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
        """Return a session that may go on; the other kind is retired."""
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
            if len(self._named) > _NAMED:
                self._named.popitem(last=False)
        else:
            self._named.move_to_end(name)
            if session.proxy and not self._usable(session.proxy):
                session.proxy = self._make(request, name)[1]
        return session

    async def _pick(self, request: Request) -> Session:
        while len(self._pool) >= self.options.size:
            sample = random.sample(self._pool, min(_SAMPLE, len(self._pool)))
            alive = [session for session in sample if self._alive(session) is not None]
            if alive:
                return min(alive, key=lambda session: session.load)
        return await self._create(request)

    async def _create(self, request: Request) -> Session:
        name = POOLED + secrets.token_hex(8)
        headers, proxy = self._make(request, name)
        session = self._add(Session(name, headers, proxy, self._clock()))
        if self._notes is not None:
            likeness = msgspec.msgpack.encode(Likeness(dict(headers), proxy))
            await self._notes.put(_key(name), likeness, self.options.max_age)
        return session

    async def _adopt(self, name: str) -> Session | None:
        """Go on as a session that another worker made; ``None`` if it is retired or not known."""
        if self._notes is None:
            return None
        note = await self._notes.get(_key(name))
        if not note:
            return None
        known = self._by_name.get(name)  # made while we asked
        if known is not None:
            return self._alive(known)
        likeness = msgspec.msgpack.decode(note, type=Likeness)
        return self._alive(self._add(Session(name, likeness.headers, likeness.proxy, self._clock())))

    def _add(self, session: Session) -> Session:
        self._pool.append(session)
        self._by_name[session.name] = session
        return session

    # --- judging ---------------------------------------------------------------------------------------

    async def settle(
        self, session: Session, status: int | None = None, error: FetchError | None = None
    ) -> None:
        """Take a session back with what came of it; neither status nor error: nothing was learnt."""
        session.in_flight -= 1
        pooled = session.name.startswith(POOLED)
        if not pooled or session.retired or (status is None and error is None):
            return
        options = self.options
        if status in options.blocked_statuses:
            log.info(
                "session %s is blocked (status %s) after %d requests", session.name, status, session.uses
            )
        elif isinstance(error, ProxyError) and not self._usable(session.proxy):
            log.info("session %s has lost its proxy", session.name)
        elif not _rate(session, status, error) or session.error_score < options.max_error_score:
            return
        self._remove(session)
        if self._notes is not None:  # an empty note: nobody is to go on as it
            await self._notes.put(_key(session.name), b"", options.max_age)

    def _remove(self, session: Session) -> None:
        session.retired = True
        self._pool.remove(session)
        del self._by_name[session.name]


def _rate(session: Session, status: int | None, error: FetchError | None) -> bool:
    """Change a session's score; returns whether it got worse."""
    if error is not None and not error.retryable:
        return False  # a bad certificate, or a body too large, is nobody's fault here
    failed = error is not None or (status is not None and status >= 500)
    session.error_score = max(0.0, session.error_score + (1.0 if failed else -0.5))
    return failed


def _key(name: str) -> str:
    return f"session:{name}"


def pool_of(value: Any) -> SessionPool:
    """Make a pool from a setting: its size, or a mapping of options.

    Raises :class:`~skitter.errors.SettingsError`.
    """
    given = {"size": value} if isinstance(value, (int, str)) else value
    try:
        return SessionPool(msgspec.convert(given, PoolOptions, strict=False))
    except msgspec.ValidationError as error:
        raise SettingsError(
            f"setting sessions cannot be {value!r}: {error}",
            remedy=f"give a number, or some of {', '.join(PoolOptions.__struct_fields__)}",
        ) from None
