"""Helpers for concurrency: ending tasks and servers, threads for blocking calls or an event loop, one coroutine per key."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, TypeVar

_Result = TypeVar("_Result")
_LONGEST_SHORT_CALL = 0.02
"""Seconds that a short call may take on the event loop."""
_BLOCKED_SHARE = 0.05
"""Maximum share of time for which longer calls block the event loop. After such a call, the next calls run in the thread."""
_CANCEL_INTERVAL = 5.0
"""Seconds after which a task that still runs is cancelled again."""
_ACCEPT_ITERATIONS = 3
"""Iterations of an event loop after which an accepted socket has been passed to its protocol."""


def is_cancelled() -> bool:
    """Return whether the current task itself is being cancelled, rather than something that it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def cancel_and_wait(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel tasks and wait until all have ended, whatever their results.

    A task may lose its cancellation: in Python 3.11, :func:`asyncio.wait_for` returns normally if its call has just ended,
    and clients of databases and brokers use it. So a task that still runs after some seconds is cancelled again.
    """
    cancelled = list(tasks)
    pending = set(cancelled)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=_CANCEL_INTERVAL)
    await asyncio.gather(*cancelled, return_exceptions=True)  # otherwise their errors would be logged


async def stop_listening(*servers: asyncio.Server) -> None:
    """Close servers, but only after every accepted connection has been passed to its protocol, which can close it.

    An asyncio server that closes during the iteration in which it accepts a socket leaves this socket open.
    """
    loop = asyncio.get_running_loop()
    for server in servers:
        for listener in server.sockets:
            loop.remove_reader(listener.fileno())
    try:
        for _ in range(_ACCEPT_ITERATIONS):
            await asyncio.sleep(0)
    finally:  # also if this call is cancelled
        for server in servers:
            server.close()


async def wait_until_set(event: asyncio.Event, seconds: float) -> None:
    """Wait until an event is set, for at most ``seconds``."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


class SingleThreadExecutor:
    """Runs the blocking calls of a store or a frontier in one thread, one at a time.

    A call that is cancelled while it runs is still finished, so that state stays consistent.
    """

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=f"skitter-{name}")
        self._last: Future[Any] | None = None
        """The last submitted call."""
        self._slow_until = 0.0
        """Until this time (:func:`time.monotonic`), :meth:`run_short` uses the thread."""

    async def run(self, call: Callable[..., _Result], /, *args: object) -> _Result:
        """Run a call after all earlier ones and return its result."""
        # Not run_in_executor: in uvloop, it inspects each function, which takes longer than many calls.
        future = self._last = self._pool.submit(call, *args)
        return await asyncio.wrap_future(future)

    async def run_short(self, call: Callable[..., _Result], /, *args: object) -> _Result:
        """Run a call that usually takes a millisecond, such as a small write to a file that is not synchronized.

        The call runs on the event loop if no other call is in progress. Passing it to the thread and back would cost more
        than the call, because both threads compete for the interpreter lock. If a call takes long, for example on a busy
        disk, the calls of the following seconds run in the thread, see :data:`_BLOCKED_SHARE`.
        """
        is_idle = self._last is None or self._last.done()
        began = time.monotonic()
        if not is_idle or began < self._slow_until:
            return await self.run(call, *args)
        try:
            return call(*args)
        finally:
            ended = time.monotonic()
            if ended - began > _LONGEST_SHORT_CALL:
                self._slow_until = ended + (ended - began) / _BLOCKED_SHARE

    def stop(self) -> None:
        """End the thread after all submitted calls, without waiting for them."""
        self._pool.shutdown(wait=False)


class LoopThread:
    """An event loop in a separate thread, for programs without an event loop."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.loop = asyncio.new_event_loop() if loop is None else loop
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Run a coroutine until it ends, and return its result. Ctrl-C cancels it; a second Ctrl-C does not wait for its end."""
        ended = threading.Event()
        tasks: list[asyncio.Task[_Result]] = []

        def start() -> None:
            tasks.append(self.loop.create_task(work))
            tasks[0].add_done_callback(lambda _: ended.set())

        def cancel() -> None:
            tasks[0].cancel()

        try:
            self.loop.call_soon_threadsafe(start)
            ended.wait()
        except KeyboardInterrupt:
            self.loop.call_soon_threadsafe(cancel)
            ended.wait()
            raise
        return tasks[0].result()

    def stop(self) -> None:
        """End the loop and the thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class SingleFlight(Generic[_Result]):
    """Runs at most one coroutine per key at a time. Callers that wait for the same key get the same result or exception."""

    def __init__(self) -> None:
        self._running: dict[str, asyncio.Task[_Result]] = {}

    async def join(self, key: str, start: Callable[[], Coroutine[Any, Any, _Result]]) -> _Result:
        """Wait for the coroutine of a key, which is started if none is running. It continues if a caller is cancelled."""
        task = self._running.get(key)
        if task is None:
            task = self._running[key] = asyncio.create_task(start())
            task.add_done_callback(lambda _: self._running.pop(key, None))
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Cancel all running coroutines, and wait for their end."""
        await cancel_and_wait(self._running.values())
