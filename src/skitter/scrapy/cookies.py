"""SharedCookiesMiddleware: Scrapy's cookies, shared by all processes of a job, and not lost if a process is killed.

A process that continues a job does not send its start requests again. Without this middleware, a crawl that logs in would
lose its login when it is killed, and a second process would never be logged in.
"""

from __future__ import annotations

import contextlib
import time
from http.cookiejar import Cookie
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import msgspec
import scrapy
from scrapy.downloadermiddlewares.cookies import CookiesMiddleware
from scrapy.utils.httpobj import urlparse_cached

from skitter.errors import SkitterError
from skitter.fetch.cookies import load_suffixes, site_of
from skitter.frontier.options import SettingsChanges
from skitter.scrapy.leases import leases_of

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.http.cookies import CookieJar

    from skitter.frontier.contract import Frontier

_RETENTION = 30 * 86_400.0
"""Time for which the cookies of a site are stored after their last change, in seconds."""
_FIELDS = (
    "version", "name", "value", "port", "port_specified", "domain", "domain_specified", "domain_initial_dot", "path",
    "path_specified", "secure", "expires", "discard", "comment", "comment_url", "rfc2109",
)  # fmt: skip
"""Attributes of a cookie that are stored: all attributes that decide where it is sent."""
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[list[Any]]).decode


class SharedCookiesMiddleware(CookiesMiddleware):
    """Scrapy's cookies middleware, with the cookies of each site in a note of the frontier.

    The note is read before each request and written before the callback sees the response, both from the first cookie of
    the job on: a job without cookies pays nothing. If the frontier does not respond, the request is sent with the cookies
    of this process; its lease is lost then as well.
    """

    def __init__(self, debug: bool = False) -> None:
        super().__init__(debug)
        self._known: WeakKeyDictionary[CookieJar, dict[str, bytes]] = WeakKeyDictionary()
        """For each jar and site, the note that was last read or written."""
        self._has_suffixes = False

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> SharedCookiesMiddleware:
        """Create the middleware. Raises :class:`scrapy.exceptions.NotConfigured` without ``COOKIES_ENABLED``."""
        middleware = super().from_crawler(crawler)
        middleware.crawler = crawler
        return middleware

    async def process_request(  # type: ignore[override]
        self,
        request: Request,
        spider: Spider | None = None,  # noqa: ARG002 - Scrapy 2.13 passes it
    ) -> Request | Response | None:
        """Add the cookies of all processes."""
        if not request.meta.get("dont_merge_cookies", False):
            if leases_of(self.crawler).shares_cookies:
                await self._read(request)
            super().process_request(request, *self._spider())
            if request.cookies:
                await self._store(request)
        return None

    async def process_response(  # type: ignore[override]
        self,
        request: Request,
        response: Response,
        spider: Spider | None = None,  # noqa: ARG002 - Scrapy 2.13 passes it
    ) -> Request | Response:
        """Store the cookies that a response sets."""
        if not request.meta.get("dont_merge_cookies", False):
            super().process_response(request, response, *self._spider())
            if "Set-Cookie" in response.headers:
                await self._store(request)
        return response

    def _spider(self) -> tuple[Spider | None, ...]:
        """Return the additional argument that Scrapy 2.13 needs and later versions deprecate."""
        return () if scrapy.version_info >= (2, 14) else (self.crawler.spider,)

    async def _locate(self, request: Request) -> tuple[CookieJar, str, str]:
        """Return the jar of a request, its site, and the key of the note."""
        if not self._has_suffixes:
            await load_suffixes()
            self._has_suffixes = True
        session, site = request.meta.get("cookiejar"), site_of(request.url)
        return self.jars[session], site, f"scrapy:cookies:{site}:{'' if session is None else repr(session)}"

    async def _read(self, request: Request) -> None:
        """Replace the cookies of a site by the cookies in its note, if the note has changed."""
        frontier = leases_of(self.crawler).frontier
        if frontier is None or not urlparse_cached(request).hostname:
            return
        jar, site, key = await self._locate(request)
        with contextlib.suppress(SkitterError):
            note = await frontier.notes.get(key)
            known = self._known.setdefault(jar, {})
            if note is None:
                known.pop(site, None)
            elif known.get(site) != note:
                for cookie in _cookies_of(jar, site):
                    jar.clear(cookie.domain, cookie.path, cookie.name)
                for values in _decode(note):
                    jar.set_cookie(Cookie(**dict(zip(_FIELDS, values, strict=True)), rest={}))
                known[site] = note

    async def _store(self, request: Request) -> None:
        """Store the cookies of a site if they have changed."""
        leases = leases_of(self.crawler)
        frontier = leases.frontier
        if frontier is None or not urlparse_cached(request).hostname:
            return
        jar, site, key = await self._locate(request)
        own = _cookies_of(jar, site)
        with contextlib.suppress(SkitterError):
            while True:
                before = self._known.get(jar, {}).get(site)
                after = _encode(
                    [[getattr(cookie, name) for name in _FIELDS] for cookie in _cookies_of(jar, site)]
                )
                if after == before:
                    return
                if not leases.shares_cookies:
                    await _switch_on(frontier)
                    leases.shares_cookies = True
                if await frontier.notes.compare_and_swap(key, before, after, _RETENTION):
                    self._known.setdefault(jar, {})[site] = after
                    return
                await self._read(request)
                for cookie in own:  # newer than the cookies of the other process
                    jar.set_cookie(cookie)


def _cookies_of(jar: CookieJar, site: str) -> list[Cookie]:
    """Return the cookies of a site, sorted."""
    now = int(time.time())
    found = [
        cookie
        for domain, by_path in jar._cookies.items()  # noqa: SLF001 - iterating over all cookies takes long in a broad crawl
        if _belongs(domain, site)
        for by_name in by_path.values()
        for cookie in by_name.values()
        if not cookie.is_expired(now)
    ]
    return sorted(found, key=lambda cookie: (cookie.domain, cookie.path, cookie.name))


def _belongs(domain: str, site: str) -> bool:
    domain = domain.lstrip(".").removesuffix(".local")  # the suffix stands for a host without a dot
    return domain == site or domain.endswith(f".{site}")


async def _switch_on(frontier: Frontier) -> None:
    if not (await frontier.control.settings_changes()).shared_cookies:
        await frontier.control.change_settings(SettingsChanges(shared_cookies=True))
