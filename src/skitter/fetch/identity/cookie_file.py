"""Cookies that a browser has kept: ``cookies.txt`` (Netscape format), or the database of Firefox or Chrome."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from http.cookiejar import Cookie, LoadError, MozillaCookieJar
from pathlib import Path
from typing import Any

from skitter.fetch.cookies import CookieJars
from skitter.fetch.identity.contract import SourceError
from skitter.fetch.identity.shared_cookies import make_cookie

_SQLITE = b"SQLite format 3\0"
_MILLISECONDS = 10**11
"""An expiry above this is none in seconds: Firefox counts milliseconds from version 142 on."""
_CHROME_EPOCH = 11_644_473_600
"""Seconds from 1601, where Chrome begins to count, to 1970."""


class CookieFile:
    """Lets every session begin with the cookies of a file."""

    def __init__(self, path: str | Path, jars: CookieJars) -> None:
        self._path = path
        self._jars = jars

    async def open(self) -> None:
        """Read the file. Raises :class:`~skitter.fetch.identity.contract.SourceError`."""
        await asyncio.to_thread(self._read)

    def _read(self) -> None:
        self._jars.seed(read_cookies(self._path))


def read_cookies(path: str | Path) -> list[Cookie]:
    """Return the cookies of a file. Blocks. The browser may be running.

    Raises :class:`~skitter.fetch.identity.contract.SourceError` for a file that is none of these, and for the
    encrypted values that Chrome keeps on most systems.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            is_database = file.read(len(_SQLITE)) == _SQLITE
        return _of_database(path) if is_database else _of_text(path)
    except (OSError, LoadError, UnicodeDecodeError, sqlite3.Error) as error:
        raise SourceError(
            f"the cookies of {path} cannot be read: {error}",
            remedy="give a cookies.txt in Netscape format, or the cookies.sqlite of Firefox",
        ) from error


def _of_text(path: Path) -> list[Cookie]:
    jar = MozillaCookieJar()
    jar.load(str(path), ignore_discard=True, ignore_expires=True)
    for cookie in jar:
        if cookie.expires == 0:  # as curl and the browsers' extensions write one without an expiry
            cookie.expires, cookie.discard = None, True
    return list(jar)


def _of_database(path: Path) -> list[Cookie]:
    # A copy, with its write-ahead log: the browser holds a lock on the file itself.
    with tempfile.TemporaryDirectory(prefix="skitter-") as folder:
        copy = Path(shutil.copy(path, folder))
        log = path.with_name(path.name + "-wal")
        if log.exists():
            shutil.copy(log, folder)
        with closing(sqlite3.connect(copy)) as database:
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
            if "moz_cookies" in tables:
                return list(_of_firefox(database))
            if "cookies" in tables:
                return list(_of_chrome(database, path))
    raise sqlite3.DatabaseError("it holds no cookies")


def _of_firefox(database: sqlite3.Connection) -> Iterator[Cookie]:
    rows = database.execute("SELECT name, value, host, path, isSecure, expiry FROM moz_cookies ORDER BY id")
    for name, value, host, path, secure, expiry in rows:
        seconds = expiry // 1000 if expiry and expiry > _MILLISECONDS else expiry
        yield _cookie(name, value, host, path, secure, seconds or None)


def _of_chrome(database: sqlite3.Connection, path: Path) -> Iterator[Cookie]:
    columns = "name, value, host_key, path, is_secure, expires_utc, length(encrypted_value)"
    for name, value, host, where, secure, expires, encrypted in database.execute(
        f"SELECT {columns} FROM cookies"  # noqa: S608 - a constant
    ):
        if encrypted and not value:
            raise SourceError(
                f"the cookies of {path} are encrypted for that browser",
                remedy="export them as cookies.txt with an extension of the browser",
            )
        yield _cookie(name, value, host, where, secure, expires // 10**6 - _CHROME_EPOCH if expires else None)


def _cookie(name: str, value: str, host: str, path: str, secure: Any, expires: int | None) -> Cookie:
    return make_cookie(
        name, value, host, path, host_only=not host.startswith("."), secure=bool(secure), expires=expires
    )
