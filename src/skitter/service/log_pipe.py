"""LogPipe: where the processes of a run write what they have to say, read by their node as it comes."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import time
from collections.abc import Callable

import msgspec

from skitter.run.log_frames import LEVELS, MARK, LogFrame
from skitter.service.log_lines import LogLine

_ROOM = 1 << 18
"""Bytes that the kernel is asked to hold: what a spider can say while its node is busy elsewhere."""
_AT_ONCE = 1 << 14
"""Bytes that are read before others have their turn: they may hold thousands of lines."""
_LONGEST = 1 << 15
"""Bytes of a line that is no frame, after which the rest becomes a line of its own."""
_MOST_BEGUN = 200
_LATEST = 253402300799.0
"""End of the year 9999."""
_decoder = msgspec.json.Decoder(LogFrame)


class FrameReader:
    """Makes lines of what comes out of a pipe, whoever wrote it and whatever died in the middle of writing."""

    def __init__(self) -> None:
        self._rest = b""
        self._begun: dict[str, LogFrame] = {}
        """By worker: a line of several frames of which not all have come."""

    def feed(self, data: bytes) -> list[LogLine]:
        """Return the lines that are complete with these bytes."""
        *texts, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST:
            texts.append(self._rest)
            self._rest = b""
        return [line for text in texts for line in self._lines(text)]

    def end(self) -> list[LogLine]:
        """Return what is there of lines that will never be complete."""
        rest, self._rest = self._rest, b""
        found = self._lines(rest)
        found += [_line(frame) for frame in self._begun.values()]
        self._begun.clear()
        return found

    def _lines(self, text: bytes) -> list[LogLine]:
        raw, *frames = text.split(MARK)  # a frame may stand behind what was printed without a line's end
        found = _raw(raw)
        for one in frames:
            try:
                frame = _decoder.decode(one)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                found += _raw(one)
                continue
            found += self._joined(frame)
        return found

    def _joined(self, frame: LogFrame) -> list[LogLine]:
        begun = self._begun.pop(frame.worker, None)
        found = []
        if begun is not None and frame.first:  # its writer gave the rest up
            found.append(_line(begun))
            begun = None
        if begun is not None:
            begun.message += frame.message
            begun.traceback += frame.traceback
            begun.more = frame.more
            frame = begun
        is_bounded = len(frame.message) + len(frame.traceback) < _LONGEST and len(self._begun) < _MOST_BEGUN
        if frame.more and is_bounded:
            self._begun[frame.worker] = frame
        else:
            found.append(_line(frame))
        return found


def _raw(text: bytes) -> list[LogLine]:
    said = text.decode("utf-8", "replace").rstrip("\r")
    return [LogLine(time.time(), "warning", "stderr", said)] if said.strip() else []


def _line(frame: LogFrame) -> LogLine:
    level = frame.level if frame.level in LEVELS else "warning"
    moment = frame.time if 0 <= frame.time <= _LATEST else time.time()
    return LogLine(
        moment, level, frame.logger, frame.message, "", frame.worker, frame.traceback, frame.fields
    )


class LogPipe:
    """The pipe of one process and of those that it starts; ``take`` is given each line."""

    def __init__(self, take: Callable[[LogLine], None]) -> None:
        self._take = take
        self._reader = FrameReader()
        self._pipe, self.writer = os.pipe()
        os.set_blocking(self._pipe, False)
        size = getattr(fcntl, "F_SETPIPE_SZ", None)
        if size is not None:
            with contextlib.suppress(OSError):  # this user has many pipes: the usual size will do
                fcntl.fcntl(self._pipe, size, _ROOM)

    def listen(self) -> None:
        """Read what comes from now on. The other end belongs to those who write."""
        os.close(self.writer)
        asyncio.get_running_loop().add_reader(self._pipe, self._read)

    def _read(self) -> bool:
        """Take what is there; tell whether there may be more."""
        try:
            data = os.read(self._pipe, _AT_ONCE)
        except BlockingIOError:
            return False
        if not data:
            asyncio.get_running_loop().remove_reader(self._pipe)
        for line in self._reader.feed(data):
            self._take(line)
        return bool(data)

    def close(self) -> None:
        """Take what is left of processes that have ended, and close. Who still lives and writes is not waited for."""
        for _ in range(_ROOM // _AT_ONCE + 1):
            if not self._read():
                break
        for line in self._reader.end():
            self._take(line)
        asyncio.get_running_loop().remove_reader(self._pipe)
        os.close(self._pipe)

    def discard(self) -> None:
        """Close a pipe that nobody was given."""
        os.close(self.writer)
        os.close(self._pipe)
