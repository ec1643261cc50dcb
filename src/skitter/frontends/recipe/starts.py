"""Starts: the first requests of a recipe, each combination and language of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from skitter.errors import SkitterError
from skitter.frontends.recipe.combinations import combinations
from skitter.frontends.recipe.context import Context, Template
from skitter.frontends.recipe.model import Range, Start
from skitter.frontends.recipe.rules import ScriptRule
from skitter.frontends.recipe.sitemaps import read_sitemap
from skitter.frontends.recipe.travel import LANGUAGE, batches, fields_for, in_language
from skitter.frontends.recipe.variables import is_open
from skitter.frontends.recipe.workshop import Workshop
from skitter.frontends.scripting.engine import ScriptEngine
from skitter.links import Links
from skitter.request import Request
from skitter.scope import Scope
from skitter.web.urls import host_of, normalize

_WORDS = frozenset({LANGUAGE})


class StartRule:
    """One entry of ``start``."""

    def __init__(self, given: str | Start, place: int, languages: Sequence[str], workshop: Workshop) -> None:
        self._start = start = Start(url=given) if isinstance(given, str) else given
        self._place = place
        self._languages = languages
        self.page = workshop.page(start.page) if start.page is not None else next(iter(workshop.pages), "")
        self._match = workshop.patterns(start.match, "match")
        self._skip = workshop.patterns(start.skip, "skip")
        self._script = None if start.script is None else ScriptRule(start.script, workshop.pages)
        self._url = Template(start.url or start.sitemap or "")
        self._check(workshop, bare=isinstance(given, str))

    def _check(self, workshop: Workshop, *, bare: bool) -> None:
        start = self._start
        place = () if bare else ("url",) if start.url is not None else ("sitemap",)
        if sum(one is not None for one in (start.url, start.sitemap, start.script)) != 1:
            workshop.problem("needs either a url or a sitemap or a script", "give one of them")
            return
        if self._script is not None:
            return
        if sum(one is not None for one in (start.body, start.form, start.json)) > 1:
            workshop.problem("has more than one of body, form and json", "keep one of them")
        elif start.method.upper() in {"GET", "HEAD"} and (start.form is not None or start.json is not None):
            workshop.problem("has a body, which a GET does not send", "add `method: POST`", "method")
        for name, values in start.each.items():
            if (values.to < values.from_) if isinstance(values, Range) else not values:
                workshop.problem("is empty", "give at least one value", "each", name)
        known = {*start.each, *_WORDS}
        for name in self._url.names:
            if name not in known:
                workshop.problem(f"{{{name}}} has no values", f"give them: each: {{{name}: [...]}}", *place)
                return
        if not is_open(self._url.text) and self.example() is None:
            workshop.problem(
                f"{self._url.text!r} is no absolute http(s) URL", "write it like https://example.com/", *place
            )

    def example(self) -> str | None:
        """Return one of its URLs, or ``None`` if it is none that can be fetched."""
        words = next(combinations(self._start.each), {})
        url = normalize(self._url.text_of({LANGUAGE: next(iter(self._languages), ""), **words}))
        return url if url is not None and url.startswith(("http://", "https://")) else None

    @property
    def hosts(self) -> list[str]:
        """Hosts that it begins at."""
        if is_open(self._url.text) or self._script is not None:
            return []
        urls = (normalize(self._url.text_of({LANGUAGE: one, **words})) for words in
                combinations(self._start.each) for one in self._languages or [""])  # fmt: skip
        return list(dict.fromkeys(host_of(url) for url in urls if url is not None))

    @property
    def uses_scripts(self) -> bool:
        """Whether a script gives its requests."""
        return self._script is not None

    def requests(self, scripts: ScriptEngine | None = None) -> Iterator[Request]:
        """Give its requests, always in the same order."""
        if self._script is not None:
            assert scripts is not None, "the spider starts an engine for every recipe with scripts"
            yield from self._script.begin(scripts, self.page, {"languages": list(self._languages)})
            return
        for language in self._languages or (None,):
            for words in combinations(self._start.each):
                yield self._request(words, language)

    def _request(self, words: Mapping[str, Any], language: str | None) -> Request:
        start = self._start
        data = {**start.data, **words}
        spoken = {} if language is None else in_language(language)
        if language is not None:
            data[LANGUAGE] = language
        filled = {**words, LANGUAGE: language}
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

    def of_sitemap(self, context: Context) -> Iterator[Links]:
        """Give the pages and sitemaps that a sitemap leads to."""
        found = read_sitemap(context.response)
        parent = context.response.request
        fields = fields_for(
            self.page, context.data, parent, priority=self._start.priority, queue=self._start.queue
        )
        pages = [url for url in found.pages if self._admits(url)]
        if pages:
            yield from batches(context.response, pages, fields)
        if found.sitemaps:
            further = {**fields, "cb_kwargs": {**fields["cb_kwargs"], "sitemap": self._place}}
            yield from batches(context.response, found.sitemaps, further)

    def _admits(self, url: str) -> bool:
        if self._match and not any(pattern.search(url) for pattern in self._match):
            return False
        return not any(pattern.search(url) for pattern in self._skip)


def _body_of(start: Start, words: Mapping[str, Any]) -> tuple[bytes, dict[str, str]]:
    if start.form is not None:
        form = {name: _filled(value, words) for name, value in start.form.items()}
        return urlencode(form).encode(), {"Content-Type": "application/x-www-form-urlencoded"}
    if start.json is not None:
        return json.dumps(_filled(start.json, words)).encode(), {"Content-Type": "application/json"}
    return (start.body or "").encode(), {}


def _filled(value: Any, words: Mapping[str, Any]) -> Any:
    """Return a value of a body with the names in its texts replaced."""
    if isinstance(value, str):
        return Template(value).fill(words)
    if isinstance(value, dict):
        return {key: _filled(inner, words) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, words) for inner in value]
    return value


def domains_of(rules: Sequence[StartRule], extra: Sequence[str] = ()) -> list[str]:
    """Return the hosts at which a recipe begins, without ports: the bound of its links."""
    hosts = [host for rule in rules for host in rule.hosts] + [*extra]
    return list(dict.fromkeys(_name(host) for host in hosts if host))


def check_domains(domains: Sequence[str], workshop: Workshop) -> None:
    """Note domains that are none."""
    for place, domain in enumerate(domains):
        try:
            Scope(allowed_domains=[domain])
        except SkitterError as error:
            workshop.refused(error, place)


def _name(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host
