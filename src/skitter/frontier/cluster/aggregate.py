"""Reading: what the partitions tell of a job, put together."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from skitter.frontier.cluster.partition_map import PartitionMap
from skitter.frontier.records import DeadLetter, FrontierStatus, JobState
from skitter.frontier.stats import OTHERS, StatsRow, in_order
from skitter.queues import DEFAULT_QUEUE

_BUSIEST = 20


def whole_status(parts: Sequence[FrontierStatus], state: JobState, reason: str) -> FrontierStatus:
    """Add up the readings of all partitions."""
    counters: Counter[str] = Counter()
    queues: Counter[str] = Counter()
    for part in parts:
        counters.update(part.counters)
        queues.update(part.queues or {DEFAULT_QUEUE: part.queued})
    busiest = sorted((slot for part in parts for slot in part.busiest), key=lambda slot: -slot.queued)
    return FrontierStatus(
        state=state,
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
        queues=dict(queues) if any(part.queues for part in parts) else {},
    )


def whole_tallies(found: Iterable[Sequence[StatsRow]], kept: int, limit: int) -> list[StatsRow]:
    """Add up what the partitions have counted under the same keys; beyond so many, the smallest are one."""
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    for tallies in found:
        for tally in tallies:
            sums[tally.key].update(
                {name: value for name, value in msgspec.structs.asdict(tally).items() if name != "key"}
            )
    ranked = in_order((StatsRow(key, **amounts) for key, amounts in sums.items()), len(sums))
    for tally in ranked[kept:]:
        if tally.key != OTHERS:
            sums[OTHERS].update(sums.pop(tally.key))
    return in_order((StatsRow(key, **amounts) for key, amounts in sums.items()), limit)


def whole_letters(parts: PartitionMap, lists: Sequence[Sequence[DeadLetter]], limit: int) -> list[DeadLetter]:
    """Put dead letters in the order of their ids."""
    letters = [
        msgspec.structs.replace(letter, id=parts.outer(number, letter.id))
        for number, found in enumerate(lists)
        for letter in found
    ]
    return sorted(letters, key=lambda letter: letter.id)[:limit]


def whole_outputs(
    found: Iterable[Mapping[str, Sequence[tuple[int, int]]]],
) -> dict[str, list[tuple[int, int]]]:
    """Put the byte ranges of part files together."""
    ranges: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for part in found:
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
