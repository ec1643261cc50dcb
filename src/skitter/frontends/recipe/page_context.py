"""PageContext: the page that a recipe reads, with its data, and the templates and feeds that are evaluated on it."""

from __future__ import annotations

import io
import re
from calendar import timegm
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from skitter.errors import SkitterError
from skitter.plugins import need
from skitter.response import Response
from skitter.web.urls import normalize

if TYPE_CHECKING:
    from skitter.frontends.scripting.engine import ScriptEngine


class PageError(SkitterError):
    """A page that does not match its recipe. The request of the page fails with this error."""


@dataclass
class PageContext:
    """One page with the data of its request."""

    response: Response
    page: str
    data: Mapping[str, Any]
    """Values from earlier pages, copied for each page, so siblings never see each other's data."""
    scripts: ScriptEngine | None = None
    form: str = "auto"

    @cached_property
    def root(self) -> Any:
        """The input of selectors: the parsed page, or the value of a JSON page."""
        response = self.response
        if self.form == "feed":
            return read_feed(response)
        if self.form == "json" or (self.form == "auto" and "json" in response.content_type):
            try:
                return response.json()
            except ValueError as error:
                raise PageError(
                    f"invalid JSON at {response.url}: {error}", remedy="check the response of the server"
                ) from None
        if self.form != "auto":
            kind = "text/html" if self.form == "html" else "application/xml"
            response = response.replace(
                headers={**response.headers, "content-type": kind}, encoding=response.encoding
            )
        return response.selector

    def variables(self) -> dict[str, Any]:
        """Return the values that templates can refer to."""
        request = self.response.request
        return {
            "url": self.response.url,
            "status": self.response.status,
            "depth": self.response.depth,
            "page": self.page,
            "referer": None if request is None else request.referer,
            "language": self.data.get("language"),
            "data": self.data,
        }

    def absolute(self, link: str) -> str | None:
        """Return a link of the page as an absolute URL, or ``None`` if it is invalid."""
        return normalize(self.response.encode_query(link), self.response.base_url)


_NAME = re.compile(r"(?<!\$)\{([A-Za-z_][\w.]*)\}")


class Template:
    """A text with placeholders ``{NAME}`` or ``{NAME.KEY}``. A missing value becomes an empty string."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.names = _NAME.findall(text)
        self._whole = _NAME.fullmatch(text)

    def fill(self, variables: Mapping[str, Any]) -> Any:
        """Return the text with its placeholders replaced. A single placeholder keeps the type of its value."""
        if self._whole is not None:
            return _look_up(variables, self._whole[1])
        return self.text_of(variables)

    def text_of(self, variables: Mapping[str, Any]) -> str:
        """Return the text with its placeholders replaced, as a string."""

        def text(found: re.Match[str]) -> str:
            value = _look_up(variables, found[1])
            return "" if value is None else str(value)

        return _NAME.sub(text, self.text)


def _look_up(variables: Mapping[str, Any], name: str) -> Any:
    value: Any = variables
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def read_feed(response: Response) -> dict[str, Any]:
    """Return an RSS, Atom or RDF feed as a mapping, so that recipes read it like JSON.

    The feed has ``title``, ``link``, ``language``, ``updated`` and ``entries``. Each entry has ``id``, ``title``,
    ``link``, ``published``, ``updated``, ``author``, ``summary``, ``content``, ``tags`` and ``enclosures``. Dates are
    ISO 8601 in UTC. Any other document is a feed without entries.
    """
    feedparser = need("feedparser", "recipes", "feeds")
    headers = {"content-type": response.header("content-type"), "content-location": response.url}
    parsed = feedparser.parse(io.BytesIO(response.body), response_headers=headers)
    head = parsed.feed
    return {
        "title": head.get("title"),
        "link": head.get("link"),
        "language": head.get("language"),
        "updated": _moment(head, "updated_parsed"),
        "entries": [_entry(entry) for entry in parsed.entries],
    }


def _entry(entry: Any) -> dict[str, Any]:
    contents = entry.get("content") or []
    return {
        "id": entry.get("id"),
        "title": entry.get("title"),
        "link": entry.get("link"),
        "published": _moment(entry, "published_parsed"),
        "updated": _moment(entry, "updated_parsed"),
        "author": entry.get("author"),
        "summary": entry.get("summary"),
        "content": contents[0].get("value") if contents else None,
        "tags": [tag.get("term") for tag in entry.get("tags") or []],
        "enclosures": [
            {"url": enclosure.get("href"), "type": enclosure.get("type"), "length": enclosure.get("length")}
            for enclosure in entry.get("enclosures") or []
        ],
    }


def _moment(entry: dict[str, Any], name: str) -> str | None:
    parsed = dict.get(entry, name)  # feedparser's own get() falls back to another date
    return None if parsed is None else datetime.fromtimestamp(timegm(parsed), UTC).isoformat()
