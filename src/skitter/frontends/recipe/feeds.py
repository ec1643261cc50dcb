"""Feeds: RSS, Atom and RDF as one plain mapping, so that a recipe reads them like JSON.

``title``, ``link``, ``language``, ``updated`` of the feed, and ``entries`` with ``id``, ``title``, ``link``,
``published``, ``updated``, ``author``, ``summary``, ``content``, ``tags`` and ``enclosures`` each. Dates are ISO 8601
in UTC.
"""

from __future__ import annotations

import io
from calendar import timegm
from datetime import UTC, datetime
from typing import Any

from skitter.plugins import need
from skitter.response import Response


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
