"""LinkCollector: turns the results of a callback into items to store and requests to add.

A page may have a hundred links, so they are processed in batches: compiled code joins and normalizes them, the scope
is checked once per origin, and all links of a batch share one record. Requests that a callback yields one by one
become batches too, if they differ only in their URL.
"""

from __future__ import annotations

import math
import re
import sys
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import msgspec
import xxhash
from msgspec.structs import astuple

from skitter import scope as reasons
from skitter.errors import RequestError
from skitter.frontier.contract import Frontier
from skitter.frontier.records import ComparedPage, Entry, LinkBatch
from skitter.item import is_item
from skitter.links import Links, SkippedLinks
from skitter.politeness import Politeness
from skitter.queues import DEFAULT_QUEUE, slot_in
from skitter.request import CallbackName, Request, encode_request, fingerprint
from skitter.scope import Scope
from skitter.secrets import authorization_of_userinfo
from skitter.web.urls import (
    HrefPrefixes,
    UrlBase,
    absolute_text,
    host_of,
    identity,
    normalize,
    split_userinfo,
    url_base,
)
from skitter.worker.callbacks import CallbackNames, unsupported_result
from skitter.worker.inflight import QueueCapacity
from skitter.worker.traps import TrapDetector

DUPLICATE = "duplicate"
PAGE_LINKS = "page_links"
"""Reason for refusing the links of a page beyond ``max_links``."""
_MAX_CHARACTERS = 32_000_000
"""Characters that the joined links of a page may have. It limits their number if the URL of the page is very long."""
_HAS_USERINFO = "userinfo"
"""Marks an origin with a user name, which is removed from its URLs."""
_IDENTITY_FIELDS = frozenset({"method", "body", "fingerprint_keys", "dont_filter"})
"""Fields that are part of the identity of a request. Links with one of them are processed one by one."""
_MAX_CACHED_ORIGINS = 65_536
_MAX_CACHED_LINKS = 390_000
"""Capacity in links. They take 8 MB, or 63 MB without the compiled table. The cache is emptied when it is full."""
_AMBIGUOUS = re.compile(r"^(?:$|[\0-\x20#])|[\t\n\r\\]|[\0-\x20](?:#|$)|^https?:(?!//)", re.IGNORECASE).search
"""Links whose meaning does not follow from their absolute text: parsers skip line breaks, and whitespace and control
characters at either end; they treat a backslash as a slash, and resolve ``http:x`` like ``x`` on some pages."""
_WEB_SCHEMES = ("http://", "https://")
_SCHEME = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]*:")
_GROUP = 64
"""Number of new links that are checked together, if they all have the same origin and need no changes."""
_MIN_GROUP = 8
"""Number of new links below which they are checked one by one."""
_UNKNOWN_ORIGIN = ("unknown", "")
"""Reason of an origin that was not checked yet. It is not ``None``, so the links of the origin are checked one by one."""


def is_ambiguous(href: str) -> bool:
    """Return whether two links with the absolute text of this one may lead to different URLs."""
    return _AMBIGUOUS(href) is not None


class PythonLinkTable:
    """Reasons to skip links, by the absolute text of a link (:func:`~skitter.web.urls.absolute_text`).

    ``own_page``: the reason to skip a link to a part of its own page (``#top``).

    ``_link_table.c`` has the same class in C, which takes a tenth of the time and an eighth of the memory. This one is
    used if that file was not compiled.
    """

    def __init__(self, own_page: str) -> None:
        self._own_page = own_page
        self._reasons: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._reasons)

    def add(self, texts: Sequence[str], reason: str) -> None:
        """Add texts with their reason."""
        self._reasons.update(dict.fromkeys(texts, reason))

    def get(self, text: str) -> str | None:
        """Return the reason to skip a link by its absolute text; ``None`` if it is not in the table."""
        return self._reasons.get(text)

    def has_any(self, texts: Sequence[str]) -> bool:
        """Return whether one of the texts is in the table."""
        return not self._reasons.keys().isdisjoint(texts)

    def unknown(
        self, hrefs: Sequence[str], prefixes: HrefPrefixes | None, counts: defaultdict[str, int]
    ) -> list[str]:
        """Return the links of a page that are not in the table, and count the others by their reason.

        ``prefixes``: ``None`` if the links are absolute.
        """
        unknown = []
        get, own_page = self._reasons.get, self._own_page
        for href in hrefs:
            if href[:1] <= " ":  # empty, or with whitespace before the characters that determine its base
                unknown.append(href)
                continue
            if prefixes is None:
                reason = get(href.partition("#")[0])
            else:
                reason = own_page if href[:1] == "#" else get(absolute_text(href, prefixes))
            if reason is None:
                unknown.append(href)
            else:
                counts[reason] += 1
        return unknown

    def clear(self) -> None:
        """Remove all texts."""
        self._reasons.clear()


try:
    from skitter.worker._link_table import LinkTable
except ImportError:
    LinkTable = PythonLinkTable  # type: ignore[assignment,misc]


class LinkCache:
    """Links that a worker has seen before and need not check again.

    Four out of five links lead to a known page. The cache recognizes such a link by its raw text, before it is joined
    and parsed. It holds only links to URLs that are certainly in the frontier, and links that the scope refuses.

    ``known_forever``: a URL in the frontier stays known. Otherwise only refused links are cached.
    """

    def __init__(self, *, known_forever: bool) -> None:
        self.known_forever = known_forever
        self._table = LinkTable(DUPLICATE)
        self.reason = self._table.get
        """Returns the reason to skip a normalized URL, or ``None`` if it is not in the cache."""
        self.generation = 0
        """Number of times that the cache was emptied because the frontier may now accept other links."""

    def unknown(self, hrefs: Sequence[str], base: UrlBase, counts: defaultdict[str, int]) -> list[str]:
        """Return the links of a page that are not in the cache, without duplicates. Count all other links by reason."""
        if base.prefixes is None:
            unknown = [href for href in hrefs if href[:1] != "#"]
            left = len(hrefs)
        else:
            unknown = self._table.unknown(hrefs, base.prefixes, counts)
            left = len(unknown)
        if len(unknown) > 1:
            unknown = list(dict.fromkeys(unknown))
        if len(unknown) < left:
            counts[DUPLICATE] += left - len(unknown)
        return unknown

    def unknown_urls(self, urls: Sequence[str], counts: defaultdict[str, int]) -> set[str]:
        """Return the absolute URLs that are not in the cache. Count the others, and repetitions, by reason."""
        unknown = self._table.unknown(urls, None, counts)
        once = set(unknown)
        if len(once) < len(unknown):
            counts[DUPLICATE] += len(unknown) - len(once)
        return once

    def has_any(self, urls: Sequence[str]) -> bool:
        """Return whether one of the normalized URLs is in the cache."""
        return self._table.has_any(urls)

    def learn(self, urls: Sequence[str]) -> None:
        """Add URLs that the frontier has accepted."""
        if self.known_forever:
            self._add(urls, DUPLICATE)

    def add(self, href: str, base: UrlBase, reason: str) -> None:
        """Add a link whose URL is known or refused, unless its text may mean another URL on another page."""
        if base.prefixes is None or is_ambiguous(href):
            return
        self._add([absolute_text(href, base.prefixes)], reason)

    def _add(self, texts: Sequence[str], reason: str) -> None:
        if len(self._table) > _MAX_CACHED_LINKS:
            self._table.clear()
        self._table.add(texts, reason)

    def forget(self) -> None:
        """Empty the cache: the frontier may accept links that it has refused or lost.

        Do not learn the links of a commit that started before; see :attr:`generation`.
        """
        self.generation += 1
        self._table.clear()


_STREAMED_LINKS = 400
"""Number of links that a running callback adds at a time. It is small, because URLs may be long and each is copied
several times."""
_NO_TEMPLATE = Entry(b"", "", "", b"")
"""Template of a batch that is not complete yet."""


def _fields_without_url(request: Request) -> tuple[Any, ...]:
    return astuple(request)[1:]


class CallbackResult(msgspec.Struct):
    """Items and links of one page."""

    items: list[Any] = []
    entries: list[Entry] = []
    """Requests that were yielded one by one and that have too few common fields for a batch."""
    batches: list[LinkBatch] = []
    refused: defaultdict[str, int] = msgspec.field(default_factory=partial(defaultdict, int))
    """Number of refused URLs, by reason."""
    links: int = 0
    """Number of links that were checked."""
    own_links: int = 0
    """Number of new links with the URL pattern of the page."""
    penalty: int = 0
    """Amount by which the priority of all links of the page is reduced."""


RESULTS_BATCH = 2_000
"""Number of links or other results that are collected before the event loop runs other tasks."""


def in_batches(results: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Divide the results of a callback, and the links in them, into batches that are collected quickly."""
    for start in range(0, len(results), RESULTS_BATCH):
        part = results[start : start + RESULTS_BATCH]
        if all(result.__class__ is not Links or len(result) <= RESULTS_BATCH for result in part):
            yield part
            continue
        for result in part:
            if result.__class__ is Links:
                for first in range(0, len(result), RESULTS_BATCH):
                    yield [Links(result.base_url, result.hrefs[first : first + RESULTS_BATCH], result.fields)]
            else:
                yield [result]


class LinkStream:
    """Adds the links of a page to the frontier before the page is committed.

    This limits the number of links in memory and the size of a commit. Adding is idempotent. If the page is processed
    again, its links are known.
    """

    def __init__(self, frontier: Frontier, capacity: QueueCapacity) -> None:
        self._frontier = frontier
        self._capacity = capacity

    async def add(self, found: CallbackResult) -> None:
        """Add the links in ``found`` and remove them from it, unless they are few or the queue is full."""
        amount = sum(len(batch.urls) for batch in found.batches)
        if amount < _STREAMED_LINKS or not self._capacity.take(amount):
            return
        batches, found.batches = found.batches, []
        entries = [entry for batch in batches for entry in batch.entries()]
        await self._frontier.add(entries)  # the frontier counts the requests that it refuses

    async def add_most(self, batches: list[LinkBatch]) -> list[LinkBatch]:
        """Add the links of a page with very many links in parts, so that no commit takes long.

        Return the remaining links.
        """
        if sum(len(batch.urls) for batch in batches) <= 2 * RESULTS_BATCH:
            return batches
        left = deque(part for batch in batches for part in batch.parts(RESULTS_BATCH))
        while left and self._capacity.take(len(left[0].urls)):
            batch = left.popleft()
            await self._frontier.add(batch.entries())
        return list(left)


class LinkCollector:
    """Applies scope, politeness and request identity to the results of callbacks.

    ``known_forever``: a URL in the frontier stays known, so its links need no further check.
    ``fingerprint_keys``: keys of ``meta`` that are part of the identity of every request.
    ``group_key``: the key of ``meta`` that names the group of a request. Requests inherit the group of their page.
    ``max_links``: number of links of one page that are followed.
    """

    def __init__(
        self,
        scope: Scope,
        politeness: Politeness,
        fingerprint_seed: int,
        *,
        known_forever: bool = True,
        fingerprint_keys: tuple[str, ...] = (),
        group_key: str | None = None,
        max_links: int = sys.maxsize,
    ) -> None:
        self._scope = scope
        self._politeness = politeness
        self._seed = fingerprint_seed
        self._fingerprint_keys = fingerprint_keys
        self._group_key = group_key
        self._max_links = max_links
        self.cache = LinkCache(known_forever=known_forever)
        self.traps: TrapDetector | None = None
        """Judges the links of pages, but not the requests that a callback builds."""
        self.callback_names: CallbackNames | None = None
        """Checks the callbacks of requests; ``None``: they are not known in this process."""
        self.unscoped_callbacks: Sequence[str] = ()
        """Callbacks whose requests may lead to any host; see :class:`~skitter.spider.Spider`."""
        self._origins: dict[str, tuple[str | None, str]] = {}

    def learn(self, urls: Sequence[str], compared_pages: Sequence[ComparedPage] = ()) -> None:
        """Record what other workers of this machine have found.

        Links to the URLs, which they have added to the frontier, are known from now on.
        """
        if urls and self.cache.known_forever:
            self.cache.learn(urls)
            if self.traps is not None:
                self.traps.count_urls(urls)
        if compared_pages and self.traps is not None:
            self.traps.learn(compared_pages)

    def group_of(self, request: Request) -> str:
        """Return the group of a request, or an empty string for a request without a group."""
        group = request.meta.get(self._group_key) if self._group_key is not None else None
        return "" if group is None else str(group)

    def collect(
        self, results: Iterable[Any], parent: Request, found: CallbackResult | None = None
    ) -> CallbackResult:
        """Sort the results of a callback. The depth of a request is always that of its parent + 1.

        ``found``: the collected results of the same callback so far, which are extended.

        Raises :class:`~skitter.errors.SpiderError` for an object that is neither an item nor a request, and
        :class:`~skitter.errors.RequestError` for a request that cannot be stored.
        """
        if found is None:
            found = CallbackResult()
        requests: list[Request] = []
        for result in results:
            kind = result.__class__
            if kind is Request:
                requests.append(result)
            elif kind is Links:
                if requests:
                    self._collect_requests(found, requests, parent)
                    requests = []
                self._collect_links(found, result, parent)
            elif kind is SkippedLinks:
                found.links += result.amount
                found.refused[result.reason] += result.amount
            elif is_item(result):
                found.items.append(result)
            elif result is not None:
                raise unsupported_result(result)
        if requests:
            self._collect_requests(found, requests, parent)
        return found

    def _too_deep(self, parent: Request, depth: int) -> bool:
        limit = parent.depth_limit
        return self._scope.too_deep(depth) or (limit is not None and depth > limit)

    def _admit(self, found: CallbackResult, amount: int, base_url: str = "") -> int:
        """Return the number of the next links of the page that are followed, and count the others as refused."""
        links = found.links + amount
        if links <= self._max_links and links * len(base_url) <= _MAX_CHARACTERS:
            return amount
        followed = found.links - found.refused.get(PAGE_LINKS, 0)
        allowed = min(self._max_links, _MAX_CHARACTERS // (len(base_url) or 1))
        admitted = max(0, min(amount, allowed - followed))
        if admitted < amount:
            found.links += amount - admitted
            found.refused[PAGE_LINKS] += amount - admitted
        return admitted

    def _collect_links(self, found: CallbackResult, links: Links, parent: Request) -> None:
        hrefs = links.hrefs
        admitted = self._admit(found, len(hrefs), links.base_url)
        if admitted < len(hrefs):
            hrefs = hrefs[:admitted]
            links = Links(links.base_url, hrefs, links.fields)
        depth = parent.depth + 1
        if self._too_deep(parent, depth):
            found.links += len(hrefs)
            found.refused[reasons.DEPTH] += len(hrefs)
            return
        if self._fingerprint_keys or not _IDENTITY_FIELDS.isdisjoint(links.fields):
            self._collect_requests(found, list(links), parent)
            return
        found.links += len(hrefs)
        base = url_base(links.base_url)
        if base.url != parent.url:  # "#part" does not lead to the page itself
            hrefs = [base.url + href if href[:1] == "#" else href for href in hrefs]
        new = self.cache.unknown(hrefs, base, found.refused)
        if new:
            batch = self._new_batch(found, base, new, parent, self.traps)
            if batch.urls:  # most links that are not in the cache lead to known URLs as well
                self._add_batch(found, batch, Request("", **links.fields), links.base_url, parent)

    def _new_batch(
        self,
        found: CallbackResult,
        base: UrlBase,
        hrefs: list[str],
        parent: Request,
        traps: TrapDetector | None = None,
    ) -> LinkBatch:
        """Return the links that are neither refused nor known by their URL."""
        batch = LinkBatch(_NO_TEMPLATE, [], [], [], [])
        self._fill(batch, base, hrefs, found.refused, traps)
        if traps is not None and batch.urls:
            self._judge(batch, traps, found, parent)
        return batch

    def _add_batch(
        self, found: CallbackResult, batch: LinkBatch, common: Request, base_url: str, parent: Request
    ) -> None:
        """Add a batch that is not empty.

        ``common``: a request with the fields of all its links; its URL does not matter.
        """
        if not batch.penalties:
            batch.penalties = [found.penalty] * len(batch.urls)
        batch.template = self._template(batch, common, base_url, parent)
        found.batches.append(batch)

    def _collect_requests(self, found: CallbackResult, requests: list[Request], parent: Request) -> None:
        """Add requests that were yielded one by one. Those that differ only in their URL are one batch.

        A request whose URL is in the cache costs only the lookup: it is neither copied nor fingerprinted.
        """
        requests = requests[: self._admit(found, len(requests))]
        found.links += len(requests)
        if self._too_deep(parent, parent.depth + 1):
            found.refused[reasons.DEPTH] += len(requests)
            return
        if self._fingerprint_keys:
            for request in requests:
                self._collect_request(found, request, parent)
            return
        simple: list[Request] = []
        unscoped = self.unscoped_callbacks
        for request in requests:
            if (
                request.method != "GET"
                or request.body
                or request.fingerprint_keys
                or request.dont_filter
                or (unscoped and self._leaves_scope(request))
            ):
                self._collect_request(found, request, parent)
            else:
                simple.append(request)
        self._collect_simple(found, simple, parent)

    def _leaves_scope(self, request: Request) -> bool:
        """Return whether a request is out of scope, but permitted by its callback. Batches hold only links in scope."""
        if request.callback not in self.unscoped_callbacks:
            return False
        return self._scope.refuse(request.url, host_of(request.url)) is not None

    def _collect_simple(self, found: CallbackResult, requests: list[Request], parent: Request) -> None:
        """Add requests whose identity is that of a link to their URL."""
        new = self.cache.unknown_urls([request.url for request in requests], found.refused)
        if not new:
            return
        batched: list[Request] = []
        names = self.callback_names
        for request in requests:
            url = request.url
            if url not in new:
                continue
            new.remove(url)
            if names is not None:  # callbacks of two objects may have the same name, and be in the same batch
                names.check(request)
            if url.startswith(_WEB_SCHEMES) and not ("@" in url and split_userinfo(url)[1]):
                batched.append(request)
            else:
                self._collect_request(found, request, parent)  # a relative URL, or a URL with credentials
        base = url_base(parent.url)
        for _, alike in groupby(batched, _fields_without_url):
            same = list(alike)
            batch = self._new_batch(found, base, [request.url for request in same], parent)
            if batch.urls:
                self._add_batch(found, batch, same[0], parent.url, parent)

    def _fill(
        self,
        batch: LinkBatch,
        base: UrlBase,
        hrefs: list[str],
        refused: defaultdict[str, int],
        traps: TrapDetector | None,
    ) -> None:
        """Add the links that are in scope to the batch, and the others to the cache."""
        urls = base.join_all(hrefs)
        if len(urls) < _MIN_GROUP:
            self._fill_singly(batch, base, hrefs, urls, refused, traps)
            return
        for start in range(0, len(urls), _GROUP):
            part = slice(start, start + _GROUP)
            if not self._fill_alike(batch, urls[part]):
                self._fill_singly(batch, base, hrefs[part], urls[part], refused, traps)

    def _fill_alike(self, batch: LinkBatch, urls: list[Any]) -> bool:
        """Add links of one origin that are in scope, new and already canonical, in few steps.

        Return ``False``, without effect, if one of them is not, or is ``None``.
        """
        try:
            text = "\n".join(urls)
        except TypeError:  # a link without a valid URL
            return False
        origin = text[: text.find("/", 8)]
        refusal, slot = self._origins.get(origin, _UNKNOWN_ORIGIN)
        if refusal is not None or self.cache.has_any(urls):
            return False
        if not self._scope.admits_paths(urls, len(text)) or text.count(f"\n{origin}/") != len(urls) - 1:
            return False
        if "?" in text or "%" in text or ";" in text:
            return False
        digest, seed = xxhash.xxh3_128_digest, self._seed
        batch.urls += urls
        batch.fingerprints += [digest(url, seed) for url in text.encode().split(b"\n")]
        batch.slots += [slot] * len(urls)
        return True

    def _fill_singly(
        self,
        batch: LinkBatch,
        base: UrlBase,
        hrefs: list[str],
        urls: list[str | None],
        refused: defaultdict[str, int],
        traps: TrapDetector | None,
    ) -> None:
        digest, seed, origins, cache = xxhash.xxh3_128_digest, self._seed, self._origins, self.cache
        for href, url in zip(hrefs, urls, strict=True):
            if url is None:
                refused[reasons.UNPARSABLE] += 1
                cache.add(href, base, reasons.UNPARSABLE)
                continue
            if traps is not None and ("?" in url or ";" in url):
                url = traps.strip(url)  # noqa: PLW2901 - from here on, only the stripped URL is used
            reason = cache.reason(url)
            if reason is not None:
                refused[reason] += 1
                cache.add(href, base, reason)
                continue
            origin = origins.get(url[: url.find("/", 8)])
            refusal, slot = self._check_origin(url) if origin is None else origin
            if refusal is _HAS_USERINFO:  # credentials in links of pages are not used
                self._fill_singly(batch, base, [href], [split_userinfo(url)[0]], refused, None)
                continue
            if refusal is None:
                refusal = self._scope.refuse_path(url)
            if refusal is not None:
                refused[refusal] += 1
                cache.add(href, base, refusal)
                continue
            batch.urls.append(url)
            plain = "?" not in url and "%" not in url
            batch.fingerprints.append(digest((url if plain else identity(url)).encode(), seed))
            batch.slots.append(slot)

    def _judge(self, batch: LinkBatch, traps: TrapDetector, found: CallbackResult, parent: Request) -> None:
        """Remove the links that lead into a trap, and reduce the priority of suspicious ones."""
        kept: list[slice] = []
        first = 0
        for amount, (refusal, penalty, is_own) in traps.admit_all(
            batch.urls, parent.depth + 1, traps.path_of(parent.url)
        ):
            found.own_links += is_own * amount
            if refusal is None:
                kept.append(slice(first, first + amount))
                batch.penalties += [penalty + found.penalty] * amount
            else:
                found.refused[refusal] += amount
            first += amount
        if len(batch.penalties) < first:
            batch.urls = [url for part in kept for url in batch.urls[part]]
            batch.fingerprints = [key for part in kept for key in batch.fingerprints[part]]
            batch.slots = [slot for part in kept for slot in batch.slots[part]]

    def _check_origin(self, url: str) -> tuple[str | None, str]:
        """Return the slot of a URL, or the reason to refuse its origin. The result is cached."""
        if not url.startswith(_WEB_SCHEMES):
            return reasons.SCHEME, ""  # not cached: such URLs have no origin
        host = host_of(url)
        refusal = None if self._scope.admits_host(host) else reasons.HOST
        if "@" in url[: url.find("/", 8)]:
            refusal = _HAS_USERINFO
        if len(self._origins) >= _MAX_CACHED_ORIGINS:
            self._origins.clear()
        decision = self._origins[url[: url.find("/", 8)]] = (refusal, self._politeness.slot_of(host))
        return decision

    def _template(self, batch: LinkBatch, common: Request, base_url: str, parent: Request) -> Entry:
        """Return an entry with the common fields of the links of the batch."""
        if self.callback_names is not None:
            self.callback_names.check(common)
        changes = self._inherited(common, parent)
        queue = changes.get("queue", common.queue)
        if queue:
            batch.slots = [slot_in(queue, slot) for slot in batch.slots]
            changes["queue"] = "" if queue == DEFAULT_QUEUE else queue
        request = common.replace(url=batch.urls[0], **changes)  # for the message of an error
        _check_schedule(request, base_url)
        return Entry(
            b"", "", "", encode_request(request), request.priority, request.not_before, request.delay
        )

    def _collect_request(self, found: CallbackResult, request: Request, parent: Request) -> None:
        if self.callback_names is not None:
            self.callback_names.check(request)
        entry = self._entry(request, self._inherited(request, parent))
        if isinstance(entry, Entry):
            found.entries.append(entry)
        elif entry == reasons.UNPARSABLE and _SCHEME.match(request.url) is None:
            raise RequestError(
                f"Request({request.url!r}) has no absolute URL",
                remedy=f"write response.follow({request.url!r}), which joins it with the URL of the page",
                field="url",
            )
        else:
            found.refused[entry] += 1

    def _inherited(self, request: Request, parent: Request) -> dict[str, Any]:
        """Return the fields that a request gets from its page."""
        changes: dict[str, Any] = {"depth": parent.depth + 1}
        if not request.referer:
            changes["referer"] = parent.url
        if parent.queue and not request.queue:
            changes["queue"] = parent.queue
        key = self._group_key
        if key is not None and key in parent.meta and key not in request.meta:
            changes["meta"] = {key: parent.meta[key], **request.meta}
        return changes

    def refusal(self, url: str, depth: int) -> str | None:
        """Return the reason why the scope refuses a URL at a depth; ``None`` if it does not."""
        return self._scope.refusal(url, depth)

    def entry(self, request: Request) -> Entry | str:
        """Return a request as an entry for the frontier, or the reason to refuse it.

        Raises :class:`~skitter.errors.RequestError` for a request that cannot be stored, and
        :class:`~skitter.errors.SpiderError` if its callback is a function of another object than the spider.
        """
        passed = CallbackName in (request.callback.__class__, request.errback.__class__)
        if passed and self.callback_names is not None:
            self.callback_names.check(request)
        return self._entry(request, {})

    def slot_of(self, url: str, queue: str = "") -> str:
        """Return the slot of a URL in a queue."""
        slot = self._politeness.slot_of(host_of(url))
        return slot_in(queue, slot) if queue else slot

    def entry_of_file(self, request: Request) -> Entry:
        """Return an entry for a request whose URL is normalized, regardless of the scope."""
        return Entry(
            fingerprint(request, self._seed), self.slot_of(request.url, request.queue), request.url,
            encode_request(request), request.priority, request.not_before, request.delay,
            dedup=not request.dont_filter,
        )  # fmt: skip

    def _entry(self, request: Request, changes: dict[str, Any]) -> Entry | str:
        """Apply changes to a request and canonicalize it; see :meth:`entry`."""
        url = normalize(request.url)
        if url is None:
            return reasons.UNPARSABLE
        if not url.startswith(_WEB_SCHEMES):
            return reasons.SCHEME
        if "@" in url:
            url = _move_userinfo(url, request, changes)
        host = host_of(url)
        refusal = self._refuse(request, url, host)
        if refusal is not None:
            return refusal
        _check_schedule(request, url)
        if url != request.url:
            changes["url"] = url
        if self._fingerprint_keys:
            keys = dict.fromkeys((*request.fingerprint_keys, *self._fingerprint_keys))
            changes["fingerprint_keys"] = tuple(keys)
        slot = self._politeness.slot_of(host)
        if queue := changes.get("queue", request.queue):
            slot = slot_in(queue, slot)
            if queue == DEFAULT_QUEUE:  # a record without a queue is in the default queue
                changes["queue"] = ""
        if changes:
            request = request.replace(**changes)
        return Entry(
            fingerprint(request, self._seed), slot, url, encode_request(request),
            request.priority, request.not_before, request.delay, dedup=not request.dont_filter,
        )  # fmt: skip

    def _refuse(self, request: Request, url: str, host: str) -> str | None:
        """Return the reason to refuse a request with a normalized URL, or ``None``."""
        if request.callback in self.unscoped_callbacks:
            return self._scope.refuse_length(url)
        return self._scope.refuse(url, host)


def _move_userinfo(url: str, request: Request, changes: dict[str, Any]) -> str:
    """Return a URL without user name and password. They become an ``Authorization`` header, unless the request has one."""
    url, userinfo = split_userinfo(url)
    if userinfo and not any(name.lower() == "authorization" for name in request.headers):
        changes["headers"] = {**request.headers, "Authorization": authorization_of_userinfo(userinfo)}
    return url


def _check_schedule(request: Request, url: str) -> None:
    """Refuse a request whose priority or time the frontier cannot represent."""
    priority = request.priority
    if not isinstance(priority, int) or not -(2**63) < priority < 2**63:
        raise RequestError(
            f"invalid priority {priority!r} of request {url!r}",
            remedy="use a 64-bit integer",
            field="priority",
        )
    for name, seconds in (("delay", request.delay), ("not_before", request.not_before)):
        if not isinstance(seconds, (int, float)) or not math.isfinite(seconds):
            raise RequestError(
                f"invalid {name} {seconds!r} of request {url!r}", remedy="use a number of seconds", field=name
            )
