"""The record of a job: its state, totals, settings and seeds, and the visits of its pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import msgspec

from skitter.frontier.embedded.journal import Journal
from skitter.frontier.embedded.leases import SeedLoading
from skitter.frontier.embedded.packs import Values
from skitter.frontier.embedded.tables import (
    COUNTERS_IN_ROWS,
    RequestRow,
    StoredJob,
    new_fingerprint_seed,
    pack_counters,
)
from skitter.frontier.options import FrontierSettings, SettingsChanges, reached_limit, remaining_pages
from skitter.frontier.records import JobState, Lease, Outcome, PageChange, PageVisit
from skitter.queues import without_queue
from skitter.request import FINGERPRINT_VERSION

_UNCHECKED = PageVisit(PageChange.UNCHECKED)
SKIPPED_NUMBERS = 1 << 20
"""Numbers to skip after a crash: the last ones may not be in the file, and no number may be used twice."""


class EmbeddedJob:
    """The data of a job as a whole. The request table keeps its counts of requests."""

    def __init__(
        self, journal: Journal, options: FrontierSettings, clock: Callable[[], float], name: str = ""
    ) -> None:
        self._journal = journal
        self._name = name
        self._initial_options = options
        self.options = options
        """The options in force, with the changes made during the job."""
        self.clock = clock
        self.changes = SettingsChanges()
        self.revision = 0
        self.state = JobState.RUNNING
        """The state that was set. See :meth:`state_now` for the state in force."""
        self.added = self.queued = self.delayed = self.done = self.failed = 0
        self.counters: Counter[str] = Counter()
        self.seeds = SeedLoading(options.lease_seconds)
        self.banned: set[str] = set()
        self.fingerprint_seed = new_fingerprint_seed()
        self.pass_number = 1
        self._last_number = 0
        self._active_at = clock()

    def restore(self, stored: StoredJob) -> None:
        """Continue where an earlier run ended."""
        self.fingerprint_seed = stored.fingerprint_seed
        self.state = stored.state
        self.added, self.done, self.failed = stored.added, stored.done, stored.failed
        self.delayed = stored.delayed
        self._last_number = stored.sequence + (SKIPPED_NUMBERS if stored.killed else 0)
        self.seeds.position, self.seeds.is_done = stored.seed_position, stored.seeds_done
        self.counters = stored.counters
        self.banned = stored.banned
        self.pass_number = stored.pass_number

    @property
    def last_number(self) -> int:
        """The last number of a request, lease or dead letter."""
        return self._last_number

    def next_number(self, amount: int = 1) -> int:
        """Return the first of ``amount`` unused numbers for requests, leases or dead letters."""
        first = self._last_number + 1
        self._last_number += amount
        return first

    def touch(self, now: float) -> None:
        """Record that a request was added, or a lease ended."""
        self._active_at = now

    def count(self, counters: Mapping[str, int]) -> None:
        """Add to the job's counters, and write them to the journal."""
        totals = self.counters
        for name, amount in counters.items():
            totals[name] = total = totals.get(name, 0) + amount
            if name.startswith(COUNTERS_IN_ROWS):
                self._journal.put("set_counter", name, (name, total))
        self.write()

    def apply(self, changes: SettingsChanges) -> None:
        """Put changed settings into force."""
        self.changes = changes
        self.options = changes.of_options(self._initial_options)
        self.revision += 1

    def is_banned(self, slot: str) -> bool:
        """Return whether a slot is banned: the slot itself, or its host in all queues."""
        return slot in self.banned or without_queue(slot) in self.banned

    def state_now(self, leased: int) -> JobState:
        """Return the state in force. ``leased``: the number of leases."""
        if self.seeds.is_done and not (self.queued or self.delayed or leased):
            wait = self.options.seconds_to_wait()
            if not wait or self.clock() - self._active_at >= wait:
                return JobState.FINISHED
        return JobState.STOPPING if self.limit_reached() else self.state

    def limit_reached(self) -> str:
        """Name the limit that stops the job; empty if none was reached."""
        return reached_limit(self.options, self.counters, self.failed)

    def leasable(self, leased: int, limit: int) -> int:
        """Return how many of ``limit`` requests may be leased, by the job's state and limits."""
        if self.state_now(leased) is not JobState.RUNNING:
            return 0
        return remaining_pages(self.options, self.counters, leased, limit)

    def write(self) -> None:
        """Write the record to the journal."""
        self._journal.put_latest("put_job", self._row)

    def _row(self) -> Values:
        seed = self.fingerprint_seed
        signed = seed - 2**64 if seed >= 2**63 else seed
        return (
            1, self.state.value, self.added, self.done, self._last_number, self.seeds.position,
            int(self.seeds.is_done), signed, FINGERPRINT_VERSION,
            self.pass_number, self._initial_options.changes or "", pack_counters(self.counters), self._name,
        )  # fmt: skip


class VisitTable:
    """Writes and recalls the visits of a job that remembers pages; does nothing for another job.

    See ``docs/design/revisiting.md``.
    """

    def __init__(self, journal: Journal, job: EmbeddedJob) -> None:
        self._journal = journal
        self._job = job
        self._keeps_ranges = job.options.changes == "all"
        self._is_on = job.options.changes is not None

    async def recall(self, leases: list[Lease]) -> list[Lease]:
        """Return leases with the stored records of their pages."""
        if not (self._is_on and leases and self._job.pass_number > 1):
            return leases
        fingerprints = [lease.fingerprint for lease in leases]
        # No flush is needed: this pass does not change the record of the last visit before it is read.
        found = await self._journal.peek(lambda tables: tables.recall(fingerprints))
        return [
            msgspec.structs.replace(lease, memory=memory)
            if (memory := found.get(lease.fingerprint)) is not None
            else lease
            for lease in leases
        ]

    def write(self, row: RequestRow, outcome: Outcome) -> None:
        """Write the visit of an outcome that ended a lease."""
        visit = outcome.visit
        if visit is None or not (row.dedup or visit.page) or not self._is_on:
            return
        fingerprint = visit.page or row.fingerprint
        if visit.memory is None:
            self._mark(fingerprint, visit)
            return
        if visit.change is PageChange.UNCHANGED:
            self._journal.put(
                "update_visit", fingerprint,
                (self._job.pass_number, visit.change.value, visit.status, visit.memory, fingerprint),
            )  # fmt: skip
            return
        ranges = msgspec.msgpack.encode([*visit.ranges, *outcome.outputs] if self._keeps_ranges else [])
        number = self._job.pass_number
        self._journal.withdraw("mark_visit", fingerprint)  # a group would run it after this statement
        self._journal.put(
            "put_visit", fingerprint,
            (fingerprint, number, visit.change.value, visit.status, number, visit.url, ranges, visit.memory),
        )  # fmt: skip

    def mark_dead(self, row: RequestRow) -> None:
        """Record that the request of a page failed, so that the page does not count as unlinked."""
        if self._is_on and row.dedup:
            self._mark(row.fingerprint, _UNCHECKED)

    def _mark(self, fingerprint: bytes, visit: PageVisit) -> None:
        row = (self._job.pass_number, visit.change.value, visit.status, fingerprint)
        self._journal.put("mark_visit", fingerprint, row)
