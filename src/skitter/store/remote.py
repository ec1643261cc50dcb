"""RemotePartStore: the ranged store whose parts are objects on S3, or files on another file system of fsspec.

The part of a worker is a line of bytes that is cut into immutable objects, one a write. The name of an object is the
position of its first byte, so the committed ranges of the frontier say which bytes of which objects count.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

from skitter._utils.backoff import Backoff
from skitter._utils.executor import SingleThreadExecutor
from skitter.errors import StoreError
from skitter.item import OutputRange
from skitter.store.committed import lines_of
from skitter.store.contract import GroupError, ItemGroup, StoreContext, type_of_ranges
from skitter.store.database import BufferTerms
from skitter.store.files import encode_group, marks_of
from skitter.store.remote_place import RemotePlace

_READ_AT_ONCE = 8 << 20
_OBJECTS_AT_ONCE = 64

type_of_piece = tuple[str, int, int, bool]
"""Path of an object, first byte, end, and whether a committed range ends there."""


class RemotePartStore:
    """Writes one object a batch, and answers with byte ranges of the worker's part."""

    def __init__(self, place: RemotePlace, stream: str, terms: BufferTerms) -> None:
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
    """The committed lines of one output, by part name, then position; as :class:`~skitter.store.committed.Committed`."""

    def __init__(self, place: RemotePlace, files: Any, job: str, stream: str, ranges: type_of_ranges) -> None:
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
        batch: list[type_of_piece] = []
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

    def _read(self, batch: list[type_of_piece]) -> Iterator[bytes]:
        paths, starts, ends, lasts = map(list, zip(*batch, strict=True))
        with self._place.explained():
            pieces = self._files.cat_ranges(paths, starts, ends, on_error="raise")
        for path, start, end, last, data in zip(paths, starts, ends, lasts, pieces, strict=True):
            if len(data) != end - start or (last and not data.endswith(b"\n")):
                raise _changed(str(path))
            yield data

    def _pieces(self) -> Iterator[type_of_piece]:
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


def make_folder(place: RemotePlace, files: Any, folder: str) -> None:
    """Make a folder where folders are no mere names."""
    if not place.is_bucket:
        files.makedirs(folder, exist_ok=True)


def _changed(what: str) -> StoreError:
    return StoreError(
        f"{what} was changed or is gone, and held committed items",
        remedy="leave part objects alone; start the job again with --fresh",
    )
