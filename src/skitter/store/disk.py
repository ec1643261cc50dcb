"""The disk: making bytes survive a power loss, and saying in words what it refuses."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from skitter.errors import StoreError

# macOS: fsync leaves the bytes in the drive's own cache.
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)

_AGAIN = "then run the same command again: nothing that was committed is lost"
_REASONS = {
    errno.ENOSPC: ("the disk is full", f"free some space, {_AGAIN}"),
    errno.EDQUOT: ("the disk quota is used up", f"free some space, {_AGAIN}"),
    errno.EFBIG: ("the file size limit is reached", f"raise the limit (ulimit -f), {_AGAIN}"),
    errno.EACCES: ("permission denied", "choose a place that you may write to"),
    errno.EPERM: ("permission denied", "choose a place that you may write to"),
    errno.EROFS: ("the file system is read-only", "choose a place that you may write to"),
    errno.ENOENT: ("there is no such folder", "create the folder first, or choose another place"),
    errno.ENOTDIR: ("a part of the path is a file, not a folder", "choose another place"),
    errno.ENAMETOOLONG: ("the name is too long", "choose a shorter name"),
    errno.EIO: ("the disk reports an error", f"check the disk, {_AGAIN}"),
}


def disk_error(error: OSError, path: Path | str) -> StoreError:
    """Return the :class:`~skitter.errors.StoreError` that explains a refusal of the operating system."""
    text = error.strerror or str(error)
    reason, remedy = _REASONS.get(error.errno or 0, (text, f"see to the cause, {_AGAIN}"))
    return StoreError(f"cannot write {path}: {reason}", remedy=remedy)


def sync_file(descriptor: int) -> None:
    """Return when the bytes of an open file survive a power loss."""
    if _FULL_SYNC is not None:
        fcntl.fcntl(descriptor, _FULL_SYNC)
    else:
        os.fdatasync(descriptor)


def sync_folder(folder: Path) -> None:
    """Return when the names in a folder survive a power loss."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
