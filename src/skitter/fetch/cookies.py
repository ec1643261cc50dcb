"""Cookies: one jar for each session and site, by the rules of RFC 6265.

The standard library's jar does the parsing and matching. It searches all its domains for each request, so
each site (registered domain) gets a jar of its own, found by one dictionary look-up; a site that never set
a cookie costs nothing more. A jar of its own also keeps a cookie inside its site whatever domain it names.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable
from copy import copy
from http.cookiejar import Cookie, CookieJar, DefaultCookiePolicy
from typing import Any
from urllib.parse import urlsplit

from skitter.fetch.contract import UnsendableRequest
from skitter.request import Request
from skitter.response import Response
from skitter.web.urls import host_of, registered_domain

MAX_COOKIE_BYTES = 4096
"""Name and value together; a longer cookie is not kept (RFC 6265, 6.1)."""

MAX_COOKIES_A_SITE = 180
"""The oldest make room, as in browsers."""


class CookieJars:
    """The cookies of one fetcher. They live in this process only and are not shared by a fleet.

    ``max_jars``
        Bound on jars (pairs of session and site) kept at a time; the one unused for longest goes first.
        Default 10,000.
    """

    def __init__(self, max_jars: int = 10_000) -> None:
        self._max_jars = max_jars
        self._seeds: dict[str, list[Cookie]] = {}
        self._jars: OrderedDict[tuple[str, str], CookieJar] = OrderedDict()

    def seed(self, cookies: Iterable[Cookie]) -> None:
        """Let every session begin with these cookies. Blocks: it may read the Public Suffix List."""
        for cookie in cookies:
            self._seeds.setdefault(registered_domain(cookie.domain.lstrip(".")), []).append(cookie)

    def header_for(self, request: Request) -> str | None:
        """Return the value of the ``Cookie`` header, or ``None`` for none.

        ``request.cookies`` go out besides those of the jar and win over them by name.
        """
        kept = None
        if self._jars or self._seeds:
            key = request.session, site_of(request.url)
            jar = self._jars.get(key)
            if jar is not None:
                self._jars.move_to_end(key)
                kept = kept_header(jar, request.url)
            elif key[1] in self._seeds:
                kept = kept_header(self.new_jar(key[1]), request.url)
        if not request.cookies:
            return kept
        return with_own(kept, request.cookies)

    def new_jar(self, site: str) -> CookieJar:
        """Return the jar that a session begins with at a site."""
        jar = CookieJar(_POLICY)
        for cookie in self._seeds.get(site, ()):
            jar.set_cookie(copy(cookie))
        return jar

    def absorb(self, response: Response) -> None:
        """Keep the cookies that a response sets, in the jar of its request's session."""
        session = response.request.session if response.request else ""
        key = session, site_of(response.url)
        jar = self._jars.get(key)
        if jar is None:
            jar = self.new_jar(key[1])
        take_into(jar, response)
        if len(jar) or key[1] in self._seeds:
            self._jars[key] = jar
            self._jars.move_to_end(key)
        else:
            self._jars.pop(key, None)
        while len(self._jars) > self._max_jars:
            self._jars.popitem(last=False)


class NoCookies(CookieJars):
    """Keeps no cookies; those of a request itself are sent."""

    def absorb(self, response: Response) -> None:
        """Keep nothing."""


def site_of(url: str) -> str:
    """Return the site of a URL, within which its cookies stay: its registered domain."""
    return registered_domain(host_of(url))


def take_into(jar: CookieJar, response: Response) -> None:
    """Keep the cookies that a response sets."""
    jar.extract_cookies(_Answer(response), _Asked(response.url))  # type: ignore[arg-type]
    _cut(jar)


def kept_header(jar: CookieJar, url: str) -> str | None:
    """Return the ``Cookie`` header that a jar gives a URL, or ``None``."""
    asked = _Asked(url)
    jar.add_cookie_header(asked)  # type: ignore[arg-type]
    return asked.cookie


_UNSAFE = re.compile(r"[;\r\n\0]").search


def with_own(kept: str | None, own: dict[str, str]) -> str:
    """Return a ``Cookie`` header with a request's own cookies, which win by name.

    Raises :class:`~skitter.fetch.contract.UnsendableRequest` for a cookie that no header can carry.
    """
    pairs = {}
    for pair in kept.split("; ") if kept else ():
        pairs[pair.partition("=")[0]] = pair
    for name, value in own.items():
        if _UNSAFE(name) or _UNSAFE(value) or "=" in name:
            raise UnsendableRequest(
                f"cookie {name!r}: {value!r} cannot be sent",
                remedy="leave out semicolons and line breaks, or encode the value",
            )
        pairs[name] = f"{name}={value}"
    return "; ".join(pairs.values())


def _cut(jar: CookieJar) -> None:
    excess = len(jar) - MAX_COOKIES_A_SITE
    if excess > 0:
        for cookie in list(jar)[:excess]:
            jar.clear(cookie.domain, cookie.path, cookie.name)


class _Policy(DefaultCookiePolicy):
    """The standard rules and those that browsers added (RFC 6265bis, 5.7)."""

    def set_ok(self, cookie: Cookie, request: Any) -> bool:
        secure_origin = request.type == "https"
        if len(cookie.name) + len(cookie.value or "") > MAX_COOKIE_BYTES:
            return False
        if cookie.secure and not secure_origin:
            return False
        if cookie.name.startswith("__Secure-") and not cookie.secure:
            return False
        if cookie.name.startswith("__Host-") and (
            not cookie.secure or cookie.domain_specified or cookie.path != "/"
        ):
            return False
        if cookie.domain_specified:
            # A public suffix, and all above it, lies outside the site.
            site = registered_domain(request.host)
            if not f".{cookie.domain.lstrip('.')}".endswith(f".{site}"):
                return False
        return bool(super().set_ok(cookie, request))


_POLICY = _Policy(netscape=True, rfc2965=False)


class _Asked:
    """A request as the standard library's jar wants to see it."""

    unverifiable = False

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        # The jar would take a user name in the URL for a part of the host.
        self._url = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        self.type = parts.scheme
        self.host = self.origin_req_host = parts.hostname or ""
        self.cookie: str | None = None

    def get_full_url(self) -> str:
        return self._url

    def has_header(self, _name: str) -> bool:
        return False

    def add_unredirected_header(self, name: str, value: str) -> None:
        if name == "Cookie":
            self.cookie = value


class _Answer:
    """A response as the standard library's jar wants to see it."""

    def __init__(self, response: Response) -> None:
        self._response = response

    def info(self) -> _Answer:
        return self

    def get_all(self, name: str, default: list[str]) -> list[str]:
        return list(self._response.headers.getall(name, default))
