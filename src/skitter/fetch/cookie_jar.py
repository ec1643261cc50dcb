"""CookieJar: parses, stores and selects the cookies of one site by RFC 6265bis.

RFC 6265bis is ``draft-ietf-httpbis-rfc6265bis``, the successor of RFC 6265 that browsers follow. Section numbers refer
to its version 20. In the standard, names and values are bytes. Here they are strings with one character per byte, as
:class:`~skitter.response.Response` decodes headers.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from skitter.web.urls import is_ip, is_public_suffix, registered_domain

MAX_COOKIE_BYTES = 4096
"""Maximum size of a cookie, name and value together, in bytes; a larger cookie is ignored (section 5.6)."""
MAX_ATTRIBUTE_BYTES = 1024
"""Maximum size of the value of an attribute, in bytes; a larger attribute is ignored (section 5.6)."""
MAX_COOKIES_A_SITE = 180
"""Maximum number of cookies per site, as in browsers (section 6.1 requires at least 50)."""
MAX_LIFETIME = 400 * 86_400
"""Maximum lifetime of a cookie in seconds (section 5.5)."""


class Cookie(msgspec.Struct, array_like=True):
    """A cookie as it is kept and stored. New fields go to the end, with a default."""

    name: str
    value: str
    domain: str
    """Host, or the domain to whose hosts the cookie belongs; in lower case, without a dot in front."""
    host_only: bool
    path: str
    secure: bool
    expires: int | None
    """Unix time; ``None`` for a cookie without an expiry."""
    same_site: str = ""
    """``strict``, ``lax``, ``none``, or empty if the server names no valid value."""

    @property
    def pair(self) -> str:
        """The cookie in a ``Cookie`` header. A cookie may have no name (section 5.8.3)."""
        return f"{self.name}={self.value}" if self.name else self.value


class SetCookie(NamedTuple):
    """The parts of a ``Set-Cookie`` header. ``None`` for an attribute that is missing or ignored."""

    name: str
    value: str
    expires: int | None = None
    """Unix time by ``Max-Age`` or else ``Expires``."""
    domain: str = ""
    path: str | None = None
    secure: bool = False
    same_site: str = ""


_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]").search
_SPACE = " \t"
_MAX_AGE = re.compile(r"-?[0-9]+").fullmatch
_MAX_DIGITS = 12


def parse_set_cookie(line: str, now: float) -> SetCookie | None:
    """Parse a ``Set-Cookie`` header received at a Unix time (section 5.6). ``None`` if the cookie is to be ignored.

    If an attribute is repeated, the last one counts. Unknown and invalid attributes are ignored.
    """
    if _CONTROL(line):
        return None
    pair, *attributes = line.split(";")
    name, equals, value = pair.partition("=")
    if not equals:
        name, value = "", pair
    name, value = name.strip(_SPACE), value.strip(_SPACE)
    if not (name or value) or len(name) + len(value) > MAX_COOKIE_BYTES:
        return None
    found = dict(_attributes(attributes))
    expires, max_age, path = found.get("expires"), found.get("max-age"), found.get("path")
    if max_age is not None:
        expires = 0 if max_age <= 0 else int(now) + max_age
    if expires is not None:
        expires = min(expires, int(now) + MAX_LIFETIME)
    return SetCookie(
        name, value, expires, found.get("domain", ""), path or None, "secure" in found, found.get("samesite", "")
    )  # fmt: skip


def _attributes(parts: list[str]) -> Iterator[tuple[str, Any]]:
    """Yield the known attributes that have a valid value, with the value."""
    for part in parts:
        name, _, text = part.partition("=")
        read = _ATTRIBUTES.get(name.strip(_SPACE).lower())
        text = text.strip(_SPACE)
        if read is not None and len(text) <= MAX_ATTRIBUTE_BYTES and (value := read(text)) is not None:
            yield name.strip(_SPACE).lower(), value


_DELIMITERS = re.compile(r"[\x09\x20-\x2f\x3b-\x40\x5b-\x60\x7b-\x7e]+")
_TIME = re.compile(r"([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?![0-9])").match
_DAY = re.compile(r"[0-9]{1,2}(?![0-9])").match
_YEAR = re.compile(r"[0-9]{2,4}(?![0-9])").match
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def parse_date(text: str) -> int | None:
    """Return the Unix time of a cookie date in any of the formats that servers send (section 5.1.1), or ``None``.

    The parts may be in any order, with any names of days and zones around them. The zone is always UTC.
    """
    clock: tuple[int, ...] | None = None
    day = month = year = None
    for token in _DELIMITERS.split(text):
        if clock is None and (found := _TIME(token)):
            clock = tuple(map(int, found.groups()))
        elif day is None and (found := _DAY(token)):
            day = int(found[0])
        elif month is None and token[:3].lower() in _MONTHS:
            month = _MONTHS.index(token[:3].lower()) + 1
        elif year is None and (found := _YEAR(token)):
            year = int(found[0])
    if clock is None or day is None or month is None or year is None:
        return None
    if year < 100:
        year += 1900 if year >= 70 else 2000
    if year < 1601:
        return None
    hour, minute, second = clock
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    return int(moment.timestamp())


_ATTRIBUTES: dict[str, Callable[[str], Any]] = {
    "expires": parse_date,
    "max-age": lambda text: int(text[:_MAX_DIGITS]) if _MAX_AGE(text) else None,
    "domain": lambda text: text.removeprefix(".").lower(),
    "path": lambda text: text if text.startswith("/") else "",
    "secure": lambda _: True,
    "samesite": lambda text: text.lower() if text.lower() in {"strict", "lax", "none"} else "",
}


class CookieJar:
    """The cookies of one site, in the order in which they were created."""

    def __init__(self, cookies: Iterable[Cookie] = ()) -> None:
        self._cookies: dict[tuple[str, str, bool, str], Cookie] = {}
        self.size = 0
        """Length of all names, values, domains and paths, with an allowance for each cookie."""
        for cookie in cookies:
            self._put(cookie)

    def __len__(self) -> int:
        return len(self._cookies)

    def __iter__(self) -> Iterator[Cookie]:
        return iter(self._cookies.values())

    def store(self, lines: Iterable[str], url: str, now: float | None = None) -> None:
        """Store the cookies of the ``Set-Cookie`` headers of one response (section 5.7).

        ``now``: Unix time of the response; default: the current time.
        """
        now = time.time() if now is None else now
        parts = urlsplit(url)
        host, is_secure, folder = parts.hostname or "", parts.scheme == "https", _default_path(parts.path)
        protected = {} if is_secure else self._secure_by_name()
        for line in lines:
            found = parse_set_cookie(line, now)
            cookie = None if found is None else _accepted(found, host, folder, is_secure=is_secure)
            if cookie is None or any(_would_hide(cookie, kept) for kept in protected.get(cookie.name, ())):
                continue
            if cookie.expires is not None and cookie.expires <= now:
                self._drop(_key(cookie))
            else:
                self._put(cookie)
        if len(self._cookies) > MAX_COOKIES_A_SITE:
            self._evict(now)

    def select(self, url: str, *, method: str = "GET", referer: str | None = None) -> list[Cookie]:
        """Return the cookies for a request in the order in which they are sent (section 5.8.3).

        ``referer``: the page that led to the request. If it belongs to another site, ``SameSite=Strict`` cookies are
        left out, and ``SameSite=Lax`` cookies as well unless the method is safe (section 5.2).
        """
        parts = urlsplit(url)
        host, path, is_secure = parts.hostname or "", parts.path or "/", parts.scheme == "https"
        now, expired, found, crossing = time.time(), [], [], None
        for key, cookie in self._cookies.items():
            if cookie.expires is not None and cookie.expires <= now:
                expired.append(key)
                continue
            if cookie.domain != host and (cookie.host_only or not _is_below(host, cookie.domain)):
                continue
            if (cookie.secure and not is_secure) or not _path_matches(path, cookie.path):
                continue
            if referer and cookie.same_site in ("strict", "lax"):
                if crossing is None:
                    crossing = _site(url) != _site(referer)
                if crossing and (cookie.same_site == "strict" or method not in _SAFE):
                    continue
            found.append(cookie)
        for key in expired:
            self._drop(key)
        # The sort is stable: of cookies with paths of equal length, the older one comes first.
        found.sort(key=lambda cookie: len(cookie.path), reverse=True)
        return found

    def _put(self, cookie: Cookie) -> None:
        key = _key(cookie)
        replaced = self._cookies.get(key)
        self.size += _size(cookie) - (0 if replaced is None else _size(replaced))
        self._cookies[key] = cookie

    def _drop(self, key: tuple[str, str, bool, str]) -> None:
        cookie = self._cookies.pop(key, None)
        if cookie is not None:
            self.size -= _size(cookie)

    def _secure_by_name(self) -> dict[str, list[Cookie]]:
        protected: dict[str, list[Cookie]] = {}
        for cookie in self._cookies.values():
            if cookie.secure:
                protected.setdefault(cookie.name, []).append(cookie)
        return protected

    def _evict(self, now: float) -> None:
        """Drop expired cookies, then those that are not secure, then the others; the oldest first (section 5.7)."""
        in_order = sorted(
            self._cookies.items(),
            key=lambda item: (item[1].expires is None or item[1].expires > now, item[1].secure),
        )
        for key, _ in in_order[: len(in_order) - MAX_COOKIES_A_SITE]:
            self._drop(key)


_SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_OVERHEAD = 200
"""Bytes of a cookie in memory besides its strings."""


def _size(cookie: Cookie) -> int:
    return _OVERHEAD + len(cookie.name) + len(cookie.value) + len(cookie.domain) + len(cookie.path)


def _key(cookie: Cookie) -> tuple[str, str, bool, str]:
    return cookie.name, cookie.domain, cookie.host_only, cookie.path


def _accepted(found: SetCookie, host: str, folder: str, *, is_secure: bool) -> Cookie | None:
    """Return the cookie that a host may set (section 5.7), or ``None``."""
    domain = found.domain
    if domain and domain != host and not _is_below(host, domain):
        return None
    if domain and ("." not in domain or is_public_suffix(domain)):
        if domain != host:
            return None
        domain = ""  # a host that is a public suffix may set cookies only for itself
    path = folder if found.path is None else found.path
    cookie = Cookie(
        found.name, found.value, domain or host, not domain, path, found.secure, found.expires, found.same_site
    )  # fmt: skip
    if cookie.secure and not is_secure:
        return None
    prefixed = (found.name or found.value).lower()  # a cookie without a name is sent as its value alone
    if prefixed.startswith("__secure-") and not (cookie.secure and found.name):
        return None
    if prefixed.startswith("__host-") and not (
        cookie.secure and found.name and cookie.host_only and found.path == "/"
    ):
        return None
    return cookie


def _would_hide(cookie: Cookie, kept: Cookie) -> bool:
    """Return whether a cookie of an http response would replace or hide a secure cookie of the same name (5.7)."""
    return (
        cookie.domain == kept.domain
        or _is_below(cookie.domain, kept.domain)
        or _is_below(kept.domain, cookie.domain)
    ) and _path_matches(cookie.path, kept.path)


def _is_below(host: str, domain: str) -> bool:
    """Return whether a host name is below a domain (section 5.1.3). An IP address is below nothing."""
    return host.endswith(domain) and host[-len(domain) - 1 : -len(domain)] == "." and not is_ip(host)


def _default_path(path: str) -> str:
    """Return the path of a cookie that names none: the folder of the response (section 5.1.4)."""
    return path[: path.rfind("/")] or "/" if path.startswith("/") else "/"


def _path_matches(path: str, prefix: str) -> bool:
    """Return whether a path is a path prefix or below it (section 5.1.4)."""
    return path.startswith(prefix) and (
        len(path) == len(prefix) or prefix.endswith("/") or path[len(prefix)] == "/"
    )


def _site(url: str) -> tuple[str, str]:
    """Return scheme and registered domain of a URL (WHATWG HTML, 7.1.1, "same site")."""
    parts = urlsplit(url)
    return parts.scheme, registered_domain(parts.hostname or "")
