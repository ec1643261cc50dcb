"""Storage: user-defined storage for the visited pages and the cookies of a collector, beyond one crawl."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec

from skitter._utils.concurrency import SingleThreadExecutor
from skitter.errors import FetchError
from skitter.fetch.cookie_jar import Cookie, CookieJar
from skitter.fetch.cookies import CookieJars, cookie_header, given_cookies, site_of, store_cookies
from skitter.links import Links, SkippedLinks
from skitter.request import Request, fingerprint
from skitter.response import Response
from skitter.scope import UNPARSABLE

VISITED_BEFORE = "visited-before"
"""Reason under which requests that the storage knows are counted."""


class Storage(Protocol):
    """Keeps visited pages and cookies, like ``storage.Storage`` of Colly. Start requests are always fetched.

    The methods may block. Each worker process calls them from one thread. The queue of the job and its record of known
    requests stay in the frontier.
    """

    def init(self) -> None:
        """Prepare the storage. Called once at the start of each worker process."""

    def visited(self, request_id: str) -> None:
        """Remember a request whose callbacks have ended without an error. It may be called again for the same request.

        ``request_id``: 32 hexadecimal digits; the same for equal requests of all jobs.
        """

    def is_visited(self, request_id: str) -> bool:
        """Return whether a request is remembered. A visit of it is then counted as ``refused/visited-before``."""

    def cookies(self, url: str) -> str:
        """Return the text that :meth:`set_cookies` received last for this URL; empty if there is none.

        ``url``: ``https://SITE/`` for the site of the cookies, which is a registered domain or an address.
        """

    def set_cookies(self, url: str, cookies: str) -> None:
        """Keep the cookies of a site: a text that replaces the previous text."""


class StorageThread:
    """A storage, called in its own thread."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._thread = SingleThreadExecutor("storage")

    async def init(self) -> None:
        """Prepare the storage."""
        await self._thread.run(self._storage.init)

    async def mark(self, request: Request) -> None:
        """Remember a request."""
        await self._thread.run(lambda: self._storage.visited(_id_of(request)))

    async def unvisited(self, results: Iterable[Any]) -> list[Any]:
        """Return the results of a page without the requests that are remembered. ``dont_filter`` requests stay."""
        expanded: list[Any] = []
        for result in results:
            if isinstance(result, Links):
                links = list(result)
                expanded += [*links, SkippedLinks(UNPARSABLE, len(result) - len(links))]
            else:
                expanded.append(result)

        def select() -> list[Any]:
            unvisited = [result for result in expanded if not self._remembers(result)]
            return [*unvisited, SkippedLinks(VISITED_BEFORE, len(expanded) - len(unvisited))]

        return [
            result
            for result in await self._thread.run(select)
            if not isinstance(result, SkippedLinks) or result.amount
        ]

    def _remembers(self, result: Any) -> bool:
        is_filtered = isinstance(result, Request) and not result.dont_filter
        return is_filtered and self._storage.is_visited(_id_of(result))

    async def cookies(self, url: str) -> str:
        """Return the stored cookies of a site."""
        return await self._thread.run(self._storage.cookies, url)

    async def set_cookies(self, url: str, cookies: str) -> None:
        """Store the cookies of a site."""
        await self._thread.run(self._storage.set_cookies, url, cookies)


def _id_of(request: Request) -> str:
    return fingerprint(request, 0).hex()


_decode = msgspec.json.Decoder(dict[str, list[Cookie]]).decode


class StorageCookies:
    """The cookies of a worker in a storage: the jars of a site by session, as one text. Implements :class:`Cookies`."""

    def __init__(self, storage: StorageThread, initial: Mapping[str, Iterable[str]]) -> None:
        self._storage = storage
        self._initial = CookieJars()
        if initial:
            self._initial.seed(given_cookies(initial))
        self._lock = asyncio.Lock()

    async def open(self) -> None:
        """Prepare the cookies."""
        await asyncio.to_thread(site_of, "https://example.com/")  # loads the Public Suffix List

    async def header_for(self, request: Request) -> str | None:
        site = site_of(request.url)
        return cookie_header(self._jar(site, request.session, await self._read(site)), request)

    async def absorb(self, response: Response) -> None:
        if not response.header("set-cookie"):
            return
        site, session = site_of(response.url), response.request.session if response.request else ""
        async with self._lock:
            jars = await self._read(site)
            jar = self._jar(site, session, jars)
            store_cookies(jar, response)
            jars[session] = list(jar)
            try:
                await self._storage.set_cookies(_url_of(site), msgspec.json.encode(jars).decode())
            except Exception as error:
                raise _failure(error) from error

    def _jar(self, site: str, session: str, jars: Mapping[str, list[Cookie]]) -> CookieJar:
        return CookieJar(jars[session]) if session in jars else self._initial.new_jar(site)

    async def _read(self, site: str) -> dict[str, list[Cookie]]:
        try:
            text = await self._storage.cookies(_url_of(site))
            return _decode(text) if text else {}
        except Exception as error:
            raise _failure(error) from error


def _url_of(site: str) -> str:
    return f"https://{site}/"


def _failure(error: Exception) -> FetchError:
    return FetchError(
        f"the storage of the collector failed: {type(error).__name__}: {error}", remedy="correct it"
    )
