"""Tasks that run in the background, so that no call to a frontier waits for an unavailable partition."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from skitter._utils.concurrency import cancel_and_wait
from skitter.frontier.cluster.partition import Partition

Result = TypeVar("Result")

POLL_INTERVAL = 0.1
"""Seconds between two checks whether a partition is available."""
TIMEOUT = 5.0
"""Seconds after which a partition that neither replies nor refuses counts as unavailable."""


class BackgroundTasks:
    """Background tasks of one frontier. :meth:`check` raises the error of a task that has failed."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._failure: BaseException | None = None

    def start(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Start a task."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = self._failure or error

    def check(self) -> None:
        """Raise the error of the first task that failed, if any did. Later calls raise it again."""
        if self._failure is not None:
            raise self._failure

    async def run(
        self, calls: Iterable[tuple[Partition, Coroutine[Any, Any, Result]]]
    ) -> list[asyncio.Task[Result]]:
        """Start a call to each partition, and wait as in :meth:`wait`. Return all tasks, finished or not."""
        tasks = {self.start(call): partition for partition, call in calls}
        await self.wait(tasks)
        return list(tasks)

    async def wait(self, tasks: Mapping[asyncio.Task[Any], Partition]) -> None:
        """Wait for tasks. Tasks of unavailable partitions continue in the background."""
        deadline = asyncio.get_running_loop().time() + TIMEOUT
        waited = {task for task, partition in tasks.items() if not partition.is_unavailable}
        while waited and asyncio.get_running_loop().time() < deadline:
            _, waited = await asyncio.wait(waited, timeout=POLL_INTERVAL)
            waited = {task for task in waited if not tasks[task].is_unavailable}
        await asyncio.sleep(0)  # let the done callbacks run
        self.check()

    async def close(self) -> None:
        """Cancel all tasks."""
        await cancel_and_wait(self._tasks)


async def gather_all(calls: Iterable[Awaitable[Result]]) -> list[Result]:
    """Make calls at the same time and return their results in order. If one fails, cancel the others."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        await cancel_and_wait(tasks)
        raise
