"""BackgroundTasks: work that goes on beside the calls of a frontier, because a partition may have to be waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from skitter.frontier.cluster.partition import Partition

Answer = TypeVar("Answer")

_LOOK_EVERY = 0.1
_LONGEST = 5.0
"""Seconds for which a partition is waited for that neither answers nor refuses; it is then taken for away."""


class BackgroundTasks:
    """Tasks of one frontier. What fails in one is told to whoever calls :meth:`check` next."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._failure: BaseException | None = None

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Begin something."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = self._failure or error

    def check(self) -> None:
        """Raise what went wrong in any of them, once and for all."""
        if self._failure is not None:
            raise self._failure

    async def wait(self, tasks: Mapping[asyncio.Task[Any], Partition]) -> None:
        """Wait for some of them, but not for those whose partition is away, which go on."""
        deadline = asyncio.get_running_loop().time() + _LONGEST
        waited = {task for task, partition in tasks.items() if not partition.is_away}
        while waited and asyncio.get_running_loop().time() < deadline:
            _, waited = await asyncio.wait(waited, timeout=_LOOK_EVERY)
            waited = {task for task in waited if not tasks[task].is_away}
        await asyncio.sleep(0)  # let :meth:`_ended` see them first
        self.check()

    async def close(self) -> None:
        """Break off what is not done."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def gather_all(calls: Iterable[Awaitable[Answer]]) -> list[Answer]:
    """Make calls at the same time; returns all answers in their order. If one fails the others are broken off."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
