"""A frontier on a Valkey or Redis server, for workers on any number of machines.

The scripts in ``scripts/redis`` make all decisions on the server, by its clock.
``docs/design/redis-frontier.md`` explains the protocol.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from skitter.errors import FrontierError
from skitter.frontier.options import FrontierContext
from skitter.frontier.records import (
    AddResult,
    Entry,
    FetchReport,
    FrontierStatus,
    JobInfo,
    JobState,
    Lease,
    LeaseResult,
    Outcome,
    SeedClaim,
    SeedProgress,
    SlotDecision,
    SlotLeases,
)
from skitter.frontier.redis.address import parse_address
from skitter.frontier.redis.config import JobConfig
from skitter.frontier.redis.control import RedisControl
from skitter.frontier.redis.dead_letters import RedisDeadLetters, RedisNotes
from skitter.frontier.redis.job import UNPARTITIONED, PartitionSpec, RedisJob, is_job_key, jobs_of
from skitter.frontier.redis.liveness import RedisLiveness
from skitter.frontier.redis.records import (
    CLEANUP_BATCH,
    ENTRIES_BATCH,
    FINGERPRINTS_BATCH,
    LEASES_BATCH,
    SLOTS_BATCH,
    encode,
    in_batches,
    packed_ids,
    read_lease,
    read_status,
    text,
    to_bytes,
    to_words,
    write_outcome,
    write_report,
)
from skitter.frontier.redis.reports import RedisReports
from skitter.frontier.redis.seed_keys import RedisSeedKeys
from skitter.frontier.redis.server import RedisServer
from skitter.frontier.scheduling import wait_for
from skitter.politeness import Politeness
from skitter.queues import QueueQuotas, queue_of, quota_of

log = logging.getLogger("skitter.frontier")

_DECISIONS = {b"g": SlotDecision.LEASED, b"l": SlotDecision.LATER, b"x": SlotDecision.EMPTY}


class RedisFrontier:
    """A frontier on one Valkey or Redis server. Implements :class:`~skitter.frontier.contract.Frontier`.

    ``server``: a URL, or the server itself. Raises :class:`~skitter.errors.FrontierError` for an invalid URL.
    """

    shared: ClassVar[bool] = True

    def __init__(
        self,
        server: str | RedisServer,
        context: FrontierContext,
        *,
        clock: Callable[[], float] | None = None,
    ) -> None:
        config = JobConfig(context.politeness, context.options)
        self._server = server if isinstance(server, RedisServer) else RedisServer(parse_address(server))
        self.job = RedisJob(self._server, context.job, config, clock, context.fingerprint_seed)
        self.control = RedisControl(self.job)
        self.dead_letters = RedisDeadLetters(self.job)
        self.notes = RedisNotes(self.job)
        self.reports = RedisReports(self.job)
        self.seed_keys = RedisSeedKeys(self.job)
        self.topic_seeds = None
        self.catalog = RedisCatalog(self._server)
        self.liveness = RedisLiveness(self.job)
        self.partitions = None
        self._context = context
        self._seed_positions: dict[int, int] = {}
        self._restarts = 0
        self._revision = 0

    # --- opening and closing ---------------------------------------------------------------------------

    async def open(self) -> JobInfo:
        """Create the job on the server, or join it. Log a warning if this changes the limits of running workers.

        Raises :class:`~skitter.errors.FrontierError` if the server does not respond or is unsuitable, or if the keys
        of the job hold something else or another format.
        """
        info = await self.open_partition(UNPARTITIONED)
        await self.warn_about_changed_limits()
        return info

    async def warn_about_changed_limits(self) -> None:
        """Log a warning if opening the job has changed the limits of running workers."""
        replaced = self.job.replaced
        if replaced is None or not (running := len(await self.reports.workers())):
            return
        before, now = (msgspec.structs.asdict(config.policy) for config in (replaced, self.job.config.stored))
        changes = [f"{name} {before[name]} -> {now[name]}" for name in now if now[name] != before[name]]
        log.warning(
            "job %s: the settings of this machine have changed the limits of hosts for all workers (%s), and %d are running;"
            " start every machine with the same settings",
            self.job.title, ", ".join(changes) or "rules or queues", running,
        )  # fmt: skip

    async def open_partition(self, partition: PartitionSpec) -> JobInfo:
        """Open one partition of a job, like :meth:`open`."""
        for key in filter(is_job_key, self.job.options.seed_keys):
            raise FrontierError(
                f"seed key {key!r} is a key of the frontier itself",
                remedy="choose a seed key that holds only seeds",
                field="seed_keys",
            )
        patient = self._context.joining
        await self._server.connect(patient=patient)
        try:
            if self._context.attach:
                info = await self.job.attach(partition)
            else:
                info = await self.job.join(partition, patient=patient)
        except BaseException:
            await self._server.close()
            raise
        self._restarts = self._server.restarts
        return info

    def limit_outages(self, seconds: float) -> None:
        self._server.limit_outages(seconds)

    async def close(self) -> None:
        """Disconnect. Leases stay in force."""
        await self._server.close()

    async def erase(self) -> None:
        """Delete the job from the server, before it is opened. Its workers stop."""
        await self._server.connect(patient=False)
        try:
            await self.job.erase()
        finally:
            await self._server.close()

    @property
    def politeness(self) -> Politeness:
        return self.job.config.stored.politeness()

    # --- adding ------------------------------------------------------------------------------------------

    async def unknown(self, fingerprints: Sequence[bytes]) -> list[bool]:
        mask: list[bool] = []
        for start in range(0, len(fingerprints), FINGERPRINTS_BATCH):
            batch = fingerprints[start : start + FINGERPRINTS_BATCH]
            mask += _mask(await self.job.run("unknown", b"".join(batch)))
        return mask

    async def add(self, entries: Sequence[Entry], seeds: SeedProgress | None = None) -> AddResult:
        result, _, _ = await self._add(entries, seeds)
        return result

    async def add_following(self, entries: Sequence[Entry], recrawls: int) -> AddResult:
        """Add to a partition of a job, after the recrawls that it has to follow."""
        result, _, _ = await self._add(entries, None, recrawls=recrawls)
        return result

    async def add_reported(
        self, entries: Sequence[Entry], seeds: SeedProgress | None = None
    ) -> tuple[AddResult, list[bool]]:
        """Add, and return also which entries were accepted."""
        result, _, report = await self._add(entries, seeds, wants_report=True)
        return result, report or [False] * len(entries)

    async def add_seeds(
        self, entries: Sequence[Entry], seeds: SeedProgress, outbox: Sequence[msgspec.Raw]
    ) -> AddResult | None:
        """Add seeds, and keep those of other partitions in the outbox. Return ``None`` if the claim was lost."""
        result, is_accepted, _ = await self._add(entries, seeds, outbox)
        return result if is_accepted else None

    async def _add(
        self,
        entries: Sequence[Entry],
        seeds: SeedProgress | None,
        outbox: Sequence[msgspec.Raw] = (),
        *,
        wants_report: bool = False,
        recrawls: int = 0,
    ) -> tuple[AddResult, bool, list[bool]]:
        """Return the result, whether the seeds were accepted, and the report if it is wanted."""
        total, is_accepted = AddResult(0, 0), True
        report: list[bool] = []
        # Seeds and their progress are one step.
        size = ENTRIES_BATCH if seeds is None else max(1, len(entries))
        for start in range(0, len(entries) if seeds is None else size, size):
            writer = self.job.entry_writer()
            written = [writer.write(entry) for entry in entries[start : start + size]]
            progress = None
            if seeds is not None:
                before = self._seed_positions.get(seeds.token)
                progress = (str(seeds.token), before, seeds.position, seeds.done, outbox, seeds.refused)
            packed = encode((writer.names, written, progress))
            reply = await self.job.run_once("add", packed, "1" if wants_report else "", recrawls)
            if seeds is not None:
                self._seed_positions[seeds.token] = seeds.position
            counts, _, mask = reply.partition(b"|")
            added, known, banned, accepted, over_budget = map(int, counts.split())
            total += AddResult(added, known, banned, over_budget)
            is_accepted = accepted == 1
            report += _mask(mask)
        return total, is_accepted, report

    async def claim_seeds(self, worker: str) -> SeedClaim | None:
        token = secrets.randbits(62)
        claim = await self.job.run("claim_seeds", worker, token)
        if claim is None:
            return None
        position = int(claim[0])
        self.job.record_recrawls(claim[1])
        self._seed_positions = {token: position}
        return SeedClaim(token, position)

    # --- leases ------------------------------------------------------------------------------------------

    async def lease(
        self,
        worker: str,
        limit: int,
        reports: Sequence[FetchReport] = (),
        quotas: QueueQuotas | None = None,
    ) -> LeaseResult:
        return await self._lease(worker, limit, reports, quotas, None)

    async def lease_slots(
        self,
        worker: str,
        slots: Sequence[str],
        limit: int,
        reports: Sequence[FetchReport] = (),
        quotas: QueueQuotas | None = None,
    ) -> SlotLeases:
        """Lease the first waiting request of each slot that is ready."""
        offer = _SlotOffer(slots)
        result = await self._lease(worker, limit, reports, quotas, offer)
        return SlotLeases(result, offer.decisions, offer.more_ready)

    async def _lease(
        self,
        worker: str,
        limit: int,
        reports: Sequence[FetchReport],
        quotas: QueueQuotas | None,
        offer: _SlotOffer | None,
    ) -> LeaseResult:
        leases: list[Lease] = []
        quotas_left = (
            None if quotas is None else {queue: min(quota, limit) for queue, quota in quotas.items()}
        )
        while True:
            count = min(limit - len(leases), LEASES_BATCH)
            reply = await self._ask_for_leases(worker, count, reports, quotas_left, offer)
            state, reason, now, ready, delayed, late, has_more, revision, found, capacity, recrawls = reply
            self.job.record_recrawls(recrawls)
            batch = [read_lease(data) for data in found]
            leases += batch
            reports = ()
            if quotas_left is not None:
                for lease in batch:
                    queue = queue_of(lease.slot)
                    quotas_left[queue] = quota_of(quotas_left, queue, limit) - 1
            if len(leases) >= limit or not (has_more or len(found) == count):
                break
        if int(revision) != self._revision:
            self._revision = int(revision)
            await self.job.reload()
        if leases and self.job.options.changes is not None:
            leases = await self._recall(leases)
        ask_again = wait_for(
            float(ready) if ready else None,
            min((float(time) for time in (delayed, late) if time), default=float("inf")),
            float(now),
            leases,
        )
        # A server that was restarted or replaced since the last call may have lost its last second.
        data_loss, self._restarts = self._restarts != self._server.restarts, self._server.restarts
        return LeaseResult(
            leases, JobState(state.decode()), ask_again, reason.decode(), data_loss,
            revision=int(revision), capacity=None if capacity < 0 else capacity,
        )  # fmt: skip

    async def _ask_for_leases(
        self,
        worker: str,
        count: int,
        reports: Sequence[FetchReport],
        quotas: QueueQuotas | None,
        offer: _SlotOffer | None,
    ) -> Any:
        # The client draws the ids: a server that has lost its last second must not grant one of them again.
        first = secrets.randbelow(self.job.lease_id_heads)
        prefix = bytes((first, *secrets.token_bytes(5)))
        packed = encode([write_report(report) for report in reports])
        served = b"" if quotas is None else encode(quotas)
        arguments = (worker, count, prefix, b"0", packed, served)
        if offer is None:
            return await self.job.run("lease", *arguments, repeated=7)
        reply = await self.job.run("lease", *arguments, offer.packed(), repeated=7)
        offer.record(reply.pop())
        return reply

    async def _recall(self, leases: Sequence[Lease]) -> list[Lease]:
        """Return leases with the memory of their pages. Only the holder of a lease changes it."""
        recalled: list[Lease] = []
        for start in range(0, len(leases), LEASES_BATCH):
            batch = leases[start : start + LEASES_BATCH]
            found = await self.job.run("recall", b"".join(lease.fingerprint for lease in batch))
            recalled += [
                msgspec.structs.replace(lease, memory=memory) if memory else lease
                for lease, memory in zip(batch, found, strict=True)
            ]
        return recalled

    async def overdue_slots(self, seconds: float) -> list[tuple[str, int]]:
        """List slots that have been ready for some time, with their numbers of waiting requests."""
        found = await self.job.run("overdue_slots", seconds, SLOTS_BATCH)
        return [(to_words(slot), int(count)) for slot, count in found]

    async def renew(self, worker: str, lease_ids: Sequence[int]) -> list[int]:
        lost: list[int] = []
        for ids in packed_ids(lease_ids):
            lost += [int.from_bytes(lease_id, "big") for lease_id in await self.job.run("renew", worker, ids)]
        await self.job.run("clean_up", CLEANUP_BATCH)
        return lost

    async def release(self, lease_ids: Sequence[int]) -> None:
        if lease_ids:
            for ids in packed_ids(lease_ids):
                await self.job.run("release", ids)

    async def abandon(self, worker: str) -> int:
        return int(await self.job.run("abandon", worker))

    # --- committing --------------------------------------------------------------------------------------

    async def commit(self, outcomes: Sequence[Outcome]) -> list[bool]:
        accepted, _ = await self._commit(outcomes)
        return accepted

    async def commit_reported(self, outcomes: Sequence[Outcome]) -> tuple[list[bool], list[list[bool]]]:
        """Commit, and return also which entries of each outcome were accepted."""
        accepted, report = await self._commit(outcomes, report="1")
        mask = [flag for part in report for flag in _mask(part)]
        return accepted, _by_outcome(outcomes, accepted, mask)

    async def commit_with_outbox(
        self, outcomes: Sequence[Outcome], outbox: Mapping[int, Sequence[msgspec.Raw]]
    ) -> list[bool]:
        """Commit, and keep the new requests of other partitions, by lease id, in the outbox."""
        accepted, report = await self._commit(outcomes, outbox, report="recrawls")
        for recrawls in report:
            self.job.record_recrawls(recrawls)
        return accepted

    async def _commit(
        self,
        outcomes: Sequence[Outcome],
        outbox: Mapping[int, Sequence[msgspec.Raw]] | None = None,
        *,
        report: str = "",
    ) -> tuple[list[bool], list[bytes]]:
        """Return which outcomes were accepted, and the reports that were asked for, one of each script."""
        accepted: list[bool] = []
        reports: list[bytes] = []
        outbox = outbox or {}
        for batch in in_batches(outcomes):
            writer = self.job.entry_writer()
            written = [write_outcome(outcome, writer, outbox.get(outcome.lease_id, ())) for outcome in batch]
            grows = bool(outbox) or any(o.visit is not None and o.visit.memory is not None for o in batch)
            packed = encode((writer.names, written, grows))
            reply = await self.job.run_once("commit", packed, *((report,) if report else ()))
            taken, _, part = reply.partition(b"|")
            accepted += _mask(taken)
            reports.append(part)
        return accepted, reports

    # --- reading -----------------------------------------------------------------------------

    async def status(self) -> FrontierStatus:
        while True:
            reply = await self.job.run("status")
            if not reply[11]:
                break
        return read_status(reply)


class RedisCatalog:
    """Implements :class:`~skitter.frontier.contract.Catalog`."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server

    async def jobs(self) -> list[str]:
        await self._server.connect(patient=False)
        try:
            return await jobs_of(self._server)
        finally:
            await self._server.close()


class _SlotOffer:
    """The slots of one call of :meth:`RedisFrontier.lease_slots`, and the decisions on them so far."""

    def __init__(self, slots: Sequence[str]) -> None:
        self._slots = slots
        self._open: list[int] = []
        self.decisions: list[SlotDecision | float] = [SlotDecision.LATER] * len(slots)
        self.more_ready = False

    def packed(self) -> bytes:
        """Encode the slots that have not yielded a lease yet, for the script."""
        self._open = [
            index for index, decision in enumerate(self.decisions) if decision is not SlotDecision.LEASED
        ]
        return encode([text(to_bytes(self._slots[index])) for index in self._open])

    def record(self, reply: tuple[int, Sequence[bytes]]) -> None:
        """Record the decisions in the last part of the script's reply."""
        more_ready, decisions = reply
        self.more_ready = bool(more_ready)
        for index, found in zip(self._open, decisions, strict=True):
            self.decisions[index] = _DECISIONS[found] if found in _DECISIONS else float(found)


def _mask(reply: bytes) -> list[bool]:
    return [flag == ord("1") for flag in reply]


def _by_outcome(
    outcomes: Sequence[Outcome], accepted: Sequence[bool], report: Sequence[bool]
) -> list[list[bool]]:
    """Split the report of a commit, which covers the entries of accepted outcomes, by outcome."""
    added = iter(report)
    return [
        [is_accepted and next(added) for _ in range(outcome.new_requests)]
        for outcome, is_accepted in zip(outcomes, accepted, strict=True)
    ]
