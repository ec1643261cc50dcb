"""Robots gate: no page is fetched that its host's robots.txt forbids, and none earlier than it asks."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from enum import StrEnum

import msgspec

from skitter.fetch.contract import Fetcher, UnresolvedHost
from skitter.fetch.robots import Deferred, RobotsPolicy, RobotsSettings
from skitter.fetch.robots_cache import RobotsCache
from skitter.frontier.contract import Frontier
from skitter.frontier.records import Lease
from skitter.settings import Settings

log = logging.getLogger("skitter.crawl")


_ROBOTS_FAILURES = 5
"""So many failures in a row, 10, 20, 40 and 80 seconds apart, and the pages of the host are given up: they can
be replayed from the dead letters when the host is back."""


_UNRESOLVED = 2
"""A host name that does not resolve so often is hardly there."""


class RobotsDecision(StrEnum):
    """What the gate says."""

    OPEN = "open"
    FORBIDDEN = "forbidden"
    SPENT = "spent"
    """The turn of this lease was spent on robots.txt itself: the page has to wait for its next one."""
    DEFERRED = "deferred"
    """robots.txt cannot be had now; the host is left alone for a while."""
    EXHAUSTED = "exhausted"
    """robots.txt failed so often that the page is given up."""


class RobotsCheck(msgspec.Struct, frozen=True):
    """What the gate says, and why."""

    passage: RobotsDecision
    seconds: float = 0.0
    error: str = ""


_OPEN = RobotsCheck(RobotsDecision.OPEN)
_FORBIDDEN = RobotsCheck(RobotsDecision.FORBIDDEN)
_SPENT = RobotsCheck(RobotsDecision.SPENT)


class RobotsGate:
    """Asks the robots.txt of a request's origin, and passes Crawl-delay on to the frontier."""

    def __init__(self, fetcher: Fetcher, frontier: Frontier, settings: Settings) -> None:
        self._frontier = frontier
        self._cap = settings.crawl_delay_cap
        self._desk = RobotsCache(
            fetcher,
            settings.user_agent,
            RobotsSettings(ttl=settings.robots_ttl, first_deferral=10.0, max_failures=_ROBOTS_FAILURES),
            frontier.notes,
        )
        self._delays: dict[str, float] = {}
        self._unresolved: Counter[str] = Counter()
        """How often the name of a slot's host was looked up in vain."""

    async def check(self, url: str, lease: Lease, may_start: Callable[[], bool]) -> RobotsCheck:
        """Decide whether the URL may be fetched within this lease.

        ``may_start`` tells whether a fetch, here that of robots.txt itself, may still begin.
        """
        verdict = self._desk.known(url)
        asked = verdict is None
        if verdict is None:
            if not may_start():
                return _SPENT
            verdict = await self._desk.verdict(url)
        if isinstance(verdict, Deferred):
            return await self._defer(verdict, lease, asked=asked)
        if verdict.crawl_delay and await self._slow_down(verdict, lease):
            return _SPENT
        if not verdict.allowed(url):
            return _FORBIDDEN
        return _SPENT if asked and lease.start_within is not None else _OPEN

    async def _defer(self, verdict: Deferred, lease: Lease, *, asked: bool) -> RobotsCheck:
        """Leave the host alone for a while, unless robots.txt failed too often or the host has no address."""
        if asked:
            text = "%s: robots.txt cannot be had (%s); the host has to wait %.0f s"
            log.warning(text, lease.slot, verdict.error, verdict.seconds)
            if verdict.error.startswith(UnresolvedHost.kind):
                self._unresolved[lease.slot] += 1
        if verdict.exhausted or self._unresolved[lease.slot] >= _UNRESOLVED:
            return RobotsCheck(RobotsDecision.EXHAUSTED, error=verdict.error)
        await self._frontier.control.pause_slot(lease.slot, verdict.seconds)
        return RobotsCheck(RobotsDecision.DEFERRED, verdict.seconds, verdict.error)

    async def _slow_down(self, policy: RobotsPolicy, lease: Lease) -> bool:
        """Make a Crawl-delay known; returns whether the lease was granted without it."""
        delay = min(policy.crawl_delay or 0.0, self._cap)
        if self._delays.get(lease.slot) != delay:
            self._delays[lease.slot] = delay
            await self._frontier.control.set_delay(lease.slot, delay)
        return lease.start_within is None

    async def close(self) -> None:
        """Give up robots.txt files being fetched."""
        await self._desk.close()
