"""IdentityFetcher: adds user agent, proxy, session and cookies to each request before another fetcher sends it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

import msgspec
import xxhash

from skitter._utils.concurrency import cancel_and_wait
from skitter._utils.notes import BLOCKED, Notes
from skitter.errors import FetchError, SkitterError
from skitter.fetch.contract import (
    UNCONDITIONAL,
    Aborted,
    Fetcher,
    FetcherCapabilities,
    HeaderHook,
    ProxyError,
    SendPermit,
    TooLate,
    UnsendableRequest,
    fetch_with_hook,
)
from skitter.fetch.identity.contract import (
    Cookies,
    IdentityChooser,
    IdentitySources,
    NoProxyAvailable,
    Proxies,
    UserAgents,
)
from skitter.fetch.identity.cookies import CookieFile
from skitter.fetch.identity.proxy_lists import label
from skitter.fetch.identity.sessions import Session, SessionPool
from skitter.request import Request
from skitter.response import Response
from skitter.web.headers import with_defaults
from skitter.web.urls import origin_of

log = logging.getLogger("skitter.fetch")

_MAX_WAIT = 5.0
"""Maximum time in seconds to keep a request while no proxy is available; then its lease is released."""
_PROXY_WANTS_LOGIN = 407
_REREAD_INTERVAL = 5.0
"""Seconds between two reads of the identities that other workers have reported as blocked. Each retry also reads them."""
_JAR_OF = "@proxy "
"""Separates the session from the proxy in the name of a cookie jar."""


@runtime_checkable
class _Openable(Protocol):
    async def open(self) -> None: ...


@runtime_checkable
class _Closable(Protocol):
    async def close(self) -> None: ...


@runtime_checkable
class _Listing(Protocol):
    """A source of proxies that can list them all."""

    def known(self) -> Iterable[str]: ...


@runtime_checkable
class _Failing(Protocol):
    """Proxies that can all be unavailable."""

    def outage(self) -> str: ...


class BlockedIdentity(msgspec.Struct, array_like=True, frozen=True):
    """The identity of a request that a site has blocked."""

    url: str
    session: str
    proxy: str
    """Hash of the URL, which may contain a password."""
    until: float
    """Unix time."""

    @property
    def key(self) -> tuple[str, str]:
        """Session and proxy."""
        return self.session, self.proxy


_encode_blocked = msgspec.msgpack.Encoder().encode
_decode_blocked = msgspec.msgpack.Decoder(list[BlockedIdentity]).decode


class BlockedIdentities:
    """The sessions and proxies that callbacks have reported as blocked, for all workers of a job.

    A retry may be leased by another worker, which would choose the same proxy. So each retry reads the note first; other
    requests rely on a read every five seconds.

    ``seconds``: how long a report is valid for a worker that has not read it yet. ``block``: called with each identity that
    another worker has reported; stops using it in this worker.
    """

    def __init__(
        self, notes: Notes, seconds: float, block: Callable[[BlockedIdentity], Awaitable[None]]
    ) -> None:
        self._notes = notes
        self._seconds = max(seconds, 2 * _REREAD_INTERVAL)
        self._block = block
        self._known: set[BlockedIdentity] = set()
        self._learning = asyncio.Lock()
        self._reading: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Start reading the reports of other workers."""
        self._reading = asyncio.create_task(self._read_again())

    async def close(self) -> None:
        """Stop reading."""
        if self._reading is not None:
            await cancel_and_wait([self._reading])

    async def add(self, request: Request) -> None:
        """Report the identity of a request to the other workers."""
        url, until = f"{origin_of(request.url)}/", time.time() + self._seconds
        report = BlockedIdentity(url, request.session, _hash_of(request.proxy or ""), until)
        self._known.add(report)
        while True:
            old = await self._notes.get(BLOCKED)
            others = [other for other in _current(old) if other.key != report.key]
            new = _encode_blocked([*others, report])
            if await self._notes.compare_and_swap(BLOCKED, old, new, self._seconds):
                return

    async def learn(self) -> None:
        """Block the identities that other workers have reported since the last call."""
        async with self._learning:  # a retry must not overtake a call that is still blocking what it has read
            reports = _current(await self._notes.get(BLOCKED))
            self._known = {report for report in self._known if report.until > time.time()}
            for report in reports:
                if report not in self._known:
                    await self._block(report)
                    self._known.add(report)

    async def _read_again(self) -> None:
        while True:
            await asyncio.sleep(_REREAD_INTERVAL)
            with contextlib.suppress(SkitterError):  # the worker itself reports an outage of the frontier
                await self.learn()


def _current(note: bytes | None) -> list[BlockedIdentity]:
    now = time.time()
    return [report for report in _decode_blocked(note) if report.until > now] if note else []


def _hash_of(proxy: str) -> str:
    return xxhash.xxh3_128_hexdigest(proxy.encode())


class IdentityFetcher:
    """A fetcher with optional sources of identity: user agents, proxies, sessions, cookies. Implements :class:`Fetcher`.

    The values of the request itself take precedence. ``response.request`` is the request with its identity, so hooks
    and callbacks can see its proxy and session. The frontier stores the original request.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        *,
        user_agents: UserAgents | None = None,
        proxies: Proxies | None = None,
        sessions: SessionPool | None = None,
        cookies: Cookies | None = None,
        jar_per_proxy: bool = False,
        cookie_file: CookieFile | None = None,
    ) -> None:
        self._fetcher = fetcher
        self._user_agents = user_agents
        self._proxies = proxies
        self._sessions = sessions
        self._cookies = cookies
        self._jar_per_proxy = jar_per_proxy
        self._cookie_file = cookie_file
        self._changes_requests = jar_per_proxy or user_agents is not None or proxies is not None
        """Whether requests without a session get anything but cookies."""
        self._blocked: BlockedIdentities | None = None
        self.capabilities: FetcherCapabilities = msgspec.structs.replace(
            fetcher.capabilities,
            shows_headers=True,
            blocked_statuses=frozenset(sessions.options.blocked_statuses if sessions is not None else ()),
            report_blocked=None if sessions is None and proxies is None else self._report_blocked,
            outage=proxies.outage if isinstance(proxies, _Failing) else fetcher.capabilities.outage,
        )

    def share_blocked(self, notes: Notes, seconds: float) -> None:
        """Share blocked identities with the other workers of the job. Call it before :meth:`open`.

        ``seconds``: how long a blocked proxy is not used.
        """
        self._blocked = BlockedIdentities(notes, seconds, self._block_reported)

    async def open(self) -> None:
        """Open the fetcher, then the sources, which may use it."""
        await self._fetcher.open()
        try:
            for source in self._sources():
                if isinstance(source, _Openable):
                    await source.open()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        async with contextlib.AsyncExitStack() as closing:  # closes all, even if closing one of them fails
            closing.push_async_callback(self._fetcher.close)
            for source in reversed(self._sources()):
                if isinstance(source, _Closable):
                    closing.push_async_callback(source.close)

    def _sources(self) -> list[Any]:
        sources = (
            self._user_agents, self._proxies, self._sessions, self._cookies, self._cookie_file, self._blocked,
        )  # fmt: skip
        return [source for source in sources if source is not None]

    def fetch(
        self,
        request: Request,
        *,
        permit: SendPermit = UNCONDITIONAL,
        on_headers: HeaderHook | None = None,
    ) -> Coroutine[Any, Any, Response]:
        if self._sessions is not None:
            return self._fetch_in_session(self._sessions, request, permit, on_headers)
        if self._changes_requests:
            return self._fetch_without_session(request, permit, on_headers)
        return self._send(request, request, permit, on_headers)

    async def _fetch_without_session(
        self, request: Request, permit: SendPermit, on_headers: HeaderHook | None
    ) -> Response:
        return await self._send(request, await self._without_session(request), permit, on_headers)

    async def _fetch_in_session(
        self, sessions: SessionPool, request: Request, permit: SendPermit, on_headers: HeaderHook | None
    ) -> Response:
        if request.retries and self._blocked is not None:
            await self._blocked.learn()
        try:
            session = await sessions.take(request)
        except NoProxyAvailable as error:
            raise await _waited(error) from None
        status, failure = None, None
        try:
            response = await self._send(request, self._in_session(request, session), permit, on_headers)
            status = response.status
        except (TooLate, Aborted):
            raise
        except FetchError as error:
            failure = error
            raise
        finally:
            await sessions.settle(session, status, failure)
        return response

    # --- identity --------------------------------------------------------------------------------------

    async def _without_session(self, request: Request) -> Request:
        changes: dict[str, Any] = {}
        if request.retries and self._blocked is not None:
            await self._blocked.learn()
        if self._user_agents is not None:
            changes["headers"] = _merged(self._user_agents.headers(request), request)
        if self._proxies is not None and request.proxy is None:
            try:
                changes["proxy"] = self._proxies.choose(request, request.session)
            except NoProxyAvailable as error:
                raise await _waited(error) from None
        if self._jar_per_proxy:
            # After a redirect, the session is the name of a jar.
            session = request.session.partition(_JAR_OF)[0]
            proxy = changes.get("proxy", request.proxy) or ""
            changes["session"] = f"{session}{_JAR_OF}{label(proxy)}"
        return request.replace(**changes)

    @staticmethod
    def _in_session(request: Request, session: Session) -> Request:
        changes: dict[str, Any] = {"session": session.name, "headers": _merged(session.headers, request)}
        if session.proxy and request.proxy is None:
            changes["proxy"] = session.proxy
        return request.replace(**changes)

    async def _report_blocked(self, request: Request) -> None:
        if self._sessions is not None:
            log.info("session %s was blocked, according to the content of %s", request.session, request.url)
        await self._block(request)
        if self._blocked is not None:
            await self._blocked.add(request)

    async def _block(self, request: Request) -> None:
        """Retire the session of a request that was sent, and put its proxy into its cooldown."""
        if self._sessions is not None:
            await self._sessions.retire(request.session)
        proxies, proxy = self._proxies, request.proxy
        if proxies is not None and proxy and proxies.usable(proxy):
            proxies.report(proxy, request, ProxyError("the site has blocked it"))

    async def _block_reported(self, report: BlockedIdentity) -> None:
        known: Iterable[str] = self._proxies.known() if isinstance(self._proxies, _Listing) else ()
        proxy = next((proxy for proxy in known if _hash_of(proxy) == report.proxy), "")
        await self._block(Request(report.url, session=report.session, proxy=proxy))

    # --- sending ---------------------------------------------------------------------------------------

    async def _send(
        self,
        request: Request,
        sent: Request,
        permit: SendPermit,
        on_headers: HeaderHook | None,
    ) -> Response:
        if self._cookies is not None:
            header = await self._cookies.header_for(sent)
            if header is not None:
                sent = sent.replace(cookies={}, headers={"Cookie": header, **sent.headers})
        if permit.expires and not permit.may_send():
            raise TooLate(
                "the request missed its time slot while its proxy, session or cookies were prepared"
            )
        if self._proxies is not None and sent.proxy and request.proxy is None:
            response = await self._send_by_proxy(self._proxies, sent, permit, on_headers)
        else:
            response = await fetch_with_hook(self._fetcher, sent, permit, on_headers)
        if self._cookies is not None:
            await self._cookies.absorb(response)
        return response

    async def _send_by_proxy(
        self, proxies: Proxies, sent: Request, permit: SendPermit, on_headers: HeaderHook | None
    ) -> Response:
        """Send a request through a proxy of the list, and report the result to the list."""
        proxy = sent.proxy or ""
        try:
            response = await fetch_with_hook(self._fetcher, sent, permit, on_headers)
            if response.status == _PROXY_WANTS_LOGIN:
                raise ProxyError(
                    f"the proxy {label(proxy)} rejected the login (407)", remedy="check its user and password"
                )
        except TooLate:
            raise
        except Aborted:
            proxies.report(proxy, sent, None)
            raise
        except FetchError as error:
            error.free = proxies.report(proxy, sent, error)
            raise
        proxies.report(proxy, sent, None)
        return response


class IdentityRouter:
    """Sends each request with the identity that the spider chooses for it. Implements :class:`Fetcher`.

    ``default``: for all other requests. It is opened first and closed last.
    ``make``: returns the fetcher of an identity. It is called once for each identity, at its first request. Identities with
    the same values share a fetcher.
    """

    def __init__(
        self, chooser: IdentityChooser, default: Fetcher, make: Callable[[IdentitySources], Fetcher]
    ) -> None:
        self._chooser = chooser
        self._default = default
        self._make = make
        self._fetchers: dict[tuple[str, str], Fetcher] = {}
        self._opening = asyncio.Lock()
        self.capabilities = msgspec.structs.replace(
            default.capabilities, shows_headers=True, report_blocked=self._report_blocked, outage=self._outage
        )

    async def open(self) -> None:
        await self._default.open()

    async def close(self) -> None:
        fetchers, self._fetchers = self._fetchers, {}
        async with contextlib.AsyncExitStack() as closing:  # closes all, even if closing one of them fails
            for fetcher in (self._default, *fetchers.values()):
                closing.push_async_callback(fetcher.close)

    def fetch(
        self,
        request: Request,
        *,
        permit: SendPermit = UNCONDITIONAL,
        on_headers: HeaderHook | None = None,
    ) -> Coroutine[Any, Any, Response]:
        identity = self._chooser.identity_of(request)
        if identity is None:
            return fetch_with_hook(self._default, request, permit, on_headers)
        return self._route(identity, request, permit, on_headers)

    async def _route(
        self, identity: IdentitySources, request: Request, permit: SendPermit, on_headers: HeaderHook | None
    ) -> Response:
        try:
            fetcher = await self._opened(identity)
        except SkitterError as error:
            raise UnsendableRequest(str(error), remedy=error.remedy, field=error.field) from error
        return await fetch_with_hook(fetcher, request, permit, on_headers)

    async def _report_blocked(self, request: Request) -> None:
        identity = self._chooser.identity_of(request)
        fetcher = self._default if identity is None else await self._opened(identity)
        report = fetcher.capabilities.report_blocked
        if report is not None:
            await report(request)

    def _outage(self) -> str:
        found = [fetcher.capabilities.outage for fetcher in (self._default, *self._fetchers.values())]
        return next(filter(None, (outage() for outage in found if outage is not None)), "")

    async def _opened(self, identity: IdentitySources) -> Fetcher:
        key = (repr(identity.user_agents), repr(identity.proxies))
        async with self._opening:
            if key not in self._fetchers:
                fetcher = await asyncio.to_thread(self._make, identity)
                await fetcher.open()
                self._fetchers[key] = fetcher
            return self._fetchers[key]


class BorrowedFetcher:
    """A fetcher that its owner opens and closes."""

    def __init__(self, fetcher: Fetcher) -> None:
        self.capabilities = fetcher.capabilities
        self.fetch = fetcher.fetch

    async def open(self) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""


def _merged(headers: Mapping[str, str], request: Request) -> dict[str, str]:
    """Return the headers to send.

    Headers of the request take precedence, and its ``User-Agent`` replaces all headers of the source.
    """
    if not request.headers:
        return dict(headers)
    if any(name.lower() == "user-agent" for name in request.headers):
        return request.headers
    return with_defaults(request.headers, headers)


async def _waited(error: NoProxyAvailable) -> NoProxyAvailable:
    """Wait before the lease is released, because other requests could not be fetched in the meantime either."""
    if error.free:
        await asyncio.sleep(min(error.wait, _MAX_WAIT))
    return error
