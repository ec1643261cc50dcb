"""PartFileStore: the ranged store. JSON lines in a part file that belongs to one worker alone."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from skitter._utils.executor import SingleThreadExecutor
from skitter.errors import StoreError
from skitter.item import OutputRange, encode_item
from skitter.store.contract import (
    GroupError,
    ItemGroup,
    OutputContext,
    RangesByPart,
    StoreContext,
    parts_folder,
)
from skitter.store.disk import disk_error, sync_file, sync_folder

ITEMS_STREAM = "items"
"""Folder of the part files below ``parts``. One for all file outputs of a job: the format is applied when
they are merged, so that an output that is named only in a later run holds every item too."""


def items_stream(section: str) -> str:
    """Return the folder of the part files of a section of a job's items; see :class:`~skitter.store.contract.StoreContext`."""
    return f"{ITEMS_STREAM}-{section}" if section else ITEMS_STREAM


def ranges_for(context: OutputContext, ranges: RangesByPart) -> RangesByPart:
    """Return the ranges of the part files whose items are an output's."""
    folders = tuple(f"{items_stream(section)}/" for section in context.sections)
    return {part: known for part, known in ranges.items() if part.startswith(folders)}


class PartFileStore:
    """Appends to ``parts/items/<worker>.jsonl``, one write a batch, and answers with byte ranges.

    A write that fails half-way (full disk) leaves bytes that no range names; the next one overwrites them.
    """

    def __init__(self) -> None:
        self._thread = SingleThreadExecutor("store")
        self._part = ""
        self._path = Path()
        self._descriptor = -1
        self._end = 0
        self._synced = False
        self._broken: StoreError | None = None

    async def open(self, context: StoreContext) -> None:
        """Create the part file. Raises :class:`~skitter.errors.StoreError` if it cannot or exists."""
        self._part = f"{items_stream(context.section)}/{context.worker}.jsonl"
        self._path = parts_folder(context.directory) / self._part
        self._synced = context.durability == "machine"
        await self._thread.run(self._create)

    async def write(self, groups: Sequence[ItemGroup]) -> list[OutputRange | GroupError | None]:
        """Append the items of all groups; see :meth:`skitter.store.contract.Store.write`."""
        blocks = [encode_group(group) for group in groups]
        data = b"".join([block for block in blocks if isinstance(block, bytes)])
        position = await self._thread.run(self._append, data) if data else 0
        return marks_of(blocks, self._part, position)

    async def close(self) -> None:
        """Close the part file."""
        try:
            await self._thread.run(self._close)
        finally:
            self._thread.stop()

    def _create(self) -> None:
        folder = self._path.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            if self._synced:
                sync_folder(folder)
                sync_folder(folder.parent)
                sync_folder(folder.parent.parent)
        except FileExistsError as error:
            raise StoreError(
                f"the part file {self._path} exists already: two workers have the same name",
                remedy="end the other worker, then run the same command again",
            ) from error
        except OSError as error:
            raise disk_error(error, self._path) from error

    def _append(self, data: bytes) -> int:
        if self._broken:
            raise self._broken
        start = self._end
        try:
            _write_at(self._descriptor, data, start)
        except OSError as error:
            raise disk_error(error, self._path) from error
        if self._synced:
            self._sync()
        self._end = start + len(data)
        return start

    def _sync(self) -> None:
        try:
            sync_file(self._descriptor)
        except OSError as error:
            # The kernel may have dropped the bytes and forgotten the error: a later sync proves nothing.
            self._broken = disk_error(error, self._path)
            raise self._broken from error

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _write_at(descriptor: int, data: bytes, position: int) -> None:
    rest = memoryview(data)
    while rest:
        written = os.pwrite(descriptor, rest, position)
        position += written
        rest = rest[written:]


def marks_of(
    blocks: Iterable[bytes | GroupError | None], part: str, position: int
) -> list[OutputRange | GroupError | None]:
    """Return the range of each block, the first of which stands at a position; what is no block stands for itself."""
    marks: list[OutputRange | GroupError | None] = []
    for block in blocks:
        if isinstance(block, bytes):
            end = position + len(block)
            marks.append(OutputRange(part, position, end))
            position = end
        else:
            marks.append(block)
    return marks


def encode_group(group: ItemGroup) -> bytes | GroupError | None:
    """Return the items of a page as JSON lines, or why they cannot be written; ``None`` if there are none."""
    if not group.items:
        return None
    lines: list[bytes] = []
    try:
        for item in group.items:
            lines.append(encode_item(item))  # noqa: PERF401 - their number tells which item failed
    except Exception as error:  # noqa: BLE001 - items are user code, their serialisers may raise anything
        return GroupError.of(error, len(lines))
    lines.append(b"")
    block = b"\n".join(lines)
    if block.count(b"\n") != len(group.items):
        return GroupError("an item holds ready-made JSON text with a line break")
    return block
