"""SharedLogFile: a log file to which the processes of a run append, with rotation."""

from __future__ import annotations

import fcntl
import logging
import os
import sys
from logging.handlers import WatchedFileHandler
from pathlib import Path

from skitter.errors import UsageError


class SharedLogFile(WatchedFileHandler):
    """Appends to a file that several processes share, and renames a full file to ``FILE.1``, ``FILE.2`` ...

    The handlers of :mod:`logging` lose lines when several processes rotate one file. Here, a process rotates only while it
    holds a lock on the full file, and the others notice at their next line that the file has been renamed.

    ``max_bytes``: size from which the file is renamed. ``backups``: number of renamed files that are kept. Raises
    :class:`~skitter.errors.UsageError` if the file cannot be opened.
    """

    def __init__(self, path: Path, max_bytes: int, backups: int) -> None:
        try:
            super().__init__(path, encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise UsageError(
                f"cannot write log file {path}: {error.strerror}",
                remedy="name a file in a folder that exists",
                field="log_file",
            ) from error
        self._path = path
        self._max_bytes = max_bytes
        self._backups = backups
        self._has_failed = False
        """Whether the last record could not be written."""
        self._is_reported = False
        """Whether the current failure was reported."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, after the rotation of a full file."""
        self._has_failed = False
        try:
            self.reopenIfNeeded()
            if self.stream is not None and os.fstat(self.stream.fileno()).st_size >= self._max_bytes:
                self._rotate(self.stream.fileno())
        except OSError:
            self.handleError(record)
        super().emit(record)  # opens the file again if it was renamed
        self._is_reported = self._is_reported and self._has_failed

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name in logging
        """Report once that the file cannot be written, for example because the disk is full. The crawl continues.

        The stream keeps the lines, and writes them with a later one.
        """
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
            return
        self._has_failed = True
        if not self._is_reported:
            self._is_reported = True  # first, because standard error may be part of the log
            sys.stderr.write(
                f"skitter: cannot write log file {self._path}: {error.strerror}; the crawl continues\n"
            )

    def _rotate(self, descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            if not os.path.samestat(os.fstat(descriptor), self._path.stat()):
                return  # another process has rotated the file
            if not self._backups:
                self._path.unlink()
                return
            for number in range(self._backups - 1, 0, -1):
                older = self._backup(number)
                if older.exists():
                    older.replace(self._backup(number + 1))
            # Rename the file last: from then on, another process may rotate the new file.
            self._path.rename(self._backup(1))
        except FileNotFoundError:
            pass  # renamed or removed meanwhile
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)

    def _backup(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")
