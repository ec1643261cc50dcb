"""RobotsGate: enforces the rules and the Crawl-delay of robots.txt."""

from __future__ import annotations

import logging
from enum import Enum

from skitter.errors import FetchError
from skitter.fetch.contract import Fetcher
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
    """The server responds to the request for robots.txt with an error, so nothing may be fetched (RFC 9309, 2.3.1.4).

    ``is_new``: whether robots.txt was fetched, or read from another worker, for this request.
    """

    kind = "robots"

    def __init__(self, policy: Deferred, *, is_new: bool) -> None:
        super().__init__(policy.error)
        self.is_new = is_new
        self.seconds = policy.seconds
        """Seconds for which the request has to wait."""
        self.exhausted = policy.exhausted
        """Whether robots.txt failed too often, so that the request fails."""


class RobotsDecision(Enum):
    """The consequence of robots.txt for a request."""

    ALLOWED = "allowed"
    FORBIDDEN = "forbidden"
    LATER = "later"
    """The fetch of robots.txt has used the time slot of the lease: the page waits for another lease."""


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

    async def check(
        self, url: str, inflight: InflightRequest, timeout: float | None = None
    ) -> RobotsDecision | RobotsUnavailable:
        """Decide whether a URL may be fetched with this lease, or return the error of its robots.txt.

        Fetches robots.txt if necessary, within ``timeout`` seconds. Raises
        :class:`~skitter.errors.FetchError` if the origin does not respond.
        """
        lease = inflight.lease
        policy = self._cache.known(url)
        is_new = policy is None
        if policy is None:
            if not inflight.may_send():
                return RobotsDecision.LATER
            policy = await self._cache.policy(url, inflight, timeout)
        if isinstance(policy, Deferred):
            if is_new:
                await self._report(policy, url, lease)
            return RobotsUnavailable(policy, is_new=is_new)
        if policy.crawl_delay and await self._slow_down(policy, lease):
            return RobotsDecision.LATER
        if not policy.allowed(url):
            return RobotsDecision.FORBIDDEN
        return RobotsDecision.LATER if is_new and inflight.expires else RobotsDecision.ALLOWED

    def allows(self, url: str) -> bool:
        """Return whether rules that this worker knows allow a URL without a delay. If not, :meth:`check` decides."""
        policy = self._cache.known(url)
        return isinstance(policy, RobotsPolicy) and not policy.crawl_delay and policy.allowed(url)

    def knows(self, url: str) -> bool:
        """Return whether the origin of a URL has responded to a request for its robots.txt, from this or another worker."""
        return self._cache.known(url) is not None

    def policy(self, url: str) -> RobotsPolicy | None:
        """Return the policy of the origin of a URL; ``None`` if its robots.txt is not known here, or unavailable."""
        policy = self._cache.known(url)
        return policy if isinstance(policy, RobotsPolicy) else None

    async def _report(self, policy: Deferred, url: str, lease: Lease) -> None:
        """Log that the requests of the origin wait. If the server asks for fewer requests, its whole host waits."""
        text = "%s: robots.txt is unavailable (%s); its pages wait for %.0f s"
        log.warning(text, origin_of(url), policy.error, policy.seconds)
        if policy.throttled and policy.seconds <= self._longest_pause:
            await self._frontier.control.pause_slot(lease.slot, policy.seconds)

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
