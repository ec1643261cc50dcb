"""A frontier in several partitions. Each partition is a frontier for some of the slots.

``docs/design/cluster-frontier.md`` explains the protocol.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol

import msgspec

from skitter.frontier.cluster.background import BackgroundTasks, gather_all
from skitter.frontier.cluster.control import ClusterControl
from skitter.frontier.cluster.dead_letters import ClusterDeadLetters, ClusterNotes
from skitter.frontier.cluster.forwarder import Forwarder
from skitter.frontier.cluster.leasing import ClusterLeasing
from skitter.frontier.cluster.partition import ForwardedRequest, Partition
from skitter.frontier.cluster.partitions import PartitionClient, PartitionMap
from skitter.frontier.cluster.reports import ClusterReports
from skitter.frontier.cluster.state import ClusterBudget, ClusterState
from skitter.frontier.contract import Catalog, Liveness
from skitter.frontier.options import SettingsChanges
from skitter.frontier.records import (
    AddResult,
    Entry,
    FetchReport,
    FrontierStatus,
    JobInfo,
    LeaseResult,
    Outcome,
    SeedBatch,
    SeedClaim,
    SeedProgress,
)
from skitter.frontier.scheduling import steady_clock
from skitter.politeness import Politeness
from skitter.queues import QueueQuotas

MAX_UNDELIVERED = 20_000
"""Maximum number of requests for unavailable partitions. Above it, this worker stops leasing."""
POLL_INTERVAL = 0.05


class PartitionSource(Protocol):
    """The source of the partitions of a job."""

    async def partitions(self) -> Sequence[Partition]:
        """Return all partitions of the job, not yet joined."""

    async def close(self) -> None:
        """Disconnect."""

    async def erase(self) -> None:
        """Delete the job, and disconnect."""


class ClusterFrontier:
    """A frontier over partitions, numbered from 0. The first partition also holds the data of the job as a whole.

    Implements :class:`~skitter.frontier.contract.Frontier`.
    ``attach``: join an existing job with its own options; never create one.
    """

    shared: ClassVar[bool] = True

    def __init__(
        self,
        source: PartitionSource,
        catalog: Catalog,
        *,
        clock: Callable[[], float] | None = None,
        attach: bool = False,
    ) -> None:
        self._source = source
        self._attach = attach
        clock = clock or steady_clock()
        self._partitions = PartitionMap(clock)
        self._tasks = BackgroundTasks()
        self._leasing = ClusterLeasing(self._partitions, self._tasks, clock)
        self.forwarder = Forwarder(self._partitions, self._tasks)
        self._state = ClusterState(self._partitions, self._tasks, self.forwarder)
        self._queues: set[str] | None = None
        """The queues of the last request for leases."""
        self.control = ClusterControl(self._partitions, self._state)
        self.dead_letters = ClusterDeadLetters(self._partitions)
        self.notes = ClusterNotes(self._partitions, self._tasks)
        self.reports = ClusterReports(self._partitions, self._tasks)
        self.partitions = ClusterPartitions(self._partitions, self._tasks)
        self.seed_keys = ClusterSeedKeys(self._partitions, self.forwarder)
        self.topic_seeds = None
        self.catalog = catalog

    # --- opening and closing ---------------------------------------------------------------------------

    async def open(self) -> JobInfo:
        try:
            self._partitions.fill(await self._source.partitions())
            return await self._join()
        except BaseException:
            await self.close()
            raise

    async def _join(self) -> JobInfo:
        first = self._partitions.first
        info = await first.join(None)
        others = [client.partition for client in self._partitions.clients[1:]]
        await gather_all(partition.join(first) for partition in others)
        changes = await first.frontier.control.settings_changes()
        if not self._attach:
            # A worker may have died before it had changed all partitions.
            await gather_all(_align(partition, first.job.recrawls, changes) for partition in others)
            if not first.job.is_complete:
                await first.complete()
        self._state.budget = ClusterBudget(changes.of_options(first.job.options))
        return info

    @property
    def politeness(self) -> Politeness | None:
        return self._partitions.first.frontier.politeness if len(self._partitions) else None

    @property
    def liveness(self) -> Liveness | None:
        """The liveness of the first partition."""
        return self._partitions.first.frontier.liveness

    def limit_outages(self, seconds: float) -> None:
        for client in self._partitions.clients:
            client.frontier.limit_outages(seconds)

    async def close(self) -> None:
        """Disconnect. Leases stay in force. Other workers deliver the remaining requests in the outboxes."""
        await self._tasks.close()
        for client in self._partitions.clients:
            await client.frontier.close()
        await self._source.close()

    async def erase(self) -> None:
        await self._source.erase()

    # --- adding ------------------------------------------------------------------------------------------

    async def unknown(self, fingerprints: Sequence[bytes]) -> list[bool]:
        """Return for each fingerprint whether it is new. All partitions are queried, because a fingerprint does not contain its slot."""
        masks = await gather_all(client.frontier.unknown(fingerprints) for client in self._partitions.clients)
        return [all(flags) for flags in zip(*masks, strict=True)]

    async def add(self, entries: Sequence[Entry], seeds: SeedProgress | None = None) -> AddResult:
        self._tasks.check()
        if seeds is not None:
            return await self._add_seeds(entries, seeds)
        groups: dict[PartitionClient, list[Entry]] = defaultdict(list)
        for entry in entries:
            groups[self._partitions.of_slot(entry.slot)].append(entry)
        results = await gather_all(
            client.partition.add(group, self._partitions.recrawls_for(client))
            for client, group in groups.items()
        )
        for client in groups:
            client.touch()
        return sum(results, AddResult(0, 0))

    async def _add_seeds(self, entries: Sequence[Entry], seeds: SeedProgress) -> AddResult:
        """Add seeds and their progress to the first partition in one step. It forwards the seeds of other partitions."""
        self.forwarder.start()
        own, forwarded = divide(self._partitions, entries, 0, are_seeds=True)
        first = self._partitions.clients[0]
        result = await first.partition.add_seeds(own, seeds, forwarded)
        first.touch()
        if result is None:
            return AddResult(0, len(entries))
        others = await self.forwarder.send([(0, request) for request in forwarded])
        while self.forwarder.undelivered > MAX_UNDELIVERED:
            self._tasks.check()
            await asyncio.sleep(POLL_INTERVAL)
        return result + others

    async def claim_seeds(self, worker: str) -> SeedClaim | None:
        return await self._partitions.first.frontier.claim_seeds(worker)

    # --- leases ------------------------------------------------------------------------------------------

    async def lease(
        self,
        worker: str,
        limit: int,
        reports: Sequence[FetchReport] = (),
        quotas: QueueQuotas | None = None,
    ) -> LeaseResult:
        self._tasks.check()
        self.forwarder.start()
        for report in reports:
            local_id, number = divmod(report.lease_id, len(self._partitions))
            self._partitions.clients[number].reports.append(
                msgspec.structs.replace(report, lease_id=local_id)
            )
        reason = ""
        if self._state.budget.has_limits:
            parts = await self._state.read()
            await self._state.load_settings(sum(part.revision for part in parts))
            reason = self._state.budget.reached(parts)
            limit = 0 if reason else self._state.budget.remaining(parts, limit)
        if self.forwarder.undelivered > MAX_UNDELIVERED:
            limit = 0
        queues = None if quotas is None else {queue for queue, quota in quotas.items() if quota > 0}
        if queues != self._queues or (reports and quotas is not None):
            # The due times were computed for other queues, or while some queues had reached their limits.
            self._partitions.touch()
            self._queues = queues
        taken = await self._leasing.take(worker, limit, quotas)
        state = self._leasing.state()
        if state is None or reason:
            state = await self._state.job_state(reason)
        await self._state.load_settings(sum(client.revision for client in self._partitions.clients))
        budget = self._state.budget
        return LeaseResult(
            leases=taken.leases,
            state=state,
            ask_again=self._leasing.ask_again(),
            reason=reason,
            data_loss=taken.data_loss,
            capacity=budget.capacity(await self._state.read()) if budget.bounds_queue else None,
            revision=self._state.revision,
        )

    async def renew(self, worker: str, lease_ids: Sequence[int]) -> list[int]:
        """Extend leases. Leases of an unavailable partition count as held."""
        self._tasks.check()
        held = self._partitions.local_ids(lease_ids)
        lost: list[int] = []

        async def renew(client: PartitionClient) -> None:
            local_ids = await client.frontier.renew(worker, held.get(client, []))
            lost.extend(self._partitions.global_id(client.number, local_id) for local_id in local_ids)

        await self._tasks.run(
            (client.partition, renew(client))
            for client in self._partitions.clients
            if not client.partition.is_unavailable
        )
        return sorted(lost, key=list(lease_ids).index)

    async def release(self, lease_ids: Sequence[int]) -> None:
        async def release(client: PartitionClient, local_ids: list[int]) -> None:
            await client.frontier.release(local_ids)
            client.touch()

        await self._tasks.run(
            (client.partition, release(client, local_ids))
            for client, local_ids in self._partitions.local_ids(lease_ids).items()
        )

    async def abandon(self, worker: str) -> int:
        first, *others = self._partitions.clients
        counts = await gather_all(client.frontier.abandon(worker) for client in others)
        # The first partition comes last: it also removes the worker, and until then another worker can take over.
        counts.append(await first.frontier.abandon(worker))
        self._partitions.touch()
        return sum(counts)

    # --- committing --------------------------------------------------------------------------------------

    async def commit(self, outcomes: Sequence[Outcome]) -> list[bool]:
        """Close leases, each atomically with its effects.

        New requests for other partitions are stored there, or in an outbox, when this returns.
        """
        self._tasks.check()
        self.forwarder.start()
        groups: dict[int, list[int]] = defaultdict(list)
        for index, outcome in enumerate(outcomes):
            groups[self.partitions.of_lease(outcome.lease_id)].append(index)
        accepted = [False] * len(outcomes)

        async def commit(client: PartitionClient, indexes: list[int]) -> None:
            flags = await self._commit(client, [outcomes[index] for index in indexes])
            for index, is_accepted in zip(indexes, flags, strict=True):
                accepted[index] = is_accepted

        await gather_all(
            commit(self._partitions.clients[number], indexes) for number, indexes in groups.items()
        )
        return accepted

    async def _commit(self, client: PartitionClient, outcomes: Sequence[Outcome]) -> list[bool]:
        local_outcomes: list[Outcome] = []
        forwarded: dict[int, list[ForwardedRequest]] = {}
        for outcome in outcomes:
            local_id = outcome.lease_id // len(self._partitions)
            own, others = divide(self._partitions, outcome.all_entries(), client.number)
            local_outcomes.append(
                msgspec.structs.replace(outcome, lease_id=local_id, entries=own, batches=[])
            )
            if others:
                forwarded[local_id] = others
        accepted = await client.partition.commit(local_outcomes, forwarded)
        client.touch()
        found = [
            (client.number, request)
            for outcome, is_accepted in zip(local_outcomes, accepted, strict=True)
            if is_accepted
            for request in forwarded.get(outcome.lease_id, ())
        ]
        if found:
            await self.forwarder.send(found)
        return accepted

    # --- reading -----------------------------------------------------------------------------------------

    async def status(self) -> FrontierStatus:
        """Read all counts: of each partition at one moment, of all partitions at almost the same moment."""
        return await self._state.status()


class ClusterPartitions:
    """Implements :class:`~skitter.frontier.contract.Partitions`."""

    def __init__(self, partitions: PartitionMap, tasks: BackgroundTasks) -> None:
        self._partitions = partitions
        self._tasks = tasks

    def of_lease(self, lease_id: int) -> int:
        return lease_id % len(self._partitions)

    async def unknown(self, fingerprints: Sequence[bytes], slots: Sequence[str]) -> list[bool]:
        """Return for each fingerprint whether it is new. Fingerprints of an unavailable partition count as new."""
        groups: dict[PartitionClient, list[int]] = defaultdict(list)
        for index, slot in enumerate(slots):
            groups[self._partitions.of_slot(slot)].append(index)
        mask = [True] * len(fingerprints)

        async def ask(client: PartitionClient, indexes: list[int]) -> None:
            recrawls = self._partitions.recrawls_for(client)
            if client.partition.job.recrawls < recrawls:
                await client.partition.follow_recrawl(recrawls)  # otherwise it knows what the last pass knew
            flags = await client.frontier.unknown([fingerprints[index] for index in indexes])
            for index, is_new in zip(indexes, flags, strict=True):
                mask[index] = is_new

        await self._tasks.run(
            (client.partition, ask(client, indexes))
            for client, indexes in groups.items()
            if not client.partition.is_unavailable
        )
        return list(mask)


class ClusterSeedKeys:
    """Implements :class:`~skitter.frontier.contract.SeedSource`. The keys are on the node of the first partition."""

    def __init__(self, partitions: PartitionMap, forwarder: Forwarder) -> None:
        self._partitions = partitions
        self._forwarder = forwarder

    async def take(self, worker: str, limit: int) -> SeedBatch | None:
        seed_keys = self._partitions.first.frontier.seed_keys
        return None if seed_keys is None else await seed_keys.take(worker, limit)

    async def settle(
        self, token: int, entries: Sequence[Entry], rejected: Sequence[tuple[Entry, str]]
    ) -> bool:
        own, forwarded = divide(self._partitions, entries, 0, are_seeds=True)
        is_settled = await self._partitions.first.settle_seeds(token, own, rejected, forwarded)
        self._partitions.touch()
        if is_settled:
            await self._forwarder.send([(0, request) for request in forwarded])
        return is_settled


def divide(
    partitions: PartitionMap, entries: Sequence[Entry], number: int, *, are_seeds: bool = False
) -> tuple[list[Entry], list[ForwardedRequest]]:
    """Divide entries that were found in one partition into its own entries and those of other partitions."""
    own: list[Entry] = []
    forwarded: list[ForwardedRequest] = []
    prefix = b""
    for entry in entries:
        target = partitions.of_slot(entry.slot).number
        if target == number:
            own.append(entry)
        else:
            prefix = prefix or secrets.token_bytes(10)
            request_id = prefix + len(forwarded).to_bytes(4, "big")
            forwarded.append(ForwardedRequest(request_id, target, entry, are_seeds))
    return own, forwarded


async def _align(partition: Partition, recrawls: int, changes: SettingsChanges) -> None:
    """Update a partition to the recrawl and the settings of the first partition."""
    await partition.follow_recrawl(recrawls)
    if await partition.frontier.control.settings_changes() != changes:
        await partition.frontier.control.change_settings(changes, reset=True)
