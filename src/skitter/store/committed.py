"""The committed bytes of part files. Uncommitted bytes are never read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from skitter.errors import StoreError
from skitter.store.contract import RangesByPart

_Ranges = list[tuple[int, int]]
CHUNK = 1 << 20
"""Maximum number of bytes that are read into memory at a time."""

_REMEDY = (
    "if the file is a copy, copy it again; otherwise it was changed or truncated (a machine crash can do that): "
    "start the job again with --fresh, and set durability=machine on machines that may crash"
)
_MOVED = (
    "if the program has changed its working directory, run the job again in the former one: nothing that was stored is lost; "
    + _REMEDY
)


class CommittedRanges:
    """The committed lines of one stream, or of all ranges (``stream=None``), sorted by part name and position.

    Implements :class:`ItemSource`.

    ``elsewhere``: further folders with parts, for example copies from other machines. If there are several copies of a
    part, the longest is read, because the others are older or incomplete.

    ``has_lines``: whether the parts consist of lines.

    Every range is validated before it is read: it lies inside the file, contains whole lines, and does not overlap
    another range. Raises :class:`~skitter.errors.StoreError` with the name of the part.
    """

    def __init__(
        self,
        parts: Path,
        ranges: RangesByPart,
        stream: str | None = None,
        *,
        elsewhere: Sequence[Path] = (),
        has_lines: bool = True,
    ) -> None:
        prefix = "" if stream is None else f"{stream}/"
        self._folders = [parts, *elsewhere]
        self._has_lines = has_lines
        self._ranges = {part: ranges[part] for part in sorted(ranges) if part.startswith(prefix)}

    def runs(self) -> Iterator[tuple[int, int, int]]:
        """Yield ``(descriptor, start, end)`` of each run of adjacent ranges. The descriptor is closed after the iteration step."""
        for part, ranges in self._ranges.items():
            if not ranges:
                continue
            descriptor = self._open(part)
            try:
                for start, end in _runs(descriptor, part, ranges, has_lines=self._has_lines):
                    yield descriptor, start, end
            finally:
                os.close(descriptor)

    def chunks(self) -> Iterator[bytes]:
        """Yield all bytes, at most :data:`CHUNK` at a time. Raises :class:`StoreError` if a part is truncated meanwhile."""
        for descriptor, start, end in self.runs():
            position = start
            while position < end:
                chunk = os.pread(descriptor, min(CHUNK, end - position), position)
                if not chunk:
                    raise StoreError("a part file was truncated while it was read", remedy=_REMEDY)
                position += len(chunk)
                yield chunk

    def blocks(self, size: int) -> Iterator[tuple[list[bytes], int]]:
        """Yield blocks of lines of about ``size`` bytes, each with the position after it. No block spans two parts.

        Raises the same errors as :meth:`chunks`.
        """
        for descriptor, position, end in self.runs():
            at, wanted = position, size
            while at < end:
                block = os.pread(descriptor, min(wanted, end - at), at)
                cut = block.rfind(b"\n") + 1
                if not block:
                    raise StoreError("a part file was truncated while it was read", remedy=_REMEDY)
                if not cut:  # the line is longer than the block
                    wanted *= 2
                    continue
                at, wanted = at + cut, size
                yield block[: cut - 1].split(b"\n"), at

    def lines(self) -> Iterator[bytes]:
        return lines_of(self.chunks())

    def _open(self, part: str) -> int:
        copies = [path for folder in self._folders if (path := folder / part).exists()]
        try:
            return os.open(
                max(copies, key=lambda path: path.stat().st_size, default=self._folders[0] / part),
                os.O_RDONLY,
            )
        except OSError as error:
            remedy = _MOVED if isinstance(error, FileNotFoundError) else _REMEDY
            raise StoreError(
                f"cannot read the part file {part}, which holds committed items: {error.strerror}",
                remedy=remedy,
            ) from error


def lines_of(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Split a text that arrives in chunks into lines, without their line ends."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines


def _runs(
    descriptor: int, part: str, ranges: Sequence[tuple[int, int]], *, has_lines: bool
) -> Iterator[tuple[int, int]]:
    size = os.fstat(descriptor).st_size
    run_start = run_end = 0
    for start, end in sorted(ranges):
        problem = _problem(descriptor, start, end, range(run_end, size + 1), has_lines=has_lines)
        if problem:
            raise StoreError(f"part file {part}: the committed range {start}-{end} {problem}", remedy=_REMEDY)
        if start > run_end:
            if run_end > run_start:
                yield run_start, run_end
            run_start = start
        run_end = end
    if run_end > run_start:
        yield run_start, run_end


def _problem(descriptor: int, start: int, end: int, allowed: range, *, has_lines: bool) -> str:
    if end > allowed[-1]:
        return "ends outside the file"
    if not allowed[0] <= start <= end:
        return "overlaps another range"
    if not has_lines:
        return ""
    # The bytes before allowed[0] end with a complete line, because the previous range was checked.
    if start > allowed[0] and os.pread(descriptor, 1, start - 1) != b"\n":
        return "starts in the middle of a line"
    if end > start and os.pread(descriptor, 1, end - 1) != b"\n":
        return "ends in the middle of a line"
    return "contains zeros" if end > start and _has_hole(descriptor, start, end) else ""


def _has_hole(descriptor: int, start: int, end: int) -> bool:
    """Return whether the file system has no data for some bytes, as after a power failure. Costs one system call.

    JSON lines have no zeros. The byte is read as well, because not all file systems report holes correctly.
    """
    hole = os.lseek(descriptor, start, os.SEEK_HOLE)
    return hole < end and os.pread(descriptor, 1, hole) == b"\0"


def split_by_presence(
    ranges: Mapping[str, _Ranges], folders: Sequence[Path]
) -> tuple[dict[str, _Ranges], dict[str, _Ranges]]:
    """Split the ranges of a fleet into those whose part file is in one of the folders, and all others."""
    present: dict[str, _Ranges] = {}
    missing: dict[str, _Ranges] = {}
    for part, known in ranges.items():
        (present if any((folder / part).exists() for folder in folders) else missing)[part] = known
    return present, missing
