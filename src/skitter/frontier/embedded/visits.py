"""The visits of an embedded frontier: the records that a job keeps of its pages. See ``docs/design/revisiting.md``."""

from __future__ import annotations

import msgspec

from skitter.frontier.embedded.job import EmbeddedJob
from skitter.frontier.embedded.journal import Journal
from skitter.frontier.embedded.tables import RequestRow
from skitter.frontier.records import Lease, Outcome, PageChange, PageVisit, VisitsPart

_UNCHECKED = PageVisit(PageChange.UNCHECKED)


class VisitTable:
    """Writes and reads the visits of a job that remembers pages; does nothing for another job."""

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
        # No flush is needed: what this pass writes about a page does not change the record of its last visit.
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
        ranges = msgspec.msgpack.encode(outcome.outputs if self._keeps_ranges else [])
        number = self._job.pass_number
        self._journal.withdraw("mark_visit", fingerprint)  # because a group runs it after this
        self._journal.put(
            "put_visit", fingerprint,
            (fingerprint, number, visit.change.value, visit.status, number, visit.url, ranges, visit.memory),
        )  # fmt: skip

    def mark_dead(self, row: RequestRow) -> None:
        """Record that a page was given up, so that it does not count as unlinked."""
        if self._is_on and row.dedup:
            self._mark(row.fingerprint, _UNCHECKED)

    def _mark(self, fingerprint: bytes, visit: PageVisit) -> None:
        row = (self._job.pass_number, visit.change.value, visit.status, fingerprint)
        self._journal.put("mark_visit", fingerprint, row)

    async def read(self, cursor: str, limit: int) -> VisitsPart:
        """Return some of the visits."""
        return await self._journal.read(lambda tables: tables.visits(cursor, limit))
