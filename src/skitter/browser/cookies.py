"""Moves cookies between the browser and the headers of requests and responses."""

from __future__ import annotations

from collections.abc import Sequence
from email.utils import formatdate
from typing import Any
from urllib.parse import urlsplit

from skitter.fetch.cookie_jar import Cookie
from skitter.fetch.cookies import received_text


def cookies_to_set(
    url: str, sent: Sequence[tuple[str, str]], found: Sequence[dict[str, Any]], kept: Sequence[Cookie] = ()
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the cookies to set and the cookies to delete, so that the browser sends the given cookies to a URL.

    ``sent``: names and values. ``found``: the cookies that the browser would send, in the form of the DevTools protocol.
    ``kept``: the cookies of the jar that apply to the URL. Those that are sent get their domain, path and other attributes.
    """
    old_cookies = {cookie["name"]: cookie for cookie in found}
    known = {(*place_of(old), old["value"]) for old in found}
    cookies, changes = dict(sent), []
    names = frozenset(cookies)
    for new in (with_attributes(cookie, url) for cookie in kept):
        if (new["name"], new["value"]) in sent:
            cookies.pop(new["name"], None)
            if (*place_of(new), new["value"]) not in known:
                changes.append(new)
    for name, value in cookies.items():
        old = old_cookies.get(name)
        if old is None:
            changes.append({"name": name, "value": value, "url": url})
        elif old["value"] != value:
            attributes: dict[str, Any] = {
                key: old[key] for key in ("domain", "path", "secure", "httpOnly", "sameSite") if key in old
            }
            changes.append({"name": name, "value": value, **attributes})
    expired = [
        {"name": cookie["name"], "domain": cookie["domain"], "path": cookie["path"]}
        for cookie in found
        if cookie["name"] not in names
    ]
    return changes, expired


def with_attributes(cookie: Cookie, url: str) -> dict[str, Any]:
    """Return a cookie of a jar in the form of the DevTools protocol. ``url``: the page for which it is set."""
    host = f"[{cookie.domain}]" if ":" in cookie.domain else cookie.domain
    scheme = "https" if cookie.secure else url.partition(":")[0]
    found: dict[str, Any] = {
        "name": received_text(cookie.name), "value": received_text(cookie.value),
        "url": f"{scheme}://{host}{cookie.path}", "path": cookie.path, "secure": cookie.secure,
    }  # fmt: skip
    if not cookie.host_only:
        found["domain"] = f".{cookie.domain}"
    if cookie.expires is not None:
        found["expires"] = cookie.expires
    if cookie.same_site and (cookie.secure or cookie.same_site != "none"):  # Chromium refuses the others
        found["sameSite"] = cookie.same_site.capitalize()
    return found


def place_of(cookie: dict[str, Any]) -> tuple[str, str, str]:
    """Return name, domain and path of a cookie in the form of the DevTools protocol."""
    domain = cookie.get("domain") or urlsplit(cookie["url"]).hostname or ""
    return cookie["name"], domain.strip("[]"), cookie["path"]


def changed_cookies(
    url: str,
    found: Sequence[dict[str, Any]],
    sent: Sequence[tuple[str, str]],
    kept: Sequence[Cookie] = (),
    others: Sequence[Cookie] = (),
) -> list[str]:
    """Return ``Set-Cookie`` values for the cookies of the browser that differ from those that it had been given.

    ``found``: all cookies of the browser. Those that a response of the page cannot set are left out: of other sites, and of a
    single other host. ``kept`` and ``others``: the cookies of the jar that apply to the URL, and those for other paths and
    hosts. A sent cookie that is gone from the browser is removed from its domain and path.
    """
    host = urlsplit(url).hostname or ""
    own = [cookie for cookie in found if _applies_to(cookie, host)]
    known = {*sent, *((received_text(cookie.name), received_text(cookie.value)) for cookie in others)}
    lines = [_set_cookie(cookie) for cookie in own if (cookie["name"], cookie["value"]) not in known]
    places: dict[str, list[str]] = {}
    for cookie in kept:
        domain = "" if cookie.host_only else f"; Domain={cookie.domain}"
        places.setdefault(received_text(cookie.name), []).append(f"Path={cookie.path}{domain}")
    gone = sorted({name for name, _ in sent} - {cookie["name"] for cookie in own})
    return lines + [f"{name}=; {place}; Max-Age=0" for name in gone for place in places.get(name, ["Path=/"])]


def _applies_to(cookie: dict[str, Any], host: str) -> bool:
    """Return whether a cookie of the browser applies to any path of a host."""
    domain: str = cookie["domain"]
    return f".{host}".endswith(domain) if domain.startswith(".") else domain.strip("[]") == host


def _set_cookie(cookie: dict[str, Any]) -> str:
    parts = [f"{cookie['name']}={cookie['value']}", f"Path={cookie['path']}"]
    if cookie["domain"].startswith("."):
        parts.append(f"Domain={cookie['domain'][1:]}")
    if cookie.get("expires", -1) > 0:
        parts.append(f"Expires={formatdate(cookie['expires'], usegmt=True)}")
    if cookie.get("secure"):
        parts.append("Secure")
    if cookie.get("httpOnly"):
        parts.append("HttpOnly")
    if cookie.get("sameSite"):
        parts.append(f"SameSite={cookie['sameSite']}")
    return "; ".join(parts)
