"""The partitions of a job, and what this worker knows about their states."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
import xxhash

from skitter.frontier.cluster.partition import Partition
from skitter.frontier.contract import Frontier
from skitter.frontier.records import FetchReport, JobState, Lease, LeaseResult
from skitter.queues import QueueQuotas, queue_of, quota_of, without_queue


class ArrivedLeases(NamedTuple):
    """The leases of one partition that have arrived for one worker."""

    leases: list[Lease]
    late: list[int]
    """Ids of leases whose ``start_within`` has passed. The caller releases them."""
    data_loss: bool
    """See :attr:`~skitter.frontier.records.LeaseResult.data_loss`."""


class PartitionClient:
    """One partition, and what this worker knows about its state. ``clock``: the clock of due times."""

    def __init__(self, number: int, partition: Partition, clock: Callable[[], float]) -> None:
        self.number = number
        self.partition = partition
        self._clock = clock
        self.due = float("-inf")
        """Time from which the partition may have requests to lease, by ``clock``."""
        self.state: JobState | None = None
        """The state in its last result: ``FINISHED`` if the partition was quiet (see :func:`~skitter.frontier.cluster.state.is_quiet`). ``None``
        if the state may have changed since."""
        self.reports: list[FetchReport] = []
        """Reports to send with the next request for leases."""
        self.request: asyncio.Task[Any] | None = None
        """The last request for leases."""
        self.revision = 0
        """Revision of the settings, in its last result."""
        self.gave_all = False
        """Whether its last result contained all requested leases."""
        self._results: list[tuple[str, float, LeaseResult]] = []

    @property
    def frontier(self) -> Frontier:
        """The requests of the partition."""
        return self.partition.frontier

    def touch(self) -> None:
        """Record that the partition may have new requests."""
        self.due = min(self.due, self._clock())
        self.state = None

    def is_free(self) -> bool:
        """Return whether no request for leases is in progress."""
        return self.request is None or self.request.done()

    async def ask(self, worker: str, count: int, quotas: QueueQuotas | None = None) -> None:
        """Ask for leases; :meth:`collect` returns them."""
        reports, self.reports = self.reports, []
        asked_at = asyncio.get_running_loop().time()
        self.due, self.state = float("inf"), None
        result = await self.frontier.lease(worker, count, reports, quotas)
        self._results.append((worker, asked_at, result))
        self.revision = result.revision
        self.gave_all = len(result.leases) == count > 0
        if self.due == float("inf"):  # not touched during the call
            self.state = result.state
            may_have_more = self.gave_all or not count or _used_up_a_quota(result.leases, quotas)
            self.due = self._clock() + (0.0 if may_have_more else result.ask_again)

    def collect(self, worker: str, since: float, limit: int) -> ArrivedLeases:
        """Return the leases that have arrived for a worker, at most ``limit``.

        ``since``: event loop time at which the current call began. ``start_within`` is counted from there.
        """
        leases: list[Lease] = []
        late: list[int] = []
        data_loss = False
        results, self._results = self._results, []
        for asker, asked_at, result in results:
            if asker != worker or len(leases) + len(result.leases) > max(limit, 0):
                self._results.append((asker, asked_at, result))
                continue
            data_loss |= result.data_loss
            for lease in result.leases:
                within = lease.start_within
                if within is not None and asked_at < since:
                    within -= since - asked_at
                if within is not None and within < 0:
                    late.append(lease.id)
                else:
                    leases.append(msgspec.structs.replace(lease, start_within=within))
        return ArrivedLeases(leases, late, data_loss)


def _used_up_a_quota(leases: list[Lease], quotas: QueueQuotas | None) -> bool:
    """Return whether the leases of a queue reached its quota, so that the queue may have more."""
    if quotas is None:
        return False
    counts = Counter(queue_of(lease.slot) for lease in leases)
    return any(count >= quota_of(quotas, queue, count + 1) for queue, count in counts.items())


class PartitionMap:
    """All partitions of a job, by number. It is filled when the job is opened.

    The first partition also holds the data of the job as a whole.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.clients: list[PartitionClient] = []

    def fill(self, partitions: Sequence[Partition]) -> None:
        """Set the partitions."""
        self.clients = [
            PartitionClient(number, partition, self._clock) for number, partition in enumerate(partitions)
        ]

    def __len__(self) -> int:
        return len(self.clients)

    @property
    def first(self) -> Partition:
        """The first partition."""
        return self.clients[0].partition

    def global_id(self, number: int, local_id: int) -> int:
        """Return the id of a lease or dead letter in the whole job."""
        return local_id * len(self.clients) + number

    def local_ids(self, ids: Iterable[int]) -> dict[PartitionClient, list[int]]:
        """Return the ids of leases or dead letters within their partitions."""
        found: dict[PartitionClient, list[int]] = defaultdict(list)
        for global_id in ids:
            local_id, number = divmod(global_id, len(self.clients))
            found[self.clients[number]].append(local_id)
        return found

    def of_slot(self, slot: str) -> PartitionClient:
        """Return the partition of a slot. All queues of a host share one partition, which knows whether it is banned."""
        return self.of_key(without_queue(slot))

    def of_key(self, key: str) -> PartitionClient:
        """Return the partition of a note."""
        # Notes are stored by the result: changing this function changes the format.
        digest = xxhash.xxh3_64_intdigest(key.encode("utf-8", "surrogatepass"))
        return self.clients[digest % len(self.clients)]

    def recrawls_for(self, client: PartitionClient) -> int:
        """Return the number of recrawls that a partition has to follow.

        It is the highest number that any partition has returned: a partition follows before it takes requests of a new
        pass. The first partition follows no other.
        """
        if client.number == 0:
            return 0
        return max(other.partition.job.recrawls for other in self.clients)

    def touch(self) -> None:
        """Record that any partition may have new requests."""
        for client in self.clients:
            client.touch()
