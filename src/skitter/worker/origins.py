"""Origins: tracks which origins respond, and decides what happens to requests for unavailable ones.

Availability is judged per origin (scheme, host and port), not per slot: a closed port must not delay the other ports
of its host. ``docs/design/politeness.md`` gives the reasons.
"""

from __future__ import annotations

import logging
import random
import time
from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum

from skitter.errors import FetchError
from skitter.fetch.contract import UnresolvedHost
from skitter.frontier.records import Resolution
from skitter.request import Request
from skitter.settings import Settings
from skitter.web.urls import without_port
from skitter.worker.retry import RetryDecision, allowed_retries, backoff, wait_too_long

CONTACT_GRACE = 1.0
"""Seconds after which a first response is late: other requests no longer wait for it."""

log = logging.getLogger("skitter.crawl")

_LONGEST_PAUSE = 30.0
"""Maximum time in seconds between two attempts to reach an origin."""
_GIVEN_UP_FOR = 60.0
"""Seconds for which requests to an origin fail without an attempt after the worker has given it up."""
_SPREAD = 1.1
"""Maximum random factor of waits, so that the requests of an origin do not all return at the same time."""
_MAX_KNOWN = 100_000
"""Maximum number of responsive origins, and of unresponsive ones, that a worker remembers."""


class _WaitTooLong(FetchError):
    """A throttling server asks to wait longer than ``retry_after_cap`` seconds."""

    retryable = False

    def __init__(self, status: int, seconds: float) -> None:
        super().__init__(wait_too_long(status, seconds))
        self.kind = f"status/{status}"


@dataclass(slots=True, eq=False)
class _Outage:
    """An origin that does not respond."""

    began: float
    error: FetchError
    """The last error."""
    failed_at: float = 0.0
    failures: int = 0
    """Failed attempts in a row."""
    retry_at: float = 0.0
    """Nothing is sent to the origin before this time."""
    given_up: bool = False


class OriginState(Enum):
    """What is known about the origin of a request that is about to be sent."""

    KNOWN = "known"
    """It has responded before."""
    FIRST = "first"
    """It has not responded yet; this request is the first one."""
    FOLLOWS = "follows"
    """It has not responded yet, and another request waits for its first response."""
    REFUSED = "refused"
    """It has not responded yet, and no further request may wait for its host."""


class Origins:
    """The origins that a worker has contacted.

    If an origin that has responded before becomes unavailable, its requests wait for up to ``outage_timeout``, because
    a short outage must not lose pages. Any other origin is given up after ``max_retries`` retries, and at the latest
    after ``unreachable_timeout``. All times are seconds of a monotonic clock.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._responded: OrderedDict[str, None] = OrderedDict()
        """The origins that have responded; the oldest first."""
        self._siblings: dict[str, set[str]] = {}
        """The origins that have responded, by host name."""
        self._contacts: dict[str, list[tuple[float, str]]] = {}
        """Requests that wait for the first response of their origin, with the time of their start, by host name."""
        self.outages: OrderedDict[str, _Outage] = OrderedDict()
        """The origins that do not respond."""

    def has_responded(self, origin: str) -> bool:
        """Return whether an origin has responded to this worker before."""
        return origin in self._responded

    def responded(self, origin: str) -> None:
        """Record a response with any status."""
        if (outage := self.outages.pop(origin, None)) is not None and outage.given_up:
            log.info("%s responds again", origin)
        if origin in self._responded:
            return
        self._responded[origin] = None
        self._siblings.setdefault(_name_of(origin), set()).add(origin)
        if len(self._responded) > _MAX_KNOWN:
            oldest, _ = self._responded.popitem(last=False)
            siblings = self._siblings[_name_of(oldest)]
            siblings.remove(oldest)
            if not siblings:
                del self._siblings[_name_of(oldest)]

    def begin_contact(self, origin: str) -> OriginState:
        """Record a request to an origin that has not responded yet, unless it is refused.

        Such requests must not block a slot whose host has other, responsive origins: in that case, only one is sent at
        a time. Otherwise, further requests are allowed as long as the first one is not late.
        """
        name, now = _name_of(origin), time.monotonic()
        contacts = self._contacts.get(name, [])
        if contacts and (not self.is_alone(origin) or now - contacts[0][0] >= CONTACT_GRACE):
            return OriginState.REFUSED
        is_first = all(other != origin for _, other in contacts)
        self._contacts.setdefault(name, []).append((now, origin))
        return OriginState.FIRST if is_first else OriginState.FOLLOWS

    def end_contact(self, origin: str) -> None:
        """Record the end of a request for which :meth:`begin_contact` was called, and not refused."""
        name = _name_of(origin)
        contacts = self._contacts[name]
        contacts.remove(next(contact for contact in contacts if contact[1] == origin))
        if not contacts:
            del self._contacts[name]

    def is_alone(self, origin: str) -> bool:
        """Return whether no other origin of the same host is known to respond."""
        others = self._siblings.get(_name_of(origin), ())
        return not any(other != origin and other not in self.outages for other in others)

    def refusal(self, origin: str, request: Request) -> tuple[FetchError, RetryDecision] | None:
        """If the origin must not be contacted now, return the error and how the lease of the request ends."""
        outage = self.outages.get(origin)
        if outage is None or time.monotonic() >= outage.retry_at:
            return None
        decision = self._decide(outage, origin, request, free=True)
        return outage.error.with_traceback(None), decision

    def failed(self, origin: str, request: Request, error: FetchError, began: float) -> RetryDecision:
        """Record a failed attempt to reach an origin. Return how the lease of the request ends.

        ``began``: start of the attempt.
        """
        outage = self.outages.get(origin)
        if outage is None:
            outage = self._add_outage(origin, _Outage(began, error))
        if began >= outage.failed_at:  # otherwise concurrent requests report the same failure
            self._record(outage, origin, error, began)
        return self._decide(outage, origin, request, free=self.has_responded(origin))

    def give_up(self, origin: str, status: int, seconds: float) -> None:
        """Give up an origin that asks clients to wait for ``seconds``.

        It is tried again after that time, or as soon as it responds to another request without such a wait.
        """
        error = _WaitTooLong(status, seconds)
        outage = self._add_outage(origin, _Outage(time.monotonic(), error))
        outage.given_up, outage.retry_at = True, outage.began + seconds
        log.warning("%s asks for a long wait; its requests become dead letters: %s", origin, error)

    def _add_outage(self, origin: str, outage: _Outage) -> _Outage:
        self.outages[origin] = outage
        if len(self.outages) > _MAX_KNOWN:
            self.outages.popitem(last=False)
        return outage

    def _record(self, outage: _Outage, origin: str, error: FetchError, began: float) -> None:
        settings, now = self._settings, time.monotonic()
        known = self.has_responded(origin)
        timeout = settings.outage_timeout if known else settings.unreachable_timeout
        pause = min(backoff(settings, outage.failures), _LONGEST_PAUSE)
        outage.failures += 1
        outage.failed_at, outage.error = now, error
        # A name that was resolved before will probably exist again.
        is_permanent = not error.retryable and not (known and isinstance(error, UnresolvedHost))
        # The next attempt may take as long as this one.
        ends = is_permanent or now + pause * _SPREAD + (now - began) > outage.began + timeout
        if ends:
            pause = _GIVEN_UP_FOR
            if not outage.given_up:
                log.info("%s is unreachable: %s: %s", origin, error.kind, error)
        elif known and outage.failures == 1:
            log.warning("%s no longer responds (%s: %s); its requests wait", origin, error.kind, error)
        outage.given_up = ends
        outage.retry_at = now + pause

    def _decide(self, outage: _Outage, origin: str, request: Request, *, free: bool) -> RetryDecision:
        text = f"{outage.error.kind}: {outage.error}"
        allowed = allowed_retries(self._settings, request)
        exhausted = allowed == 0 if self.has_responded(origin) else outage.failures > allowed
        if outage.given_up or exhausted:
            return RetryDecision(Resolution.FAILED, text)
        left = max(0.0, outage.retry_at - time.monotonic()) * random.uniform(1.0, _SPREAD)
        return RetryDecision(Resolution.RETRY, text, left, free=free)


def _name_of(origin: str) -> str:
    return without_port(origin.partition("://")[2])
