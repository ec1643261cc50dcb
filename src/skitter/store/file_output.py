"""FileOutput: a named file that holds exactly the committed items, in the format of its name."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import msgspec
import xxhash

from skitter.store.committed import CommittedRanges
from skitter.store.contract import OutputContext, RangesByPart, parts_folder
from skitter.store.files import ITEMS_STREAM, PartFileStore, ranges_for
from skitter.store.merge import Format, check_target, merge


class FileOutput:
    """JSON lines or CSV, plain or compressed; written anew, in one step, at every stop of the job."""

    def __init__(self, target: str, path: Path, form: Format) -> None:
        self.target = target
        self.stream = ITEMS_STREAM
        self.path = path
        self._form = form

    async def check(self, context: OutputContext) -> None:  # noqa: ARG002 - the file is not the job's
        """Find out whether the folder takes the file; see :func:`~skitter.store.merge.check_target`."""
        await asyncio.to_thread(check_target, self.path)

    async def occupied(self, context: OutputContext) -> bool:
        """Whether there is a file that is not empty and not as this job's last merge left it."""
        return await asyncio.to_thread(self._is_occupied, context)

    async def clear(self, context: OutputContext) -> None:
        """Nothing: the part files go with the job's folder, the file is replaced by the next merge."""

    def store(self) -> PartFileStore:
        """Return a new part file."""
        return PartFileStore()

    async def emit(self, context: OutputContext, ranges: RangesByPart) -> bool:  # noqa: ARG002 - see merge
        """Nothing: the file is made by ``merge``."""
        return True

    async def merge(self, context: OutputContext, ranges: RangesByPart) -> None:
        """Replace the file by one that holds the committed ranges."""
        await asyncio.to_thread(self._merge, context, ranges)

    async def export(self, committed: CommittedRanges) -> None:
        """Replace the file by one that holds what is committed, outside any run of the job."""
        await asyncio.to_thread(merge, committed, self.path, self._form)

    def is_taken(self) -> bool:
        """Whether there is a file that is not empty."""
        return self.path.exists() and self.path.stat().st_size > 0

    def _merge(self, context: OutputContext, ranges: RangesByPart) -> None:
        merge(
            CommittedRanges(parts_folder(context.directory), ranges_for(context, ranges)),
            self.path,
            self._form,
            durability=context.durability,
            before_replace=lambda draft: self._stamp(context).expect(draft, instead_of=self.path),
        )

    def _is_occupied(self, context: OutputContext) -> bool:
        return self.is_taken() and not self._stamp(context).knows(self.path)

    def _stamp(self, context: OutputContext) -> FileIdentity:
        place = xxhash.xxh3_64_hexdigest(os.fsencode(os.path.realpath(self.path)))
        return FileIdentity(Path(context.directory) / "outputs" / f"{place}.json")


class _InodeRecord(msgspec.Struct, array_like=True, frozen=True):
    device: int
    inode: int
    size: int
    modified_ns: int


_decode = msgspec.json.Decoder(list[_InodeRecord]).decode


class FileIdentity:
    """Remembers, in the job's folder, the identity of one merged file: device, inode, size, time."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def knows(self, file: Path) -> bool:
        """Whether the file is as this job left it."""
        try:
            return _identity(file) in self._known()
        except FileNotFoundError:
            return False

    def expect(self, file: Path, instead_of: Path) -> None:
        """Note that ``file`` is about to be renamed to ``instead_of``.

        Both are known until the next call, because a kill may come before the renaming or after it.
        """
        identities = [_identity(file)]
        if self.knows(instead_of):
            identities.append(_identity(instead_of))
        self._path.parent.mkdir(exist_ok=True)
        draft = self._path.with_suffix(".tmp")
        draft.write_bytes(msgspec.json.encode(identities))
        draft.replace(self._path)

    def _known(self) -> list[_InodeRecord]:
        try:
            return _decode(self._path.read_bytes())
        except (FileNotFoundError, msgspec.DecodeError):
            return []


def _identity(file: Path) -> _InodeRecord:
    found = file.stat()
    return _InodeRecord(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
