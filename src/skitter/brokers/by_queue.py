"""By queue: the broker frontier of a job. Each named queue has a topic of its own, and all share one state.

One :class:`~skitter.brokers.frontier.BrokerFrontier` sees to each topic; here its share of each call is found.
A job without named queues has one of them, which is asked directly.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, cast

import msgspec

from skitter.brokers.contract import Broker
from skitter.brokers.frontier import BrokerFrontier, slots_of_letters
from skitter.brokers.pending import BrokerTuning
from skitter.brokers.queue_state import QueueState
from skitter.brokers.state import OverState, StateFrontier
from skitter.frontier.records import (
    AddResult,
    Entry,
    FetchReport,
    JobInfo,
    JobState,
    LeaseResult,
    Outcome,
    SeedProgress,
)
from skitter.queues import DEFAULT_QUEUE, EVERY_OTHER, QueueQuotas, queue_of, share_of

_LOOK_EVERY = 2.0
"""Seconds between two looks for queues that others have begun."""


class BrokerFrontierByQueue(OverState):
    """A frontier that takes its queues from a broker. Whatever stands not here is the state's own.

    ``make_broker`` gives the broker of a queue's topic.
    """

    def __init__(
        self,
        state: StateFrontier,
        make_broker: Callable[[str], Broker],
        *,
        known_for_ever: bool = True,
        patient: bool = False,
        pace: BrokerTuning | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._state = state
        self._make_broker = make_broker
        self._make = partial(BrokerFrontier, known_for_ever=known_for_ever, pace=pace, clock=clock)
        self._patient = patient
        self._parts: dict[str, BrokerFrontier] = {}
        self._opening = asyncio.Lock()
        self._queue_of: dict[int, str] = {}
        """Of leases of other queues than the default one."""
        self._looked_at = float("-inf")
        self._calls = 0

    # --- opening and closing ---------------------------------------------------------------------------

    async def open(self) -> JobInfo:
        """Open state and broker. Raises :class:`~skitter.errors.FrontierError`."""
        self._info = await self._state.open()
        try:
            await self._part(DEFAULT_QUEUE)
        except BaseException:
            await self._state.close()
            raise
        return self._info

    async def _part(self, queue: str) -> BrokerFrontier:
        """Return who sees to a queue."""
        if (part := self._parts.get(queue)) is not None:
            return part
        async with self._opening:
            if queue not in self._parts:
                # The broker was there when the first was opened: for the others it is waited, if it is away now.
                patient = self._patient or bool(self._parts)
                view = QueueState(self._state, queue, self._info, self.publish)
                # What is not the view's own is the state's.
                part = self._make(cast(StateFrontier, view), self._make_broker(queue), patient=patient)
                await part.open()
                self._parts[queue] = part
            return self._parts[queue]

    async def close(self) -> None:
        """Send what is on its way, put back what is in hand, and close all."""
        try:
            for part in self._parts.values():
                await part.close()
        finally:
            await self._state.close()

    async def erase(self) -> None:
        """Make the state forget the job. Messages of its last life are let go as they come."""
        await self._state.erase()

    # --- adding ------------------------------------------------------------------------------------------

    async def publish(self, entries: Sequence[Entry]) -> None:
        """Publish requests that the state has taken, each to the topic of its queue."""
        for queue, group in _by_queue(entries, lambda entry: entry.slot).items():
            await (await self._part(queue)).publish(group)

    async def add(self, entries: Sequence[Entry], seeds: SeedProgress | None = None) -> AddResult:
        """Add requests, and publish those that are new."""
        return await self._parts[DEFAULT_QUEUE].add(entries, seeds)

    async def replay(self, ids: Sequence[int] | None = None) -> int:
        """Put dead letters back in the queue."""
        slots = await slots_of_letters(self._state, ids)
        count = await self._state.dead_letters.replay(ids)
        for queue, group in _by_queue(slots, lambda slot: slot).items():
            await (await self._part(queue)).publish_turns(group)
        return count

    # --- leases ------------------------------------------------------------------------------------------

    async def lease(
        self, worker: str, limit: int, landed: Sequence[FetchReport] = (), shares: QueueQuotas | None = None
    ) -> LeaseResult:
        """Hand out what may be fetched now and has a message here."""
        queues = await self._served(shares)
        if queues == [DEFAULT_QUEUE] and not self._queue_of:
            share = share_of(shares, DEFAULT_QUEUE, limit)
            return await self._parts[DEFAULT_QUEUE].lease(worker, share, landed)
        left = {queue: share_of(shares, queue, limit) for queue in queues}
        landings = self._sorted(landed, lambda landing: landing.lease_id)
        self._calls += 1
        first = self._calls % len(queues)  # each in turn is asked first
        order = [*(landings.keys() - left.keys()), *queues[first:], *queues[:first]]
        results: list[LeaseResult] = []
        while order and (limit > 0 or not results):
            fruitful = []
            for place, queue in enumerate(order):
                wanted = min(left.get(queue, 0), -(-limit // (len(order) - place)))
                result = await self._lease(queue, worker, wanted, landings.pop(queue, ()))
                results.append(result)
                taken = len(result.leases)
                limit -= taken
                left[queue] = left.get(queue, 0) - taken
                if taken == wanted and left[queue] > 0:
                    fruitful.append(queue)
            order = fruitful
        return _together(results)

    async def _lease(
        self, queue: str, worker: str, wanted: int, landed: Sequence[FetchReport]
    ) -> LeaseResult:
        result = await self._parts[queue].lease(worker, wanted, landed)
        if queue != DEFAULT_QUEUE:
            self._queue_of.update({lease.id: queue for lease in result.leases})
        return result

    async def _served(self, shares: QueueQuotas | None) -> list[str]:
        """Return the queues from which to lease now: at least one, to ask it about the job."""
        if shares is None or EVERY_OTHER in shares:
            await self._look_around()
        named = self._parts if shares is None else {**dict.fromkeys(shares), **self._parts}
        queues = [queue for queue in named if queue != EVERY_OTHER and share_of(shares, queue, 1) > 0] or [
            DEFAULT_QUEUE
        ]
        for queue in queues:
            await self._part(queue)
        return queues

    async def _look_around(self) -> None:
        """Find queues that others have begun."""
        now = asyncio.get_running_loop().time()
        if now - self._looked_at >= _LOOK_EVERY:
            self._looked_at = now
            for queue in (await self._state.status()).queues:
                await self._part(queue)

    def _sorted(self, given: Iterable[Any], id_of: Callable[[Any], int]) -> dict[str, list[Any]]:
        """Sort what concerns leases by their queues."""
        found: dict[str, list[Any]] = defaultdict(list)
        for one in given:
            found[self._queue_of.get(id_of(one), DEFAULT_QUEUE)].append(one)
        return found

    # --- the end of leases -------------------------------------------------------------------------------

    async def renew(self, worker: str, lease_ids: Sequence[int]) -> list[int]:
        """Extend leases, and the broker's patience with them."""
        groups = {DEFAULT_QUEUE: [], **self._sorted(lease_ids, lambda lease_id: lease_id)}
        return [
            lease_id
            for queue, ids in groups.items()
            for lease_id in await self._parts[queue].renew(worker, ids)
        ]

    async def commit(self, outcomes: Sequence[Outcome]) -> list[bool]:
        """Close leases; a message is finished when the state has the outcome and the broker has the children."""
        if not self._queue_of:
            return await self._parts[DEFAULT_QUEUE].commit(outcomes)
        accepted: dict[int, bool] = {}
        for queue, group in self._sorted(outcomes, lambda outcome: outcome.lease_id).items():
            answers = await self._parts[queue].commit(group)
            accepted.update(zip((outcome.lease_id for outcome in group), answers, strict=True))
        self._forget(outcome.lease_id for outcome in outcomes)
        return [accepted[outcome.lease_id] for outcome in outcomes]

    async def release(self, lease_ids: Sequence[int]) -> None:
        """Hand leases back untouched."""
        for queue, group in self._sorted(lease_ids, lambda lease_id: lease_id).items():
            await self._parts[queue].release(group)
        self._forget(lease_ids)

    async def abandon(self, worker: str) -> int:
        """Take back what a dead worker held. The first part that is asked has it done, all let go of its messages."""
        return sum([await part.abandon(worker) for part in self._parts.values()])

    def _forget(self, lease_ids: Iterable[int]) -> None:
        for lease_id in lease_ids:
            self._queue_of.pop(lease_id, None)


def _by_queue(given: Iterable[Any], slot_of: Callable[[Any], str]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = defaultdict(list)
    for one in given:
        found[queue_of(slot_of(one))].append(one)
    return found


def _together(results: Sequence[LeaseResult]) -> LeaseResult:
    """Return what several queues gave as one answer."""
    last = results[-1]
    is_over = any(result.state is JobState.FINISHED for result in results)
    return msgspec.structs.replace(
        last,
        leases=[lease for result in results for lease in result.leases],
        state=JobState.FINISHED if is_over else last.state,
        ask_again=min(result.ask_again for result in results),
        data_loss=any(result.data_loss for result in results),
    )
