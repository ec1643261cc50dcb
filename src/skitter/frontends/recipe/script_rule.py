"""ScriptRule: pages that a script reads, and start requests that a script makes, instead of selectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from skitter.errors import did_you_mean
from skitter.frontends.recipe.compile_context import CompileContext
from skitter.frontends.recipe.page_context import PageContext, PageError
from skitter.frontends.recipe.request_data import batches, fields_for
from skitter.frontends.scripting.engine import ScriptEngine, ScriptPage
from skitter.links import Links
from skitter.request import Request


class ScriptRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A request from a script: ``ctx.follow(url, {page: "book", data: {...}})``."""

    url: str
    page: str = ""
    rule: str = ""
    """Another name for ``page``."""
    data: dict[str, Any] = {}
    method: str = "GET"
    headers: dict[str, str] = {}
    body: str = ""
    priority: int = 0
    queue: str = ""


class ScriptOutput(msgspec.Struct):
    """The items and requests from a script."""

    items: list[dict[str, Any]]
    requests: list[ScriptRequest]


class ScriptRule:
    """Reads a page, or makes start requests, with a script."""

    def __init__(self, script: str, compile_context: CompileContext) -> None:
        self._script = script
        self._recipe = compile_context.recipe
        self._pages = compile_context.pages

    def read(self, context: PageContext) -> Iterator[dict[str, Any] | Links | Request]:
        """Yield items and requests.

        Raises :class:`~skitter.frontends.recipe.page_context.PageError` for an invalid result, or the script's error.
        """
        assert context.scripts is not None, "a recipe with scripts has a script engine"
        variables = {**context.variables(), "rule": context.page}
        response = context.response
        kind = "xml" if response.is_xml else "json" if response.is_json else "html"
        read = ScriptPage(response.url, response.text, response.status, kind)
        if (request := response.request) is not None:
            read.method, read.priority = request.method, request.priority
        output = self._run(context.scripts, read, variables)
        yield from output.items
        for asked in output.requests:
            data = {**context.data, **asked.data}
            fields = self._fields(asked, context.page, data, context.response.request)
            yield from batches(context.response, [asked.url], fields)

    def begin(self, scripts: ScriptEngine, page: str, variables: Mapping[str, Any]) -> Iterator[Request]:
        """Yield the start requests."""
        output = self._run(scripts, ScriptPage("", ""), {**variables, "data": {}, "rule": page})
        for asked in output.requests:
            yield Request(asked.url, **self._fields(asked, page, asked.data, None))

    def _run(self, scripts: ScriptEngine, page: ScriptPage, variables: Mapping[str, Any]) -> ScriptOutput:
        page.task, page.rules = self._recipe, [*self._pages]
        value = scripts.run_rule(self._script, page, variables)
        try:
            return msgspec.convert(value, ScriptOutput)
        except msgspec.ValidationError as error:
            raise PageError(
                f"invalid result of a script: {error}", remedy="see the guide on recipes", field="script"
            ) from None

    def _fields(
        self, asked: ScriptRequest, own: str, data: Mapping[str, Any], parent: Request | None
    ) -> dict[str, Any]:
        """Return the fields of a request. It leads to the page ``own`` if the script names none."""
        name = asked.page or asked.rule or own
        if name not in self._pages:
            raise PageError(
                f"unknown page {name!r} in a script", remedy=did_you_mean(name, self._pages), field="script"
            )
        fields = fields_for(
            name, data, parent, headers=asked.headers, priority=asked.priority, queue=asked.queue
        )
        return {**fields, "method": asked.method, "body": asked.body.encode()}
