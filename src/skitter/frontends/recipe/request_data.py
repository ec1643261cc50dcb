"""The fields of a recipe's requests: page, data, language, cookies, each combination of values, and the filter of URLs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from skitter.frontends.recipe.compile_context import CompileContext
from skitter.frontends.recipe.model import Follow, Range, Start
from skitter.link_extractor import LinkFilter
from skitter.links import Links
from skitter.request import Request
from skitter.response import Response
from skitter.web.urls import join_all, may_carry_cookies

LANGUAGE = "language"
"""Key of ``meta`` for the language in which a page is requested. Part of the request's fingerprint."""


def fields_for(
    page: str,
    data: Mapping[str, Any],
    parent: Request | None,
    *,
    headers: Mapping[str, str] | None = None,
    priority: int = 0,
    queue: str = "",
) -> dict[str, Any]:
    """Return the fields of a request for a kind of page. The request keeps the language of its parent."""
    arguments: dict[str, Any] = {"page": page}
    if data:
        arguments["data"] = dict(data)
    fields: dict[str, Any] = {"cb_kwargs": arguments}
    language = None if parent is None else parent.meta.get(LANGUAGE)
    if language is not None:
        fields |= in_language(language)
    if headers:
        fields["headers"] = {**fields.get("headers", {}), **headers}
    if priority:
        fields["priority"] = priority
    if queue:
        fields["queue"] = queue
    return fields


def in_language(language: str) -> dict[str, Any]:
    """Return the fields of a request for a page in a language."""
    return {
        "headers": {"Accept-Language": language},
        "meta": {LANGUAGE: language},
        "fingerprint_keys": (LANGUAGE,),
    }


def link_filter(rule: Start | Follow, compile_context: CompileContext) -> LinkFilter | None:
    """Return the filter of the URLs that a rule follows, by ``match`` and ``skip``; ``None`` if it follows all."""
    match: Any = compile_context.patterns(rule.match, "match")
    skip: Any = compile_context.patterns(rule.skip, "skip")
    return LinkFilter(allow=match, deny=skip) if match or skip else None


def batches(response: Response, hrefs: Sequence[str], fields: dict[str, Any]) -> list[Links]:
    """Return links of a page as batches. Only links to the same host get the cookies of a login, but not from https to http."""
    base, hrefs = response.base_url, response.encode_queries(hrefs)
    cookies = {} if response.request is None else response.request.cookies
    if not cookies:
        return [Links(base, hrefs, fields)]
    page = response.url
    same_site: list[str] = []
    other_sites: list[str] = []
    for href, url in zip(hrefs, join_all(base, hrefs), strict=True):
        (same_site if url is not None and may_carry_cookies(page, url) else other_sites).append(href)
    found = [Links(base, same_site, {**fields, "cookies": cookies})] if same_site else []
    return [*found, Links(base, other_sites, fields)] if other_sites else found


def combinations(lists: Mapping[str, Sequence[Any] | Range]) -> Iterator[dict[str, Any]]:
    """Yield each combination of one value per list. The last list changes fastest. Without lists: one empty combination."""
    for values in product(*(_values(values) for values in lists.values())):
        yield dict(zip(lists, values, strict=True))


def _values(values: Sequence[Any] | Range) -> Sequence[Any]:
    return range(values.from_, values.to + 1, values.step) if isinstance(values, Range) else values
