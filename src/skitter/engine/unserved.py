"""Unserved: tells of queues in which something waits that no worker takes from."""

from __future__ import annotations

import logging

from skitter.frontier.base import Frontier
from skitter.frontier.records import FrontierStatus, JobState
from skitter.frontier.roster import unserved

log = logging.getLogger("skitter.engine")

_PATIENCE = 10.0
"""Seconds for which a worker may be on its way: one that died is replaced, another machine may come later."""


class UnservedQueues:
    """Watches a job for its owner. Each queue is told of once."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._told: set[str] = set()

    async def look(self, frontier: Frontier, status: FrontierStatus, now: float) -> None:
        """Look at a reading of the job; ``now`` in seconds, from any beginning."""
        if status.state is not JobState.RUNNING or not any(status.queues.values()):
            return
        waiting = unserved(status.queues, await frontier.workers())
        self._since = {queue: self._since.get(queue, now) for queue in waiting}
        for queue, since in self._since.items():
            if now - since >= _PATIENCE and queue not in self._told:
                self._told.add(queue)
                log.warning(
                    "%d queued in queue %s, which no worker serves: the job waits for one (--queue %s)",
                    waiting[queue],
                    queue,
                    queue,
                )
