"""The start requests of a recipe, for each combination of values and each language, and its sitemaps."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from skitter.errors import SkitterError
from skitter.frontends.recipe.compile_context import CompileContext
from skitter.frontends.recipe.model import Range, Start
from skitter.frontends.recipe.page_context import PageContext, Template
from skitter.frontends.recipe.request_data import (
    LANGUAGE,
    batches,
    combinations,
    fields_for,
    in_language,
    link_filter,
)
from skitter.frontends.recipe.script_rule import ScriptRule
from skitter.frontends.recipe.validation import is_open
from skitter.frontends.scripting.engine import ScriptEngine
from skitter.links import Links
from skitter.request import URLENCODED, Request, encode_form
from skitter.scope import Scope
from skitter.web.urls import host_of, normalize, without_port


class StartRule:
    """One entry of ``start``."""

    def __init__(
        self, declared: str | Start, place: int, languages: Sequence[str], compile_context: CompileContext
    ) -> None:
        self._start = start = Start(url=declared) if isinstance(declared, str) else declared
        self._place = place
        self._languages = languages
        self.page = (
            compile_context.page(start.page)
            if start.page is not None
            else next(iter(compile_context.pages), "")
        )
        self._filter = link_filter(start, compile_context)
        self._script = None if start.script is None else ScriptRule(start.script, compile_context)
        self._url = Template(start.url or start.sitemap or "")
        self._check(compile_context, bare=isinstance(declared, str))

    def _check(self, compile_context: CompileContext, *, bare: bool) -> None:
        start = self._start
        place = () if bare else ("url",) if start.url is not None else ("sitemap",)
        if sum(source is not None for source in (start.url, start.sitemap, start.script)) != 1:
            compile_context.problem("requires exactly one of url, sitemap and script", "give one of them")
            return
        if self._script is not None:
            return
        if sum(body is not None for body in (start.body, start.form, start.json)) > 1:
            compile_context.problem("body, form and json exclude each other", "keep one of them")
        elif start.method.upper() in {"GET", "HEAD"} and (start.form is not None or start.json is not None):
            compile_context.problem("a GET request cannot have a body", "add `method: POST`", "method")
        for name, values in start.each.items():
            if (values.to < values.from_) if isinstance(values, Range) else not values:
                compile_context.problem("empty", "give at least one value", "each", name)
        names = {*start.each, LANGUAGE}
        for name in self._url.names:
            if name not in names:
                compile_context.problem(
                    f"{{{name}}} has no values", f"add them: each: {{{name}: [...]}}", *place
                )
                return
        if not is_open(self._url.text) and self.example() is None:
            compile_context.problem(
                f"not an absolute http(s) URL: {self._url.text!r}",
                "write it like https://example.com/",
                *place,
            )

    def example(self) -> str | None:
        """Return one of its URLs, or ``None`` if it cannot be fetched."""
        variables = next(combinations(self._start.each), {})
        url = normalize(self._url.text_of({LANGUAGE: next(iter(self._languages), ""), **variables}))
        return url if url is not None and url.startswith(("http://", "https://")) else None

    @property
    def hosts(self) -> list[str]:
        """Hosts of its URLs."""
        if is_open(self._url.text) or self._script is not None:
            return []
        urls = (normalize(self._url.text_of({LANGUAGE: language, **variables})) for variables in
                combinations(self._start.each) for language in self._languages or [""])  # fmt: skip
        return list(dict.fromkeys(host_of(url) for url in urls if url is not None))

    @property
    def uses_scripts(self) -> bool:
        """Whether a script makes its requests."""
        return self._script is not None

    def requests(self, scripts: ScriptEngine | None = None) -> Iterator[Request]:
        """Yield its requests, always in the same order."""
        if self._script is not None:
            assert scripts is not None, "a recipe with scripts has a script engine"
            yield from self._script.begin(scripts, self.page, {"languages": list(self._languages)})
            return
        for language in self._languages or (None,):
            for variables in combinations(self._start.each):
                yield self._request(variables, language)

    def _request(self, variables: Mapping[str, Any], language: str | None) -> Request:
        start = self._start
        data = {**start.data, **variables}
        spoken = {} if language is None else in_language(language)
        if language is not None:
            data[LANGUAGE] = language
        filled = {**variables, LANGUAGE: language}
        fields = fields_for(
            self.page, data, None, headers=start.headers, priority=start.priority, queue=start.queue
        )
        body, kind = _body_of(start, filled)
        headers = {**spoken.pop("headers", {}), **kind, **fields.pop("headers", {})}
        if start.sitemap is not None:
            fields["cb_kwargs"] |= {"sitemap": self._place}
        return Request(
            self._url.text_of(filled), method=start.method, headers=headers, body=body, **fields, **spoken
        )

    def of_sitemap(self, context: PageContext, *, uses_lastmod: bool = False) -> Iterator[Links]:
        """Yield the pages and sitemaps that a sitemap lists. ``uses_lastmod``: the requests of pages have their ``lastmod``."""
        response, now = context.response, time.time()
        pages: dict[str, list[str]] = {}
        sitemaps: list[str] = []
        for entry in response.sitemap():
            if entry.is_sitemap:
                sitemaps.append(entry.url)
            elif self._filter is None or self._filter.admits(entry.url):
                lastmod = entry.lastmod_for_revisit(now) if uses_lastmod and entry.lastmod else ""
                pages.setdefault(lastmod, []).append(entry.url)
        parent = response.request
        fields = fields_for(
            self.page, context.data, parent, priority=self._start.priority, queue=self._start.queue
        )
        # A URL may be listed twice, and only its first request is added, so requests with a lastmod come first.
        for lastmod, urls in sorted(pages.items(), key=lambda group: not group[0]):
            yield from batches(response, urls, {**fields, "lastmod": lastmod} if lastmod else fields)
        if sitemaps:
            further = {**fields, "cb_kwargs": {**fields["cb_kwargs"], "sitemap": self._place}}
            yield from batches(response, sitemaps, further)


def _body_of(start: Start, variables: Mapping[str, Any]) -> tuple[bytes, dict[str, str]]:
    if start.form is not None:
        form = {name: _filled(value, variables) for name, value in start.form.items()}
        return encode_form(form).encode(), {"Content-Type": URLENCODED}
    if start.json is not None:
        return json.dumps(_filled(start.json, variables)).encode(), {"Content-Type": "application/json"}
    return (start.body or "").encode(), {}


def _filled(value: Any, variables: Mapping[str, Any]) -> Any:
    """Return a value of a body with its placeholders replaced."""
    if isinstance(value, str):
        return Template(value).fill(variables)
    if isinstance(value, dict):
        return {key: _filled(inner, variables) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, variables) for inner in value]
    return value


def domains_of(rules: Sequence[StartRule], extra: Sequence[str] = ()) -> list[str]:
    """Return the hosts of the start URLs, without ports: the domains that links stay within."""
    hosts = [host for rule in rules for host in rule.hosts] + [*extra]
    return list(dict.fromkeys(without_port(host) for host in hosts if host))


def check_domains(domains: Sequence[str], compile_context: CompileContext) -> None:
    """Add a problem for each invalid domain."""
    for place, domain in enumerate(domains):
        try:
            Scope(allowed_domains=[domain])
        except SkitterError as error:
            compile_context.add_error(error, place)
