"""Pages: what one kind of page gives, and where it leads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from skitter.frontends.recipe.context import Context, PageError
from skitter.frontends.recipe.finder import Finder
from skitter.frontends.recipe.items import ItemReader
from skitter.frontends.recipe.links import LinkRule
from skitter.frontends.recipe.model import Follow, Page, Paginate
from skitter.frontends.recipe.paging import next_page
from skitter.frontends.recipe.rules import ScriptRule
from skitter.frontends.recipe.workshop import Workshop
from skitter.links import Links
from skitter.plugins import need
from skitter.request import Request


class PageReader:
    """Reads one kind of page."""

    def __init__(self, name: str, page: Page, workshop: Workshop) -> None:
        self.name = name
        self.format = page.format
        self._pages = workshop.pages
        if page.format == "feed":
            need("feedparser", "recipes", "feeds")
        workshop = workshop.at(reads_json=page.format in {"json", "feed"})
        self._expect = None if page.expect is None else Finder(page.expect, workshop.at("expect"))
        given = page.items if isinstance(page.items, list) else [page.items]
        places = [
            ("items", place) if isinstance(page.items, list) else ("items",) for place in range(len(given))
        ]
        self._items = [ItemReader(one, workshop.at(*place)) for one, place in zip(given, places, strict=True)]
        self._rules = [
            LinkRule(_follow(one, name, workshop), workshop.at("follow", place))
            for place, one in enumerate(page.follow)
        ]
        self._script = None if page.script is None else ScriptRule(page.script, workshop.pages)
        self._next = None if page.next is None else next_page(page.next, name, workshop.at("next"))
        declared = self._items or self._rules or self._next
        if not declared and self._script is None:
            workshop.problem("gives nothing", "add items, follow, next or script")
        if declared and self._script is not None:
            workshop.problem("stands beside items, follow or next", "let the script do all of it", "script")
        numbered = isinstance(page.next, Paginate) and page.next.parameter is not None
        if numbered and not (self._items or self._rules):
            workshop.problem("never ends: nothing on the page tells that it is empty", "add items", "next")

    @property
    def uses_scripts(self) -> bool:
        """Whether something on it has a script."""
        own = self._script is not None
        return (
            own
            or any(one.uses_scripts for one in self._items)
            or any(one.uses_scripts for one in self._rules)
        )

    @property
    def leads_to(self) -> set[str]:
        """Names of the kinds of pages that its links lead to; all of them if only a script knows."""
        if self._script is not None:
            return set(self._pages)
        return {rule.page for rule in self._rules}

    def read(self, context: Context) -> Iterator[dict[str, Any] | Links | Request]:
        """Give items and requests. Raises :class:`~skitter.frontends.recipe.context.PageError`."""
        if self._expect is not None and not self._expect.find(context.root):
            raise PageError(
                f"{context.response.url} has nothing like {self._expect.source!r}",
                remedy="it is another kind of page, or the site has changed",
            )
        if self._script is not None:
            yield from self._script.read(context)
        found = 0
        for reader in self._items:
            for item in reader.read(context):
                found += 1
                yield item
        for rule in self._rules:
            for given in rule.follow(context):
                found += len(given) if isinstance(given, Links) else 1
                yield given
        if self._next is not None:
            yield from self._next.next(context, found)


def _follow(given: str | Follow, page: str, workshop: Workshop) -> Follow:
    """Return a rule that may have been written as a bare selector: it leads to pages of the same kind."""
    if isinstance(given, Follow):
        return given
    chosen = workshop.selection(given)
    return Follow(page=page, css=chosen.css, json=chosen.json)
