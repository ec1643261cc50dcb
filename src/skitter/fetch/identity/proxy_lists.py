"""Sources of proxy lists: settings, a file or a URL. Files and URLs are read again periodically."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable
from urllib.parse import quote, urlsplit

import msgspec

from skitter.errors import FetchError, SettingsError
from skitter.fetch.address_guard import AddressGuard
from skitter.fetch.contract import UNCONDITIONAL, Fetcher
from skitter.fetch.identity.contract import SourceContext, SourceError, existing_file
from skitter.request import Request


@runtime_checkable
class ProxyList(Protocol):
    """A list of proxy URLs."""

    lasting: bool
    """Whether the list never changes."""

    async def read(self) -> list[str]:
        """Return the current list. Raises :class:`~skitter.errors.SkitterError` if it cannot be read."""


class FixedProxyList:
    """Proxies from the settings. Raises :class:`~skitter.errors.SettingsError` for an invalid proxy."""

    lasting = True

    def __init__(self, proxies: Sequence[str]) -> None:
        self._proxies = list(dict.fromkeys(parse_proxy(proxy) for proxy in proxies))

    async def read(self) -> list[str]:
        """Return the list."""
        return self._proxies


class FileProxyList:
    """A file with one proxy per line. Implements :class:`ProxyList`."""

    lasting = False

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    async def read(self) -> list[str]:
        try:
            text = await asyncio.to_thread(self._path.read_text, "utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise SourceError(
                f"cannot read the proxy list {self._path}: {error}", remedy="check the file", field="proxies"
            ) from error
        return _parsed(text, str(self._path))


class UrlProxyList:
    """A list served by a vendor: one proxy per line, or a JSON array. It is fetched without a proxy.

    Implements :class:`ProxyList`.

    The guard checks the addresses of the proxies, and the URL of the list counts as a seed.
    """

    lasting = False

    def __init__(self, url: str, fetcher: Fetcher, guard: AddressGuard) -> None:
        self._url = url
        self._fetcher = fetcher
        self._guard = guard

    async def read(self) -> list[str]:
        where = label(self._url).partition("?")[0]  # the query of such a URL often contains a secret token
        await self._guard.open_for_seeds([self._url])
        try:
            response = await self._fetcher.fetch(Request(self._url, proxy=""), permit=UNCONDITIONAL)
        except FetchError as error:
            raise SourceError(
                f"cannot fetch the proxy list {where}: {error.kind}: {error}",
                remedy="check the URL of the list",
                field="proxies",
            ) from error
        if not response.ok:
            raise SourceError(
                f"cannot fetch the proxy list {where}: the server responded with status {response.status}",
                remedy="check the URL of the list",
                field="proxies",
            )
        proxies = _parsed(response.text, where)
        self._guard.check_proxies(proxies)
        return proxies


def file_list(context: SourceContext) -> FileProxyList:
    """Create the plugin ``file:PATH``."""
    return FileProxyList(existing_file(context.rest, "proxies=file:PATH"))


def url_list(context: SourceContext) -> UrlProxyList:
    """Create the plugin ``url:URL``. Raises :class:`~skitter.errors.SettingsError` for a URL that is not http(s)."""
    assert context.plain is not None, "a source is created with a fetcher"
    if not context.rest.startswith(("http://", "https://")):
        raise SettingsError(
            f"invalid URL of a proxy list: {context.rest!r}", remedy="write url:https://...", field="proxies"
        )
    return UrlProxyList(context.rest, context.plain, context.guard)


def _parsed(text: str, where: str) -> list[str]:
    try:
        return parse_list(text)
    except SettingsError as error:
        raise SourceError(f"proxy list {where}: {error}", remedy=error.remedy, field="proxies") from None


SCHEMES = ("http", "https", "socks4", "socks4a", "socks5", "socks5h")

_PLAIN = r"(\[[0-9A-Fa-f:.]+\]|[^\s:/@\[\]]+):(\d{1,5})(?::([^\s:]+):(\S+))?"  # compiled at its first use


def parse_proxy(text: str) -> str:
    """Return a proxy as a URL.

    Accepts ``scheme://[user:password@]host:port``, ``host:port``, and ``host:port:user:password``, which vendors use in
    exported lists. The last two forms are http proxies. Raises :class:`~skitter.errors.SettingsError`, whose message never
    contains a password.
    """
    text = text.strip()
    plain = re.fullmatch(_PLAIN, text)
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
            f"invalid proxy: {label(text)!r}",
            remedy=f"write scheme://user:password@host:port, where scheme is one of {', '.join(SCHEMES)}",
            field="proxies",
        )
    return text.rstrip("/")


def parse_list(text: str) -> list[str]:
    """Parse a list of proxies: one per line, where ``#`` starts a comment, or a JSON array of strings.

    Raises :class:`~skitter.errors.SettingsError` with the number of the line.
    """
    if text.lstrip()[:1] == "[":
        try:
            entries = msgspec.json.decode(text, type=list[str])
        except msgspec.MsgspecError as error:
            raise SettingsError(
                f"the proxy list is not a JSON array of strings: {error}",
                remedy="correct the list",
                field="proxies",
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
            raise SettingsError(f"line {number}: {error}", remedy=error.remedy, field="proxies") from None
    return list(found)


def label(proxy: str) -> str:
    """Return a proxy without its user name and password, for messages and logs."""
    scheme, mark, rest = proxy.partition("://")
    if not mark:
        return ":".join(proxy.split(":")[:2])
    return f"{scheme}://{rest.rpartition('@')[2]}"
