"""HttpFetcher: HTTP/1.1 and HTTP/2 by libcurl, driven from the event loop."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import time
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any

import pycurl

from skitter._utils.concurrency import is_cancelled
from skitter.errors import FetchError, UsageError
from skitter.fetch.address_guard import AddressGuard, forbidden
from skitter.fetch.contract import (
    UNCONDITIONAL,
    ConnectError,
    FetcherCapabilities,
    ForbiddenAddress,
    HeaderHook,
    ProtocolError,
    SendPermit,
    TimedOut,
    TooLate,
    UndecodableBody,
    UnsendableRequest,
)
from skitter.fetch.cookies import CookieJars, load_suffixes
from skitter.fetch.curl_errors import fetch_error, proxy_works
from skitter.fetch.header_gate import HeaderGate
from skitter.fetch.multi import KeptOrigins, Multi
from skitter.fetch.proxy_routes import ProxyRoutes
from skitter.fetch.resolver import Resolver, make_resolver
from skitter.fetch.tls import TlsSessions, check_certificate_files, public_authorities
from skitter.fetch.transfer import Transfer, base_headers
from skitter.request import Request
from skitter.response import HTTP_TRACE, Response
from skitter.secrets import DIGEST, authorizations
from skitter.settings import DEFAULT_USER_AGENT, Settings
from skitter.web.headers import content_codings
from skitter.web.urls import normalize, origin_of

if TYPE_CHECKING:  # needs an extra
    from skitter.fetch.signatures import RequestSigner

_MIN_STALL_CHECKS = 4
_MAX_STALL_INTERVAL = 5.0
_MIN_LIBCURL = (8, 4)
_MAX_POOLED = 256
log = logging.getLogger("skitter.fetch")

_OTHER_DESCRIPTORS = 48
"""Files and sockets that a process with one worker may need beside its connections."""
_IDLE_CONNECTIONS = 1_000
"""Number of connections that are kept by default. One over TLS takes about 80 KB."""
_SCHEMES = ("http://", "https://")
# Bytes. Larger bodies are decoded in a thread, so that they do not block the event loop.
_DECODE_IN_THREAD = 256 * 1024


class _OnlyDeadConnections(Exception):
    """The server had closed every connection that curl tried to reuse. There was no response."""


def _room_for_connections() -> int:
    """Return how many connections the limit of open files allows. With more connections, hosts would seem to be dead."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**20 if soft == resource.RLIM_INFINITY else max(4, min(2**20, soft - _OTHER_DESCRIPTORS))


def _pool_size(settings: Settings) -> int:
    """Return how many connections are kept open, busy ones included."""
    room = _room_for_connections()
    kept = max(2 * settings.concurrency, min(_IDLE_CONNECTIONS, room // 2))
    return min(settings.max_connections or kept, room)


class HttpFetcher:
    """Fetches over HTTP. Does not follow redirects; keeps cookies per ``Request.session``.

    Bodies are decoded (``Content-Encoding`` stays among the headers). All requests of a fetcher share its
    connections. If the server has closed a reused connection before the first byte of its response, the request is
    sent again on a new connection.

    ``guard`` checks each address before a connection to it. ``None``: any address, for programs that trust their URLs.
    """

    capabilities = FetcherCapabilities(keeps_cookies=True, shows_headers=True)

    def __init__(
        self,
        settings: Settings | None = None,
        cookies: CookieJars | None = None,
        guard: AddressGuard | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self._guard = guard
        self._proxies = ProxyRoutes(self.settings.proxy, os.environ)
        self.cookies = cookies or CookieJars()
        self._base_headers = base_headers(self.settings)
        self._authorizations = authorizations(self.settings.credentials)
        self._signer: RequestSigner | None = None
        self._is_anonymous = self.settings.user_agent == DEFAULT_USER_AGENT and not any(
            name.lower() == "user-agent" for name in self.settings.headers
        )
        self._ca_file = self.settings.ca_file
        self._adds_times = self.settings.http_trace
        self._suffixes_read = False
        self._multi: Multi | None = None
        self._resolver: Resolver | None = None
        """``None``: libcurl resolves names."""
        self._tls_sessions = TlsSessions()
        # Connections that are not kept need places while they are busy.
        self._pool_size = _pool_size(self.settings)
        places = max(1, self._pool_size - self.settings.concurrency)
        self._kept = KeptOrigins(places, self.settings.idle_timeout)
        self._idle: list[Transfer] = []
        self._watch: StallWatch | None = None

    async def open(self) -> None:
        """Create the connection pool.

        Raises :class:`~skitter.errors.UsageError` if libcurl is too old to limit the size of bodies, or for a file of
        certificates or a key that cannot be used.
        """
        found = pycurl.version_info()[1]
        if tuple(int(part) for part in found.split(".")[:2]) < _MIN_LIBCURL:
            raise UsageError(
                f"pycurl was built with libcurl {found}; skitter needs 8.4 or later",
                remedy="install the pycurl wheel from PyPI, which includes libcurl",
            )
        await asyncio.to_thread(check_certificate_files, self.settings)
        if self.settings.signing_key or self.settings.signature_agent:
            from skitter.fetch.signatures import make_signer  # noqa: PLC0415 - needs an extra

            self._signer = await asyncio.to_thread(make_signer, self.settings)
        self._resolver = make_resolver(self.settings)
        room = _room_for_connections()
        if room < self.settings.concurrency:
            log.warning("the limit of open files (ulimit -n) leaves room for %d connections; raise it", room)
        multi = Multi()
        connections = self._pool_size
        multi.setopt(pycurl.M_MAXCONNECTS, connections)
        if self.settings.max_connections is None:
            connections = min(connections + self.settings.max_first_contacts(), room)
        multi.setopt(pycurl.M_MAX_TOTAL_CONNECTIONS, connections)
        self._multi = multi
        self._watch = StallWatch(multi.running, self.settings.read_timeout)

    async def fetch(
        self,
        request: Request,
        *,
        permit: SendPermit = UNCONDITIONAL,
        on_headers: HeaderHook | None = None,
    ) -> Response:
        """Fetch one request. Any HTTP status is a response.

        Cancelling the call ends the transfer. Raises :class:`~skitter.errors.FetchError`, and whatever
        ``on_headers`` raises; :class:`~skitter.fetch.contract.Aborted` if it returns ``False``.
        """
        url = _sendable(request.url)
        proxy = self._proxies.proxy_for(request)
        cookie = self.cookies.header_for(request)
        addresses: list[str] = []
        resolving = 0.0
        # In the usual case, libcurl knows the addresses of the origin, which is the start of the URL.
        if proxy or (self._resolver is not None and not self._resolver.is_fresh(url[: url.find("/", 8)])):
            began = time.monotonic()
            addresses = await self._look_up(request, url, proxy)
            resolving = time.monotonic() - began
        transfer = self._idle.pop() if self._idle else self._new_transfer()
        try:
            self._prepare(transfer, request, url, cookie, proxy)
            if permit.expires:
                transfer.check_before_sending(permit, resolving)
            if addresses:
                transfer.use_addresses(addresses, resolving)
            try:
                await self._run(transfer, request, on_headers)
            except (_OnlyDeadConnections, ForbiddenAddress) as error:
                await self._connect_afresh(transfer, error)
                await self._run(transfer, request, on_headers)
            block, body = transfer.raw_response()
            response = self._response(transfer, request, block, body)
            names = block.lower()
            # find, because `in` is slow: CPython 3.11 raises and drops an exception for each lookup.
            if transfer.cuts or names.find(b"\ncontent-encoding:") >= 0 or names.find(b"\nset-cookie:") >= 0:
                await self._complete(response, request, transfer, names)
        except BaseException:
            if permit.is_traced:
                permit.report_phases(transfer.phases())
            # The state of the handle is unknown, so it is not reused.
            transfer.curl.close()
            raise
        if permit.is_traced:
            permit.report_phases(transfer.phases())
        transfer.reset()
        if len(self._idle) < _MAX_POOLED:
            self._idle.append(transfer)
        return response

    async def _look_up(self, request: Request, url: str, proxy: str) -> list[str]:
        """Return the addresses of an origin unless libcurl knows them. Behind a proxy, only check the URL."""
        resolver = self._resolver
        if proxy:
            if self._guard is not None:
                await self._guard.check_url_by_now(url)
            return []
        if resolver is None:
            return []
        origin = origin_of(url)
        addresses = await resolver.look_up(origin)
        if self._is_anonymous:
            self._warn_of_public(resolver, origin, request)
        return addresses

    def _warn_of_public(self, resolver: Resolver, origin: str, request: Request) -> None:
        """Warn once that the User-Agent names no address, if the origin is on the public internet."""
        is_named = any(name.lower() == "user-agent" for name in request.headers)
        if is_named or not resolver.is_public(origin):
            return
        self._is_anonymous = False
        log.warning(
            "the User-Agent %r tells site owners no address at which they can reach you; set contact, as in"
            " `-s contact=https://example.com/bot`",
            self.settings.user_agent,
        )

    async def close(self) -> None:
        """Abort running transfers and close all connections. Safe to call twice."""
        multi, self._multi = self._multi, None
        if self._watch is not None:
            self._watch.stop()
        resolver, self._resolver = self._resolver, None
        if resolver is not None:
            await resolver.close()
        if multi is not None:
            multi.close()
        while self._idle:
            self._idle.pop().curl.close()

    def _prepare(
        self, transfer: Transfer, request: Request, url: str, cookie: str | None, proxy: str
    ) -> None:
        """Prepare a transfer with TLS sessions, a signature, and credentials for its origin unless the request has its own."""
        # The connection to a proxy serves many origins.
        if not proxy and not self._kept.keeps(url[: url.find("/", 8)], time.monotonic()):
            transfer.close_connection()
        if url.startswith("https"):
            transfer.use_tls(
                self._ca_file or public_authorities(), self._tls_sessions.cache_for(origin_of(url))
            )
        added = None if self._signer is None else self._signer.headers(url)
        if not self._authorizations:
            transfer.prepare(request, url, cookie, proxy, added)
            return
        value = self._authorizations.get(url[: url.find("/", len("https://"))], "")
        if any(name.lower() == "authorization" for name in request.headers):
            value = ""
        if value and not value.startswith(DIGEST):
            added = {**(added or {}), "Authorization": value}
        transfer.prepare(request, url, cookie, proxy, added)
        if value.startswith(DIGEST):
            transfer.respond_to_challenges(value.removeprefix(DIGEST))

    def _new_transfer(self) -> Transfer:
        return Transfer(self.settings, self._base_headers, self._guard)

    async def _perform(self, transfer: Transfer) -> None:
        multi, watch = self._multi, self._watch
        if multi is None or watch is None:
            raise UsageError("the fetcher is not open", remedy="await open() before the first fetch")
        if not multi.running:
            watch.start()
        try:
            transfer.unread = await multi.start(transfer.curl)
        except pycurl.error as error:
            if not transfer.is_cut:
                raise _failure_of(transfer, error) from None
            transfer.unread = 0.0
        except asyncio.CancelledError:
            if self._multi is None and not is_cancelled():
                raise ConnectError("the fetcher was closed while the request was in flight") from None
            raise
        finally:
            multi.end(transfer.curl)

    async def _connect_afresh(
        self, transfer: Transfer, error: _OnlyDeadConnections | ForbiddenAddress
    ) -> None:
        """Let a failed request open a new connection, unless the guard still refuses the address."""
        if isinstance(error, ForbiddenAddress) and (
            self._guard is None or not await self._guard.allows_by_now(transfer.refused)
        ):
            raise error
        transfer.connect_afresh()  # a pooled connection would be reused without asking the guard again

    def _run(
        self, transfer: Transfer, request: Request, on_headers: HeaderHook | None
    ) -> Coroutine[Any, Any, None]:
        performing = self._perform(transfer)
        if on_headers is None:
            return performing
        return HeaderGate(transfer, request, on_headers).pass_through(performing)

    def _response(self, transfer: Transfer, request: Request, block: bytes, body: bytes) -> Response:
        if self._adds_times:
            request = request.replace(meta={**request.meta, HTTP_TRACE: transfer.trace()})
        getinfo = transfer.curl.getinfo
        return Response(
            request.url,
            getinfo(pycurl.RESPONSE_CODE),
            headers=block,
            body=body,
            request=request,
            latency=transfer.latency,
            ip=getinfo(pycurl.PRIMARY_IP),
            protocol=transfer.protocol,
        )

    async def _complete(self, response: Response, request: Request, transfer: Transfer, names: bytes) -> None:
        """Decode or cut the body, and store the cookies. ``names``: the header block in lower case."""
        limit = request.max_body or self.settings.max_body
        if response.body and b"\ncontent-encoding:" in names:
            response.wire_body = response.body
            response.body = await self._decoded(response, names, limit, transfer.cuts)
        if transfer.cuts and (transfer.is_cut or len(response.body) > limit):
            response.body, response.is_truncated = response.body[:limit], True
        if b"\nset-cookie:" in names:
            await self._absorb(response)

    async def _absorb(self, response: Response) -> None:
        if not self._suffixes_read:
            await load_suffixes()
            self._suffixes_read = True
        self.cookies.absorb(response)

    async def _decoded(self, response: Response, names: bytes, limit: int, cuts: bool) -> bytes:
        codings = content_codings(names)
        body = response.body
        if not codings:
            return body
        from skitter.fetch.decoding import decode_body  # noqa: PLC0415 - it loads three libraries

        try:
            if len(body) <= _DECODE_IN_THREAD and len(codings) < 2:  # each coding may multiply the size
                return decode_body(body, codings, limit, cuts=cuts)
            return await asyncio.to_thread(decode_body, body, codings, limit, cuts=cuts)
        except UndecodableBody:
            if response.ok or response.status in self.settings.allowed_statuses:
                raise
            return b""  # the status decides; the text of a redirect or an error does not matter


def _sendable(url: str) -> str:
    if url.startswith(_SCHEMES) and url.isascii() and " " not in url:
        return url
    # The URL is not normalized: send what a browser would send.
    href = normalize(url)
    if href is None or not href.startswith(_SCHEMES):
        raise UnsendableRequest(
            f"not an http(s) URL: {url!r}", remedy="use an absolute http(s) URL", field="url"
        )
    return href


def _failure_of(transfer: Transfer, error: pycurl.error) -> FetchError | _OnlyDeadConnections:
    """Return the reason why a transfer has failed."""
    code, message = error.args[0], str(error.args[1])
    if transfer.is_late:
        return TooLate("the request missed its time slot for this host")
    if transfer.refused:
        return forbidden(transfer.refused)
    if transfer.is_fragmented:
        return ProtocolError("the body comes in chunks of a few bytes")
    if message.startswith("Connection died, tried") and not transfer.fresh:
        return _OnlyDeadConnections()
    getinfo = transfer.curl.getinfo
    tunnel_status = getinfo(pycurl.HTTP_CONNECTCODE)
    return fetch_error(
        code,
        message,
        responded=transfer.has_responded and tunnel_status < 300,
        by_proxy=bool(getinfo(pycurl.USED_PROXY)),
        connected=getinfo(pycurl.CONNECT_TIME) > 0,
        works=proxy_works(
            code,
            tunnel_status,
            getinfo(pycurl.PROXY_ERROR),
            sent=getinfo(pycurl.REQUEST_SIZE) > 0,
        ),
    )


class StallWatch:
    """Checks all running transfers periodically, so that the read timeout costs a request nothing.

    A transfer is ended when several checks in a row find that no byte has moved in either direction. Counting checks
    instead of seconds keeps a busy event loop from ending transfers whose data has arrived but was not read yet.
    """

    def __init__(self, running: Mapping[pycurl.Curl, asyncio.Future[float]], limit: float) -> None:
        """``limit``: seconds without a byte."""
        self._running = running
        self._limit = limit
        self._interval = min(limit / _MIN_STALL_CHECKS, _MAX_STALL_INTERVAL)
        self._checks = max(_MIN_STALL_CHECKS, round(limit / self._interval))
        self._timer: asyncio.TimerHandle | None = None
        self._seen: dict[asyncio.Future[float], tuple[int, int]] = {}
        """Bytes that each transfer had moved at the last check, and the number of checks before it without a change."""

    def start(self) -> None:
        """Check from now on until no transfer runs."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._interval, self._check)

    def stop(self) -> None:
        """Stop checking."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer = None
        seen, self._seen = self._seen, {}
        for curl, future in list(self._running.items()):
            moved = _moved_bytes(curl)
            before, checks = seen.get(future, (None, 0))
            checks = checks + 1 if moved is not None and moved == before else 0
            if moved is not None:
                self._seen[future] = moved, checks
            if checks >= self._checks and not future.done():
                future.set_exception(
                    TimedOut(
                        f"no data for {self._limit:g} s",
                        remedy="raise read_timeout if the server is slow",
                        field="read_timeout",
                    )
                )
        if self._running:
            self.start()


def _moved_bytes(curl: pycurl.Curl) -> int | None:
    """Return the bytes that a transfer has sent and received; ``None`` before it is connected, which has its own timeout."""
    getinfo = curl.getinfo
    if getinfo(pycurl.PRETRANSFER_TIME) == 0:
        return None
    moved = getinfo(pycurl.SIZE_DOWNLOAD_T) + getinfo(pycurl.SIZE_UPLOAD_T) + getinfo(pycurl.HEADER_SIZE)
    return int(moved)
