"""The embedded frontier: all decisions in the memory of one owner process, all changes in one SQLite file.

Without a file, the frontier stays in memory. The design is explained in ``docs/design/embedded-frontier.md``. The
statements that change the file are in ``scripts/transitions.sql``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

import msgspec

from skitter.frontier.embedded.backlog import RequestSource
from skitter.frontier.embedded.control import EmbeddedControl
from skitter.frontier.embedded.dead_letters import EmbeddedDeadLetters, EmbeddedNotes
from skitter.frontier.embedded.job import EmbeddedJob
from skitter.frontier.embedded.journal import Journal, MemoryJournal, SqliteJournal
from skitter.frontier.embedded.leases import HeldLease
from skitter.frontier.embedded.reports import EmbeddedReports
from skitter.frontier.embedded.requests import RequestTable, SlotUsage
from skitter.frontier.embedded.scheduler import NamedSlots, Slot, SlotScheduler
from skitter.frontier.embedded.tables import file_of
from skitter.frontier.options import (
    FrontierContext,
    FrontierSettings,
    SettingsChanges,
    SlotBudgets,
    queue_capacity,
)
from skitter.frontier.records import (
    BUSIEST_SLOTS,
    AddResult,
    Entry,
    FetchReport,
    FrontierStatus,
    JobInfo,
    Lease,
    LeaseResult,
    Outcome,
    SeedClaim,
    SeedProgress,
    SlotDecision,
    SlotLeases,
)
from skitter.frontier.scheduling import steady_clock, time_left, wait_for
from skitter.frontier.stats import OutcomeOrigin, StatsDimension, StatsKey, StatsTable
from skitter.politeness import Politeness
from skitter.queues import QueueQuotas
from skitter.request import FINGERPRINT_VERSION


def _sums_of(parts: Sequence[Mapping[str, int]]) -> Mapping[str, int]:
    """Return the sum of each counter of one or more pages.

    A page has about 18 counters, and most pages have the same ones. So each name is looked up once for many pages.
    """
    if len(parts) == 1:
        return parts[0]
    by_names: defaultdict[tuple[str, ...], list[Iterable[int]]] = defaultdict(list)
    for counters in parts:
        by_names[tuple(counters)].append(counters.values())
    sums: defaultdict[str, int] = defaultdict(int)
    for names, amounts in by_names.items():
        for name, amount in zip(names, map(sum, zip(*amounts, strict=True)), strict=True):
            sums[name] += amount
    return sums


class _BatchCounts:
    """Counts of the outcomes of one commit. Outcomes of one origin are added up first."""

    def __init__(self, reports: EmbeddedReports) -> None:
        self._reports = reports
        self._outcomes: defaultdict[OutcomeOrigin, list[Outcome]] = defaultdict(list)
        self.counters: defaultdict[str, int] = defaultdict(int)
        """Sum of the counters."""
        self.changed: set[StatsKey] = set()
        """Keys of the statistics that changed."""

    def add(self, held: HeldLease, outcome: Outcome) -> None:
        """Add an outcome. :meth:`finish` counts it."""
        self._outcomes[held.worker, held.slot.key, outcome.group].append(outcome)

    def finish(self) -> None:
        """Count the outcomes that were added."""
        for origin, outcomes in self._outcomes.items():
            counters = _sums_of([outcome.counters for outcome in outcomes])
            for name, amount in counters.items():
                self.counters[name] += amount
            self.changed.update(self._reports.count(origin, outcomes, counters))
        self._outcomes.clear()


class EmbeddedFrontier:
    """A frontier that this process owns. Implements :class:`~skitter.frontier.contract.Frontier`.

    ``path``: the file of the job; ``None`` (default): the job stays in memory and ends with the object. ``clock``
    returns Unix time in seconds. ``job``: the name of the job; a file belongs to one job. Empty: the name is not
    checked.
    """

    shared = False
    politeness = seed_keys = topic_seeds = liveness = partitions = catalog = None

    def __init__(
        self,
        politeness: Politeness | None = None,
        options: FrontierSettings | None = None,
        *,
        path: str | Path | None = None,
        clock: Callable[[], float] | None = None,
        job: str = "",
    ) -> None:
        politeness = politeness if politeness is not None else Politeness()
        options = options if options is not None else FrontierSettings()
        self._clock = clock if clock is not None else steady_clock()
        file = None if path is None else SqliteJournal(Path(path), options.durability, job)
        self._journal: Journal = MemoryJournal() if file is None else file
        self._job = EmbeddedJob(self._journal, options, self._clock, job)
        budgets = SlotBudgets(options)
        stats = StatsTable(options.stats_max_keys, keep_hosts=budgets.limits_use)
        self._usage = SlotUsage(budgets, stats)
        self._slots = SlotScheduler(politeness.limits_of, self._usage.pages_left)
        self._requests = RequestTable(self._journal, file, self._job, self._slots, self._usage)
        self._leases = self._requests.leases
        self._is_careful = False
        """Whether each lease is written before it is returned. This is the case after an owner has crashed, because a
        page may have caused the crash."""
        self._has_leased = False
        self.reports = EmbeddedReports(
            self._journal, self._clock, stats, self._slots, self._requests, self._job.seeds
        )
        self.control = EmbeddedControl(
            self._journal, self._job, self._slots, self._requests, self.reports, politeness
        )
        self.dead_letters = EmbeddedDeadLetters(self._journal, self._job, self._requests)
        self.notes = EmbeddedNotes(self._journal, self._clock)

    @classmethod
    def from_url(cls, url: str, context: FrontierContext) -> Self:
        """Build the frontier of ``memory:``, ``sqlite:`` (a file in the job's folder) or ``sqlite:PATH``."""
        path = file_of(url, context.directory) if url.partition(":")[0].lower() == "sqlite" else None
        return cls(context.politeness, context.options, path=path, job=context.job)

    # --- opening and closing ---------------------------------------------------------------------------

    async def open(self) -> JobInfo:
        """Open or create the job, and load its state.

        Raises :class:`~skitter.errors.FrontierError` if another process owns the file, if it belongs to another job, or
        if it cannot be used.
        """
        await self._journal.open()
        try:
            await self._restore()
            await self._journal.flush()
            await self.notes.clean_up()  # many short runs would otherwise never clean up
        except BaseException:
            await self._journal.close()
            raise
        return JobInfo(self._job.fingerprint_seed, FINGERPRINT_VERSION, self._job.options.lease_seconds)

    async def _restore(self) -> None:
        if isinstance(self._journal, MemoryJournal):
            return
        stored = await self._journal.read(lambda tables: tables.restore(self._job.options, self._clock()))
        self._is_careful = stored.killed
        self._job.restore(stored)
        self.reports.restore(stored)
        if stored.settings_changes:
            self.control.apply(msgspec.msgpack.decode(stored.settings_changes, type=SettingsChanges))
        await self._requests.restore(stored)
        if self._usage.is_limited or self._job.banned:
            # Requests that were leased when the last owner died are queued again.
            await self._requests.drop_refused(list(stored.slot_keys.values()))
        self._job.write()

    def limit_outages(self, seconds: float) -> None:
        """Do nothing: no server can be unavailable."""

    async def close(self) -> None:
        try:
            await self._requests.stop()
            await self.release([held.id for held in self._leases])
            self._job.write()  # the next run must not reuse the number of the last claim of the seeds
            # The page that may have caused a crash is still waiting if this owner leased nothing, such as `skitter add`.
            if self._has_leased or not self._is_careful:
                self._requests.write_end()
        finally:
            await self._journal.close()

    async def erase(self) -> None:
        await self._journal.erase()

    # --- adding ------------------------------------------------------------------------------------------

    async def unknown(self, fingerprints: Sequence[bytes]) -> list[bool]:
        now = self._clock()
        async with self._requests.adding:
            seen = self._requests.seen.keys
            await seen.prepare(fingerprints)
            return seen.unknown(fingerprints, now)

    async def add(self, entries: Sequence[Entry], seeds: SeedProgress | None = None) -> AddResult:
        return await self._add(entries, seeds, None)

    async def add_reported(
        self, entries: Sequence[Entry], seeds: SeedProgress | None = None
    ) -> tuple[AddResult, list[bool]]:
        """Add requests. Return also which of ``entries`` were added."""
        accepted: list[bool] = []
        result = await self._add(entries, seeds, accepted)
        return result, accepted or [False] * len(entries)

    async def _add(
        self, entries: Sequence[Entry], seeds: SeedProgress | None, accepted: list[bool] | None
    ) -> AddResult:
        async with self._requests.adding:
            await self._requests.seen.keys.prepare([entry.fingerprint for entry in entries if entry.dedup])
            if seeds is not None:
                if not self._job.seeds.advance(seeds, self._clock()):
                    return AddResult(0, len(entries))
                self._job.count(seeds.refused)
            result = self._requests.add(entries, self._clock(), accepted)
        self._job.write()
        await self._journal.flush()
        await self._requests.write_seen_if_large()
        return result

    async def claim_seeds(self, worker: str) -> SeedClaim | None:
        now = self._clock()
        if not self._job.seeds.is_free(now):
            return None
        token = self._job.next_number()
        self._job.seeds.claim(token, worker, now)
        return SeedClaim(token, self._job.seeds.position)

    # --- leases ------------------------------------------------------------------------------------------

    async def lease(
        self,
        worker: str,
        limit: int,
        reports: Sequence[FetchReport] = (),
        quotas: QueueQuotas | None = None,
    ) -> LeaseResult:
        return await self._lease(self._slots, worker, limit, reports, quotas)

    async def lease_slots(
        self,
        worker: str,
        slots: Sequence[str],
        limit: int,
        reports: Sequence[FetchReport],
        quotas: QueueQuotas | None = None,
    ) -> SlotLeases:
        """Lease the first waiting request of each slot in ``slots`` that is ready, at most ``limit`` requests.

        A slot that is named twice may yield two requests. ``quotas`` limits the queues that
        :attr:`~skitter.frontier.records.SlotLeases.more_ready` considers; ``None``: all queues.
        """
        named = NamedSlots(self._slots, list(slots))
        result = await self._lease(named, worker, limit, reports, quotas)
        now = self._clock()
        leased = Counter(held.slot.key for held in self._leases)

        def decision_of(slot: Slot | None) -> SlotDecision | float:
            if slot is not None and slot.queued:
                return max(0.0, slot.ready_at() - now)
            may_return = self._job.delayed or (slot is not None and leased[slot.key])
            return SlotDecision.LATER if may_return else SlotDecision.EMPTY

        named.decide(decision_of)
        ready_at = self._slots.next_at(self._slots.allowances(quotas, max(limit, 1)))
        is_ready = ready_at is not None and ready_at <= now
        more_ready = is_ready and len(result.leases) < limit and self._job.leasable(len(self._leases), 1) > 0
        return SlotLeases(result, named.decisions, more_ready)

    async def overdue_slots(self, seconds: float) -> list[tuple[str, int]]:
        """List the slots that have been ready for at least ``seconds``, with the number of their waiting requests."""
        since = self._clock() - seconds
        overdue = [
            (slot.key, slot.queued)
            for slot in self._slots
            if slot.queued and slot.has_capacity and slot.ready_at() <= since
        ]
        return [*overdue, *self._slots.dormant]

    async def _lease(
        self,
        source: RequestSource,
        worker: str,
        limit: int,
        reports: Sequence[FetchReport],
        quotas: QueueQuotas | None,
    ) -> LeaseResult:
        now = self._clock()
        # Any worker may name a slot next, so only the scheduler keeps slots for workers.
        refused = self._leases.end_fetches(reports, now, worker if source is self._slots else "")
        for slot in refused:
            self._requests.write_limits(slot)
        await self._requests.requeue_due(now)
        self._slots.evict_idle(now)
        allowances = self._slots.allowances(quotas, limit)
        leases: list[Lease] = []
        granted: list[HeldLease] = []
        count = self._job.leasable(len(self._leases), limit)
        while len(granted) < count:
            worker_capacity = limit - len(granted)
            taken = source.take(now, allowances, worker_capacity, worker)
            if taken is not None:
                slot, (_, _, row) = taken
                granted.append(self._requests.grant(slot, row, worker, now))
                leases.append(self._requests.lease_of(granted[-1]))
            elif await self._requests.backlog.refill(source, now, allowances, worker_capacity):
                count = len(granted) + self._job.leasable(len(self._leases), limit - len(granted))
            else:
                break
        self._requests.backlog.read_ahead(now, allowances)
        if granted:
            self._has_leased = True
            self._requests.write_leases(granted)
            self._job.write()
        # A crash loses leases that are not in the file, and the times at which their slots granted them.
        must_be_durable = self._is_careful or any(lease.start_within is not None for lease in leases)
        if refused or (granted and must_be_durable):
            await self._journal.flush()
        elif granted:
            self._journal.flush_soon()
        leases = await self._requests.visits.recall(leases)
        ready_at = self._slots.next_at(allowances, now, limit - len(leases), worker)
        return self._lease_result(leases, now, ready_at)

    def _lease_result(self, leases: list[Lease], now: float, ready_at: float | None) -> LeaseResult:
        job, leased = self._job, len(self._leases)
        return LeaseResult(
            leases,
            job.state_now(leased),
            wait_for(ready_at, self._requests.next_due, now, leases),
            job.limit_reached(),
            capacity=queue_capacity(job.options, job.queued, job.delayed, leased, job.counters),
            revision=job.revision,
        )

    async def renew(self, worker: str, lease_ids: Sequence[int]) -> list[int]:
        now = self._clock()
        await self._requests.requeue_due(now)
        self._job.seeds.renew(worker, now)
        return self._leases.renew(worker, lease_ids, now)

    async def release(self, lease_ids: Sequence[int]) -> None:
        now = self._clock()
        for lease_id in lease_ids:
            self._requests.release(lease_id, now)
        await self._journal.flush()

    async def abandon(self, worker: str) -> int:
        now = self._clock()
        self._job.seeds.abandon(worker)
        self.reports.forget_worker(worker)
        lost = self._leases.of_worker(worker)
        for lease_id in lost:
            self._requests.requeue_lost(lease_id, now)
        self._job.write()
        await self._journal.flush()
        return len(lost)

    # --- committing --------------------------------------------------------------------------------------

    async def commit(self, outcomes: Sequence[Outcome]) -> list[bool]:
        return await self._commit(outcomes, None)

    async def commit_reported(self, outcomes: Sequence[Outcome]) -> tuple[list[bool], list[list[bool]]]:
        """Commit. Return also, for each outcome, which of its entries were added."""
        added: list[list[bool]] = []
        accepted = await self._commit(outcomes, added)
        return accepted, added

    async def _commit(self, outcomes: Sequence[Outcome], added: list[list[bool]] | None) -> list[bool]:
        now = self._clock()
        await self._requests.requeue_due(now)
        async with self._requests.adding:
            fingerprints = [
                entry.fingerprint for outcome in outcomes for entry in outcome.entries if entry.dedup
            ]
            for outcome in outcomes:
                for batch in outcome.batches:
                    fingerprints += batch.fingerprints
            await self._requests.seen.keys.prepare(fingerprints)
            counts = _BatchCounts(self.reports)
            accepted = [self._apply(outcome, now, counts, added) for outcome in outcomes]
            counts.finish()
            self._job.count(counts.counters)
            self.reports.write_stats(counts.changed)
        self._job.write()
        if self._usage.is_limited:
            await self._requests.drop_refused(
                [slot for dimension, slot in counts.changed if dimension == StatsDimension.HOST]
            )
        await self._journal.flush()
        await self._requests.write_seen_if_large()
        return accepted

    def _apply(
        self, outcome: Outcome, now: float, counts: _BatchCounts, added: list[list[bool]] | None
    ) -> bool:
        mask: list[bool] | None = None if added is None else []
        held = self._requests.end_with(outcome, now)
        if held is not None:
            counts.add(held, outcome)
            if self._usage.is_limited:  # a page counts before its links are added
                counts.finish()
                self._usage.update(held.slot, self._slots)
            if outcome.entries:
                self._requests.add(outcome.entries, now, mask, limited=True)
            for batch in outcome.batches:
                self._requests.add_batch(batch, now, mask, limited=True)
            for written in outcome.outputs:
                self.reports.extend_output(written)
        if added is not None:
            added.append(mask or [False] * outcome.new_requests)
        return held is not None

    # --- reading -----------------------------------------------------------------------------------------

    async def status(self) -> FrontierStatus:
        now = self._clock()
        await self._requests.requeue_due(now)
        job = self._job
        leased = Counter(held.slot.key for held in self._leases)
        busy = [slot for slot in self._slots if slot.queued or leased[slot.key]]
        dormant = len(self._slots.dormant)
        fetchable = sum(1 for slot in busy if slot.queued and slot.has_capacity and slot.ready_at() <= now)
        return FrontierStatus(
            state=self._requests.current_state(),
            added=job.added, queued=job.queued, delayed=job.delayed, leased=len(self._leases),
            done=job.done, failed=job.failed, seeds_loading=not job.seeds.is_done,
            counters=dict(job.counters), slots=len(busy) + dormant,
            busiest=self._slots.busiest(BUSIEST_SLOTS, leased, now),
            oldest_lease=self._leases.oldest_age(now), reason=job.limit_reached(), queues=self._slots.queued(),
            fetchable=fetchable + dormant,
            next_due=time_left(self._requests.next_due, now),
            pass_number=job.pass_number,
        )  # fmt: skip
