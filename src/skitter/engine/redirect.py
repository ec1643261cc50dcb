"""Redirects as new requests through the frontier: scope, politeness and de-duplication hold at each hop."""

from __future__ import annotations

from skitter.request import Request
from skitter.response import Response
from skitter.urls import host_of, normalize

_KEEP_METHOD = frozenset({307, 308})
_CREDENTIALS = frozenset({"authorization", "cookie", "proxy-authorization"})


class RedirectError(Exception):
    """A redirect that cannot be followed; the text begins with its kind."""


def redirected(request: Request, response: Response, limit: int) -> Request:
    """Return the request that a redirect leads to (RFC 9110 section 15.4).

    301, 302 and 303 turn anything but HEAD into GET without a body; 307 and 308 keep method and body.
    Credentials are not carried to another host. Raises :class:`RedirectError` for a missing or unparsable
    ``Location``, one that is not http(s), a loop, or a chain longer than ``limit``.
    """
    location = response.header("location")
    if not location:
        raise RedirectError(f"redirect/location: status {response.status} without a Location")
    target = normalize(location, response.url)
    if target is None:
        raise RedirectError(f"redirect/location: {location!r} is not a URL")
    if not target.startswith(("http://", "https://")):
        raise RedirectError(f"redirect/scheme: {target} is not http(s)")
    chain = (*request.redirects, response.url)
    if len(chain) > limit:
        raise RedirectError(f"redirect/limit: more than {limit} redirects")
    cookie_hop = len(chain) if response.header("set-cookie") else request.cookie_hop
    # A page is no loop if a cookie was set since it was last asked for: the cookie may make the difference.
    if target in chain and _last_visit(chain, target) > cookie_hop:
        raise RedirectError(f"redirect/loop: {target} redirects to itself")
    changes: dict[str, object] = {
        "url": target, "redirects": chain, "cookie_hop": cookie_hop, "not_before": 0.0, "delay": 0.0,
    }  # fmt: skip
    answered = response.request
    if answered is not None and answered.session != request.session:
        changes["session"] = answered.session  # the cookies of the chain are in that jar
    if target in chain:
        changes["dont_filter"] = True
    if response.status not in _KEEP_METHOD and request.method not in {"GET", "HEAD"}:
        changes.update(method="GET", body=b"")
    if host_of(target) != host_of(response.url):
        changes["cookies"] = {}
        changes["headers"] = {k: v for k, v in request.headers.items() if k.lower() not in _CREDENTIALS}
    return request.replace(**changes)


def _last_visit(chain: tuple[str, ...], url: str) -> int:
    """Return at which place of the chain, counted from 1, a URL was last asked for."""
    return len(chain) - chain[::-1].index(url)
