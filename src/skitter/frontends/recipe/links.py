"""Links to follow from a page, forms to send, and the next page of a list."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from skitter.frontends.recipe.compile_context import CompileContext
from skitter.frontends.recipe.fields import ObjectReader, to_int
from skitter.frontends.recipe.finder import Finder, text_of
from skitter.frontends.recipe.forms import submit
from skitter.frontends.recipe.model import Follow, Paginate
from skitter.frontends.recipe.page_context import PageContext, PageError, Template
from skitter.frontends.recipe.request_data import batches, combinations, fields_for, link_filter
from skitter.html.selector import Selector
from skitter.links import Links
from skitter.plugins import need
from skitter.request import Request


class LinkRule:
    """Follows links of a page, or sends a form."""

    def __init__(self, follow: Follow, compile_context: CompileContext) -> None:
        self._follow = follow
        self.page = compile_context.page(follow.page)
        self._finder = Finder(follow, compile_context)
        self._each = None if follow.each is None else Finder(follow.each, compile_context.at("each"))
        self._filter = link_filter(follow, compile_context)
        self._url = None if follow.url is None else Template(follow.url)
        self._data = ObjectReader(follow.data, compile_context.at("data")) if follow.data else None
        self._selects = any((follow.css, follow.xpath, follow.json))
        self._check(compile_context)

    def _check(self, compile_context: CompileContext) -> None:
        follow = self._follow
        if follow.form is not None:
            if self._selects or follow.url or follow.each:
                compile_context.problem("a form excludes a selector, url and each", "remove them", "form")
            need("form2request", "recipes", "forms")
            Finder(follow.form.form, compile_context.at("form", "form", reads_json=False))
        elif not self._selects and self._url is None and self._each is None:
            compile_context.problem("no selector", "give css, xpath, json, url, each or form")

    def follow(self, context: PageContext) -> Iterator[Links | Request]:
        """Yield the requests. Raises :class:`~skitter.frontends.recipe.page_context.PageError` for a page that does not fit."""
        if self._follow.form is not None:
            yield from self._forms(context)
        elif self._data is None and self._each is None:
            hrefs = self._admitted(context, self._hrefs(context.root, context))
            if hrefs:
                yield from batches(context.response, hrefs, self._fields(context, context.data))
        else:
            yield from self._with_data(context)

    def _with_data(self, context: PageContext) -> Iterator[Links]:
        nodes = [context.root] if self._each is None else self._each.find(context.root)
        limit = self._follow.first
        for node in nodes:
            hrefs = self._admitted(context, self._hrefs(node, context), limit)
            if not hrefs:
                continue
            limit = None if limit is None else limit - len(hrefs)
            link_data = {} if self._data is None else self._data.read(node, context)
            yield from batches(context.response, hrefs, self._fields(context, {**context.data, **link_data}))
            if limit == 0:
                return

    def _fields(self, context: PageContext, data: Any) -> dict[str, Any]:
        follow = self._follow
        parent = context.response.request
        return fields_for(
            self.page, data, parent, headers=follow.headers, priority=follow.priority, queue=follow.queue
        )

    def _hrefs(self, node: Any, context: PageContext) -> list[str]:
        found = self._finder.find(node) if self._selects else [node]
        if self._url is not None:
            variables = context.variables()
            values = [_href(node) for node in found] if self._selects else [""]
            return [self._url.text_of({**variables, "value": value}) for value in values]
        return [href for node in found if (href := _href(node))]

    def _admitted(self, context: PageContext, hrefs: list[str], limit: int | None = None) -> list[str]:
        if self._filter is not None:
            hrefs = self._filter.select(context.response.base_url, context.response.encode_queries(hrefs))
        maximum = self._follow.first if limit is None else limit
        return hrefs if maximum is None else list(dict.fromkeys(hrefs))[:maximum]

    def _forms(self, context: PageContext) -> Iterator[Request]:
        form = self._follow.form
        assert form is not None
        parent = context.response.request
        cookies = {} if parent is None else parent.cookies
        for chosen in combinations(form.each):
            data = {**context.data, **chosen}
            if self._data is not None:
                data |= self._data.read(context.root, context)
            values = {**form.fields, **chosen}
            fields = {**self._fields(context, data), "cookies": cookies}
            yield submit(context.response, form.form, values, form.submit, **fields)


def _href(node: Any) -> str:
    if isinstance(node, Selector):
        return node.link or ""
    return "" if node is None else text_of(node)


class NextNumber:
    """Requests the next page with a number, an offset or a cursor in a parameter.

    Numbers continue while pages have content, so the page must have items or links.
    """

    def __init__(self, paging: Paginate, page: str, compile_context: CompileContext) -> None:
        self._paging = paging
        self._parameter = paging.parameter or ""
        self._page = page
        self._total = None if paging.total is None else Finder(paging.total, compile_context.at("total"))
        self._cursor = None if paging.cursor is None else Finder(paging.cursor, compile_context.at("cursor"))
        if self._cursor is not None and (self._total is not None or paging.last is not None):
            compile_context.problem("a cursor excludes total and last", "remove them", "cursor")

    def next(self, context: PageContext, found: int) -> Iterator[Links | Request]:
        """Yield the request for the next page, if there is one. ``found``: number of items and links of this page."""
        request = context.response.request or Request(context.response.url)
        if self._cursor is not None:
            value = self._cursor_of(self._cursor, context)
        else:
            value = self._number(context, request, found)
        if value is not None:
            url, body = _with_value(request, self._paging.place, self._parameter, value)
            fields = fields_for(self._page, context.data, request, priority=request.priority)
            fields["headers"] = {**request.headers, **fields.get("headers", {})}
            yield Request(url, method=request.method, body=body, cookies=request.cookies, **fields)

    @staticmethod
    def _cursor_of(cursor: Finder, context: PageContext) -> Any:
        # A tuple, not a set: an object in JSON is not hashable.
        found = [value for value in cursor.find(context.root) if value not in (None, "", False)]
        if not found:
            return None
        return found[0] if isinstance(found[0], (str, int)) else text_of(found[0]).strip() or None

    def _number(self, context: PageContext, request: Request, found: int) -> int | None:
        paging = self._paging
        current = self._current(request)
        number = current + paging.step
        if not found or (paging.last is not None and number > paging.last):
            return None
        if self._total is not None:
            totals = self._total.find(context.root)
            if not totals:
                raise PageError(
                    f"{context.response.url}: {self._total.source!r} found no total",
                    remedy="correct next.total",
                    field="next.total",
                )
            total = to_int(text_of(totals[0]))
            if number - paging.from_ >= total:
                return None
        return number

    def _current(self, request: Request) -> int:
        value = _value_in(request, self._paging.place, self._parameter)
        try:
            return self._paging.from_ if value is None else int(value)
        except (TypeError, ValueError):
            raise PageError(
                f"{request.url}: {self._parameter} is not a number: {value!r}",
                remedy="use a cursor",
                field="next.parameter",
            ) from None


def next_page(source: str | Paginate, page: str, compile_context: CompileContext) -> LinkRule | NextNumber:
    """Return the rule by which a recipe finds the next page."""
    selects = not isinstance(source, Paginate) or any((source.css, source.xpath, source.json))
    if isinstance(source, Paginate):
        if selects == (source.parameter is not None):
            compile_context.problem("requires either a selector of a link or a parameter", "give one of them")
        if not selects:
            return NextNumber(source, page, compile_context)
        for name in ("last", "total", "cursor"):
            if getattr(source, name) is not None:
                compile_context.problem("has no effect with a link", "remove it", name)
    chosen = compile_context.selection(source)
    return LinkRule(Follow(page=page, css=chosen.css, xpath=chosen.xpath, json=chosen.json), compile_context)


# --- parameters in the query, a form or JSON --------------------------------------------------------------


def _pairs_of(request: Request, place: str) -> str:
    return urlsplit(request.url).query if place == "query" else request.body.decode("utf-8", "replace")


def _value_in(request: Request, place: str, name: str) -> Any:
    """Return the value of a parameter of the URL, of a form, or of a JSON body; ``None`` if there is none."""
    if place != "json":
        return dict(parse_qsl(_pairs_of(request, place), keep_blank_values=True)).get(name)
    value: Any = json.loads(request.body or b"{}")
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _with_value(request: Request, place: str, name: str, value: Any) -> tuple[str, bytes]:
    """Return the URL and the body of a request with another value of a parameter."""
    if place == "json":
        body: Any = json.loads(request.body or b"{}")
        parent = body
        *parents, last = name.split(".")
        for part in parents:
            parent = parent.setdefault(part, {})
        parent[last] = value
        return request.url, json.dumps(body).encode()
    pairs = parse_qsl(_pairs_of(request, place), keep_blank_values=True)
    text = urlencode([*((key, old) for key, old in pairs if key != name), (name, str(value))])
    if place == "form":
        return request.url, text.encode()
    return urlunsplit(urlsplit(request.url)._replace(query=text)), request.body
