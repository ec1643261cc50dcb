"""RobotsGate: enforces the rules and the Crawl-delay of robots.txt."""

from __future__ import annotations

import logging
from enum import StrEnum

import msgspec

from skitter.fetch.contract import Fetcher, FetchError
from skitter.fetch.robots import Deferred, RobotsSettings
from skitter.fetch.robots_cache import RobotsCache
from skitter.fetch.robots_rules import RobotsPolicy
from skitter.frontier.contract import Frontier
from skitter.frontier.records import Lease
from skitter.settings import Settings
from skitter.web.urls import origin_of
from skitter.worker.inflight import InflightRequest

log = logging.getLogger("skitter.crawl")


class RobotsUnavailable(FetchError):
    """The server answers the request for robots.txt with an error, so nothing may be fetched (RFC 9309, 2.3.1.4)."""

    kind = "robots"


class RobotsDecision(StrEnum):
    """The consequence of robots.txt for a request."""

    ALLOWED = "allowed"
    FORBIDDEN = "forbidden"
    LATER = "later"
    """The fetch of robots.txt has used the time slot of the lease: the page waits for another lease."""
    DEFERRED = "deferred"
    """robots.txt is unavailable for now: the page waits."""
    FAILED = "failed"
    """robots.txt was unavailable too often, so the page is given up."""


class RobotsCheck(msgspec.Struct, frozen=True):
    """A decision of the gate, with its reason."""

    decision: RobotsDecision
    seconds: float = 0.0
    """Time to wait if the decision is ``DEFERRED``."""
    error: str = ""
    is_new: bool = False
    """Whether robots.txt was fetched, or read from another worker, for this decision."""


_ALLOWED = RobotsCheck(RobotsDecision.ALLOWED)
_FORBIDDEN = RobotsCheck(RobotsDecision.FORBIDDEN)
_LATER = RobotsCheck(RobotsDecision.LATER)


class RobotsGate:
    """Checks requests against robots.txt, and reports its Crawl-delay to the frontier."""

    def __init__(self, fetcher: Fetcher, frontier: Frontier, settings: Settings) -> None:
        self._frontier = frontier
        self._max_delay = settings.crawl_delay_cap
        self._longest_pause = settings.retry_after_cap
        self._cache = RobotsCache(
            fetcher,
            settings.user_agent,
            RobotsSettings(ttl=settings.robots_ttl, retry_after_cap=settings.retry_after_cap),
            frontier.notes,
        )
        self._delays: dict[str, float] = {}

    async def check(self, url: str, inflight: InflightRequest, timeout: float | None = None) -> RobotsCheck:
        """Decide whether a URL may be fetched with this lease.

        Fetches robots.txt if necessary, within ``timeout`` seconds. Raises
        :class:`~skitter.fetch.contract.FetchError` if the origin does not answer.
        """
        lease = inflight.lease
        policy = self._cache.known(url)
        is_new = policy is None
        if policy is None:
            if not inflight.may_send():
                return _LATER
            policy = await self._cache.policy(url, inflight, timeout)
        if isinstance(policy, Deferred):
            return await self._defer(policy, url, lease, is_new=is_new)
        if policy.crawl_delay and await self._slow_down(policy, lease):
            return _LATER
        if not policy.allowed(url):
            return _FORBIDDEN
        return _LATER if is_new and inflight.expires else _ALLOWED

    def allows(self, url: str) -> bool:
        """Return whether rules that are known here allow a URL without a delay. If not, :meth:`check` decides."""
        policy = self._cache.known(url)
        return isinstance(policy, RobotsPolicy) and not policy.crawl_delay and policy.allowed(url)

    def knows(self, url: str) -> bool:
        """Return whether the origin of a URL has answered a request for its robots.txt, from this or another worker."""
        return self._cache.known(url) is not None

    def policy(self, url: str) -> RobotsPolicy | None:
        """Return the policy of the origin of a URL; ``None`` if its robots.txt is not known here, or unavailable."""
        policy = self._cache.known(url)
        return policy if isinstance(policy, RobotsPolicy) else None

    async def _defer(self, policy: Deferred, url: str, lease: Lease, *, is_new: bool) -> RobotsCheck:
        """Let the requests of the origin wait. If the server asks for fewer requests, its whole host waits."""
        if is_new:
            text = "%s: robots.txt is unavailable (%s); its pages wait for %.0f s"
            log.warning(text, origin_of(url), policy.error, policy.seconds)
            if policy.throttled and policy.seconds <= self._longest_pause:
                await self._frontier.control.pause_slot(lease.slot, policy.seconds)
        decision = RobotsDecision.FAILED if policy.exhausted else RobotsDecision.DEFERRED
        return RobotsCheck(decision, policy.seconds, policy.error, is_new)

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
