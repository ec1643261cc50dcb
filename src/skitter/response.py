"""Response: the response to a request, whose parts are decoded and parsed on first use."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from multidict import CIMultiDict, CIMultiDictProxy

from skitter.directives import Directives, RobotsDirectives, linked_canonical, tdm_of
from skitter.errors import PageTooComplex, RequestError, UsageError, did_you_mean
from skitter.foreign_names import CRAWLEE_ARGUMENTS
from skitter.html.limits import (
    DEFAULT_MEMORY,
    LENGTH_OF_PLAIN,
    TakesLong,
    check_json,
    has_few_plain_tags,
    has_few_tags,
)
from skitter.html.selector import (
    ElementSelector,
    Selector,
    SelectorList,
    from_parsel,
    is_parsel,
    parsel_backed_selector,
)
from skitter.links import Links
from skitter.request import ATTEMPT_FIELDS, Request, known_codec, name_of_callback
from skitter.web.encoding import decode, decode_strictly, detect, detect_json, encode_queries
from skitter.web.headers import (
    Headers,
    MediaType,
    find_header,
    looks_like_html,
    looks_like_text,
    media_type,
    parse_headers,
    parse_refresh,
    url_in_header,
)
from skitter.web.urls import UrlBase, join_plain, normalize, resolve, url_base

try:
    from skitter.html._tags import has_tag
except ImportError:
    has_tag = None  # type: ignore[assignment]

if TYPE_CHECKING:
    import parsel

    from skitter.content.extraction import ContentFormat, MainContent
    from skitter.link_extractor import Patterns, Words
    from skitter.web.feeds import FeedEntry
    from skitter.web.sitemap import SitemapEntry

_BASE_TAG = re.compile("<base", re.IGNORECASE).search
_MAX_BASES = 100
"""Maximum number of ``<base>`` elements of a page that are considered, because each one in an SVG image takes up to 1 ms."""
_MAX_BASE = 8192
"""Maximum characters of a base. Each link is joined with the base: 45,000 links and a base of 400 KB would be 18 GB."""

# Queries that one compiled call can answer, and the attribute that they ask for.
_LINK_QUERIES = (
    {tag: (tag, "href") for tag in ("a", "area", "link")}
    | {f"{tag}[href]": (tag, "href") for tag in ("a", "area", "link")}
    | {tag: (tag, "src") for tag in ("iframe", "img", "script", "source", "video")}
)


HTTP_TRACE = "http_trace"
"""Key of ``meta`` for the times of a transfer, if the setting ``http_trace`` is on."""
_COPIED = ("url", "status", "body", "request", "latency", "ip", "protocol", "moved_to", "captured", "page")
"""Arguments of the constructor that are also attributes, with the same value."""
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_REQUEST_FIELDS = frozenset(Request.__struct_fields__) - {"url"} - ATTEMPT_FIELDS
_FOLLOW_ALL_ARGUMENTS = frozenset({"links", "css", "xpath", "allow", "deny", "domains", "extensions"})


class OpenPage(Protocol):
    """A page in a browser that is open for a callback."""

    @property
    def failure(self) -> Exception | None:
        """Why the page was closed before the end of the callback; ``None`` if it was not."""

    async def close(self) -> None:
        """Close the page. Only the first call has an effect."""


class Response:
    """The response to one request.

    ``url``
        URL of the request. Redirects are separate requests, so this is the URL that returned the body.
    ``status``
        HTTP status code. An error status is a response too.
    ``headers``
        Read-only headers with case-insensitive names. Pass a mapping, or the received bytes with or without status line.
    ``body``
        The body as bytes, with its Content-Encoding removed.
    ``request``
        The request that was sent.
    ``latency``
        Seconds from sending the request to the first byte of the response; 0.0 if the fetcher does not measure it.
    ``ip``, ``protocol``
        IP address of the server, and protocol (``http/1.1`` or ``h2``); empty if unknown.
    ``moved_to``
        Request that replaces this page, if the page changed its URL in a browser by script, by meta refresh or by an action.
        The worker queues it like a redirect. ``None`` for every other response.
    ``page``
        The open page in the browser, as an object of Playwright, if the request asks for it with ``keep_page``. The engine
        closes it when the callback has ended. Otherwise ``None``.
    ``captured``
        Results of the actions ``evaluate``, ``screenshot`` and ``pdf``, by their names. Pictures are bytes, or with the
        setting ``capture_dir`` the names of their files.
    ``encoding``
        Character encoding of ``text`` and :meth:`json`. Default: that of the request, or else detected from the body.

    Raises :class:`~skitter.errors.UsageError` for a body that is text, and for an unknown encoding.
    """

    __slots__ = (
        "_base", "_callback", "_callback_name", "_content_type", "_encoding", "_given_encoding", "_headers", "_media_type",
        "_parsed_headers", "_refusal", "_selector", "_text", "body", "captured", "ip", "is_archived", "is_truncated", "latency",
        "max_memory", "moved_to", "open_page", "page", "protocol", "request", "status", "url", "wire_body",
    )  # fmt: skip

    def __init__(
        self,
        url: str,
        status: int = 200,
        *,
        headers: Mapping[str, str] | bytes = b"",
        body: bytes = b"",
        request: Request | None = None,
        latency: float = 0.0,
        ip: str = "",
        protocol: str = "",
        encoding: str | None = None,
        moved_to: Request | None = None,
        captured: Mapping[str, Any] = _NOTHING,
        page: Any = None,
    ) -> None:
        given: Any = body
        if isinstance(given, str):
            raise UsageError(
                "the body of a response must be bytes, not str",
                remedy="write body=text.encode()",
                field="body",
            )
        self.url = url
        self.status = status
        self.body = body
        self.request = request
        self.latency = latency
        self.ip = ip
        self.protocol = protocol
        self.is_truncated = False
        """Whether the body is only the start of what the server sent; see the setting ``truncate_body``."""
        self.is_archived = False
        """Whether it was read from an archive, so that another attempt would receive the same response."""
        self.max_memory = DEFAULT_MEMORY
        """Maximum memory of the parsed page, in bytes: the setting ``max_page_memory``."""
        self.moved_to = moved_to
        self.captured = captured
        self.page = page
        self.open_page: OpenPage | None = None
        """Owner of ``page``, for the engine."""
        self.wire_body: bytes | None = None
        """The body as received, if ``body`` differs because the body was compressed or a hook has replaced it."""
        self._headers = headers
        self._parsed_headers: Headers | None = None
        if encoding is not None:
            encoding = known_codec(encoding)
        elif request is not None:
            encoding = request.encoding
        self._given_encoding = self._encoding = encoding
        self._media_type: MediaType | None = None
        self._content_type = ""
        """The header, which is known together with ``_media_type``."""
        self._text: str | None = None
        self._selector: Selector | None = None
        self._base: UrlBase | None = None
        self._callback: Any = None
        """The callback of the last followed link, and its name."""
        self._callback_name = ""
        self._refusal: tuple[str, str, str] | None = None
        """Message, remedy and field of the error of a page that cannot be parsed."""

    def replace(self, **changes: Any) -> Response:
        """Return a copy with some constructor arguments changed. The copy shares the body.

        A copy with another body keeps an encoding that was given to the constructor, but not a detected one.
        """
        fields: dict[str, Any] = {name: getattr(self, name) for name in _COPIED}
        fields |= {"headers": self._headers, "encoding": self._given_encoding}
        copy = Response(**(fields | changes))
        copy.open_page = self.open_page
        if "body" not in changes and copy._encoding is None:
            copy._encoding = self._encoding
        copy.wire_body = self.body if "body" in changes and self.wire_body is None else self.wire_body
        copy.max_memory = self.max_memory
        copy.is_truncated, copy.is_archived = self.is_truncated, self.is_archived
        return copy

    # What the request brought along

    @property
    def meta(self) -> dict[str, Any]:
        """``meta`` of the request."""
        return {} if self.request is None else self.request.meta

    @property
    def cb_kwargs(self) -> dict[str, Any]:
        """``cb_kwargs`` of the request."""
        return {} if self.request is None else self.request.cb_kwargs

    @property
    def depth(self) -> int:
        """Number of links from a start URL to this page."""
        return 0 if self.request is None else self.request.depth

    # Status and headers

    @property
    def ok(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300

    @property
    def headers(self) -> Headers:
        """All headers."""
        parsed = self._parsed_headers
        if parsed is None:
            headers = self._headers
            if isinstance(headers, bytes):
                parsed = parse_headers(headers)
            elif isinstance(headers, CIMultiDictProxy):
                parsed = headers
            else:
                parsed = CIMultiDictProxy(CIMultiDict(headers))
            self._parsed_headers = parsed
        return parsed

    @property
    def raw_headers(self) -> bytes:
        """The status line and the headers as received; empty if the fetcher does not keep them."""
        return self._headers if isinstance(self._headers, bytes) else b""

    def header(self, name: str, default: str = "") -> str:
        """Return the first value of a header, without parsing the others."""
        if self._parsed_headers is None and isinstance(self._headers, bytes):
            value = find_header(self._headers, name)
            return default if value is None else value
        return self.headers.get(name, default)

    @property
    def content_type(self) -> str:
        """Media type in lower case without parameters, such as ``text/html``; empty if the server sent none."""
        return (self._media_type or self._find_media_type()).name

    def _find_media_type(self) -> MediaType:
        self._content_type = self.header("content-type")
        found = self._media_type = media_type(self._content_type)
        return found

    @property
    def is_html(self) -> bool:
        """Whether the page is HTML or XHTML, by its media type or, without one, by the start of the body."""
        found = self._media_type or self._find_media_type()
        return looks_like_html(self.body) if found.is_unknown else found.is_html

    @property
    def is_xml(self) -> bool:
        """Whether the page is XML other than XHTML."""
        return (self._media_type or self._find_media_type()).is_xml

    @property
    def is_json(self) -> bool:
        """Whether the body is JSON, by its media type."""
        return (self._media_type or self._find_media_type()).is_json

    @property
    def is_text(self) -> bool:
        """Whether the body can be read as ``text``."""
        found = self._media_type or self._find_media_type()
        return looks_like_text(self.body) if found.is_unknown else found.is_text

    # The body

    @property
    def encoding(self) -> str:
        """Name of the Python codec that decodes the body (see :mod:`skitter.web.encoding`).

        You can set it for a page that declares a wrong encoding: ``response.encoding = "gbk"``. Raises
        :class:`~skitter.errors.UsageError` for an unknown name.
        """
        if self._encoding is None:
            found = self._media_type or self._find_media_type()
            find = detect_json if found.is_json else detect
            self._encoding = find(self.body, self._content_type)
        return self._encoding

    @encoding.setter
    def encoding(self, name: str) -> None:
        self._given_encoding = self._encoding = known_codec(name)
        self._text = self._selector = self._base = self._refusal = None

    @property
    def text(self) -> str:
        """The body as text. Undecodable bytes become U+FFFD.

        Raises :class:`~skitter.errors.UsageError` for images and other binary content.
        """
        if self._text is None:
            if not self.is_text:
                raise UsageError(
                    f"{self.url} is not text but {self.content_type or 'binary data'}",
                    remedy="test response.is_text first, or read response.body",
                )
            self._text = decode(self.body, self.encoding)
        return self._text

    def json(self) -> Any:
        """Return the body parsed as JSON.

        The body is UTF-8, UTF-16 or UTF-32, with or without a byte order mark, whatever charset the server names (RFC
        8259, 8.1 and 11). The charset applies only to a body that is invalid in these encodings. Raises ValueError for
        JSON that is invalid or nested too deeply, and :class:`~skitter.errors.PageTooComplex` if the values take more than
        twice the setting ``max_page_memory``.
        """
        check_json(self.body, self.max_memory)
        encoding = self._given_encoding
        if encoding is None:
            try:
                return msgspec.json.decode(self.body)
            except (msgspec.DecodeError, UnicodeDecodeError):
                pass  # real-world JSON contains NaN, byte order marks and lone surrogates
            except RecursionError:
                raise self._nested_too_deeply() from None
            encoding = detect_json(self.body, self.header("content-type"))
        text = decode(self.body, encoding)
        # The strings in the values are copies.
        check_json(self.body, self.max_memory, 2 * sys.getsizeof(text))
        import json  # noqa: PLC0415 - few pages have JSON that msgspec rejects

        try:
            return json.loads(text)
        except RecursionError:
            raise self._nested_too_deeply() from None
        except ValueError as error:
            kind = self.header("content-type") or "without a Content-Type"
            error.add_note(f"the body of {self.url} is not JSON ({kind}): {text[:60]!r}")
            raise

    def _nested_too_deeply(self) -> ValueError:
        return ValueError(f"the JSON of {self.url} is nested too deeply")

    @property
    def selector(self) -> Selector:
        """The parsed page. XML and JSON are parsed by their media types, any other text as HTML.

        Raises :class:`~skitter.errors.UsageError` for binary content, and :class:`~skitter.errors.PageTooComplex` if the
        parsed page takes more than the setting ``max_page_memory``.
        """
        if self._selector is None:
            if self._refusal is not None:
                message, remedy, field = self._refusal
                raise PageTooComplex(message, remedy=remedy, field=field)
            text = self.text
            if self.is_xml:
                self._selector = parsel_backed_selector(text, "xml", self.max_memory)
            elif self.is_json:
                check_json(self.body, self.max_memory)
                try:
                    self._selector = parsel_backed_selector(text, "json")
                except RecursionError:
                    raise self._nested_too_deeply() from None
            else:
                is_safe = self._encoding == "utf-8" and has_few_tags(self.body)
                memory = None if is_safe else self.max_memory
                self._selector = Selector(text, base_url=self.url, max_memory=memory)
        return self._selector

    def prepare(self) -> int:
        """Decode and parse an HTML or XML page before its callback. Call this in a thread, because large pages take long.

        Return the memory that the page takes, in bytes; ``max_memory`` if it is unknown. The error of a page that exceeds
        a limit is raised when the page is used.
        """
        if not self.is_html and not self.is_xml:
            return 0
        try:
            memory = self.selector.memory
        except PageTooComplex as refusal:
            # Storing the error itself would keep the page alive through its traceback.
            self._refusal = str(refusal), refusal.remedy, refusal.field
            return 0
        return self.max_memory if memory is None else memory

    def prepare_plain(self) -> bool:
        """Decode and parse a large page before its callback, if it has few enough tags to need no thread.

        Return ``False`` for any other page. Simple pages are encoded in UTF-8 and have few tags, see
        :func:`~skitter.html.limits.has_few_plain_tags`. Their length does not matter.
        """
        text = self._text_of_plain_length()
        if text is None or not has_few_plain_tags(text):
            return False
        self._text, self._selector = text, Selector(text, base_url=self.url, max_memory=None)
        return True

    def prepare_within(self, seconds: float) -> int | None:
        """Prepare a page like :meth:`prepare`, if it needs no thread because it is UTF-8 and takes little CPU time.

        Return ``None`` for any other page. The parser stops after ``seconds``.
        """
        text = self._text_of_plain_length()
        if text is None:
            return None
        try:
            selector = Selector(text, base_url=self.url, max_memory=self.max_memory, max_seconds=seconds)
        except (TakesLong, PageTooComplex):  # the thread decides whether the page is refused
            return None
        self._text, self._selector = text, selector
        return selector.memory

    def _text_of_plain_length(self) -> str | None:
        """Return the text of an HTML page that may be decoded on the event loop."""
        if len(self.body) > LENGTH_OF_PLAIN or not self.is_html or self.encoding != "utf-8":
            return None
        try:
            return decode_strictly(self.body)
        except UnicodeDecodeError:  # replacing invalid bytes takes long
            return None

    def css(self, query: str) -> SelectorList:
        """Select with CSS; see :meth:`Selector.css <skitter.html.selector.Selector.css>`."""
        return self.selector.css(query)

    def xpath(
        self, query: str, namespaces: Mapping[str, str] | None = None, **variables: Any
    ) -> SelectorList:
        """Select with XPath; see :meth:`Selector.xpath <skitter.html.selector.Selector.xpath>`."""
        return self.selector.xpath(query, namespaces, **variables)

    def jmespath(self, query: str, **options: Any) -> SelectorList:
        """Select from JSON with JMESPath."""
        return self.selector.jmespath(query, **options)

    def sitemap(self) -> Iterator[SitemapEntry]:
        """Read this sitemap, index, list of URLs or robots.txt entry by entry; see :class:`~skitter.SitemapSpider`.

        Raises :class:`~skitter.web.sitemap.SitemapError` if it is something else.
        """
        from skitter.web.sitemap import read_sitemap  # noqa: PLC0415 - few spiders read sitemaps

        return read_sitemap(self.body, self.url, self.header("content-type"))

    def feed(self) -> Iterator[FeedEntry]:
        """Read this feed (RSS, Atom or JSON Feed) entry by entry. Raises :class:`~skitter.web.feeds.FeedError`."""
        from skitter.web.feeds import read_feed  # noqa: PLC0415 - few spiders read feeds

        return read_feed(self.body, self.url, "" if self.is_json else self.encoding)

    def csv_rows(self, delimiter: str = "", quotechar: str = '"') -> Iterator[dict[str, str]]:
        """Read this CSV file row by row, as dicts with the names in its first row as keys.

        ``delimiter``: character between two values; empty: comma, semicolon, tab or ``|``, whichever the first row has most.
        ``quotechar``: character around values that contain delimiters or line breaks.
        """
        from skitter.web.feeds import read_rows  # noqa: PLC0415 - few spiders read CSV

        return read_rows(self.text, delimiter, quotechar)

    def markdown(self, css: str = "body") -> str:
        """Return the first element that a query finds as Markdown, with absolute links; empty if it finds nothing.

        See :meth:`Selector.markdown <skitter.html.selector.Selector.markdown>`.
        """
        found = self.css(css)
        return found[0].markdown(self.base_url) if found else ""

    async def main_content(self, form: ContentFormat = "markdown") -> MainContent:
        """Return the main content of an HTML page, without navigation, footers and advertisements, and its metadata.

        ``form``: ``markdown`` or ``text``. The content of plain text is the text itself. For other types, it is ``None``.

        The extraction takes about 10 ms in a separate process, so it does not delay the event loop. For a page that takes
        more than 2 s of CPU time or 1 GB of memory, the result has a ``content_error``. Needs ``skitter[content]``.
        Raises :class:`~skitter.errors.UsageError` if the extra is missing.
        """
        from skitter.content.extraction import extractor  # noqa: PLC0415 - requires an extra

        return await extractor().extract(self, form)

    def structured_data(self) -> dict[str, Any]:
        """Return the structured data of an HTML page as plain values that an item can hold.

        ``json_ld``
            List of the JSON-LD blocks. Line breaks in strings, comments and commas before a bracket are accepted; other
            invalid JSON is left out.
        ``microdata``, ``rdfa``
            Lists of items with ``type`` and ``properties``.
        ``opengraph``
            Dict of the ``og:`` and ``twitter:`` values.
        ``dublin_core``
            Dict of the ``dc.`` and ``dcterms.`` values.

        URLs in microdata, RDFa and OpenGraph are absolute. Microdata and RDFa that are nested more than 400 levels
        deep, or in a circle, are left out. Raises :class:`~skitter.errors.UsageError` for binary content.
        """
        return self.selector.structured_data(self.base_url)

    def form(
        self,
        fields: Mapping[str, Any] | None = None,
        callback: str | Callable[..., Any] | None = None,
        *,
        css: str = "form",
        click: str | bool = True,
        **request_fields: Any,
    ) -> Request:
        """Return a request that sends a form of this page like a browser, including its hidden fields.

        ``fields``
            Values by field name; a list for several values, ``None`` to leave a field out. They replace the values of the page.
            Pass a file as a :class:`~skitter.forms.FormFile`.
        ``css``
            Query of the form. The first match is sent.
        ``click``
            Query of the button within the form. ``True``: the first submit button; ``False``: no button.

        ``request_fields`` are the fields of :class:`~skitter.request.Request`. Needs ``skitter[forms]``. Raises
        :class:`~skitter.errors.FormError` if the page has no such form or button, or if the form cannot be sent.
        """
        from skitter.forms import form_request  # noqa: PLC0415 - requires an extra

        if callback is not None:
            request_fields["callback"] = callback
        return form_request(self, fields or {}, css, click, **request_fields)

    # Links

    @property
    def base_url(self) -> str:
        """Base URL of relative links: the first ``<base href>`` of the page or, without one, the URL of the page.

        A ``<base>`` is ignored if its URL is invalid, has more than 8192 characters, or is a ``data:`` or ``javascript:`` URL, or
        if it is inside a ``<template>`` or an SVG image (WHATWG HTML, 4.2.3).
        """
        return self._link_base().url

    def _link_base(self) -> UrlBase:
        if self._base is None:
            href = self._base_href() if self.is_html and self._may_have_base() else None
            base = None if href is None else normalize(self.encode_query(href), self.url)
            if base is not None and (len(base) > _MAX_BASE or base.startswith(("data:", "javascript:"))):
                base = None
            self._base = url_base(base or self.url)
        return self._base

    def _may_have_base(self) -> bool:
        if self._selector is not None:
            return self._selector.is_on_page("base")
        # Avoid parsing the page, for example for a callback that uses only regular expressions.
        if has_tag is not None and self.encoding == "utf-8":
            return has_tag(self.body, "base")
        return _BASE_TAG(self.text) is not None

    def _base_href(self) -> str | None:
        bases: Iterable[Selector] = self.css("base[href]")[:_MAX_BASES]
        if bases and self.css("template base, svg base, math base"):
            bases = (base for base in bases if not base.xpath(_IN_OTHER_TREE))
        return next((base.attrib["href"] for base in bases), None)

    @property
    def refresh(self) -> tuple[float, str] | None:
        """Delay in seconds and absolute URL of the page that a browser opens next; ``None`` if there is none.

        They come from the ``Refresh`` header or, without one, from the first valid ``<meta http-equiv="refresh">`` (WHATWG
        HTML, 4.2.5.3). The setting ``refresh_delay_cap`` decides whether a crawl follows it.
        """
        values = [url_in_header(self.header("refresh"))]
        if not values[0] and self.is_html:
            metas = (meta.attrib for meta in self.css("meta[http-equiv]"))
            values = [meta.get("content", "") for meta in metas if meta["http-equiv"].lower() == "refresh"]
        found = next((found for value in values if (found := parse_refresh(value)) is not None), None)
        url = None if found is None else self._join(found.url)
        return None if found is None or url is None else (found.seconds, url)

    def directives(self, product_token: str = "") -> Directives:
        """Return the directives of the page for programs that index, follow or mine it, from its headers and elements.

        ``product_token``: name of a crawler whose rules (``X-Robots-Tag: NAME: noindex``, ``<meta name="NAME">``)
        apply in addition to the rules for all crawlers. Raises :class:`~skitter.errors.PageTooComplex` like a selector.
        """
        rules = RobotsDirectives(product_token)
        for value in self.headers.getall("x-robots-tag", ()):
            rules.read_header(value)
        canonical = linked_canonical(self.headers.getall("link", ()))
        reservation, policy = tdm_of(
            {name: self.header(name) for name in ("tdm-reservation", "tdm-policy") if self.header(name)}
        )
        in_meta: dict[str, str] = {}
        alternates: dict[str, str] = {}
        if self.is_html:
            for meta in self.css("meta[name][content]"):
                name, content = meta.attrib["name"], meta.attrib["content"]
                rules.read_meta(name, content)
                in_meta.setdefault(name.strip().lower(), content)
            for link in self.css("link[rel][href]"):
                kinds, href = link.attrib["rel"].lower().split(), link.attrib["href"]
                if "canonical" in kinds and canonical is None:
                    canonical = href
                elif "alternate" in kinds and link.attrib.get("hreflang"):
                    alternates[link.attrib["hreflang"].lower()] = self._join(href) or ""
        # Processing priority of TDMRep: values of <meta> supersede those of headers.
        meta_reservation, meta_policy = tdm_of(in_meta)
        reservation = reservation if meta_reservation is None else meta_reservation
        policy = (meta_policy or policy) if reservation else None
        return Directives(
            **rules.flags,
            unavailable_after=rules.unavailable_after,
            canonical=None if canonical is None else self._join(canonical),
            alternates={language: url for language, url in alternates.items() if url},
            tdm_reservation=reservation,
            tdm_policy=None if policy is None else self._join(policy),
            content_signals={},
        )

    def urljoin(self, link: str | Selector | parsel.Selector) -> str:
        """Return the absolute URL of a link of this page, normalized, with its fragment. Accepts the same links as :meth:`follow`.

        The query is encoded like in :meth:`encode_queries`. Raises :class:`~skitter.errors.RequestError` for an invalid URL.
        """
        href = link if link.__class__ is str else _href_of(link)
        url = resolve(self.encode_query(href), self.base_url) if "#" in href else self._join(href)
        if url is None:
            raise self._invalid(href)
        return url

    def encode_queries(self, hrefs: Sequence[str]) -> Sequence[str]:
        """Return raw links with their queries percent-encoded in the encoding of this page, as browsers do.

        This only changes links with non-ASCII characters in their query, on HTML pages in a legacy encoding. All other URLs
        are UTF-8. :meth:`urljoin`, :meth:`links`, :meth:`follow` and :meth:`follow_all` do this automatically. See the WHATWG
        URL standard, "percent-encode after encoding".
        """
        if self._encoding == "utf-8" or not self.is_html:
            return hrefs
        return encode_queries(hrefs, self.encoding)

    def encode_query(self, href: str) -> str:
        """Return one raw link with its query encoded; see :meth:`encode_queries`."""
        return href if href.isascii() else self.encode_queries((href,))[0]

    def _join(self, href: str) -> str | None:
        return (self._base or self._link_base()).join(href if href.isascii() else self.encode_query(href))

    def _invalid(self, href: str) -> RequestError:
        return RequestError(f"invalid link {href!r} of {self.url}", remedy="pass a URL, absolute or relative")

    def hrefs(self, css: str = "a") -> list[str]:
        """Return the raw links of the elements that a query finds.

        The link of an element is its ``href`` or, without one, its ``src``. A query with ``::attr()`` returns attribute values.
        The result is empty for content other than HTML and XML.
        """
        if not self.is_html:
            return self.css(css).links() if self.is_xml else []
        simple = _LINK_QUERIES.get(css)
        return self.css(css).links() if simple is None else self.selector.attribute_on_page(*simple)

    def links(self, css: str = "a") -> list[str]:
        """Return the absolute http(s) URLs of :meth:`hrefs`, in order and without duplicates."""
        hrefs = self.hrefs(css)
        if not hrefs:
            return []
        urls = dict.fromkeys(self._link_base().join_all(self.encode_queries(hrefs)))
        return [url for url in urls if url is not None and url.startswith(("http://", "https://"))]

    def follow(
        self,
        link: str | Selector | parsel.Selector,
        callback: str | Callable[..., Any] | None = None,
        **request_fields: Any,
    ) -> Request:
        """Return a request for a link of this page: an absolute or relative URL, or a selector.

        The selector is an element with ``href`` or ``src``, or an attribute value. ``request_fields`` are the fields of
        :class:`~skitter.request.Request`. Raises :class:`~skitter.errors.RequestError`.
        """
        # Inlines two functions and a property for speed, because many spiders follow links one by one.
        href: str | None = None
        if isinstance(link, ElementSelector):
            href = link._page.engine.attribute(link._node, "href")  # noqa: SLF001 - as in Selector.link
        elif isinstance(link, str):
            href = link
        if href is None:
            href = _href_of(link)
        base = self._base or self._link_base()
        url = join_plain(href, base.prefixes) or normalize(self.encode_query(href), base.url)
        if url is None:
            raise self._invalid(href)
        if callback is not None and callback.__class__ is not str:
            if callback != self._callback:  # usually, all links of a page have the same callback
                self._callback, self._callback_name = callback, name_of_callback(callback)
            callback = self._callback_name
        return Request(url, callback, **request_fields) if request_fields else Request(url, callback)

    def follow_all(
        self,
        links: str | Iterable[str | Selector | parsel.Selector] | None = None,
        callback: str | Callable[..., Any] | None = None,
        *,
        css: str | None = None,
        xpath: str | None = None,
        allow: Patterns = (),
        deny: Patterns = (),
        domains: Words = (),
        extensions: Words = (),
        **request_fields: Any,
    ) -> Links:
        """Return all these links as one batch to yield, the fastest way to follow them.

        ``links`` is a CSS query (``"a"``), or a list of values for :meth:`follow`. ``css`` and ``xpath`` are queries and
        replace ``links``. Elements without a link are skipped. Iterating over the batch yields
        its requests.

        ``allow`` and ``deny`` (regular expressions, searched in the URL), ``domains`` and ``extensions`` (of the path,
        without the dot; ``""``: none) select among these links, or among all ``a`` elements; see
        :class:`~skitter.link_extractor.LinkFilter`. ``request_fields`` are the fields of
        :class:`~skitter.request.Request`.

        Raises :class:`~skitter.errors.UsageError` if more than one of the first three is given, or nothing at all, and
        :class:`~skitter.errors.RequestError` for an unknown argument.
        """
        if not _REQUEST_FIELDS.issuperset(request_fields):
            name = min(request_fields.keys() - _REQUEST_FIELDS)
            raise RequestError(
                f"follow_all has no argument {name!r}",
                remedy=CRAWLEE_ARGUMENTS.get(name)
                or did_you_mean(name, sorted(_FOLLOW_ALL_ARGUMENTS | _REQUEST_FIELDS)),
                field=name,
            )
        selects = bool(allow or deny or domains or extensions) or extensions == ""
        sources = (links is not None) + (css is not None) + (xpath is not None)
        if sources == 0 and selects:
            css = "a"
        elif sources != 1:
            raise UsageError(
                "follow_all takes one of: links, css, xpath", remedy='for all links write follow_all("a")'
            )
        if callback is not None:
            request_fields["callback"] = callback
        hrefs = self._hrefs_of(links, css, xpath)
        if not hrefs:
            return Links(self.url, (), request_fields)
        encoded = self.encode_queries(hrefs)
        if selects:
            from skitter.link_extractor import select_hrefs  # noqa: PLC0415 - only needed here

            encoded = select_hrefs(
                self.base_url, encoded, allow=allow, deny=deny, domains=domains, extensions=extensions
            )
        return Links(self.base_url, encoded, request_fields)

    def _hrefs_of(
        self,
        links: str | Iterable[str | Selector | parsel.Selector] | None,
        css: str | None,
        xpath: str | None,
    ) -> list[str]:
        if isinstance(links, str):
            if links.startswith(("http://", "https://", "/", "../", "./")):
                raise UsageError(
                    f"follow_all takes a CSS query, not a URL: {links!r:.200}",
                    remedy="write follow(url), or follow_all([url, ...])",
                    field="links",
                )
            css = links
        if css is not None:
            return self.hrefs(css)
        if xpath is not None:
            return self.xpath(xpath).links()
        if isinstance(links, SelectorList):
            return links.links()
        return [
            href
            for link in links or ()
            if (href := link if link.__class__ is str else _found_href(link)) is not None
        ]

    def __repr__(self) -> str:
        return f"<Response {self.status} {self.url}>"


_IN_OTHER_TREE = "ancestor::template | ancestor::svg | ancestor::math"
"""Ancestors whose content belongs to another tree."""


def _found_href(link: str | Selector | parsel.Selector) -> str | None:
    """Return a link, or ``None`` for an element without a link."""
    if isinstance(link, Selector):
        return link.link
    if isinstance(link, str):
        return link
    if is_parsel(link):
        return from_parsel(link).link
    raise _no_link(link)


def _href_of(link: str | Selector | parsel.Selector) -> str:
    href = _found_href(link)
    if href is None:
        raise _no_link(link)
    return href


def _no_link(link: object) -> RequestError:
    return RequestError(
        f"{link!r} has no link to follow",
        remedy="follow one element of the list, or all of them with response.follow_all(...)"
        if isinstance(link, (list, SelectorList))
        else "follow a URL, an element with href or src, or an attribute value",
    )
