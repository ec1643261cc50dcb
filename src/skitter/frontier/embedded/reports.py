"""Reports of an embedded frontier: counts per worker, host and group, committed outputs, live workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from skitter.frontier.embedded.journal import Journal
from skitter.frontier.embedded.leases import SeedLoading
from skitter.frontier.embedded.requests import RequestTable
from skitter.frontier.embedded.scheduler import SlotScheduler
from skitter.frontier.embedded.tables import StoredJob
from skitter.frontier.records import Outcome, SlotStatus, VisitsPart
from skitter.frontier.scheduling import extend_ranges
from skitter.frontier.stats import (
    OTHERS,
    OutcomeOrigin,
    StatsDimension,
    StatsKey,
    StatsRow,
    StatsTable,
    amounts_of,
)
from skitter.frontier.workers import WorkerReport, WorkerStatus, in_order
from skitter.item import OutputRange


class EmbeddedReports:
    """The counts of a job, and its workers. Implements :class:`~skitter.frontier.contract.Reports`."""

    def __init__(
        self,
        journal: Journal,
        clock: Callable[[], float],
        stats: StatsTable,
        slots: SlotScheduler,
        requests: RequestTable,
        seeds: SeedLoading,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._stats = stats
        self._slots = slots
        self._leases = requests.leases
        self._seeds = seeds
        self._outputs: dict[str, list[tuple[int, int]]] = {}
        self._workers: dict[str, tuple[WorkerReport, float, float]] = {}
        """The last announcement of each worker, its time, and the time until which it counts as alive."""

    def restore(self, stored: StoredJob) -> None:
        """Load the counts and outputs of earlier runs."""
        self._stats.load(stored.stats)
        self._outputs = stored.outputs

    async def stats(self, dimension: StatsDimension, limit: int = 100) -> list[StatsRow]:
        return self._stats.read(dimension, limit)

    async def slots(self, limit: int) -> list[SlotStatus]:
        now, leased = self._clock(), Counter(held.slot.key for held in self._leases)
        return self._slots.busiest(limit, leased, now)

    def count(
        self, origin: OutcomeOrigin, outcomes: Sequence[Outcome], counters: Mapping[str, int]
    ) -> list[StatsKey]:
        """Count outcomes.

        Return the keys that changed, for :meth:`write_stats`. ``counters``: the sum of their counters.
        """
        return self._stats.count(origin, amounts_of(outcomes, counters))

    def write_stats(self, changed: Iterable[StatsKey]) -> None:
        """Write changed counts. If there are too many, first add up those with the fewest pages."""
        folded = self._stats.fold()
        for key in folded:
            self._journal.withdraw("put_stats", key)
            self._journal.append("remove_stats", key)
        for key in {*changed, *((dimension, OTHERS) for dimension, _ in folded)}:
            row = self._stats.row(key)
            if row is not None:
                self._journal.put("put_stats", key, row)

    async def outputs(self) -> dict[str, list[tuple[int, int]]]:
        """Return the committed byte ranges of each part file that are durable, and no later ones."""
        ranges = {part: sorted(spans) for part, spans in self._outputs.items()}
        await self._journal.flush()
        return ranges

    def forget_outputs(self) -> None:
        """Forget all committed ranges, after the journal has done so."""
        self._outputs = {}

    async def visits(self, cursor: str = "", limit: int = 1000) -> VisitsPart:
        return await self._journal.read(lambda tables: tables.visits(cursor, limit))

    def extend_output(self, written: OutputRange) -> None:
        """Add a committed range."""
        ranges = self._outputs.setdefault(written.part, [])
        extend_ranges(ranges, written)
        start, stop = ranges[-1]
        self._journal.put("extend_output", (written.part, start), (written.part, start, stop))

    async def announce(self, report: WorkerReport, ttl: float) -> None:
        now = self._clock()
        self._workers = {name: entry for name, entry in self._workers.items() if entry[2] > now}
        if ttl > 0:
            self._workers[report.name] = (report, now, now + ttl)
        else:
            self._seeds.abandon(report.name)
            self.forget_worker(report.name)

    async def workers(self) -> list[WorkerStatus]:
        now = self._clock()
        alive = [(report, heard) for report, heard, until in self._workers.values() if until > now]
        return in_order(WorkerStatus(report, max(0.0, now - heard)) for report, heard in alive)

    def forget_worker(self, worker: str) -> None:
        """Remove a dead worker."""
        self._workers.pop(worker, None)
