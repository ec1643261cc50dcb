"""Stamp: how a job knows again the files that it wrote itself."""

from __future__ import annotations

from pathlib import Path

import msgspec


class _Identity(msgspec.Struct, array_like=True, frozen=True):
    device: int
    inode: int
    size: int
    modified_ns: int


_decode = msgspec.json.Decoder(list[_Identity]).decode


class Stamp:
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

    def _known(self) -> list[_Identity]:
        try:
            return _decode(self._path.read_bytes())
        except (FileNotFoundError, msgspec.DecodeError):
            return []


def _identity(file: Path) -> _Identity:
    found = file.stat()
    return _Identity(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
