"""AdaptiveFetcher: fetches pages by HTTP, and in the browser if they turn out to need JavaScript."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import msgspec

from skitter._utils.notes import Notes
from skitter.browser.fetcher import shared_browser
from skitter.fetch.contract import UNCONDITIONAL, FetcherCapabilities, HeaderHook, SendPermit
from skitter.fetch.cookies import NoCookies
from skitter.fetch.http import HttpFetcher
from skitter.fetch.identity.contract import SourceContext
from skitter.request import Request
from skitter.response import Response
from skitter.web.urls import host_of

NOTE = "skitter:browser-rules"
"""Key of the note with the learned rules."""
_NOTE_TTL = 30 * 86_400.0
_REREAD_INTERVAL = 30.0
_CERTAIN = 2
"""Number of equal results after which the browser is used without a fetch by HTTP."""
_RECHECKED = 50
"""Of this number of pages whose rule is certain, one is fetched by HTTP first."""
_MAX_RULES = 5000
_MIN_TEXT = 200
"""A page with scripts and fewer characters of visible text than this may be an empty shell."""
_MAX_SHELL = 20_000
"""Characters of HTML above which a page without a known mount point is not tested for visible text."""

_IDENTIFIER = re.compile(r"[0-9a-f]{8,}|[^/]*\d[^/]*|[^/]{40,}", re.IGNORECASE)
_UNSEEN = re.compile(r"<(script|style|noscript|title)\b|<(!--)", re.IGNORECASE)
"""Beginnings of elements that a reader does not see."""
_ENDS = {
    name: re.compile(rf"</{name}\s*>", re.IGNORECASE) for name in ("script", "style", "noscript", "title")
} | {"!--": re.compile("-->")}
_TAG = re.compile(r"<[^<>]*>")
_MOUNT = re.compile(
    r"""<(?:div|main|section)\b[^<>]{0,1000}\bid=["']?(?:root|app|__next|__nuxt|___gatsby|svelte|main-app|react-root|q-app)\b"""
    r"|<app-root\b|\bng-app\b|\bdata-reactroot\b|\bng-version=",
    re.IGNORECASE,
)
_REQUEST = re.compile(r"\b(?:enable|requires?|need|turn on)\b", re.IGNORECASE)
_FOR_SCRIPT = re.compile(r"\bjava ?script\b", re.IGNORECASE)


def _divide(html: str) -> tuple[str, list[str]]:
    """Return the HTML that a reader sees, and the contents of the ``<noscript>`` elements.

    Each search begins where the previous search ended, so that no page takes more than linear time.
    """
    seen, noscript, at = [], [], 0
    while (found := _UNSEEN.search(html, at)) is not None:
        name = (found[1] or found[2]).lower()
        seen.append(html[at : found.start()])
        end = _ENDS[name].search(html, found.end())
        if name == "noscript":
            noscript.append(html[found.end() : end.start() if end else len(html)])
        at = end.end() if end else len(html)
    seen.append(html[at:])
    return " ".join(seen), noscript


def _asks_for_script(text: str) -> bool:
    """Return whether a text asks the reader to enable JavaScript."""
    request = _REQUEST.search(text)
    return request is not None and _FOR_SCRIPT.search(text, request.end()) is not None


def is_shell(html: str) -> bool:
    """Return whether a page looks like the empty shell of an application that its scripts fill."""
    if "<script" not in html.lower():
        return False
    seen, noscript = _divide(html)
    is_known = _MOUNT.search(html) is not None or any(map(_asks_for_script, noscript))
    if len(html) > _MAX_SHELL and not is_known:
        return False
    text = " ".join(_TAG.sub(" ", seen).split())
    return len(text) < _MIN_TEXT and (is_known or not text)


def shape_of(url: str) -> str:
    """Return the shape of a URL: its path with parts that have digits or are long replaced, such as ``/product/*``."""
    path = urlsplit(url).path
    return "/".join("*" if _IDENTIFIER.fullmatch(part) else part for part in path.split("/"))


BrowserRules = dict[str, int]
"""Shapes of pages that need the browser, as ``HOST/PATH``, each with the number of consecutive pages that needed it."""
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(BrowserRules).decode


async def read_rules(notes: Notes) -> BrowserRules:
    """Return the learned rules of a job."""
    return _read(await notes.get(NOTE))


async def reset_rules(notes: Notes, host: str = "") -> int:
    """Delete the rules of a host, by default of all hosts. Return their number."""
    gone: list[str] = []

    def forget(rules: BrowserRules) -> BrowserRules:
        gone[:] = [key for key in rules if not host or key.partition("/")[0] == host]
        return {key: count for key, count in rules.items() if key not in gone}

    await _change(notes, forget)
    return len(gone)


async def _change(notes: Notes, change: Callable[[BrowserRules], BrowserRules]) -> BrowserRules:
    while True:
        old = await notes.get(NOTE)
        before = _read(old)
        rules = change(before)
        if rules == before or await notes.compare_and_swap(NOTE, old, _encode(rules), _NOTE_TTL):
            return rules


def _read(note: bytes | None) -> BrowserRules:
    return _decode(note) if note else {}


class LearnedRules:
    """The learned rules, which the workers of a job share through its notes. ``None``: outside of a job."""

    def __init__(self, notes: Notes | None) -> None:
        self._notes = notes
        self._rules: BrowserRules = {}
        self._read_at = -_REREAD_INTERVAL

    async def count_of(self, url: str) -> int:
        """Return the number of consecutive pages like this URL that needed the browser."""
        if self._notes is not None and time.monotonic() - self._read_at >= _REREAD_INTERVAL:
            self._read_at = time.monotonic()
            self._rules = await read_rules(self._notes)
        return self._rules.get(key_of(url), 0)

    async def learn(self, url: str, *, browser: bool) -> None:
        """Record whether a page needs the browser. A page that does not need it ends the rule of its shape."""
        key = key_of(url)

        def change(rules: BrowserRules) -> BrowserRules:
            if not browser:
                return {rule: count for rule, count in rules.items() if rule != key}
            if key not in rules and len(rules) >= _MAX_RULES:
                return rules
            return {**rules, key: min(rules.get(key, 0) + 1, _CERTAIN)}

        if browser or key in self._rules:
            self._rules = change(self._rules) if self._notes is None else await _change(self._notes, change)


def key_of(url: str) -> str:
    """Return the key of the rule of a URL."""
    return host_of(url) + shape_of(url)


class AdaptiveFetcher:
    """Fetches by HTTP. A page that needs JavaScript is queued again for the browser, and its shape is learned."""

    def __init__(self, context: SourceContext) -> None:
        self._settings = context.settings
        self._http = HttpFetcher(context.settings, NoCookies(), context.guard)
        self._browser = shared_browser(context)
        self._rules = LearnedRules(context.notes)
        self.capabilities = FetcherCapabilities(shows_headers=True)

    async def open(self) -> None:
        """Open both fetchers. The browser starts with the first page that needs it."""
        await self._browser.open()
        try:
            await self._http.open()
        except BaseException:
            await self._browser.close()
            raise

    async def close(self) -> None:
        """Close both fetchers."""
        await self._http.close()
        await self._browser.close()

    async def fetch(
        self,
        request: Request,
        *,
        permit: SendPermit = UNCONDITIONAL,
        on_headers: HeaderHook | None = None,
    ) -> Response:
        """Fetch one request. ``moved_to`` of the response is the same request for the browser if the page needs it."""
        if request.browsing is not None and request.browsing.needs_browser:
            return await self._browser.fetch(request, permit=permit, on_headers=on_headers)
        count = await self._rules.count_of(request.url)
        if count >= _CERTAIN and random.randrange(_RECHECKED):
            return await self._browser.fetch(request, permit=permit, on_headers=on_headers)
        response = await self._http.fetch(request, permit=permit, on_headers=on_headers)
        if not response.ok or not response.is_html or request.method != "GET":
            return response
        required = self._settings.required_selectors
        needs = any(not response.css(query) for query in required) or is_shell(response.text)
        await self._rules.learn(request.url, browser=needs)
        if needs:
            response.moved_to = Request(request.url, fetcher="browser", browsing=request.browsing)
        return response
