"""SingleFlight: joins callers that want the same result at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

_Result = TypeVar("_Result")


class SingleFlight(Generic[_Result]):
    """Runs at most one coroutine per key at a time. All callers of that time get its result, or its exception."""

    def __init__(self) -> None:
        self._running: dict[str, asyncio.Task[_Result]] = {}

    async def join(self, key: str, start: Callable[[], Coroutine[Any, Any, _Result]]) -> _Result:
        """Wait for the coroutine of a key; start it if none runs. It continues if a caller is cancelled."""
        task = self._running.get(key)
        if task is None:
            task = self._running[key] = asyncio.create_task(start())
            task.add_done_callback(lambda _: self._running.pop(key, None))
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Cancel all running coroutines, and wait for their end."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
