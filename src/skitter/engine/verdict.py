"""Verdict: what becomes of a request after an answer or a failure. Pure rules, no I/O."""

from __future__ import annotations

import random

import msgspec

from skitter.frontier.records import Resolution
from skitter.request import Request
from skitter.response import Response
from skitter.settings import Settings

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


class Verdict(msgspec.Struct, frozen=True):
    """How a lease is to end."""

    resolution: Resolution
    error: str = ""
    after: float = 0.0
    """Seconds to wait before a retry."""
    free: bool = False
    """The attempt does not count."""


def after_failure(
    settings: Settings, request: Request, attempt: int, error: str, *, retryable: bool
) -> Verdict:
    """Retry what may pass, as often as the request or the settings allow."""
    allowed = settings.max_retries if request.max_retries is None else request.max_retries
    if retryable and attempt < allowed:
        return Verdict(Resolution.RETRY, error, backoff(settings, attempt))
    return Verdict(Resolution.FAILED, error)


def after_status(
    settings: Settings,
    request: Request,
    attempt: int,
    status: int,
    retry_after: float | None,
    *,
    blocked: bool = False,
) -> Verdict:
    """Retry after statuses that may pass; give the others up. ``blocked``: it was our session's fault."""
    error = f"status/{status}: the server answered {status}"
    if status not in THROTTLED:
        return after_failure(settings, request, attempt, error, retryable=blocked or status in _PASSING)
    allowed = settings.max_throttled if request.max_retries is None else request.max_retries
    if attempt >= allowed:
        return Verdict(Resolution.FAILED, error)
    return Verdict(Resolution.RETRY, error, max(backoff(settings, attempt), retry_after or 0.0))


def backoff(settings: Settings, attempt: int) -> float:
    """Return the wait before the next attempt: doubled each time, half of it at random."""
    longest = min(settings.retry_delay * 2.0 ** min(attempt, 32), settings.retry_delay_cap)
    return longest * random.uniform(0.5, 1.0)
