"""An output to a file that holds exactly the committed items, in the format of its name."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import msgspec
import xxhash

from skitter.store.committed import CHUNK, CommittedRanges
from skitter.store.contract import OutputContext, RangesByPart, parts_folder
from skitter.store.files import ITEMS_STREAM, PartFileStore, ranges_for
from skitter.store.merge import Format, check_target, merge


class FileOutput:
    """JSON lines, CSV or Parquet, plain or compressed. The file is replaced atomically at every stop of the job."""

    def __init__(self, target: str, path: Path, file_format: Format) -> None:
        self.target = target
        self.stream = ITEMS_STREAM
        self.path = path
        self._format = file_format

    async def check(self, context: OutputContext) -> None:  # noqa: ARG002 - does not depend on the job
        """Test whether the file can be written; see :func:`~skitter.store.merge.check_target`."""
        await asyncio.to_thread(check_target, self.path)

    async def occupied(self, context: OutputContext) -> bool:
        """Whether there is a nonempty file that differs from the result of this job's last merge."""
        return await asyncio.to_thread(self._is_occupied, context)

    async def clear(self, context: OutputContext) -> None:
        """Do nothing: the part files are removed with the job's folder, and the next merge replaces the file."""

    def store(self) -> PartFileStore:
        """Return a new part file."""
        return PartFileStore()

    async def emit(self, context: OutputContext, ranges: RangesByPart) -> bool:  # noqa: ARG002 - see merge
        """Do nothing: ``merge`` writes the file."""
        return True

    async def merge(self, context: OutputContext, ranges: RangesByPart) -> None:
        """Replace the file with one that holds the committed ranges."""
        await asyncio.to_thread(self._merge, context, ranges)

    async def export(self, committed: CommittedRanges) -> None:
        """Replace the file with one that holds the committed items, outside any run of the job."""
        await asyncio.to_thread(merge, committed, self.path, self._format)

    def is_nonempty(self) -> bool:
        """Whether there is a nonempty file."""
        return self.path.exists() and self.path.stat().st_size > 0

    def _merge(self, context: OutputContext, ranges: RangesByPart) -> None:
        merge(
            CommittedRanges(parts_folder(context.directory), ranges_for(context, ranges)),
            self.path,
            self._format,
            durability=context.durability,
            before_replace=lambda draft: self._identity_file(context).expect(draft, instead_of=self.path),
        )

    def _is_occupied(self, context: OutputContext) -> bool:
        return self.is_nonempty() and not self._identity_file(context).knows(self.path)

    def _identity_file(self, context: OutputContext) -> FileIdentity:
        name = xxhash.xxh3_64_hexdigest(os.fsencode(os.path.realpath(self.path)))
        return FileIdentity(Path(context.directory) / "outputs" / f"{name}.json")


class _InodeRecord(msgspec.Struct, array_like=True, frozen=True):
    device: int
    inode: int
    size: int
    modified_ns: int
    digest: str = ""
    """Hash of the content. It recognises a copy, which has another inode and time."""


_decode = msgspec.json.Decoder(list[_InodeRecord]).decode


class FileIdentity:
    """Records the identity of one merged file in the job's folder: device, inode, size, modification time and content."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def knows(self, file: Path) -> bool:
        """Whether the job wrote this file, and it is unchanged since. It may have been moved or copied with the job.

        Reads the whole file only if it may be a copy.
        """
        return self._record_of(file) is not None

    def _record_of(self, file: Path) -> _InodeRecord | None:
        try:
            identity = _identity(file)
        except FileNotFoundError:
            return None
        # All records: the name of a record depends on the path, and the file may have another one now.
        known = [record for path in self._path.parent.glob("*.json") for record in _read(path)]
        for record in known:
            if msgspec.structs.replace(record, digest="") == identity:
                return record
        digests = {record.digest for record in known if record.size == identity.size} - {""}
        if digests and (digest := _digest(file)) in digests:
            return msgspec.structs.replace(identity, digest=digest)
        return None

    def expect(self, file: Path, instead_of: Path) -> None:
        """Record that ``file`` is about to be renamed to ``instead_of``.

        Both identities stay valid until the next call, because the process may be killed before or after the renaming.
        """
        identities = [msgspec.structs.replace(_identity(file), digest=_digest(file))]
        if (replaced := self._record_of(instead_of)) is not None:
            identities.append(replaced)
        self._path.parent.mkdir(exist_ok=True)
        draft = self._path.with_suffix(".tmp")
        draft.write_bytes(msgspec.json.encode(identities))
        draft.replace(self._path)


def _read(path: Path) -> list[_InodeRecord]:
    try:
        return _decode(path.read_bytes())
    except (FileNotFoundError, msgspec.DecodeError):
        return []


def _digest(file: Path) -> str:
    state = xxhash.xxh3_128()
    with file.open("rb") as content:
        while chunk := content.read(CHUNK):
            state.update(chunk)
    return state.hexdigest()


def _identity(file: Path) -> _InodeRecord:
    status = file.stat()
    return _InodeRecord(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
