"""One topic of the broker: its messages in both directions, and the leases that were granted for them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

import msgspec

from skitter._utils.concurrency import cancel_and_wait
from skitter.brokers.contract import Broker, Delivery, OutgoingMessage, StateFrontier
from skitter.brokers.message import QueueMessage, read_message, request_message, slot_message
from skitter.brokers.pending import BrokerTuning, PendingMessage, PendingMessages
from skitter.brokers.waiting import wait_for_broker
from skitter.errors import FrontierError, SkitterError, counted
from skitter.frontier.records import (
    Entry,
    FetchReport,
    JobState,
    Lease,
    LeaseResult,
    Outcome,
    Resolution,
    SlotDecision,
    SlotLeases,
)
from skitter.queues import queue_of

log = logging.getLogger("skitter.frontier")

OUTBOX_LIMIT = 10_000
"""Maximum number of outgoing messages. At this number, callers have to wait."""
MAX_MESSAGE_SIZE = 512 << 10
"""Maximum size in bytes; nsqd and NATS accept 1 MB by default. The message of a larger request names only its slot."""
MAX_OFFERS = 256
"""Maximum number of messages that are offered to the state in one call."""
MAX_REPUBLISHED = 20_000
"""Maximum number of messages that one search for lost messages publishes again."""
MAX_ATTEMPTS = 50
"""Number of deliveries after which a message for an empty slot is dropped. A missing message is published again."""
OPEN_TIMEOUT = 3600.0
"""Seconds for which a worker that joins a crawl waits for an unavailable broker."""
CLOSE_TIMEOUT = 10.0
"""Seconds for which closing waits for outgoing messages."""
POLL_INTERVAL = 0.005
"""Seconds after which a worker with capacity checks for messages again."""
OFFER_POLL_INTERVAL = 0.02
"""Maximum time in seconds after which a worker with pending messages asks again."""
ARRIVAL_TIMEOUT = 0.003
"""Seconds for which a call for leases waits for messages to arrive together."""
STATE_MAX_AGE = 0.05
"""Seconds for which the last reply of the state is used while nothing happens in this process."""


class Outbox:
    """Outgoing messages, and callbacks to call once the broker has accepted them. While messages are sent, new ones collect.

    If the process dies, the state knows the requests, and their messages are published again.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._messages: list[OutgoingMessage] = []
        self._callbacks: list[Callable[[], None]] = []
        self._arrived = asyncio.Event()
        self._changed = asyncio.Condition()
        self._sending = 0
        self.failure: BaseException | None = None
        """The error that ended :meth:`run`."""

    def __len__(self) -> int:
        return len(self._messages) + self._sending

    def put(self, messages: Sequence[OutgoingMessage], then: Callable[[], None] | None = None) -> None:
        """Send messages, and then call ``then``; at once if there is no message to send."""
        if not messages:
            if then is not None:
                then()
            return
        self._messages += messages
        if then is not None:
            self._callbacks.append(then)
        self._arrived.set()

    async def run(self) -> None:
        """Send until cancelled. Raises the errors of the broker, which has retried long enough by then."""
        try:
            while True:
                await self._arrived.wait()
                self._arrived.clear()
                await self._send()
        except Exception as error:
            self.failure = error
            async with self._changed:
                self._changed.notify_all()
            raise

    async def _send(self) -> None:
        messages, self._messages = self._messages, []
        callbacks, self._callbacks = self._callbacks, []
        self._sending = len(messages)
        if messages:
            await self._broker.publish(messages)
        self._sending = 0
        for callback in callbacks:
            callback()
        async with self._changed:
            self._changed.notify_all()

    async def wait_below(self, count: int) -> None:
        """Wait until fewer than ``count`` messages are on their way. Raises the error that ended :meth:`run`."""
        if len(self) >= count and self.failure is None:
            async with self._changed:
                await self._changed.wait_for(lambda: len(self) < count or self.failure is not None)
        if self.failure is not None:
            raise self.failure


class MessageChannel:
    """The messages of one topic: an outbox for messages to publish, and the pending messages that have arrived."""

    def __init__(self, broker: Broker, mark: bytes, tuning: BrokerTuning, clock: Callable[[], float]) -> None:
        self._broker = broker
        self._mark = mark
        self._tuning = tuning
        self._clock = clock
        self._sending: asyncio.Task[None] | None = None
        self.pending = PendingMessages(tuning)
        self.foreign: deque[Delivery] = deque()
        """Messages that other programs published, until they are taken as seeds."""
        self.outbox = Outbox(broker)
        self.pass_number = 1
        """Pass of the requests that are published."""
        self.supplied_at = 0.0
        """Event loop time at which the first delivery arrived, or at which it was certain that there is none."""

    async def open(self, *, patient: bool) -> None:
        """Connect. ``patient``: wait for a broker that is unavailable. Raises :class:`~skitter.errors.FrontierError`."""
        try:
            await wait_for_broker(self._broker.open, (FrontierError,), OPEN_TIMEOUT if patient else 0.0)
        except BaseException:
            await self._broker.close()
            raise
        self._sending = asyncio.create_task(self.outbox.run())
        self.supplied_at = self.now
        self.pending.open(self.now)

    async def close(self, *, finished: bool) -> None:
        """Send the outbox; return the pending messages, or delete them if the job is ``finished``; disconnect."""
        with contextlib.suppress(TimeoutError, SkitterError):
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self.outbox.wait_below(1)
        if self._sending is not None:
            await cancel_and_wait([self._sending])
        for pending in self.pending.clear():
            if finished:
                pending.delivery.finish()
            else:
                pending.delivery.requeue(0.0)
        for delivery in self.foreign:
            delivery.requeue(0.0)
        self.foreign.clear()
        await self._broker.close()

    @property
    def now(self) -> float:
        """Time of the event loop."""
        return asyncio.get_running_loop().time()

    def for_request(self, entry: Entry) -> OutgoingMessage:
        """Return the message for a request."""
        due = delay = 0.0
        if entry.delay or entry.not_before:
            now = self._clock()
            due = max(entry.not_before, now + entry.delay)
            delay = due - now if due - now > self._tuning.hold else 0.0
        body = request_message(self._mark, entry, due, self.pass_number)
        return OutgoingMessage(
            body if len(body) <= MAX_MESSAGE_SIZE else slot_message(self._mark, entry.slot), delay
        )

    def for_slot(self, slot: str) -> OutgoingMessage:
        """Return a message for any one request that waits in a slot."""
        return OutgoingMessage(slot_message(self._mark, slot))

    @property
    def is_receiving(self) -> bool:
        """Whether the broker can deliver messages now."""
        return self._broker.is_receiving

    def allow(self, count: int) -> None:
        """Allow the broker to deliver at most ``count`` messages in addition to the pending and the foreign ones."""
        self._broker.allow(len(self.pending) + len(self.foreign) + count)

    def receive(self) -> int:
        """Make the messages that have arrived pending. Return their number."""
        now = self.now
        deliveries = self._broker.receive()
        for delivery in deliveries:
            message = read_message(delivery.body)
            if message is None:
                self.foreign.append(delivery)
                continue
            if not message.belongs_to(self._mark):
                delivery.finish()
                continue
            if delivery.attempts == 1:
                self.supplied_at = now
            early = message.due - self._clock() if message.due else 0.0
            if early > self._tuning.hold:
                delivery.requeue(early)
            else:
                self.pending.put(delivery, message, now)
        return len(deliveries)

    async def wait(self, seconds: float) -> bool:
        """Wait at most ``seconds`` for a message to arrive. Return whether one has."""
        return await self._broker.wait(seconds)


class LeasedMessage(msgspec.Struct, gc=False):
    """A message for which a request was leased."""

    pending: PendingMessage
    worker: str


class Topic:
    """The topic of one queue: offers its messages to the state, which grants the leases."""

    def __init__(
        self,
        queue: str,
        state: StateFrontier,
        channel: MessageChannel,
        tuning: BrokerTuning,
        *,
        restore_lost: bool,
    ) -> None:
        self._queue = queue
        self._state = state
        self._channel = channel
        self._pending = channel.pending
        self._outbox = channel.outbox
        self._tuning = tuning
        self._restore_lost = restore_lost
        """Whether a request that is unknown to the state is added again from its message."""
        self._leased: dict[int, LeasedMessage] = {}
        self._search: asyncio.Task[None] | None = None
        self._dry_after = tuning.dry_after
        self._leasing = asyncio.Lock()
        """Held during a call for leases, so that no other call offers the same messages."""
        self._wanted: Counter[str] = Counter()
        """Number of leases that each worker still wants: those missing from its last call, and one for each lease that has ended
        since. A process may serve several workers."""
        self._finishing = 0
        """Messages whose outcomes are committed, and which are finished once the new requests are published."""
        self._calls = 0
        self._is_running = self._more_ready = True
        """Whether the job was running, and whether more slots were ready, in the last reply of the state."""
        self._last: tuple[float, LeaseResult] | None = None

    def __contains__(self, lease_id: int) -> bool:
        return lease_id in self._leased

    # --- opening, closing, publishing --------------------------------------------------------------------

    def follow_pass(self, number: int) -> None:
        """Publish messages of this pass from now on."""
        self._channel.pass_number = number

    def take_foreign(self, limit: int) -> list[Delivery]:
        """Take at most ``limit`` messages that other programs published. The caller acknowledges them."""
        foreign = self._channel.foreign
        return [foreign.popleft() for _ in range(min(limit, len(foreign)))]

    async def close(self) -> None:
        """Publish the outgoing messages, return all received ones, and disconnect."""
        if self._search is not None:
            await cancel_and_wait([self._search])
        self.release(list(self._leased))
        finished = self._last is not None and self._last[1].state is JobState.FINISHED
        await self._channel.close(finished=finished)

    async def publish(self, entries: Iterable[Entry]) -> None:
        """Publish a message for each request. Return when the broker has them."""
        await self._publish([self._channel.for_request(entry) for entry in entries])

    async def publish_slots(self, slots: Iterable[str]) -> None:
        """Publish a message for each slot. Return when the broker has them."""
        await self._publish([self._channel.for_slot(slot) for slot in slots])

    async def _publish(self, messages: Sequence[OutgoingMessage]) -> None:
        self._last = None  # with these requests, a finished job may be running again
        self._outbox.put(messages)
        await self._outbox.wait_below(1)

    # --- leasing -----------------------------------------------------------------------------------------

    async def lease(self, worker: str, limit: int, reports: Sequence[FetchReport] = ()) -> LeaseResult:
        """Lease at most ``limit`` requests for which messages have arrived."""
        if self._outbox.failure is not None:
            raise self._outbox.failure
        self._wanted[worker] = limit
        if reports:
            self._pending.offer_waiting_for_capacity()
        elif (idle := self._idle_result(limit)) is not None:
            return idle
        async with self._leasing:
            return await self._lease(worker, limit, reports)

    async def _lease(self, worker: str, limit: int, reports: Sequence[FetchReport]) -> LeaseResult:
        self._calls += 1
        wait = _MessageWait(self, self._channel, self._tuning, self._calls)
        leases: list[Lease] = []
        await self._gather(limit)
        while True:
            self._refill()
            reply = await self._offer(worker, limit - len(leases), reports)
            reports = ()
            leases += reply.result.leases
            # A worker that got all it wanted has not learned whether there is more.
            self._more_ready = reply.more_ready or 0 < limit <= len(leases)
            self._is_running = reply.result.state is JobState.RUNNING
            if not reply.more_ready or len(leases) >= limit:
                break
            self._wanted[worker] = limit - len(leases)
            self._refill()
            if not await wait.for_choice():
                break
        self._wanted[worker] = max(0, limit - len(leases))
        self._after_lease(reply, limit)
        result = msgspec.structs.replace(reply.result, leases=leases, ask_again=self._ask_again(reply))
        self._last = self._channel.now, msgspec.structs.replace(result, leases=[], data_loss=False)
        return result

    def _idle_result(self, limit: int) -> LeaseResult | None:
        """Return the last result if nothing has happened since that could change it, which saves a call to the state."""
        now = self._channel.now
        if self._tuning.max_wait or self._last is None or now - self._last[0] > STATE_MAX_AGE:
            return None
        self._refill()
        return None if limit and self._pending.next_offer() <= now else self._last[1]

    def _refill(self) -> None:
        """Receive messages, and allow as many more as are useful: only a few while no more slots are ready."""
        self._channel.receive()
        useful = max(0, self._wanted.total() - self._pending.never_offered) if self._is_running else 0
        if not self._more_ready and not self._channel.foreign:
            useful = min(useful, 1 if len(self._pending) < self._tuning.max_pending else 0)
        self._channel.allow(len(self._leased) + min(self._finishing, MAX_OFFERS) + useful)

    async def _gather(self, limit: int) -> None:
        """Wait a moment for messages that are about to arrive, so that one call to the state serves all of them."""
        if not self._more_ready:
            return
        self._refill()
        until = self._channel.now + ARRIVAL_TIMEOUT
        while len(self._pending) < limit and (seconds := until - self._channel.now) > 0:
            if not await self._channel.wait(seconds):
                return
            self._channel.receive()

    async def _offer(self, worker: str, limit: int, reports: Sequence[FetchReport]) -> SlotLeases:
        """Ask the state for leases from the slots of pending messages."""
        most = min(MAX_OFFERS, limit + self._tuning.max_pending)
        offers = self._pending.choose(self._calls, most, self._channel.now) if limit > 0 else []
        slots = [pending.slot for pending in offers]
        reply = await self._state.lease_slots(worker, slots, limit, reports, {self._queue: limit})
        now = self._channel.now
        leased: dict[str, deque[PendingMessage]] = defaultdict(deque)
        useless = []
        has_all = 0 < limit <= len(reply.result.leases)
        for pending, decision in zip(offers, reply.decisions, strict=True):
            if decision is SlotDecision.LEASED:
                leased[pending.slot].append(pending)
            elif decision is SlotDecision.EMPTY or (
                decision is SlotDecision.LATER and pending.delivery.attempts > MAX_ATTEMPTS
            ):
                useless.append(pending)
            elif has_all and decision == 0.0:
                pending.offered_in = 0  # the state did not have to look at its slot
            else:
                self._pending.postpone(pending, decision, now)
        used = [pending for group in leased.values() for pending in group]
        self._pending.remove([*used, *useless])
        self._pending.record_leased(used, now)
        for lease in reply.result.leases:
            if leased[lease.slot]:
                self._leased[lease.id] = LeasedMessage(leased[lease.slot].popleft(), worker)
        if useless:
            await self._finish_useless(useless)
        return reply

    async def _finish_useless(self, useless: Sequence[PendingMessage]) -> None:
        """Finish messages without a waiting request. Requests that the state has lost are added again.

        The state does not know the requests of an earlier pass either, but they are not lost.
        """
        messages = [
            pending.message for pending in useless if pending.message.fingerprint and pending.message.dedup
        ]
        if messages and self._restore_lost:
            number = (await self._state.status()).pass_number
            await self._restore([message for message in messages if message.pass_number == number])
        for pending in useless:
            pending.delivery.finish()

    async def _restore(self, messages: Sequence[QueueMessage]) -> None:
        """Add the requests of messages again that the state has lost."""
        unknown = await self._state.unknown([message.fingerprint for message in messages])
        lost = [message.entry() for message, is_lost in zip(messages, unknown, strict=True) if is_lost]
        if lost:
            log.warning(
                "adding again from messages: %s that the state has lost", counted(len(lost), "request")
            )
            _, new = await self._state.add_reported(lost)
            self._outbox.put([self._channel.for_request(entry) for entry in select(lost, new)])

    def _after_lease(self, reply: SlotLeases, limit: int) -> None:
        """Return excess messages, and start a search for lost ones if the broker seems to have none."""
        now = self._channel.now
        self._pending.trim(self._wanted.total(), now)
        if not reply.more_ready or not limit or not self._channel.is_receiving:
            self._channel.supplied_at = now
        elif now - self._channel.supplied_at > self._dry_after and self._search is None:
            self._search = asyncio.create_task(self._search_lost())

    def _ask_again(self, reply: SlotLeases) -> float:
        if reply.more_ready:
            return POLL_INTERVAL
        soonest = min(OFFER_POLL_INTERVAL, self._pending.next_offer() - self._channel.now)
        return min(reply.result.ask_again, max(soonest, POLL_INTERVAL))

    # --- lost messages -----------------------------------------------------------------------------------

    async def _search_lost(self) -> None:
        try:
            await self.republish_lost()
        except SkitterError as error:
            log.warning("the search for lost messages failed: %s", error)
        finally:
            self._channel.supplied_at = self._channel.now
            # Workers should not all search at once: the messages that one worker publishes serve all of them.
            self._dry_after = self._tuning.dry_after * random.uniform(1.0, 1.5)
            self._search = None

    async def republish_lost(self) -> int:
        """Publish messages for slots that have been ready for too long without one. Return the number of messages."""
        messages: list[OutgoingMessage] = []
        for slot, waiting in await self._state.overdue_slots(self._tuning.overdue_after):
            if queue_of(slot) == self._queue:
                count = min(waiting, MAX_REPUBLISHED - len(messages))
                messages += [self._channel.for_slot(slot)] * count
        if messages:
            log.info("published again: %s that may be lost", counted(len(messages), "message"))
            self._pending.reset_pace()
            await self._publish(messages)
        return len(messages)

    # --- ending leases -----------------------------------------------------------------------------------

    def touch(self, lease_ids: Collection[int]) -> None:
        """Restart the message timeout of leases."""
        for lease_id in lease_ids:
            if (leased := self._leased.get(lease_id)) is not None:
                leased.pending.delivery.touch()

    def before_commit(self, outcomes: Sequence[Outcome]) -> None:
        """Allow the next messages to arrive while the state commits these outcomes."""
        for outcome in outcomes:
            if (leased := self._leased.get(outcome.lease_id)) is not None:
                self._wanted[leased.worker] += 1
        self._refill()

    async def after_commit(
        self, outcomes: Sequence[Outcome], accepted: Sequence[bool], new: Sequence[Entry]
    ) -> None:
        """Acknowledge the messages of committed leases once the ``new`` requests of this topic are published."""
        closed: list[tuple[LeasedMessage, Outcome]] = []
        for outcome, is_accepted in zip(outcomes, accepted, strict=True):
            if not is_accepted:
                self.release([outcome.lease_id])
            elif (leased := self._leased.pop(outcome.lease_id, None)) is not None:
                closed.append((leased, outcome))
        self._finishing += len(closed)
        self._outbox.put(
            [self._channel.for_request(entry) for entry in new], partial(self._acknowledge, closed)
        )
        await self._outbox.wait_below(OUTBOX_LIMIT)

    def _acknowledge(self, closed: Sequence[tuple[LeasedMessage, Outcome]]) -> None:
        self._finishing -= len(closed)
        for leased, outcome in closed:
            if outcome.resolution is Resolution.RETRY:
                self._pending.add_again(leased.pending, outcome.after, self._channel.now)
            else:
                leased.pending.delivery.finish()
        self._refill()  # finishing a message does not allow another one

    def release(self, lease_ids: Iterable[int]) -> None:
        """Make the messages of leases pending again, because their requests are queued again."""
        for lease_id in lease_ids:
            if (leased := self._leased.pop(lease_id, None)) is not None:
                self._pending.add_again(leased.pending, 0.0, self._channel.now)

    async def abandon(self, worker: str) -> int:
        """Reclaim the leases of a dead worker.

        Messages that were delivered to another process are delivered again when their timeout ends.
        """
        self._wanted.pop(worker, None)
        async with self._leasing:  # not during a call for leases of that worker
            count = await self._state.abandon(worker)
            self.release([lease_id for lease_id, leased in self._leased.items() if leased.worker == worker])
        return count


class _MessageWait:
    """Waits for messages within one call for leases: for messages on their way, and for lost messages that were republished."""

    def __init__(self, topic: Topic, channel: MessageChannel, tuning: BrokerTuning, call: int) -> None:
        self._topic = topic
        self._channel = channel
        self._dry_after = tuning.dry_after
        self._call = call
        self._deadline = channel.now + tuning.max_wait if tuning.max_wait else 0.0
        self._expected = 0
        """Number of messages that were published again and have not arrived."""

    async def for_choice(self) -> bool:
        """Return whether there is a message that was not offered in this call; wait for one if that is allowed."""
        channel = self._channel
        if channel.pending.has_choice(self._call, channel.now):
            return True
        while (seconds := self._deadline - channel.now) > 0:
            if await channel.wait(seconds if self._expected else min(seconds, self._dry_after)):
                received = channel.receive()
                # Other messages may have arrived instead of the expected ones. The search for lost messages is then repeated.
                self._expected = max(0, self._expected - received)
                return True
            if not self._expected:
                self._expected = await self._topic.republish_lost()
                if not self._expected:
                    return False
        return False


def select(entries: Iterable[Entry], new: Iterable[bool]) -> list[Entry]:
    """Return the entries that are marked as new."""
    return [entry for entry, is_new in zip(entries, new, strict=True) if is_new]
