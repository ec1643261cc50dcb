"""Seeds: loads the first requests of a spider into the frontier, and reads seeds from other programs."""

from __future__ import annotations

import asyncio
import binascii
import inspect
import logging
import re
from base64 import b64decode
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec
import xxhash

from skitter import scope as reasons
from skitter._utils.concurrency import cancel_and_wait, wait_until_set
from skitter.errors import CrawlFailed, NoSeeds, RequestError, SkitterError, SpiderError, counted
from skitter.fetch.address_guard import AddressGuard
from skitter.frontier.contract import Frontier, SeedSource
from skitter.frontier.records import Entry, ExternalSeed, SeedBatch, SeedClaim, SeedProgress
from skitter.request import ATTEMPT_FIELDS, URLENCODED, Request
from skitter.secrets import shown_url
from skitter.spider import Spider
from skitter.web.urls import normalize, with_scheme
from skitter.worker.callbacks import describe, find_method
from skitter.worker.inflight import QueueCapacity
from skitter.worker.links import LinkCollector

log = logging.getLogger("skitter.crawl")
SKIPPED = object()
"""Replaces a removed seed in the results of ``start``, so that later seeds keep their positions."""
_BATCH_SIZE = 500
_MAX_BATCH_DELAY = 0.2
"""Seconds after which an incomplete batch is added, because the next seed may take long."""
_POLL_INTERVAL = 0.5
_MAX_POLL_INTERVAL = 2.0
"""Seconds between two polls of a source. The interval grows while it is empty."""
_REJECTED_SLOT = "seeds"
"""Slot of the dead letter of a rejected seed, which has no host."""
_SEED_FIELDS = frozenset(Request.__struct_fields__) - {"referer", "redirects"} - ATTEMPT_FIELDS
_GOCRAWLER_FIELDS = frozenset({"URL", "Method", "Retry", "Data", "IsSecondary"})
"""Fields of ``request.Request`` of superjcd/gocrawler, as Go encodes it."""
_MAX_REPORTED = 20
"""Number of refused seeds that are logged by URL. All are counted."""
_REFUSED_REMEDY = "use absolute http(s) URLs within the scope of the crawl"
_SEED_REMEDY = 'write a URL, or {"url": "https://...", ...}'


class SeedLoader:
    """Loads the seeds of a job, unless another worker does.

    It resumes an interrupted load, and keeps one batch in memory.

    ``accepts_external``: the job also receives seeds from other programs, so its spider need not have any. ``guard``:
    opens the networks of the seeds.
    """

    def __init__(
        self,
        spider: Spider,
        frontier: Frontier,
        links: LinkCollector,
        worker: str,
        capacity: QueueCapacity | None = None,
        *,
        accepts_external: bool = False,
        guard: AddressGuard | None = None,
    ) -> None:
        self._spider = spider
        self._frontier = frontier
        self._links = links
        self._worker = worker
        self._capacity = capacity if capacity is not None else QueueCapacity()
        self._accepts_external = accepts_external
        self._guard = guard or AddressGuard()
        self._batch: list[Entry] = []
        self._refused: Counter[str] = Counter()
        """Counters of refused seeds that are not stored yet."""
        self._refusals: list[str] = []
        """The first refused seeds, with their reasons."""
        self._number_refused = 0
        self._number_reported = 0
        self._accepted = 0
        self._position = 0
        self._failure: Exception | None = None
        """Error of adding a batch. No later batch is added, because it would skip the seeds of this one."""
        self._lock = asyncio.Lock()

    async def run(self) -> bool:
        """Claim the seeds and load them. Return whether there were seeds to claim.

        Seeds that the scope refuses are counted and reported, and the others are loaded. Raises whatever ``start``
        raises, :class:`~skitter.errors.SpiderError` for a seed that is not a request, and
        :class:`~skitter.errors.CrawlFailed` if all seeds are refused.
        """
        claim = await self._frontier.claim_seeds(self._worker)
        if claim is None:
            return False
        self._batch, self._position, self._accepted = [], 0, claim.position
        self._failure = None
        self._refused, self._refusals = Counter(), []
        self._number_refused = self._number_reported = 0
        await self._read_and_add(claim)
        refused = self._number_refused
        if refused and not self._accepted and not self._accepts_external:
            further = f" and {refused - len(self._refusals)} more" if refused > len(self._refusals) else ""
            failure = CrawlFailed(
                f"no seed can be crawled: {', '.join(self._refusals)}{further}", remedy=_REFUSED_REMEDY
            )
            failure.field = "start"
            raise failure
        await self._add_batch(claim, done=True)
        if refused > len(self._refusals):
            log.warning("%s refused and skipped", counted(refused - len(self._refusals), "more seed"))
        log.info("loaded %s", counted(self._accepted, "seed"))
        return True

    async def _read_and_add(self, claim: SeedClaim) -> None:
        """Read all seeds, and add incomplete batches in the meantime.

        Adding a batch is never cancelled: if the batch had not arrived, the next one would skip its seeds.
        """
        has_ended = asyncio.Event()
        reading = asyncio.create_task(self._read_all(claim))
        adding = asyncio.create_task(self._add_periodically(claim, has_ended))
        try:
            await asyncio.wait([reading, adding], return_when=asyncio.FIRST_COMPLETED)
            if adding.done():
                await adding  # the task ends only with an error
            await reading
            has_ended.set()
            await adding
        finally:
            await cancel_and_wait((reading, adding))

    async def _read_all(self, claim: SeedClaim) -> None:
        try:
            async for seed in _stream(self._spider):
                self._position += 1
                if self._position > claim.position and seed is not SKIPPED:
                    self._take(seed)
                    if len(self._batch) >= _BATCH_SIZE:
                        await self._add_batch(claim)
        except NoSeeds:
            # Requests may have been added by the program that runs the crawl, or by skitter add.
            if not self._accepts_external and not (await self._frontier.status()).added:
                raise

    async def _add_periodically(self, claim: SeedClaim, has_ended: asyncio.Event) -> None:
        while not has_ended.is_set():
            await wait_until_set(has_ended, _MAX_BATCH_DELAY)
            if self._batch and not has_ended.is_set():
                await self._add_batch(claim)

    async def _add_batch(self, claim: SeedClaim, *, done: bool = False) -> None:
        async with self._lock:
            if self._failure is not None:
                raise self._failure
            if self._batch:
                await self._capacity.wait()  # more seeds may be added to the batch in the meantime
                self._capacity.take(len(self._batch))
            seen = 0
            while new := self._batch[seen:]:  # keep the batch until it is added: this call may be cancelled
                seen += len(new)
                await self._guard.open_for_seeds(entry.url for entry in new)
            batch, self._batch = self._batch, []
            refused, self._refused = dict(self._refused), Counter()
            try:
                await self._frontier.add(batch, SeedProgress(claim.token, self._position, done, refused))
            except Exception as error:
                self._failure = error
                raise
            for refusal in self._refusals[self._number_reported :]:
                log.warning("seed %s is refused and skipped", refusal)
            self._number_reported = len(self._refusals)

    def _take(self, seed: object) -> None:
        """Add a seed to the batch, or count its refusal."""
        request = Request(seed) if isinstance(seed, str) else seed
        if not isinstance(request, Request):
            raise SpiderError(
                f"start of spider {self._spider.name!r} yielded an unsupported {type(seed).__name__}: {seed!r:.60}",
                remedy="yield requests or URLs",
                field="start",
            )
        entry = self._links.entry(request)
        if isinstance(entry, Entry):
            self._batch.append(entry)
            self._accepted += 1
            return
        self._refused[f"refused/{entry}"] += 1
        self._number_refused += 1
        if len(self._refusals) < _MAX_REPORTED:
            self._refusals.append(f"{shown_url(request.url)!r:.200} ({explain_refusal(entry, request.url)})")


_EXPLANATIONS = {
    reasons.HOST: "it is outside allowed_domains or the scope",
    reasons.PATTERN: "allow or deny excludes it",
    reasons.SCHEME: "only http and https are crawled",
    reasons.UNPARSABLE: "it is not a valid absolute URL",
}


def checked_entry(request: Request, spider: object | None, links: LinkCollector) -> Entry | str:
    """Return the entry of a seed that the spider did not create, or the reason to refuse it.

    ``spider``: ``None`` if it is not known; callbacks are then not checked. Raises the errors of
    :meth:`LinkCollector.entry <skitter.worker.links.LinkCollector.entry>`.
    """
    for name in (request.callback, request.errback):
        if spider is not None and name is not None and find_method(spider, str(name)) is None:
            return f"the spider has no method {name!r}"
    entry = links.entry(request)
    if isinstance(entry, str):
        return f"{request.url!r:.200} was refused: {explain_refusal(entry, request.url)}"
    return entry


def explain_refusal(reason: str, url: str) -> str:
    """Return the reason of a refusal with its meaning, and with the complete URL if only the scheme is missing."""
    if reason == reasons.UNPARSABLE and re.match(_HOST, url) and normalize(with_scheme(url)):
        return f"{reason}: did you mean {with_scheme(url)}?"
    return f"{reason}: {_EXPLANATIONS[reason]}" if reason in _EXPLANATIONS else reason


_HOST = r"[\w-]+(?:\.[\w-]+)+(?::\d+)?(?:[/?]|$)"  # compiled at its first use


async def _stream(spider: Spider) -> AsyncIterator[object]:
    """Run ``start``.

    It may be an async generator, a generator, or a function (async or not) that returns an iterable.
    """
    started: Any = spider.start()
    if inspect.isawaitable(started):
        started = await started
    if isinstance(started, AsyncIterable):
        async for seed in started:
            yield seed
        return
    if not isinstance(started, Iterable):
        raise SpiderError(
            f"start of spider {spider.name!r} returned an unsupported {type(started).__name__}",
            remedy="write it as an async generator: async def start(self): yield Request(...)",
            field="start",
        )
    for seed in started:
        yield seed


class ExternalSeedReader:
    """Takes seeds that other programs have written, from the seed keys or the topics of a frontier.

    All workers read the source, and each seed goes to exactly one worker.

    ``spider``: its method ``make_request_from_data``, if it has one, converts the seeds. ``seed_format``: the setting
    of this name.
    """

    def __init__(
        self,
        source: SeedSource,
        links: LinkCollector,
        worker: str,
        capacity: QueueCapacity | None = None,
        guard: AddressGuard | None = None,
        spider: Spider | None = None,
        seed_format: str = "skitter",
    ) -> None:
        self._source = source
        self._worker = worker
        self._read = read_scrapy_redis_seed if seed_format == "scrapy-redis" else read_seed
        self._convert = None if spider is None else find_method(spider, "make_request_from_data")
        self._links = links
        self._capacity = capacity if capacity is not None else QueueCapacity()
        self._guard = guard or AddressGuard()

    async def run(self) -> None:
        """Take seeds until cancelled."""
        interval = _POLL_INTERVAL
        while True:
            await self._capacity.wait()
            batch = await self._source.take(self._worker, _BATCH_SIZE)
            if batch is not None:
                await self.settle(batch)
            if batch is None or len(batch.seeds) < _BATCH_SIZE:
                await asyncio.sleep(interval)
                is_empty = batch is None
                interval = min(1.5 * interval, _MAX_POLL_INTERVAL) if is_empty else _POLL_INTERVAL

    async def settle(self, batch: SeedBatch) -> None:
        """Add the seeds of a batch to the frontier; invalid ones become dead letters."""
        entries: list[Entry] = []
        rejected: list[tuple[Entry, str]] = []
        for seed in batch.seeds:
            try:
                found = [self._links.entry(request) for request in self._requests_of(seed)]
            except SkitterError as error:
                found = [str(error)]
            except Exception as error:  # noqa: BLE001 - user code
                found = [describe(error)]
            refusal = next((entry for entry in found if isinstance(entry, str)), None)
            if refusal is None:
                entries.extend(entry for entry in found if isinstance(entry, Entry))
            else:
                log.warning("rejected seed %r from %s: %s", seed.value[:200], seed.key, refusal)
                rejected.append((_rejected_entry(seed), refusal))
        self._capacity.take(len(entries))
        await self._guard.open_for_seeds(entry.url for entry in entries)
        if await self._source.settle(batch.token, entries, rejected) and entries:
            log.info("took %s of other programs", counted(len(entries), "seed"))

    def _requests_of(self, seed: ExternalSeed) -> Iterator[Request]:
        if self._convert is None:
            yield self._read(seed.value, priority=seed.priority)
            return
        made = self._convert(seed.value)
        for request in made if isinstance(made, Iterable) and not isinstance(made, (str, dict)) else [made]:
            if not isinstance(request, Request):
                raise SpiderError(
                    f"make_request_from_data returned an unsupported {type(request).__name__}: {request!r:.60}",
                    remedy="return a Request or several, or raise an error",
                    field="make_request_from_data",
                )
            unset = seed.priority and not request.priority
            yield request.replace(priority=seed.priority) if unset else request


def _rejected_entry(seed: ExternalSeed) -> Entry:
    """Return the dead letter of a rejected seed, with the beginning of its text in one readable line."""
    text = seed.value[:2000].decode("utf-8", "backslashreplace")
    name = "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)
    return Entry(xxhash.xxh3_128_digest(seed.value), _REJECTED_SLOT, name, b"", seed.priority, dedup=False)


def read_seed(data: bytes | str, *, priority: int = 0) -> Request:
    """Read one seed from another program: a URL, or a JSON object.

    The object has the fields of :class:`~skitter.request.Request`, except ``referer``, ``redirects`` and the number of
    the attempt. ``url`` is required. A body is text, or ``{"base64": "..."}`` for bytes. ``priority`` is the default for
    a seed without a priority. An object with ``URL`` is read as a request of gocrawler: ``Method``, and ``Data`` as
    ``meta``.

    Raises :class:`~skitter.errors.RequestError` for an invalid seed.
    """
    fields = _read_fields(data)
    if "URL" in fields and fields.keys() <= _GOCRAWLER_FIELDS:
        fields = {
            "url": fields["URL"],
            "method": fields.get("Method") or "GET",
            "meta": fields.get("Data") or {},
        }
    return _request({"priority": priority, **fields})


def read_scrapy_redis_seed(data: bytes | str, *, priority: int = 0) -> Request:
    """Read one seed as Scrapy-Redis 0.9 does: a URL, or a JSON object with ``url``, ``meta``, ``method`` and form data.

    The form data replace the query, or are the body of a POST request. An object ``cookies`` holds the cookies of the
    request. Raises :class:`~skitter.errors.RequestError` for an invalid seed.
    """
    fields = {"method": "GET", "meta": {}, **_read_fields(data)}
    names = ["url", "method", "meta"] + ["cookies"] * isinstance(fields.get("cookies"), dict)
    known: dict[str, Any] = {name: fields.pop(name) for name in names if name in fields}
    if known["meta"] is None:  # Scrapy accepts it as well
        known["meta"] = {}
    request = _request({"priority": priority, "dont_filter": True, **known})
    if not fields:
        return request
    form = urlencode(
        [
            (name, value if isinstance(value, str) else str(value))
            for name, values in fields.items()
            for value in (values if isinstance(values, list) else [values])
        ]
    )
    if request.method == "POST":
        headers = {"Content-Type": URLENCODED}
        return request.replace(body=form.encode(), headers=headers)
    return request.replace(url=urlsplit(request.url)._replace(query=form).geturl())


def _read_fields(data: bytes | str) -> dict[str, Any]:
    """Return the fields of a seed. A seed that is not a JSON object is a URL."""
    if isinstance(data, bytes):
        try:
            data = data.decode()
        except UnicodeDecodeError as error:
            raise RequestError(f"not valid UTF-8: {error.reason}", remedy=_SEED_REMEDY) from error
    text = data.strip()
    if not text:
        raise RequestError("the seed is empty", remedy=_SEED_REMEDY)
    if text[0] not in "{[":
        return {"url": text}
    try:
        fields = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise RequestError(f"not valid JSON: {error}", remedy=_SEED_REMEDY) from error
    if not isinstance(fields, dict):
        raise RequestError("not a JSON object", remedy=_SEED_REMEDY)
    return fields


def _request(fields: dict[str, Any]) -> Request:
    if unknown := set(fields) - _SEED_FIELDS:
        raise RequestError(
            f"unknown field: {min(unknown)!r}",
            remedy=f"use one of {', '.join(sorted(_SEED_FIELDS))}",
            field=min(unknown),
        )
    if not isinstance(fields.get("url"), str):
        raise RequestError("the seed has no url", remedy=_SEED_REMEDY, field="url")
    if "body" in fields:
        fields["body"] = _body(fields["body"])
    try:
        return msgspec.convert(fields, Request)
    except msgspec.ValidationError as error:
        raise RequestError(str(error), remedy="see the fields of a request in the documentation") from error


def _body(value: object) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, dict) and isinstance(value.get("base64"), str):
        try:
            return b64decode(value["base64"], validate=True)
        except binascii.Error as error:
            raise RequestError(
                f"the body is not valid base64: {error}", remedy=_SEED_REMEDY, field="body"
            ) from error
    raise RequestError(
        "the body is not a string", remedy='write "body": "text", or "body": {"base64": "..."}', field="body"
    )
