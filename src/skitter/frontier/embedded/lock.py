"""Ownership of a frontier file: one process at a time holds its lock."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from pathlib import Path

from skitter.errors import FrontierError

OWNER_SIZE = 300
"""Bytes reserved for the owner's process id and host name (64 bytes at most)."""


_held: set[OwnerLock] = set()
"""The locks of this process."""


def _close_after_fork() -> None:
    """Close the copies of the locks in a process that user code has forked, because it may outlive the owner."""
    for lock in list(_held):
        lock.close()


os.register_at_fork(after_in_child=_close_after_fork)


def _host_suffix() -> str:
    """Return a suffix that distinguishes hosts. Process ids do not: in containers, they are small and similar."""
    return f" on {socket.gethostname()}"


class Owned(FrontierError):
    """Another process has the lock."""


class OwnerLock:
    """An advisory lock in a file next to the frontier. The kernel releases it when its owner ends, even after a crash.

    ``what``: description of the owner's work, for the error of another process. ``remedy``: remedy for the user of that
    process. ``folder_remedy``: remedy if the folder cannot be written.
    """

    def __init__(
        self,
        path: Path,
        *,
        what: str = "job",
        remedy: str = "for more processes on this machine, start it with --workers; see `skitter status`, or stop it first with"
        " `skitter stop`",
        folder_remedy: str = "check the folder and its permissions, or choose another with --frontier",
    ) -> None:
        self._path = path.with_name(path.name + ".lock")
        self._what = what
        self._remedy = remedy
        self._folder_remedy = folder_remedy
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock. Raises :class:`Owned`, or :class:`~skitter.errors.FrontierError` if its folder cannot be written."""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise FrontierError(
                f"{self._path.parent} cannot be written: {error.strerror}",
                remedy=self._folder_remedy,
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(descriptor, OWNER_SIZE, 0).decode(errors="replace") or "unknown"
            os.close(descriptor)
            raise Owned(
                f"the {self._what} is being run by process {owner.removesuffix(_host_suffix())}",
                remedy=self._remedy,
            ) from error
        self._descriptor = descriptor
        _held.add(self)
        with contextlib.suppress(OSError):  # on a full disk, the lock holds without the name of its owner
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}{_host_suffix()}".encode(), 0)

    def wait(self) -> None:
        """Block until no process has the lock."""
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(self._path, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH)
            finally:
                os.close(descriptor)

    def release(self) -> None:
        """Release the lock."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, 0)
            self.close()

    def close(self) -> None:
        """Close the file. The lock ends when no process has it open."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
            _held.discard(self)
