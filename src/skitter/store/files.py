"""A ranged store that writes JSON lines to a part file. Each worker has its own part files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from skitter._utils.concurrency import SingleThreadExecutor
from skitter.errors import StoreError
from skitter.item import OutputRange, encode_item
from skitter.store.contract import (
    GroupError,
    ItemGroup,
    OutputContext,
    RangesByPart,
    StoreContext,
    encode_items,
    parts_folder,
)
from skitter.store.disk import disk_error, sync_file, sync_folder

ITEMS_STREAM = "items"
"""Folder of the part files below ``parts``, shared by all file outputs of a job. The output format is applied when the
parts are merged, so an output that is added in a later run also receives all earlier items.
"""


CAPTURES_STREAM = "captures"
"""Folder of the part files of archives."""


def items_stream(section: str, stream: str = ITEMS_STREAM) -> str:
    """Return the folder of the part files of a section; see :class:`~skitter.store.contract.StoreContext`."""
    return f"{stream}-{section}" if section else stream


def is_local(part: str) -> bool:
    """Return whether a part is a file of the machine that wrote it, not an object on a server."""
    return part.partition("/")[0].partition("-")[0] in {ITEMS_STREAM, CAPTURES_STREAM}


def ranges_for(context: OutputContext, ranges: RangesByPart, stream: str = ITEMS_STREAM) -> RangesByPart:
    """Return the ranges of the part files whose items belong to an output."""
    folders = tuple(f"{items_stream(section, stream)}/" for section in context.sections)
    return {part: known for part, known in ranges.items() if part.startswith(folders)}


_SHORT_WRITE = 256 * 1024
"""Maximum number of bytes that may be written on the event loop."""


class PartFileStore:
    """Appends to ``parts/items/<worker>.jsonl`` with one write per batch, and returns byte ranges.

    Implements :class:`Store`.

    A write that fails halfway (for example on a full disk) leaves bytes that no range contains. The next write overwrites
    them. ``stream``: name of the folder. ``encode``: returns the line of an item. ``suffix``: the suffix of the file.
    """

    buffering = None

    def __init__(
        self,
        stream: str = ITEMS_STREAM,
        encode: Callable[[Any], bytes] = encode_item,
        suffix: str = "jsonl",
    ) -> None:
        self._stream = stream
        self._suffix = suffix
        self._encode = encode
        self._thread = SingleThreadExecutor("store")
        self._part = ""
        self._path = Path()
        self._descriptor = -1
        self._end = 0
        self._synced = False
        self._broken: StoreError | None = None

    async def open(self, context: StoreContext) -> None:
        """Create the part file. Raises :class:`~skitter.errors.StoreError` if it exists or cannot be created."""
        self._part = f"{items_stream(context.section, self._stream)}/{context.worker}.{self._suffix}"
        self._path = parts_folder(context.directory) / self._part
        self._synced = context.durability == "machine"
        await self._thread.run(self._create)

    async def write(self, groups: Sequence[ItemGroup]) -> list[OutputRange | GroupError | None]:
        return await self.write_blocks([encode_group(group, self._encode) for group in groups])

    async def write_blocks(
        self, blocks: Sequence[bytes | GroupError | None]
    ) -> list[OutputRange | GroupError | None]:
        """Append the encoded groups. Return the range of each one; entries without bytes are unchanged."""
        data = b"".join([block for block in blocks if isinstance(block, bytes)])
        run = self._thread.run if self._synced or len(data) > _SHORT_WRITE else self._thread.run_short
        position = await run(self._append, data) if data else 0
        return ranges_of(blocks, self._part, position)

    async def close(self) -> None:
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
                self._sync_folders()
        except FileExistsError as error:
            raise StoreError(
                f"the part file {self._path} already exists: two workers have the same name",
                remedy="stop the other worker, then run the same command again",
            ) from error
        except OSError as error:
            raise disk_error(error, self._path) from error

    def _sync_folders(self) -> None:
        folder = self._path.parent
        try:
            for parent in (folder, folder.parent, folder.parent.parent):
                sync_folder(parent)
        except OSError:
            self._close()
            self._path.unlink(missing_ok=True)  # so that another attempt to open the store can succeed
            raise

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
            # The kernel may have dropped the data and cleared the error, so a later successful sync proves nothing.
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


def ranges_of(
    blocks: Iterable[bytes | GroupError | None], part: str, position: int
) -> list[OutputRange | GroupError | None]:
    """Return the range of each block. The first block starts at ``position``; entries without a block are unchanged."""
    ranges: list[OutputRange | GroupError | None] = []
    for block in blocks:
        if isinstance(block, bytes):
            end = position + len(block)
            ranges.append(OutputRange(part, position, end))
            position = end
        else:
            ranges.append(block)
    return ranges


def encode_group(group: ItemGroup, encode: Callable[[Any], bytes] = encode_item) -> bytes | GroupError | None:
    """Return the items of a page as lines, a :class:`GroupError`, or ``None`` if there are no items."""
    if not group.items:
        return None
    lines = encode_items(group, encode)
    if isinstance(lines, GroupError):
        return lines
    block = b"\n".join([*lines, b""])
    if block.count(b"\n") != len(group.items):
        return GroupError("an item contains raw JSON text with a line break")
    return block
