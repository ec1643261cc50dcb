"""Ending: the proof that nothing is left in any partition at one moment."""

from __future__ import annotations

from collections.abc import Sequence

from skitter.frontier.partitions.base import Pulse
from skitter.frontier.partitions.errands import together
from skitter.frontier.partitions.lane import Lane


async def read_pulses(lanes: Sequence[Lane]) -> list[Pulse]:
    """Read all partitions, each at some moment within the call."""
    return await together(lane.partition.pulse() for lane in lanes)


def is_quiet(pulses: Sequence[Pulse]) -> bool:
    """Tell whether every partition was quiet when it was read; the first one knows of the seeds."""
    return pulses[0].seeds_done and not any(pulse.left or pulse.outbox or pulse.waits for pulse in pulses)


async def is_ended(lanes: Sequence[Lane], first: Sequence[Pulse]) -> bool:
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
