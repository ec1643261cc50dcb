"""CommittedRanges: the committed bytes of part files, and nothing else of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from skitter.errors import StoreError
from skitter.store.contract import RangesByPart

_Ranges = list[tuple[int, int]]
CHUNK = 1 << 20
"""Bytes held in memory at a time."""

_REMEDY = (
    "copy it again if it is a copy; else it was changed or lost its end in a machine crash, so start the job again "
    "with --fresh (and with durability=machine where machines crash)"
)


class CommittedRanges:
    """The committed lines of one stream, or (``None``) of all that are given, by part name, then position.

    ``elsewhere``: more folders of parts, such as copies of those of other machines. Of several copies the longest
    is read: the others were made earlier, or not to their end.

    Every range is tested before it is given out: inside the file, whole lines, no overlap. Raises
    :class:`~skitter.errors.StoreError` that names the part.
    """

    def __init__(
        self,
        parts: Path,
        ranges: RangesByPart,
        stream: str | None = None,
        *,
        elsewhere: Sequence[Path] = (),
    ) -> None:
        prefix = "" if stream is None else f"{stream}/"
        self._folders = [parts, *elsewhere]
        self._ranges = {part: ranges[part] for part in sorted(ranges) if part.startswith(prefix)}

    def runs(self) -> Iterator[tuple[int, int, int]]:
        """Give ``(descriptor, start, end)`` of each run of adjacent ranges; open until the next is asked for."""
        for part, ranges in self._ranges.items():
            if not ranges:
                continue
            descriptor = self._open(part)
            try:
                for start, end in _runs(descriptor, part, ranges):
                    yield descriptor, start, end
            finally:
                os.close(descriptor)

    def chunks(self) -> Iterator[bytes]:
        """Give all bytes, at most :data:`CHUNK` at a time. Raises :class:`StoreError`: a part became shorter."""
        for descriptor, start, end in self.runs():
            position = start
            while position < end:
                chunk = os.pread(descriptor, min(CHUNK, end - position), position)
                if not chunk:
                    raise StoreError("a part file became shorter while it was read", remedy=_REMEDY)
                position += len(chunk)
                yield chunk

    def blocks(self, size: int) -> Iterator[tuple[list[bytes], int]]:
        """Give the lines of one part, some at a time (about ``size`` bytes), with the position after them.

        Raises as :meth:`chunks`.
        """
        for descriptor, position, end in self.runs():
            at, wanted = position, size
            while at < end:
                block = os.pread(descriptor, min(wanted, end - at), at)
                cut = block.rfind(b"\n") + 1
                if not block:
                    raise StoreError("a part file became shorter while it was read", remedy=_REMEDY)
                if not cut:  # a line that is longer
                    wanted *= 2
                    continue
                at, wanted = at + cut, size
                yield block[: cut - 1].split(b"\n"), at

    def lines(self) -> Iterator[bytes]:
        """Give all lines, without their line ends."""
        return lines_of(self.chunks())

    def _open(self, part: str) -> int:
        copies = [path for folder in self._folders if (path := folder / part).exists()]
        try:
            return os.open(max(copies, key=_size, default=self._folders[0] / part), os.O_RDONLY)
        except OSError as error:
            raise StoreError(
                f"cannot read the part file {part}, which holds committed items: {error.strerror}",
                remedy=_REMEDY,
            ) from error


def _size(path: Path) -> int:
    return path.stat().st_size


def lines_of(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Give the lines of a text that comes in pieces, without their line ends."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines


def _runs(descriptor: int, part: str, ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    size = os.fstat(descriptor).st_size
    run_start = run_end = 0
    for start, end in sorted(ranges):
        problem = _problem(descriptor, start, end, range(run_end, size + 1))
        if problem:
            raise StoreError(
                f"part file {part}: the committed range {start}-{end} reaches {problem}", remedy=_REMEDY
            )
        if start > run_end:
            if run_end > run_start:
                yield run_start, run_end
            run_start = start
        run_end = end
    if run_end > run_start:
        yield run_start, run_end


def _problem(descriptor: int, start: int, end: int, allowed: range) -> str:
    if end > allowed[-1]:
        return "outside the file"
    if not allowed[0] <= start <= end:
        return "over another range"
    # What lies before allowed[0] was found to be whole lines by the range before.
    if start > allowed[0] and os.pread(descriptor, 1, start - 1) != b"\n":
        return "from the middle of a line"
    if end > start and os.pread(descriptor, 1, end - 1) != b"\n":
        return "to the middle of a line"
    return ""


def split_by_place(
    ranges: Mapping[str, _Ranges], folders: Sequence[Path]
) -> tuple[dict[str, _Ranges], dict[str, _Ranges]]:
    """Divide the ranges of a fleet into those whose part file is in one of the folders, and the others."""
    here: dict[str, _Ranges] = {}
    missing: dict[str, _Ranges] = {}
    for part, known in ranges.items():
        (here if any((folder / part).exists() for folder in folders) else missing)[part] = known
    return here, missing
