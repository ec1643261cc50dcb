"""Selects the proxy of each request, and does not use failing proxies for a while.

The pool belongs to one process. Sticky selection still needs no shared state: each key uses the proxy with the highest
hash of key and proxy (rendezvous hashing, Thaler and Ravishankar 1998). So all workers select the same proxy, and
when a proxy fails or leaves the list, only its own keys move.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import random
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

import xxhash

from skitter._utils.concurrency import cancel_and_wait
from skitter.errors import FetchError, SkitterError
from skitter.fetch.contract import BehindProxy, ConnectError, Disconnected, ProxyError, TimedOut
from skitter.fetch.identity.contract import NoProxyAvailable, SourceError
from skitter.fetch.identity.proxy_lists import ProxyList, label
from skitter.request import Request
from skitter.web.urls import host_of

log = logging.getLogger("skitter.fetch")

Rotation = Literal["round-robin", "random", "session", "host"]

_MAX_STRIKES = 3
"""Consecutive failures after which the cooldown of a proxy starts, if either the server or the proxy may be at fault."""
_REACHABLE_FOR = 60.0
"""How long a host counts as reachable after it has responded, in seconds."""
_MAX_HOSTS = 10_000
_MAX_NAMED = 3
"""Maximum number of proxies that a message names. A list may have thousands."""
_MAX_KEYS = 50_000


@dataclass(eq=False, slots=True)
class _Health:
    """The health of one proxy."""

    url: str
    cooldown_until: float = 0.0
    cooldowns: int = 0
    """Number of cooldowns since the last success."""
    strikes: set[object] = field(default_factory=set)


class ProxyPool:
    """Selects proxies and tracks their health. Implements :class:`~skitter.fetch.identity.contract.Proxies`.

    ``rotation``
        ``round-robin``; ``random``; ``session``: each session keeps its proxy; ``host``: each host is requested through
        one proxy.
    ``cooldown``, ``max_cooldown``
        How long a failed proxy is not used, in seconds. The time doubles with each consecutive failure, up to
        ``max_cooldown``.
    ``outage_timeout``
        If no proxy is available, requests wait for one of them as long as the last success is at most this many seconds old.
        After that they fail like any other request.
    ``every``
        Interval in seconds at which a list that may change is read again. If it cannot be read, the old list is kept.
    """

    def __init__(
        self,
        proxies: ProxyList,
        rotation: Rotation = "round-robin",
        *,
        cooldown: float = 30.0,
        max_cooldown: float = 1800.0,
        outage_timeout: float = 300.0,
        every: float = 300.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._list = proxies
        self._rotation = rotation
        self._cooldown = cooldown
        self._max_cooldown = max_cooldown
        self._outage_timeout = outage_timeout
        self._every = every
        self._clock = clock
        self._all: dict[str, _Health] = {}
        self._ready: list[_Health] = []
        self._cooling: list[tuple[float, str]] = []
        """Heap of the proxies in their cooldown, by its end."""
        self._turn = 0
        self._kept: OrderedDict[str, _Health] = OrderedDict()
        """Recent sticky selections."""
        self._responded: OrderedDict[str, float] = OrderedDict()
        """When each host last responded through any proxy."""
        self._last_success = clock()
        self._outage = ""
        """Why requests wait, while no proxy responds; empty at other times."""
        self._has_given_up = False
        """Whether the log says that requests fail, because the outage has lasted for too long."""
        self._rereading: asyncio.Task[None] | None = None

    # --- the list --------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Read the list. Raises :class:`~skitter.errors.SkitterError` if it cannot be read or is empty."""
        self._take(await self._list.read())
        if not self._all:
            raise SourceError(
                "the list of proxies is empty", remedy="give at least one proxy", field="proxies"
            )
        self._last_success = self._clock()
        if not self._list.lasting:
            self._rereading = asyncio.create_task(self._read_again())

    async def close(self) -> None:
        """Stop reading the list."""
        if self._rereading is not None:
            await cancel_and_wait([self._rereading])

    async def _read_again(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            await self.refresh()

    async def refresh(self) -> None:
        """Read the list again. If it cannot be read or is empty, the old list is kept."""
        try:
            found = await self._list.read()
        except SkitterError as error:
            log.warning("%s; keeping the known proxies (%d)", error, len(self._all))
            return
        if found:
            self._take(found)
        else:
            log.warning("the list of proxies is empty; keeping the known proxies (%d)", len(self._all))

    def _take(self, urls: list[str]) -> None:
        """Replace the list. Proxies that stay in the list keep their health."""
        now = self._clock()
        self._all = {url: self._all.get(url) or _Health(url) for url in urls}
        self._ready = [health for health in self._all.values() if health.cooldown_until <= now]
        self._cooling = [
            (health.cooldown_until, health.url)
            for health in self._all.values()
            if health.cooldown_until > now
        ]
        heapq.heapify(self._cooling)
        self._kept.clear()
        if self._ready:
            self._outage, self._has_given_up = "", False

    # --- choosing --------------------------------------------------------------------------------------

    def choose(self, request: Request, session: str) -> str:
        self._wake()
        ready = self._ready
        if not ready:
            raise self._none_available()
        if self._rotation == "host":
            return self._sticky(host_of(request.url)).url
        if self._rotation == "session" and session:
            return self._sticky(session).url
        if self._rotation == "random":
            return random.choice(ready).url
        self._turn = (self._turn + 1) % len(ready)
        return ready[self._turn].url

    def usable(self, proxy: str) -> bool:
        """Return whether a proxy is still in the list and not in its cooldown."""
        health = self._all.get(proxy)
        return health is not None and health.cooldown_until <= self._clock()

    def known(self) -> list[str]:
        """Return all proxies of the list, including those in their cooldown."""
        return list(self._all)

    def _wake(self) -> None:
        """Make proxies available again whose cooldown is over."""
        now = self._clock()
        while self._cooling and self._cooling[0][0] <= now:
            _, url = heapq.heappop(self._cooling)
            self._ready.append(self._all[url])
            self._kept.clear()  # the keys of the proxy return to it

    def _sticky(self, key: str) -> _Health:
        kept = self._kept.get(key)
        if kept is None:
            digest = xxhash.xxh3_64_intdigest
            kept = self._kept[key] = max(
                self._ready, key=lambda health: digest(f"{key}\n{health.url}".encode())
            )
            if len(self._kept) > _MAX_KEYS:
                self._kept.popitem(last=False)
        return kept

    def _none_available(self) -> NoProxyAvailable:
        now = self._clock()
        wait = max(0.0, self._cooling[0][0] - now)
        patient = now - self._last_success <= self._outage_timeout
        self._note_outage(patient=patient)
        return NoProxyAvailable(
            f"all proxies ({len(self._all)}) have failed; the first one is tried again in {wait:.0f} s",
            wait,
            free=patient,
        )

    # --- health ----------------------------------------------------------------------------------------

    def outage(self) -> str:
        """Describe why requests wait, while no proxy responds; empty at other times."""
        return self._outage

    def _note_outage(self, *, patient: bool) -> None:
        """Log that no proxy is available, and later that requests fail for it, each once until a proxy responds."""
        names = ", ".join(map(label, islice(self._all, _MAX_NAMED)))
        if len(self._all) > _MAX_NAMED:
            names += f" and {len(self._all) - _MAX_NAMED} more"
        if not self._outage and patient:
            remedy = (
                "to end the wait, stop the run, correct the setting proxies, and run the same command again"
                if self._list.lasting
                else f"to end the wait, correct the list of proxies, which is read again every {self._every:.0f} s"
            )
            log.warning(
                "no proxy responds (%s): requests wait for one, and fail if none has responded for %.0f s; %s",
                names, self._outage_timeout, remedy,
            )  # fmt: skip
        if not patient and not self._has_given_up:
            self._has_given_up = True
            log.warning("no proxy has responded for %.0f s (%s): requests fail", self._outage_timeout, names)
        self._outage = f"no proxy responds ({names})"

    def report(self, proxy: str, request: Request, error: FetchError | None) -> bool:
        self._wake()
        health = self._all.get(proxy)
        if error is None:
            self._record_success(health, request)
            return False
        own_fault = isinstance(error, ProxyError) and not isinstance(error, BehindProxy)
        if health is not None and health.cooldown_until <= self._clock():
            if own_fault:
                self._start_cooldown(health, error)
            elif isinstance(error, (BehindProxy, TimedOut, Disconnected, ConnectError)):
                health.strikes.add(self._strike(host_of(request.url)))
                if len(health.strikes) >= _MAX_STRIKES:
                    self._start_cooldown(health, error)
        return own_fault and self._clock() - self._last_success <= self._outage_timeout

    def _record_success(self, health: _Health | None, request: Request) -> None:
        now = self._last_success = self._clock()
        if self._outage:
            self._outage, self._has_given_up = "", False
            log.info("a proxy responds again")
        if health is not None:
            health.cooldowns = 0
            health.strikes.clear()
        host = host_of(request.url)
        self._responded[host] = now
        self._responded.move_to_end(host)
        if len(self._responded) > _MAX_HOSTS:
            self._responded.popitem(last=False)

    def _strike(self, host: str) -> object:
        """Return the identity of an ambiguous failure. All failures of a host count as one, unless it is known to be reachable."""
        if self._clock() - self._responded.get(host, float("-inf")) <= _REACHABLE_FOR:
            return object()
        return host

    def _start_cooldown(self, health: _Health, error: FetchError) -> None:
        seconds = min(self._cooldown * 2.0 ** min(health.cooldowns, 32), self._max_cooldown) * random.uniform(
            0.8, 1.2
        )
        health.cooldowns += 1
        health.strikes.clear()
        health.cooldown_until = self._clock() + seconds
        if health in self._ready:
            self._ready.remove(health)
            heapq.heappush(self._cooling, (health.cooldown_until, health.url))
        self._kept.clear()
        log.warning("proxy %s is not used for %.0f s (%s: %s)", label(health.url), seconds, error.kind, error)
