"""Links: what to follow from a page, and what travels along."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from skitter.frontends.recipe.combinations import combinations
from skitter.frontends.recipe.context import Context, Template
from skitter.frontends.recipe.fields import ObjectReader
from skitter.frontends.recipe.finder import Finder, text_of
from skitter.frontends.recipe.forms import submit
from skitter.frontends.recipe.model import Follow
from skitter.frontends.recipe.travel import batches, fields_for
from skitter.frontends.recipe.workshop import Workshop
from skitter.html.selector import Selector
from skitter.links import Links
from skitter.plugins import need
from skitter.request import Request
from skitter.web.urls import join_all


class LinkRule:
    """Follows links of a page, or sends a form of it."""

    def __init__(self, follow: Follow, workshop: Workshop) -> None:
        self._follow = follow
        self.page = workshop.page(follow.page)
        self._finder = Finder(follow, workshop)
        self._each = None if follow.each is None else Finder(follow.each, workshop.at("each"))
        self._match = workshop.patterns(follow.match, "match")
        self._skip = workshop.patterns(follow.skip, "skip")
        self._url = None if follow.url is None else Template(follow.url)
        self._data = ObjectReader(follow.data, workshop.at("data")) if follow.data else None
        self._selects = any((follow.css, follow.xpath, follow.json))
        self._check(workshop)

    def _check(self, workshop: Workshop) -> None:
        follow = self._follow
        if follow.form is not None:
            if self._selects or follow.url or follow.each:
                workshop.problem("a form has no selector, url or each beside it", "leave them out", "form")
            need("form2request", "recipes", "forms")
            Finder(follow.form.form, workshop.at("form", "form", reads_json=False))
        elif not self._selects and self._url is None and self._each is None:
            workshop.problem("selects nothing", "give css, xpath, json, url, each or form")

    @property
    def uses_scripts(self) -> bool:
        """Whether one of its data has a script."""
        return self._data is not None and self._data.uses_scripts

    def follow(self, context: Context) -> Iterator[Links | Request]:
        """Give the requests. Raises :class:`~skitter.frontends.recipe.context.PageError`."""
        if self._follow.form is not None:
            yield from self._forms(context)
        elif self._data is None and self._each is None:
            hrefs = self._admitted(context, self._hrefs(context.root, context))
            if hrefs:
                yield from batches(context.response, hrefs, self._fields(context, context.data))
        else:
            yield from self._with_data(context)

    def _with_data(self, context: Context) -> Iterator[Links]:
        nodes = [context.root] if self._each is None else self._each.find(context.root)
        left = self._follow.first
        for node in nodes:
            hrefs = self._admitted(context, self._hrefs(node, context), left)
            if not hrefs:
                continue
            left = None if left is None else left - len(hrefs)
            own = {} if self._data is None else self._data.read(node, context)
            yield from batches(context.response, hrefs, self._fields(context, {**context.data, **own}))
            if left == 0:
                return

    def _fields(self, context: Context, data: Any) -> dict[str, Any]:
        follow = self._follow
        parent = context.response.request
        return fields_for(
            self.page, data, parent, headers=follow.headers, priority=follow.priority, queue=follow.queue
        )

    def _hrefs(self, node: Any, context: Context) -> list[str]:
        found = self._finder.find(node) if self._selects else [node]
        if self._url is not None:
            words = context.words()
            values = [_href(one) for one in found] if self._selects else [""]
            return [self._url.text_of({**words, "value": value}) for value in values]
        return [href for one in found if (href := _href(one))]

    def _admitted(self, context: Context, hrefs: list[str], left: int | None = None) -> list[str]:
        if self._match or self._skip:
            urls = join_all(context.response.base_url, hrefs)
            hrefs = [href for href, url in zip(hrefs, urls, strict=True) if url and self._admits(url)]
        limit = self._follow.first if left is None else left
        return hrefs if limit is None else list(dict.fromkeys(hrefs))[:limit]

    def _admits(self, url: str) -> bool:
        if self._match and not any(pattern.search(url) for pattern in self._match):
            return False
        return not any(pattern.search(url) for pattern in self._skip)

    def _forms(self, context: Context) -> Iterator[Request]:
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
