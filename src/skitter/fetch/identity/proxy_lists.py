"""Where lists of proxies come from: given outright, a file, or a URL; the last two are read again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from skitter.errors import SettingsError
from skitter.fetch.contract import UNCONDITIONAL, Fetcher, FetchError
from skitter.fetch.identity.contract import SourceContext, SourceError, existing_file
from skitter.fetch.identity.proxy_url import label, parse_list, parse_proxy
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
