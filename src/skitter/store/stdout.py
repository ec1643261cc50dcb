"""Standard output: the parent process prints items as they are committed."""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
from bisect import bisect_left, bisect_right
from collections import defaultdict
from pathlib import Path
from threading import Lock

from skitter.errors import StoreError
from skitter.store.committed import CommittedRanges
from skitter.store.contract import Output, OutputContext, RangesByPart, parts_folder
from skitter.store.disk import disk_error
from skitter.store.files import ITEMS_STREAM, PartFileStore, ranges_for


class StdoutOutput(Output):
    """``-o -``: JSON lines on standard output, starting with the items of earlier runs of the job. Each byte is printed once.

    A reader that closes the pipe (``| head``) is not an error: the remaining items are dropped silently.
    """

    target = "-"
    stream = ITEMS_STREAM
    is_append_only = True

    def __init__(self, descriptor: int = 1) -> None:
        self._descriptor = descriptor
        self._printed: dict[str, RangeSet] = defaultdict(RangeSet)
        self._one_at_a_time = Lock()
        self._broken: StoreError | None = None
        self._is_closed = False
        """Whether the reader has closed the pipe."""

    async def check(self, context: OutputContext) -> None:  # noqa: ARG002 - does not depend on the job
        """Raise :class:`~skitter.errors.StoreError` if standard output is closed."""
        try:
            mode = fcntl.fcntl(self._descriptor, fcntl.F_GETFL) & os.O_ACCMODE
        except OSError:
            mode = os.O_RDONLY
        if mode == os.O_RDONLY:  # the command line replaces a closed stream by one that cannot be written
            raise StoreError(
                "standard output is closed", remedy="name a file, such as -o items.jsonl", field="output"
            )

    def store(self) -> PartFileStore:
        """Return a new part file."""
        return PartFileStore()

    async def emit(self, context: OutputContext, ranges: RangesByPart) -> bool:
        """Print the ranges that were not printed in this run. Return whether there is still a reader.

        Waits while the reader is slow. Raises :class:`~skitter.errors.StoreError` if standard output cannot be written for
        another reason, or if a part cannot be read. The last line may then be incomplete, so all later calls raise the same
        error.
        """
        parts = parts_folder(context.directory)
        return await asyncio.to_thread(self._emit, parts, ranges_for(context, ranges))

    async def merge(self, context: OutputContext, ranges: RangesByPart) -> None:
        """Print the remaining items."""
        await self.emit(context, ranges)

    def _emit(self, parts: Path, ranges: RangesByPart) -> bool:
        with self._one_at_a_time:
            if self._broken:
                raise self._broken
            if not self._is_closed:
                self._print(parts, ranges)
            return not self._is_closed

    def _print(self, parts: Path, ranges: RangesByPart) -> None:
        new = {
            part: [gap for start, end in known for gap in self._printed[part].add(start, end)]
            for part, known in ranges.items()
        }
        try:
            for chunk in CommittedRanges(parts, new).chunks():
                _write_all(self._descriptor, chunk)
        except BrokenPipeError:
            self._is_closed = True
        except StoreError as error:
            self._broken = error
            raise
        except OSError as error:
            self._broken = disk_error(error, "standard output")
            raise self._broken from error


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:  # another program that shares the terminal has made it non-blocking
            select.select([], [descriptor], [])


class RangeSet:
    """A set of byte positions, stored as a few disjoint ranges. Adjacent ranges are joined."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> list[tuple[int, int]]:
        """Add ``start <= position < end``. Return the subranges that were not in the set."""
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
