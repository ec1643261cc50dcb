"""Gather: turn what a callback gave into items to store and requests to add.

Links come by the hundred, so a batch of them is handled together: joined and normalised by compiled code,
scoped by their origin, fingerprinted, and given one shared record. A request object exists only for what is
yielded one by one.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import msgspec
import xxhash

from skitter import scope as reasons
from skitter.errors import RequestError, SpiderError
from skitter.frontier.records import Entry
from skitter.item import is_item
from skitter.links import Links, SkippedLinks
from skitter.politeness import Politeness
from skitter.queues import DEFAULT_QUEUE, slot_in
from skitter.request import Request, encode_request, fingerprint
from skitter.scope import Scope
from skitter.web.urls import host_of, identity, join_all, normalize
from skitter.worker.link_cache import DUPLICATE, FolderLinkCache, LinkCache

_SHAPING_FIELDS = frozenset({"method", "body", "fingerprint_keys", "dont_filter"})
"""Fields that take part in the identity of a request: a batch with one of them is taken link by link."""
_ORIGINS_REMEMBERED = 65_536


class LinkBatch(msgspec.Struct):
    """Links of one page that differ only in their URL."""

    template: Entry
    urls: list[str]
    fingerprints: list[bytes]
    slots: list[str]

    def entry(self, index: int) -> Entry:
        """Return one of the links as an entry for the frontier."""
        common = self.template
        return Entry(
            self.fingerprints[index],
            self.slots[index],
            self.urls[index],
            common.record,
            common.priority,
            common.not_before,
            common.delay,
        )


_NO_TEMPLATE = Entry(b"", "", "", b"")


class CallbackResult(msgspec.Struct):
    """What one page gave."""

    items: list[Any]
    entries: list[Entry]
    """Requests yielded one by one."""
    batches: list[LinkBatch]
    refused: defaultdict[str, int]
    """How many URLs were refused, by reason."""
    links: int = 0
    """How many links were looked at."""


class LinkCollector:
    """Applies scope, politeness and identity to what callbacks give.

    ``known_for_ever``: a URL that is in the frontier stays known, so that its links need no second look.
    ``fingerprint_keys``: ``meta`` keys that are part of the identity of every request.
    ``group_key``: what follows from a page belongs to its task, the value of this key of ``meta``, unless it says
    otherwise itself.
    """

    def __init__(
        self,
        scope: Scope,
        politeness: Politeness,
        fingerprint_seed: int,
        *,
        known_for_ever: bool = True,
        fingerprint_keys: tuple[str, ...] = (),
        group_key: str | None = None,
    ) -> None:
        self._scope = scope
        self._politeness = politeness
        self._seed = fingerprint_seed
        self._fingerprint_keys = fingerprint_keys
        self._task_key = group_key
        self.memory = LinkCache(known_for_ever=known_for_ever)
        self._origins: dict[str, tuple[str | None, str]] = {}

    def gather(self, given: Iterable[Any], parent: Request) -> CallbackResult:
        """Sort what a callback gave; depth is the parent's + 1 whatever the callback says.

        Raises :class:`~skitter.errors.SpiderError` for something that is neither item nor request, and
        :class:`~skitter.errors.RequestError` for a request that cannot be stored.
        """
        gathered = CallbackResult([], [], [], defaultdict(int))
        for one in given:
            kind = one.__class__
            if kind is Links:
                self._take_links(gathered, one, parent)
            elif kind is Request:
                self._take_request(gathered, one, parent)
            elif kind is SkippedLinks:
                gathered.links += one.amount
                gathered.refused[one.reason] += one.amount
            elif is_item(one):
                gathered.items.append(one)
            elif one is not None:
                raise SpiderError(
                    f"callback gave {kind.__name__} {one!r:.60}",
                    remedy="yield items (dict, dataclass, attrs, pydantic) and requests",
                )
        return gathered

    def _too_deep(self, parent: Request, depth: int) -> bool:
        limit = parent.depth_limit
        return self._scope.too_deep(depth) or (limit is not None and depth > limit)

    def _take_links(self, gathered: CallbackResult, links: Links, parent: Request) -> None:
        hrefs = links.hrefs
        gathered.links += len(hrefs)
        depth = parent.depth + 1
        if self._too_deep(parent, depth):
            gathered.refused[reasons.DEPTH] += len(hrefs)
            return
        if self._fingerprint_keys or not _SHAPING_FIELDS.isdisjoint(links.fields):
            for request in links:
                self._take_request(gathered, request, parent)
            return
        memory = self.memory.of(links.base_url)
        strange = memory.sort_out(hrefs, gathered.refused)
        if strange and links.base_url == parent.url:  # "#part" leads to the page itself
            met, strange = len(strange), [href for href in strange if href[:1] != "#"]
            if len(strange) < met:
                gathered.refused[DUPLICATE] += met - len(strange)
        if not strange:
            return
        batch = LinkBatch(_NO_TEMPLATE, [], [], [])
        self._fill(batch, memory, strange, join_all(links.base_url, strange), gathered.refused)
        if batch.urls:
            batch.template = self._template(batch, links, parent, depth)
            gathered.batches.append(batch)

    def _fill(
        self,
        batch: LinkBatch,
        memory: FolderLinkCache,
        hrefs: list[str],
        urls: list[str | None],
        refused: defaultdict[str, int],
    ) -> None:
        """Take what is new and admitted into the batch; remember what is not."""
        digest, seed, origins, known = xxhash.xxh3_128_digest, self._seed, self._origins, self.memory.urls
        for href, url in zip(hrefs, urls, strict=True):
            if url in known:
                refused[DUPLICATE] += 1
                memory.note_known(href)
                continue
            if url is None:
                refused[reasons.UNPARSABLE] += 1
                memory.note_refused(href, reasons.UNPARSABLE)
                continue
            met = origins.get(url[: url.find("/", 8)])
            refusal, slot = self._meet(url) if met is None else met
            if refusal is None:
                refusal = self._scope.refuse_path(url)
            if refusal is not None:
                refused[refusal] += 1
                memory.note_refused(href, refusal)
                continue
            batch.urls.append(url)
            plain = "?" not in url and "%" not in url
            batch.fingerprints.append(digest((url if plain else identity(url)).encode(), seed))
            batch.slots.append(slot)

    def _template(self, batch: LinkBatch, links: Links, parent: Request, depth: int) -> Entry:
        request = Request("", **{**links.fields, "depth": depth, "referer": parent.url})
        request = self._in_same_queue(self._of_same_task(request, parent), parent)
        _check_order(request, links.base_url)
        if request.queue:
            batch.slots = [slot_in(request.queue, slot) for slot in batch.slots]
        return Entry(
            b"", "", "", encode_request(request), request.priority, request.not_before, request.delay
        )

    def _meet(self, url: str) -> tuple[str | None, str]:
        """Decide on an origin that was not met lately."""
        if not url.startswith(("http://", "https://")):
            return reasons.SCHEME, ""  # not remembered: such URLs have no origin to speak of
        host = host_of(url)
        refusal = None if self._scope.admits_host(host) else reasons.HOST
        if len(self._origins) >= _ORIGINS_REMEMBERED:
            self._origins.clear()
        decision = self._origins[url[: url.find("/", 8)]] = (refusal, self._politeness.slot_of(host))
        return decision

    def _take_request(self, gathered: CallbackResult, request: Request, parent: Request) -> None:
        gathered.links += 1
        depth = parent.depth + 1
        if self._too_deep(parent, depth):
            gathered.refused[reasons.DEPTH] += 1
            return
        request = self._in_same_queue(self._of_same_task(request, parent), parent)
        entry = self.entry(request.replace(depth=depth, referer=request.referer or parent.url))
        if isinstance(entry, Entry):
            gathered.entries.append(entry)
        else:
            gathered.refused[entry] += 1

    def _of_same_task(self, request: Request, parent: Request) -> Request:
        key = self._task_key
        if key is None or key not in parent.meta or key in request.meta:
            return request
        return request.replace(meta={key: parent.meta[key], **request.meta})

    @staticmethod
    def _in_same_queue(request: Request, parent: Request) -> Request:
        return request.replace(queue=parent.queue) if parent.queue and not request.queue else request

    def entry(self, request: Request) -> Entry | str:
        """Return a request as an entry for the frontier, or the reason to refuse it."""
        url = normalize(request.url)
        if url is None:
            return reasons.UNPARSABLE
        if not url.startswith(("http://", "https://")):
            return reasons.SCHEME
        host = host_of(url)
        refusal = self._scope.refuse(url, host)
        if refusal is not None:
            return refusal
        if url != request.url:
            request = request.replace(url=url)
        if self._fingerprint_keys:
            keys = dict.fromkeys((*request.fingerprint_keys, *self._fingerprint_keys))
            request = request.replace(fingerprint_keys=tuple(keys))
        _check_order(request, url)
        slot = self._politeness.slot_of(host)
        if request.queue:
            slot = slot_in(request.queue, slot)
            if request.queue == DEFAULT_QUEUE:  # which a record names by saying nothing
                request = request.replace(queue="")
        return Entry(
            fingerprint(request, self._seed), slot, url, encode_request(request),
            request.priority, request.not_before, request.delay, dedup=not request.dont_filter,
        )  # fmt: skip


def _check_order(request: Request, url: str) -> None:
    """Refuse what a frontier could not put in order."""
    priority = request.priority
    if not isinstance(priority, int) or not -(2**63) < priority < 2**63:
        raise RequestError(
            f"request {url!r} has priority {priority!r}", remedy="a priority is a 64-bit integer"
        )
    for name in ("delay", "not_before"):
        seconds = getattr(request, name)
        if not isinstance(seconds, (int, float)) or not math.isfinite(seconds):
            raise RequestError(
                f"request {url!r} has {name} {seconds!r}", remedy=f"{name} is a number of seconds"
            )
