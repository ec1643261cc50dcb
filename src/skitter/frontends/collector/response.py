"""CollectorResponse: an answer as the callbacks of a collector see it."""

from __future__ import annotations

import asyncio
import re
import uuid
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from skitter.frontends.collector.request import CollectorRequest
from skitter.html.selector import SelectorList
from skitter.response import Response
from skitter.web.headers import Headers

_UNSAFE = re.compile(r"[^\w.\- ]+")


class CollectorResponse:
    """One answer, with the request that it answers.

    In ``on_error`` the status is 0 if there was no answer. ``response`` is the
    :class:`~skitter.response.Response` of the engine, with all that it can do.
    """

    __slots__ = ("request", "response")

    def __init__(self, request: CollectorRequest, response: Response) -> None:
        self.request = request
        self.response = response

    @property
    def url(self) -> str:
        """Where it came from."""
        return self.response.url

    @property
    def status(self) -> int:
        """HTTP status code."""
        return self.response.status

    @property
    def headers(self) -> Headers:
        """All headers."""
        return self.response.headers

    @property
    def body(self) -> bytes:
        """The body, decoded from its Content-Encoding."""
        return self.response.body

    @property
    def text(self) -> str:
        """The body as text, its charset found out."""
        return self.response.text

    @property
    def ctx(self) -> dict[str, Any]:
        """The context of the request."""
        return self.request.ctx

    @property
    def latency(self) -> float:
        """Seconds from sending the request to the first byte of the answer."""
        return self.response.latency

    def json(self) -> Any:
        """Return the body read as JSON. Raises ValueError if it is none."""
        return self.response.json()

    def css(self, query: str) -> SelectorList:
        """Select by CSS."""
        return self.response.css(query)

    def xpath(self, query: str) -> SelectorList:
        """Select by XPath."""
        return self.response.xpath(query)

    @property
    def file_name(self) -> str:
        """A name to save it under: of ``Content-Disposition`` (RFC 6266) or of the URL, without any folder.

        What file systems may not like is an underscore; without a name it is ``index`` with the type's ending.
        """
        name = _disposed(self.response.header("content-disposition"))
        name = name or unquote(urlsplit(self.url).path).rpartition("/")[2]
        name = _UNSAFE.sub("_", name.replace("\\", "/").rpartition("/")[2]).strip(". ")
        if name:
            return name[-200:]
        return "index.html" if self.response.is_html else "index"

    async def save(self, path: str | Path) -> None:
        """Write the body to a file, in one step: a reader never sees half of it."""
        await asyncio.to_thread(_write, Path(path), self.body)

    def __repr__(self) -> str:
        return f"<CollectorResponse {self.status} {self.url}>"


def _disposed(header: str) -> str:
    if not header:
        return ""
    message = Message()
    message["Content-Disposition"] = header
    return message.get_filename() or ""


def _write(path: Path, body: bytes) -> None:
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    draft.write_bytes(body)
    draft.replace(path)
