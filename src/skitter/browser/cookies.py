"""Moves cookies between the browser and the headers of requests and responses."""

from __future__ import annotations

from collections.abc import Sequence
from email.utils import formatdate
from typing import Any


def cookies_to_set(
    url: str, cookies: dict[str, str], found: Sequence[dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the cookies to set and the cookies to delete, so that the browser sends the given cookies to a URL.

    ``found``: the cookies that the browser would send, in the form of the DevTools protocol.
    """
    old_cookies = {cookie["name"]: cookie for cookie in found}
    changes = []
    for name, value in cookies.items():
        old = old_cookies.get(name)
        if old is None:
            changes.append({"name": name, "value": value, "url": url})
        elif old["value"] != value:
            kept: dict[str, Any] = {
                key: old[key] for key in ("domain", "path", "secure", "httpOnly", "sameSite") if key in old
            }
            changes.append({"name": name, "value": value, **kept})
    expired = [
        {"name": cookie["name"], "domain": cookie["domain"], "path": cookie["path"]}
        for cookie in found
        if cookie["name"] not in cookies
    ]
    return changes, expired


def changed_cookies(found: Sequence[dict[str, Any]], cookies_sent: dict[str, str]) -> list[str]:
    """Return ``Set-Cookie`` values for the cookies of the browser that differ from the cookies of the request."""
    lines = [_set_cookie(cookie) for cookie in found if cookies_sent.get(cookie["name"]) != cookie["value"]]
    gone = cookies_sent.keys() - {cookie["name"] for cookie in found}
    return lines + [f"{name}=; Path=/; Max-Age=0" for name in sorted(gone)]


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
    return "; ".join(parts)
