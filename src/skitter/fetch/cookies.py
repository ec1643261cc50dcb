"""Cookies by the rules of RFC 6265: one jar for each session and site.

The jar of the standard library parses and matches cookies, but searches all its domains for each request. Therefore
each site (registered domain) has a jar of its own, found with one dictionary lookup, and a site that never sets a
cookie costs nothing. This also confines a cookie to its site, whatever domain it names.
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
"""Maximum size of a cookie, name and value together, in bytes; a larger cookie is dropped (RFC 6265, 6.1)."""

MAX_COOKIES_A_SITE = 180
"""Maximum number of cookies per site; the oldest are dropped first, as in browsers."""


class CookieJars:
    """The cookies of one fetcher. They belong to this process and are not shared with a fleet.

    ``max_jars``
        Maximum number of jars (pairs of session and site); the least recently used one is dropped first.
        Default 10,000.
    """

    def __init__(self, max_jars: int = 10_000) -> None:
        self._max_jars = max_jars
        self._seeds: dict[str, list[Cookie]] = {}
        self._jars: OrderedDict[tuple[str, str], CookieJar] = OrderedDict()

    def seed(self, cookies: Iterable[Cookie]) -> None:
        """Add these cookies to every new session. May block, because it may load the Public Suffix List."""
        for cookie in cookies:
            self._seeds.setdefault(registered_domain(cookie.domain.lstrip(".")), []).append(cookie)

    def header_for(self, request: Request) -> str | None:
        """Return the value of the ``Cookie`` header, or ``None`` for no header.

        ``request.cookies`` are sent in addition to those of the jar, and replace cookies of the same name.
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
        """Return the initial jar of a session at a site."""
        jar = CookieJar(_POLICY)
        for cookie in self._seeds.get(site, ()):
            jar.set_cookie(copy(cookie))
        return jar

    def absorb(self, response: Response) -> None:
        """Store the cookies that a response sets in the jar of its request's session."""
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
    """Stores no cookies; the cookies of a request itself are sent."""

    def absorb(self, response: Response) -> None:
        """Store nothing."""


def site_of(url: str) -> str:
    """Return the site of a URL, to which its cookies are confined: its registered domain."""
    return registered_domain(host_of(url))


def take_into(jar: CookieJar, response: Response) -> None:
    """Store the cookies that a response sets."""
    jar.extract_cookies(_Answer(response), _Asked(response.url))  # type: ignore[arg-type]
    _cut(jar)


def kept_header(jar: CookieJar, url: str) -> str | None:
    """Return the ``Cookie`` header of a jar for a URL, or ``None``."""
    asked = _Asked(url)
    jar.add_cookie_header(asked)  # type: ignore[arg-type]
    return asked.cookie


_UNSAFE = re.compile(r"[;\r\n\0]").search


def with_own(kept: str | None, own: dict[str, str]) -> str:
    """Return a ``Cookie`` header that also contains a request's own cookies, which replace cookies of the same name.

    Raises :class:`~skitter.fetch.contract.UnsendableRequest` for a cookie that no header can represent.
    """
    pairs = {}
    for pair in kept.split("; ") if kept else ():
        pairs[pair.partition("=")[0]] = pair
    for name, value in own.items():
        if _UNSAFE(name) or _UNSAFE(value) or "=" in name:
            raise UnsendableRequest(
                f"invalid cookie {name!r}: {value!r}",
                remedy="remove semicolons and line breaks, or encode the value",
                field="cookies",
            )
        pairs[name] = f"{name}={value}"
    return "; ".join(pairs.values())


def _cut(jar: CookieJar) -> None:
    excess = len(jar) - MAX_COOKIES_A_SITE
    if excess > 0:
        for cookie in list(jar)[:excess]:
            jar.clear(cookie.domain, cookie.path, cookie.name)


class _Policy(DefaultCookiePolicy):
    """The standard rules and those that browsers have added (RFC 6265bis, 5.7)."""

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
            # A public suffix, and all domains above it, are outside the site.
            site = registered_domain(request.host)
            if not f".{cookie.domain.lstrip('.')}".endswith(f".{site}"):
                return False
        return bool(super().set_ok(cookie, request))


_POLICY = _Policy(netscape=True, rfc2965=False)


class _Asked:
    """A request with the interface that the standard library's jar expects."""

    unverifiable = False

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        # The jar would treat a user name in the URL as part of the host.
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
    """A response with the interface that the standard library's jar expects."""

    def __init__(self, response: Response) -> None:
        self._response = response

    def info(self) -> _Answer:
        return self

    def get_all(self, name: str, default: list[str]) -> list[str]:
        return list(self._response.headers.getall(name, default))
