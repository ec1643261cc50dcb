"""Stdout: committed items, printed by the parent as they are committed."""

from __future__ import annotations

import asyncio
import os
import select
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from threading import Lock

from skitter.errors import StoreError
from skitter.store.committed import CommittedRanges
from skitter.store.contract import OutputContext, RangesByPart, parts_folder
from skitter.store.disk import disk_error
from skitter.store.files import ITEMS_STREAM, PartFileStore, ranges_for


class Tail:
    """Copies committed ranges to an open descriptor, each byte once.

    A reader that has gone away (``| head``) is no error: the rest is quietly dropped.
    """

    def __init__(self, parts: Path, stream: str | None, descriptor: int = 1) -> None:
        self._parts = parts
        self._stream = stream
        self._descriptor = descriptor
        self._printed: dict[str, RangeSet] = defaultdict(RangeSet)
        self._one_at_a_time = Lock()
        self._broken: StoreError | None = None
        self.closed = False
        """The reader has gone away."""

    def emit(self, ranges: RangesByPart) -> bool:
        """Print what was not printed before; returns whether there is still a reader.

        Waits while the reader is slow. Raises :class:`~skitter.errors.StoreError` if the descriptor cannot
        be written for another reason, or the parts not be read. A line may have been cut then, so every later
        call raises it too.
        """
        with self._one_at_a_time:
            if self._broken:
                raise self._broken
            if not self.closed:
                self._print(ranges)
            return not self.closed

    def _print(self, ranges: RangesByPart) -> None:
        new = {part: self._unprinted(part, ranges[part]) for part in ranges}
        try:
            for chunk in CommittedRanges(self._parts, new, self._stream).chunks():
                _write_all(self._descriptor, chunk)
        except BrokenPipeError:
            self.closed = True
        except StoreError as error:
            self._broken = error
            raise
        except OSError as error:
            self._broken = disk_error(error, "standard output")
            raise self._broken from error

    def _unprinted(self, part: str, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        printed = self._printed[part]
        return [gap for start, end in ranges for gap in printed.add(start, end)]


class StdoutOutput:
    """``-o -``: JSON lines on standard output, those of earlier runs of the job first."""

    target = "-"
    stream = ITEMS_STREAM

    def __init__(self, descriptor: int = 1) -> None:
        self._descriptor = descriptor
        self._tail: Tail | None = None

    async def check(self, context: OutputContext) -> None:  # noqa: ARG002 - stdout is not the job's
        """Raise :class:`~skitter.errors.StoreError` if standard output is closed."""
        try:
            os.fstat(self._descriptor)
        except OSError as error:
            raise StoreError(
                "standard output is closed", remedy="name a file, such as -o items.jsonl"
            ) from error

    async def occupied(self, context: OutputContext) -> bool:  # noqa: ARG002 - nothing is replaced
        """Never."""
        return False

    async def clear(self, context: OutputContext) -> None:
        """Nothing: the part files go with the job's folder."""

    def store(self) -> PartFileStore:
        """Return a new part file."""
        return PartFileStore()

    async def emit(self, context: OutputContext, ranges: RangesByPart) -> bool:
        """Print what was not printed in this run; ``False`` once the reader has gone away."""
        if self._tail is None:
            self._tail = Tail(parts_folder(context.directory), None, self._descriptor)
        return await asyncio.to_thread(self._tail.emit, ranges_for(context, ranges))

    async def merge(self, context: OutputContext, ranges: RangesByPart) -> None:
        """Print what is left."""
        await self.emit(context, ranges)


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:  # another program that shares the terminal made it non-blocking
            select.select([], [descriptor], [])


class RangeSet:
    """A set of byte positions, kept as few disjoint ranges: neighbours grow together."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> list[tuple[int, int]]:
        """Add ``start <= position < end``; returns the ranges of it that were not in the set."""
        if start >= end:
            return []
        first = bisect_left(self._ends, start)
        last = bisect_right(self._starts, end)
        gaps: list[tuple[int, int]] = []
        position = start
        for known_start, known_end in zip(self._starts[first:last], self._ends[first:last], strict=True):
            if position < known_start:
                gaps.append((position, known_start))
            position = max(position, known_end)
        if position < end:
            gaps.append((position, end))
        if first < last:
            start = min(start, self._starts[first])
            end = max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]
        return gaps
