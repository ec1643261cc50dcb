"""WrittenItems: the committed items that the outputs of a job contain, over all of its machines.

Part files are on the machine of their worker, which merges them into its outputs when its run ends. Two notes in the
frontier inform the other machines. ``docs/design/outputs.md`` describes the protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from skitter._utils.concurrency import cancel_and_wait
from skitter._utils.notes import NOTE_TTL, WRITERS, WRITTEN, Notes
from skitter.errors import SkitterError
from skitter.store.committed import split_by_presence
from skitter.store.contract import RangesByPart
from skitter.store.files import is_local

_BEAT_SECONDS = 5.0
"""Seconds between two reports of a machine that it will still write its items."""
_LOST_AFTER = 20.0
"""Seconds without a report after which a machine counts as lost."""

_Numbers = dict[str, int]


def unwritten_items(ranges: RangesByPart, note: bytes | None) -> _Numbers:
    """Return the number of committed bytes of each part that no machine has written to the outputs.

    ``note``: the value of :data:`~skitter._utils.notes.WRITTEN`.
    """
    written = _decode(note)
    # A worker commits its part file in order, so the end of the written range is enough.
    sizes = {
        part: sum(max(0, end - max(start, written.get(part, 0))) for start, end in spans)
        for part, spans in ranges.items()
    }
    return {part: size for part, size in sizes.items() if size}


async def bytes_elsewhere(ranges: RangesByPart, parts: Path) -> int:
    """Return the number of committed bytes in part files that are not on this machine. ``parts``: the folder of part files."""
    local = {part: list(spans) for part, spans in ranges.items() if is_local(part)}
    _, missing = await asyncio.to_thread(split_by_presence, local, [parts])
    return sum(end - start for spans in missing.values() for start, end in spans)


def describe_unwritten(missing: Mapping[str, int]) -> str:
    """Return a short description of unwritten items."""
    workers = f"{len(missing)} workers" if len(missing) > 1 else "a worker"
    return f"{sum(missing.values()):,} bytes of committed items of {workers} are in no output"


class WrittenItems:
    """Reports which items this machine writes, and observes the other machines."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._name = os.urandom(6).hex()
        self._reporting: asyncio.Task[None] | None = None
        self._known: dict[str, tuple[int, float]] = {}
        """The last number that each machine reported, and the monotonic time at which it was first seen."""

    async def join(self) -> None:
        """Report from now on, until :meth:`leave`, that this machine will write its items."""
        await self._report()
        self._reporting = asyncio.create_task(self._report_regularly())

    async def cancel(self) -> None:
        """End the reports of a machine that could not write its items."""
        if self._reporting is not None:
            await cancel_and_wait([self._reporting])
            self._reporting = None

    async def leave(self) -> None:
        """Report that this machine has written its items."""
        await self.cancel()
        await self._edit(WRITERS, lambda writers: {k: v for k, v in writers.items() if k != self._name})

    async def record(self, ranges: RangesByPart) -> None:
        """Record that the outputs of this machine contain these ranges."""
        ends = {part: max(end for _, end in spans) for part, spans in ranges.items() if spans}
        await self._edit(
            WRITTEN,
            lambda written: written | {part: max(end, written.get(part, 0)) for part, end in ends.items()},
        )

    async def unwritten(self, ranges: RangesByPart) -> _Numbers:
        """Return the number of bytes of each part that no machine has written."""
        return unwritten_items(ranges, await self._notes.get(WRITTEN))

    async def is_expected(self) -> bool:
        """Whether another machine may still write items: it has reported in the last 20 seconds."""
        now = time.monotonic()
        numbers = _decode(await self._notes.get(WRITERS))
        self._known = {
            name: (number, now if self._known.get(name, (0, 0.0))[0] != number else self._known[name][1])
            for name, number in numbers.items()
        }
        return any(now - since < _LOST_AFTER for _, since in self._known.values())

    async def _report_regularly(self) -> None:
        while True:
            await asyncio.sleep(_BEAT_SECONDS)
            with contextlib.suppress(SkitterError):  # the workers encounter and report the same error
                await self._report()

    async def _report(self) -> None:
        await self._edit(WRITERS, lambda writers: writers | {self._name: writers.get(self._name, 0) + 1})

    async def _edit(self, key: str, change: Callable[[_Numbers], _Numbers]) -> None:
        while True:
            note = await self._notes.get(key)
            before = _decode(note)
            after = change(before)
            if after == before or await self._notes.compare_and_swap(
                key, note, msgspec.msgpack.encode(after), NOTE_TTL
            ):
                return


def _decode(note: bytes | None) -> _Numbers:
    return {} if note is None else msgspec.msgpack.decode(note, type=_Numbers)
