"""Seed keys: where foreign programs put seeds with plain LPUSH, SADD or ZADD."""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence

import msgspec

from skitter.frontier.options import FrontierOptions
from skitter.frontier.records import Entry, ExternalSeed, SeedBatch
from skitter.frontier.redis.job import RedisJob
from skitter.frontier.redis.records import EntryWriter, encode, text, to_bytes, to_words

_ENOUGH_QUEUED = 10_000
"""While so many requests are queued, what is in the keys stays there: it can still be overtaken and counted."""
_LOWEST, _HIGHEST = 1 - 2**63, 2**63 - 1

_read_elements = msgspec.msgpack.Decoder(list[tuple[msgspec.Raw, msgspec.Raw, float]]).decode


class SeedKeysOnRedis:
    """Moves elements of the seed keys to the queue; each is in a key, taken by one worker, or settled."""

    _job: RedisJob
    _options: FrontierOptions

    async def take_seeds(self, limit: int) -> SeedBatch | None:
        """Take elements out of the keys."""
        token = secrets.randbits(62)
        packed = await self._job.run(
            "take_seeds", token, limit, _ENOUGH_QUEUED, len(self._job.keys), more_keys=self._options.seed_keys
        )
        if not packed:
            return None
        return SeedBatch(token, [_seed(*element) for element in _read_elements(packed)])

    async def settle_seeds(
        self, token: int, entries: Sequence[Entry], rejected: Sequence[tuple[Entry, str]]
    ) -> bool:
        """Turn a batch into requests and dead letters."""
        return await self._settle(token, entries, rejected, [])

    async def _settle(
        self,
        token: int,
        entries: Sequence[Entry],
        rejected: Sequence[tuple[Entry, str]],
        parcels: Sequence[msgspec.Raw],
    ) -> bool:
        writer = EntryWriter(self._options.queue_order, self._job.config.policy_of)
        written = [writer.write(entry) for entry in entries]
        letters = [(writer.write(entry), text(to_bytes(error))) for entry, error in rejected]
        answer = await self._job.run_once(
            "settle_seeds", str(token), encode((writer.names, written, letters, parcels))
        )
        return answer == b"1"


def _seed(key: msgspec.Raw, value: msgspec.Raw, score: float) -> ExternalSeed:
    return ExternalSeed(to_words(_bytes(key)), _bytes(value), _priority(score))


def _priority(score: float) -> int:
    if not math.isfinite(score):
        return _HIGHEST if score > 0 else _LOWEST
    return max(_LOWEST, min(int(score), _HIGHEST))


def _bytes(packed: msgspec.Raw) -> bytes:
    """Return the bytes of a MessagePack text, which need be no valid text: Lua packs them as one."""
    data = bytes(packed)
    head = {0xD9: 2, 0xDA: 3, 0xDB: 5}.get(data[0], 1)
    return data[head:]
