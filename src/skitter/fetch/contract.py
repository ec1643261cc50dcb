"""The contract of fetchers: a fetcher takes a request and returns its response."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, Protocol, runtime_checkable

import msgspec

from skitter.errors import FetchError
from skitter.request import Request
from skitter.response import Response


class ConnectError(FetchError):
    """The connection was refused, reset before the response, or the server is unreachable."""

    kind = "connect"


class UnresolvedHost(FetchError):
    """The host name does not resolve."""

    kind = "dns"
    unreachable = True


class ForbiddenAddress(FetchError):
    """The address is in a network that is closed to the crawl, so no connection was made."""

    kind = "forbidden"
    retryable = False


class TlsError(FetchError):
    """The TLS handshake or the certificate failed."""

    kind = "tls"
    retryable = False
    unreachable = True


class TimedOut(FetchError):
    """Connecting, waiting for data, or the whole transfer took longer than allowed."""

    kind = "timeout"


class Disconnected(FetchError):
    """The connection broke, or the body ended short of its stated length."""

    kind = "disconnected"


class ProtocolError(FetchError):
    """The response of the server is not HTTP."""

    kind = "protocol"


class BodyTooLarge(FetchError):
    """The body exceeded the limit, in compressed or decompressed form."""

    kind = "too_large"
    retryable = False


class UndecodableBody(FetchError):
    """The body of a page cannot be decompressed with its declared Content-Encoding."""

    kind = "encoding"


class ProxyError(FetchError):
    """The proxy is unreachable, rejects the request, or fails."""

    kind = "proxy"


class BehindProxy(ProxyError):
    """The request failed behind the proxy, or the proxy reports that the server is unreachable."""


class UnsendableRequest(FetchError):
    """A request that cannot be sent, for example with another scheme, a line break in a header, or an invalid method."""

    kind = "request"
    retryable = False


class TooLate(FetchError):
    """The request missed the time slot that the delay of its host allows. It is queued again; no attempt counts."""

    kind = "late"
    free = True


class Aborted(FetchError):
    """The header hook rejected the response; its body was not read."""

    kind = "aborted"
    retryable = False


class BodySink(Protocol):
    """Receives the body of a response instead of memory. The body of the response object is then empty."""

    async def write(self, data: bytes) -> None:
        """Write a part of the body as it was transferred. The transfer pauses while too much data waits to be written.

        An error ends the transfer and is raised by the fetch.
        """


HeaderHook = Callable[[Response], Awaitable[bool | BodySink]]
"""Receives a response without its body. Returns whether to read the body, or the sink that takes it."""


class FetchPhases(msgspec.Struct, frozen=True):
    """When the phases of a fetch ended, in seconds since its beginning. 0: unknown, or the phase did not take place."""

    resolved: float = 0.0
    """The host name was resolved."""
    connected: float = 0.0
    """The connection to the server or the proxy was established."""
    secured: float = 0.0
    """The TLS handshake was complete."""
    answered: float = 0.0
    """The first byte of the response had arrived."""
    ended: float = 0.0
    """The transfer had ended."""


class SendPermit(Protocol):
    """Permission to send one request, which may expire while the fetcher prepares the request.

    A lease on a host with a fixed delay is valid for a short time only. A fetcher that may wait before it sends
    (for a connection, a proxy, a browser) asks the permit again as late as it can.
    """

    @property
    def expires(self) -> bool:
        """Whether :meth:`may_send` can ever return ``False``. If not, a fetcher need not ask."""

    def may_send(self) -> bool:
        """Return whether the request may be sent now. If not, the fetcher raises :class:`TooLate`."""

    def report_connecting(self, seconds: float) -> None:
        """Report the time that a new connection for the request took, or for which a late request has waited.

        Later leases of the host allow for this time.
        """

    @property
    def is_traced(self) -> bool:
        """Whether the request has a trace. If not, a fetcher need not call :meth:`report_phases`."""

    def report_phases(self, phases: FetchPhases) -> None:
        """Report the phases of the transfer at its end, successful or not."""


class UnconditionalPermit:
    """Permits a request at any time: for fetches outside of a job, and for fetches that follow a permitted one."""

    expires = False
    is_traced = False

    def may_send(self) -> bool:
        """Return ``True``."""
        return True

    def report_connecting(self, seconds: float) -> None:
        """Do nothing: no lease depends on it."""

    def report_phases(self, phases: FetchPhases) -> None:
        """Do nothing: there is no trace."""


UNCONDITIONAL: Final[SendPermit] = UnconditionalPermit()


class FetcherCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a fetcher does by itself. A fetcher that wraps another one replaces the fields that it changes."""

    keeps_cookies: bool = False
    """Whether it keeps cookies. Otherwise it receives them as a ``Cookie`` header."""
    shows_headers: bool = False
    """Whether it calls ``on_headers`` before it reads the body. Otherwise the hook is called after the fetch."""
    renders_pages: bool = False
    """Whether it runs the scripts of pages. robots.txt is then fetched by HTTP instead."""
    concurrency: int | None = None
    """Maximum number of concurrent requests. Further requests wait. ``None``: no limit."""
    blocked_statuses: frozenset[int] = frozenset()
    """Statuses that end a session. The request is retried with another session."""
    report_blocked: Callable[[Request], Awaitable[None]] | None = None
    """Called with a request as it was sent (``response.request``) if the site has blocked its identity. Retires its session,
    and stops using its proxy for a while. The worker calls it before the request is retried. ``None``: the fetcher chooses neither."""
    outage: Callable[[], str] | None = None
    """Returns why its requests wait now, such as proxies that do not respond; an empty string if they do not wait."""


@runtime_checkable
class Fetcher(Protocol):
    """Takes a request and returns its response. Does not follow redirects."""

    @property
    def capabilities(self) -> FetcherCapabilities:
        """What the fetcher does by itself. Constant while it is open; a class attribute of most fetchers."""

    async def open(self) -> None:
        """Acquire resources. Called once, on the running event loop."""

    async def fetch(
        self, request: Request, *, permit: SendPermit, on_headers: HeaderHook | None = None
    ) -> Response:
        """Fetch one request. Any HTTP status is a response, not an error.

        ``permit``: pass it on to a wrapped fetcher, or ask it right before sending.
        ``on_headers``: given only to a fetcher whose capabilities include ``shows_headers``. If it returns ``False``,
        leave the body unread and raise :class:`Aborted`.

        Raises :class:`FetchError`.
        """

    async def close(self) -> None:
        """Abort running fetches and release resources."""


class WrappingFetcher:
    """Base of a fetcher that wraps another fetcher. The two are opened and closed together."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher

    @property
    def capabilities(self) -> FetcherCapabilities:
        """The capabilities of the wrapped fetcher."""
        return self._fetcher.capabilities

    async def open(self) -> None:
        """Open the wrapped fetcher."""
        await self._fetcher.open()

    async def close(self) -> None:
        """Close the wrapped fetcher."""
        await self._fetcher.close()


def fetch_with_hook(
    fetcher: Fetcher, request: Request, permit: SendPermit, on_headers: HeaderHook | None
) -> Coroutine[Any, Any, Response]:
    """Fetch a request and call ``on_headers``: before the body is read if the fetcher can do that, otherwise after the fetch.

    Raises :class:`FetchError`; :class:`Aborted` if the hook rejects the response.
    """
    if on_headers is None:
        return fetcher.fetch(request, permit=permit)
    if fetcher.capabilities.shows_headers:
        return fetcher.fetch(request, permit=permit, on_headers=on_headers)
    return _fetch_then_hook(fetcher, request, permit, on_headers)


async def _fetch_then_hook(
    fetcher: Fetcher, request: Request, permit: SendPermit, on_headers: HeaderHook
) -> Response:
    response = await fetcher.fetch(request, permit=permit)
    wanted = await on_headers(response)
    if not wanted:
        raise Aborted("the header hook rejected the response")
    if wanted is True:
        return response
    await wanted.write(response.body)
    return response.replace(body=b"")
