"""Seeds that other programs put into keys of the server, with plain LPUSH, SADD or ZADD."""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence

import msgspec

from skitter.frontier.records import Entry, ExternalSeed, SeedBatch
from skitter.frontier.redis.job import RedisJob
from skitter.frontier.redis.records import encode, text, to_bytes, to_words

MAX_QUEUED = 10_000
"""With this many queued requests, seeds stay in their keys: other programs can still see, count and overtake them."""
_LOWEST, _HIGHEST = 1 - 2**63, 2**63 - 1

_read_elements = msgspec.msgpack.Decoder(list[tuple[msgspec.Raw, msgspec.Raw, float]]).decode


class RedisSeedKeys:
    """Implements :class:`~skitter.frontier.contract.SeedSource`.

    An element is in its key, claimed by one worker, or settled.
    """

    def __init__(self, job: RedisJob) -> None:
        self._job = job

    async def take(self, worker: str, limit: int) -> SeedBatch | None:
        token = secrets.randbits(62)
        from_left = int(self._job.options.seed_list_end == "left")
        arguments = (token, limit, MAX_QUEUED, len(self._job.keys), from_left, worker)
        packed = await self._job.run("take_seeds", *arguments, more_keys=self._job.options.seed_keys)
        if not packed:
            return None
        return SeedBatch(token, [_seed(*element) for element in _read_elements(packed)])

    async def settle(
        self, token: int, entries: Sequence[Entry], rejected: Sequence[tuple[Entry, str]]
    ) -> bool:
        return await self.settle_with_outbox(token, entries, rejected, [])

    async def settle_with_outbox(
        self,
        token: int,
        entries: Sequence[Entry],
        rejected: Sequence[tuple[Entry, str]],
        outbox: Sequence[msgspec.Raw],
    ) -> bool:
        """Settle, and keep the requests of other partitions in the outbox."""
        writer = self._job.entry_writer()
        written = [writer.write(entry) for entry in entries]
        dead = [(writer.write(entry), text(to_bytes(f"seed: {reason}"))) for entry, reason in rejected]
        packed = encode((writer.names, written, dead, outbox))
        is_settled, recrawls = (await self._job.run_once("settle_seeds", str(token), packed)).split()
        self._job.record_recrawls(recrawls)
        return is_settled == b"1"


def _seed(key: msgspec.Raw, value: msgspec.Raw, score: float) -> ExternalSeed:
    return ExternalSeed(to_words(_bytes(key)), _bytes(value), _priority(score))


def _priority(score: float) -> int:
    if not math.isfinite(score):
        return _HIGHEST if score > 0 else _LOWEST
    return max(_LOWEST, min(int(score), _HIGHEST))


def _bytes(packed: msgspec.Raw) -> bytes:
    """Return the bytes of a MessagePack string; Lua packs all bytes as a string, valid Unicode or not."""
    data = bytes(packed)
    head = {0xD9: 2, 0xDA: 3, 0xDB: 5}.get(data[0], 1)
    return data[head:]
