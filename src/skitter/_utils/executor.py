"""SingleThreadExecutor: where a store or a frontier makes its blocking calls, one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

_T = TypeVar("_T")


class SingleThreadExecutor:
    """One thread. A call that is cancelled while it runs is finished, so state stays consistent."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=f"skitter-{name}")

    async def run(self, call: Callable[..., _T], /, *args: object) -> _T:
        """Run a call after all earlier ones and return what it returns."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, partial(call, *args))

    def stop(self) -> None:
        """End the thread after the calls that were given to it. Does not wait."""
        self._pool.shutdown(wait=False)
