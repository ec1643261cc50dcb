"""Where lists of proxies come from: given outright, a file, or a URL; the last two are read again and again."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, urlsplit

import msgspec

from skitter.errors import SettingsError
from skitter.fetch.contract import UNCONDITIONAL, Fetcher, FetchError
from skitter.fetch.identity.contract import SourceContext, SourceError, existing_file
from skitter.request import Request


class ProxyList(Protocol):
    """A list of proxy URLs."""

    lasting: bool
    """Whether it never changes."""

    async def read(self) -> list[str]:
        """Return the list as it is now. Raises :class:`~skitter.errors.SkitterError`."""
        ...


class GivenList:
    """Proxies named in the settings. Raises :class:`~skitter.errors.SettingsError` for what is no proxy."""

    lasting = True

    def __init__(self, proxies: Sequence[str]) -> None:
        self._proxies = list(dict.fromkeys(parse_proxy(proxy) for proxy in proxies))

    async def read(self) -> list[str]:
        """Return the list."""
        return self._proxies


class FileList:
    """A file with one proxy a line."""

    lasting = False

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    async def read(self) -> list[str]:
        """Return the list as it is now. Raises :class:`~skitter.fetch.identity.contract.SourceError`: it cannot be had."""
        try:
            text = await asyncio.to_thread(self._path.read_text, "utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SourceError(
                f"the list of proxies {self._path} cannot be read: {error}", remedy="check the file"
            ) from error
        return _parsed(text, str(self._path))


class UrlList:
    """A list that a vendor serves: one proxy a line, or a JSON array. Fetched without any proxy."""

    lasting = False

    def __init__(self, url: str, fetcher: Fetcher) -> None:
        self._url = url
        self._fetcher = fetcher

    async def read(self) -> list[str]:
        """Return the list as it is now. Raises :class:`~skitter.fetch.identity.contract.SourceError`: it cannot be had."""
        where = label(self._url).partition("?")[0]  # a vendor's URL holds its customer's token
        try:
            response = await self._fetcher.fetch(Request(self._url, proxy=""), permit=UNCONDITIONAL)
        except FetchError as error:
            raise SourceError(
                f"the list of proxies at {where} cannot be had: {error.kind}: {error}",
                remedy="check its address",
            ) from error
        if not response.ok:
            raise SourceError(
                f"the list of proxies at {where} answers {response.status}", remedy="check its address"
            )
        return _parsed(response.text, where)


def file_list(context: SourceContext) -> FileList:
    """Make the part ``file:PATH``."""
    return FileList(existing_file(context.rest))


def url_list(context: SourceContext) -> UrlList:
    """Make the part ``url:URL``. Raises :class:`~skitter.errors.SettingsError` for another scheme than HTTP."""
    assert context.plain is not None, "a source is made with a fetcher"
    if not context.rest.startswith(("http://", "https://")):
        raise SettingsError(
            f"{context.rest!r} is no URL of a list of proxies", remedy="write url:https://..."
        )
    return UrlList(context.rest, context.plain)


def _parsed(text: str, where: str) -> list[str]:
    try:
        return parse_list(text)
    except SettingsError as error:
        raise SourceError(f"the list of proxies {where}: {error}", remedy=error.remedy) from None


SCHEMES = ("http", "https", "socks4", "socks4a", "socks5", "socks5h")

_PLAIN = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/@\[\]]+):(\d{1,5})(?::([^\s:]+):(\S+))?")


def parse_proxy(text: str) -> str:
    """Return a proxy as a URL.

    Taken are ``scheme://[user:password@]host:port``, ``host:port`` and the ``host:port:user:password`` in which
    vendors export their lists; the last two are http proxies. Raises
    :class:`~skitter.errors.SettingsError`, which does not repeat a password.
    """
    text = text.strip()
    plain = _PLAIN.fullmatch(text)
    if plain is not None:
        host, port, user, password = plain.groups()
        login = f"{quote(user, safe='')}:{quote(password, safe='')}@" if user else ""
        text = f"http://{login}{host}:{port}"
    try:
        parts = urlsplit(text)
        known = parts.scheme in SCHEMES and parts.hostname and parts.port and parts.path in {"", "/"}
    except ValueError:
        known = False
    if not known:
        raise SettingsError(
            f"{label(text)!r} is no proxy",
            remedy=f"write scheme://user:password@host:port, where scheme is one of {', '.join(SCHEMES)}",
        )
    return text.rstrip("/")


def parse_list(text: str) -> list[str]:
    """Read a list of proxies: one a line, ``#`` begins a comment; or a JSON array of strings.

    Raises :class:`~skitter.errors.SettingsError` that names the line.
    """
    if text.lstrip()[:1] == "[":
        try:
            entries = msgspec.json.decode(text, type=list[str])
        except msgspec.MsgspecError as error:
            raise SettingsError(
                f"the list of proxies is no JSON array of strings: {error}", remedy="correct the list"
            ) from None
        return list(dict.fromkeys(parse_proxy(entry) for entry in entries))
    found: dict[str, None] = {}
    for number, line in enumerate(text.splitlines(), 1):
        entry = line.partition("#")[0].strip() if not line.lstrip().startswith("#") else ""
        if not entry:
            continue
        try:
            found[parse_proxy(entry)] = None
        except SettingsError as error:
            raise SettingsError(f"line {number}: {error}", remedy=error.remedy) from None
    return list(found)


def label(proxy: str) -> str:
    """Return a proxy without its user name and password, for people and logs."""
    scheme, mark, rest = proxy.partition("://")
    if not mark:
        return ":".join(proxy.split(":")[:2])
    return f"{scheme}://{rest.rpartition('@')[2]}"
