"""Merge: from the committed ranges of part files to one whole file under its name, or no change at all."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

import msgspec

from skitter.errors import StoreError
from skitter.store.committed import CHUNK, CommittedRanges
from skitter.store.disk import disk_error, sync_file, sync_folder
from skitter.store.formats import Compression, compressed, csv_chunks

_COPY_AT_ONCE = 8 * CHUNK
_TOKEN_BYTES = 8
_NOT_IN_KERNEL = {errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP}


class Format(msgspec.Struct, frozen=True):
    """What a merged file looks like."""

    shape: Literal["jsonl", "csv", "parquet"] = "jsonl"
    packing: Compression = ""


class ItemSource(Protocol):
    """CommittedRanges items, as JSON lines. Each call begins anew."""

    def chunks(self) -> Iterator[bytes]:
        """Give all bytes, in pieces that fit into memory."""
        ...

    def lines(self) -> Iterator[bytes]:
        """Give all lines, without their line ends."""
        ...


def merge(
    committed: CommittedRanges,
    target: Path,
    form: Format,
    *,
    durability: str = "process",
    before_replace: Callable[[Path], None] | None = None,
    on_chunk: Callable[[int], None] | None = None,
) -> None:
    """Write all committed items to ``target``, in bounded memory and in one step.

    They go to ``<target>.tmp-<random>`` first, which then takes the place of ``target``: whoever looks finds
    the old file or the whole new one, whenever this is killed. What a killed merge left is removed. A link is
    followed, the mode of an existing file is kept.

    ``before_replace`` gets the path of the finished file; ``on_chunk`` the number of bytes of each piece
    that was written. Raises :class:`~skitter.errors.StoreError`; the target is untouched then.
    """
    target = Path(os.path.realpath(target))
    draft = _draft_of(target)
    try:
        _remove_drafts(target)
        with draft.open("xb") as file:
            _fill(file, committed, form, on_chunk or (lambda _: None))
            file.flush()
            if durability == "machine":
                sync_file(file.fileno())
        if target.exists():
            shutil.copymode(target, draft)
        if before_replace:
            before_replace(draft)
        draft.replace(target)
        if durability == "machine":
            sync_folder(target.parent)
    except OSError as error:
        raise disk_error(error, target) from error
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def check_target(target: Path) -> None:
    """Find out whether a merge into ``target`` could work, by making and removing its temporary file.

    Raises :class:`~skitter.errors.StoreError` with a remedy.
    """
    target = Path(os.path.realpath(target))
    draft = _draft_of(target)
    try:
        _refuse_odd(target)
        draft.touch(exist_ok=False)
        draft.unlink()
    except OSError as error:
        raise disk_error(error, target) from error


def _refuse_odd(target: Path) -> None:
    if target.exists() and not target.is_file():
        what = "a folder" if target.is_dir() else "no ordinary file"
        raise StoreError(f"cannot write {target}: it is {what}", remedy="name a file, or '-' for stdout")


def _draft_of(target: Path) -> Path:
    return target.with_name(f"{target.name}.tmp-{secrets.token_hex(_TOKEN_BYTES)}")


def _remove_drafts(target: Path) -> None:
    draft_name = re.compile(re.escape(target.name) + rf"\.tmp-[0-9a-f]{{{2 * _TOKEN_BYTES}}}")
    with os.scandir(target.parent) as entries:
        for entry in entries:
            if draft_name.fullmatch(entry.name):
                Path(entry.path).unlink(missing_ok=True)


def _fill(file: BinaryIO, committed: CommittedRanges, form: Format, on_chunk: Callable[[int], None]) -> None:
    if form == Format():
        for descriptor, start, end in committed.runs():
            _copy(descriptor, start, end, file, on_chunk)
    else:
        fill(file, committed, form, on_chunk)


def fill(file: BinaryIO, source: ItemSource, form: Format, on_chunk: Callable[[int], None]) -> None:
    """Write all items of a source to an open file in a format, in bounded memory."""
    if form.shape == "parquet":
        from skitter.store.parquet import write_parquet  # noqa: PLC0415 - pyarrow is an extra

        write_parquet(file, source.lines, on_chunk)
        return
    chunks: Iterator[bytes] = csv_chunks(source.lines) if form.shape == "csv" else source.chunks()
    with compressed(file, form.packing) as sink:
        for chunk in chunks:
            sink.write(chunk)
            on_chunk(len(chunk))


def _copy(source: int, start: int, end: int, file: BinaryIO, on_chunk: Callable[[int], None]) -> None:
    while start < end:
        copied = _copy_in_kernel(source, start, min(_COPY_AT_ONCE, end - start), file)
        if not copied:
            data = os.pread(source, min(CHUNK, end - start), start)
            if not data:
                raise StoreError(
                    "a part file became shorter while it was merged", remedy="leave part files alone"
                )
            copied = os.write(file.fileno(), data)
        start += copied
        on_chunk(copied)


def _copy_in_kernel(source: int, start: int, size: int, file: BinaryIO) -> int:
    """Return how many bytes were copied; 0 where the system or the two disks cannot do it."""
    if not hasattr(os, "copy_file_range"):
        return 0
    try:
        return os.copy_file_range(source, file.fileno(), size, offset_src=start)
    except OSError as error:
        if error.errno in _NOT_IN_KERNEL:
            return 0
        raise
