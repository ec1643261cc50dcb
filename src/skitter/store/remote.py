"""RemotePartStore: the ranged store whose parts are objects on S3, or files on another file system of fsspec.

The part of a worker is a line of bytes that is cut into immutable objects, one a write. The name of an object is the
position of its first byte, so the committed ranges of the frontier say which bytes of which objects count.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
import xxhash

from skitter._utils.backoff import Backoff, Unavailable
from skitter._utils.executor import SingleThreadExecutor
from skitter.errors import StoreError
from skitter.item import OutputRange
from skitter.store.committed import lines_of
from skitter.store.contract import GroupError, ItemGroup, OutputContext, RangesByPart, StoreContext
from skitter.store.database import BufferOptions
from skitter.store.files import encode_group, marks_of
from skitter.store.merge import fill
from skitter.store.remote_location import RemoteLocation, failed

_READ_AT_ONCE = 8 << 20
_OBJECTS_AT_ONCE = 64

RemotePiece = tuple[str, int, int, bool]
"""Path of an object, first byte, end, and whether a committed range ends there."""


class RemotePartStore:
    """Writes one object a batch, and answers with byte ranges of the worker's part."""

    def __init__(self, place: RemoteLocation, stream: str, terms: BufferOptions) -> None:
        self._place = place
        self._stream = stream
        self._patience = Backoff(place.name, terms.patience)
        self._thread = SingleThreadExecutor("store")
        self._files: Any = None
        self._folder = ""
        self._part = ""
        self._end = 0
        self.buffering = terms.buffering

    async def open(self, context: StoreContext) -> None:
        """Connect. The worker's part begins with its first write."""
        self._part = f"{self._stream}/{context.worker}"
        self._folder = f"{self._place.parts_of(context.job)}/{context.worker}"
        self._files = await self._patience.call(lambda: self._thread.run(self._place.connect))

    async def write(self, groups: Sequence[ItemGroup]) -> list[OutputRange | GroupError | None]:
        """Put the items of all groups into a new object; see :meth:`skitter.store.contract.Store.write`."""
        blocks = [encode_group(group) for group in groups]
        data = b"".join([block for block in blocks if isinstance(block, bytes)])
        start = self._end
        # Whatever comes of it, the place is used up: an object that arrives late replaces no other.
        self._end += len(data)
        if data:
            await self._patience.call(lambda: self._thread.run(self._put, start, data))
        return marks_of(blocks, self._part, start)

    async def close(self) -> None:
        """Let go."""
        self._thread.stop()

    def _put(self, start: int, data: bytes) -> None:
        with self._place.explained():
            if start == 0:
                make_folder(self._place, self._files, self._folder)
            self._files.pipe_file(f"{self._folder}/{start:020d}", data)


class RemoteCommitted:
    """The committed lines of one output, by part name, then position; as :class:`~skitter.store.committed.CommittedRanges`."""

    def __init__(
        self, place: RemoteLocation, files: Any, job: str, stream: str, ranges: RangesByPart
    ) -> None:
        self._place = place
        self._files = files
        self._folder = place.parts_of(job)
        prefix = f"{stream}/"
        self._ranges = {
            part.removeprefix(prefix): sorted(ranges[part])
            for part in sorted(ranges)
            if part.startswith(prefix)
        }

    def chunks(self) -> Iterator[bytes]:
        """Give all bytes, a few megabytes at a time; many small objects are read at once."""
        batch: list[RemotePiece] = []
        size = 0
        for piece in self._pieces():
            batch.append(piece)
            size += piece[2] - piece[1]
            if size >= _READ_AT_ONCE or len(batch) >= _OBJECTS_AT_ONCE:
                yield from self._read(batch)
                batch, size = [], 0
        if batch:
            yield from self._read(batch)

    def lines(self) -> Iterator[bytes]:
        """Give all lines, without their line ends."""
        return lines_of(self.chunks())

    def _read(self, batch: list[RemotePiece]) -> Iterator[bytes]:
        paths, starts, ends, lasts = map(list, zip(*batch, strict=True))
        with self._place.explained():
            pieces = self._files.cat_ranges(paths, starts, ends, on_error="raise")
        for path, start, end, last, data in zip(paths, starts, ends, lasts, pieces, strict=True):
            if len(data) != end - start or (last and not data.endswith(b"\n")):
                raise _changed(str(path))
            yield data

    def _pieces(self) -> Iterator[RemotePiece]:
        for worker, ranges in self._ranges.items():
            objects = self._objects(worker)
            starts = [start for start, _, _ in objects]
            position = 0
            for start, end in ranges:
                if not position <= start <= end:
                    raise _changed(f"{self._folder}/{worker}")
                position = start
                while position < end:
                    index = bisect_right(starts, position) - 1
                    first, after, path = objects[index] if index >= 0 else (0, 0, worker)
                    if position >= after:
                        raise _changed(f"{self._folder}/{worker}/{position:020d}")
                    stop = min(end, after)
                    cut = min(stop, position + _READ_AT_ONCE)
                    yield path, position - first, cut - first, cut == end
                    position = cut

    def _objects(self, worker: str) -> list[tuple[int, int, str]]:
        """Return first byte, end and path of each object of a part."""
        with self._place.explained():
            found = self._files.find(f"{self._folder}/{worker}", detail=True)
        objects = []
        for path, about in found.items():
            start = int(path.rpartition("/")[2])
            objects.append((start, start + about["size"], path))
        return sorted(objects)


def make_folder(place: RemoteLocation, files: Any, folder: str) -> None:
    """Make a folder where folders are no mere names."""
    if not place.is_bucket:
        files.makedirs(folder, exist_ok=True)


def _changed(what: str) -> StoreError:
    return StoreError(
        f"{what} was changed or is gone, and held committed items",
        remedy="leave part objects alone; start the job again with --fresh",
    )


_T = TypeVar("_T")
_BEING_MERGED = "being merged"
_BLOCK = 16 << 20
"""Bytes of an upload that are held in memory. S3 takes 10,000 of them, 160 GB."""


class RemoteOutput:
    """Written anew at every stop of the job from the parts beside it, in one step: an upload is seen when it is whole.

    How the job knows its own file again stands beside the parts, so that all machines of a fleet know it.
    """

    def __init__(self, place: RemoteLocation, terms: BufferOptions) -> None:
        self.target = place.name
        self.stream = f"remote-{xxhash.xxh3_64_hexdigest(place.name.encode())}"
        self._place = place
        self._terms = terms

    async def check(self, context: OutputContext) -> None:
        """Write a small object among the parts, and remove it."""
        await self._run(self._check, context)

    async def occupied(self, context: OutputContext) -> bool:
        """Whether there is a file that is not empty and not as the last merge of this job left it."""
        return await self._run(self._is_occupied, context)

    async def clear(self, context: OutputContext) -> None:
        """Remove the parts; the file itself is replaced by the next merge."""
        await self._run(self._clear, context)

    def store(self) -> RemotePartStore:
        """Return a new part."""
        return RemotePartStore(self._place, self.stream, self._terms)

    async def emit(self, context: OutputContext, ranges: RangesByPart) -> bool:  # noqa: ARG002 - see merge
        """Nothing: the file is made by ``merge``."""
        return True

    async def merge(self, context: OutputContext, ranges: RangesByPart) -> None:
        """Replace the file by one that holds the committed ranges; waits for a service that is away."""

        async def attempt() -> None:
            await asyncio.to_thread(
                self._call, lambda files, context: self._merge(files, context, ranges), context
            )

        await Backoff(self._place.name, self._terms.patience).call(attempt)

    async def _run(self, call: Callable[[Any, OutputContext], _T], context: OutputContext) -> _T:
        try:
            return await asyncio.to_thread(self._call, call, context)
        except Unavailable as error:
            raise failed(self._place, error) from error

    def _call(self, call: Callable[[Any, OutputContext], _T], context: OutputContext) -> _T:
        files = self._place.connect()
        with self._place.explained():
            return call(files, context)

    def _check(self, files: Any, context: OutputContext) -> None:
        root = self._place.root
        if root and not files.exists(root):
            what = "bucket" if self._place.is_bucket else "folder"
            raise StoreError(
                f"{self._place.name}: there is no {what} {root}",
                remedy=f"create the {what} first, or name another one",
            )
        folder = self._place.parts_of(context.job)
        make_folder(self._place, files, folder)
        files.pipe_file(f"{folder}/check", b"\n")
        files.rm_file(f"{folder}/check")

    def _is_occupied(self, files: Any, context: OutputContext) -> bool:
        path = self._place.path
        if not files.exists(path) or not files.size(path):
            return False
        return self._known(files, context) not in (_BEING_MERGED, files.ukey(path))

    def _clear(self, files: Any, context: OutputContext) -> None:
        with suppress(FileNotFoundError):
            files.rm(self._place.parts_of(context.job), recursive=True)

    def _merge(self, files: Any, context: OutputContext, ranges: RangesByPart) -> None:
        committed = RemoteCommitted(self._place, files, context.job, self.stream, ranges)
        make_folder(self._place, files, self._place.parts_of(context.job))
        self._remember(files, context, _BEING_MERGED)  # a kill may come before the next note
        file = files.open(self._place.path, "wb", block_size=_BLOCK, autocommit=False)
        try:
            fill(file, committed, self._place.form, lambda _: None)
            file.close()
        except BaseException:
            file.discard()
            raise
        file.commit()
        self._remember(files, context, files.ukey(self._place.path))

    def _note(self, context: OutputContext) -> str:
        return f"{self._place.parts_of(context.job)}/merged.json"

    def _remember(self, files: Any, context: OutputContext, key: str) -> None:
        files.pipe_file(self._note(context), msgspec.json.encode({"file": key}))

    def _known(self, files: Any, context: OutputContext) -> str | None:
        try:
            return msgspec.json.decode(files.cat_file(self._note(context)), type=dict[str, str]).get("file")
        except (FileNotFoundError, msgspec.DecodeError):
            return None
