"""Broker frontier: the queue is the broker's, every decision is the state's. ``docs/brokers.md`` explains it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from skitter.brokers.contract import OutgoingMessage
from skitter.brokers.leasing import BrokerLeasing, Working
from skitter.brokers.message import mark_of
from skitter.brokers.outbox import FULL
from skitter.brokers.state import StateFrontier
from skitter.errors import FrontierError
from skitter.frontier.records import AddResult, Entry, JobInfo, JobState, Outcome, Resolution, SeedProgress

log = logging.getLogger("skitter.frontier")

_LETTERS_AT_ONCE = 1_000
_PATIENCE = 3600.0
"""Seconds for which one who joins a crawl waits for a broker that is away."""
_OPEN_AGAIN = 0.5


class BrokerFrontier(BrokerLeasing):
    """A frontier that takes its queue from a broker.

    Whatever stands not here is the state's own: status, notes, dead letters, outputs and so on.
    """

    # --- opening and closing ---------------------------------------------------------------------------

    async def open(self) -> JobInfo:
        """Open state and broker. Raises :class:`~skitter.errors.FrontierError`."""
        info = await self._state.open()
        try:
            await self._open_broker(mark_of(info.fingerprint_seed))
        except BaseException:
            await self._state.close()
            raise
        return info

    async def _open_broker(self, mark: bytes) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (_PATIENCE if self._patient else 0.0)
        is_told = False
        while True:
            try:
                await self._messages.open(mark)
            except FrontierError as error:
                if loop.time() >= deadline:
                    raise
                if not is_told:
                    is_told = True
                    log.warning("%s; waiting for it", error)
                await asyncio.sleep(_OPEN_AGAIN)
            else:
                return

    async def close(self) -> None:
        """Send what is on its way, put back what is in hand, and close both."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)
        for working in self._working.values():
            self._give_back(working)
        self._working.clear()
        is_over = self._last is not None and self._last[1].state is JobState.FINISHED
        try:
            await self._messages.close(is_over=is_over)
        finally:
            await self._state.close()

    async def erase(self) -> None:
        """Make the state forget the job. Messages of its last life are let go as they come."""
        await self._state.erase()

    # --- adding ------------------------------------------------------------------------------------------

    async def add(self, entries: Sequence[Entry], seeds: SeedProgress | None = None) -> AddResult:
        """Add requests, and publish those that are new."""
        result, told = await self._state.add_told(entries, seeds)
        await self._publish(self._messages.postings(entries, told))
        return result

    async def publish(self, entries: Sequence[Entry]) -> None:
        """Publish requests that the state has taken."""
        await self._publish(self._messages.postings(entries, [True] * len(entries)))

    async def publish_turns(self, slots: Sequence[str]) -> None:
        """Publish a message for whatever waits in each of some slots."""
        await self._publish([self._messages.bare_posting(slot) for slot in slots])

    async def _publish(self, postings: Sequence[OutgoingMessage]) -> None:
        self._outbox.put(postings)
        await self._outbox.wait_below(1)

    async def replay(self, ids: Sequence[int] | None = None) -> int:
        """Put dead letters back in the queue."""
        slots = await slots_of_letters(self._state, ids)
        count = await self._state.dead_letters.replay(ids)
        await self.publish_turns(slots)
        return count

    # --- the end of leases -------------------------------------------------------------------------------

    async def renew(self, worker: str, lease_ids: Sequence[int]) -> list[int]:
        """Extend leases, and the broker's patience with them."""
        gone = await self._state.renew(worker, lease_ids)
        for lease_id in set(lease_ids).difference(gone):
            if (working := self._working.get(lease_id)) is not None:
                working.held.delivery.touch()
        return gone

    async def commit(self, outcomes: Sequence[Outcome]) -> list[bool]:
        """Close leases; a message is finished when the state has the outcome and the broker has the children."""
        ended = [self._working.get(outcome.lease_id) for outcome in outcomes]
        for working in ended:
            if working is not None:
                self._needs[working.worker] = self._needs.get(working.worker, 0) + 1
        self._refill()  # the next messages come while the state is at work
        accepted, told = await self._state.commit_told(outcomes)
        postings: list[OutgoingMessage] = []
        done: list[tuple[Working, Outcome]] = []
        for outcome, working, is_taken, mask in zip(outcomes, ended, accepted, told, strict=True):
            self._working.pop(outcome.lease_id, None)
            if not is_taken:
                self._give_back(working)
            elif working is not None:
                done.append((working, outcome))
            if outcome.entries:
                postings += self._messages.postings(outcome.entries, mask)
        self._finishing += len(done)
        self._outbox.put(postings, partial(self._answer, done))
        await self._outbox.wait_below(FULL)
        return accepted

    def _answer(self, done: Sequence[tuple[Working, Outcome]]) -> None:
        self._finishing -= len(done)
        for working, outcome in done:
            if outcome.resolution is Resolution.RETRY:
                self._give_back(working, outcome.after)
            else:
                working.held.delivery.finish()
        self._refill()  # these make no room for others

    def _give_back(self, working: Working | None, seconds: float = 0.0) -> None:
        """Let a message stand for whatever waits in its slot after so many seconds."""
        if working is not None:
            self._hand.take_back(working.held, seconds, self._messages.now)

    async def release(self, lease_ids: Sequence[int]) -> None:
        """Hand leases back untouched."""
        await self._state.release(lease_ids)
        for lease_id in lease_ids:
            self._give_back(self._working.pop(lease_id, None))

    async def abandon(self, worker: str) -> int:
        """Take back what a dead worker held. If it was of another process its messages come when they time out."""
        self._needs.pop(worker, None)
        async with self._leasing:  # and not between two steps of a call for its leases
            count = await self._state.abandon(worker)
            for lease_id in [one for one, working in self._working.items() if working.worker == worker]:
                self._give_back(self._working.pop(lease_id))
        return count


async def slots_of_letters(state: StateFrontier, ids: Sequence[int] | None) -> list[str]:
    """Return the slots of dead letters, one for each letter; ``None``: of all."""
    chosen = None if ids is None else set(ids)
    slots: list[str] = []
    last = 0
    while letters := await state.dead_letters.list(last, _LETTERS_AT_ONCE):
        last = letters[-1].id
        slots += [letter.slot for letter in letters if chosen is None or letter.id in chosen]
    return slots
