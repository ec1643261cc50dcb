"""The log of a run as callers read it: filtered lines, a page of them, the last ones, or new lines as they arrive."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from skitter._utils.concurrency import wait_until_set
from skitter.errors import SkitterError
from skitter.run.log_frames import LogLine, severity_of
from skitter.service.storage import AppendLog

_BATCH_SIZE = 1000
"""Maximum lines in one read."""
_POLL_INTERVAL = 0.5
"""Time between two checks for new lines, in seconds."""
_KEEP_ALIVE_INTERVAL = 15.0
"""Seconds after which a caller that waits for lines receives a keep-alive."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_INDENT = "    "
NumberedLine = tuple[int, LogLine]
_decoder = msgspec.json.Decoder(LogLine)


class LogPage(msgspec.Struct):
    """Some lines of a log."""

    lines: list[NumberedLine]
    next: int
    """Number of the last line that was read, even if it was not selected."""


class LogView:
    """Selected lines of one log.

    ``open_log``: opens the log.
    ``level``: lowest level.
    ``contains``: text that the message or the traceback must contain, ignoring case; empty for all lines.
    """

    def __init__(self, open_log: Callable[[], AppendLog], level: str, contains: str) -> None:
        self._open_log = open_log
        self._severity = severity_of(level)
        self._text = contains.casefold()

    async def page(self, after: int, limit: int = _BATCH_SIZE, *, last: int | None = None) -> LogPage:
        """Return the first ``limit`` available lines after a number or, with ``last``, that many of the last lines."""
        found: deque[NumberedLine] = deque(maxlen=last)
        async with contextlib.aclosing(self._lines(after)) as lines:
            async for number, line in lines:
                after = number
                if line is not None:
                    found.append((number, line))
                    if last is None and len(found) == limit:
                        break
        return LogPage(list(found), after)

    async def _lines(self, after: int) -> AsyncGenerator[tuple[int, LogLine | None], None]:
        """Yield the numbers of all lines, with the selected lines."""
        stored = self._open_log()
        try:
            while rows := await stored.read(after, _BATCH_SIZE):
                for number, data in rows:
                    line = _decoder.decode(data)
                    texts = (line.message.casefold(), line.traceback.casefold())
                    is_selected = line.severity >= self._severity and any(
                        self._text in text for text in texts
                    )
                    yield number, line if is_selected else None
                if len(rows) < _BATCH_SIZE:
                    return
                after = rows[-1][0]
        finally:
            await stored.close()

    async def rest(self, page: LogPage) -> AsyncIterator[list[NumberedLine]]:
        """Yield the lines of a page and all later lines available now."""
        while page.lines:
            yield page.lines
            page = await self.page(page.next)

    async def follow(
        self, page: LogPage, leaving: asyncio.Event, is_active: Callable[[], Awaitable[bool]]
    ) -> AsyncIterator[list[NumberedLine]]:
        """Yield the lines of a page and all later lines, until the run is inactive or this node leaves.

        An empty list is a keep-alive. While the storage is unavailable, this method waits.
        """
        after, sent_at, is_last = page.next, time.monotonic(), False
        if page.lines:
            yield page.lines
        while not leaving.is_set():
            try:
                page = await self.page(after)
                after = page.next
                if page.lines or time.monotonic() - sent_at > _KEEP_ALIVE_INTERVAL:
                    sent_at = time.monotonic()
                    yield page.lines
                if len(page.lines) == _BATCH_SIZE:
                    continue
                if is_last:
                    return
                is_last = not await is_active()  # before the last read, so that it returns everything
            except SkitterError:
                is_last = False
            if not is_last:
                await wait_until_set(leaving, _POLL_INTERVAL)


def _time(line: LogLine) -> str:
    return datetime.fromtimestamp(line.time, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def line_fields(number: int, line: LogLine) -> dict[str, Any]:
    """Return a line as a JSON object, with the field names and the time format of ``--log-format json``."""
    shown: dict[str, Any] = {
        "number": number,
        "time": _time(line),
        "level": line.level,
        "logger": line.logger,
        "node": line.node,
        "worker": line.worker,
        "message": line.message,
    }
    if line.traceback:
        shown["traceback"] = line.traceback
    if line.fields:
        shown["fields"] = line.fields
    return shown


def line_text(line: LogLine) -> str:
    """Return a line as text. Crawled pages can neither forge lines nor send control characters to a terminal."""
    source = f"{line.node}/{line.worker}" if line.worker else line.node
    text = f"{line.message}\n{line.traceback}" if line.traceback else line.message
    text = _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
    text = text.rstrip("\n").replace("\n", f"\n{_INDENT}")
    return f"{_time(line)} {line.level.upper():7} {source} {line.logger}: {text}\n"


def as_json_lines(lines: list[NumberedLine]) -> bytes:
    """Return lines as JSON Lines. Without lines, return a line break."""
    return b"".join(msgspec.json.encode(line_fields(*line)) + b"\n" for line in lines) or b"\n"


def as_text(lines: list[NumberedLine]) -> bytes:
    """Return lines as text. Without lines, return a line break."""
    return "".join(line_text(line) for _, line in lines).encode() or b"\n"
