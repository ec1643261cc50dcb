"""An output to a file that contains exactly the committed items, in the format that its name selects."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import xxhash

from skitter.errors import StoreError
from skitter.secrets import shown_url
from skitter.store.committed import CHUNK, CommittedRanges
from skitter.store.contract import Output, OutputContext, RangesByPart, Store, parts_folder
from skitter.store.files import CAPTURES_STREAM, ITEMS_STREAM, PartFileStore, ranges_for
from skitter.store.merge import Format, ItemSource, check_target, merge

if TYPE_CHECKING:
    from skitter.store.redis_output import RedisOutput


class FileOutput(Output):
    """A file of items or an archive, plain or compressed. The file is replaced atomically at every stop of the job.

    ``shared_parts``: stores the parts of all machines of a fleet on a server. The file of each machine then contains the
    items of all machines. Without it, the parts are files in the folder of the job.
    """

    def __init__(
        self, target: str, path: Path, file_format: Format, shared_parts: RedisOutput | None = None
    ) -> None:
        self.target = shown_url(target)
        self.holds_responses = file_format.holds_responses
        self.stream = CAPTURES_STREAM if self.holds_responses else ITEMS_STREAM
        if shared_parts is not None:
            self.stream = shared_parts.fleet_stream
        self.path = path
        self.shared_parts = shared_parts
        self._format = file_format
        self._is_checked = False
        self._found: _InodeRecord | None = None
        """The file that existed at the check. A run may replace it."""

    @property
    def location(self) -> str:
        """Path of the file without symbolic links."""
        return os.path.realpath(self.path)

    async def check(self, context: OutputContext) -> None:
        """Test whether the file can be written; see :func:`~skitter.store.merge.check_target`."""
        await asyncio.to_thread(check_target, self.path)
        self._is_checked, self._found = True, await asyncio.to_thread(_identity_of, self.path)
        if self.shared_parts is not None:
            await self.shared_parts.check(context)

    async def occupied(self, context: OutputContext) -> bool:
        """Whether there is a nonempty file that differs from the result of this job's last merge."""
        return await asyncio.to_thread(
            lambda: self.is_nonempty() and not self._identity_file(context).knows(self.path)
        )

    async def clear(self, context: OutputContext) -> None:
        """Remove shared parts. Part files are removed with the job's folder, and the next merge replaces the file."""
        if self.shared_parts is not None:
            await self.shared_parts.clear(context)

    def store(self) -> Store:
        """Return a new part."""
        if self.holds_responses:
            from skitter.archive.store import CaptureStore  # noqa: PLC0415 - few jobs write archives

            return CaptureStore(PartFileStore(CAPTURES_STREAM, suffix="warc.gz"))
        return PartFileStore() if self.shared_parts is None else self.shared_parts.fleet_store()

    async def merge(self, context: OutputContext, ranges: RangesByPart) -> None:
        """Replace the file with a file of the committed ranges."""
        if self.shared_parts is None:
            parts = CommittedRanges(
                parts_folder(context.directory),
                ranges_for(context, ranges, self.stream),
                has_lines=not self.holds_responses,
            )
            await asyncio.to_thread(self._merge, context, parts)
            return
        import shutil  # noqa: PLC0415 - files on this machine need no copies

        wanted = ranges_for(context, ranges, self.stream)
        copies = Path(context.directory) / "shared-parts"
        try:
            copied = await self.shared_parts.copy_staged(context.job, wanted, copies)
            await asyncio.to_thread(self._merge, context, CommittedRanges(copies, copied))
        finally:
            await asyncio.to_thread(shutil.rmtree, copies, ignore_errors=True)

    async def export(self, source: ItemSource) -> None:
        """Replace the file with a file of the items of a source, outside of any run of a job."""
        await asyncio.to_thread(merge, source, self.path, self._format)

    @property
    def leaves_out_duplicates(self) -> bool:
        """Whether the file contains fewer items than its source, because near duplicates are left out."""
        return self._format.duplicates == "drop"

    def is_nonempty(self) -> bool:
        """Whether there is a nonempty file."""
        return self.path.exists() and self.path.stat().st_size > 0

    def _merge(self, context: OutputContext, committed: CommittedRanges) -> None:
        merge(
            committed,
            self.path,
            self._format,
            durability=context.durability,
            before_replace=lambda draft: self._before_replace(context, draft),
        )

    def _before_replace(self, context: OutputContext, draft: Path) -> None:
        """Raise :class:`~skitter.errors.StoreError` if another program has written the file since the run began.

        A file with parts on a server is not checked, because all machines write the same file.
        """
        identity_file = self._identity_file(context)
        is_guarded = self._is_checked and self.shared_parts is None and self.is_nonempty()
        if is_guarded and _identity_of(self.path) != self._found and not identity_file.knows(self.path):
            raise StoreError(
                f"cannot write {self.target}: the file has changed since the run began",
                remedy="move it away, or choose another output; then run the same command again: no item is lost",
                field="output",
            )
        identity_file.expect(draft, instead_of=self.path)

    def _identity_file(self, context: OutputContext) -> FileIdentity:
        name = xxhash.xxh3_64_hexdigest(os.fsencode(os.path.realpath(self.path)))
        return FileIdentity(Path(context.directory) / "outputs" / f"{name}.json")


class _InodeRecord(msgspec.Struct, array_like=True, frozen=True):
    device: int
    inode: int
    size: int
    modified_ns: int
    digest: str = ""
    """Hash of the content. It recognizes a copy, which has another inode and time."""


_decode = msgspec.json.Decoder(list[_InodeRecord]).decode


class FileIdentity:
    """Records the identity of one merged file in the job's folder: device, inode, size, modification time and content."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def knows(self, file: Path) -> bool:
        """Whether the job wrote this file, and the file is unchanged. It may have been moved or copied with the job.

        Reads the whole file only if it may be a copy.
        """
        return self._record_of(file) is not None

    def _record_of(self, file: Path) -> _InodeRecord | None:
        identity = _identity_of(file)
        if identity is None:
            return None
        # Read all records: the name of a record depends on the path, and the file may have been moved.
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


def _identity_of(file: Path) -> _InodeRecord | None:
    """Return the identity of a file; ``None`` if it does not exist."""
    try:
        return _identity(file)
    except FileNotFoundError:
        return None


def _identity(file: Path) -> _InodeRecord:
    status = file.stat()
    return _InodeRecord(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
