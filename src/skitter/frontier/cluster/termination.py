"""Ending: the proof that nothing is left in any partition at one moment."""

from __future__ import annotations

from collections.abc import Sequence

from skitter.frontier.cluster.background import gather_all
from skitter.frontier.cluster.client import PartitionClient
from skitter.frontier.cluster.partition import PartitionStatus


async def read_pulses(lanes: Sequence[PartitionClient]) -> list[PartitionStatus]:
    """Read all partitions, each at some moment within the call."""
    return await gather_all(lane.partition.pulse() for lane in lanes)


def is_quiet(pulses: Sequence[PartitionStatus]) -> bool:
    """Tell whether every partition was quiet when it was read; the first one knows of the seeds."""
    return pulses[0].seeds_done and not any(pulse.left or pulse.outbox or pulse.waits for pulse in pulses)


async def is_ended(lanes: Sequence[PartitionClient], first: Sequence[PartitionStatus]) -> bool:
    """Tell whether the job is at its end, by a second reading equal to the first.

    All that is read first is read before anything is read again. A partition that was quiet both times with equal
    ``changes`` was quiet all the time between, so at the moment between the readings all were. A request on its way
    from one to another stays in the outbox of the one until it is in the other; nothing can then appear any more.
    """
    if not is_quiet(first):
        return False
    second = await read_pulses(lanes)
    return is_quiet(second) and all(
        early.changes == late.changes for early, late in zip(first, second, strict=True)
    )
