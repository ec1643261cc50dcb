"""The contracts of the sources of a request's user agent, proxy, cookies and session.

Each source is called once per request. A source may also define ``async open()`` and ``async close()``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import msgspec

from skitter._utils.notes import Notes
from skitter.errors import FetchError, SettingsError, SkitterError
from skitter.fetch.address_guard import AddressGuard
from skitter.fetch.contract import Fetcher, ProxyError
from skitter.fetch.cookie_jar import CookieJar
from skitter.request import Request
from skitter.response import Response
from skitter.settings import Settings


class SourceError(SkitterError):
    """A source cannot be opened: its file or package is missing, or its list cannot be read."""


@runtime_checkable
class ReadableCookies(Protocol):
    """Cookies that can also be read with their domains and paths, which a browser needs."""

    async def jar_for(self, request: Request) -> CookieJar:
        """Return a copy of the cookies of the session and the site of a request."""


class SourceContext(msgspec.Struct, frozen=True):
    """What a fetcher or a source needs to know when it is created."""

    settings: Settings
    """Settings of the job."""
    rest: str = ""
    """The text after the plugin's name: ``os=linux`` of ``random:os=linux``."""
    notes: Notes | None = None
    """Notes shared with all workers; ``None`` if a single page is fetched outside of any job."""
    guard: AddressGuard = msgspec.field(default_factory=AddressGuard)
    """Decides which addresses the crawl may connect to. A fetcher asks it for each address before it connects."""
    plain: Fetcher | None = None
    """Fetches without an identity, for lists that are read from a URL; it is open before the source is."""
    cookies: ReadableCookies | None = None
    """The cookies of the worker, for a fetcher that needs more than the ``Cookie`` header; ``None`` if they cannot be read."""


class IdentitySources(msgspec.Struct, frozen=True, eq=False):
    """The sources of identity for some of the requests of a job, instead of the sources in the settings."""

    user_agents: Any = None
    """Like the setting ``user_agents``; ``None``: the setting of the job."""
    proxies: Any = None
    """Like the setting ``proxies``; ``None``: the setting of the job. ``"none"``: no proxies."""


@runtime_checkable
class IdentityChooser(Protocol):
    """A spider that chooses sources of identity by request."""

    def identity_of(self, request: Request) -> IdentitySources | None:
        """Return the sources for a request; ``None``: the sources in the settings. Called for every request."""


@runtime_checkable
class UserAgents(Protocol):
    """Selects the browser headers of each request."""

    def headers(self, request: Request) -> Mapping[str, str]:
        """Return ``User-Agent`` and related headers. Headers of the request itself take precedence."""


@runtime_checkable
class Proxies(Protocol):
    """Selects the proxy of each request, and is notified of the result."""

    def choose(self, request: Request, session: str) -> str:
        """Return a proxy URL, or an empty string for a direct connection.

        ``session`` is the name of the request's session, or an empty string. Raises :class:`NoProxyAvailable`.
        """

    def usable(self, proxy: str) -> bool:
        """Return whether a proxy that was selected earlier may still be used."""

    def report(self, proxy: str, request: Request, error: FetchError | None) -> bool:
        """Record how a request through a proxy ended.

        Return whether only the proxy is at fault. The attempt then does not count, and the request is sent again
        through another proxy.
        """


@runtime_checkable
class Cookies(Protocol):
    """Stores cookies, by ``Request.session``."""

    async def header_for(self, request: Request) -> str | None:
        """Return the value of the ``Cookie`` header, including ``request.cookies``."""

    async def absorb(self, response: Response) -> None:
        """Store the cookies that a response sets. ``response.request`` is the request as it was sent."""


class NoProxyAvailable(ProxyError):
    """Every proxy of the list has failed recently."""

    def __init__(self, message: str, wait: float, *, free: bool) -> None:
        super().__init__(message, remedy="check the proxies, or add more of them", field="proxies")
        self.wait = wait
        """Seconds until the first proxy is tried again."""
        self.free = free


def existing_file(name: str, form: str) -> Path:
    """Return the path of a file that a setting names. Raises :class:`~skitter.errors.SettingsError` if it does not exist.

    ``form``: how the setting is written, such as ``proxies=file:PATH``.
    """
    path = Path(name)
    if not name or not path.is_file():
        raise SettingsError(f"file not found: {name!r}", remedy=f"check the path in {form}")
    return path
