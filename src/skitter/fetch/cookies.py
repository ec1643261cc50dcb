"""CookieJars: one jar for each session and site, and the ``Cookie`` header.

Each site (registered domain) has its own jar, found with one dictionary lookup, and a site that never sets a cookie
costs nothing. This also confines a cookie to its site, whatever domain it names.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping

import msgspec

from skitter.errors import SettingsError
from skitter.fetch.contract import UnsendableRequest
from skitter.fetch.cookie_jar import Cookie, CookieJar
from skitter.request import Request
from skitter.response import Response
from skitter.web.urls import host_of, registered_domain

MAX_JAR_BYTES = 64 * 1024 * 1024
"""Maximum size of all jars of a process, in bytes."""


class CookieJars:
    """The cookies of one fetcher. They belong to this process and are not shared with a fleet.

    If the jars grow beyond one of the limits, the least recently used ones are dropped.

    ``max_jars``
        Maximum number of jars (pairs of session and site). Default 10,000.
    ``max_bytes``
        Maximum size of all jars in bytes. Default: :data:`MAX_JAR_BYTES`.
    """

    def __init__(self, max_jars: int = 10_000, max_bytes: int = MAX_JAR_BYTES) -> None:
        self._max_jars = max_jars
        self._max_bytes = max_bytes
        self._bytes = 0
        self._seeds: dict[str, list[Cookie]] = {}
        self._jars: OrderedDict[tuple[str, str], CookieJar] = OrderedDict()
        self.on_change: Callable[[str, str], object] | None = None
        """Called with the session and the site of each jar that a response may have changed."""

    def seed(self, cookies: Iterable[Cookie]) -> None:
        """Add these cookies to every new session. May block, because it may load the Public Suffix List."""
        for cookie in cookies:
            self._seeds.setdefault(registered_domain(cookie.domain), []).append(cookie)

    def header_for(self, request: Request) -> str | None:
        """Return the value of the ``Cookie`` header, or ``None`` for no header.

        ``request.cookies`` are sent in addition to the cookies of the jar, and replace cookies of the same name.
        """
        jar = None
        if self._jars or self._seeds:
            key = request.session, site_of(request.url)
            jar = self._jars.get(key)
            if jar is not None:
                self._jars.move_to_end(key)
                before = jar.size
                header = cookie_header(jar, request)
                self._bytes += jar.size - before  # expired cookies were removed
                return header
            if key[1] in self._seeds:
                jar = self.new_jar(key[1])
        return cookie_header(jar, request) if jar is not None or request.cookies else None

    def copy_for(self, request: Request) -> CookieJar:
        """Return a copy of the jar of a request."""
        site = site_of(request.url)
        jar = self._jars.get((request.session, site))
        return self.new_jar(site) if jar is None else CookieJar(jar)

    def new_jar(self, site: str) -> CookieJar:
        """Return the initial jar of a session at a site."""
        return CookieJar(map(msgspec.structs.replace, self._seeds.get(site, ())))

    def absorb(self, response: Response) -> None:
        """Store the cookies that a response sets in the jar of its request's session."""
        session = response.request.session if response.request else ""
        key = session, site_of(response.url)
        jar = self._jars.pop(key, None)
        if jar is None:
            jar = self.new_jar(key[1])
        else:
            self._bytes -= jar.size
        store_cookies(jar, response)
        if len(jar) or key[1] in self._seeds:
            self._jars[key] = jar
            self._bytes += jar.size
        while self._jars and (len(self._jars) > self._max_jars or self._bytes > self._max_bytes):
            self._bytes -= self._jars.popitem(last=False)[1].size
        if self.on_change is not None:
            self.on_change(*key)

    def jar(self, session: str, site: str) -> CookieJar | None:
        """Return the jar of a session at a site; ``None`` if it has no cookies."""
        return self._jars.get((session, site))


class NoCookies(CookieJars):
    """Stores no cookies; the cookies of a request itself are sent."""

    def absorb(self, response: Response) -> None:
        """Store nothing."""


def given_cookies(cookies_by_url: Mapping[str, Iterable[str]]) -> list[Cookie]:
    """Return the cookies of ``Set-Cookie`` values by URL. May block, because it may load the Public Suffix List.

    Raises :class:`~skitter.errors.SettingsError` for a value that the URL may not set.
    """
    cookies: list[Cookie] = []
    for url, lines in cookies_by_url.items():
        for line in lines:
            jar = CookieJar()
            jar.store([line.encode().decode("latin-1")], url)
            if not len(jar):
                raise SettingsError(
                    f"the cookie {line.partition('=')[0]!r:.80} cannot be set for {url!r:.200}",
                    remedy="write NAME=VALUE with the attributes of Set-Cookie, for an absolute URL of the domain",
                    field="initial_cookies",
                )
            cookies += jar
    return cookies


def cookies_in(header: str | None) -> dict[str, str]:
    """Return the cookies of a ``Cookie`` header by name."""
    return dict(pair.partition("=")[::2] for pair in (header or "").split("; ") if pair)


async def load_suffixes() -> None:
    """Load the Public Suffix List, which :func:`site_of` would read on the event loop at its first call. It takes 25 ms of CPU time."""
    await asyncio.to_thread(registered_domain, "example.com")


def site_of(url: str) -> str:
    """Return the site of a URL, to which its cookies are confined: its registered domain."""
    return registered_domain(host_of(url))


def store_cookies(jar: CookieJar, response: Response) -> None:
    """Store the cookies that a response sets."""
    jar.store(response.headers.getall("set-cookie", ()), response.url)


_UNSAFE = re.compile(r"[;\r\n\0]").search


def cookie_header(jar: CookieJar | None, request: Request) -> str | None:
    """Return the ``Cookie`` header with the cookies of a jar and the request's own, or ``None``.

    Own cookies replace cookies of the same name. Raises :class:`~skitter.fetch.contract.UnsendableRequest` for an own
    cookie that no header can represent. Bytes that are not UTF-8 become lone surrogates (``surrogateescape``).
    """
    own = request.cookies
    pairs = []
    if jar is not None:
        kept = jar.select(request.url, method=request.method, referer=request.referer)
        pairs = [received_text(cookie.pair) for cookie in kept if cookie.name not in own]
    for name, value in own.items():
        if _UNSAFE(name) or _UNSAFE(value) or "=" in name:
            raise UnsendableRequest(
                f"invalid cookie {name!r}: {value!r}",
                remedy="remove semicolons and line breaks, or encode the value",
                field="cookies",
            )
        pairs.append(f"{name}={value}")
    return "; ".join(pairs) or None


def received_text(text: str, errors: str = "surrogateescape") -> str:
    """Return text of a header, which has one character per byte, decoded as UTF-8."""
    return text if text.isascii() else text.encode("latin-1", "replace").decode("utf-8", errors)
