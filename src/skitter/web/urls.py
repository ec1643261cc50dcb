"""URLs by the WHATWG standard: what is fetched, what identifies it, and which host it belongs to.

Two forms matter. The *normalised* form is what a browser would fetch: parsed, joined, serialised, without its
fragment. The *canonical* form is the identity: two normalised URLs that differ only in the order of their
query parameters or in the spelling of their percent-escapes share it. Canonical forms are part of a crawl's
stored state, so any change to them needs a new ``FINGERPRINT_VERSION``.

The parser is ``upa_url``; where it is not installed ``ada_url`` gives the same answers at twice the cost.
"""

from __future__ import annotations

import atexit
import re
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from ipaddress import ip_address
from typing import NamedTuple

from publicsuffixlist import PublicSuffixList

from skitter.errors import RequestError


class UrlParser(NamedTuple):
    """The two calls that everything here is built on."""

    parse: Callable[[str, str | None], str | None]
    """Serialised URL, resolved against a base if there is one; ``None`` if there is no such URL."""
    join_all: Callable[[str, Sequence[str]], list[str | None]]
    """The same for many references and one base, without their fragments."""


def upa_parser() -> UrlParser:
    """Return the parser on ``upa_url``. Raises ImportError where it is not installed."""
    from upa_url import URL  # noqa: PLC0415 - optional at run time, see load_parser

    known_base = lru_cache(maxsize=64)(URL)
    # A compiled object that outlives its module at exit is reported on stderr as a leak.
    atexit.register(known_base.cache_clear)

    def parse(url: str, base: str | None) -> str | None:
        try:
            parsed = URL.parse(url) if base is None else URL.parse(url, known_base(base))
        except (RuntimeError, TypeError):  # a bad base; a lone surrogate, which no compiled parser takes
            return None
        return None if parsed is None else str(parsed.href)

    def join_all(base: str, references: Sequence[str]) -> list[str | None]:
        try:
            base_url = known_base(base)
            # The constructor is faster than URL.parse, but it raises for a bad reference.
            return [
                href if "#" not in (href := URL(reference, base_url).href) else _without_fragment(href)
                for reference in references
            ]
        except (RuntimeError, TypeError):
            hrefs = [parse(reference, base) for reference in references]
            return [None if href is None else _without_fragment(href) for href in hrefs]

    return UrlParser(parse, join_all)


def ada_parser() -> UrlParser:
    """Return the parser on ``ada_url``. Raises ImportError where it is not installed."""
    from ada_url import URL  # noqa: PLC0415 - optional at run time, see load_parser

    def parse(url: str, base: str | None) -> str | None:
        try:
            return str(URL(url, base=base).href)
        except ValueError:  # also UnicodeEncodeError, for a lone surrogate
            return None

    def join_all(base: str, references: Sequence[str]) -> list[str | None]:
        known_base = parse(base, None)
        if known_base is None:
            return [None for _ in references]
        hrefs = [parse(reference, known_base) for reference in references]
        return [None if href is None else _without_fragment(href) for href in hrefs]

    return UrlParser(parse, join_all)


def load_parser() -> UrlParser:
    """Return the fastest URL parser that is installed."""
    try:
        return upa_parser()
    except ImportError:
        return ada_parser()


_parse, _join_all = load_parser()


def _without_fragment(href: str) -> str:
    return href[: href.index("#")] if "#" in href else href


def normalize(url: str, base: str | None = None) -> str | None:
    """Return the URL as a browser would fetch it, without its fragment, or ``None`` if there is no such URL.

    ``base`` resolves a relative reference. The query keeps its order. WHATWG URL standard, section 4.4.
    """
    href = _parse(url, base)
    return None if href is None else _without_fragment(href)


def join_all(base_url: str, hrefs: Sequence[str]) -> list[str | None]:
    """Resolve raw ``href`` values of one page: normalised URLs in the same order, ``None`` for a bad one.

    Any scheme passes (``mailto:``, ``javascript:``): the scope of the crawl decides what to follow.
    """
    folder, _, page = base_url.partition("?")[0].rpartition("/")
    doubtful = page[:1] in _DOUBTFUL or "\\" in base_url or "#" in base_url
    starts = None if doubtful else _starts_of(folder)
    if starts is None:
        return _join_all(base_url, hrefs)
    root = starts["/"]
    urls: list[str | None] = []
    others: list[int] = []
    for href in hrefs:
        plain = _PLAIN_HREF(href, len(root) - 1 if href.startswith(root) else 0)
        if plain is None:
            others.append(len(urls))
            urls.append(None)
        else:
            urls.append(starts[plain[1]] + plain[2])
    if others:
        for index, url in zip(others, _join_all(base_url, [hrefs[index] for index in others]), strict=True):
            urls[index] = url
    return urls


# Links that need no parser: path and query hold only characters that stand for themselves, no segment is empty
# or begins with a dot, so that to resolve them is to put them behind a part of the base. Most links are like
# this, and cost a third so. (No part can match in two ways, so there is no backtracking to speak of.)
_SEGMENT = "[A-Za-z0-9_~-][A-Za-z0-9_~.-]*+"
_PLAIN_HREF = re.compile(
    rf"(\.\./|/|(?=[A-Za-z0-9_~-]))((?:{_SEGMENT}(?:/{_SEGMENT})*+/?)?(?:\?[A-Za-z0-9_~.&=+-]*+)?)(?:#.*)?",
    re.DOTALL,
).fullmatch


_DOUBTFUL = frozenset(".%\t\r\n")
"""How the last segment of a base may begin if it is no page but a step to another folder."""


@lru_cache(maxsize=4096)
def _starts_of(folder: str) -> dict[str, str] | None:
    """Return what a plain href on the pages of a folder is put behind, by how it begins.

    ``None`` if the folder is none of an http(s) URL.
    """
    folder = normalize(folder + "/") or ""
    if not folder.startswith(("http://", "https://")):
        return None
    path_at = folder.index("/", len("https://"))
    parent = folder[: folder.rindex("/", path_at, -1) + 1] if len(folder) > path_at + 1 else folder
    return {"": folder, "/": folder[: path_at + 1], "../": parent}


def canonical(url: str) -> str:
    """Return the identity of a URL.

    Normalised, query parameters sorted by name and then value as they are spelled, percent-escapes in upper
    case and those of unreserved characters (RFC 3986, 2.3) decoded.

    Raises :class:`~skitter.errors.RequestError` for a URL that does not parse.
    """
    href = normalize(url)
    if href is None:
        raise RequestError(
            f"{url!r} is not a URL that can be fetched",
            remedy="give an absolute URL such as https://example.com/",
        )
    return identity(href) if "?" in href or "%" in href else href


def canonical_all(urls: Sequence[str]) -> list[str]:
    """Return the identities of URLs that are normalised already, without parsing them again."""
    return [identity(url) if "?" in url or "%" in url else url for url in urls]


def identity(href: str) -> str:
    """Return the identity of a normalised URL that has a ``?`` or a ``%``; any other is its own identity."""
    if "%" in href and _STRAY_PERCENT.search(href) is None:
        href = _ESCAPE.sub(_plain_or_upper, href)
    address, mark, query = href.partition("?")
    if "&" in query:
        query = "&".join(sorted(query.split("&"), key=_name_and_value))
    return f"{address}{mark}{query}"


_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")
# Decoding beside a percent sign that begins no escape could give rise to a new escape, so such a URL keeps its
# spelling.
_STRAY_PERCENT = re.compile("%(?![0-9A-Fa-f]{2})")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def _plain_or_upper(escape: re.Match[str]) -> str:
    spelled = escape[0]
    character = chr(int(spelled[1:], 16))
    return character if character in _UNRESERVED else spelled.upper()


def _name_and_value(parameter: str) -> tuple[str, str]:
    name, _, value = parameter.partition("=")
    return name, value


def scheme_of(url: str) -> str:
    """Return the scheme of a normalised URL, without its colon."""
    return url[: url.index(":")]


def host_of(url: str) -> str:
    """Return host, and port if it is not the scheme's own, of a normalised http(s) URL; ``""`` without host."""
    parts = url.split("/", 3)
    if len(parts) < 3 or parts[1]:
        return ""
    host = parts[2]
    if "?" in host:  # a scheme that is not special may have no path
        host = host[: host.index("?")]
    return host[host.rindex("@") + 1 :] if "@" in host else host


@lru_cache(maxsize=65_536)
def registered_domain(host: str) -> str:
    """Return the part of a host that somebody registered, by the Public Suffix List.

    ``news.bbc.co.uk:8080`` gives ``bbc.co.uk``. A port is dropped; an IP address and a name that is itself a
    public suffix come back as they are.
    """
    name = _without_port(host)
    if _is_ip(name):
        return name
    return _suffixes().privatesuffix(name) or name


def is_public_suffix(domain: str) -> bool:
    """Tell whether a name with dots, such as ``co.uk``, is one under which everybody may register."""
    return "." in domain and not _is_ip(domain) and _suffixes().privatesuffix(domain) is None


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() and (":" not in name or name.endswith("]")) else host


def _is_ip(name: str) -> bool:
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


@cache
def _suffixes() -> PublicSuffixList:
    # Reading the list takes some 50 ms, which a crawl that never asks need not spend.
    return PublicSuffixList()
