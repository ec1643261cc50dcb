"""Retry rules: decide how a lease ends after a response or a failure. Pure functions without I/O."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import msgspec

from skitter.errors import RedirectError, counted
from skitter.frontier.records import Resolution
from skitter.request import Request
from skitter.secrets import is_secret_name
from skitter.settings import Settings
from skitter.web.headers import THROTTLED, url_in_header
from skitter.web.urls import is_same_origin, may_carry_cookies, normalize

if TYPE_CHECKING:  # a process without workers does not need it
    from skitter.response import Response

_TRANSIENT = frozenset({408, 425, 500, 502, 504, 520, 521, 522, 523, 524})
"""Statuses that may be absent at the next attempt."""


class RetryDecision(msgspec.Struct, frozen=True):
    """How a lease ends."""

    resolution: Resolution
    error: str = ""
    after: float = 0.0
    """Delay before a retry, in seconds."""
    free: bool = False
    """Whether the attempt does not count."""
    traceback: str = ""
    """Traceback of a callback, which a dead letter keeps."""

    def error_with_traceback(self) -> str:
        """Return the error as the frontier stores it."""
        return f"{self.error}\n{self.traceback}" if self.traceback else self.error


DONE = RetryDecision(Resolution.DONE)


def allowed_retries(settings: Settings, request: Request) -> int:
    """Return how many times a request may be retried after transient failures."""
    return settings.max_retries if request.max_retries is None else request.max_retries


def decide_after_failure(
    settings: Settings, request: Request, attempt: int, error: str, *, retryable: bool
) -> RetryDecision:
    """Retry a transient failure, up to the limit of the request or the settings."""
    if retryable and attempt < allowed_retries(settings, request):
        return RetryDecision(Resolution.RETRY, error, backoff(settings, attempt))
    return RetryDecision(Resolution.FAILED, error)


def decide_after_status(
    settings: Settings,
    request: Request,
    attempt: int,
    status: int,
    retry_after: float | None,
    *,
    blocked: bool = False,
) -> RetryDecision:
    """Retry after a transient status, unless the server asks to wait longer than ``retry_after_cap``.

    ``blocked``: the status concerns only the session; another session may succeed.
    """
    error = f"status/{status}: the server responded with {status}"
    if status not in THROTTLED:
        return decide_after_failure(
            settings, request, attempt, error, retryable=blocked or status in _TRANSIENT
        )
    allowed = settings.max_throttled if request.max_retries is None else request.max_retries
    if attempt >= allowed:
        return RetryDecision(Resolution.FAILED, error)
    wait = retry_after or 0.0
    if wait > settings.retry_after_cap:
        if not blocked:
            return RetryDecision(Resolution.FAILED, f"status/{status}: {wait_too_long(status, wait)}")
        wait = settings.retry_after_cap
    return RetryDecision(Resolution.RETRY, error, max(backoff(settings, attempt), wait))


def wait_too_long(status: int, seconds: float) -> str:
    """Return the error of a request whose server asks to wait longer than ``retry_after_cap``."""
    return f"the server responded with {status} and asks to wait for {seconds:.0f} s, which is longer than retry_after_cap"


def backoff(settings: Settings, attempt: int) -> float:
    """Return the delay before the next attempt in seconds: doubled each time, half of it random."""
    longest = min(settings.retry_delay * 2.0 ** min(attempt, 32), settings.retry_delay_cap)
    return longest * random.uniform(0.5, 1.0)


_AUTHORIZATION = frozenset({"authorization", "proxy-authorization"})
_OF_BODY = frozenset(
    {"content-encoding", "content-language", "content-length", "content-location", "content-type"}
)


def redirected(request: Request, response: Response, limit: int) -> Request:
    """Return the request for the target of a redirect (RFC 9110, 15.4; WHATWG Fetch, 4.4, "HTTP-redirect fetch").

    301 and 302 change POST to GET, and 303 changes any method but HEAD to GET. Then the body is dropped, together with
    its headers. All other requests keep method and body. ``Authorization`` is not sent to another origin. Cookies of
    the request, and headers whose names indicate a secret, such as ``X-Api-Key``, are not sent to another origin either,
    except from http to https of the same host. Raises :class:`RedirectError` for a missing or unparsable ``Location``,
    one that is not http(s), a loop, or a chain longer than ``limit``.

    If a browser has left a page for another one (``response.moved_to``), the other page is the target.
    """
    moved = response.moved_to
    if moved is not None:
        left, proceeds = _as_left(request, moved), _proceeds(request, moved)
        return _next_hop(left, response, moved.url, limit, becomes_get=False, proceeds=proceeds)
    target = _target_of(response)
    return _next_hop(
        request, response, target, limit, becomes_get=_becomes_get(request.method, response.status)
    )


def refreshed(request: Request, response: Response, target: str, limit: int) -> Request:
    """Return the request for the page that a ``Refresh`` leads to, as after a redirect with status 303.

    Raises :class:`RedirectError` in the same cases as :func:`redirected`.
    """
    if not target.startswith(("http://", "https://")):
        raise RedirectError(f"redirect/scheme: {target} is not http(s)")
    return _next_hop(request, response, target, limit, becomes_get=request.method not in {"GET", "HEAD"})


def _next_hop(
    request: Request,
    response: Response,
    target: str,
    limit: int,
    *,
    becomes_get: bool,
    proceeds: bool = False,
) -> Request:
    """Return the request for the target of a redirect.

    ``proceeds``: a redirect to a URL of its own chain is not a loop.
    """
    chain = (*request.redirects, response.url)
    if len(chain) > limit:
        raise RedirectError(f"redirect/limit: more than {counted(limit, 'redirect')}")
    cookie_hop = len(chain) if response.header("set-cookie") else request.cookie_hop
    if target in chain and not proceeds:
        last_visit = len(chain) - chain[::-1].index(target)
        if last_visit > cookie_hop:  # a cookie that was set since the last visit may change the response
            raise RedirectError(f"redirect/loop: {target} redirects to itself")
    changes: dict[str, object] = {
        "url": target, "redirects": chain, "cookie_hop": cookie_hop, "not_before": 0.0, "delay": 0.0,
        "lastmod": "",  # the sitemap states it for the original URL only
    }  # fmt: skip
    sent = response.request
    if sent is not None and sent.session != request.session:
        changes["session"] = sent.session  # its jar has the cookies of the chain
    if target in chain or proceeds:
        changes["dont_filter"] = True
    dropped: frozenset[str] = frozenset()
    if becomes_get:
        changes.update(method="GET", body=b"")
        dropped |= _OF_BODY
    if not is_same_origin(response.url, target):
        dropped |= _AUTHORIZATION
    if not may_carry_cookies(response.url, target):
        dropped |= {"cookie", *(name.lower() for name in request.headers if is_secret_name(name))}
        changes["cookies"] = {}
    if dropped and request.headers:
        changes["headers"] = {k: v for k, v in request.headers.items() if k.lower() not in dropped}
    return request.replace(**changes)


def _as_left(request: Request, moved: Request) -> Request:
    """Return the request of a page with what the browser changed when it left the page: method, body, headers, fetcher."""
    return request.replace(
        method=moved.method, body=moved.body, headers={**request.headers, **moved.headers},
        fetcher=moved.fetcher or request.fetcher, browsing=moved.browsing,
    )  # fmt: skip


def _proceeds(request: Request, moved: Request) -> bool:
    """Return whether a redirect to the same URL is not a loop: it has another fetcher, a form, or fewer actions left."""
    if moved.fetcher and moved.fetcher != request.fetcher:
        return True
    before = request.browsing.actions if request.browsing is not None else ()
    after = moved.browsing.actions if moved.browsing is not None else ()
    return moved.method != "GET" or len(after) < len(before)


def _target_of(response: Response) -> str:
    location = response.header("location")
    if not location:
        raise RedirectError(f"redirect/location: status {response.status} without a Location")
    target = normalize(url_in_header(location), response.url)
    if target is None:
        raise RedirectError(f"redirect/location: {location!r} is not a URL")
    if not target.startswith(("http://", "https://")):
        raise RedirectError(f"redirect/scheme: {target} is not http(s)")
    return target


def _becomes_get(method: str, status: int) -> bool:
    return (method == "POST" and status in {301, 302}) or (status == 303 and method not in {"GET", "HEAD"})
