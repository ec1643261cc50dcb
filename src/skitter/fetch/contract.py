"""The fetcher contract: request in, response out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Protocol, runtime_checkable

from skitter.errors import SkitterError
from skitter.request import Request
from skitter.response import Response


class FetchError(SkitterError):
    """A request that got no usable response. ``kind`` names the class for counters and retry rules."""

    kind = "fetch"
    retryable = True
    """Whether the same request may well succeed later."""
    free = False
    """Whether the attempt is not to count: it failed on our side and never came to the server."""
    module = ""
    """Id of the downloader, where there are several."""


class ConnectError(FetchError):
    """No connection: refused, unreachable, reset before the answer began."""

    kind = "connect"


class UnresolvedHost(FetchError):
    """The host name does not resolve."""

    kind = "dns"


class TlsError(FetchError):
    """The TLS handshake or the certificate failed."""

    kind = "tls"
    retryable = False


class TimedOut(FetchError):
    """Connecting, waiting for data, or the whole transfer took longer than allowed."""

    kind = "timeout"


class Disconnected(FetchError):
    """The connection broke, or the body ended short of its stated length."""

    kind = "disconnected"


class ProtocolError(FetchError):
    """The server's answer is not HTTP."""

    kind = "protocol"


class BodyTooLarge(FetchError):
    """The body passed the limit, on the wire or after decompression."""

    kind = "too_large"
    retryable = False


class UndecodableBody(FetchError):
    """The body does not decompress by its declared Content-Encoding."""

    kind = "encoding"


class ProxyError(FetchError):
    """The proxy cannot be reached, refuses us, or fails."""

    kind = "proxy"


class BehindProxy(ProxyError):
    """The request came past the proxy, or the proxy says that it cannot reach the server."""


class UnsendableRequest(FetchError):
    """A request that cannot be put on the wire: not http(s), a line break in a header, no such method."""

    kind = "request"
    retryable = False


class TooLate(FetchError):
    """The request could not be sent in the time in which a promised distance allows it; its turn will come again."""

    kind = "late"
    free = True


class Aborted(FetchError):
    """Whoever looked at the headers of the answer wanted no more of it."""

    kind = "aborted"
    retryable = False


class Fetcher(Protocol):
    """Request in, response out. Follows no redirect; raises :class:`FetchError`.

    A fetcher that keeps cookies itself says so by an attribute ``keeps_cookies = True``; any other gets them
    as a ``Cookie`` header.
    """

    async def open(self) -> None:
        """Make ready (called once, on the running loop)."""
        ...

    async def fetch(self, request: Request) -> Response:
        """Fetch one request. Any HTTP status is a response, not an error."""
        ...

    async def close(self) -> None:
        """Abort what is in flight and close all connections."""
        ...


class MayStart(Protocol):
    """Tells whether a request may still be sent."""

    def __call__(self, connecting: float = 0.0) -> bool:
        """Tell it; ``connecting``: seconds spent on a new connection for it, which the next turns will allow for."""
        ...


MAY_START: ContextVar[MayStart | None] = ContextVar("may_start", default=None)
"""Within a turn of a worker whose host has a promised distance: tells whether its request may still be sent; if not,
:class:`TooLate` hands it back. Set for a fetcher that says by an attribute ``asks_before_sending = True`` that it
asks, as late as it can."""


def asks_before_sending(fetcher: Fetcher) -> bool:
    """Tell whether a fetcher heeds :data:`MAY_START`."""
    return getattr(fetcher, "asks_before_sending", False)


HeaderHook = Callable[[Response], Awaitable[bool]]
"""Gets a response that has no body yet; its answer tells whether the body is wanted."""


@runtime_checkable
class HeaderWatching(Protocol):
    """A fetcher that can show the headers of an answer before it reads the body."""

    async def fetch_watched(self, request: Request, on_headers: HeaderHook) -> Response:
        """Fetch as ``fetch`` does; raises :class:`Aborted`, with the body left unread, if it is not wanted."""
        ...


async def fetch_watched(fetcher: Fetcher, request: Request, on_headers: HeaderHook) -> Response:
    """Fetch with somebody looking at the headers; a fetcher that cannot show them before shows them after.

    Raises :class:`Aborted` if the answer is not wanted.
    """
    if isinstance(fetcher, HeaderWatching):
        return await fetcher.fetch_watched(request, on_headers)
    response = await fetcher.fetch(request)
    if not await on_headers(response):
        raise Aborted("the answer was not wanted")
    return response
