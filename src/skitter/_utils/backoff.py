"""Retries with growing delays, and log messages that report an outage once when it starts and once when it ends."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from skitter.errors import StoreError

_T = TypeVar("_T")

FIRST_PAUSE = 0.1
"""Default delay before the first retry, in seconds."""
LONGEST_PAUSE = 5.0
"""Default upper bound of the delays, in seconds."""


class Unavailable(Exception):
    """A service does not respond, or not yet. The same call may succeed later; the message gives the reason in one line."""


class Outage:
    """Logs the outage of a service: one warning for each different description, and one when the outage ends.

    ``name``: name of the service; every message begins with it.
    ``logger``: logger that receives the messages.
    """

    def __init__(self, name: str, logger: str = "skitter.store") -> None:
        self._name = name
        self._log = logging.getLogger(logger)
        self._since: float | None = None
        self._logged: set[str] = set()

    def report_failure(self, message: str, reason: object) -> None:
        """Report a failure. ``message`` describes it and contains one ``%s`` for the reason. Repeated descriptions are not logged."""
        if self._since is None:
            self._since = time.monotonic()
        if message not in self._logged:
            self._logged.add(message)
            self._log.warning(f"%s {message}", self._name, reason)

    def end(self) -> None:
        """Report that the service is available. Does nothing if there was no outage."""
        if self._since is not None:
            self._log.warning("%s is back after %.1f s", self._name, time.monotonic() - self._since)
            self._since = None
            self._logged.clear()


class Backoff:
    """Delays that grow with each attempt, with jitter.

    Use :meth:`wait` and :meth:`reset` in your own loop, :meth:`next_delay` if something else waits, and
    :meth:`call` to repeat one call until it succeeds::

        backoff = Backoff(first=0.5, maximum=10.0)
        while not await try_it():
            await backoff.wait()

    ``name``: name of the service, for messages and errors of :meth:`call`.
    ``seconds``: time for which :meth:`call` retries during one outage; 0: it does not retry.
    ``first``: delay after the first failure, in seconds.
    ``maximum``: upper bound of the delays, in seconds.
    ``multiplier``: factor from one delay to the next.
    ``jitter``: share of each delay that is random: with 0.5, a delay of 4 s lasts between 2 s and 4 s.
    ``logger``: logger that receives the messages of :attr:`outage`.
    """

    def __init__(
        self,
        name: str = "",
        seconds: float = math.inf,
        *,
        first: float | None = None,
        maximum: float | None = None,
        multiplier: float = 2.0,
        jitter: float = 0.5,
        logger: str = "skitter.store",
    ) -> None:
        self._name = name
        self._seconds = seconds
        self._first = FIRST_PAUSE if first is None else first
        self._maximum = LONGEST_PAUSE if maximum is None else maximum
        self._multiplier = multiplier
        self._jitter = jitter
        self._delay = self._first
        self.outage = Outage(name, logger)

    def next_delay(self) -> float:
        """Return the delay before the next attempt, in seconds, and increase the delay after it."""
        delay = min(self._delay, self._maximum)
        self._delay = min(delay * self._multiplier, self._maximum)
        return delay * random.uniform(1.0 - self._jitter, 1.0)

    async def wait(self, at_most: float = math.inf) -> None:
        """Sleep for the next delay, but not longer than ``at_most`` seconds."""
        await asyncio.sleep(min(self.next_delay(), max(0.0, at_most)))

    def reset(self) -> None:
        """Start again with the first delay. Call this after a success."""
        self._delay = self._first

    async def call(self, attempt: Callable[[], Awaitable[_T]]) -> _T:
        """Call ``attempt`` until it does not raise :class:`Unavailable`, and return its result.

        It must be safe to repeat the call. Raises :class:`~skitter.errors.StoreError` if an outage lasts longer than
        ``seconds``.
        """
        deadline = math.inf
        self.reset()
        while True:
            try:
                result = await attempt()
            except Unavailable as reason:
                now = time.monotonic()
                deadline = min(deadline, now + self._seconds)
                if self._seconds:
                    self.outage.report_failure(
                        f"is unavailable (%s); retrying for at most {self._seconds:g} s", reason
                    )
                if now >= deadline:
                    raise StoreError(
                        f"{self._name} has been unavailable for {self._seconds:g} s: {reason}",
                        remedy="start the server, then run the same command again: nothing that was committed is lost",
                    ) from reason
                await self.wait(deadline - now)
            else:
                self.outage.end()
                return result
