"""Merges the committed ranges of part files into one file, atomically."""

from __future__ import annotations

import errno
import logging
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

import msgspec

from skitter.errors import StoreError
from skitter.store.committed import CHUNK, CommittedRanges
from skitter.store.disk import disk_error, sync_file, sync_folder
from skitter.store.formats import (
    ChosenFields,
    Compression,
    CsvCells,
    compressed,
    csv_chunks,
    json_chunks,
    xml_chunks,
)

log = logging.getLogger("skitter.store")

_COPY_SIZE = 8 * CHUNK
_TOKEN_BYTES = 8
_COPY_UNSUPPORTED = {errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP}


class Format(msgspec.Struct, frozen=True):
    """Format of a merged file."""

    shape: Literal["jsonl", "json", "csv", "xml", "parquet", "xlsx", "warc"] = "jsonl"
    compression: Compression = ""
    fields: tuple[str, ...] = ()
    """The fields to write, in order. Empty: all fields."""
    spreadsheet: bool = False
    """Whether a CSV file is meant for a spreadsheet; see :func:`~skitter.store.formats.csv_chunks`."""
    delimiter: str = ","
    """The character between the cells of a CSV file."""
    cells: CsvCells = "json"
    """Form of the cells of a CSV file; see :func:`~skitter.store.formats.csv_chunks`."""
    duplicates: Literal["keep", "mark", "drop"] = "keep"
    """What to do with near duplicates; see :class:`~skitter.content.duplicate_items.DuplicateItems`."""

    @property
    def holds_responses(self) -> bool:
        """Whether files of the format contain responses instead of items."""
        return self.shape == "warc"


class ItemSource(Protocol):
    """A source of items as JSON lines. Each call starts from the beginning."""

    def chunks(self) -> Iterator[bytes]:
        """Yield all bytes in chunks that fit into memory."""

    def lines(self) -> Iterator[bytes]:
        """Yield all lines without their line ends."""


def merge(
    source: ItemSource,
    target: Path,
    file_format: Format,
    *,
    durability: str = "process",
    before_replace: Callable[[Path], None] | None = None,
) -> None:
    """Write all items of a source to ``target`` in bounded memory, and replace it atomically.

    The items are written to ``<target>.tmp-<random>``, which is then renamed to ``target``. A reader sees either the
    old file or the complete new one, even if this process is killed. Temporary files of killed merges are removed.
    Symbolic links are followed, and the mode of an existing file is kept.

    ``before_replace`` is called with the path of the complete temporary file. Raises
    :class:`~skitter.errors.StoreError`, and then leaves the target unchanged.
    """
    target = Path(os.path.realpath(target))
    draft = _draft_of(target)
    try:
        _remove_drafts(target)
        with draft.open("xb") as file:
            if file_format == Format() and isinstance(source, CommittedRanges):
                for descriptor, start, end in source.runs():
                    _copy(descriptor, start, end, file)
            else:
                fill(file, source, file_format, target.name)
            file.flush()
            if durability == "machine":
                sync_file(file.fileno())
        if target.exists():
            draft.chmod(stat.S_IMODE(target.stat().st_mode))
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
    """Check that a merge into ``target`` can work, by creating and removing its temporary file.

    Raises :class:`~skitter.errors.StoreError` with a remedy.
    """
    target = Path(os.path.realpath(target))
    draft = _draft_of(target)
    try:
        _refuse_special_file(target)
        draft.touch(exist_ok=False)
        draft.unlink()
    except OSError as error:
        raise disk_error(error, target) from error


def _refuse_special_file(target: Path) -> None:
    if target.exists() and not target.is_file():
        kind = "a folder" if target.is_dir() else "not a regular file"
        raise StoreError(
            f"cannot write {target}: it is {kind}",
            remedy="name a file, or use '-' for standard output",
            field="output",
        )


def _draft_of(target: Path) -> Path:
    return target.with_name(f"{target.name}.tmp-{os.urandom(_TOKEN_BYTES).hex()}")


def _remove_drafts(target: Path) -> None:
    draft_pattern = re.compile(re.escape(target.name) + rf"\.tmp-[0-9a-f]{{{2 * _TOKEN_BYTES}}}")
    with os.scandir(target.parent) as entries:
        for entry in entries:
            if draft_pattern.fullmatch(entry.name):
                Path(entry.path).unlink(missing_ok=True)


def fill(file: BinaryIO, source: ItemSource, file_format: Format, name: str) -> None:
    """Write all items of a source to an open file in a format, in bounded memory. ``name``: name of the file, for the log.

    Chosen fields that no item has, and a search for near duplicates without texts, are logged.
    """
    if file_format.duplicates != "keep":
        from skitter.content.duplicate_items import DuplicateItems  # noqa: PLC0415 - few crawls collect texts

        unique = DuplicateItems(source.lines, file_format.duplicates)
        _fill(file, unique, file_format, name)
        _warn(name, unique.problem())
    else:
        _fill(file, source, file_format, name)


def _fill(file: BinaryIO, source: ItemSource, file_format: Format, name: str) -> None:
    if not file_format.fields:
        _write(file, source, source.lines, file_format)
        return
    chosen = ChosenFields(file_format.fields)
    _write(file, source, lambda: map(chosen.select, source.lines()), file_format)
    _warn(name, chosen.problem())


def _warn(name: str, problem: str) -> None:
    if problem:
        log.warning("%s: %s", name, problem)


def _write(
    file: BinaryIO, source: ItemSource, lines: Callable[[], Iterator[bytes]], file_format: Format
) -> None:
    """Write ``lines``, which are the lines of the source reduced to the chosen fields."""
    shape = file_format.shape
    if shape == "parquet":
        from skitter.store.parquet import write_parquet  # noqa: PLC0415 - pyarrow is an extra

        write_parquet(file, lines)
        return
    if shape == "xlsx":
        from skitter.store.excel import write_excel  # noqa: PLC0415 - xlsxwriter is an extra

        write_excel(file, lines, file_format.fields)
        return
    if shape == "warc":
        from skitter.archive.records import write_warc  # noqa: PLC0415 - few jobs write archives

        write_warc(file, source.chunks(), is_compressed=bool(file_format.compression))
        return
    if shape == "csv":
        chunks = csv_chunks(
            lines,
            file_format.fields,
            spreadsheet=file_format.spreadsheet,
            delimiter=file_format.delimiter,
            cells=file_format.cells,
        )
    elif shape == "json":
        chunks = json_chunks(lines())
    elif shape == "xml":
        chunks = xml_chunks(lines())
    elif file_format.fields:
        chunks = (line + b"\n" for line in lines())
    else:
        chunks = source.chunks()
    with compressed(file, file_format.compression) as sink:
        for chunk in chunks:
            sink.write(chunk)


def _copy(source: int, start: int, end: int, file: BinaryIO) -> None:
    while start < end:
        copied = _copy_in_kernel(source, start, min(_COPY_SIZE, end - start), file)
        if not copied:
            data = os.pread(source, min(CHUNK, end - start), start)
            if not data:
                raise StoreError(
                    "a part file was truncated while it was merged",
                    remedy="do not change part files; start the job again with --fresh",
                )
            copied = os.write(file.fileno(), data)
        start += copied


def _copy_in_kernel(source: int, start: int, size: int, file: BinaryIO) -> int:
    """Return the number of copied bytes; 0 if the system or the file systems do not support it."""
    if not hasattr(os, "copy_file_range"):
        return 0
    try:
        return os.copy_file_range(source, file.fileno(), size, offset_src=start)
    except OSError as error:
        if error.errno in _COPY_UNSUPPORTED:
            return 0
        raise
