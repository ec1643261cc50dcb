"""CollectorResponse: a response as callbacks see it."""

from __future__ import annotations

import asyncio
import re
import uuid
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from multidict import CIMultiDict

from skitter.frontends.collector.request import CollectorRequest
from skitter.html.selector import SelectorList
from skitter.response import HTTP_TRACE, Response
from skitter.web.headers import Headers
from skitter.web.inflate import GZIP_MAGIC


class CollectorResponse:
    """A response with its request.

    In ``on_error`` the status is 0 if the server did not respond. ``response`` is the
    :class:`~skitter.response.Response` of the engine, which offers more methods.
    """

    __slots__ = ("request", "response")

    def __init__(self, request: CollectorRequest, response: Response) -> None:
        self.request = request
        self.response = response

    @property
    def url(self) -> str:
        """URL of the page."""
        return self.response.url

    @property
    def status(self) -> int:
        """HTTP status code."""
        return self.response.status

    @property
    def headers(self) -> Headers:
        """The response headers."""
        return self.response.headers

    @property
    def body(self) -> bytes:
        """The body, decompressed."""
        return self.response.body

    @property
    def text(self) -> str:
        """The body as text, with its charset detected."""
        return self.response.text

    @property
    def encoding(self) -> str:
        """Character encoding of the text. You can set it for a page that declares a wrong encoding."""
        return self.response.encoding

    @encoding.setter
    def encoding(self, name: str) -> None:
        self.response.encoding = name

    @property
    def ctx(self) -> dict[str, Any]:
        """The context of the request."""
        return self.request.ctx

    @property
    def latency(self) -> float:
        """Seconds from sending the request to the first byte of the response."""
        return self.response.latency

    @property
    def trace(self) -> dict[str, Any]:
        """Times of the transfer; empty without the option ``http_trace``, and for pages that were not fetched by HTTP.

        In seconds: ``dns``, ``connect``, ``tls``, ``first_byte`` and ``total``; and ``reused``, whether the connection was
        open already.
        """
        trace: dict[str, Any] = self.response.meta.get(HTTP_TRACE, {})
        return trace

    @property
    def is_truncated(self) -> bool:
        """Whether the body was cut at ``max_body_size``."""
        return self.response.is_truncated

    def json(self) -> Any:
        """Return the body parsed as JSON. Raises ValueError for invalid JSON."""
        return self.response.json()

    def css(self, query: str) -> SelectorList:
        """Select elements with a CSS query."""
        return self.response.css(query)

    def xpath(self, query: str) -> SelectorList:
        """Select elements with an XPath query."""
        return self.response.xpath(query)

    @property
    def file_name(self) -> str:
        """A file name from ``Content-Disposition`` (RFC 6266) or the URL, without folders.

        Unsafe characters become underscores. The default is ``index``, with ``.html`` for HTML pages. The name has at most 200
        bytes; see :func:`skitter.frontends.collector.response.file_name_of`.
        """
        response = self.response
        default = "index.html" if response.is_html else "index"
        return file_name_of(self.url, response.header("content-disposition"), default)

    async def save(self, path: str | Path) -> None:
        """Write the body to a file atomically."""
        await asyncio.to_thread(_write, Path(path), self.body)

    def __repr__(self) -> str:
        return f"<CollectorResponse {self.status} {self.url}>"


async def xml_file(response: Response, limit: int) -> Response:
    """Return the response to a URL that ends in ``.xml`` or ``.xml.gz`` as an XML page, decompressed, as in Colly.

    Many servers send sitemaps as plain text or as a gzip file. HTML and error pages are returned unchanged.

    ``limit``
        Maximum size of the decompressed body in bytes.

    Raises :class:`~skitter.errors.FetchError` for an invalid or too large gzip file.
    """
    path = urlsplit(response.url).path.lower()
    if not path.endswith((".xml", ".xml.gz")) or not response.ok or response.is_html:
        return response
    body = response.body
    if path.endswith(".gz") and body.startswith(GZIP_MAGIC):
        from skitter.fetch.decoding import decode_body  # noqa: PLC0415 - registering callbacks does not need it

        body = await asyncio.to_thread(decode_body, body, ("gzip",), limit)
    elif response.is_xml:
        return response
    headers = CIMultiDict(response.headers)
    headers["Content-Type"] = "application/xml"
    return response.replace(body=body, headers=headers)


def _write(path: Path, body: bytes) -> None:
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    draft.write_bytes(body)
    draft.replace(path)


_UNSAFE = re.compile(r"[^\w.\- ]+")
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(?:\.|$)", re.IGNORECASE)
"""Names of devices on Windows, with any extension."""
_MAX_BYTES = 200
"""Most file systems allow 255. The rest is for the prefixes and suffixes of temporary files."""


def file_name_of(url: str, content_disposition: str = "", default: str = "index") -> str:
    """Return a file name from ``Content-Disposition`` (RFC 6266) or else from the last segment of a URL's path.

    The name contains no folder, no control character and nothing that a shell interprets, is not hidden, and is not
    the name of a device on Windows. It has at most 200 bytes; a longer name loses its beginning and keeps its extension.
    """
    message = Message()
    if content_disposition:
        message["Content-Disposition"] = content_disposition.replace("\r", " ").replace("\n", " ")
    name = message.get_filename() or unquote(urlsplit(url).path).rpartition("/")[2]
    name = _UNSAFE.sub("_", name.replace("\\", "/").rpartition("/")[2]).strip(". ").lstrip("-")
    name = name.encode("utf-8", "replace")[-_MAX_BYTES:].decode("utf-8", "ignore").strip(". ")
    return f"_{name[-_MAX_BYTES:]}" if _RESERVED.match(name) else name or default
