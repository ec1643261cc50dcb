"""Seeds: streams a spider's first requests to the frontier, resumable, never all in memory."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Iterable
from typing import Any

import xxhash

from skitter.errors import NoSeeds, SkitterError, SpiderError
from skitter.frontier.contract import Frontier, SeedKeys
from skitter.frontier.records import Entry, ExternalSeed, SeedBatch, SeedClaim, SeedProgress
from skitter.request import Request
from skitter.spider import Spider
from skitter.worker.backpressure import QueueCapacity
from skitter.worker.links import LinkCollector
from skitter.worker.seed_format import read_seed

log = logging.getLogger("skitter.crawl")
SKIPPED = object()
"""What ``start`` may give in place of a seed that is not wanted any more: the seeds after it keep their places."""
_AT_ONCE = 500
_AT_LATEST = 0.2
"""Seconds after which seeds are handed over though they are few: the next may be long in coming."""


class SeedLoader:
    """Loads the seeds of a job, if this worker gets the duty to.

    ``others_come``: the job gets seeds from outside too, so its spider need not have any.
    """

    def __init__(
        self,
        spider: Spider,
        frontier: Frontier,
        gatherer: LinkCollector,
        worker: str,
        room: QueueCapacity | None = None,
        *,
        others_come: bool = False,
    ) -> None:
        self._spider = spider
        self._frontier = frontier
        self._gatherer = gatherer
        self._worker = worker
        self._room = room if room is not None else QueueCapacity()
        self._others_come = others_come
        self._batch: list[Entry] = []
        self._position = 0
        self._adding = asyncio.Lock()

    async def run(self) -> bool:
        """Claim the duty and do it; returns whether there was nothing to claim.

        Raises whatever ``start`` raises, and :class:`~skitter.errors.SpiderError` for a seed that is no
        request or that the scope refuses: a crawl that leaves out what it was asked for is no crawl.
        """
        claim = await self._frontier.claim_seeds(self._worker)
        if claim is None:
            return True
        self._batch, self._position = [], 0
        regularly = asyncio.create_task(self._hand_over_regularly(claim))
        try:
            await self._take_all(claim)
        finally:
            regularly.cancel()
            await asyncio.gather(regularly, return_exceptions=True)
        await self._hand_over(claim, done=True)
        log.info("seeds loaded: %d", self._position)
        return False

    async def _take_all(self, claim: SeedClaim) -> None:
        try:
            async for seed in _stream(self._spider):
                self._position += 1
                if self._position > claim.position and seed is not SKIPPED:
                    self._batch.append(self._entry(seed))
                    if len(self._batch) >= _AT_ONCE:
                        await self._hand_over(claim)
        except NoSeeds:
            if not self._others_come:
                raise

    async def _hand_over_regularly(self, claim: SeedClaim) -> None:
        while True:
            await asyncio.sleep(_AT_LATEST)
            if self._batch:
                await self._hand_over(claim)

    async def _hand_over(self, claim: SeedClaim, *, done: bool = False) -> None:
        async with self._adding:
            if self._batch:
                await self._room.wait()  # before the seeds are taken: their place is where they stand by then
                self._room.take(len(self._batch))
            batch, self._batch = self._batch, []
            await self._frontier.add(batch, SeedProgress(claim.token, self._position, done))

    def _entry(self, seed: object) -> Entry:
        request = Request(seed) if isinstance(seed, str) else seed
        if not isinstance(request, Request):
            raise SpiderError(
                f"start of spider {self._spider.name!r} gave {type(seed).__name__} {seed!r:.60}",
                remedy="yield requests or URLs",
            )
        entry = self._gatherer.entry(request)
        if isinstance(entry, str):
            raise SpiderError(
                f"seed {request.url!r} is refused: {entry}",
                remedy="give an absolute http(s) URL within the scope of the crawl",
            )
        return entry


async def _stream(spider: Spider) -> AsyncIterator[object]:
    """Run ``start``, which may be an async generator, a generator, or return an iterable, awaited or not."""
    started: Any = spider.start()
    if inspect.isawaitable(started):
        started = await started
    if hasattr(started, "__aiter__"):
        async for seed in started:
            yield seed
        return
    if not isinstance(started, Iterable):
        raise SpiderError(
            f"start of spider {spider.name!r} gives {type(started).__name__}",
            remedy="write it as an async generator: async def start(self): yield Request(...)",
        )
    for seed in started:
        yield seed


_SEED_KEY_BATCH = 500
_LOOK_EVERY = 0.5
_LOOK_AT_LEAST_EVERY = 2.0
"""Seconds between two looks, the more the longer there was nothing."""
_SLOT = "seeds"
"""Where a dead letter is filed that has no host."""


class SeedKeyReader:
    """Watches the seed keys for one worker. All workers do: what one takes no other gets."""

    def __init__(
        self, seed_keys: SeedKeys, gatherer: LinkCollector, room: QueueCapacity | None = None
    ) -> None:
        self._seed_keys = seed_keys
        self._gatherer = gatherer
        self._room = room if room is not None else QueueCapacity()

    async def run(self) -> None:
        """Take seeds until cancelled."""
        pause = _LOOK_EVERY
        while True:
            await self._room.wait()
            batch = await self._seed_keys.take(_SEED_KEY_BATCH)
            if batch is not None:
                await self._settle(batch)
            if batch is None or len(batch.seeds) < _SEED_KEY_BATCH:
                await asyncio.sleep(pause)
                pause = min(1.5 * pause, _LOOK_AT_LEAST_EVERY) if batch is None else _LOOK_EVERY

    async def _settle(self, batch: SeedBatch) -> None:
        entries: list[Entry] = []
        rejected: list[tuple[Entry, str]] = []
        for seed in batch.seeds:
            try:
                entry = self._gatherer.entry(read_seed(seed.value, priority=seed.priority))
            except SkitterError as error:
                entry = str(error)
            if isinstance(entry, Entry):
                entries.append(entry)
            else:
                log.warning("seed %r of %s: %s", seed.value[:200], seed.key, entry)
                rejected.append((_letter(seed), f"seed: {entry}"))
        self._room.take(len(entries))
        if await self._seed_keys.settle(batch.token, entries, rejected) and entries:
            log.info("seeds taken from outside: %d", len(entries))


def _letter(seed: ExternalSeed) -> Entry:
    """Return what is kept of an element that is no request: as much of it as people can read in one line."""
    text = seed.value[:2000].decode("utf-8", "backslashreplace")
    name = "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)
    return Entry(xxhash.xxh3_128_digest(seed.value), _SLOT, name, b"", seed.priority, dedup=False)
