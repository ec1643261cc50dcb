"""Partitioned frontier: one job in several partitions, each a frontier of its own for some of the slots.

``docs/cluster-frontier.md`` explains the protocol.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import ClassVar

import msgspec

from skitter.frontier.cluster.background import BackgroundTasks, gather_all
from skitter.frontier.cluster.budget import Budget
from skitter.frontier.cluster.client import PartitionClient
from skitter.frontier.cluster.control import PartitionedSteering
from skitter.frontier.cluster.forwarder import Forwarder
from skitter.frontier.cluster.leasing import Leasing
from skitter.frontier.cluster.partition import ForwardedRequest, Partition, total
from skitter.frontier.cluster.partition_map import PartitionMap
from skitter.frontier.cluster.termination import read_pulses
from skitter.frontier.cluster.whole import Whole
from skitter.frontier.flat import Flat, optional
from skitter.frontier.options import FrontierOptions, SettingsChanges
from skitter.frontier.records import (
    AddResult,
    Entry,
    FetchReport,
    JobInfo,
    LeaseResult,
    Outcome,
    SeedClaim,
    SeedProgress,
)
from skitter.frontier.scheduling import steady_clock
from skitter.politeness import Politeness
from skitter.queues import QueueQuotas

_MOST_ON_THE_WAY = 20_000
"""Parcels for partitions that are away, before this worker takes no more work."""
_LOOK_EVERY = 0.05


class PartitionedFrontier(Whole, PartitionedSteering, Flat):
    """A frontier over partitions, numbered from 0. The first one also has what belongs to the job as a whole."""

    partitions = optional("partitions")

    shared: ClassVar[bool] = True
    """Every worker process reaches it by itself."""

    def __init__(self, clock: Callable[[], float] | None = None, *, attach: bool = False) -> None:
        self._clock = clock or steady_clock()
        self._attach = attach
        self._errands = BackgroundTasks()

    def _arrange(self, partitions: Sequence[Partition]) -> None:
        """Take the partitions, before the frontier is opened."""
        self._parts = PartitionMap(partitions, self._clock)
        self._courier = Forwarder(self._parts.lanes, self._errands)
        self._leasing = Leasing(self._parts, self._errands, self._clock)
        self._budget = Budget(FrontierOptions())
        self._revision = 0
        self._served: set[str] | None = None
        """Queues that were asked for last."""

    def lane_of(self, lease_id: int) -> int:
        """Return the number of the partition that gave a lease."""
        return lease_id % len(self._parts)

    # --- opening and closing ---------------------------------------------------------------------------

    async def open(self) -> JobInfo:
        """Create the job, or join it. Raises :class:`~skitter.errors.FrontierError`."""
        home = self._parts.home
        info = await home.join(None)
        others = [lane.partition for lane in self._parts.lanes[1:]]
        await gather_all(partition.join(home) for partition in others)
        changes = await home.control.settings_changes()
        if not self._attach:
            # Somebody may have died before he had told them all.
            await gather_all(_align(partition, home.recrawls, changes) for partition in others)
            if not home.is_complete:
                await home.complete()
        self._budget = Budget(changes.of_options(home.options))
        return info

    @property
    def politeness(self) -> Politeness:
        """Which slot a host is in."""
        return self._parts.home.politeness

    async def close(self) -> None:
        """Disconnect. Leases stay what they are; so does what is on its way, for others to deliver."""
        await self._errands.close()
        for lane in self._parts.lanes:
            await lane.partition.close()

    # --- adding ------------------------------------------------------------------------------------------

    async def unknown(self, fingerprints: Sequence[bytes]) -> list[bool]:
        """Tell which fingerprints are new. All partitions are asked: a fingerprint does not tell of its slot."""
        masks = await gather_all(lane.partition.unknown(fingerprints) for lane in self._parts.lanes)
        return [all(votes) for votes in zip(*masks, strict=True)]

    async def unknown_of(self, fingerprints: Sequence[bytes], slots: Sequence[str]) -> list[bool]:
        """Tell which fingerprints are new, given their slots; those of a partition that is away pass for new."""
        places: dict[PartitionClient, list[int]] = defaultdict(list)
        for place, slot in enumerate(slots):
            places[self._parts.of_slot(slot)].append(place)
        mask = [True] * len(fingerprints)

        async def ask(lane: PartitionClient, asked: list[int]) -> None:
            answer = await lane.partition.unknown([fingerprints[place] for place in asked])
            for place, is_new in zip(asked, answer, strict=True):
                mask[place] = is_new

        there = [lane for lane in places if not lane.partition.is_away]
        await self._errands.wait(
            {self._errands.start(ask(lane, places[lane])): lane.partition for lane in there}
        )
        return list(mask)

    async def add(self, entries: Sequence[Entry], seeds: SeedProgress | None = None) -> AddResult:
        """Add requests with atomic de-duplication."""
        self._errands.check()
        if seeds is not None:
            return await self._add_seeds(entries, seeds)
        shares: dict[PartitionClient, list[Entry]] = defaultdict(list)
        for entry in entries:
            shares[self._parts.of_slot(entry.slot)].append(entry)
        results = await gather_all(lane.partition.add(share) for lane, share in shares.items())
        for lane in shares:
            lane.touch()
        return total(results)

    async def _add_seeds(self, entries: Sequence[Entry], seeds: SeedProgress) -> AddResult:
        """Add seeds with their progress, in one step in the first partition; the others get theirs from there."""
        self._courier.go_round()
        own, parcels = self._parted(entries, 0)
        result = await self._parts.home.add_seeds(own, seeds, parcels)
        self._parts.lanes[0].touch()
        if result is None:
            return AddResult(0, len(entries))
        others = await self._courier.send([(0, parcel) for parcel in parcels])
        while self._courier.on_the_way > _MOST_ON_THE_WAY:
            self._errands.check()
            await asyncio.sleep(_LOOK_EVERY)
        return total([result, others])

    def _parted(self, entries: Sequence[Entry], home: int) -> tuple[list[Entry], list[ForwardedRequest]]:
        """Divide entries into those of one partition and those of others."""
        own: list[Entry] = []
        parcels: list[ForwardedRequest] = []
        prefix = b""
        for entry in entries:
            target = self._parts.of_slot(entry.slot).number
            if target == home:
                own.append(entry)
            else:
                prefix = prefix or secrets.token_bytes(10)
                parcels.append(ForwardedRequest(prefix + len(parcels).to_bytes(4, "big"), target, entry))
        return own, parcels

    async def claim_seeds(self, worker: str) -> SeedClaim | None:
        """Take the duty of loading the seeds, if nobody has it."""
        return await self._parts.home.claim_seeds(worker)

    # --- leases ------------------------------------------------------------------------------------------

    async def lease(
        self, worker: str, limit: int, landed: Sequence[FetchReport] = (), shares: QueueQuotas | None = None
    ) -> LeaseResult:
        """Hand out what may be fetched now."""
        self._errands.check()
        self._courier.go_round()
        for landing in landed:
            inner, number = divmod(landing.lease_id, len(self._parts))
            self._parts.lanes[number].landings.append(msgspec.structs.replace(landing, lease_id=inner))
        reason = ""
        if self._budget.is_needed:
            pulses = await read_pulses(self._parts.lanes)
            await self._obey_changes(pulses[0].revision)
            reason = self._budget.reached(pulses)
            limit = 0 if reason else self._budget.may_lease(pulses, limit)
        if self._courier.on_the_way > _MOST_ON_THE_WAY:
            limit = 0
        served = None if shares is None else {queue for queue, share in shares.items() if share > 0}
        if served != self._served or (landed and shares is not None):
            # What is known of when a lane may give something was learnt of other queues, or of those that had given all.
            self._parts.touch()
            self._served = served
        taken = await self._leasing.take(worker, limit, shares)
        state = self._leasing.state()
        if state is None or reason:
            state = await self._whole_state(reason)
        await self._obey_changes(max(lane.revision for lane in self._parts.lanes))
        capacity = (
            self._budget.capacity(await read_pulses(self._parts.lanes)) if self._budget.bounds_queue else None
        )
        return LeaseResult(
            taken.leases,
            state,
            self._leasing.ask_again(),
            reason,
            taken.had_data_loss,
            capacity,
            self._revision,
        )

    async def renew(self, worker: str, lease_ids: Sequence[int]) -> list[int]:
        """Extend leases; return those that are gone. Those of a partition that is away pass for held."""
        self._errands.check()
        held = self._parts.by_lane(lease_ids)
        gone: list[int] = []

        async def renew(lane: PartitionClient) -> None:
            lost = await lane.partition.renew(worker, held.get(lane, []))
            gone.extend(self._parts.outer(lane.number, inner) for inner in lost)

        there = [lane for lane in self._parts.lanes if not lane.partition.is_away]
        await self._errands.wait({self._errands.start(renew(lane)): lane.partition for lane in there})
        return sorted(gone, key=list(lease_ids).index)

    async def release(self, lease_ids: Sequence[int]) -> None:
        """Hand leases back untouched."""

        async def release(lane: PartitionClient, inner: list[int]) -> None:
            await lane.partition.release(inner)
            lane.touch()

        by_lane = self._parts.by_lane(lease_ids)
        await self._errands.wait(
            {self._errands.start(release(lane, inner)): lane.partition for lane, inner in by_lane.items()}
        )

    async def abandon(self, worker: str) -> int:
        """Take back what a dead worker held."""
        counts = await gather_all(lane.partition.abandon(worker) for lane in self._parts.lanes)
        self._parts.touch()
        return sum(counts)

    # --- committing --------------------------------------------------------------------------------------

    async def commit(self, outcomes: Sequence[Outcome]) -> list[bool]:
        """Close leases, each as a whole or not at all.

        What was found for other partitions is in them, or on its way there, when this returns.
        """
        self._errands.check()
        self._courier.go_round()
        by_lane: dict[int, list[int]] = defaultdict(list)
        for place, outcome in enumerate(outcomes):
            by_lane[self.lane_of(outcome.lease_id)].append(place)
        accepted = [False] * len(outcomes)

        async def commit(lane: PartitionClient, places: list[int]) -> None:
            answer = await self._commit(lane, [outcomes[place] for place in places])
            for place, taken in zip(places, answer, strict=True):
                accepted[place] = taken

        await gather_all(commit(self._parts.lanes[number], places) for number, places in by_lane.items())
        return accepted

    async def _commit(self, lane: PartitionClient, outcomes: Sequence[Outcome]) -> list[bool]:
        given: list[Outcome] = []
        parcels: dict[int, list[ForwardedRequest]] = {}
        for outcome in outcomes:
            inner = outcome.lease_id // len(self._parts)
            own, others = self._parted(outcome.entries, lane.number)
            given.append(msgspec.structs.replace(outcome, lease_id=inner, entries=own))
            if others:
                parcels[inner] = others
        accepted = await lane.partition.commit_with(given, parcels)
        lane.touch()
        kept = dict(zip((outcome.lease_id for outcome in given), accepted, strict=True))
        found = [(lane.number, parcel) for inner, group in parcels.items() if kept[inner] for parcel in group]
        if found:
            await self._courier.send(found)
        return accepted


async def _align(partition: Partition, recrawls: int, changes: SettingsChanges) -> None:
    """Lead a partition after the first one."""
    await partition.advance(recrawls)
    if await partition.control.settings_changes() != changes:
        await partition.control.change_settings(changes, reset=True)
