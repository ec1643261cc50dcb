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
from skitter.response import Response


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
        read = script_page(context.response)
        if (request := context.response.request) is not None:
            read.method, read.priority = request.method, request.priority
        output = self._run(context.scripts, read, variables)
        yield from output.items
        parent = context.response.request
        for script_request in output.requests:
            page = self._page(script_request, context.page)
            data = {**context.data, **script_request.data}
            fields = fields_for(
                page,
                data,
                parent,
                headers=script_request.headers,
                priority=script_request.priority,
                queue=script_request.queue,
            )
            fields |= {"method": script_request.method, "body": script_request.body.encode()}
            yield from batches(context.response, [script_request.url], fields)

    def begin(self, scripts: ScriptEngine, page: str, variables: Mapping[str, Any]) -> Iterator[Request]:
        """Yield the start requests."""
        for script_request in self._run(
            scripts, ScriptPage("", ""), {**variables, "data": {}, "rule": page}
        ).requests:
            fields = fields_for(
                self._page(script_request, page),
                script_request.data,
                None,
                headers=script_request.headers,
                priority=script_request.priority,
                queue=script_request.queue,
            )
            yield Request(
                script_request.url, method=script_request.method, body=script_request.body.encode(), **fields
            )

    def _run(self, scripts: ScriptEngine, page: ScriptPage, variables: Mapping[str, Any]) -> ScriptOutput:
        page.task, page.rules = self._recipe, [*self._pages]
        value = scripts.run_rule(self._script, page, variables)
        try:
            return msgspec.convert(value, ScriptOutput)
        except msgspec.ValidationError as error:
            raise PageError(
                f"invalid result of a script: {error}", remedy="see the guide on recipes", field="script"
            ) from None

    def _page(self, script_request: ScriptRequest, own: str) -> str:
        name = script_request.page or script_request.rule or own
        if name not in self._pages:
            raise PageError(
                f"unknown page {name!r} in a script", remedy=did_you_mean(name, self._pages), field="script"
            )
        return name


def script_page(response: Response) -> ScriptPage:
    """Return a response in the form in which a script receives it."""
    kind = "xml" if response.is_xml else "json" if response.is_json else "html"
    return ScriptPage(response.url, response.text, response.status, kind)
