"""Decision: what becomes of a request after an answer or a failure. Pure rules, no I/O."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import msgspec

from skitter.frontier.records import Resolution
from skitter.request import Request
from skitter.settings import Settings
from skitter.web.urls import host_of, normalize

if TYPE_CHECKING:  # the owner of a fleet reads no pages
    from skitter.response import Response

THROTTLED = frozenset({429, 503})
"""Statuses by which a server asks for less (RFC 6585 section 4, RFC 9110 section 15.6.4)."""
_PASSING = frozenset({408, 425, 500, 502, 504, 520, 521, 522, 523, 524})
"""Statuses that may well be gone at the next attempt."""
REDIRECTS = frozenset({301, 302, 303, 307, 308})


class StatusError(Exception):
    """The server answered with a status that is no page."""

    def __init__(self, status: int, response: Response | None = None) -> None:
        super().__init__(f"the server answered {status}")
        self.status = status
        self.response = response


class Decision(msgspec.Struct, frozen=True):
    """How a lease is to end."""

    resolution: Resolution
    error: str = ""
    after: float = 0.0
    """Seconds to wait before a retry."""
    free: bool = False
    """The attempt does not count."""


def decide_after_failure(
    settings: Settings, request: Request, attempt: int, error: str, *, retryable: bool
) -> Decision:
    """Retry what may pass, as often as the request or the settings allow."""
    allowed = settings.max_retries if request.max_retries is None else request.max_retries
    if retryable and attempt < allowed:
        return Decision(Resolution.RETRY, error, backoff(settings, attempt))
    return Decision(Resolution.FAILED, error)


def decide_after_status(
    settings: Settings,
    request: Request,
    attempt: int,
    status: int,
    retry_after: float | None,
    *,
    blocked: bool = False,
) -> Decision:
    """Retry after statuses that may pass; give the others up. ``blocked``: it was our session's fault."""
    error = f"status/{status}: the server answered {status}"
    if status not in THROTTLED:
        return decide_after_failure(
            settings, request, attempt, error, retryable=blocked or status in _PASSING
        )
    allowed = settings.max_throttled if request.max_retries is None else request.max_retries
    if attempt >= allowed:
        return Decision(Resolution.FAILED, error)
    return Decision(Resolution.RETRY, error, max(backoff(settings, attempt), retry_after or 0.0))


def backoff(settings: Settings, attempt: int) -> float:
    """Return the wait before the next attempt: doubled each time, half of it at random."""
    longest = min(settings.retry_delay * 2.0 ** min(attempt, 32), settings.retry_delay_cap)
    return longest * random.uniform(0.5, 1.0)


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
