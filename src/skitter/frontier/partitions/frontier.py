"""Partitioned frontier: one job in several partitions, each a frontier of its own for some of the slots.

``docs/cluster-frontier.md`` explains the protocol.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import ClassVar

import msgspec
import xxhash

from skitter.frontier.base import (
    AddResult,
    DeadLetter,
    Entry,
    FrontierOptions,
    FrontierStatus,
    JobInfo,
    JobState,
    Landing,
    LeaseResult,
    Outcome,
    SeedClaim,
    SeedMark,
    steady_clock,
)
from skitter.frontier.partitions.base import Parcel, Partition, Pulse
from skitter.frontier.partitions.budget import Budget
from skitter.frontier.partitions.courier import Courier
from skitter.frontier.partitions.ending import is_ended, read_pulses
from skitter.frontier.partitions.errands import Errands, together
from skitter.frontier.partitions.lane import Lane
from skitter.frontier.partitions.leasing import Leasing

_MOST_ON_THE_WAY = 20_000
"""Parcels for partitions that are away, before this worker takes no more work."""
_SETTLED_WITHIN = 2.0
"""Seconds within which what is delivered is normally safe: replicas tell every second how far they are."""
_LOOK_EVERY = 0.05
_BUSIEST = 20


class PartitionedFrontier:
    """A frontier over partitions, numbered from 0. The first one also has what belongs to the job as a whole."""

    shared: ClassVar[bool] = True
    """Every worker process reaches it by itself."""

    def __init__(
        self,
        partitions: Sequence[Partition],
        options: FrontierOptions,
        *,
        clock: Callable[[], float] | None = None,
    ) -> None:
        now = clock or steady_clock()
        self._lanes = [Lane(number, partition, now) for number, partition in enumerate(partitions)]
        self._home = partitions[0]
        self._errands = Errands()
        self._courier = Courier(self._lanes, self._errands)
        self._leasing = Leasing(self._lanes, self._errands, now, self._outer)
        self._budget = Budget(options.limits)

    # --- numbers -----------------------------------------------------------------------------------------

    def _outer(self, lane: int, inner: int) -> int:
        """Return the id, for others, of a lease or a dead letter of a partition."""
        return inner * len(self._lanes) + lane

    def lane_of(self, lease_id: int) -> int:
        """Return the number of the partition that gave a lease."""
        return lease_id % len(self._lanes)

    def _by_lane(self, ids: Iterable[int]) -> dict[Lane, list[int]]:
        """Return ids as their partitions know them."""
        sorted_ids: dict[Lane, list[int]] = defaultdict(list)
        for number in ids:
            inner, lane = divmod(number, len(self._lanes))
            sorted_ids[self._lanes[lane]].append(inner)
        return sorted_ids

    def _lane_of_slot(self, slot: str) -> Lane:
        # A change of this function is a change of the format.
        digest = xxhash.xxh3_64_intdigest(slot.encode("utf-8", "surrogatepass"))
        return self._lanes[digest % len(self._lanes)]

    # --- opening and closing ---------------------------------------------------------------------------

    async def open(self) -> JobInfo:
        """Create the job, or join it. Raises :class:`~skitter.errors.FrontierError`."""
        try:
            info = await self._home.join(None)
            others = [lane.partition for lane in self._lanes[1:]]
            await together(partition.join(self._home) for partition in others)
            await together(partition.advance(self._home.recrawls) for partition in others)
            if not self._home.is_complete:
                await self._home.complete()
        except BaseException:
            await self.close()
            raise
        return info

    async def close(self) -> None:
        """Disconnect. Leases stay what they are; so does what is on its way, for others to deliver."""
        await self._errands.close()
        for lane in self._lanes:
            await lane.partition.close()

    # --- adding ------------------------------------------------------------------------------------------

    async def unknown(self, fingerprints: Sequence[bytes]) -> list[bool]:
        """Tell which fingerprints are new. All partitions are asked: a fingerprint does not tell of its slot."""
        masks = await together(lane.partition.unknown(fingerprints) for lane in self._lanes)
        return [all(votes) for votes in zip(*masks, strict=True)]

    async def unknown_of(self, fingerprints: Sequence[bytes], slots: Sequence[str]) -> list[bool]:
        """Tell which fingerprints are new, given their slots; those of a partition that is away pass for new."""
        places: dict[Lane, list[int]] = defaultdict(list)
        for place, slot in enumerate(slots):
            places[self._lane_of_slot(slot)].append(place)
        mask = [True] * len(fingerprints)

        async def ask(lane: Lane, asked: list[int]) -> None:
            answer = await lane.partition.unknown([fingerprints[place] for place in asked])
            for place, is_new in zip(asked, answer, strict=True):
                mask[place] = is_new

        there = [lane for lane in places if not lane.partition.is_away]
        await self._errands.wait(
            {self._errands.start(ask(lane, places[lane])): lane.partition for lane in there}
        )
        return list(mask)

    async def add(self, entries: Sequence[Entry], seeds: SeedMark | None = None) -> AddResult:
        """Add requests with atomic de-duplication."""
        self._errands.check()
        if seeds is not None:
            return await self._add_seeds(entries, seeds)
        shares: dict[Lane, list[Entry]] = defaultdict(list)
        for entry in entries:
            shares[self._lane_of_slot(entry.slot)].append(entry)
        results = await together(lane.partition.add(share) for lane, share in shares.items())
        for lane in shares:
            lane.touch()
        return AddResult(sum(result.added for result in results), sum(result.known for result in results))

    async def _add_seeds(self, entries: Sequence[Entry], seeds: SeedMark) -> AddResult:
        """Add seeds with their progress, in one step in the first partition; the others get theirs from there."""
        self._courier.go_round()
        own, parcels = self._parted(entries, 0)
        result = await self._home.add_seeds(own, seeds, parcels)
        self._lanes[0].touch()
        if result is None:
            return AddResult(0, len(entries))
        added = result.added + await self._courier.send([(0, parcel) for parcel in parcels])
        while self._courier.on_the_way > _MOST_ON_THE_WAY:
            self._errands.check()
            await asyncio.sleep(_LOOK_EVERY)
        return AddResult(added, len(entries) - added)

    def _parted(self, entries: Sequence[Entry], home: int) -> tuple[list[Entry], list[Parcel]]:
        """Divide entries into those of one partition and those of others."""
        own: list[Entry] = []
        parcels: list[Parcel] = []
        prefix = b""
        for entry in entries:
            target = self._lane_of_slot(entry.slot).number
            if target == home:
                own.append(entry)
            else:
                prefix = prefix or secrets.token_bytes(10)
                parcels.append(Parcel(prefix + len(parcels).to_bytes(4, "big"), target, entry))
        return own, parcels

    async def claim_seeds(self, worker: str) -> SeedClaim | None:
        """Take the duty of loading the seeds, if nobody has it."""
        return await self._home.claim_seeds(worker)

    # --- leases ------------------------------------------------------------------------------------------

    async def lease(self, worker: str, limit: int, landed: Sequence[Landing] = ()) -> LeaseResult:
        """Hand out what may be fetched now."""
        self._errands.check()
        self._courier.go_round()
        for landing in landed:
            inner, number = divmod(landing.lease_id, len(self._lanes))
            self._lanes[number].landings.append(msgspec.structs.replace(landing, lease_id=inner))
        reason = ""
        if self._budget.is_needed:
            pulses = await read_pulses(self._lanes)
            reason = self._budget.reached(pulses)
            limit = 0 if reason else self._budget.room(pulses, limit)
        if self._courier.on_the_way > _MOST_ON_THE_WAY:
            limit = 0
        taken = await self._leasing.take(worker, limit)
        state = self._leasing.state()
        if state is None or reason:
            state = await self._whole_state(reason)
        return LeaseResult(taken.leases, state, self._leasing.ask_again(), reason, taken.had_setback)

    async def _whole_state(self, reason: str) -> JobState:
        """Return the state of the job as a whole, of which a partition knows only what was asked for."""
        if any(lane.partition.is_away for lane in self._lanes):
            return JobState.STOPPING if reason else JobState.RUNNING
        pulses = await read_pulses(self._lanes)
        if all(pulse.left == 0 for pulse in pulses) and pulses[0].seeds_done:
            pulses = await self._settled(pulses)
            if await is_ended(self._lanes, pulses):
                return JobState.FINISHED
        return JobState.STOPPING if reason else pulses[0].state

    async def _settled(self, pulses: list[Pulse]) -> list[Pulse]:
        """See that what is on its way arrives, if it is all that is left; returns what is there then."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _SETTLED_WITHIN
        while any(pulse.outbox for pulse in pulses) and loop.time() < until:
            await self._courier.confirm()
            pulses = await read_pulses(self._lanes)
            for lane, pulse in zip(self._lanes, pulses, strict=True):
                if pulse.outbox:
                    await self._courier.collect(lane, _SETTLED_WITHIN)
            if any(pulse.left for pulse in pulses):
                break
            if any(pulse.outbox for pulse in pulses):
                await asyncio.sleep(_LOOK_EVERY)
        return pulses

    async def renew(self, worker: str, lease_ids: Sequence[int]) -> list[int]:
        """Extend leases; return those that are gone. Those of a partition that is away pass for held."""
        self._errands.check()
        held = self._by_lane(lease_ids)
        gone: list[int] = []

        async def renew(lane: Lane) -> None:
            lost = await lane.partition.renew(worker, held.get(lane, []))
            gone.extend(self._outer(lane.number, inner) for inner in lost)

        there = [lane for lane in self._lanes if not lane.partition.is_away]
        await self._errands.wait({self._errands.start(renew(lane)): lane.partition for lane in there})
        return sorted(gone, key=list(lease_ids).index)

    async def release(self, lease_ids: Sequence[int]) -> None:
        """Hand leases back untouched."""

        async def release(lane: Lane, inner: list[int]) -> None:
            await lane.partition.release(inner)
            lane.touch()

        by_lane = self._by_lane(lease_ids)
        await self._errands.wait(
            {self._errands.start(release(lane, inner)): lane.partition for lane, inner in by_lane.items()}
        )

    async def abandon(self, worker: str) -> int:
        """Take back what a dead worker held."""
        counts = await together(lane.partition.abandon(worker) for lane in self._lanes)
        self._touch_all()
        return sum(counts)

    def _touch_all(self) -> None:
        for lane in self._lanes:
            lane.touch()

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

        async def commit(lane: Lane, places: list[int]) -> None:
            answer = await self._commit(lane, [outcomes[place] for place in places])
            for place, taken in zip(places, answer, strict=True):
                accepted[place] = taken

        await together(commit(self._lanes[number], places) for number, places in by_lane.items())
        return accepted

    async def _commit(self, lane: Lane, outcomes: Sequence[Outcome]) -> list[bool]:
        given: list[Outcome] = []
        parcels: dict[int, list[Parcel]] = {}
        for outcome in outcomes:
            inner = outcome.lease_id // len(self._lanes)
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

    # --- reading and control -----------------------------------------------------------------------------

    async def status(self) -> FrontierStatus:
        """Read all counts, of each partition at one moment, of all of them at almost the same."""
        self._errands.check()
        parts = await together(lane.partition.status() for lane in self._lanes)
        counters: Counter[str] = Counter()
        for part in parts:
            counters.update(part.counters)
        reason = self._budget.reached(await read_pulses(self._lanes)) if self._budget.is_needed else ""
        busiest = sorted((slot for part in parts for slot in part.busiest), key=lambda slot: -slot.queued)
        return FrontierStatus(
            state=await self._whole_state(reason),
            added=sum(part.added for part in parts),
            queued=sum(part.queued for part in parts),
            delayed=sum(part.delayed for part in parts),
            leased=sum(part.leased for part in parts),
            done=sum(part.done for part in parts),
            failed=sum(part.failed for part in parts),
            seeds_loading=parts[0].seeds_loading,
            counters=dict(counters),
            slots=sum(part.slots for part in parts),
            busiest=busiest[:_BUSIEST],
            oldest_lease=max(part.oldest_lease for part in parts),
            reason=reason,
        )

    async def control(self, state: JobState) -> JobState:
        """Set what the fleet is to do, in every partition."""
        await together(lane.partition.control(state) for lane in self._lanes)
        self._touch_all()
        return await self._whole_state("")

    async def hold(self, slot: str, seconds: float) -> None:
        """Give out nothing of a slot for so long."""
        await self._lane_of_slot(slot).partition.hold(slot, seconds)

    async def set_delay(self, slot: str, seconds: float) -> None:
        """Set the smallest delay of one slot."""
        lane = self._lane_of_slot(slot)
        await lane.partition.set_delay(slot, seconds)
        lane.touch()

    async def recall(self, key: str) -> bytes | None:
        """Read a shared note; none is found where a partition is away."""
        lane = self._lane_of_slot(key)
        if lane.partition.is_away:
            return None
        task = self._errands.start(lane.partition.recall(key))
        await self._errands.wait({task: lane.partition})
        note: bytes | None = task.result() if task.done() else None
        return note

    async def remember(self, key: str, value: bytes, ttl: float) -> None:
        """Keep a shared note."""
        lane = self._lane_of_slot(key)
        task = self._errands.start(lane.partition.remember(key, value, ttl))
        await self._errands.wait({task: lane.partition})

    async def dead_letters(self, after: int = 0, limit: int = 100) -> list[DeadLetter]:
        """List requests given up by their ids: those of one partition oldest first, those of all in turn."""
        size = len(self._lanes)
        lists = await together(
            lane.partition.dead_letters(max(0, (after - lane.number) // size), limit) for lane in self._lanes
        )
        letters = [
            msgspec.structs.replace(letter, id=self._outer(lane.number, letter.id))
            for lane, found in zip(self._lanes, lists, strict=True)
            for letter in found
        ]
        return sorted(letters, key=lambda letter: letter.id)[:limit]

    async def replay(self, ids: Sequence[int] | None = None) -> int:
        """Put dead letters back in the queue."""
        return await self._exhume(ids, lambda partition, inner: partition.replay(inner))

    async def drop(self, ids: Sequence[int] | None = None) -> int:
        """Forget dead letters."""
        return await self._exhume(ids, lambda partition, inner: partition.drop(inner))

    async def _exhume(
        self, ids: Sequence[int] | None, exhume: Callable[[Partition, list[int] | None], Awaitable[int]]
    ) -> int:
        chosen: dict[Lane, list[int] | None] = dict.fromkeys(self._lanes)
        if ids is not None:
            chosen = dict(self._by_lane(ids))
        counts = await together(exhume(lane.partition, inner) for lane, inner in chosen.items())
        self._touch_all()
        return sum(counts)

    async def recrawl(self) -> bool:
        """Begin a finished job again. Done by the first partition; who opens the job leads the others after it."""
        if await self._whole_state("") is not JobState.FINISHED or not await self._home.recrawl():
            return False
        await together(lane.partition.advance(self._home.recrawls) for lane in self._lanes[1:])
        self._touch_all()
        return True

    async def outputs(self) -> dict[str, list[tuple[int, int]]]:
        """Return committed byte ranges of each part file."""
        ranges: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for part in await together(lane.partition.outputs() for lane in self._lanes):
            for name, known in part.items():
                ranges[name] += known
        return {name: _joined(known) for name, known in ranges.items()}


def _joined(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges in order, those that follow each other as one."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if joined and joined[-1][1] == start:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined
