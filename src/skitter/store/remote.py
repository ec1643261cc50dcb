"""A ranged store whose parts are objects on S3, or files on another file system supported by fsspec.

The part of a worker is a stream of bytes, stored as one immutable object per write. The name of an object is the
position of its first byte, so the committed ranges of the frontier identify the committed bytes of each object.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, TypeVar

import fsspec
import msgspec
import xxhash

from skitter._utils.backoff import Backoff, Unavailable
from skitter._utils.concurrency import SingleThreadExecutor
from skitter._utils.visible import one_line
from skitter.errors import StoreError
from skitter.item import OutputRange
from skitter.secrets import output_variable, secret_from_environment
from skitter.store.committed import lines_of
from skitter.store.contract import (
    GroupError,
    ItemGroup,
    Output,
    OutputContext,
    RangesByPart,
    Store,
    StoreContext,
)
from skitter.store.database import BufferOptions
from skitter.store.files import encode_group, ranges_of
from skitter.store.merge import Format, fill

_IN_BUCKETS = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss"}
_NO_CREDENTIALS = {
    "NoCredentialsError",
    "PartialCredentialsError",
    "ProfileNotFound",
    "DefaultCredentialsError",
}
_BAD_OPTIONS = {"ParamValidationError", "UnknownServiceError", "InvalidRegionError", "UnknownRegionError"}


class RemoteLocation(msgspec.Struct, frozen=True):
    """The location of an output on a remote file system."""

    protocol: str
    path: str
    """For a bucket: the bucket and the key."""
    format: Format = Format()
    options: dict[str, str] = {}
    """Options of the file system, such as ``endpoint_url``, ``key``, ``secret``, ``profile`` and ``anon`` of s3fs."""

    @property
    def name(self) -> str:
        """The name for messages, without the options, which may contain a secret."""
        return f"{self.protocol}://{self.path}"

    @property
    def is_bucket(self) -> bool:
        """Whether the location is in a bucket, where folders are only name prefixes."""
        return self.protocol in _IN_BUCKETS

    @property
    def root(self) -> str:
        """The bucket or folder that must already exist."""
        return self.path.partition("/")[0] if self.is_bucket else self.path.rpartition("/")[0]

    def parts_of(self, job: str) -> str:
        """Return the folder of a job's parts, which is next to the file."""
        return f"{self.path}.parts/{job}"

    def make_folder(self, files: Any, folder: str) -> None:
        """Create a folder, unless folders are only name prefixes."""
        if not self.is_bucket:
            files.makedirs(folder, exist_ok=True)

    @staticmethod
    @contextmanager
    def upload(files: Any, path: str) -> Iterator[Any]:
        """Yield an open file, which becomes visible at the end of the block, or never if the block raises an error."""
        file = files.open(path, "wb", block_size=UPLOAD_BLOCK, autocommit=False)
        try:
            yield file
            file.close()
        except BaseException:
            file.discard()
            raise
        file.commit()

    def connect(self) -> Any:
        """Return the file system. All outputs of a process share it: creating an S3 client takes half a second.

        The call blocks, so make it in a thread. Raises the errors of :meth:`translated_errors`.
        """
        with self.translated_errors():
            return _connect(self.protocol, tuple(self.options.items()))

    @contextmanager
    def translated_errors(self) -> Iterator[None]:
        """Convert errors of the file system to :class:`~skitter.errors.StoreError` or :class:`Unavailable`."""
        try:
            yield
        except StoreError:
            raise
        except ImportError as error:
            raise StoreError(
                f"output {self.name} needs a package that is not installed: {error}",
                remedy='in the clone of skitter: pip install ".[s3]"'
                if self.protocol in {"s3", "s3a"}
                else "install it with pip",
            ) from error
        except PermissionError as error:
            raise StoreError(
                f"{self.name}: access denied: {error}", remedy="check the keys and their permissions"
            ) from error
        except FileNotFoundError as error:
            raise StoreError(
                f"{self.name}: {error}", remedy="create the bucket or folder, or choose another one"
            ) from error
        except Exception as error:
            raise self._other(error) from error

    def _other(self, error: Exception) -> Exception:
        text = one_line(error)
        kind = type(error).__name__
        if kind in _NO_CREDENTIALS:
            return StoreError(
                f"{self.name}: {text}",
                remedy="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or SKITTER_OUTPUT_S3_KEY and ..._SECRET, or a profile",
            )
        if isinstance(error, (TypeError, ValueError, NotImplementedError)) or kind in _BAD_OPTIONS:
            return StoreError(f"{self.name}: {text}", remedy="correct the name or the options after '?'")
        return Unavailable(text)


UPLOAD_BLOCK = 16 << 20
"""Bytes of an upload that are kept in memory. S3 allows 10,000 blocks per upload, so a file can have 160 GB."""


def remote_secrets(kind: str) -> dict[str, str]:
    """Return the options of a file system that are set outside its URL. Raises :class:`~skitter.errors.StoreError`."""
    found = {
        name: secret_from_environment(output_variable(kind, name), StoreError)
        for name in ("key", "secret", "token", "password")
    }
    return {name: secret for name, secret in found.items() if secret}


@cache
def _connect(protocol: str, options: tuple[tuple[str, str], ...]) -> Any:
    arguments: dict[str, Any] = {name: _typed(text) for name, text in options}
    if protocol in {"s3", "s3a"}:
        arguments["config_kwargs"] = {"retries": {"total_max_attempts": 1}}  # the stores retry themselves
    files = fsspec.filesystem(protocol, skip_instance_cache=True, use_listings_cache=False, **arguments)
    if protocol in {"s3", "s3a"}:
        files.retries = 1
    return files


def _typed(text: str) -> Any:
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    return int(text) if text.isdecimal() and len(text) < 10 else text


_READ_SIZE = 8 << 20
"""Bytes read into memory at a time."""
_READ_OBJECTS = 64
"""Maximum number of objects read in one call."""

RemotePiece = tuple[str, int, int, bool]
"""Path of an object, first byte, end, and whether a committed range ends there."""


class RemotePartStore:
    """Writes one object per batch, and returns byte ranges of the worker's part."""

    def __init__(self, location: RemoteLocation, stream: str, buffer_options: BufferOptions) -> None:
        self._location = location
        self._stream = stream
        self._backoff = Backoff(location.name, buffer_options.outage_timeout)
        self._thread = SingleThreadExecutor("store")
        self._files: Any = None
        self._folder = ""
        self._part = ""
        self._end = 0
        self.buffering = buffer_options.buffering

    async def open(self, context: StoreContext) -> None:
        """Connect. The part is created with the first write."""
        self._part = f"{self._stream}/{context.worker}"
        self._folder = f"{self._location.parts_of(context.job)}/{context.worker}"
        self._files = await self._backoff.call(lambda: self._thread.run(self._location.connect))

    async def write(self, groups: Sequence[ItemGroup]) -> list[OutputRange | GroupError | None]:
        """Write the items of all groups to a new object; see :meth:`skitter.store.contract.Store.write`."""
        return await self.write_blocks([encode_group(group) for group in groups])

    async def write_blocks(
        self, blocks: Sequence[bytes | GroupError | None]
    ) -> list[OutputRange | GroupError | None]:
        """Write the encoded groups to a new object. Return the range of each one; entries without bytes are unchanged."""
        data = b"".join([block for block in blocks if isinstance(block, bytes)])
        start = self._end
        # The positions count as used even if the write fails: an object that arrives late must not replace another object.
        self._end += len(data)
        if data:
            await self._backoff.call(lambda: self._thread.run(self._put, start, data))
        return ranges_of(blocks, self._part, start)

    async def close(self) -> None:
        """Stop the thread."""
        self._thread.stop()

    def _put(self, start: int, data: bytes) -> None:
        with self._location.translated_errors():
            if start == 0:
                self._location.make_folder(self._files, self._folder)
            self._files.pipe_file(f"{self._folder}/{start:020d}", data)


class RemoteCommitted:
    """The committed lines of one output, sorted by part name and position, as in :class:`~skitter.store.committed.CommittedRanges`."""

    def __init__(
        self, location: RemoteLocation, files: Any, job: str, stream: str, ranges: RangesByPart
    ) -> None:
        self._has_lines = not location.format.holds_responses
        self._location = location
        self._files = files
        self._folder = location.parts_of(job)
        prefix = f"{stream}/"
        self._ranges = {
            part.removeprefix(prefix): sorted(ranges[part])
            for part in sorted(ranges)
            if part.startswith(prefix)
        }

    def chunks(self) -> Iterator[bytes]:
        """Yield all bytes, a few megabytes at a time. Many small objects are read in one call."""
        batch: list[RemotePiece] = []
        size = 0
        for piece in self._pieces():
            batch.append(piece)
            size += piece[2] - piece[1]
            if size >= _READ_SIZE or len(batch) >= _READ_OBJECTS:
                yield from self._read(batch)
                batch, size = [], 0
        if batch:
            yield from self._read(batch)

    def lines(self) -> Iterator[bytes]:
        """Yield all lines without their line ends."""
        return lines_of(self.chunks())

    def _read(self, batch: list[RemotePiece]) -> Iterator[bytes]:
        paths, starts, ends, lasts = map(list, zip(*batch, strict=True))
        with self._location.translated_errors():
            pieces = self._files.cat_ranges(paths, starts, ends, on_error="raise")
        for path, start, end, last, data in zip(paths, starts, ends, lasts, pieces, strict=True):
            if len(data) != end - start or (last and self._has_lines and not data.endswith(b"\n")):
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
                    cut = min(stop, position + _READ_SIZE)
                    yield path, position - first, cut - first, cut == end
                    position = cut

    def _objects(self, worker: str) -> list[tuple[int, int, str]]:
        """Return first byte, end and path of each object of a part."""
        with self._location.translated_errors():
            details_of = self._files.find(f"{self._folder}/{worker}", detail=True)
        objects = []
        for path, details in details_of.items():
            start = int(path.rpartition("/")[2])
            objects.append((start, start + details["size"], path))
        return sorted(objects)


def _changed(target: str) -> StoreError:
    return StoreError(
        f"{target} holds committed items, but was changed or removed",
        remedy="do not change part objects; start the job again with --fresh",
    )


_T = TypeVar("_T")
_BEING_MERGED = "being merged"


class RemoteOutput(Output):
    """A remote file that is merged from the parts next to it at every stop of the job.

    The file is replaced atomically, because an upload becomes visible when it is complete. The identity of the last
    merged file is stored next to the parts, so that all machines of a fleet recognize it.
    """

    def __init__(self, location: RemoteLocation, buffer_options: BufferOptions) -> None:
        self.target = location.name
        self.stream = f"remote-{xxhash.xxh3_64_hexdigest(location.name.encode())}"
        self.holds_responses = location.format.holds_responses
        self._location = location
        self._buffer_options = buffer_options

    async def check(self, context: OutputContext) -> None:
        """Write a small object to the parts folder and remove it."""
        await self._run(self._check, context)

    async def occupied(self, context: OutputContext) -> bool:
        """Whether there is a nonempty file that differs from the result of this job's last merge."""
        return await self._run(self._is_occupied, context)

    async def clear(self, context: OutputContext) -> None:
        """Remove the parts. The next merge replaces the file itself."""
        await self._run(self._clear, context)

    def store(self) -> Store:
        """Return a new part."""
        part = RemotePartStore(self._location, self.stream, self._buffer_options)
        if not self.holds_responses:
            return part
        from skitter.archive.store import CaptureStore  # noqa: PLC0415 - few jobs write archives

        return CaptureStore(part)

    async def merge(self, context: OutputContext, ranges: RangesByPart) -> None:
        """Replace the file with a file of the committed ranges, and wait for an unavailable service."""

        async def attempt() -> None:
            await asyncio.to_thread(
                self._call, lambda files, context: self._merge(files, context, ranges), context
            )

        await Backoff(self._location.name, self._buffer_options.outage_timeout).call(attempt)

    async def _run(self, call: Callable[[Any, OutputContext], _T], context: OutputContext) -> _T:
        try:
            return await asyncio.to_thread(self._call, call, context)
        except Unavailable as error:
            raise StoreError(
                f"{self._location.name} cannot be reached: {error}",
                remedy="fix the cause, then run the same command again: nothing that was committed is lost",
            ) from error

    def _call(self, call: Callable[[Any, OutputContext], _T], context: OutputContext) -> _T:
        files = self._location.connect()
        with self._location.translated_errors():
            return call(files, context)

    def _check(self, files: Any, context: OutputContext) -> None:
        root = self._location.root
        if root and not files.exists(root):
            kind = "bucket" if self._location.is_bucket else "folder"
            raise StoreError(
                f"{self._location.name}: the {kind} {root} does not exist",
                remedy=f"create the {kind} first, or name another one",
            )
        folder = self._location.parts_of(context.job)
        self._location.make_folder(files, folder)
        files.pipe_file(f"{folder}/check", b"\n")
        files.rm_file(f"{folder}/check")

    def _is_occupied(self, files: Any, context: OutputContext) -> bool:
        path = self._location.path
        if not files.exists(path) or not files.size(path):
            return False
        return self._known(files, context) not in (_BEING_MERGED, files.ukey(path))

    def _clear(self, files: Any, context: OutputContext) -> None:
        with suppress(FileNotFoundError):
            files.rm(self._location.parts_of(context.job), recursive=True)

    def _merge(self, files: Any, context: OutputContext, ranges: RangesByPart) -> None:
        committed = RemoteCommitted(self._location, files, context.job, self.stream, ranges)
        self._location.make_folder(files, self._location.parts_of(context.job))
        # In case the process is killed before it can record the result.
        self._remember(files, context, _BEING_MERGED)
        with self._location.upload(files, self._location.path) as file:
            fill(file, committed, self._location.format, self._location.name)
        self._remember(files, context, files.ukey(self._location.path))

    def _note(self, context: OutputContext) -> str:
        return f"{self._location.parts_of(context.job)}/merged.json"

    def _remember(self, files: Any, context: OutputContext, key: str) -> None:
        files.pipe_file(self._note(context), msgspec.json.encode({"file": key}))

    def _known(self, files: Any, context: OutputContext) -> str | None:
        try:
            return msgspec.json.decode(files.cat_file(self._note(context)), type=dict[str, str]).get("file")
        except (FileNotFoundError, msgspec.DecodeError):
            return None
