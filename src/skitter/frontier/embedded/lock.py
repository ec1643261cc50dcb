"""Ownership: one process at a time owns an embedded frontier's file."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from pathlib import Path

from skitter.errors import FrontierError

_LONGEST_NOTE = 300
"""Bytes of what an owner notes of itself: its process id and its machine, whose name has 64 at most."""


def _here() -> str:
    """Name this machine, as it follows a process id: in containers many processes have the same small number."""
    return f" on {socket.gethostname()}"


class OwnerLock:
    """An advisory lock beside the file; the kernel gives it free when its owner dies, however it dies."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + ".lock")
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock. Raises :class:`~skitter.errors.FrontierError` if another process has it."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise FrontierError(
                f"{self._path.parent} cannot be written: {error.strerror}",
                remedy="check the folder and its permissions, or choose another with --frontier",
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(descriptor, _LONGEST_NOTE, 0).decode(errors="replace") or "unknown"
            os.close(descriptor)
            raise FrontierError(
                f"the job is being run by process {owner.removesuffix(_here())}",
                remedy="see `skitter status`, or stop it first with `skitter stop`",
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}{_here()}".encode(), 0)
        self._descriptor = descriptor

    def wait(self) -> None:
        """Return when no process has the lock. Blocks."""
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(self._path, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH)
            finally:
                os.close(descriptor)

    def release(self) -> None:
        """Give the lock free."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None
