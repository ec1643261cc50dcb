"""JarCookies: the jars of one process for a fetcher that keeps no cookies itself."""

from __future__ import annotations

import asyncio

from skitter.fetch.cookies import CookieJars
from skitter.request import Request
from skitter.response import Response
from skitter.web.urls import registered_domain


class JarCookies:
    """Cookies of this process; see :class:`~skitter.fetch.cookies.CookieJars`."""

    def __init__(self, jars: CookieJars) -> None:
        self._jars = jars

    async def open(self) -> None:
        """Make ready."""
        # The first look-up reads the Public Suffix List, which would hold up the loop.
        await asyncio.to_thread(registered_domain, "example.com")

    async def header_for(self, request: Request) -> str | None:
        """Return the value of the ``Cookie`` header."""
        return self._jars.header_for(request)

    async def absorb(self, response: Response) -> None:
        """Keep what a response sets."""
        if response.header("set-cookie"):
            self._jars.absorb(response)
