"""RobotsCache: the robots.txt rules of each URL, cached in this process and shared with the other workers."""

from __future__ import annotations

import time

from skitter._utils.concurrency import SingleFlight
from skitter._utils.notes import Notes
from skitter.fetch.contract import UNCONDITIONAL, Fetcher, SendPermit
from skitter.fetch.origin_cache import OriginCache
from skitter.fetch.robots import (
    Deferred,
    RobotsRecord,
    RobotsSettings,
    decode_record,
    encode_record,
    fetch_robots,
    parse_robots,
)
from skitter.fetch.robots_rules import RobotsPolicy, product_token
from skitter.web.urls import origin_of

_UNSHARED_SECONDS = 10.0
"""Seconds for which the notes are not read again for an origin that no worker has reached."""
_KEPT_BEYOND_TTL = 86_400.0
"""Seconds for which an expired record is still shared, because its failure count and its rules are still needed."""


class RobotsCache:
    """Returns the robots.txt rules of each URL.

    A file is fetched once for all waiting requests of this process, and offered to the other workers through the shared
    ``notes``.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        user_agent: str,
        settings: RobotsSettings | None = None,
        notes: Notes | None = None,
    ) -> None:
        self._fetcher = fetcher
        self._token = product_token(user_agent)
        self._settings = settings or RobotsSettings()
        self._notes = notes
        self._known = OriginCache[tuple[RobotsRecord, RobotsPolicy | Deferred]](self._settings.max_cached)
        self._fetches = SingleFlight[RobotsRecord]()
        self._unshared: dict[str, float] = {}
        """When (:func:`time.monotonic`) the notes were found to lack an origin."""

    def known(self, url: str) -> RobotsPolicy | Deferred | None:
        """Return the cached policy. ``None`` if :meth:`policy` must read or fetch it."""
        origin = origin_of(url)
        entry = self._known.get(origin)
        if entry is None:
            return None
        record, policy = entry
        now = time.time()
        if not record.holds(now):
            return None
        if isinstance(policy, Deferred):
            return parse_robots(record, self._token, self._settings, now)
        return policy

    async def policy(
        self, url: str, permit: SendPermit = UNCONDITIONAL, timeout: float | None = None
    ) -> RobotsPolicy | Deferred:
        """Return the rules for a URL, or the time to wait.

        Fetches robots.txt if necessary, within ``permit`` and ``timeout`` seconds. Raises
        :class:`~skitter.errors.FetchError` if the origin does not respond; all callers that wait for the same
        fetch get the same error.
        """
        known = self.known(url)
        if known is not None:
            return known
        origin = origin_of(url)
        record = await self._fetches.join(origin, lambda: self._find(origin, permit, timeout))
        return self._keep(origin, record)

    async def close(self) -> None:
        """Cancel all running fetches of robots.txt."""
        await self._fetches.close()

    async def _find(self, origin: str, permit: SendPermit, timeout: float | None) -> RobotsRecord:
        key = f"robots:{origin}"
        entry = self._known.get(origin)
        previous = entry[0] if entry else None
        shared = await self._shared(origin, key)
        if shared is not None:
            if shared.holds(time.time()):
                return shared
            previous = shared
        record = await fetch_robots(
            self._fetcher, origin, self._settings, previous, permit=permit, timeout=timeout
        )
        if self._notes is not None:
            await self._notes.put(key, encode_record(record), record.ttl + _KEPT_BEYOND_TTL)
        return record

    async def _shared(self, origin: str, key: str) -> RobotsRecord | None:
        """Return the record that a worker has stored. Repeated attempts to reach a dead origin soon need no lookup."""
        now = time.monotonic()
        if self._notes is None or now - self._unshared.get(origin, -_UNSHARED_SECONDS) < _UNSHARED_SECONDS:
            return None
        shared = decode_record(await self._notes.get(key))
        if shared is None:
            if len(self._unshared) >= self._settings.max_cached:
                self._unshared.clear()
            self._unshared[origin] = now
        return shared

    def _keep(self, origin: str, record: RobotsRecord) -> RobotsPolicy | Deferred:
        entry = self._known.get(origin)
        if entry is not None and entry[0] is record and not isinstance(entry[1], Deferred):
            return entry[1]
        policy = parse_robots(record, self._token, self._settings, time.time())
        self._known.put(origin, (record, policy), len(record.body))
        self._unshared.pop(origin, None)
        return policy
