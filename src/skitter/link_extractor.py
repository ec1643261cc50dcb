"""Selection of links: by pattern, domain and extension, by region and text, and by the rules of a spider.

Names and arguments are the same as in Scrapy. ``response.follow_all(allow=...)`` selects links for one call, a
:class:`LinkExtractor` describes a selection that several callbacks share, and ``rules`` of a spider follow links without
a callback.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from skitter.errors import SpiderError, UsageError
from skitter.links import Links
from skitter.request import Request
from skitter.scope import Scope
from skitter.spider import RULES
from skitter.web.urls import canonical_all, host_of, join_all

if TYPE_CHECKING:
    from skitter.html.selector import Selector
    from skitter.response import Response
    from skitter.spider import Spider

Patterns = str | re.Pattern[str] | Iterable[str | re.Pattern[str]]
"""One regular expression or several."""
Words = str | Iterable[str]
"""One word or several."""

IGNORED_EXTENSIONS = frozenset(
    {
        # archives
        "7z", "7zip", "bz2", "gz", "rar", "tar", "tar.gz", "xz", "zip", "zst",
        # images
        "ai", "avif", "bmp", "cdr", "cr2", "dng", "drw", "dxf", "eps", "gif", "heic", "ico", "jpe", "jpeg", "jpg", "mng", "nef",
        "pct", "pic", "png", "ps", "psp", "raw", "svg", "tif", "tiff", "webp",
        # audio and video
        "3gp", "aac", "aif", "aiff", "asf", "asx", "au", "avi", "flac", "flv", "m4a", "m4v", "mid", "mkv", "mov", "mp3", "mp4",
        "mpg", "oga", "ogg", "ogv", "qt", "ra", "rm", "swf", "vob", "wav", "webm", "wma", "wmv",
        # documents
        "doc", "docm", "docx", "dot", "dotx", "key", "numbers", "odb", "odf", "odg", "odp", "ods", "odt", "pages", "pdf", "pot",
        "potm", "potx", "pps", "ppsm", "ppsx", "ppt", "pptm", "pptx", "rtf", "xls", "xlsb", "xlsm", "xlsx", "xlt", "xltm", "xltx",
        # programs, styles, fonts and others
        "apk", "bin", "css", "deb", "dll", "dmg", "eot", "exe", "iso", "jar", "js", "msi", "msu", "otf", "pkg", "rpm", "rss",
        "sqlite", "ttf", "war", "wasm", "woff", "woff2",
    }
)  # fmt: skip
"""Extensions of URLs that a :class:`LinkExtractor` skips by default."""

_ANY_LENGTH = 1 << 30


class LinkFilter:
    """Admits URLs by regular expressions, domains and extensions.

    A URL is admitted if it matches one of ``allow`` (empty: all) and none of ``deny``, if its host is one of ``domains`` or
    a subdomain (empty: all) and not one of ``deny_domains``, and if the extension of its path is one of ``extensions``
    (empty: all) and not one of ``deny_extensions``. Extensions are written without the dot; ``""`` is the extension of a
    path without a dot. Raises :class:`~skitter.errors.SettingsError` for an invalid expression or domain.
    """

    def __init__(
        self,
        *,
        allow: Patterns = (),
        deny: Patterns = (),
        domains: Words = (),
        deny_domains: Words = (),
        extensions: Words = (),
        deny_extensions: Words = (),
    ) -> None:
        allowed: Any = _several(allow)  # compiled expressions too
        denied: Any = _several(deny)
        self._scope = Scope(
            allow=allowed, deny=denied, allowed_domains=_several(domains), max_url_length=_ANY_LENGTH
        )
        excluded = _several(deny_domains)
        self._excluded = Scope(allowed_domains=excluded) if excluded else None
        self._extensions = _extensions(extensions)
        self._ignored = _extensions(deny_extensions)

    def admits(self, url: str) -> bool:
        """Return whether a normalized http(s) URL is admitted."""
        host = host_of(url)
        if self._scope.refuse(url, host) or (self._excluded is not None and self._excluded.admits_host(host)):
            return False
        if not self._extensions and not self._ignored:
            return True
        name = url.partition("?")[0].split("/", 3)[-1].rpartition("/")[2].lower()
        parts = name.split(".")
        found = {".".join(parts[start:]) for start in range(1, len(parts))} or {""}  # "tar.gz" and "gz"
        return not (self._extensions and found.isdisjoint(self._extensions)) and found.isdisjoint(
            self._ignored
        )

    def select(self, base_url: str, hrefs: Sequence[str]) -> list[str]:
        """Return the raw links of a page with admitted URLs, in order."""
        urls = join_all(base_url, hrefs)
        return [href for href, url in zip(hrefs, urls, strict=True) if url is not None and self.admits(url)]


def select_hrefs(
    base_url: str,
    hrefs: Sequence[str],
    *,
    allow: Patterns = (),
    deny: Patterns = (),
    domains: Words = (),
    extensions: Words = (),
) -> list[str]:
    """Return the raw links of a page that a :class:`LinkFilter` with these arguments admits."""
    arguments = {"allow": allow, "deny": deny, "domains": domains, "extensions": extensions}
    return _filter(**{name: _several(value) for name, value in arguments.items()}).select(base_url, hrefs)


_filter = lru_cache(maxsize=256)(LinkFilter)


def _several(value: Any) -> tuple[Any, ...]:
    return (value,) if isinstance(value, (str, re.Pattern)) else tuple(value or ())


def _extensions(words: Words) -> frozenset[str]:
    return frozenset(extension.lower().removeprefix(".") for extension in _several(words))


class Link(msgspec.Struct):
    """A link of a page. ``process_links`` of a :class:`Rule` may change it."""

    url: str
    """Absolute URL, normalized and without its fragment."""
    text: str = ""
    """Text inside the element."""
    fragment: str = ""
    nofollow: bool = False
    """Whether the element has ``rel=nofollow``."""

    def __hash__(self) -> int:
        return hash(msgspec.structs.astuple(self))


@dataclass(frozen=True)
class LinkExtractor:
    """Selects links of a page. The arguments are the same as for Scrapy's ``LinkExtractor``.

    ``allow``, ``deny``, ``allow_domains``, ``deny_domains``, ``deny_extensions``
        See :class:`LinkFilter`. ``deny_extensions`` is :data:`IGNORED_EXTENSIONS` by default.
    ``restrict_xpaths``, ``restrict_css``
        Queries for the parts of the page that are searched. Default: the whole page.
    ``restrict_text``
        Regular expressions. The text of the link has to match one of them.
    ``tags``, ``attrs``
        The elements and their attributes. Default: ``href`` of ``a`` and ``area``.
    ``canonicalize``
        Return URLs in their canonical form; see :func:`skitter.web.urls.canonical`.
    ``unique``
        Return links with the same canonical URL once.
    ``process_value``
        Function that takes the value of each attribute and returns the link in it, or ``None`` to skip it.
    ``strip``
        Remove whitespace around values before ``process_value``.
    """

    allow: Patterns = ()
    deny: Patterns = ()
    allow_domains: Words = ()
    deny_domains: Words = ()
    restrict_xpaths: Words = ()
    tags: Words = ("a", "area")
    attrs: Words = ("href",)
    canonicalize: bool = False
    unique: bool = True
    process_value: Callable[[str], str | None] | None = None
    deny_extensions: Words | None = None
    restrict_css: Words = ()
    strip: bool = True
    restrict_text: Patterns = ()
    _: KW_ONLY
    _filter: LinkFilter = field(init=False, repr=False, compare=False)
    _text_patterns: tuple[re.Pattern[str], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ignored = IGNORED_EXTENSIONS if self.deny_extensions is None else self.deny_extensions
        link_filter = LinkFilter(
            allow=self.allow,
            deny=self.deny,
            domains=self.allow_domains,
            deny_domains=self.deny_domains,
            deny_extensions=ignored,
        )
        object.__setattr__(self, "_filter", link_filter)
        try:
            patterns = tuple(re.compile(pattern) for pattern in _several(self.restrict_text))
        except re.error as error:
            raise UsageError(
                f"invalid regular expression in restrict_text: {error}",
                remedy="correct it",
                field="restrict_text",
            ) from error
        object.__setattr__(self, "_text_patterns", patterns)

    def extract_links(self, response: Response) -> list[Link]:
        """Return the links of a page, in order. Content other than HTML and XML has no links.

        Raises :class:`~skitter.errors.QueryError` for an invalid query.
        """
        return list(self._links(response))

    def urls(self, response: Response) -> list[str]:
        """Return the URLs of :meth:`extract_links`. With a single attribute and no ``restrict_text``, this is much faster."""
        attributes = _several(self.attrs)
        if self._text_patterns or len(attributes) != 1:
            return [link.url for link in self._links(response)]
        query = ", ".join(f"{tag}::attr({attributes[0]})" for tag in _several(self.tags))
        values = [value for region in self._regions(response) for value in region.css(query).getall()]
        return self._admitted(response, self._processed(values), lambda url, _: url)

    def matches(self, url: str) -> bool:
        """Return whether a URL passes the filters by pattern, domain and extension."""
        return self._filter.admits(url)

    def _links(self, response: Response) -> list[Link]:
        elements, values = [], []
        patterns = self._text_patterns
        for region in self._regions(response):
            for element in region.css(", ".join(_several(self.tags))):
                attributes = element.attrib
                text = "".join(element.css("::text").getall())
                if patterns and not any(pattern.search(text) for pattern in patterns):
                    continue
                for name in _several(self.attrs):
                    if name in attributes:
                        elements.append((text, "nofollow" in attributes.get("rel", "").lower().split()))
                        values.append(attributes[name])

        def link(url: str, index: int) -> Link:
            text, nofollow = elements[index]
            return Link(url, text, (values[index].partition("#")[2]).strip(), nofollow)

        return self._admitted(response, self._processed(values), link)

    def _regions(self, response: Response) -> list[Selector]:
        if not response.is_html and not response.is_xml:
            return []
        if not self.restrict_xpaths and not self.restrict_css:
            return [response.selector]
        regions = [region for query in _several(self.restrict_xpaths) for region in response.xpath(query)]
        return regions + [region for query in _several(self.restrict_css) for region in response.css(query)]

    def _processed(self, values: list[str]) -> list[str | None]:
        stripped = [value.strip() for value in values] if self.strip else values
        return list(map(self.process_value, stripped)) if self.process_value else list(stripped)

    def _admitted(
        self, response: Response, values: list[str | None], make: Callable[[str, int], Any]
    ) -> list[Any]:
        places = [place for place, value in enumerate(values) if value is not None]
        hrefs = response.encode_queries([value for value in values if value is not None])
        urls = join_all(response.base_url, hrefs)
        found: dict[str, Any] = {}
        several: list[Any] = []
        for place, url in zip(places, urls, strict=True):
            if url is None or not url.startswith(("http://", "https://")) or not self._filter.admits(url):
                continue
            key = canonical_all([url])[0]
            if self.unique and key in found:
                continue
            found[key] = made = make(key if self.canonicalize else url, place)
            several.append(made)
        return several


@dataclass(frozen=True)
class Rule:
    """A rule of a spider: which links to follow, and what to do with their pages. The arguments are the same as in Scrapy.

    ``link_extractor``
        Selects the links. Default: all links.
    ``callback``
        Name of the spider method for the pages. ``None``: no items, only links.
    ``cb_kwargs``
        Keyword arguments for the callback.
    ``follow``
        Whether the rules also apply to these pages. Default: only without a callback.
    ``process_links``
        Function, or name of a spider method, that takes a list of :class:`Link` and returns the links to follow.
    ``process_request``
        Function, or name of a spider method, that takes a request and the response with its link, and returns a request or
        ``None`` to leave it out. It creates a request for each link, so a rule without it is faster.
    ``errback``
        Name of the spider method for failed requests.
    ``request_fields``
        Further fields of the requests, such as ``priority`` and ``queue``.

    A link belongs to the first rule that selects it.
    """

    link_extractor: LinkExtractor = LinkExtractor()
    callback: str | Callable[..., Any] | None = None
    cb_kwargs: Mapping[str, Any] = field(default_factory=dict)
    follow: bool | None = None
    process_links: str | Callable[..., Any] | None = None
    process_request: str | Callable[..., Any] | None = None
    errback: str | Callable[..., Any] | None = None
    request_fields: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.link_extractor, LinkExtractor):
            raise UsageError(
                f"link_extractor of a rule is not a LinkExtractor: {self.link_extractor!r:.80}",
                remedy="write Rule(LinkExtractor(allow=...), ...)",
                field="link_extractor",
            )
        if self.callback is None and self.follow is False:
            raise UsageError(
                "a rule without a callback does not follow links",
                remedy="give it a callback, or remove follow=False",
                field="follow",
            )

    @property
    def fields(self) -> dict[str, Any]:
        """Fields of the requests. The callback is stored by name, after the prefix :data:`RULES` if the rules apply again."""
        names = Request("", self.callback, errback=self.errback)
        follows = self.callback is None if self.follow is None else self.follow
        stored = f"{RULES}{names.callback or ''}" if follows else names.callback
        fields = {"callback": stored, "errback": names.errback, "cb_kwargs": dict(self.cb_kwargs)}
        return {name: value for name, value in fields.items() if value} | dict(self.request_fields)


def follow_rules(spider: Spider, response: Response) -> Iterator[Links | Request]:
    """Yield the links of a page that the rules of a spider select."""
    seen: set[str] = set()
    for rule in spider.rules:
        if rule.process_links is None:
            urls = rule.link_extractor.urls(response)
        else:
            chosen = _method(spider, rule.process_links)(rule.link_extractor.extract_links(response))
            urls = [link.url for link in chosen or ()]
        new = [url for url in urls if url not in seen]
        seen.update(new)
        links = Links(response.url, new, rule.fields)
        if rule.process_request is None:
            if new:
                yield links
            continue
        process = _method(spider, rule.process_request)
        yield from (request for link in links if (request := process(link, response)) is not None)


def _method(spider: Spider, declared: str | Callable[..., Any]) -> Callable[..., Any]:
    if not isinstance(declared, str):
        return declared
    method: Callable[..., Any] | None = getattr(spider, declared, None)
    if method is None:
        raise SpiderError(
            f"spider {spider.name!r} has no method {declared!r}, which a rule names",
            remedy="define the method, or correct the rule",
            field="rules",
        )
    return method
