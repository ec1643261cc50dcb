"""Rules: pages and starts that a script reads, by ``ctx``, instead of selectors."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from skitter.errors import did_you_mean
from skitter.frontends.recipe.page_context import PageContext, PageError
from skitter.frontends.recipe.request_data import batches, fields_for
from skitter.frontends.scripting.engine import ScriptEngine, ScriptPage
from skitter.links import Links
from skitter.request import Request
from skitter.response import Response
from skitter.web.media_types import is_json


class ScriptRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A request as a script gives it: ``ctx.follow(url, {page: "book", data: {...}})``."""

    url: str
    page: str = ""
    rule: str = ""
    """The same as ``page``, in the words of rule trees."""
    data: dict[str, Any] = {}
    method: str = "GET"
    headers: dict[str, str] = {}
    body: str = ""
    priority: int = 0
    queue: str = ""


class ScriptOutput(msgspec.Struct):
    """All that a script has given."""

    items: list[dict[str, Any]]
    requests: list[ScriptRequest]


class ScriptRule:
    """Reads a page, or begins, by a script."""

    def __init__(self, script: str, pages: Collection[str]) -> None:
        self._script = script
        self._pages = pages

    def read(self, context: PageContext) -> Iterator[dict[str, Any] | Links | Request]:
        """Give items and requests. Raises :class:`~skitter.frontends.recipe.page_context.PageError`, or the script's error."""
        assert context.scripts is not None, "the spider starts an engine for every recipe with scripts"
        words = {**context.words(), "rule": context.page}
        given = self._run(context.scripts, script_page(context.response), words)
        yield from given.items
        parent = context.response.request
        for wanted in given.requests:
            page = self._page(wanted, context.page)
            data = {**context.data, **wanted.data}
            fields = fields_for(
                page, data, parent, headers=wanted.headers, priority=wanted.priority, queue=wanted.queue
            )
            fields |= {"method": wanted.method, "body": wanted.body.encode()}
            yield from batches(context.response, [wanted.url], fields)

    def begin(self, scripts: ScriptEngine, page: str, words: Mapping[str, Any]) -> Iterator[Request]:
        """Give the first requests."""
        for wanted in self._run(scripts, ScriptPage("", ""), {**words, "data": {}, "rule": page}).requests:
            fields = fields_for(
                self._page(wanted, page),
                wanted.data,
                None,
                headers=wanted.headers,
                priority=wanted.priority,
                queue=wanted.queue,
            )
            yield Request(wanted.url, method=wanted.method, body=wanted.body.encode(), **fields)

    def _run(self, scripts: ScriptEngine, page: ScriptPage, words: Mapping[str, Any]) -> ScriptOutput:
        given = scripts.run_rule(self._script, page, words)
        try:
            return msgspec.convert(given, ScriptOutput)
        except msgspec.ValidationError as error:
            raise PageError(
                f"script: it gave what cannot be: {error}", remedy="see the manual on rules"
            ) from None

    def _page(self, wanted: ScriptRequest, own: str) -> str:
        name = wanted.page or wanted.rule or own
        if name not in self._pages:
            raise PageError(f"script: there is no page {name!r}", remedy=did_you_mean(name, self._pages))
        return name


def script_page(response: Response) -> ScriptPage:
    """Return a response as a script sees it."""
    kind = "xml" if response.is_xml else "json" if is_json(response.content_type) else "html"
    return ScriptPage(response.url, response.text, response.status, kind)
