"""Embedded: what the frontiers in one process keep in the same way beside the requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from skitter.frontier.cleanup import CleanupSchedule
from skitter.frontier.embedded.leases import SeedLoading
from skitter.frontier.embedded.scheduler import SlotTable
from skitter.frontier.flat import Flat
from skitter.frontier.options import FrontierOptions, SettingsChanges, reached_limit
from skitter.frontier.records import JobState
from skitter.frontier.stats import StatsGroup, StatsRow, StatsTable
from skitter.frontier.workers import WorkerRegistry, WorkerReport, WorkerStatus
from skitter.politeness import Politeness
from skitter.queues import without_queue


class Embedded(Flat):
    """State of the job, its limits and its workers."""

    def __init__(
        self, politeness: Politeness | None, options: FrontierOptions | None, clock: Callable[[], float]
    ) -> None:
        self._politeness = politeness if politeness is not None else Politeness()
        self._first_options = options if options is not None else FrontierOptions()
        """Options as this run begins with them; ``_options`` are those that hold."""
        self._options = self._first_options
        self._clock = clock
        self._slots = SlotTable(self._politeness.policy_of)
        self._seeds = SeedLoading(self._options.lease_seconds)
        self._roster = WorkerRegistry()
        self._tallies = StatsTable(self._options.stats_max_keys)
        self._banned: set[str] = set()
        self._note_sweeps = CleanupSchedule()
        self._counters: Counter[str] = Counter()
        self._changes = SettingsChanges()
        self._revision = 0
        self._state = JobState.RUNNING
        self._active_at = clock()
        """When something was last added or ended."""

    def _state_now(self, *, idle: bool, failed: int) -> JobState:
        """Return what the fleet is to do. ``idle``: nothing is queued, delayed or leased."""
        if idle and self._seeds.is_done:
            wait = self._options.seconds_to_wait()
            if not wait or self._clock() - self._active_at >= wait:
                return JobState.FINISHED
        return JobState.STOPPING if self._limit(failed) else self._state

    def _limit(self, failed: int) -> str:
        return reached_limit(self._options, self._counters, failed)

    def _obey(self, changes: SettingsChanges) -> None:
        """Let other settings hold."""
        self._changes = changes
        self._options = changes.of_options(self._first_options)
        self._slots.follow(changes.of_politeness(self._politeness).policy_of, self._clock())
        self._revision += 1

    def _is_banned(self, slot: str) -> bool:
        """Tell whether a slot is banned: by itself, or with its host in all queues."""
        return slot in self._banned or without_queue(slot) in self._banned

    async def changes(self) -> SettingsChanges:
        """Return the settings that were changed while the job ran."""
        return self._changes

    async def announce(self, report: WorkerReport, ttl: float) -> None:
        """Believe that a worker is there."""
        self._roster.announce(report, ttl, self._clock())

    async def workers(self) -> list[WorkerStatus]:
        """List the workers alive."""
        return self._roster.read(self._clock())

    async def tallies(self, group: StatsGroup, limit: int = 100) -> list[StatsRow]:
        """Read what was counted per worker, host or task."""
        return self._tallies.read(group, limit)

    async def banned(self) -> list[str]:
        """List the banned slots."""
        return sorted(self._banned)
