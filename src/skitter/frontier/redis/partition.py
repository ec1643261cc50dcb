"""Partition: one part of a job on a cluster, all of whose keys share a hash tag and so one node."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from skitter.frontier.cluster.partition import ForwardedRequest, PartitionStatus, ReplicationOffset
from skitter.frontier.options import FrontierOptions
from skitter.frontier.records import AddResult, Entry, JobInfo, JobState, Outcome, SeedProgress
from skitter.frontier.redis.batches import ENTRIES_AT_ONCE
from skitter.frontier.redis.cluster import ClusterClient, PartitionServer
from skitter.frontier.redis.frontier import RedisFrontier
from skitter.frontier.redis.job import Place
from skitter.frontier.redis.keys import keys_of
from skitter.frontier.redis.records import EntryWriter, encode, text, to_bytes, to_words
from skitter.politeness import Politeness

_decode = msgspec.msgpack.Decoder().decode
_LOGGED_WITHIN = 2.0
"""Seconds after which what was written is on the disk of a node that keeps a log (``appendfsync everysec``)."""


class RedisPartition(RedisFrontier):
    """Partition ``number`` of so many; the keys are those of a job ``JOB/NUMBER``.

    ``slots``: changes if URLs may come into other slots, and so into other partitions, than before.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        job: str,
        number: int,
        partitions: int,
        slots: str,
        politeness: Politeness,
        options: FrontierOptions,
        *,
        clock: Callable[[], float] | None = None,
        patient: bool = False,
        attach: bool = False,
    ) -> None:
        name = f"{job}/{number}"
        self._node = PartitionServer(cluster, keys_of(name)[0])
        super().__init__(self._node, name, politeness, options, clock=clock, patient=patient, attach=attach)
        self._job.title = job
        self._shape = f"{number}/{partitions} {slots}"
        # With the number of its partition a lease's id still has 63 bits.
        self._id_heads //= partitions

    @property
    def is_away(self) -> bool:
        """Whether its node is being waited for."""
        return self._node.is_away

    @property
    def life(self) -> bytes:
        """Changes with each life of its node."""
        return self._node.life

    @property
    def options(self) -> FrontierOptions:
        """How the job is kept."""
        return self._options

    @property
    def generation(self) -> bytes:
        """Tells this job from one of the same name that was begun later."""
        return self._job.generation

    @property
    def is_complete(self) -> bool:
        """Of the first partition: whether all the others were there before."""
        return self._job.is_complete

    @property
    def recrawls(self) -> int:
        """How often the job was begun again."""
        return self._job.recrawls

    # --- opening -----------------------------------------------------------------------------------------

    async def join(self, first: Any) -> JobInfo:
        """Open or create it."""
        place = Place(self._shape)
        if first is not None:
            place = Place(self._shape, first.generation, first.is_complete)
        return await self._join(place)

    async def complete(self) -> None:
        """Note in the first partition that all the others are there."""
        await self._run("complete")

    async def advance(self, recrawls: int) -> None:
        """Forget what is known, if the job was begun again since."""
        await self._run("advance", recrawls)

    async def recrawl(self) -> bool:
        """Begin again, as the first partition."""
        begun = await self._run_once("recrawl")
        if begun != b"0":
            self._job.recrawls = int(begun)
        return begun != b"0"

    # --- parcels -----------------------------------------------------------------------------------------

    async def add_seeds(
        self, entries: Sequence[Entry], seeds: SeedProgress, parcels: Sequence[ForwardedRequest]
    ) -> AddResult | None:
        """Add seeds of this partition and keep those of others."""
        result, taken = await self._add(entries, seeds, _packed(parcels))
        return result if taken else None

    async def settle_with(
        self,
        token: int,
        entries: Sequence[Entry],
        rejected: Sequence[tuple[Entry, str]],
        parcels: Sequence[ForwardedRequest],
    ) -> bool:
        """Turn a batch of outside seeds into requests of this partition and of others."""
        return await self._settle(token, entries, rejected, _packed(parcels))

    async def commit_with(
        self, outcomes: Sequence[Outcome], parcels: Mapping[int, Sequence[ForwardedRequest]]
    ) -> list[bool]:
        """Commit, and keep what was found for other partitions."""
        return await self._commit(outcomes, {lease: _packed(found) for lease, found in parcels.items()})

    async def deliver(self, parcels: Sequence[ForwardedRequest], *, again: bool) -> AddResult:
        """Add requests that came from other partitions."""
        added = banned = 0
        for start in range(0, len(parcels), ENTRIES_AT_ONCE):
            batch = parcels[start : start + ENTRIES_AT_ONCE]
            writer = EntryWriter(self._options.queue_order, self._job.config.policy_of)
            written = [writer.write(parcel.entry) for parcel in batch]
            given = encode((writer.names, written, [text(parcel.id) for parcel in batch]))
            new, refused = await self._run("deliver", int(again), given, repeated=4)
            added, banned = added + new, banned + refused
        return AddResult(added, len(parcels) - added - banned, banned)

    async def outbox(self, limit: int, age: float) -> list[ForwardedRequest]:
        """Read some of the outbox."""
        found: list[bytes] = await self._run("outbox", limit, age)
        return [_unpacked(name, value) for name, value in zip(found[::2], found[1::2], strict=True)]

    async def take_out(self, ids: Sequence[bytes]) -> None:
        """Forget what is safe in its partition."""
        await self._run("take_out", encode([text(name) for name in ids]))

    # --- reading -----------------------------------------------------------------------------------------

    async def pulse(self) -> PartitionStatus:
        """Read what it holds."""
        queued, delayed, leased, outbox, waits, seeds, state, *numbers = await self._run("pulse")
        sequence, done, failed, pages, items, size, revision = map(int, numbers)
        counters = {"pages": pages, "items": items, "bytes": size}
        state = JobState(state.decode())
        return PartitionStatus(
            queued, delayed, leased, outbox, bool(waits), seeds == b"1", state, (sequence, done), failed, counters,
            revision,
        )  # fmt: skip

    async def position(self) -> ReplicationOffset:
        """Read how far the copies of its node are."""
        info = await self._node.replication()
        if info["role"] != "master":  # it is no more, and what it took may be lost
            await self._node.look_around()
            return ReplicationOffset(secrets.token_bytes(8), 0, None)
        replicas = [
            value for name, value in info.items() if name.startswith("slave") and isinstance(value, dict)
        ]
        written = int(info["master_repl_offset"])
        copied = min((int(replica["offset"]) for replica in replicas), default=None)
        if copied is None:
            # The log of a node without replicas is as good as a replica that is some seconds behind.
            written = int(time.monotonic() * 1000)
            copied = written - int(_LOGGED_WITHIN * 1000) if self._node.keeps_log else None
        # A node that lost a replica may be one that was cut off, and replaced without knowing it.
        life = b"%b %d" % (self.life, len(replicas))
        return ReplicationOffset(life, written, copied)


def _packed(parcels: Sequence[ForwardedRequest]) -> list[msgspec.Raw]:
    """Return ids and values in turn."""
    packed = []
    for parcel in parcels:
        entry = parcel.entry
        value = encode((
            parcel.target, entry.fingerprint, to_bytes(entry.slot), to_bytes(entry.url), entry.record, entry.priority,
            entry.not_before, entry.delay, entry.dedup,
        ))  # fmt: skip
        packed += [text(parcel.id), text(value)]
    return packed


def _unpacked(name: bytes, value: bytes) -> ForwardedRequest:
    target, fingerprint, slot, url, *rest = _decode(value)
    return ForwardedRequest(name, target, Entry(fingerprint, to_words(slot), to_words(url), *rest))
