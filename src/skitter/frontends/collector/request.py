"""CollectorRequest: the request that callbacks receive, the requests that callbacks make, and the bodies of forms."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from skitter import scope
from skitter.errors import RequestError, UsageError
from skitter.forms import FormFile, encode_multipart
from skitter.links import Links
from skitter.request import URLENCODED, Request, encode_form
from skitter.response import HTTP_TRACE, Response
from skitter.web.headers import with_defaults
from skitter.web.urls import normalize

if TYPE_CHECKING:
    from skitter.frontends.collector.collector import Collector


class VisitRefusal(StrEnum):
    """The reason why a visit is out of scope. A callback may return it, for example from a ``lambda``, without effect."""

    SCHEME = scope.SCHEME
    LENGTH = scope.LENGTH
    DEPTH = scope.DEPTH
    HOST = scope.HOST
    PATTERN = scope.PATTERN
    SLOW_PATTERN = scope.SLOW_PATTERN
    UNPARSABLE = scope.UNPARSABLE


class CollectorRequest:
    """A request of a collector.

    In ``on_request`` and ``on_request_headers`` the attributes ``url``, ``method``, ``headers``, ``body``, ``cookies``,
    ``proxy``, ``timeout``, ``encoding`` and ``ctx`` can be changed before the request is sent. From ``on_response`` on, it is the request
    that was sent; visits from it are its children, one level deeper.

    ``ctx``
        Values that the request carries, and that are copied to its children. They must be encodable as MessagePack.
    ``depth``
        Number of links from a start URL, which has depth 0.
    ``collector``
        The collector of the request.
    """

    __slots__ = (  # an attribute that has no effect, such as a field of Request, is an error
        "_edited", "_has_body", "_response", "_visits", "aborted", "body", "collector", "encoding", "method", "proxy",
        "request", "timeout", "url", "wants_retry",
    )  # fmt: skip

    def __init__(
        self,
        collector: Collector,
        request: Request,
        visits: PendingRequests | None = None,
        response: Response | None = None,
        *,
        has_body: bool = True,
    ) -> None:
        self.collector = collector
        self.request = request
        """The request of the engine."""
        self.url = request.url
        self.method = request.method
        self.body = request.body
        self.proxy = request.proxy
        self.timeout = request.timeout
        self.encoding = request.encoding
        self.aborted = False
        self.wants_retry = False
        self._visits = visits
        self._response = response
        self._has_body = has_body
        self._edited: dict[str, dict[str, Any]] = {}

    def _own(self, name: str) -> dict[str, Any]:
        """Return an editable copy of a mapping of the request."""
        if name not in self._edited:
            self._edited[name] = copy.deepcopy(getattr(self.request, name))
            if name == "meta":
                self._edited[name].pop(HTTP_TRACE, None)  # the trace belongs to the page, not to its children
        return self._edited[name]

    @property
    def headers(self) -> dict[str, str]:
        """Headers of this request, in addition to the headers of the job."""
        return self._own("headers")

    @property
    def cookies(self) -> dict[str, str]:
        """Cookies of this request, in addition to the cookie jar."""
        return self._own("cookies")

    @property
    def ctx(self) -> dict[str, Any]:
        """The context of the request."""
        return self._own("meta")

    @property
    def depth(self) -> int:
        """Number of links from a start URL, which has depth 0."""
        return self.request.depth

    @property
    def referer(self) -> str | None:
        """URL of the page that linked to it."""
        return self.request.referer

    def edited(self) -> Request:
        """Return the request with the changes of callbacks. Without changes, it is the same object."""
        request = self.request
        changes: dict[str, Any] = {
            name: value
            for name in ("url", "method", "body", "proxy", "timeout", "encoding")
            if (value := getattr(self, name)) != getattr(request, name)
        }
        changes |= {name: value for name, value in self._edited.items() if value != getattr(request, name)}
        return request.replace(**changes) if changes else request

    # Decisions

    def abort(self) -> None:
        """Abort the request without an error.

        In ``on_request`` and ``on_request_headers`` the request is not sent; in ``on_response_headers`` the body is not
        read. Later, the remaining callbacks of the page are skipped, and earlier results are kept.
        """
        self.aborted = True

    def retry(self) -> None:
        """Retry the request after the callback, at most ``max_retries`` times, with increasing delays.

        The results of the page are dropped. The check for visited URLs does not apply. Raises
        :class:`~skitter.errors.UsageError` before the request is sent.
        """
        if not self._has_body:
            raise UsageError("the response is not complete yet", remedy="call retry from on_response on")
        self.wants_retry = True

    # Visits

    def absolute_url(self, href: str) -> str:
        """Return the absolute URL of a link of this page, resolved with its ``<base>``. Empty if the link is invalid."""
        if self._response is None:
            return normalize(href, self.url or None) or ""
        return normalize(self._response.encode_query(href), self._response.base_url) or ""

    def visit(self, url: str, *, via: Collector | None = None, **fields: Any) -> VisitRefusal | None:
        """Fetch a URL, absolute or relative to the page, one level deeper, with a copy of the context.

        ``via`` is the collector whose callbacks receive the page; default: the collector of this request. ``fields`` are
        those of :class:`~skitter.request.Request`, such as ``priority``.

        Return the reason why the URL is out of scope, or ``None``. Visited and out-of-scope URLs are counted and skipped. Whether a URL was visited before
        is known only later: see :meth:`has_visited`.
        """
        member = via or self.collector
        refusal = member.group.refusal(member, self.absolute_url(url), self.depth + 1 if self.url else 0)
        context = fields.pop("ctx", None)
        context = self.ctx if context is None else context
        if fields and refusal is not VisitRefusal.UNPARSABLE:
            self._give(url, via=via, ctx=context, **fields)
        else:
            self._sink().follow(member, (url,), context)
        return refusal

    def take_visits(self) -> list[Any]:
        """Accept no more visits, and return those that were made."""
        return self._sink().close()

    def visit_all(
        self, urls: Iterable[str], *, via: Collector | None = None, ctx: dict[str, Any] | None = None
    ) -> None:
        """Fetch many URLs. This is the fastest way.

        ``ctx`` replaces the context. ``via`` is the collector whose callbacks receive the pages; default: the collector of
        this request.
        """
        self._sink().follow(via or self.collector, urls, self.ctx if ctx is None else ctx)

    def head(self, url: str, *, via: Collector | None = None, **fields: Any) -> None:
        """Send a HEAD request."""
        self._give(url, via=via, method="HEAD", **fields)

    def post(self, url: str, data: Mapping[str, str], *, via: Collector | None = None, **fields: Any) -> None:
        """Send a form with POST, URL-encoded."""
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
        """Send a raw body with POST."""
        self._give(url, via=via, **post_fields(body, content_type, fields))

    def post_multipart(
        self,
        url: str,
        parts: Mapping[str, str | bytes | FormFile],
        *,
        via: Collector | None = None,
        **fields: Any,
    ) -> None:
        """Send a multipart form with POST. Parts can be files."""
        self._give(url, via=via, **post_fields(*encode_multipart(parts), fields))

    def send(self, method: str, url: str, *, via: Collector | None = None, **fields: Any) -> None:
        """Send a request with any method. A field ``ctx`` replaces the context."""
        self._give(url, via=via, method=method, **fields)

    async def has_visited(self, url: str | Request) -> bool:
        """Return whether a URL or a request is known to the job: queued, leased, done or failed.

        A URL, which can be relative, means a GET request. For a form that was posted, pass ``Request.form(url, data)``.
        """
        known = url if isinstance(url, Request) else Request(self._absolute(url))
        return await self.collector.group.knows(known)

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
                f"invalid URL: {href!r}{where}",
                remedy="pass a URL; without a page, an absolute one",
                field="url",
            )
        return url

    def _sink(self) -> PendingRequests:
        if self._visits is None:
            raise UsageError(
                f"{self.url} has not been fetched yet, so it cannot have children",
                remedy="call visit from on_response on, or change this request",
            )
        return self._visits

    def __repr__(self) -> str:
        return f"<CollectorRequest {self.method} {self.url}>"


def post_fields(body: bytes | str, content_type: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a POST request. Given headers override the content type."""
    headers = with_defaults(fields.get("headers", {}), {"Content-Type": content_type} if content_type else {})
    return {"method": "POST", **fields, "body": body, "headers": headers}


class PendingRequests:
    """Collects the requests and items of the callbacks of a page, or of a script before its crawl, in order.

    Consecutive plain visits with the same collector and context become one batch, which the engine processes at once.

    ``response``
        The page, which resolves relative URLs. ``None``: there is no page, and URLs are absolute.
    """

    def __init__(self, response: Response | None = None) -> None:
        self._response = response
        self._given: list[Any] = []
        self._batch: Links | None = None
        self._hrefs: list[str] = []
        self._of: Collector | None = None
        self._context: dict[str, Any] = {}
        self._closed = False

    def follow(self, collector: Collector, hrefs: Iterable[str], context: dict[str, Any]) -> None:
        """Add plain visits of one collector, with a copy of the context."""
        self._check()
        response = self._response
        if response is None:
            for url in hrefs:
                self._given.append(Request(url, **collector.fields(copy.deepcopy(context))))
            return
        if self._batch is None or self._of is not collector or self._context != context:
            kept = copy.deepcopy(context)
            self._of, self._context, self._hrefs = collector, kept, []
            self._batch = Links(response.base_url, self._hrefs, collector.fields(kept))
            self._given.append(self._batch)
        self._hrefs.extend(response.encode_queries(list(hrefs)))

    def add(self, visits: Iterable[Any]) -> None:
        """Add requests, items and batches of links."""
        self._check()
        self._given.extend(visits)
        self._batch = None

    def take(self) -> list[Any]:
        """Return the results since the last call, and remove them."""
        visits, self._given, self._batch = self._given, [], None
        return visits

    def peek(self) -> list[Any]:
        """Return the results since the last call of :meth:`take`."""
        return list(self._given)

    def close(self) -> list[Any]:
        """Accept no more results, and return the collected ones."""
        self._closed = True
        return self.take()

    def _check(self) -> None:
        if self._closed:
            raise UsageError(
                "the callbacks of this page have ended",
                remedy="call visit within the callback, and await the tasks that it starts",
            )
