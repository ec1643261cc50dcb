"""Proxy URLs: the forms in which lists of proxies are written."""

from __future__ import annotations

import re
from urllib.parse import quote, urlsplit

import msgspec

from skitter.errors import SettingsError

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
