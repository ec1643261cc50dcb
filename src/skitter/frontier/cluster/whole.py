"""Whole: what holds for a job as a whole, of which each partition knows only its own part."""

from __future__ import annotations

import asyncio

from skitter.frontier.cluster.aggregate import whole_status
from skitter.frontier.cluster.background import BackgroundTasks, gather_all
from skitter.frontier.cluster.budget import Budget
from skitter.frontier.cluster.forwarder import Forwarder
from skitter.frontier.cluster.partition import PartitionStatus
from skitter.frontier.cluster.partition_map import PartitionMap
from skitter.frontier.cluster.termination import is_ended, read_pulses
from skitter.frontier.records import FrontierStatus, JobState

_SETTLED_WITHIN = 2.0
"""Seconds within which what is delivered is normally safe: replicas tell every second how far they are."""
_LOOK_EVERY = 0.05


class Whole:
    """State and limits of the job, over all partitions."""

    _parts: PartitionMap
    _errands: BackgroundTasks
    _courier: Forwarder
    _budget: Budget
    _revision: int

    async def _obey_changes(self, revision: int) -> None:
        home = self._parts.home
        if revision > self._revision and not home.is_away:
            self._budget = Budget((await home.control.settings_changes()).of_options(home.options))
            self._revision = revision

    async def _whole_state(self, reason: str) -> JobState:
        """Return the state of the job as a whole, of which a partition knows only what was asked for."""
        if any(lane.partition.is_away for lane in self._parts.lanes):
            return JobState.STOPPING if reason else JobState.RUNNING
        pulses = await read_pulses(self._parts.lanes)
        if pulses[0].seeds_done and not any(pulse.left or pulse.waits for pulse in pulses):
            pulses = await self._settled(pulses)
            if await is_ended(self._parts.lanes, pulses):
                return JobState.FINISHED
        return JobState.STOPPING if reason else pulses[0].state

    async def _settled(self, pulses: list[PartitionStatus]) -> list[PartitionStatus]:
        """See that what is on its way arrives, if it is all that is left; returns what is there then."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _SETTLED_WITHIN
        while any(pulse.outbox for pulse in pulses) and loop.time() < until:
            await self._courier.confirm()
            pulses = await read_pulses(self._parts.lanes)
            for lane, pulse in zip(self._parts.lanes, pulses, strict=True):
                if pulse.outbox:
                    await self._courier.collect(lane, _SETTLED_WITHIN)
            if any(pulse.left for pulse in pulses):
                break
            if any(pulse.outbox for pulse in pulses):
                await asyncio.sleep(_LOOK_EVERY)
        return pulses

    async def status(self) -> FrontierStatus:
        """Read all counts, of each partition at one moment, of all of them at almost the same."""
        self._errands.check()
        parts = await gather_all(lane.partition.status() for lane in self._parts.lanes)
        pulses = await read_pulses(self._parts.lanes)
        await self._obey_changes(pulses[0].revision)
        reason = self._budget.reached(pulses)
        return whole_status(parts, await self._whole_state(reason), reason)

    async def set_state(self, state: JobState) -> JobState:
        """Set what the fleet is to do, in every partition."""
        await gather_all(lane.partition.control.set_state(state) for lane in self._parts.lanes)
        self._parts.touch()
        return await self._whole_state("")

    async def recrawl(self) -> bool:
        """Begin a finished job again. Done by the first partition; who opens the job leads the others after it."""
        if (
            await self._whole_state("") is not JobState.FINISHED
            or not await self._parts.home.control.recrawl()
        ):
            return False
        await gather_all(lane.partition.advance(self._parts.home.recrawls) for lane in self._parts.lanes[1:])
        self._parts.touch()
        return True
