"""PageContext: the page that is being read, as the parts of a recipe see it; and texts with ``{NAME}`` in them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from skitter.errors import SkitterError
from skitter.response import Response
from skitter.web.urls import normalize

if TYPE_CHECKING:
    from skitter.frontends.scripting.engine import ScriptEngine
import io
from calendar import timegm
from datetime import UTC, datetime

from skitter.plugins import need


class PageError(SkitterError):
    """A page that is not as its recipe says; the page's request fails with it."""


class PageContext:
    """One page with what travelled to it.

    ``data``: values from the pages before, a copy for each page, so that siblings do not see each other's.
    """

    def __init__(
        self,
        response: Response,
        page: str,
        data: Mapping[str, Any],
        scripts: ScriptEngine | None = None,
        form: str = "auto",
    ) -> None:
        self.response = response
        self.page = page
        self.data = data
        self.scripts = scripts
        self._form = form

    @cached_property
    def root(self) -> Any:
        """What the selectors look into: the parsed page, or the value of a JSON page."""
        response = self.response
        if self._form == "feed":
            return read_feed(response)
        if self._form == "json" or (self._form == "auto" and "json" in response.content_type):
            try:
                return response.json()
            except ValueError as error:
                raise PageError(
                    f"{response.url} is no JSON: {error}", remedy="look at what the server answers"
                ) from None
        if self._form != "auto":
            kind = "text/html" if self._form == "html" else "application/xml"
            response = response.replace(headers={**response.headers, "content-type": kind})
        return response.selector

    def words(self) -> dict[str, Any]:
        """Return what texts may name."""
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
        """Return a link of the page as an absolute URL, or ``None`` for what is none."""
        return normalize(link, self.response.base_url)


_NAME = re.compile(r"(?<!\$)\{([A-Za-z_][\w.]*)\}")


class Template:
    """A text with ``{NAME}`` or ``{NAME.KEY}`` in it. What has no value becomes an empty text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.names = _NAME.findall(text)
        self._whole = _NAME.fullmatch(text)

    def fill(self, words: Mapping[str, Any]) -> Any:
        """Return the text with its names replaced; a text that is one name only keeps the type of its value."""
        if self._whole is not None:
            return _look_up(words, self._whole[1])
        return self.text_of(words)

    def text_of(self, words: Mapping[str, Any]) -> str:
        """Return the text with its names replaced."""
        return _NAME.sub(lambda found: _written(_look_up(words, found[1])), self.text)


def _look_up(words: Mapping[str, Any], name: str) -> Any:
    value: Any = words
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _written(value: Any) -> str:
    return "" if value is None else str(value)


def read_feed(response: Response) -> dict[str, Any]:
    """Return a feed as a mapping; what is no feed has no entries."""
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
            {"url": one.get("href"), "type": one.get("type"), "length": one.get("length")}
            for one in entry.get("enclosures") or []
        ],
    }


def _moment(entry: dict[str, Any], name: str) -> str | None:
    parsed = dict.get(entry, name)  # its own get takes one date for another
    return None if parsed is None else datetime.fromtimestamp(timegm(parsed), UTC).isoformat()
