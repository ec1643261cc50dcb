"""CrawlEnd: asks the handlers of ``spider_idle`` for requests, and agrees with the other processes on the end of the crawl."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from skitter._utils.notes import NOTE_TTL
from skitter.errors import SkitterError
from skitter.frontier.records import JobState
from skitter.frontier.workers import PARTICIPANTS, Participants, decode_participants
from skitter.scrapy.engine import EngineSlot, IdleDecision

if TYPE_CHECKING:
    from skitter.frontier.contract import Frontier
    from skitter.worker.heartbeat import WorkerReporter

_SIGNAL_INTERVAL = 5.0
"""Seconds between two signals to handlers that keep the spider open. Scrapy's engine uses the same interval."""
_PAUSE_SHARE = 0.2
"""Pause between two checks, as a share of the time since the frontier was finished. It grows, because handlers may keep a
spider open for days."""
_LONGEST_PAUSE = 1.0
"""Maximum pause between two checks, in seconds."""
_HANDLER_SECONDS = 3600.0
"""Seconds for which a process is listed as alive while its handlers run, because they may block it."""


class CrawlEnd:
    """Decides when the crawl of a Scrapy project has ended, in one of its processes.

    The frontier is finished when it has no requests. But the handlers of ``spider_idle`` may add some, in any process. So
    each process asks its handlers, and records if they have added nothing. The crawl has ended when all processes have
    recorded this for the same reading of the frontier. ``docs/design/scrapy.md`` describes the protocol.
    """

    def __init__(self, engine: EngineSlot, added: Callable[[], Awaitable[int]]) -> None:
        """Use ``added`` to wait until the requests that handlers have added are in the frontier. It returns their number."""
        self._engine = engine
        self._added = added
        self.reporter: WorkerReporter
        """Reports this process as alive. Set before a worker joins."""
        self._frontier: Frontier | None = None
        self._worker = ""
        self._idle_at = ""
        """Reading at which the handlers of this process had nothing to add. Kept if another process becomes the owner."""
        self._asked_at = ""
        """Reading at which the handlers were asked last."""
        self._next_signal = -math.inf
        """Event loop time before which the handlers are not asked again for the same reading."""
        self._has_ended = False
        self._waits_at, self._waits_since = "", 0.0
        """The current reading, and the event loop time at which this process first saw it."""
        self._next_check = -math.inf

    async def join(self, frontier: Frontier, worker: str) -> None:
        """Take part in the agreement. Call this after the worker was announced, so that other processes know that it is alive."""
        self._frontier, self._worker, self._has_ended = frontier, worker, False
        await self._record("")

    async def leave(self) -> None:
        """Stop taking part, if the frontier is still reachable."""
        with contextlib.suppress(SkitterError):
            await self._record(None)

    async def confirm(self) -> bool:
        """Return whether the crawl has ended. Called repeatedly while the frontier is finished."""
        now = asyncio.get_running_loop().time()
        if now < self._next_check:
            return False
        reading = await self._read()
        if reading is None:
            return False
        if reading != self._waits_at:
            self._waits_at, self._waits_since = reading, now
        if self._idle_at == reading or await self._has_nothing_to_add(reading):
            await self._agree(reading)
        self._next_check = now + min(_LONGEST_PAUSE, (now - self._waits_since) * _PAUSE_SHARE)
        return self._has_ended

    async def _read(self) -> str | None:
        """Read a finished frontier. Two readings differ if work was done between them. ``None`` if it is not finished."""
        status = await self._open_frontier.status()
        if status.state is not JobState.FINISHED:
            return None
        return f"{status.added} {status.done} {status.failed}"

    async def _has_nothing_to_add(self, reading: str) -> bool:
        """Ask the handlers of this process, if they are due. Return whether they have nothing to add."""
        now = asyncio.get_running_loop().time()
        if self._asked_at == reading and now < self._next_signal:
            return False
        # From this record on, the process may add requests.
        if not self._engine.is_idle() or not await self._record(""):
            return False
        before = await self._added()
        decision = await self._ask_handlers()
        if decision is None:
            return False
        if await self._added() == before:
            self._next_signal = now + _SIGNAL_INTERVAL
        self._asked_at = reading
        if decision is not IdleDecision.END or await self._read() != reading:
            return False
        self._idle_at = reading
        return True

    async def _ask_handlers(self) -> IdleDecision | None:
        """Send the signal. Return ``None`` if the engine is not idle any more.

        A handler may block this process for longer than a normal report keeps it alive.
        """
        usual = self.reporter.ttl
        self.reporter.ttl = _HANDLER_SECONDS
        try:
            await self.reporter.announce()
            return self._engine.send_idle() if self._engine.is_idle() else None
        finally:
            self.reporter.ttl = usual

    async def _agree(self, reading: str) -> None:
        """End the crawl if no live process has anything to add."""
        frontier = self._open_frontier
        if not await self._record(reading):
            return
        found = await frontier.notes.get(PARTICIPANTS)
        if found is None or await self._read() != reading:
            return
        alive = {status.report.name for status in await frontier.reports.workers()}
        if all(at == reading for name, at in decode_participants(found).idle_at.items() if name in alive):
            # This fails if a process has joined or asked its handlers since the note was read.
            self._has_ended = await _swap(frontier, found, {})

    async def _record(self, idle_at: str | None) -> bool:
        """Record in the note of the participants what this process may add. Return ``False`` if the crawl has ended.

        ``idle_at``: the reading at which its handlers had nothing to add. An empty string means that they may add requests,
        ``None`` that the process leaves.

        A process that is missing in the note takes part again if its handlers may add requests: it was suspended, so the
        other processes considered it dead and agreed without it.
        """
        frontier = self._open_frontier
        while not self._has_ended:
            found = await frontier.notes.get(PARTICIPANTS)
            processes = dict(decode_participants(found).idle_at)
            if found is not None and idle_at != "" and self._worker not in processes:
                self._has_ended = True  # another process has found that no process has anything to add
                break
            if processes.get(self._worker) == idle_at:
                return True
            if idle_at is None:
                del processes[self._worker]
            else:
                processes[self._worker] = idle_at
            if await _swap(frontier, found, processes):
                return True
        return False

    @property
    def _open_frontier(self) -> Frontier:
        assert self._frontier is not None, "a worker has joined"
        return self._frontier


async def _swap(frontier: Frontier, found: bytes | None, idle_at: dict[str, str]) -> bool:
    new = msgspec.msgpack.encode(Participants(idle_at=idle_at))
    return await frontier.notes.compare_and_swap(PARTICIPANTS, found, new, NOTE_TTL)
