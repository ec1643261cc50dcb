"""Seeds that other programs publish to the topics of a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count

import msgspec

from skitter.brokers.contract import Delivery
from skitter.brokers.topic import Topic
from skitter.frontier.contract import Frontier
from skitter.frontier.records import Entry, ExternalSeed, SeedBatch
from skitter.request import rejected_record


class TopicSeeds:
    """Implements :class:`~skitter.frontier.contract.SeedSource` for the messages of other programs in the topics.

    A message is finished when the state has its request. If the worker dies in between, the broker delivers the message
    again, and its request is already known.
    """

    def __init__(self, frontier: Frontier, topics: Mapping[str, Topic]) -> None:
        self._frontier = frontier
        self._topics = topics
        self._taken: dict[int, list[Delivery]] = {}
        self._tokens = count()

    async def take(self, worker: str, limit: int) -> SeedBatch | None:  # noqa: ARG002 - the broker knows the process
        deliveries: list[Delivery] = []
        seeds: list[ExternalSeed] = []
        for queue, topic in list(self._topics.items()):
            found = topic.take_foreign(limit - len(deliveries))
            deliveries += found
            name = f"the topic of queue {queue!r}"
            seeds += [ExternalSeed(name, bytes(delivery.body), 0) for delivery in found]
        if not deliveries:
            return None
        token = next(self._tokens)
        self._taken[token] = deliveries
        return SeedBatch(token, seeds)

    async def settle(
        self, token: int, entries: Sequence[Entry], rejected: Sequence[tuple[Entry, str]]
    ) -> bool:
        """Add the requests, finish the messages, and add dead letters for messages that cannot be read."""
        # These requests fail with their errors when they are leased. Repeated deliveries of a message add only one.
        dead_letters = [
            msgspec.structs.replace(entry, record=rejected_record(reason), dedup=True)
            for entry, reason in rejected
        ]
        await self._frontier.add([*entries, *dead_letters])
        for delivery in self._taken.pop(token):
            delivery.finish()
        return True
