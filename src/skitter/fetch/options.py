"""FetchSettings: how the HTTP fetcher connects, waits and limits."""

from __future__ import annotations

import msgspec

from skitter._version import VERSION
from skitter.errors import SettingsError

DEFAULT_USER_AGENT = f"skitter/{VERSION}"

DEFAULT_HEADERS = {
    "Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "Accept-Language": "en",
}


class FetchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of :class:`~skitter.fetch.http.HttpFetcher`.

    Raises :class:`~skitter.errors.SettingsError` for a value outside its range.
    """

    user_agent: str = DEFAULT_USER_AGENT
    """Sent with every request; its product token also selects the group in robots.txt."""
    headers: dict[str, str] = msgspec.field(default_factory=DEFAULT_HEADERS.copy)
    """Sent with every request, in this order, after ``User-Agent``; a request's own headers win."""
    connect_timeout: float = 10.0
    """Seconds for name look-up, TCP and TLS together."""
    read_timeout: float = 30.0
    """Seconds without a single byte in either direction, noticed up to a quarter of that later."""
    timeout: float = 120.0
    """Seconds for the whole transfer; ends an endless trickle. ``Request.timeout`` replaces it."""
    max_body: int = 32 * 1024 * 1024
    """Bytes of a body, on the wire and again after decompression."""
    keep_alive: bool = True
    """Reuse connections. ``False``: a fresh connection for each request."""
    http2: bool = True
    """Offer HTTP/2 to ``https`` hosts. ``False``: HTTP/1.1 only."""
    verify_tls: bool = True
    """Check certificate and host name."""
    ca_file: str = ""
    """PEM file of trusted authorities. Empty: the bundle of ``certifi``."""
    dns_cache_ttl: int = 60
    """Seconds for which a resolved name is kept."""
    max_connections: int = 512
    """Open connections, busy and idle together; past it the idle ones that waited longest are closed and
    then requests wait for their turn."""
    idle_timeout: int = 60
    """Seconds after which an unused connection is no longer reused."""
    proxy: str | None = None
    """Proxy URL for all requests (``http://``, ``https://``, ``socks5://``, ``socks5h://``). ``None``: what
    the environment says (``https_proxy``, ``no_proxy`` ...). Empty: never one. ``Request.proxy`` wins."""

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            if not getattr(self, name) > 0:
                raise SettingsError(
                    f"fetch setting {name} must be greater than 0, not {getattr(self, name)!r}",
                    remedy=f"give {name} a positive number or leave it out",
                )


_POSITIVE = (
    "connect_timeout",
    "read_timeout",
    "timeout",
    "max_body",
    "max_connections",
    "idle_timeout",
)
