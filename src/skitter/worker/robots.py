"""RobotsGate: enforces the rules and the Crawl-delay of robots.txt."""

from __future__ import annotations

import logging
from collections import Counter
from enum import StrEnum

import msgspec

from skitter.fetch.contract import Fetcher, UnresolvedHost
from skitter.fetch.robots import Deferred, RobotsPolicy, RobotsSettings
from skitter.fetch.robots_cache import RobotsCache
from skitter.frontier.contract import Frontier
from skitter.frontier.records import Lease
from skitter.settings import Settings
from skitter.worker.inflight import InflightRequest

log = logging.getLogger("skitter.crawl")

_FIRST_DEFERRAL = 10.0
"""Seconds to wait after the first failure to fetch robots.txt. Doubles with each further failure."""
_MAX_FAILURES = 5
"""Failures in a row to fetch robots.txt, after which the pages of the host are given up (to the dead letters)."""
_MAX_UNRESOLVED = 2
"""Failures to resolve the host name, after which the pages of the host are given up."""


class RobotsDecision(StrEnum):
    """What robots.txt means for a request."""

    ALLOWED = "allowed"
    FORBIDDEN = "forbidden"
    LATER = "later"
    """The fetch of robots.txt has used the time slot of the lease: the page waits for another lease."""
    DEFERRED = "deferred"
    """robots.txt is unavailable for now; the host is paused."""
    FAILED = "failed"
    """robots.txt was unavailable too often, so the page is given up."""


class RobotsCheck(msgspec.Struct, frozen=True):
    """A decision of the gate, with its reason."""

    decision: RobotsDecision
    seconds: float = 0.0
    """Time to wait if the decision is ``DEFERRED``."""
    error: str = ""


_ALLOWED = RobotsCheck(RobotsDecision.ALLOWED)
_FORBIDDEN = RobotsCheck(RobotsDecision.FORBIDDEN)
_LATER = RobotsCheck(RobotsDecision.LATER)


class RobotsGate:
    """Checks requests against robots.txt, and reports its Crawl-delay to the frontier."""

    def __init__(self, fetcher: Fetcher, frontier: Frontier, settings: Settings) -> None:
        self._frontier = frontier
        self._max_delay = settings.crawl_delay_cap
        self._cache = RobotsCache(
            fetcher,
            settings.user_agent,
            RobotsSettings(
                ttl=settings.robots_ttl, first_deferral=_FIRST_DEFERRAL, max_failures=_MAX_FAILURES
            ),
            frontier.notes,
        )
        self._delays: dict[str, float] = {}
        self._unresolved: Counter[str] = Counter()
        """Failures to resolve the host name, by slot."""

    async def check(self, url: str, inflight: InflightRequest) -> RobotsCheck:
        """Decide whether a URL may be fetched with this lease. Fetches robots.txt if necessary."""
        lease = inflight.lease
        verdict = self._cache.known(url)
        is_new = verdict is None
        if verdict is None:
            if not inflight.may_send():
                return _LATER
            verdict = await self._cache.verdict(url, inflight)
        if isinstance(verdict, Deferred):
            return await self._defer(verdict, lease, is_new=is_new)
        if verdict.crawl_delay and await self._slow_down(verdict, lease):
            return _LATER
        if not verdict.allowed(url):
            return _FORBIDDEN
        return _LATER if is_new and inflight.expires else _ALLOWED

    async def _defer(self, verdict: Deferred, lease: Lease, *, is_new: bool) -> RobotsCheck:
        """Pause the host, unless robots.txt was unavailable too often or the host name does not resolve."""
        if is_new:
            text = "%s: robots.txt is unavailable (%s); the host is paused for %.0f s"
            log.warning(text, lease.slot, verdict.error, verdict.seconds)
            if verdict.error.startswith(UnresolvedHost.kind):
                self._unresolved[lease.slot] += 1
        if verdict.exhausted or self._unresolved[lease.slot] >= _MAX_UNRESOLVED:
            return RobotsCheck(RobotsDecision.FAILED, error=verdict.error)
        await self._frontier.control.pause_slot(lease.slot, verdict.seconds)
        return RobotsCheck(RobotsDecision.DEFERRED, verdict.seconds, verdict.error)

    async def _slow_down(self, policy: RobotsPolicy, lease: Lease) -> bool:
        """Report a Crawl-delay to the frontier. Return whether the lease was granted without a delay."""
        delay = min(policy.crawl_delay or 0.0, self._max_delay)
        if self._delays.get(lease.slot) != delay:
            self._delays[lease.slot] = delay
            await self._frontier.control.set_delay(lease.slot, delay)
        return lease.start_within is None

    async def close(self) -> None:
        """Cancel running fetches of robots.txt."""
        await self._cache.close()
