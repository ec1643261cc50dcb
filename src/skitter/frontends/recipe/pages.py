"""The kinds of pages of a recipe: how pages are loaded, items are read, and links are followed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from skitter.browsing import Browsing, browsing_of
from skitter.errors import RequestError
from skitter.frontends.recipe.compile_context import CompileContext
from skitter.frontends.recipe.fields import ObjectReader
from skitter.frontends.recipe.finder import Finder
from skitter.frontends.recipe.links import LinkRule, NextNumber, next_page
from skitter.frontends.recipe.model import Follow, Items, Paginate, RecipePage, reads_content, scripts_in
from skitter.frontends.recipe.page_context import PageContext, PageError
from skitter.frontends.recipe.script_rule import ScriptRule
from skitter.links import Links
from skitter.plugins import need
from skitter.request import Request


class PageReader:
    """Reads one kind of page."""

    def __init__(self, name: str, page: RecipePage, compile_context: CompileContext) -> None:
        self.name = name
        self.format = page.format
        self.uses_scripts = any(scripts_in(page))
        """Whether any part of the page has a script."""
        self.is_slow = self.uses_scripts or reads_content(page)
        """Whether the page is read in a thread, because scripts and the extraction of main content take long."""
        self._pages = compile_context.pages
        if page.format == "feed":
            need("feedparser", "recipes", "feeds")
        compile_context = compile_context.at(reads_json=page.format in {"json", "feed"})
        self._expect = None if page.expect is None else Finder(page.expect, compile_context.at("expect"))
        self._items = [
            ItemReader(items, context) for items, context in compile_context.each("items", page.items)
        ]
        self._rules = [
            LinkRule(_follow(follow, name, context), context)
            for follow, context in compile_context.each("follow", page.follow)
        ]
        self._script = None if page.script is None else ScriptRule(page.script, compile_context)
        self._next = None if page.next is None else next_page(page.next, name, compile_context.at("next"))
        declared = self._items or self._rules or self._next
        if not declared and self._script is None:
            compile_context.problem("has no content", "add items, follow, next or script")
        if declared and self._script is not None:
            compile_context.problem(
                "excludes items, follow and next", "move all of the work to the script", "script"
            )
        numbered = isinstance(page.next, Paginate) and page.next.parameter is not None
        if numbered and not (self._items or self._rules):
            compile_context.problem(
                "never ends, because nothing shows that a page is empty", "add items", "next"
            )

    @property
    def leads_to(self) -> set[str]:
        """Names of the kinds of pages that its links lead to. With a script: all of them."""
        if self._script is not None:
            return set(self._pages)
        return {rule.page for rule in self._rules}

    def read(self, context: PageContext) -> Iterator[dict[str, Any] | Links | Request]:
        """Yield items and requests. Raises :class:`~skitter.frontends.recipe.page_context.PageError` for another kind of page."""
        if self._expect is not None and not self._expect.find(context.root):
            raise PageError(
                f"{context.response.url} does not contain {self._expect.source!r}",
                remedy="check the page: it may have changed, or be of another kind",
                field="expect",
            )
        if self._script is not None:
            yield from self._script.read(context)
        found = 0
        for reader in self._items:
            for item in reader.read(context):
                found += 1
                yield item
        for rule in self._rules:
            for requests in rule.follow(context):
                found += len(requests) if isinstance(requests, Links) else 1
                yield requests
        if isinstance(self._next, NextNumber):
            yield from self._next.next(context, found)
        elif self._next is not None:
            yield from self._next.follow(context)


def _follow(source: str | Follow, page: str, compile_context: CompileContext) -> Follow:
    """Return a rule, converted from a bare selector if necessary. The bare selector leads to pages of the same kind."""
    if isinstance(source, Follow):
        return source
    chosen = compile_context.selection(source)
    return Follow(page=page, css=chosen.css, json=chosen.json)


class ItemReader:
    """Reads the items of one kind: one per page, or one per block."""

    def __init__(self, items: Items, compile_context: CompileContext) -> None:
        self._each = Finder(items.each, compile_context.at("each")) if items.each else None
        self._when = None if items.when is None else Finder(items.when, compile_context.at("when"))
        self._object = ObjectReader(items.fields, compile_context.at("fields"))

    def read(self, context: PageContext) -> Iterator[dict[str, Any]]:
        """Yield the items. Raises :class:`~skitter.frontends.recipe.page_context.PageError` for another kind of page."""
        nodes = [context.root] if self._each is None else self._each.find(context.root)
        for node in nodes:
            if self._when is None or self._when.find(node):
                yield self._object.read(node, context)


class PageLoading(msgspec.Struct, frozen=True):
    """The fetcher and the browser options of a kind of page."""

    fetcher: str
    browsing: Browsing | None


def page_loading(page: RecipePage, compile_context: CompileContext) -> PageLoading | None:
    """Return how the pages of a kind are loaded; ``None``: as in the job. Invalid actions become problems."""
    if not (page.wait_for or page.actions):
        return PageLoading(page.fetch, None) if page.fetch else None
    if page.fetch == "http":
        compile_context.problem(
            "needs a browser", "write fetch: browser", "actions" if page.actions else "wait_for"
        )
    wait_for = page.wait_for if isinstance(page.wait_for, str) else {"do": "wait", **page.wait_for}
    try:
        browsing = browsing_of({"wait_for": wait_for, "actions": page.actions})
    except RequestError as error:
        compile_context.problem(str(error), error.remedy, "actions" if page.actions else "wait_for")
        return None
    return PageLoading(page.fetch or "browser", browsing)


class LoadingHook:
    """Gives each request the fetcher and the browser options of its kind of page, unless it has its own."""

    def __init__(self, loading: Mapping[str, PageLoading], first_page: str) -> None:
        self._loading = loading
        self._first_page = first_page

    def before_request(self, request: Request) -> Request | None:
        """Return the request with its fetcher, if its kind of page names one."""
        loading = self._loading.get(request.cb_kwargs.get("page") or self._first_page)
        if loading is None:
            return None
        browsing = loading.browsing if request.browsing is None else request.browsing
        return request.replace(fetcher=request.fetcher or loading.fetcher, browsing=browsing)
