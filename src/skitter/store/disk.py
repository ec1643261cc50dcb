"""Durable writes to disk, and readable errors of the operating system."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from skitter.errors import StoreError

# On macOS, fsync leaves the data in the cache of the drive.
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)

_RETRY = "then run the same command again: nothing that was committed is lost"
_REASONS = {
    errno.ENOSPC: ("the disk is full", f"free some space, {_RETRY}"),
    errno.EDQUOT: ("the disk quota is used up", f"free some space, {_RETRY}"),
    errno.EFBIG: ("the file size limit is reached", f"raise the limit (ulimit -f), {_RETRY}"),
    errno.EACCES: ("permission denied", "choose a location with write permission"),
    errno.EPERM: ("permission denied", "choose a location with write permission"),
    errno.EROFS: ("the file system is read-only", "choose a writable location"),
    errno.ENOENT: ("the folder does not exist", "create the folder first, or choose another location"),
    errno.ENOTDIR: ("a part of the path is a file, not a folder", "choose another location"),
    errno.ENAMETOOLONG: ("the name is too long", "choose a shorter name"),
    errno.EBUSY: (
        "it is a mount point, which cannot be replaced",
        f"mount its folder instead of the file, {_RETRY}",
    ),
    errno.EIO: ("the disk reports an error", f"check the disk, {_RETRY}"),
}


def disk_error(error: OSError, path: Path | str) -> StoreError:
    """Return a :class:`~skitter.errors.StoreError` that explains an error of the operating system."""
    text = error.strerror or str(error)
    reason, remedy = _REASONS.get(error.errno or 0, (text, f"fix the cause, {_RETRY}"))
    return StoreError(f"cannot write {path}: {reason}", remedy=remedy)


def sync_file(descriptor: int) -> None:
    """Write the data of an open file to stable storage, so that it survives a power loss."""
    if _FULL_SYNC is not None:
        fcntl.fcntl(descriptor, _FULL_SYNC)
    else:
        os.fdatasync(descriptor)


def sync_folder(folder: Path) -> None:
    """Write the entries of a folder to stable storage, so that they survive a power loss."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
