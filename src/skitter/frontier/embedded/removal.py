"""Removal: deletes the file of an embedded frontier, for a job that starts afresh."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from skitter.errors import FrontierError
from skitter.frontier.embedded.file_format import APPLICATION_ID
from skitter.frontier.embedded.lock import OwnerLock


def remove_file(path: Path) -> None:
    """Delete a frontier's file and its write-ahead log, if there is one.

    Raises :class:`~skitter.errors.FrontierError` if another process owns it, or if it is no frontier: a
    mistyped name must not cost anybody a file.
    """
    lock = OwnerLock(path)
    lock.acquire()
    try:
        if path.exists():
            _check(path)
            for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
                path.with_name(name).unlink(missing_ok=True)
    except OSError as error:
        raise FrontierError(
            f"{path} cannot be removed: {error.strerror}", remedy="check the folder and its permissions"
        ) from error
    finally:
        lock.release()


def _check(path: Path) -> None:
    try:
        with closing(sqlite3.connect(path)) as file:
            (application,) = file.execute("PRAGMA application_id").fetchone()
            (tables,) = file.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except sqlite3.Error:
        application, tables = 0, 1
    if application != APPLICATION_ID and tables:
        raise FrontierError(
            f"{path} is no frontier of skitter",
            remedy="name another file with --frontier, or remove it yourself",
        )
