"""URLs by the WHATWG standard: normalization, identity, and hosts.

Two forms matter. The *normalized* form is the URL that a browser fetches: parsed, joined and serialized, without its
fragment. The *canonical* form is the identity of a URL: normalized URLs that differ only in the order of their query
parameters or in the spelling of their percent-escapes have the same canonical form. Canonical forms are part of the
stored state of a crawl, so any change to them needs a new ``FINGERPRINT_VERSION``.

The parser is ``upa_url``. If it is not installed, ``ada_url`` gives the same results at twice the cost.
"""

from __future__ import annotations

import atexit
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache, lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple

from skitter.errors import RequestError

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList


class UrlParser(ABC):
    """Resolves URLs according to the standard. The constructor raises ImportError if the package is not installed."""

    @abstractmethod
    def parse(self, url: str, base: str | None) -> str | None:
        """Resolve a URL against an optional base and serialize it. Return ``None`` if the URL is invalid."""

    def join_all(self, base: str, references: Sequence[str]) -> list[str | None]:
        """Do the same for many references and one base, and remove the fragments."""
        hrefs = [self.parse(reference, base) for reference in references]
        return [None if href is None else _without_fragment(href) for href in hrefs]


class UpaParser(UrlParser):
    """The parser of ``upa_url``."""

    def __init__(self) -> None:
        from upa_url import URL  # noqa: PLC0415 - optional at run time, see load_parser

        self._url = URL
        self._known_base = lru_cache(maxsize=64)(URL)
        # A compiled object that outlives its module is reported as a leak on stderr at exit.
        atexit.register(self._known_base.cache_clear)

    def parse(self, url: str, base: str | None) -> str | None:
        """See :meth:`UrlParser.parse`."""
        try:
            parsed = self._url.parse(url) if base is None else self._url.parse(url, self._known_base(base))
        except (RuntimeError, TypeError):
            # An invalid base, or a lone surrogate, which no compiled parser accepts.
            return None
        return None if parsed is None else str(parsed.href)

    def join_all(self, base: str, references: Sequence[str]) -> list[str | None]:
        """See :meth:`UrlParser.join_all`."""
        try:
            new, base_url = self._url, self._known_base(base)
            # The constructor is faster than URL.parse, but raises for an invalid reference.
            return [
                href if "#" not in (href := new(reference, base_url).href) else _without_fragment(href)
                for reference in references
            ]
        except (RuntimeError, TypeError):
            return super().join_all(base, references)


class AdaParser(UrlParser):
    """The parser of ``ada_url``."""

    def __init__(self) -> None:
        from ada_url import URL  # noqa: PLC0415 - optional at run time, see load_parser

        self._url = URL

    def parse(self, url: str, base: str | None) -> str | None:
        """See :meth:`UrlParser.parse`."""
        try:
            return str(self._url(url, base=base).href)
        except ValueError:  # includes UnicodeEncodeError for a lone surrogate
            return None


def load_parser() -> UrlParser:
    """Return the fastest URL parser that is installed."""
    try:
        return UpaParser()
    except ImportError:
        return AdaParser()


_parser = load_parser()


def _without_fragment(href: str) -> str:
    return href[: href.index("#")] if "#" in href else href


def with_scheme(text: str) -> str:
    """Return a text such as ``example.com/a`` with the scheme that its author has probably omitted."""
    is_local = re.match(r"(?:localhost|\d+\.\d+\.\d+\.\d+|\[[\da-fA-F:.]+\])(?::\d+)?(?:[/?]|$)", text)
    return f"{'http' if is_local else 'https'}://{text}"


def remedy_without_scheme(text: str) -> str:
    """Return the remedy for a text that is not an absolute http(s) URL: the URL that is probably meant, or an example."""
    is_relative = re.match(r"\s*(?:/(?!/)|[.?#])", text)
    guess = None if "://" in text or is_relative else normalize(with_scheme(text.strip()))
    return f"write {guess or 'it like https://example.com/'}"


def normalize(url: str, base: str | None = None) -> str | None:
    """Return the URL that a browser would fetch, without its fragment, or ``None`` if the URL is invalid.

    ``base`` resolves a relative reference. The query keeps its order. WHATWG URL standard, section 4.4.
    """
    href = _parser.parse(url, base)
    return None if href is None else _without_fragment(href)


class UrlBase:
    """The base URL of a page, prepared for joining its links."""

    __slots__ = ("prefixes", "url")

    def __init__(self, url: str) -> None:
        self.url = url
        path = url.partition("?")[0]
        folder, _, page = path.rpartition("/")
        doubtful = _MAY_BE_DOTS.match(page) is not None or "\\" in url or "#" in url
        starts = None if doubtful else _starts_of(folder)
        self.prefixes: HrefPrefixes | None = None
        """See :func:`absolute_text`; ``None`` if the URL is unusual."""
        if starts is not None:
            scheme, root, parent, folder = starts
            self.prefixes = HrefPrefixes(scheme, root, parent, path, folder)

    def join(self, href: str) -> str | None:
        """Resolve one raw ``href``; see :func:`join_all`."""
        return join_plain(href, self.prefixes) or normalize(href, self.url)

    def join_all(self, hrefs: Sequence[str]) -> list[str | None]:
        """Resolve raw ``href`` values; see :func:`join_all`."""
        prefixes = self.prefixes
        if prefixes is None:
            return _parser.join_all(self.url, hrefs)
        urls = join_all_plain(hrefs, prefixes)
        if None in urls:
            others = [index for index, url in enumerate(urls) if url is None]
            references = [hrefs[index] for index in others]
            # References that begin with a slash have the same result on all pages of a host, so its root is used: it is parsed once.
            base = prefixes.root if all(reference[:1] == "/" for reference in references) else self.url
            for index, url in zip(others, _parser.join_all(base, references), strict=True):
                urls[index] = url
        return urls


@lru_cache(maxsize=64)
def url_base(url: str) -> UrlBase:
    """Return the prepared base URL of a page. Cached, because the callback of a page and the engine both need it."""
    return UrlBase(url)


def resolve(url: str, base: str) -> str | None:
    """Return the absolute form of a URL with its fragment, or ``None`` if the URL is invalid."""
    return _parser.parse(url, base)


def join_all(base_url: str, hrefs: Sequence[str]) -> list[str | None]:
    """Resolve raw ``href`` values of one page. Return normalized URLs in the same order, ``None`` for an invalid one.

    All schemes are accepted (also ``mailto:`` and ``javascript:``): the scope of the crawl decides which URLs to follow.
    """
    return url_base(base_url).join_all(hrefs)


_MAY_BE_DOTS = re.compile(r"[.\t\r\n]|%2e", re.IGNORECASE)
"""Matches the start of a last path segment of a base that may change the folder, such as ``..``."""


class HrefPrefixes(NamedTuple):
    """The prefixes that turn the ``href`` values of a page into absolute URLs.

    ``_link_table.c`` and ``_url_join.c`` read the fields in this order.
    """

    scheme: str
    """For ``//host/path``."""
    root: str
    """Replaces the slash of ``/path``."""
    parent: str
    """Replaces ``../``."""
    page: str
    """For ``?query``."""
    folder: str
    """For all other hrefs without a scheme."""


_START_OF_HREF = re.compile(r"//|/|\.\./|\?|[A-Za-z][A-Za-z0-9+.-]*:").match


def absolute_text(href: str, prefixes: HrefPrefixes) -> str:
    """Return an absolute form of a link by joining texts only: without parsing, and without the fragment. ``href``: not empty.

    The text leads to the URL of the link, except for some links with whitespace, control characters or backslashes, and for
    ``http:x``. A text that is a normalized URL always is the URL of the link.
    """
    text = href.partition("#")[0]
    start = _START_OF_HREF(text)
    if start is None:
        return prefixes.folder + text
    match start[0]:
        case "//":
            return prefixes.scheme + text
        case "/":
            return prefixes.root + text[1:]
        case "../":
            return prefixes.parent + text[3:]
        case "?":
            return prefixes.page + text
    return text


@lru_cache(maxsize=4096)
def _starts_of(folder: str) -> tuple[str, str, str, str] | None:
    """Return the prefixes that all pages of a folder share: scheme, root, parent and folder of :class:`HrefPrefixes`.

    Returns ``None`` if the folder does not belong to an http(s) URL.
    """
    folder = normalize(folder + "/") or ""
    if not folder.startswith(("http://", "https://")):
        return None
    path_at = folder.index("/", len("https://"))
    parent = folder[: folder.rindex("/", path_at, -1) + 1] if len(folder) > path_at + 1 else folder
    return folder[: folder.index("/")], folder[: path_at + 1], parent, folder


# A plain link needs no parser: no segment of its path is empty or starts with a dot, and path and query contain only
# characters that are never escaped. Such a link is resolved by appending it to a prefix. Most links are plain. (WHATWG
# URL standard, 1.3: the percent-encode sets. Each part can match in one way only, so the pattern hardly backtracks.)
_SEGMENT = "[A-Za-z0-9_~!$&()*+,;=@-][A-Za-z0-9_~!$&()*+,;=@.-]*+"
_PLAIN_REST = rf"((?:{_SEGMENT}(?:/{_SEGMENT})*+/?)?(?:\?[A-Za-z0-9_~!$&()*+,;=@./?:%-]*+)?)(?:#.*)?"
_PLAIN_HREF = re.compile(rf"(\.\./|/|(?=[A-Za-z0-9_~!$&()*+,;=@-])){_PLAIN_REST}", re.DOTALL).fullmatch


def join_plain_in_python(href: str, prefixes: HrefPrefixes | None) -> str | None:
    """Return the URL of a plain link; ``None`` for any other link, and on a page whose URL is unusual (without ``prefixes``)."""
    if prefixes is None:
        return None
    root = prefixes.root
    is_absolute = href.startswith(root)
    plain = _PLAIN_HREF(href, len(root) - 1 if is_absolute else 0)
    if plain is None:
        return None
    if is_absolute and plain.end(2) == len(href):
        return href  # without a copy, because the links of a sitemap may take 50 MB
    match plain[1]:
        case "/":
            return root + plain[2]
        case "../":
            return prefixes.parent + plain[2]
    return prefixes.folder + plain[2]


def join_all_plain_in_python(hrefs: Sequence[str], prefixes: HrefPrefixes) -> list[str | None]:
    """Return the URLs of links, with ``None`` for each link that is not plain."""
    return [join_plain_in_python(href, prefixes) for href in hrefs]


try:
    from skitter.web._url_join import join_all_plain
    from skitter.web._url_join import join_plain as join_plain  # noqa: PLC0414 - exported
except ImportError:
    join_plain, join_all_plain = join_plain_in_python, join_all_plain_in_python


def canonical(url: str) -> str:
    """Return the identity of a URL.

    The result is the normalized URL with its query parameters sorted by name and then by value as they are spelled,
    percent-escapes in upper case, and percent-escapes of unreserved characters (RFC 3986, 2.3) decoded.

    Raises :class:`~skitter.errors.RequestError` for an invalid URL.
    """
    href = normalize(url)
    if href is None:
        raise RequestError(
            f"invalid URL: {url!r}",
            remedy="give an absolute URL such as https://example.com/",
            field="url",
        )
    return identity(href) if "?" in href or "%" in href else href


def canonical_all(urls: Sequence[str]) -> list[str]:
    """Return the identities of normalized URLs, without parsing them again."""
    return [identity(url) if "?" in url or "%" in url else url for url in urls]


def identity(href: str) -> str:
    """Return the identity of a normalized URL that contains ``?`` or ``%``. Any other normalized URL is its own identity."""
    if "%" in href and _STRAY_PERCENT.search(href) is None:
        href = _ESCAPE.sub(_plain_or_upper, href)
    address, mark, query = href.partition("?")
    if "&" in query:
        query = "&".join(sorted(query.split("&"), key=lambda parameter: parameter.partition("=")[::2]))
    return f"{address}{mark}{query}"


_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")
# If a percent sign does not start an escape, decoding a neighboring escape could create a new escape, so such a URL keeps
# its spelling.
_STRAY_PERCENT = re.compile("%(?![0-9A-Fa-f]{2})")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def _plain_or_upper(escape: re.Match[str]) -> str:
    spelled = escape[0]
    character = chr(int(spelled[1:], 16))
    return character if character in _UNRESERVED else spelled.upper()


def scheme_of(url: str) -> str:
    """Return the scheme of a normalized URL, without the colon."""
    return url[: url.index(":")]


def host_of(url: str) -> str:
    """Return the host of a normalized http(s) URL, with the port unless it is the default; ``""`` without a host."""
    parts = url.split("/", 3)
    if len(parts) < 3 or parts[1]:
        return ""
    host = parts[2]
    if "?" in host:  # a URL with a non-special scheme may have no path
        host = host[: host.index("?")]
    return host[host.rindex("@") + 1 :] if "@" in host else host


def split_userinfo(url: str) -> tuple[str, str]:
    """Return a normalized URL without its user name and password, and the text with both (``user:password``)."""
    scheme, separator, rest = url.partition("://")
    path_at = min(at for mark in "/?#" if (at := f"{rest}{mark}".find(mark)) >= 0)
    userinfo, at_sign, host = rest[:path_at].rpartition("@")
    return (f"{scheme}{separator}{host}{rest[path_at:]}", userinfo) if at_sign else (url, "")


def is_same_origin(first: str, second: str) -> bool:
    """Return whether two normalized http(s) URLs have the same scheme, host and port (RFC 6454, 4)."""
    return host_of(first) == host_of(second) and scheme_of(first) == scheme_of(second)


def may_carry_cookies(source: str, target: str) -> bool:
    """Return whether cookies that were given for one normalized http(s) URL may be sent to another one.

    The host and the port have to be the same. A step from http to https is allowed, the opposite one is not.
    """
    return host_of(source) == host_of(target) and scheme_of(target) in {scheme_of(source), "https"}


_END_OF_AUTHORITY = re.compile(r"[/?#]")


def origin_of(url: str) -> str:
    """Return the scheme, host and port of an absolute URL, such as ``http://example.com:8080``."""
    origin = url[: url.find("/", 8)]
    if "?" in origin or "@" in origin or "#" in origin or len(origin) + 1 >= len(url):
        scheme, _, rest = url.partition("://")
        authority = _END_OF_AUTHORITY.split(rest, maxsplit=1)[0]
        return f"{scheme}://{authority.rpartition('@')[2]}"
    return origin


@lru_cache(maxsize=65_536)
def registered_domain(host: str) -> str:
    """Return the registered domain of a host by the Public Suffix List.

    ``news.bbc.co.uk:8080`` gives ``bbc.co.uk``. The port is dropped. IP addresses and names that are public suffixes
    themselves are returned unchanged.
    """
    name = without_port(host)
    if is_ip(name):
        return name
    return _suffixes().privatesuffix(name) or name


def is_public_suffix(domain: str) -> bool:
    """Return whether a name with dots, such as ``co.uk``, is a public suffix, under which anyone can register names."""
    return "." in domain and not is_ip(domain) and _suffixes().privatesuffix(domain) is None


def ascii_domain(domain: str) -> str:
    """Return a domain, or a glob of domains, as normalized URLs spell it: ``münchen.example`` as ``xn--mnchen-3ya.example``.

    A label that is invalid or contains a wildcard is returned unchanged.
    """
    return domain if domain.isascii() else ".".join(map(_ascii_label, domain.split(".")))


def _ascii_label(label: str) -> str:
    url = None if label.isascii() or re.search(r"[*?[]", label) else normalize(f"http://{label}")
    return label if url is None else host_of(url)


def without_port(host: str) -> str:
    """Return a host of :func:`host_of` without its port."""
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() and (":" not in name or name.endswith("]")) else host


@lru_cache(maxsize=1024)  # a name takes 2 µs, and each request to a site with cookies asks for it
def is_ip(name: str) -> bool:
    """Return whether the name of a host is an IP address."""
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


@cache
def _suffixes() -> PublicSuffixList:
    # Loading the list takes about 50 ms, so it is loaded on first use.
    from publicsuffixlist import PublicSuffixList  # noqa: PLC0415 - see the comment above

    return PublicSuffixList()
