"""Backoff: how a store waits for a service that is away, goes on when it is back, and says both once."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from skitter.errors import StoreError

log = logging.getLogger("skitter.store")
_T = TypeVar("_T")

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0


class Unavailable(Exception):
    """A service does not answer, or not yet: the same call may succeed later. One line says why."""


class Outage:
    """What was said of a service that is away: nothing is said twice."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._began: float | None = None
        self._said = ""

    def meet(self, what: str, reason: object) -> None:
        """Say what the service does and what is done about it; ``%s`` in it stands for the reason."""
        if self._began is None:
            self._began = time.monotonic()
        if what != self._said:
            self._said = what
            log.warning("%s %s", self._name, what % reason)

    def end(self) -> None:
        """Say that the service is back, if it was away."""
        if self._began is not None:
            log.warning("%s is back after %.1f s; going on", self._name, time.monotonic() - self._began)
            self._began, self._said = None, ""


class Backoff:
    """Repeats a call until the service answers, with pauses that double up to five seconds, with jitter.

    Says once that it waits, and once that it goes on. ``seconds`` bounds one outage.
    """

    def __init__(self, name: str, seconds: float) -> None:
        self._name = name
        self._seconds = seconds
        self.outage = Outage(name)

    async def call(self, attempt: Callable[[], Awaitable[_T]]) -> _T:
        """Return what the call returns. The call must be harmless when it is repeated.

        Raises :class:`~skitter.errors.StoreError` once an outage has lasted too long.
        """
        loop = asyncio.get_running_loop()
        began, pause = 0.0, FIRST_PAUSE
        while True:
            try:
                result = await attempt()
            except Unavailable as reason:
                began = began or loop.time()
                if self._seconds:
                    self.outage.meet(f"is away (%s); waiting for it, at most {self._seconds:g} s", reason)
                if loop.time() - began >= self._seconds:
                    raise self._given_up(reason) from reason
                left = began + self._seconds - loop.time()
                await asyncio.sleep(min(pause * random.uniform(0.5, 1.0), max(0.0, left)))
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                self.outage.end()
                return result

    def _given_up(self, reason: Unavailable) -> StoreError:
        return StoreError(
            f"{self._name} has been away for {self._seconds:g} s: {reason}",
            remedy="start the server, then run the same command again: nothing that was committed is lost",
        )
