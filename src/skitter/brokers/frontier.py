"""Broker frontier: a message broker carries the queue, and a state frontier makes all decisions.

``docs/design/brokers.md`` explains the protocol.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack

import msgspec

from skitter.brokers.contract import Broker, StateFrontier
from skitter.brokers.message import job_mark
from skitter.brokers.pending import BrokerTuning
from skitter.brokers.seeds import TopicSeeds
from skitter.brokers.topic import MessageChannel, Topic, select
from skitter.frontier.contract import (
    DeadLetters,
    Partitions,
    SeedSource,
)
from skitter.frontier.records import (
    AddResult,
    Entry,
    FetchReport,
    JobInfo,
    JobState,
    LeaseResult,
    Outcome,
    SeedClaim,
    SeedProgress,
)
from skitter.politeness import Politeness
from skitter.queues import DEFAULT_QUEUE, EVERY_OTHER, QueueQuotas, queue_of, quota_of

DISCOVERY_INTERVAL = 2.0
"""Seconds between two searches for queues that other processes have created."""
DEAD_LETTERS_PAGE = 1_000
"""Dead letters read from the state in one call."""


class BrokerFrontier:
    """A frontier that takes its requests from a broker. Each queue has its own topic; all topics share one state.

    Implements :class:`~skitter.frontier.contract.Frontier`.
    ``state``: opened and closed by this frontier. ``make_broker``: returns the broker of a queue's topic.
    ``restore_lost``: add a request again from its message if the state does not know it; off if the state forgets
    fingerprints on purpose. ``patient``: :meth:`open` waits for a broker that is unavailable.
    """

    partitions: Partitions | None = None

    def __init__(
        self,
        state: StateFrontier,
        make_broker: Callable[[str], Broker],
        *,
        restore_lost: bool = True,
        patient: bool = False,
        tuning: BrokerTuning | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._state = state
        self._make_broker = make_broker
        self._restore_lost = restore_lost
        self._patient = patient
        self._tuning = tuning if tuning is not None else BrokerTuning()
        self._clock = clock
        self._mark = b""
        self._topics: dict[str, Topic] = {}
        self._opening = asyncio.Lock()
        self._discovered_at = float("-inf")
        self._calls = 0
        self._pass_number = 1
        self._revision = 0
        """Revision of the settings in the last reply of the state."""
        self.shared = state.shared
        self.control = state.control
        self.notes = state.notes
        self.reports = state.reports
        self.liveness = state.liveness
        self.catalog = state.catalog
        self.seed_keys = state.seed_keys
        """Requests from seed keys have no messages at first. The search for lost messages publishes messages for them."""
        self.unknown = state.unknown
        self.status = state.status
        self.limit_outages = state.limit_outages
        self.dead_letters: DeadLetters = _PublishedDeadLetters(state, self._publish_slots)
        self.topic_seeds: SeedSource | None = TopicSeeds(self, self._topics)

    @property
    def politeness(self) -> Politeness | None:
        return self._state.politeness

    # --- opening and closing -----------------------------------------------------------------------------

    async def open(self) -> JobInfo:
        """Open the state and the broker. Raises :class:`~skitter.errors.FrontierError`."""
        info = await self._state.open()
        self._mark = job_mark(info.fingerprint_seed)
        try:
            await self._follow_pass()
            await self._topic(DEFAULT_QUEUE)
        except BaseException:
            await self._state.close()
            raise
        return info

    async def _topic(self, queue: str) -> Topic:
        """Return the topic of a queue. Open it on the first call."""
        if (topic := self._topics.get(queue)) is not None:
            return topic
        async with self._opening:
            if queue not in self._topics:
                channel = MessageChannel(self._make_broker(queue), self._mark, self._tuning, self._clock)
                topic = Topic(queue, self._state, channel, self._tuning, restore_lost=self._restore_lost)
                # The broker was there when the first topic was opened; if it is unavailable now, it will come back.
                await channel.open(patient=self._patient or bool(self._topics))
                topic.follow_pass(self._pass_number)
                self._topics[queue] = topic
            return self._topics[queue]

    async def _follow_pass(self) -> None:
        """Ask the state for the pass to which new requests belong."""
        self._pass_number = (await self._state.status()).pass_number
        for topic in self._topics.values():
            topic.follow_pass(self._pass_number)

    async def close(self) -> None:
        """Publish the outgoing messages, return all received ones, and close the broker and the state."""
        async with AsyncExitStack() as closing:  # closes all, even if closing one of them fails
            closing.push_async_callback(self._state.close)
            closing.callback(self._topics.clear)
            # At the same time: each may wait for a broker that does not respond.
            closed = [topic.close() for topic in self._topics.values()]
            results = await asyncio.gather(*closed, return_exceptions=True)
            if errors := [result for result in results if result is not None]:
                for other in errors[1:]:
                    errors[0].add_note(f"another queue was not closed either: {other}")
                raise errors[0]

    async def erase(self) -> None:
        """Delete the job from the state. Its messages are dropped when they are received."""
        await self._state.erase()

    # --- adding ------------------------------------------------------------------------------------------

    async def add(self, entries: Sequence[Entry], seeds: SeedProgress | None = None) -> AddResult:
        """Add requests, and publish the new ones."""
        result, new = await self._state.add_reported(entries, seeds)
        await self._publish(select(entries, new))
        return result

    async def claim_seeds(self, worker: str) -> SeedClaim | None:
        claim = await self._state.claim_seeds(worker)
        if claim is not None:
            await self._follow_pass()
        return claim

    async def _publish(self, entries: Iterable[Entry]) -> None:
        groups: dict[str, list[Entry]] = defaultdict(list)
        for entry in entries:
            groups[queue_of(entry.slot)].append(entry)
        for queue, group in groups.items():
            await (await self._topic(queue)).publish(group)

    async def _publish_slots(self, slots: Iterable[str]) -> None:
        groups: dict[str, list[str]] = defaultdict(list)
        for slot in slots:
            groups[queue_of(slot)].append(slot)
        for queue, group in groups.items():
            await (await self._topic(queue)).publish_slots(group)

    # --- leasing -----------------------------------------------------------------------------------------

    async def lease(
        self, worker: str, limit: int, reports: Sequence[FetchReport] = (), quotas: QueueQuotas | None = None
    ) -> LeaseResult:
        """Lease requests that may be fetched now and whose messages have arrived."""
        result = await self._lease(worker, limit, reports, quotas)
        if result.revision != self._revision:
            self._revision = result.revision
            await self._follow_pass()
        return result

    async def _lease(
        self, worker: str, limit: int, reports: Sequence[FetchReport], quotas: QueueQuotas | None
    ) -> LeaseResult:
        queues = await self._served_queues(quotas)
        if queues == [*self._topics] == [DEFAULT_QUEUE]:
            limit = quota_of(quotas, DEFAULT_QUEUE, limit)
            return await self._topics[DEFAULT_QUEUE].lease(worker, limit, reports)
        quotas_left = {queue: quota_of(quotas, queue, limit) for queue in queues}
        reports_of: dict[str, list[FetchReport]] = defaultdict(list)
        for report in reports:
            reports_of[self._queue_of_lease(report.lease_id)].append(report)
        self._calls += 1
        first = self._calls % len(queues)  # the first queue to ask changes with each call
        order = [*(reports_of.keys() - quotas_left.keys()), *queues[first:], *queues[:first]]
        results: list[LeaseResult] = []
        while order and (limit > 0 or not results):
            productive = []
            for place, queue in enumerate(order):
                count = min(quotas_left.get(queue, 0), -(-limit // (len(order) - place)))
                result = await self._topics[queue].lease(worker, count, reports_of.pop(queue, ()))
                results.append(result)
                leased = len(result.leases)
                limit -= leased
                quotas_left[queue] = quotas_left.get(queue, 0) - leased
                if leased == count and quotas_left[queue] > 0:
                    productive.append(queue)
            order = productive
        return _combined(results)

    async def _served_queues(self, quotas: QueueQuotas | None) -> list[str]:
        """Return the queues to lease from now; at least one, because its topic asks for the state of the job."""
        now = asyncio.get_running_loop().time()
        if (quotas is None or EVERY_OTHER in quotas) and now - self._discovered_at >= DISCOVERY_INTERVAL:
            self._discovered_at = now
            for queue in (await self._state.status()).queues:  # other processes may have created some
                await self._topic(queue)
        named = self._topics if quotas is None else {**dict.fromkeys(quotas), **self._topics}
        queues = [queue for queue in named if queue != EVERY_OTHER and quota_of(quotas, queue, 1) > 0]
        queues = queues or [DEFAULT_QUEUE]
        for queue in queues:
            await self._topic(queue)
        return queues

    def _queue_of_lease(self, lease_id: int) -> str:
        """Return the queue whose topic holds the message of a lease."""
        if len(self._topics) > 1:
            for queue, topic in self._topics.items():
                if lease_id in topic:
                    return queue
        return DEFAULT_QUEUE

    # --- ending leases -----------------------------------------------------------------------------------

    async def renew(self, worker: str, lease_ids: Sequence[int]) -> list[int]:
        """Extend leases, and the message timeouts with them."""
        lost = await self._state.renew(worker, lease_ids)
        kept = set(lease_ids).difference(lost)
        for topic in self._topics.values():
            topic.touch(kept)
        return lost

    async def commit(self, outcomes: Sequence[Outcome]) -> list[bool]:
        """Close leases. A message is finished once the state has the outcome and the broker has its new requests."""
        groups: dict[str, _Commit] = defaultdict(_Commit)
        for place, outcome in enumerate(outcomes):
            group = groups[self._queue_of_lease(outcome.lease_id)]
            group.places.append(place)
            group.outcomes.append(outcome)
        for queue, group in groups.items():
            self._topics[queue].before_commit(group.outcomes)
        accepted, new = await self._state.commit_reported(outcomes)
        elsewhere: list[Entry] = []
        for queue, group in groups.items():
            for place, outcome in zip(group.places, group.outcomes, strict=True):
                for entry in select(outcome.all_entries(), new[place]):
                    (group.new if queue_of(entry.slot) == queue else elsewhere).append(entry)
        # Before the parents are acknowledged: the message of a parent must outlive those of its children.
        await self._publish(elsewhere)
        for queue, group in groups.items():
            taken = [accepted[place] for place in group.places]
            await self._topics[queue].after_commit(group.outcomes, taken, group.new)
        return accepted

    async def release(self, lease_ids: Sequence[int]) -> None:
        await self._state.release(lease_ids)
        for topic in self._topics.values():
            topic.release(lease_ids)

    async def abandon(self, worker: str) -> int:
        """Reclaim the leases of a dead worker. Each topic makes sure that none is granted in the meantime."""
        return sum([await topic.abandon(worker) for topic in list(self._topics.values())])


class _Commit(msgspec.Struct):
    """The outcomes of one call whose leases belong to one topic."""

    places: list[int] = []
    """Position of each outcome in the call."""
    outcomes: list[Outcome] = []
    new: list[Entry] = []
    """New requests for the same topic."""


class _PublishedDeadLetters:
    """The dead letters of the state. Replayed dead letters get messages."""

    def __init__(
        self, state: StateFrontier, publish_slots: Callable[[Iterable[str]], Awaitable[None]]
    ) -> None:
        self._letters = state.dead_letters
        self._publish_slots = publish_slots
        self.list = self._letters.list
        self.drop = self._letters.drop
        self.drop_superseded = self._letters.drop_superseded

    async def replay(self, ids: Sequence[int] | None = None) -> int:
        """Put dead letters back in the queue, and publish a message for each."""
        chosen = None if ids is None else set(ids)
        slots: list[str] = []
        last = 0
        while letters := await self.list(last, DEAD_LETTERS_PAGE):
            last = letters[-1].id
            slots += [letter.slot for letter in letters if chosen is None or letter.id in chosen]
        count = await self._letters.replay(ids)
        await self._publish_slots(slots)
        return count


def _combined(results: Sequence[LeaseResult]) -> LeaseResult:
    """Combine the results of several topics."""
    last = results[-1]
    finished = any(result.state is JobState.FINISHED for result in results)
    return msgspec.structs.replace(
        last,
        leases=[lease for result in results for lease in result.leases],
        state=JobState.FINISHED if finished else last.state,
        ask_again=min(result.ask_again for result in results),
        data_loss=any(result.data_loss for result in results),
        revision=max(result.revision for result in results),
    )
