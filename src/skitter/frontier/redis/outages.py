"""OutageTracker: which parts of a cluster are being waited for, and what people are told of it."""

from __future__ import annotations

import asyncio
import logging
import time

log = logging.getLogger("skitter.frontier")

SETTLED = 3.0
"""Seconds without an absence after which an outage is over: a node that comes back is refused by the others for a moment,
and they say then that the cluster is down."""


class OutageTracker:
    """The partitions of one cluster that are away. An outage is told once, and its end once, however many it takes along.

    ``where``: what the cluster is called in messages.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self._away: set[str] = set()
        self._begun = self._ended = 0.0
        self._end: asyncio.TimerHandle | None = None

    def __contains__(self, partition: str) -> bool:
        """Tell whether a partition is being waited for."""
        return partition in self._away

    def begin(self, partition: str, why: str, patience: float) -> None:
        """Note that a partition has to be waited for."""
        if self._end is not None:
            self._end.cancel()
            self._end = None
        elif not self._away:
            self._begun = time.monotonic()
            log.warning(
                "frontier %s: a part of the cluster is not there: %s; it is waited for, at most %.0f s, while the rest goes on",
                self._where, why, patience,
            )  # fmt: skip
        self._away.add(partition)

    def end(self, partition: str) -> None:
        """Note that a partition is there again, if it was not."""
        if partition in self._away:
            self._away.discard(partition)
            if not self._away:
                self._ended = time.monotonic()
                self._end = asyncio.get_running_loop().call_later(SETTLED, self._tell_end)

    def close(self) -> None:
        """Tell what is left to tell."""
        if self._end is not None:
            self._end.cancel()
            self._tell_end()

    def _tell_end(self) -> None:
        self._end = None
        seconds = self._ended - self._begun
        log.warning("frontier %s: all parts of the cluster are there after %.1f s", self._where, seconds)
