"""A thread for the blocking calls of a store or a frontier, which run one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_T = TypeVar("_T")


class SingleThreadExecutor:
    """Runs calls in one thread. A call that is cancelled while it runs is finished, so state stays consistent."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=f"skitter-{name}")

    async def run(self, call: Callable[..., _T], /, *args: object) -> _T:
        """Run a call after all earlier ones and return its result."""
        # Not run_in_executor: that of uvloop inspects each function, which takes longer than many calls.
        return await asyncio.wrap_future(self._pool.submit(call, *args))

    def stop(self) -> None:
        """End the thread after all submitted calls, without waiting for them."""
        self._pool.shutdown(wait=False)
