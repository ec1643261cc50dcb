"""StartRequests: adds the output of a Scrapy spider's ``start()`` to the frontier once, even if processes are killed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Protocol

import scrapy

from skitter._utils.concurrency import cancel_and_wait
from skitter.errors import SkitterError, SpiderError
from skitter.frontier.records import Entry, SeedClaim, SeedProgress
from skitter.worker.callbacks import describe_plain

if TYPE_CHECKING:
    from skitter.frontier.contract import Frontier
    from skitter.scrapy.requests import RequestCodec

log = logging.getLogger("skitter.scrapy")

_BATCH_SIZE = 200
_MAX_DELAY = 0.1
"""Seconds after which an incomplete batch is added, because ``start()`` may take long to yield the next request."""
_POLL_INTERVAL = 1.0
"""Seconds between two checks whether another process has loaded the seeds, or has stopped loading them."""


class CodecHolder(Protocol):
    """Holds the codec of requests while a worker runs."""

    codec: RequestCodec | None


class StartRequests:
    """Passes start requests to the engine unless the frontier has them, and stores those that the engine schedules.

    Each request passes through the engine, so that its signals and middlewares work. Items are stored at once: each is
    later leased like a request, and then passes the pipelines. One process at a time reads ``start()``. If it ends early,
    another process reads it again, and skips what is stored.
    """

    def __init__(self, holder: CodecHolder) -> None:
        self._holder = holder
        self.worker = ""
        self.on_failed: Callable[[str], object] = lambda _: None
        """Called with the reason if reading ``start()`` fails."""
        self._frontier: Frontier | None = None
        self._has_news = asyncio.Event()
        """Set while a worker runs, and after the run has ended."""
        self._is_over = False
        self._claim: SeedClaim | None = None
        self._position = 0
        """Number of start requests and items that were read."""
        self._handled = 0
        """Number of start requests and items that the engine has handled."""
        self._stored = 0
        """Number of start requests and items that are stored."""
        self._is_read = False
        """Whether ``start()`` was read completely."""
        self._expected: scrapy.Request | None = None
        """The start request that the engine has now."""
        self._batch: list[tuple[int, Entry]] = []
        """Requests and items that are not stored yet, with their positions."""
        self._lock = asyncio.Lock()

    def begin(self, frontier: Frontier, worker: str) -> None:
        """Start using a frontier."""
        self._frontier, self.worker = frontier, worker
        self._has_news.set()

    def end(self) -> None:
        """Stop using the frontier. The frontier of a new owner may follow."""
        self._frontier = self._claim = None
        self._has_news.clear()

    def stop(self) -> None:
        """Stop permanently."""
        self.end()
        self._is_over = True
        self._has_news.set()

    def is_expected(self, request: scrapy.Request) -> bool:
        """Return whether a request is the start request that the engine has just received."""
        return request is self._expected

    def add(self, request: scrapy.Request) -> None:
        """Store a start request with the next batch."""
        self._expected = None
        codec = self._holder.codec
        if codec is None:
            return  # the position does not advance, so that the next process stores the request
        origin = b"seed/%d" % self._position
        entry = codec.entry_or_rejection(request, origin)
        self._batch.append((self._position, entry))
        self._handled = self._position

    def _add_item(self, item: Any) -> None:
        codec = self._holder.codec
        if codec is not None:  # as in add()
            self._batch.append((self._position, codec.item_entry(item, self._position)))
            self._handled = self._position

    async def read(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Yield the start requests that are not stored, if this process has to read them."""
        if not await self._claim_seeds():
            return
        flushing = asyncio.create_task(self._flush_regularly())
        try:
            async for result in self._new(start):
                yield result
            self._is_read = True
            await self._flush()
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:
            self.on_failed(f"start() has failed: {describe_plain(error)}")
            raise
        finally:
            await cancel_and_wait([flushing])

    async def _new(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        known = self._stored
        async for result in start:
            self._position += 1
            if self._position <= known:
                continue
            if isinstance(result, scrapy.Request):
                self._expected = result
                yield result
                if self._expected is not None:
                    # A handler of the signal request_scheduled has dropped the request.
                    self._expected, self._handled = None, self._position
            else:
                self._add_item(result)
            if len(self._batch) >= _BATCH_SIZE:
                await self._flush()
            if self._is_over or self._stored > self._position:
                return  # another process reads them now

    async def _claim_seeds(self) -> bool:
        """Claim the seeds, or wait until another process has loaded them. Return whether to load them."""
        while True:
            await self._has_news.wait()
            frontier = self._frontier
            if self._is_over or frontier is None:
                return False
            with contextlib.suppress(SkitterError):  # the worker encounters and reports the same error
                claim = await frontier.claim_seeds(self.worker)
                if claim is not None:
                    self._continue(claim)
                    return True
                if not (await frontier.status()).seeds_loading:
                    return False
            await asyncio.sleep(_POLL_INTERVAL)

    def _continue(self, claim: SeedClaim) -> None:
        """Continue after the requests that are stored, with the ones that this process has read."""
        if claim.position < self._stored:
            raise SpiderError(
                "start() has to be read again, because the frontier has lost start requests",
                remedy="run the same command again",
            )
        self._claim, self._stored = claim, claim.position
        self._batch = [(position, entry) for position, entry in self._batch if position > claim.position]

    async def _flush_regularly(self) -> None:
        while True:
            await asyncio.sleep(_MAX_DELAY)
            if self._batch:
                await self._flush()

    async def _flush(self) -> None:
        """Store what was read."""
        async with self._lock:
            while not self._is_over:
                frontier, claim = self._frontier, self._claim
                if frontier is None or claim is None:
                    if not await self._claim_seeds():  # another process has loaded all seeds
                        self._batch.clear()
                        return
                    continue
                entries, position = [entry for _, entry in self._batch], max(self._handled, self._stored)
                try:
                    await frontier.add(entries, SeedProgress(claim.token, position, self._is_read))
                except SkitterError:
                    # The worker encounters and reports the same error, or there is a new owner.
                    self._claim = None
                    await asyncio.sleep(_MAX_DELAY)
                    continue
                self._batch = self._batch[len(entries) :]
                self._stored = position
                return
