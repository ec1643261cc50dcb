"""The contracts of the sources: what gives a request its user agent, its proxy, its cookies and its session.

Each is asked once per request. A source may besides have ``async open()`` and ``async close()``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from skitter._utils.notes import Notes
from skitter.errors import SettingsError, SkitterError
from skitter.fetch.contract import Fetcher, FetchError, ProxyError
from skitter.request import Request
from skitter.response import Response
from skitter.settings import Settings


class SourceError(SkitterError):
    """A source that cannot be opened: no such file, a list that cannot be read, a missing package."""


class SourceContext(msgspec.Struct, frozen=True):
    """What a fetcher or a source is told when it is made."""

    settings: Settings
    """Settings of the job."""
    rest: str = ""
    """What stands after the part's name: ``os=linux`` of ``random:os=linux``."""
    notes: Notes | None = None
    """Shared with all workers; ``None`` where a single page is fetched outside of any job."""
    plain: Fetcher | None = None
    """Fetches as nobody in particular, for lists that are read by their URL; open when the source is."""


class UserAgents(Protocol):
    """Gives each request the headers of a browser."""

    def headers(self, request: Request) -> Mapping[str, str]:
        """Return ``User-Agent`` and what goes with it. Headers of the request itself win."""
        ...


class Proxies(Protocol):
    """Gives each request a proxy, and hears how it went."""

    def choose(self, request: Request, session: str) -> str:
        """Return a proxy URL, or an empty one for none; ``session`` is the name of the session, if any.

        Raises :class:`AllProxiesRest`.
        """
        ...

    def usable(self, proxy: str) -> bool:
        """Tell whether a proxy chosen earlier may still be used."""
        ...

    def report(self, proxy: str, request: Request, error: FetchError | None) -> bool:
        """Hear how a request through a proxy ended.

        Returns whether the failure is the proxy's alone: then the attempt does not count, and the request
        goes out again by another one.
        """
        ...


class Cookies(Protocol):
    """Keeps cookies, by ``Request.session``."""

    async def header_for(self, request: Request) -> str | None:
        """Return the value of the ``Cookie`` header, that of ``request.cookies`` included."""
        ...

    async def absorb(self, response: Response) -> None:
        """Keep what a response sets; its request is the one that was sent."""
        ...


class AllProxiesRest(ProxyError):
    """Every proxy of the list has failed lately."""

    def __init__(self, message: str, wait: float, *, free: bool) -> None:
        super().__init__(message, remedy="check the proxies, or give more of them")
        self.wait = wait
        """Seconds until the first of them is tried again."""
        self.free = free


def existing_file(name: str) -> Path:
    """Return a file that a setting names. Raises :class:`~skitter.errors.SettingsError` if there is none."""
    path = Path(name)
    if not name or not path.is_file():
        raise SettingsError(f"there is no file {name!r}", remedy="check its name; write file:PATH")
    return path
