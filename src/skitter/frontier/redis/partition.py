"""One partition of a job on a cluster. All of its keys share a hash tag, and so one node."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from skitter.errors import FrontierError
from skitter.frontier.cluster.partition import ForwardedRequest, Partition, PartitionStatus, ReplicationOffset
from skitter.frontier.records import AddResult, Entry, JobInfo, JobState, Outcome, SeedProgress
from skitter.frontier.redis.cluster import PartitionConnection
from skitter.frontier.redis.frontier import RedisFrontier
from skitter.frontier.redis.job import PartitionSpec
from skitter.frontier.redis.records import ENTRIES_BATCH, encode, text, to_bytes, to_words

_MORE_THAN_ANY = 1000
"""More replicas than a node has."""
FSYNC_DELAY = 2.0
"""Seconds after which writes are on the disk of a node with an append-only file (``appendfsync everysec``)."""
_decode = msgspec.msgpack.Decoder().decode
_ENTRY_FIELDS = 5
"""Number of fields of an entry in the outbox after its URL. Any further field was added by a later version."""


class RedisPartition:
    """Implements :class:`~skitter.frontier.cluster.partition.Partition`.

    ``frontier``: has the keys of a job ``JOB/NUMBER`` over ``connection``. ``shape``: number of the partition, number of
    partitions and unit of politeness.
    """

    def __init__(self, frontier: RedisFrontier, connection: PartitionConnection, shape: str) -> None:
        self.frontier = frontier
        self.job = frontier.job
        self._connection = connection
        self._shape = shape
        self._has_replicas = False
        """Whether the node had replicas when its offsets were last read."""

    @property
    def is_unavailable(self) -> bool:
        return self._connection.is_unavailable

    @property
    def run_id(self) -> bytes:
        """Changes when the node restarts, or when another node serves the partition."""
        return self._connection.run_id

    # --- opening -----------------------------------------------------------------------------------------

    async def join(self, first: Partition | None) -> JobInfo:
        spec = PartitionSpec(self._shape)
        if first is not None:
            spec = PartitionSpec(self._shape, first.job.generation, first.job.is_complete)
        info = await self.frontier.open_partition(spec)
        if first is None:
            await self.frontier.warn_about_changed_limits()
        return info

    async def complete(self) -> None:
        await self.job.run("complete")

    async def recrawl(self, others: int) -> bool:
        return await self.job.recrawl(others)

    async def follow_recrawl(self, recrawls: int) -> None:
        self.job.record_recrawls(await self.job.run("follow_recrawl", recrawls))

    # --- forwarded requests ------------------------------------------------------------------------------

    async def add(self, entries: Sequence[Entry], recrawls: int) -> AddResult:
        return await self.frontier.add_following(entries, recrawls)

    async def add_seeds(
        self, entries: Sequence[Entry], seeds: SeedProgress, forwarded: Sequence[ForwardedRequest]
    ) -> AddResult | None:
        return await self.frontier.add_seeds(entries, seeds, _packed(forwarded))

    async def settle_seeds(
        self,
        token: int,
        entries: Sequence[Entry],
        rejected: Sequence[tuple[Entry, str]],
        forwarded: Sequence[ForwardedRequest],
    ) -> bool:
        return await self.frontier.seed_keys.settle_with_outbox(token, entries, rejected, _packed(forwarded))

    async def commit(
        self, outcomes: Sequence[Outcome], forwarded: Mapping[int, Sequence[ForwardedRequest]]
    ) -> list[bool]:
        outbox = {lease_id: _packed(requests) for lease_id, requests in forwarded.items()}
        return await self.frontier.commit_with_outbox(outcomes, outbox)

    async def deliver(
        self, forwarded: Sequence[ForwardedRequest], recrawls: int, *, again: bool
    ) -> AddResult:
        total = AddResult(0, 0)
        for start in range(0, len(forwarded), ENTRIES_BATCH):
            batch = forwarded[start : start + ENTRIES_BATCH]
            writer = self.job.entry_writer()
            written = [writer.write(request.entry) for request in batch]
            ids = [text(request.id) for request in batch]
            packed = encode((writer.names, written, ids, [request.is_seed for request in batch]))
            arguments = int(again), packed, recrawls
            new, refused, over = await self.job.run("deliver", *arguments, repeated=4)
            total += AddResult(new, len(batch) - new - refused - over, refused, over)
        return total

    async def outbox(self, limit: int, age: float) -> list[ForwardedRequest]:
        recrawls, *found = await self.job.run("outbox", limit, age)
        self.job.record_recrawls(recrawls)
        return [_unpacked(name, value) for name, value in zip(found[::2], found[1::2], strict=True)]

    async def clear_outbox(self, ids: Sequence[bytes]) -> None:
        await self.job.run("clear_outbox", encode([text(request_id) for request_id in ids]))

    # --- reading -----------------------------------------------------------------------------------------

    async def partition_status(self) -> PartitionStatus:
        reply = await self.job.run("partition_status")
        queued, delayed, leased, outbox, expects_seeds, seeds_done, state, *numbers = reply
        sequence, done, failed, pages, items, size, revision = map(int, numbers)
        return PartitionStatus(
            queued=queued, delayed=delayed, leased=leased, outbox=outbox,
            expects_seeds=bool(expects_seeds), seeds_done=seeds_done == b"1", state=JobState(state.decode()),
            changes=(sequence, done), failed=failed,
            counters={"pages": pages, "items": items, "bytes": size}, revision=revision,
        )  # fmt: skip

    async def replication_offset(self) -> ReplicationOffset:
        info: dict[str, Any] = await self.job.command("INFO", "replication")
        if info["role"] != "master":  # replaced by another node, which may lack its last writes
            await self._connection.refresh()
            return ReplicationOffset(secrets.token_bytes(8), 0, None)
        replicas = [
            value for name, value in info.items() if name.startswith("slave") and isinstance(value, dict)
        ]
        self._has_replicas = bool(replicas)
        written = int(info["master_repl_offset"])
        copied = min((int(replica["offset"]) for replica in replicas), default=None)
        if copied is None:
            # The log of a node without replicas is as good as a replica that is some seconds behind.
            written = int(time.monotonic() * 1000)
            copied = written - int(FSYNC_DELAY * 1000) if self._connection.keeps_log else None
        # A node that lost a replica may have been cut off, and replaced without its knowledge.
        node = b"%b %d" % (self.run_id, len(replicas))
        return ReplicationOffset(node, written, copied)

    async def prompt_replicas(self) -> None:
        if self._has_replicas:
            # The server asks its replicas only if a call has to wait for some of them. This call waits for a millisecond, or until
            # the server looks at its waiting calls, at most 0.1 s later.
            with suppress(FrontierError):  # a server without this command
                await self.job.command("WAIT", _MORE_THAN_ANY, 1)


def _packed(forwarded: Sequence[ForwardedRequest]) -> list[msgspec.Raw]:
    """Return ids and values alternately, as the scripts expect."""
    packed = []
    for request in forwarded:
        entry = request.entry
        value = encode((
            request.target, entry.fingerprint, to_bytes(entry.slot), to_bytes(entry.url), entry.record, entry.priority,
            entry.not_before, entry.delay, entry.dedup, request.is_seed,
        ))  # fmt: skip
        packed += [text(request.id), text(value)]
    return packed


def _unpacked(request_id: bytes, value: bytes) -> ForwardedRequest:
    target, fingerprint, slot, url, *rest = _decode(value)
    is_seed = len(rest) > _ENTRY_FIELDS and rest[_ENTRY_FIELDS]
    entry = Entry(fingerprint, to_words(slot), to_words(url), *rest[:_ENTRY_FIELDS])
    return ForwardedRequest(request_id, target, entry, is_seed)
