"""Leasing: leases are given by the state to messages that the broker has brought; what has no message is found again."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence

import msgspec

from skitter.brokers.contract import Broker, OutgoingMessage
from skitter.brokers.message import entry_of
from skitter.brokers.messages import Messages, MessageWaiter
from skitter.brokers.pending import BrokerTuning, PendingMessage
from skitter.brokers.state import Fate, OverState, StateFrontier, TurnResult
from skitter.errors import SkitterError
from skitter.frontier.records import FetchReport, JobState, Lease, LeaseResult

log = logging.getLogger("skitter.frontier")

_OFFERS_AT_ONCE = 256

_ASK_AGAIN = 0.005
"""Seconds after which a worker with room looks again whether messages have come."""

_MOMENT = 0.003
"""Seconds for which a call for leases waits for messages, where there is something to be leased."""

_STATE_FRESH = 0.05
"""Seconds for which the state's last answer is believed while nothing happens here."""

_LOOK_AGAIN = 0.02

_MOST_SWEPT = 20_000
"""Messages that one sweep publishes again."""

_TOO_OFTEN = 50
"""Deliveries after which a message that finds its slot empty is let go: the sweep helps if that was wrong."""


class Working(msgspec.Struct, gc=False):
    """A message whose request is at work."""

    held: PendingMessage
    worker: str


class BrokerLeasing(OverState):
    """Messages in hand and at work, and what the state says of them."""

    def __init__(
        self,
        state: StateFrontier,
        broker: Broker,
        *,
        known_for_ever: bool = True,
        patient: bool = False,
        pace: BrokerTuning | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._state = state
        self._known_for_ever = known_for_ever
        """Whether a fingerprint stays known, so that one that is unknown was never added or has been lost."""
        self._pace = pace if pace is not None else BrokerTuning()
        self._patient = patient
        """Whether a broker that is away is waited for also to open it: others are at work on the job."""
        self._messages = Messages(broker, self._pace, clock)
        self._hand = self._messages.hand
        self._outbox = self._messages.outbox
        self._working: dict[int, Working] = {}
        self._sweeping: asyncio.Task[None] | None = None
        self._dry_after = self._pace.dry_after
        self._leasing = asyncio.Lock()
        """One call for leases at a time: each message is offered by one of them."""
        self._needs: dict[str, int] = {}
        """How many leases each worker wants, with those it has ended since it asked; one process may serve several."""
        self._finishing = 0
        """Messages whose pages are committed, and that are finished when their children are out."""
        self._calls = 0
        self._is_running = self._is_starving = True
        """Whether more could have been leased, as far as known, when the state was asked last."""
        self._last: tuple[float, LeaseResult] | None = None

    async def lease(self, worker: str, limit: int, landed: Sequence[FetchReport] = ()) -> LeaseResult:
        """Hand out what may be fetched now and has a message here."""
        if self._outbox.failure is not None:
            raise self._outbox.failure
        self._needs[worker] = limit
        if landed:
            self._hand.places_are_free()
        elif (idle := self._idle(limit)) is not None:
            return idle
        async with self._leasing:
            return await self._lease(worker, limit, landed)

    async def _lease(self, worker: str, limit: int, landed: Sequence[FetchReport]) -> LeaseResult:
        self._calls += 1
        patience = MessageWaiter(self._messages, self._pace, self._calls, self.sweep)
        leases: list[Lease] = []
        await self._gather(limit)
        while True:
            self._refill()
            answer = await self._take_turns(worker, limit - len(leases), landed)
            landed = ()
            leases += answer.result.leases
            # Who got all that it wanted has not learnt whether there is more.
            self._is_starving = answer.starving or 0 < limit <= len(leases)
            self._is_running = answer.result.state is JobState.RUNNING
            if not answer.starving or len(leases) >= limit:
                break
            self._needs[worker] = limit - len(leases)
            self._refill()
            if not await patience.more():
                break
        self._needs[worker] = max(0, limit - len(leases))
        self._after(answer, limit)
        result = msgspec.structs.replace(answer.result, leases=leases, ask_again=self._ask_again(answer))
        self._last = self._messages.now, msgspec.structs.replace(result, leases=[], data_loss=False)
        return result

    def _idle(self, limit: int) -> LeaseResult | None:
        """Return the last answer while nothing has happened that could change it, to spare the state a question."""
        if self._pace.patience or self._last is None or self._messages.now - self._last[0] > _STATE_FRESH:
            return None
        self._refill()
        return None if limit and self._hand.next_offer() <= self._messages.now else self._last[1]

    def _refill(self) -> None:
        """Take what has come, and let more come if they may be of use: not many while no slot is ready for more."""
        self._messages.receive()
        useful = max(0, sum(self._needs.values()) - self._hand.unoffered) if self._is_running else 0
        if not self._is_starving:
            useful = min(useful, 1 if len(self._hand) < self._pace.room else 0)
        self._messages.allow(len(self._working) + min(self._finishing, _OFFERS_AT_ONCE) + useful)

    async def _gather(self, limit: int) -> None:
        """Wait a moment for messages that are about to come: the state is asked once for all of them."""
        if not self._is_starving:
            return
        self._refill()
        until = self._messages.now + _MOMENT
        while len(self._hand) < limit and (left := until - self._messages.now) > 0:
            if not await self._messages.wait(left):
                return
            self._messages.receive()

    async def _take_turns(self, worker: str, limit: int, landed: Sequence[FetchReport]) -> TurnResult:
        most = min(_OFFERS_AT_ONCE, limit + self._pace.room)
        offers = self._hand.offers(self._calls, most, self._messages.now) if limit > 0 else []
        answer = await self._state.take_turns(worker, [held.slot for held in offers], limit, landed)
        now = self._messages.now
        granted: dict[str, deque[PendingMessage]] = defaultdict(deque)
        gone = []
        has_all = 0 < limit <= len(answer.result.leases)
        for held, fate in zip(offers, answer.fates, strict=True):
            if fate is Fate.GRANTED:
                granted[held.slot].append(held)
            elif fate is Fate.GONE or (fate is Fate.LATER and held.delivery.attempts > _TOO_OFTEN):
                gone.append(held)
            elif has_all and fate == 0.0:
                held.asked = 0  # it was not looked at: no more was wanted
            else:
                self._hand.postpone(held, fate, now)
        used = [held for group in granted.values() for held in group]
        self._hand.remove([*used, *gone])
        self._hand.note_grants(used, now)
        for lease in answer.result.leases:
            if granted[lease.slot]:
                self._working[lease.id] = Working(granted[lease.slot].popleft(), worker)
        if gone:
            await self._let_go(gone)
        return answer

    async def _let_go(self, gone: Sequence[PendingMessage]) -> None:
        """Finish messages for which nothing waits. A request that the state has lost is brought back by its own."""
        whole = [held for held in gone if held.ticket.fingerprint and held.ticket.dedup]
        if whole and self._known_for_ever:
            unknown = await self._state.unknown([held.ticket.fingerprint for held in whole])
            lost = [entry_of(held.ticket) for held, is_lost in zip(whole, unknown, strict=True) if is_lost]
            if lost:
                log.warning(
                    "%d requests that the state has lost are added again from their messages", len(lost)
                )
                _, told = await self._state.add_told(lost)
                self._outbox.put(self._messages.postings(lost, told))
        for held in gone:
            held.delivery.finish()

    def _after(self, answer: TurnResult, limit: int) -> None:
        """Put back what is too much, and find out whether messages were lost."""
        now = self._messages.now
        self._hand.trim(now)
        if not answer.starving or not limit:
            self._messages.fresh_at = now
        elif now - self._messages.fresh_at > self._dry_after and self._sweeping is None:
            self._sweeping = asyncio.create_task(self._sweep_beside())

    def _ask_again(self, answer: TurnResult) -> float:
        if answer.starving:
            return _ASK_AGAIN
        soonest = min(_LOOK_AGAIN, self._hand.next_offer() - self._messages.now)
        return min(answer.result.ask_again, max(soonest, _ASK_AGAIN))

    async def _sweep_beside(self) -> None:
        try:
            await self.sweep()
        except SkitterError as error:
            log.warning("lost messages could not be looked for: %s", error)
        finally:
            self._messages.fresh_at = self._messages.now
            # Not all workers at once: who sweeps first brings messages to all of them.
            self._dry_after = self._pace.dry_after * random.uniform(1.0, 1.5)
            self._sweeping = None

    async def sweep(self) -> int:
        """Publish again for slots that were ready for long and had no message; returns how many messages."""
        postings: list[OutgoingMessage] = []
        for slot, count in await self._state.stranded(self._pace.ready_for):
            some = min(count, _MOST_SWEPT - len(postings))
            postings += [self._messages.bare_posting(slot)] * some
        if postings:
            log.info("%d messages are published again: theirs seem to be lost", len(postings))
            self._hand.forget_pace()
            self._outbox.put(postings)
            await self._outbox.wait_below(1)
        return len(postings)
