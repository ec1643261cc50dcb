"""The standard output: the parent prints items as they are committed."""

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
from skitter.store.contract import Output, OutputContext, RangesByPart, parts_folder
from skitter.store.disk import disk_error
from skitter.store.files import ITEMS_STREAM, PartFileStore, ranges_for


class Tail:
    """Copies committed ranges to an open file descriptor, each byte once.

    A reader that closes the pipe (``| head``) is not an error: the remaining items are dropped silently.
    """

    def __init__(self, parts: Path, stream: str | None, descriptor: int = 1) -> None:
        self._parts = parts
        self._stream = stream
        self._descriptor = descriptor
        self._printed: dict[str, RangeSet] = defaultdict(RangeSet)
        self._one_at_a_time = Lock()
        self._broken: StoreError | None = None
        self.closed = False
        """Whether the reader has closed the pipe."""

    def emit(self, ranges: RangesByPart) -> bool:
        """Print the ranges that were not printed before; return whether there is still a reader.

        Blocks while the reader is slow. Raises :class:`~skitter.errors.StoreError` if the descriptor cannot be
        written for another reason, or if a part cannot be read. The last line may be incomplete then, so every
        later call raises the same error.
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


class StdoutOutput(Output):
    """``-o -``: JSON lines on standard output, starting with the items of earlier runs of the job."""

    target = "-"
    stream = ITEMS_STREAM
    is_append_only = True

    def __init__(self, descriptor: int = 1) -> None:
        self._descriptor = descriptor
        self._tail: Tail | None = None

    async def check(self, context: OutputContext) -> None:  # noqa: ARG002 - does not depend on the job
        """Raise :class:`~skitter.errors.StoreError` if standard output is closed."""
        try:
            os.fstat(self._descriptor)
        except OSError as error:
            raise StoreError(
                "standard output is closed", remedy="name a file, such as -o items.jsonl", field="output"
            ) from error

    def store(self) -> PartFileStore:
        """Return a new part file."""
        return PartFileStore()

    async def emit(self, context: OutputContext, ranges: RangesByPart) -> bool:
        """Print the ranges that were not printed in this run; return ``False`` once the reader has closed the pipe."""
        if self._tail is None:
            self._tail = Tail(parts_folder(context.directory), None, self._descriptor)
        return await asyncio.to_thread(self._tail.emit, ranges_for(context, ranges))

    async def merge(self, context: OutputContext, ranges: RangesByPart) -> None:
        """Print the remaining items."""
        await self.emit(context, ranges)


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:  # another program that shares the terminal made it non-blocking
            select.select([], [descriptor], [])


class RangeSet:
    """A set of byte positions, stored as a few disjoint ranges; adjacent ranges are joined."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> list[tuple[int, int]]:
        """Add ``start <= position < end``; return the subranges that were not in the set."""
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
