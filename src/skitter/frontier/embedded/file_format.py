"""File format of the embedded frontier: how its file is known, and what may be wrong with it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from skitter.errors import FrontierError

APPLICATION_ID = 0x736B6974
"""``skit``: marks the file as a frontier for ``file(1)`` and for us."""
FORMAT_VERSION = 3


def file_of(url: str, directory: str | Path) -> Path:
    """Return the file that ``sqlite:`` (in the job's folder) or ``sqlite:PATH`` names."""
    name = url.partition(":")[2]
    return Path(name) if name else Path(directory) / "frontier.db"


def check_format(connection: sqlite3.Connection, path: Path) -> bool:
    """Find out whether a file may be used as a frontier; returns whether it is new and empty.

    Raises :class:`~skitter.errors.FrontierError` for a database of somebody else or of another version.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if not (application or version or tables):
        return True
    if application != APPLICATION_ID:
        raise FrontierError(
            f"{path} is a database, but not a frontier of skitter",
            remedy="name another frontier file, or move this one away",
        )
    if version != FORMAT_VERSION:
        raise FrontierError(
            f"{path} has frontier format {version}, this skitter reads {FORMAT_VERSION}",
            remedy="use the skitter that wrote it, or start anew with --fresh",
        )
    return False


def explained(error: sqlite3.Error | ValueError | OverflowError, path: Path) -> FrontierError:
    """Return what went wrong with the file in words, and what to do about it."""
    text = str(error)
    if not isinstance(error, sqlite3.Error):
        return FrontierError(
            f"{path} cannot hold a value that a request or its outcome has: {text}",
            remedy="see the log for the page; priorities are 64-bit integers, texts valid Unicode",
        )
    if "full" in text or "disk I/O" in text:
        return FrontierError(
            f"{path} cannot be written: {text}",
            remedy="free some space and run the same command again: nothing committed is lost",
        )
    if "not a database" in text or "malformed" in text:
        return FrontierError(
            f"{path} is no frontier: {text}", remedy="name another frontier file, or start anew with --fresh"
        )
    if "unable to open" in text or "readonly" in text:
        return FrontierError(
            f"{path} cannot be opened: {text}",
            remedy="check the folder and its permissions, or choose another with --frontier",
        )
    return FrontierError(f"{path}: {text}", remedy="see whether another process has the file")
