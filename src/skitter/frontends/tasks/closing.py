"""Closing: what waits of a task that is closed leaves the queue at once, not at the turn of its host."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from skitter.frontends.tasks.task import Task

if TYPE_CHECKING:
    from skitter.worker.worker import Worker

_LOOK_EVERY = 0.5
"""Seconds between two looks whether a task was closed."""
_FIRST_GAP = 1.0
"""Seconds between the first two sweeps for a task; doubled as long as nothing more is found."""
_MOST_OF_THE_TIME = 20.0
"""A sweep is followed by a rest of so many times what it took: it costs 5 % at most, however long the queue is."""


class Sweeps:
    """When to look for what waits of one closed task."""

    def __init__(self, now: float, patience: float) -> None:
        self._patience = patience
        self.next_at = now
        self.gap = _FIRST_GAP
        self._until = now + patience

    def note(self, began: float, ended: float, found: int) -> None:
        """Find the time of the next sweep after one that found so many."""
        self.gap = _FIRST_GAP if found else 2 * self.gap
        if found:
            self._until = ended + self._patience
        self.next_at = ended + max(self.gap, _MOST_OF_THE_TIME * (ended - began))
        if self.next_at > self._until:
            self.next_at = float("inf")

    def meet(self, now: float) -> None:
        """Look again: there was still one."""
        self._until = now + self._patience
        self.gap = _FIRST_GAP
        self.next_at = min(self.next_at, now + _FIRST_GAP)


class Closing:
    """Sweeps the frontier for requests of closed tasks while a job runs.

    One sweep is not enough: another worker may hear of the closing a moment later, and the request of a worker that
    dies comes back when its lease runs out. So there are some more, ever more seldom, until no lease can be left of
    the time before; and again where a worker meets a request of a closed task nevertheless. Of several workers one does
    each of them.
    """

    def __init__(self, tasks: Callable[[], Iterable[Task]], look: Callable[[], Awaitable[None]]) -> None:
        self._tasks = tasks
        self._look = look
        self._sweeps: dict[str, Sweeps] = {}

    async def run(self, worker: Worker) -> None:
        """Do so until the worker ends."""
        while True:
            await self._look()
            for task in [task for task in self._tasks() if task.closed]:
                await self._see_to(task.name, worker)
            await asyncio.sleep(_LOOK_EVERY)

    async def _see_to(self, task: str, worker: Worker) -> None:
        began = time.monotonic()
        if task not in self._sweeps:
            self._sweeps[task] = Sweeps(began, 1.5 * worker.settings.lease_seconds)
        sweeps = self._sweeps[task]
        if began >= sweeps.next_at:
            found = await worker.drop_group(task, 0.9 * sweeps.gap)
            sweeps.note(began, time.monotonic(), found)

    def meet(self, task: str) -> None:
        """Hear that a request of a closed task was handed out."""
        if (sweeps := self._sweeps.get(task)) is not None:
            sweeps.meet(time.monotonic())
