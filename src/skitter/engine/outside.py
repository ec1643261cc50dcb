"""Outside: turns what foreign programs have put into the seed keys into requests."""

from __future__ import annotations

import asyncio
import logging

import xxhash

from skitter.engine.gather import Gatherer
from skitter.engine.room import Room
from skitter.engine.seed_format import read_seed
from skitter.errors import SkitterError
from skitter.frontier.base import SeedKeys
from skitter.frontier.records import Entry, OutsideSeed, SeedBatch

log = logging.getLogger("skitter.engine")

_AT_ONCE = 500
_LOOK_EVERY = 0.5
_LOOK_AT_LEAST_EVERY = 2.0
"""Seconds between two looks, the more the longer there was nothing."""
_SLOT = "seeds"
"""Where a dead letter is filed that has no host."""


class OutsideSeeds:
    """Watches the seed keys for one worker. All workers do: what one takes no other gets."""

    def __init__(self, frontier: SeedKeys, gatherer: Gatherer, room: Room | None = None) -> None:
        self._frontier = frontier
        self._gatherer = gatherer
        self._room = room if room is not None else Room()

    async def run(self) -> None:
        """Take seeds until cancelled."""
        pause = _LOOK_EVERY
        while True:
            await self._room.wait()
            batch = await self._frontier.take_seeds(_AT_ONCE)
            if batch is not None:
                await self._settle(batch)
            if batch is None or len(batch.seeds) < _AT_ONCE:
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
        if await self._frontier.settle_seeds(batch.token, entries, rejected) and entries:
            log.info("seeds taken from outside: %d", len(entries))


def _letter(seed: OutsideSeed) -> Entry:
    """Return what is kept of an element that is no request: as much of it as people can read in one line."""
    text = seed.value[:2000].decode("utf-8", "backslashreplace")
    name = "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)
    return Entry(xxhash.xxh3_128_digest(seed.value), _SLOT, name, b"", seed.priority, dedup=False)
