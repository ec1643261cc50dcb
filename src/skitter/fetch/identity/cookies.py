"""Cookies that are shared by all workers of a job, stored as notes in the frontier.

One note stores the jar of one session at one site. It is read before each request. It is written before the response
is passed to its callback, in an atomic step that fails if another worker has changed it. So every page sees the
cookies of the page that linked to it, on any machine, and workers never overwrite each other's cookies.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from skitter._utils.notes import Notes
from skitter.errors import UndecodableRecord
from skitter.fetch.cookie_jar import Cookie, CookieJar
from skitter.fetch.cookies import CookieJars, cookie_header, load_suffixes, site_of, store_cookies
from skitter.fetch.identity.contract import SourceError
from skitter.request import Request
from skitter.response import Response

_RETENTION = 30 * 86_400.0
"""How long a jar is stored after its last change, in seconds. It applies to cookies without an expiry as well."""
_SAVE_INTERVAL = 1.0
"""Minimum time between two writes of the cookies of a single worker, in seconds."""
_MAX_DECODED = 1000
"""Maximum number of decoded jars in memory, so that an unchanged jar is not decoded again."""
_VERSION = b"\x01"


class SharedCookies:
    """The cookies of all workers of a job. Implements :class:`Cookies` and :class:`ReadableCookies`.

    ``begin`` creates the jar of a site without cookies. ``sharing``: for ``cookies=auto``, which costs nothing before a site
    of the job sets the first cookie.
    """

    def __init__(self, notes: Notes, begin: CookieJars, sharing: CookieSharing | None = None) -> None:
        self._notes = notes
        self._begin = begin
        self._sharing = sharing
        self._has_suffixes = False
        self._decoded: OrderedDict[str, tuple[bytes | None, CookieJar]] = OrderedDict()

    async def header_for(self, request: Request) -> str | None:
        if self._sharing is not None and not self._sharing.is_on:
            return None
        await self._prepare()
        _, jar = await self._read(request.session, site_of(request.url))
        return cookie_header(jar, request)

    async def jar_for(self, request: Request) -> CookieJar:
        if self._sharing is not None and not self._sharing.is_on:
            return CookieJar()
        await self._prepare()
        _, jar = await self._read(request.session, site_of(request.url))
        return CookieJar(jar)

    async def absorb(self, response: Response) -> None:
        """Store the cookies that a response sets; return when all workers can see them."""
        if not response.header("set-cookie"):
            return
        if self._sharing is not None:
            await self._sharing.switch_on()
        await self._prepare()
        session = response.request.session if response.request else ""
        site = site_of(response.url)
        key = _key(session, site)
        while True:
            before, jar = await self._read(session, site)
            self._decoded.pop(key, None)  # the jar no longer matches the stored note
            store_cookies(jar, response)
            after = _encode(jar)
            if after == before or await self._notes.compare_and_swap(key, before, after, _RETENTION):
                return

    async def _prepare(self) -> None:
        if not self._has_suffixes:
            await load_suffixes()
            self._has_suffixes = True

    async def _read(self, session: str, site: str) -> tuple[bytes | None, CookieJar]:
        key = _key(session, site)
        note = await self._notes.get(key)
        kept = self._decoded.get(key)
        if kept is None or kept[0] != note:
            jar = self._begin.new_jar(site) if note is None else _decode(note)
            kept = self._decoded[key] = note, jar
            if len(self._decoded) > _MAX_DECODED:
                self._decoded.popitem(last=False)
        return kept


class CookieSharing:
    """Whether the workers of a job share their cookies.

    They begin to do so with the first cookie of the job, so that a job without cookies pays nothing.

    ``begin``: makes all workers share their cookies before they process leases that are granted from then on.
    """

    def __init__(self, begin: Callable[[], Awaitable[None]]) -> None:
        self._begin = begin
        self.is_on = False

    async def switch_on(self) -> None:
        """Share the cookies from now on."""
        if not self.is_on:
            await self._begin()
            self.is_on = True


class CookieKeeper:
    """Stores the cookies of a job with one worker, so that its next run has them (``cookies=auto``).

    The worker reads its own jars. The next run reads the stored jars with :class:`SharedCookies`. A changed jar is written
    immediately, but not more than once a second: a kill may lose the changes of the last second.

    ``begin``: records in the job that cookies are stored.
    """

    def __init__(self, jars: CookieJars, notes: Notes, begin: Callable[[], Awaitable[None]]) -> None:
        self._jars = jars
        self._notes = notes
        self._begin = begin
        self._changed: set[tuple[str, str]] = set()
        self._has_changed = asyncio.Event()
        self._has_begun = False
        jars.on_change = self._note_change

    def _note_change(self, session: str, site: str) -> None:
        self._changed.add((session, site))
        self._has_changed.set()

    async def run(self) -> None:
        """Store changed jars until cancelled."""
        while True:
            await self._has_changed.wait()
            await self.save()
            await asyncio.sleep(_SAVE_INTERVAL)

    async def save(self) -> None:
        """Store the jars that have changed since the last call."""
        self._has_changed.clear()
        if self._changed and not self._has_begun:
            await self._begin()
            self._has_begun = True
        for session, site in tuple(self._changed):
            jar = self._jars.jar(session, site)
            stored = _encode(CookieJar() if jar is None else jar)
            self._changed.discard((session, site))
            try:
                await self._notes.put(_key(session, site), stored, _RETENTION)
            except BaseException:  # at its end, the run cancels this call, and then calls save() once more
                self._changed.add((session, site))
                raise


def _key(session: str, site: str) -> str:
    return f"cookies:{site}:{session}"


def _encode(jar: CookieJar) -> bytes:
    now = time.time()
    return _VERSION + msgspec.msgpack.encode(
        [cookie for cookie in jar if cookie.expires is None or cookie.expires > now]
    )


def _decode(note: bytes) -> CookieJar:
    if note[:1] != _VERSION:
        raise UndecodableRecord(
            "the job's cookies have another format version",
            remedy="continue the job with the version of skitter that wrote them",
        )
    return CookieJar(map(_undotted, msgspec.msgpack.decode(memoryview(note)[1:], type=list[Cookie])))


def _undotted(cookie: Cookie) -> Cookie:
    """Return a cookie without the dot that files and older records write in front of a domain."""
    cookie.domain = cookie.domain.removeprefix(".")
    return cookie


class JarCookies:
    """Cookies of this process; see :class:`~skitter.fetch.cookies.CookieJars`.

    Implements :class:`Cookies` and :class:`ReadableCookies`.
    """

    def __init__(self, jars: CookieJars) -> None:
        self._jars = jars

    async def open(self) -> None:
        """Load what new jars need."""
        await load_suffixes()

    async def header_for(self, request: Request) -> str | None:
        return self._jars.header_for(request)

    async def jar_for(self, request: Request) -> CookieJar:
        return self._jars.copy_for(request)

    async def absorb(self, response: Response) -> None:
        if response.header("set-cookie"):
            self._jars.absorb(response)


_SQLITE_MAGIC = b"SQLite format 3\0"
_MAX_SECONDS = 10**11
"""A larger expiry is in milliseconds, which Firefox uses since version 142."""
_CHROME_EPOCH = 11_644_473_600
"""Seconds from 1601, the epoch of Chrome, to 1970."""


class CookieFile:
    """Adds the cookies of a file to every new session."""

    def __init__(self, path: str | Path, jars: CookieJars) -> None:
        self._path = path
        self._jars = jars

    async def open(self) -> None:
        """Read the file. Raises :class:`~skitter.fetch.identity.contract.SourceError`."""
        await asyncio.to_thread(self._read)

    def _read(self) -> None:
        self._jars.seed(read_cookies(self._path))


def read_cookies(path: str | Path) -> list[Cookie]:
    """Return the cookies of a file. The browser may be running. The call blocks.

    Raises :class:`~skitter.fetch.identity.contract.SourceError` for a file of an unknown format, and for the encrypted
    values that Chrome uses on most systems.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            is_database = file.read(len(_SQLITE_MAGIC)) == _SQLITE_MAGIC
        return _of_database(path) if is_database else _of_text(path)
    except (OSError, ValueError, sqlite3.Error) as error:
        raise SourceError(
            f"cannot read the cookies of {path}: {error}",
            remedy="give a cookies.txt in Netscape format, or the cookies.sqlite of Firefox",
            field="cookie_file",
        ) from error


_HTTP_ONLY = "#HttpOnly_"
_COLUMNS = 7


def _of_text(path: Path) -> list[Cookie]:
    """Read a file in Netscape format as tolerantly as curl. Errors name a line without its text, which is a secret."""
    cookies, comments = [], ""
    for number, text in enumerate(path.read_text("utf-8-sig").split("\n"), start=1):
        line = text.removeprefix(_HTTP_ONLY)
        if line.startswith("#"):
            comments += line
        elif line.strip():
            cookies.append(_of_line(line, number))
    if not cookies and "Cookie File" not in comments:
        raise ValueError("it contains no cookies")
    return cookies


def _of_line(line: str, number: int) -> Cookie:
    columns = line.split("\t")
    if len(columns) == _COLUMNS - 1:
        columns.append("")  # a cookie without a value
    if len(columns) != _COLUMNS:
        raise ValueError(f"line {number} does not have {_COLUMNS} columns that are separated by tabs")
    domain, has_subdomains, path, secure, expires, name, value = columns
    if has_subdomains.upper() == "TRUE" and not domain.startswith("."):
        domain = f".{domain}"  # browsers write the dot, other programs leave it out
    try:
        # Programs write 0, -1 or nothing for no expiry.
        seconds = max(0, int(float(expires or 0)))
    except (ValueError, OverflowError):
        raise ValueError(f"line {number} has no Unix time in its fifth column") from None
    return _cookie(name, value, domain, path, secure.upper() == "TRUE", seconds or None)


def _of_database(path: Path) -> list[Cookie]:
    import shutil  # noqa: PLC0415 - few crawls have a file of cookies
    import tempfile  # noqa: PLC0415 - few crawls have a file of cookies

    # Copy the database with its write-ahead log, because the browser locks the file itself.
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
    raise sqlite3.DatabaseError("the database contains no cookies")


def _of_firefox(database: sqlite3.Connection) -> Iterator[Cookie]:
    rows = database.execute("SELECT name, value, host, path, isSecure, expiry FROM moz_cookies ORDER BY id")
    for name, value, host, path, secure, expiry in rows:
        seconds = expiry // 1000 if expiry and expiry > _MAX_SECONDS else expiry
        yield _cookie(name, value, host, path, secure, seconds or None)


def _of_chrome(database: sqlite3.Connection, path: Path) -> Iterator[Cookie]:
    columns = "name, value, host_key, path, is_secure, expires_utc, length(encrypted_value)"
    for name, value, host, where, secure, expires, encrypted in database.execute(
        f"SELECT {columns} FROM cookies"  # noqa: S608 - a constant
    ):
        if encrypted and not value:
            raise SourceError(
                f"the cookies of {path} are encrypted by the browser",
                remedy="export them as cookies.txt with a browser extension",
                field="cookie_file",
            )
        yield _cookie(name, value, host, where, secure, expires // 10**6 - _CHROME_EPOCH if expires else None)


def _cookie(name: str, value: str, domain: str, path: str, secure: Any, expires: int | None) -> Cookie:
    is_host = not domain.startswith(".")
    # In a file, names and values are text; a jar has one character per byte.
    name, value = (text.encode().decode("latin-1") for text in (name, value))
    return _undotted(Cookie(name, value, domain.lower(), is_host, path, bool(secure), expires))
