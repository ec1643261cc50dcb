"""Revisits: chooses the pages to fetch again, compares them with their last visits, and records visits.

``docs/design/revisiting.md`` explains the protocol.
"""

from __future__ import annotations

import asyncio
import math
import random
import re
import struct
import time
import zlib
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
import xxhash

from skitter._utils.notes import NOTE_TTL
from skitter.errors import StoreError, UndecodableRecord
from skitter.frontier.records import PageChange, PageVisit, Resolution
from skitter.item import encode_item
from skitter.links import Links
from skitter.request import Request, decode_request, encode_request
from skitter.settings import Settings
from skitter.web.headers import REDIRECTS, strong_last_modified, with_defaults
from skitter.worker.page import MEMORY_VERSION, ChangeHistory, Page, PageMemory

if TYPE_CHECKING:
    from skitter.frontier.contract import Notes
    from skitter.response import Response

_WORTH_COMPRESSING = 300
"""Bytes of links above which they are compressed."""
NOT_MODIFIED = 304
_GONE = frozenset({404, 410})
_CONDITIONS = frozenset(
    {"if-none-match", "if-modified-since", "if-match", "if-unmodified-since", "if-range", "range"}
)
_DIGEST_SIZE = 8
"""Bytes of the hash of an item."""
_KEEPS_ITEMS = frozenset({PageChange.UNCHANGED, PageChange.UNCHECKED, PageChange.SKIPPED})


class _FollowedLinks(msgspec.Struct, array_like=True):
    """Links or requests of a page with the same fields."""

    record: bytes
    """A request without URL."""
    base_url: str
    urls: list[str]
    one_by_one: bool = False
    """Whether the requests must be processed one by one."""


class _Followed(msgspec.Struct, array_like=True):
    links: list[_FollowedLinks]
    hops: list[tuple[str, bytes]]
    """Requests at the depth of the page itself: the target of a ``Refresh``."""


_encode = msgspec.msgpack.Encoder().encode
_decode_memory = msgspec.msgpack.Decoder(PageMemory).decode
_decode_followed = msgspec.msgpack.Decoder(_Followed).decode


_SAMPLE_NOTE = "skitter:revisit-sample"
SAMPLE_SIZE = 500
"""Pages in a sample. The share of the pages that a pass fetches then has a standard error of at most 2.2 percentage
points (with a ``revisit_share`` of 0.5; 1.3 with 0.1)."""
_SAVE_INTERVAL = 10.0
"""Seconds between two writes of the sample to the frontier."""


class _Samples(msgspec.Struct, array_like=True):
    """The note that the workers of a job share."""

    pass_number: int
    last_sample: list[ChangeHistory]
    """The sample that determines the threshold of this pass. A worker that starts later needs the same sample."""
    sample: list[ChangeHistory]
    """The sample of this pass, for the next one."""
    pages: int
    """Number of pages from which it was drawn."""


_decode_samples = msgspec.msgpack.Decoder(_Samples).decode


class RevisitSchedule:
    """Chooses the share of the known pages that a pass fetches again: those that gain most from a fetch.

    A page is due if its gain reaches a threshold. The threshold follows from a sample of the pages that the last pass
    reached, so that no process has to read the records of all pages. Workers need not coordinate: each draws a sample
    of its own pages, and the sample of any worker represents all of them.

    ``share``: above 0 and below 1. ``last_sample``: the sample of the last pass; empty if there is none: then all pages
    are due.
    """

    def __init__(
        self, share: float, pass_number: int, last_sample: Sequence[ChangeHistory], now: float
    ) -> None:
        self._pass = pass_number
        self._last_sample = list(last_sample)
        self._now = now
        self._sample: list[ChangeHistory] = []
        """The sample of this pass."""
        self._pages = 0
        """Number of pages from which it was drawn."""
        self._saved_pages = 0
        """Number of pages from which the last saved sample was drawn."""
        gains = sorted((page.gain(now) for page in last_sample), reverse=True)
        self._threshold = gains[math.ceil(len(gains) * share) - 1] if gains else 0.0

    @classmethod
    async def load(cls, notes: Notes, share: float, pass_number: int) -> RevisitSchedule:
        """Return the schedule of a pass."""
        note = await notes.get(_SAMPLE_NOTE)
        samples = _Samples(0, [], [], 0) if note is None else _decode_samples(note)
        now = time.time()
        if samples.pass_number != pass_number:
            return cls(share, pass_number, samples.sample, now)
        schedule = cls(share, pass_number, samples.last_sample, now)
        # Continue the saved sample: a worker that processes only the last pages of a pass must not replace it by one of
        # these pages.
        schedule._sample, schedule._pages = samples.sample, samples.pages
        schedule._saved_pages = samples.pages
        return schedule

    def is_due(self, history: ChangeHistory) -> bool:
        """Return whether a page is fetched in this pass."""
        return history.gain(self._now) >= self._threshold

    def record(self, history: ChangeHistory) -> None:
        """Record the history of a page of this pass. Each page has the same chance to be in the sample (reservoir sampling)."""
        self._pages += 1
        if len(self._sample) < SAMPLE_SIZE:
            self._sample.append(history)
        elif (place := random.randrange(self._pages)) < SAMPLE_SIZE:
            self._sample[place] = history

    async def save(self, notes: Notes) -> None:
        """Save the sample for the next pass, if it has changed."""
        if self._saved_pages < self._pages:
            self._saved_pages = self._pages
            note = _encode(_Samples(self._pass, self._last_sample, self._sample, self._pages))
            await notes.put(_SAMPLE_NOTE, note, NOTE_TTL)

    async def keep_saved(self, notes: Notes) -> None:
        """Save the sample periodically, because the worker may be killed."""
        while True:
            await asyncio.sleep(_SAVE_INTERVAL)
            await self.save(notes)


class Revisits:
    """Compares pages with their last visits, for a job with the setting ``changes``.

    ``listing_callbacks``: callbacks whose pages each pass fetches, because they list new pages.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        renders_pages: bool,
        listing_callbacks: Collection[str] = (),
    ) -> None:
        assert settings.changes is not None
        self._mode = settings.changes
        self._pass = 1
        self._schedule: RevisitSchedule | None = None
        self._uses_lastmod = settings.use_lastmod
        self._keeps_history = self._uses_lastmod
        self._listing_callbacks = listing_callbacks
        self._has_cache = settings.cache_dir is not None
        rules = settings.fetcher_rules
        self._conditional = (
            not renders_pages
            and settings.fetcher != "adaptive"
            and not any(rule.get("fetcher", "http") != "http" or rule.get("browsing") for rule in rules)
        )

    def begin_pass(self, number: int, schedule: RevisitSchedule | None) -> None:
        """Compare pages for another pass from now on. ``schedule``: ``None`` if the pass fetches all pages."""
        self._pass = number
        self._schedule = schedule
        self._keeps_history = self._uses_lastmod or schedule is not None

    def begin(self, page: Page) -> None:
        """Prepare a leased page."""
        memory = page.lease.memory
        if memory is not None and not page.request.dont_filter:
            page.memory = found = _read(memory)
            if self._uses_lastmod and not found.has_lastmod and self._is_listing(page.request):
                found.etag, found.modified, found.digest = "", "", b""  # parse it again
        if self._mode != "all" and self._pass > 1:  # keyed stores keep one version per pass
            page.item_key = xxhash.xxh3_128_digest(page.item_key, self._pass)

    def is_due(self, page: Page) -> bool:
        """Return whether to fetch a page.

        Seeds, sitemaps, new pages and pages whose items are missing are always due.
        """
        memory, request = page.memory, page.request
        if not self._keeps_history or memory is None or memory.history is None or not memory.digest:
            return True
        if request.depth == 0 or self._is_listing(request):
            return True
        changed = self._stated_change(request)
        if changed is not None:
            fetched = memory.history.fetched
            return changed > fetched or not trusts_lastmod(page.lease.fingerprint, fetched, time.time())
        return self._schedule is None or self._schedule.is_due(memory.history)

    def _is_listing(self, request: Request) -> bool:
        return request.callback in self._listing_callbacks

    def _stated_change(self, request: Request) -> float | None:
        """Return the time of the last change of a page as its sitemap states it; ``None`` if that is not usable."""
        if not self._uses_lastmod or not request.lastmod:
            return None
        return latest_change(request.lastmod, time.time())

    def skip(self, page: Page) -> None:
        """Record that a page is not fetched in this pass."""
        page.visit = PageVisit(PageChange.SKIPPED)
        page.count("visits/skipped")
        if page.memory is not None and page.memory.history is not None:
            self._record(page, page.memory.history)

    def conditional(self, page: Page, request: Request) -> Request:
        """Return the request with the validators of the last visit, if it may be conditional (RFC 9110, 13.1).

        From the second pass on, responses must not come from the cache, because a pass looks for changes.
        """
        memory = page.memory
        if self._has_cache and self._pass > 1:
            headers = with_defaults(request.headers, {"Cache-Control": "no-cache"})
            request = request.replace(headers=headers)
        if memory is None or not self._conditional or not (memory.etag or memory.modified):
            return request
        if request.method != "GET" or request.body or request.browsing is not None:
            return request
        if request.fetcher not in {"", "http"} or any(
            name.lower() in _CONDITIONS for name in request.headers
        ):
            return request
        headers = dict(request.headers)
        if memory.etag:
            headers["If-None-Match"] = memory.etag
        if memory.modified:
            headers["If-Modified-Since"] = memory.modified
        return request.replace(headers=headers)

    def is_unchanged(self, page: Page, response: Response) -> bool:
        """Return whether a response has the content of the last visit. If not, begin the ``new_memory`` of the page."""
        if page.request.dont_filter:
            return False
        if page.memory is not None and response.status == NOT_MODIFIED:
            return True
        digest = xxhash.xxh3_128_digest(_without_time(response.body), response.status)
        if page.memory is not None and page.memory.digest == digest:
            return True
        page.new_memory = PageMemory(
            etag=response.header("etag"),
            modified=strong_last_modified(response.header("last-modified"), response.header("date")),
            digest=digest,
            history=self._next_history(page, is_changed=True),
            has_lastmod=self._uses_lastmod,
        )
        return False

    def mark_unchanged(self, page: Page, status: int) -> None:
        """Record that a page has the content of its last visit."""
        memory = page.memory
        if memory is not None and (history := self._next_history(page, is_changed=False)) is not None:
            page.visit = PageVisit(
                PageChange.UNCHANGED, status, memory=_encode(msgspec.structs.replace(memory, history=history))
            )
        else:
            page.visit = PageVisit(PageChange.UNCHANGED, status)
        page.count("visits/unchanged")

    def _next_history(self, page: Page, *, is_changed: bool) -> ChangeHistory | None:
        """Return the history of a page after a fetch; ``None`` if the job keeps none."""
        if not self._keeps_history:
            return None
        memory, fetched = page.memory, time.time()
        if page.began:  # it may have changed during the transfer
            fetched -= time.monotonic() - page.began
        if memory is None or memory.history is None:
            history = ChangeHistory(fetched)
        else:
            history = memory.history.after(fetched, is_changed=is_changed)
        if page.request.depth:
            self._record(page, history)
        return history

    def _record(self, page: Page, history: ChangeHistory) -> None:
        """Record the history of a page for the next pass, if the schedule and not its ``lastmod`` decides about it."""
        if self._schedule is not None and self._stated_change(page.request) is None:
            self._schedule.record(history)

    def select(self, items: list[Any], page: Page) -> list[Any]:
        """Return the items of a new or changed page that the job delivers."""
        before, memory = page.memory, page.new_memory
        if self._mode == "all" or memory is None:
            return items
        if self._mode == "new":
            return items if before is None else []
        digests = [_digest(item) for item in items]
        memory.items = b"".join(digests)
        if before is None:
            return items
        known = {
            before.items[start : start + _DIGEST_SIZE] for start in range(0, len(before.items), _DIGEST_SIZE)
        }
        return [item for item, digest in zip(items, digests, strict=True) if digest not in known]

    def visit(self, page: Page, results: Sequence[Any], hops: Sequence[Request]) -> PageVisit | None:
        """Return the record of the visit of a page, whose callback has yielded these results."""
        memory, response = page.new_memory, page.response
        if memory is None or response is None:
            return None
        memory.links = pack_links(results, hops)
        if len(memory.links) > _WORTH_COMPRESSING:
            memory.links, memory.compressed = zlib.compress(memory.links), True
        change = PageChange.NEW if page.memory is None else PageChange.CHANGED
        return PageVisit(change, response.status, page.lease.url, _encode(memory))

    def settle(self, page: Page) -> bool:
        """Record the outcome of a page whose callback did not run. Return whether to follow its known links again."""
        if page.decision.resolution is Resolution.RETRY or page.memory is None or page.visit is not None:
            return False
        status = 0 if page.response is None else page.response.status
        is_done = page.decision.resolution is Resolution.DONE
        is_gone = status in _GONE or (status in REDIRECTS and is_done)
        change = PageChange.GONE if is_gone else PageChange.UNCHECKED
        page.visit = PageVisit(change, status)
        page.count(f"visits/{change}")
        return not is_gone


_TOLERANCE = 3600.0
"""Seconds by which the clock of a site may differ from ours, or a cache may respond with an older copy of a page."""
_LAST_ZONE, _FIRST_ZONE = 12 * 3600.0, 14 * 3600.0
"""A time without a zone may be in any zone from UTC-12 to UTC+14."""
MAX_TRUST = 90 * 86_400.0
"""Maximum number of seconds for which a ``lastmod`` may keep a page from being fetched."""
# The formats of https://www.w3.org/TR/NOTE-datetime, and the most frequent deviations in sitemaps.
_LASTMOD = re.compile(
    r"(\d{4})(?:-(\d\d)(?:-(\d\d)(?:[Tt ](\d\d):(\d\d)(?::(\d\d)(?:[.,]\d+)?)?"
    r"[ ]?([Zz]|[+-](?:0\d|1[0-4]):?[0-5]\d)?)?)?)?",
    re.ASCII,
)


@lru_cache(maxsize=256)
def _period_of(lastmod: str) -> tuple[float, float] | None:
    """Return the first and the last Unix time that a ``lastmod`` may mean; ``None`` if it is invalid."""
    found = _LASTMOD.fullmatch(lastmod.strip())
    if found is None:
        return None
    year, month, day, hour, minute, second, zone = found.groups()
    try:
        moment = datetime(
            int(year), int(month or 1), int(day or 1), int(hour or 0), int(minute or 0), int(second or 0), tzinfo=UTC
        )  # fmt: skip
        if day is None:
            years, months = divmod(moment.month - 1 + (12 if month is None else 1), 12)
            end = moment.replace(year=moment.year + years, month=months + 1).timestamp()
        else:
            end = moment.timestamp() + (86_400 if hour is None else 60 if second is None else 1)
    except ValueError:
        return None
    start = moment.timestamp()
    if zone is None:
        return start - _FIRST_ZONE, end + _LAST_ZONE
    offset = 0 if zone in "Zz" else int(zone[:3]) * 3600 + int(zone[0] + zone[-2:]) * 60
    return start - offset, end - offset


def latest_change(lastmod: str, now: float) -> float | None:
    """Return the last Unix time at which a page may have changed according to its ``lastmod``.

    ``None`` if ``lastmod`` is invalid, or in the future.
    """
    period = _period_of(lastmod)
    if period is None or period[0] > now + _TOLERANCE:
        return None
    return period[1] + _TOLERANCE


def trusts_lastmod(fingerprint: bytes, fetched: float, now: float) -> bool:
    """Return whether ``lastmod`` may still decide. If not, the page is fetched because its last fetch was too long ago.

    How long is too long differs from page to page and from fetch to fetch (a hash of both, up to :data:`MAX_TRUST`), so
    that each pass fetches a similar number of such pages.
    """
    drawn = xxhash.xxh3_64_intdigest(fingerprint + struct.pack("<d", fetched)) / 2**64
    return 0 <= now - fetched <= drawn * MAX_TRUST


def without_items(visit: PageVisit) -> PageVisit:
    """Return a record without validators and hashes, for a page whose items are not written yet.

    If they are never written, the next pass fetches and parses the page again.
    """
    assert visit.memory is not None
    memory = _decode_memory(visit.memory)
    links = PageMemory(links=memory.links, compressed=memory.compressed)
    return msgspec.structs.replace(visit, memory=_encode(links))


def visit_of(page: Page) -> PageVisit | None:
    """Return the visit to commit with a page whose decision is final."""
    visit, resolution = page.visit, page.decision.resolution
    if visit is None or resolution is Resolution.RETRY:
        return None
    if visit.memory is not None and resolution is Resolution.FAILED:  # its items could not be stored
        return PageVisit(PageChange.UNCHECKED, visit.status)
    return visit


def keeps_items(page: Page) -> bool:
    """Return whether the items of the last visit stay as they are."""
    visit = page.visit
    return visit is not None and visit.change in _KEEPS_ITEMS


def _read(memory: bytes) -> PageMemory:
    """Decode the record of a page. A record of another version only means that the page is known."""
    try:
        found = _decode_memory(memory)
    except msgspec.MsgspecError:
        return PageMemory()
    return found if found.version == MEMORY_VERSION else PageMemory()


def _without_time(body: bytes) -> bytes:
    """Return a body without the time at which a gzip file was created (MTIME in RFC 1952), which is not part of its content."""
    return body[:4] + body[8:] if body.startswith(b"\x1f\x8b") else body


def _digest(item: Any) -> bytes:
    try:
        return xxhash.xxh3_64_digest(encode_item(item))
    except StoreError:  # writing the item raises the same error
        return bytes(_DIGEST_SIZE)


# --- links ------------------------------------------------------------------------------------------------


def pack_links(results: Sequence[Any], hops: Sequence[Request]) -> bytes:
    """Return the links and requests among the results of a callback in stored form; empty if there are none."""
    found: list[_FollowedLinks] = []
    for result in results:
        kind = result.__class__
        if kind is Links:
            record = encode_request(Request("", **result.fields))
            found.append(_FollowedLinks(record, result.base_url, list(result.hrefs)))
        elif kind is Request:
            record, one_by_one = encode_request(result), "@" in result.url
            last = found[-1] if found else None
            if last is None or (last.record, last.base_url, last.one_by_one) != (record, "", one_by_one):
                last = _FollowedLinks(record, "", [], one_by_one)
                found.append(last)
            last.urls.append(result.url)
    if not found and not hops:
        return b""
    return _encode(_Followed(found, [(hop.url, encode_request(hop)) for hop in hops]))


def unpack_links(memory: PageMemory, page_url: str) -> tuple[list[Links | Request], list[Request]]:
    """Return the links and requests that the callback of the last visit yielded.

    The second result contains the requests at the depth of the page itself. Raises
    :class:`~skitter.errors.UndecodableRecord` if they are damaged.
    """
    if not memory.links:
        return [], []
    try:
        followed = _decode_followed(zlib.decompress(memory.links) if memory.compressed else memory.links)
    except (zlib.error, msgspec.MsgspecError) as error:
        raise UndecodableRecord(f"the remembered links of {page_url} are damaged: {error}") from error
    return list(_results_of(followed.links, page_url)), [decode_request(*hop) for hop in followed.hops]


def _results_of(followed: list[_FollowedLinks], page_url: str) -> Iterator[Links | Request]:
    for links in followed:
        fields = _fields_of(links.record)
        if links.one_by_one:
            yield from [Request(url, **fields) for url in links.urls]
        else:
            yield Links(links.base_url or page_url, links.urls, fields)


@lru_cache(maxsize=4096)
def _fields_of(record: bytes) -> dict[str, Any]:
    """Return the fields of a stored request that differ from the defaults."""
    request, plain = decode_request("", record), Request("")
    fields = {name: getattr(request, name) for name in Request.__struct_fields__}
    return {name: value for name, value in fields.items() if value != getattr(plain, name)}
