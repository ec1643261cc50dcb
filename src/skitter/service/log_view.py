"""LogView: the log of a run as a caller wants to see it: certain lines, a page of them, the last ones, or on and on as they come."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec

from skitter.errors import SkitterError
from skitter.service.log_lines import LogLine, severity_of
from skitter.service.run_logs import RunLog

_AT_ONCE = 1000
_LOOK_EVERY = 0.5
"""Seconds between two looks for lines that came."""
_SIGN_EVERY = 15.0
"""Seconds after which a caller who waits for lines is told that somebody is there."""
Numbered = tuple[int, LogLine]
"""A line with its number."""
_decoder = msgspec.json.Decoder(LogLine)


class LogPage(msgspec.Struct):
    """Some lines of a log."""

    lines: list[Numbered]
    next: int
    """Number of the last line that was looked at."""


class LogView:
    """What is chosen of one log: lines from a level on, with a text in them, after a number."""

    def __init__(self, kept: Callable[[], RunLog], level: str, contains: str) -> None:
        self._kept = kept
        self._least = severity_of(level)
        self._contains = contains

    async def page(self, after: int, limit: int) -> LogPage:
        """Return the first lines after a number; as many as there are by now, at most ``limit``."""
        found: list[Numbered] = []
        async with contextlib.aclosing(self._chosen(after)) as chosen:
            async for number, line in chosen:
                after = number
                if line is not None:
                    found.append((number, line))
                    if len(found) == limit:
                        break
        return LogPage(found, after)

    async def last(self, after: int, limit: int) -> LogPage:
        """Return the last lines of those after a number."""
        found: deque[Numbered] = deque(maxlen=limit)
        async for number, line in self._chosen(after):
            after = number
            if line is not None:
                found.append((number, line))
        return LogPage(list(found), after)

    async def _chosen(self, after: int) -> AsyncGenerator[tuple[int, LogLine | None], None]:
        """Give the numbers of all lines, with those lines that are chosen."""
        kept = self._kept()
        try:
            while rows := await kept.read(after, _AT_ONCE):
                for number, data in rows:
                    line = _decoder.decode(data)
                    is_chosen = line.severity >= self._least and (
                        not self._contains or line.is_about(self._contains)
                    )
                    yield number, line if is_chosen else None
                if len(rows) < _AT_ONCE:
                    return
                after = rows[-1][0]
        finally:
            await kept.close()

    async def first(self, after: int, last: int | None) -> LogPage:
        """Return what :meth:`rest` goes on from."""
        return await (self.page(after, _AT_ONCE) if last is None else self.last(after, last))

    async def rest(self, page: LogPage) -> AsyncIterator[list[Numbered]]:
        """Give the lines of a page and all after them that are there by now."""
        while page.lines:
            yield page.lines
            page = await self.page(page.next, _AT_ONCE)

    async def follow(
        self, page: LogPage, leaving: asyncio.Event, is_at_work: Callable[[], Awaitable[bool]]
    ) -> AsyncIterator[list[Numbered]]:
        """Give the same, and what comes, until nobody is at work and all is given, or this node leaves.

        An empty list is a sign of life. A store that is away is waited for.
        """
        after, spoken, is_last = page.next, time.monotonic(), False
        if page.lines:
            yield page.lines
        while not leaving.is_set():
            try:
                page = await self.page(after, _AT_ONCE)
                after = page.next
                if page.lines or time.monotonic() - spoken > _SIGN_EVERY:
                    spoken = time.monotonic()
                    yield page.lines
                if len(page.lines) == _AT_ONCE:
                    continue
                if is_last:
                    return
                is_last = not await is_at_work()  # before the last look: what was said until then is kept
            except SkitterError:
                is_last = False
            if not is_last:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(leaving.wait(), _LOOK_EVERY)


def as_page(run: str, page: LogPage) -> dict[str, Any]:
    """Return a page for callers."""
    return {"run": run, "lines": [line.view(number) for number, line in page.lines], "next": page.next}


def as_json_lines(lines: list[Numbered]) -> bytes:
    """Return lines as JSON texts, one a line; an empty line without any."""
    return b"".join(msgspec.json.encode(line.view(number)) + b"\n" for number, line in lines) or b"\n"


def as_text(lines: list[Numbered]) -> bytes:
    """Return lines for people; an empty line without any."""
    return "".join(line.text() for _, line in lines).encode() or b"\n"
