"""CollectorRequest: a request as the callbacks of a collector see it: to be edited, aborted, followed."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from skitter.errors import RequestError, UsageError
from skitter.request import Request
from skitter.response import Response
from skitter.web.urls import normalize

if TYPE_CHECKING:
    from skitter.frontends.collector.collector import Collector
import re
from collections.abc import Callable
from urllib.parse import urlencode

import msgspec
import xxhash

from skitter.links import Links


class CollectorRequest:
    """One request of a collector.

    In ``on_request`` and ``on_request_headers`` the attributes ``url``, ``method``, ``headers``, ``body``, ``cookies``,
    ``proxy``, ``timeout`` and ``ctx`` may be set: that is what is sent. From ``on_response`` on it is what was sent,
    and the starting point of further visits, whose depth is one more.

    ``ctx``
        Values that travel with the request and are copied to those that come from it. What MessagePack can carry.
    ``depth``
        1 for the first pages, as ``max_depth`` counts them.
    ``collector``
        That it belongs to.
    """

    def __init__(
        self,
        collector: Collector,
        request: Request,
        visits: PendingRequests | None = None,
        response: Response | None = None,
    ) -> None:
        self.collector = collector
        self.request = request
        """As the engine has it."""
        self.url = request.url
        self.method = request.method
        self.body = request.body
        self.proxy = request.proxy
        self.timeout = request.timeout
        self.aborted = False
        self.wants_retry = False
        self._visits = visits
        self._response = response
        self._edited: dict[str, dict[str, Any]] = {}

    def _own(self, name: str) -> dict[str, Any]:
        """Return a mapping of the request as a copy that may be edited."""
        if name not in self._edited:
            self._edited[name] = copy.deepcopy(getattr(self.request, name))
        return self._edited[name]

    @property
    def headers(self) -> dict[str, str]:
        """Headers of this request besides those of the job."""
        return self._own("headers")

    @property
    def cookies(self) -> dict[str, str]:
        """Cookies of this request besides those of the jar."""
        return self._own("cookies")

    @property
    def ctx(self) -> dict[str, Any]:
        """The context."""
        return self._own("meta")

    @property
    def depth(self) -> int:
        """Number of pages from the start to this one, both counted."""
        return self.request.depth + 1

    @property
    def referer(self) -> str | None:
        """The page that linked to it."""
        return self.request.referer

    def edited(self) -> Request:
        """Return the request as the callbacks have left it; the same object if they changed nothing."""
        request = self.request
        changes: dict[str, Any] = {
            name: value
            for name in ("url", "method", "body", "proxy", "timeout")
            if (value := getattr(self, name)) != getattr(request, name)
        }
        changes |= {name: value for name, value in self._edited.items() if value != getattr(request, name)}
        return request.replace(**changes) if changes else request

    # Decisions

    def abort(self) -> None:
        """Give it up without an error.

        In ``on_request`` and ``on_request_headers`` it is not sent, in ``on_response_headers`` the body stays unread.
        Later the callbacks of the page that have not run yet are passed over; what was given before counts.
        """
        self.aborted = True

    def retry(self) -> None:
        """Ask for this request again, after the callback and as often as ``max_retries`` allows, with growing pauses.

        Nothing that the page has given counts. The test for visited URLs does not apply. Raises
        :class:`~skitter.errors.UsageError` before the request was sent.
        """
        if self._visits is None:
            raise UsageError(
                "nothing was sent yet that could be tried again", remedy="retry from on_response on"
            )
        self.wants_retry = True

    # Further visits

    def absolute_url(self, href: str) -> str:
        """Return the absolute URL of a link of this page, by its ``<base>``; empty if it is none."""
        base = self.url if self._response is None else self._response.base_url
        return normalize(href, base or None) or ""

    def visit(self, url: str, *, via: Collector | None = None, **fields: Any) -> None:
        """Fetch a URL, absolute or relative to the page, one step deeper, with a copy of the context.

        ``via``: the collector whose callbacks are to have it; default: the same. ``fields`` are those of
        :class:`~skitter.request.Request`, such as ``priority``. URLs that were visited before, or are out of
        scope, are counted and passed over.
        """
        if fields:
            self._give(url, via=via, **fields)
        else:
            self._sink().follow(via or self.collector, (url,), self.ctx)

    def visit_all(
        self, urls: Iterable[str], *, via: Collector | None = None, ctx: dict[str, Any] | None = None
    ) -> None:
        """Fetch many URLs: the fastest way.

        ``ctx`` replaces the context; ``via`` is the collector whose callbacks get the pages, by default this one.
        """
        self._sink().follow(via or self.collector, urls, self.ctx if ctx is None else ctx)

    def head(self, url: str, *, via: Collector | None = None, **fields: Any) -> None:
        """Ask for the headers of a URL."""
        self._give(url, via=via, method="HEAD", **fields)

    def post(self, url: str, data: Mapping[str, str], *, via: Collector | None = None, **fields: Any) -> None:
        """Send a form."""
        self._give(url, via=via, **post_fields(encode_form(data), URLENCODED, fields))

    def post_raw(
        self,
        url: str,
        body: bytes | str,
        content_type: str = "",
        *,
        via: Collector | None = None,
        **fields: Any,
    ) -> None:
        """Send a body as it is."""
        self._give(url, via=via, **post_fields(body, content_type, fields))

    def post_multipart(
        self,
        url: str,
        parts: Mapping[str, str | bytes | FormFile],
        *,
        via: Collector | None = None,
        **fields: Any,
    ) -> None:
        """Send a form of several parts, files among them."""
        self._give(url, via=via, **post_fields(*encode_multipart(parts), fields))

    def send(self, method: str, url: str, *, via: Collector | None = None, **fields: Any) -> None:
        """Send any request; ``ctx`` among the fields replaces the context."""
        self._give(url, via=via, method=method, **fields)

    async def has_visited(self, url: str) -> bool:
        """Tell whether the job has met a URL: queued, under way, done or given up."""
        return await self.collector.group.knows(Request(self._absolute(url)))

    def _give(
        self, url: str, *, via: Collector | None, ctx: dict[str, Any] | None = None, **fields: Any
    ) -> None:
        visits = self._sink()
        common = (via or self.collector).fields(copy.deepcopy(self.ctx if ctx is None else ctx))
        visits.add([Request(self._absolute(url), **{**common, **fields})])

    def _absolute(self, href: str) -> str:
        url = self.absolute_url(href)
        if not url:
            where = f" of {self.url}" if self.url else ""
            raise RequestError(
                f"{href!r}{where} is no URL", remedy="pass a URL, absolute if there is no page"
            )
        return url

    def _sink(self) -> PendingRequests:
        if self._visits is None:
            raise UsageError(
                f"{self.url} is not fetched yet, so nothing can come from it",
                remedy="visit from on_response on, or change this request itself",
            )
        return self._visits

    def __repr__(self) -> str:
        return f"<CollectorRequest {self.method} {self.url}>"


def post_fields(body: bytes | str, content_type: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a POST request; headers that are given win over the content type."""
    headers = dict(fields.get("headers", {}))
    if content_type and "content-type" not in map(str.lower, headers):
        headers["Content-Type"] = content_type
    return {"method": "POST", **fields, "body": body, "headers": headers}


class PendingRequests:
    """Gathers requests and items in the order they come.

    Plain visits that follow each other, with the same collector and the same context, become one batch: the
    engine joins, scopes and tests its links together.

    ``base``
        Gives what relative URLs are resolved against. ``None``: there is no page, and URLs are absolute.
    """

    def __init__(self, base: Callable[[], str] | None = None) -> None:
        self._base = base
        self._given: list[Any] = []
        self._batch: Links | None = None
        self._hrefs: list[str] = []
        self._of: Collector | None = None
        self._context: dict[str, Any] = {}
        self._closed = False

    def follow(self, collector: Collector, hrefs: Iterable[str], context: dict[str, Any]) -> None:
        """Add plain visits of one collector; the context is copied."""
        self._check()
        if self._base is None:
            for url in hrefs:
                self._given.append(Request(url, **collector.fields(copy.deepcopy(context))))
            return
        if self._batch is None or self._of is not collector or self._context != context:
            kept = copy.deepcopy(context)
            self._of, self._context, self._hrefs = collector, kept, []
            self._batch = Links(self._base(), self._hrefs, collector.fields(kept))
            self._given.append(self._batch)
        self._hrefs.extend(hrefs)

    def add(self, given: Iterable[Any]) -> None:
        """Add requests, items and batches of links."""
        self._check()
        self._given.extend(given)
        self._batch = None

    def take(self) -> list[Any]:
        """Return what was gathered since this was last asked."""
        given, self._given, self._batch = self._given, [], None
        return given

    def peek(self) -> list[Any]:
        """Return what was gathered since that was last taken, and leave it there."""
        return list(self._given)

    def close(self) -> list[Any]:
        """Take nothing more; return what was gathered."""
        self._closed = True
        return self.take()

    def _check(self) -> None:
        if self._closed:
            raise UsageError(
                "the callbacks of this page have ended",
                remedy="visit within the callback, and await whatever it starts",
            )


URLENCODED = "application/x-www-form-urlencoded"


class FormFile(msgspec.Struct, frozen=True):
    """A file in a form of several parts (RFC 7578)."""

    name: str
    content: bytes
    content_type: str = "application/octet-stream"


def encode_form(fields: Mapping[str, str]) -> bytes:
    """Return fields as ``application/x-www-form-urlencoded``, by the URL standard (WHATWG), in UTF-8."""
    return urlencode(dict(fields)).encode()


def encode_multipart(parts: Mapping[str, str | bytes | FormFile]) -> tuple[bytes, str]:
    """Return parts as ``multipart/form-data`` (RFC 7578), and the value of its ``Content-Type``.

    The boundary follows from the content, so that the same form is the same request.
    Raises :class:`~skitter.errors.RequestError` for a content type that breaks its line.
    """
    pieces = [_piece(name, value) for name, value in parts.items()]
    boundary = f"skitter-{xxhash.xxh3_128_hexdigest(b'|'.join(pieces))}"
    mark = f"--{boundary}\r\n".encode()
    body = b"".join(mark + piece + b"\r\n" for piece in pieces) + f"--{boundary}--\r\n".encode()
    return body, f"multipart/form-data; boundary={boundary}"


def _piece(name: str, value: str | bytes | FormFile) -> bytes:
    head = f'Content-Disposition: form-data; name="{_quoted(name)}"'
    if isinstance(value, FormFile):
        if _BREAKS(value.content_type):
            raise RequestError(f"content type {value.content_type!r} has a line break", remedy="leave it out")
        head += f'; filename="{_quoted(value.name)}"\r\nContent-Type: {value.content_type}'
    content = value.content if isinstance(value, FormFile) else value
    return f"{head}\r\n\r\n".encode() + (content.encode() if isinstance(content, str) else content)


_BREAKS = re.compile(r"[\r\n]").search


def _quoted(text: str) -> str:
    """Escape what would end a name, as browsers do (HTML standard, multipart/form-data encoding)."""
    return text.replace("\n", "%0A").replace("\r", "%0D").replace('"', "%22")
