"""Paging: from a page of a list to the next one: by a link, a number, an offset or a cursor.

By number it goes on while pages have something on them, which is why a page with ``parameter`` has to have items or
links of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from skitter.frontends.recipe.context import Context, PageError
from skitter.frontends.recipe.finder import Finder, text_of
from skitter.frontends.recipe.links import LinkRule
from skitter.frontends.recipe.model import Follow, Paginate
from skitter.frontends.recipe.travel import fields_for
from skitter.frontends.recipe.values import to_int
from skitter.frontends.recipe.workshop import Workshop
from skitter.links import Links
from skitter.request import Request


class NextLink:
    """The next page is behind a link."""

    def __init__(self, given: str | Paginate, page: str, workshop: Workshop) -> None:
        chosen = workshop.selection(given)
        follow = Follow(page=page, css=chosen.css, xpath=chosen.xpath, json=chosen.json)
        self._rule = LinkRule(follow, workshop)

    def next(self, context: Context, found: int) -> Iterator[Links | Request]:
        """Give the request for the next page, if there is one."""
        del found
        yield from self._rule.follow(context)


class NextNumber:
    """The next page is asked for by a number, an offset or a cursor in a parameter."""

    def __init__(self, paging: Paginate, page: str, workshop: Workshop) -> None:
        self._paging = paging
        self._parameter = paging.parameter or ""
        self._page = page
        self._total = None if paging.total is None else Finder(paging.total, workshop.at("total"))
        self._cursor = None if paging.cursor is None else Finder(paging.cursor, workshop.at("cursor"))
        if self._cursor is not None and (self._total is not None or paging.last is not None):
            workshop.problem("a cursor has no total and no last", "leave them out", "cursor")

    def next(self, context: Context, found: int) -> Iterator[Links | Request]:
        """Give the request for the next page, if there is one. ``found``: items and links of this one."""
        request = context.response.request or Request(context.response.url)
        value = (
            self._cursor_of(context) if self._cursor is not None else self._number(context, request, found)
        )
        if value is not None:
            yield self._asking(request, value, context)

    def _cursor_of(self, context: Context) -> Any:
        assert self._cursor is not None
        found = [one for one in self._cursor.find(context.root) if one not in {None, "", False}]
        if not found:
            return None
        return found[0] if isinstance(found[0], (str, int)) else text_of(found[0]).strip() or None

    def _number(self, context: Context, request: Request, found: int) -> int | None:
        paging = self._paging
        current = self._current(request)
        number = current + paging.step
        if not found or (paging.last is not None and number > paging.last):
            return None
        if self._total is not None:
            totals = self._total.find(context.root)
            if not totals:
                raise PageError(
                    f"{context.response.url}: no total was found by {self._total.source!r}",
                    remedy="correct next.total",
                )
            total = to_int(text_of(totals[0]))
            if number - paging.from_ >= total:
                return None
        return number

    def _current(self, request: Request) -> int:
        value = _READ[self._paging.place](request, self._parameter)
        try:
            return self._paging.from_ if value is None else int(value)
        except (TypeError, ValueError):
            raise PageError(
                f"{request.url}: {self._parameter} is {value!r}, no number", remedy="use a cursor"
            ) from None

    def _asking(self, request: Request, value: Any, context: Context) -> Request:
        url, body = _WRITTEN[self._paging.place](request, self._parameter, value)
        fields = fields_for(self._page, context.data, request, priority=request.priority)
        return Request(
            url,
            **{
                **fields,
                "method": request.method,
                "body": body,
                "headers": {**request.headers, **fields.get("headers", {})},
                "cookies": request.cookies,
            },
        )


def next_page(given: str | Paginate, page: str, workshop: Workshop) -> NextLink | NextNumber:
    """Return how a recipe comes to the next page."""
    selects = not isinstance(given, Paginate) or any((given.css, given.xpath, given.json))
    if isinstance(given, Paginate):
        if selects == (given.parameter is not None):
            workshop.problem("needs either a selector of a link or a parameter", "give one of them")
        if not selects:
            return NextNumber(given, page, workshop)
        for name in ("last", "total", "cursor"):
            if getattr(given, name) is not None:
                workshop.problem("has no meaning beside a link", "leave it out", name)
    return NextLink(given, page, workshop)


# --- where a parameter stands --------------------------------------------------------------------------------


def _query_value(request: Request, name: str) -> str | None:
    return dict(parse_qsl(urlsplit(request.url).query, keep_blank_values=True)).get(name)


def _form_value(request: Request, name: str) -> str | None:
    return dict(parse_qsl(request.body.decode("utf-8", "replace"), keep_blank_values=True)).get(name)


def _json_value(request: Request, name: str) -> Any:
    value: Any = json.loads(request.body or b"{}")
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _with_pair(pairs: str, name: str, value: Any) -> str:
    kept = [(key, old) for key, old in parse_qsl(pairs, keep_blank_values=True) if key != name]
    return urlencode([*kept, (name, str(value))])


def _query_written(request: Request, name: str, value: Any) -> tuple[str, bytes]:
    parts = urlsplit(request.url)
    return urlunsplit(parts._replace(query=_with_pair(parts.query, name, value))), request.body


def _form_written(request: Request, name: str, value: Any) -> tuple[str, bytes]:
    return request.url, _with_pair(request.body.decode("utf-8", "replace"), name, value).encode()


def _json_written(request: Request, name: str, value: Any) -> tuple[str, bytes]:
    body: Any = json.loads(request.body or b"{}")
    place = body
    *parents, last = name.split(".")
    for part in parents:
        place = place.setdefault(part, {})
    place[last] = value
    return request.url, json.dumps(body).encode()


_READ: dict[str, Callable[[Request, str], Any]] = {
    "query": _query_value,
    "form": _form_value,
    "json": _json_value,
}
_WRITTEN: dict[str, Callable[[Request, str, Any], tuple[str, bytes]]] = {
    "query": _query_written,
    "form": _form_written,
    "json": _json_written,
}
