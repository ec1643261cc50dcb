"""The leases in force: which worker holds which request, and until when."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec

from skitter.frontier.embedded.packs import Values
from skitter.frontier.embedded.scheduler import Slot, SlotScheduler
from skitter.frontier.embedded.tables import RequestRow
from skitter.frontier.records import FetchReport, SeedProgress


class LeaseBatch:
    """Leases that were granted between two writes to the file. They share one row in it."""

    __slots__ = ("id", "members")

    def __init__(self, batch_id: int) -> None:
        self.id = batch_id
        self.members: dict[int, tuple[int, int, int]] = {}
        """Number, attempt and losses of each request, by its number."""

    def add(self, held: HeldLease) -> None:
        """Add a lease."""
        row = held.row
        self.members[row.seq] = (row.seq, row.attempt, row.lost)
        held.batch = self

    def row(self) -> Values:
        """Return the row of the batch."""
        return (self.id, msgspec.msgpack.encode(list(self.members.values())))


class HeldLease:
    """One lease in force."""

    __slots__ = ("batch", "deadline", "fetch_ended", "granted_at", "id", "row", "slot", "worker")

    def __init__(
        self, lease_id: int, row: RequestRow, slot: Slot, worker: str, now: float, deadline: float
    ) -> None:
        self.id = lease_id
        self.row = row
        self.batch: LeaseBatch | None = None
        self.slot = slot
        self.worker = worker
        self.granted_at = now
        self.deadline = deadline
        self.fetch_ended = False


class LeaseTable:
    """All leases in force, which also count as fetches of their slots."""

    def __init__(self, slots: SlotScheduler, seconds: float) -> None:
        self._slots = slots
        self._seconds = seconds
        self._leases: dict[int, HeldLease] = {}
        self._next_deadline = float("inf")
        """No lease expires before this time."""

    def __len__(self) -> int:
        return len(self._leases)

    def __iter__(self) -> Iterator[HeldLease]:
        return iter(self._leases.values())

    def grant(self, lease_id: int, row: RequestRow, slot: Slot, worker: str, now: float) -> HeldLease:
        """Add a lease whose fetch the slot has already counted."""
        deadline = now + self._seconds
        held = self._leases[lease_id] = HeldLease(lease_id, row, slot, worker, now, deadline)
        self._next_deadline = min(self._next_deadline, deadline)
        slot.leased += 1
        if slot.leased >= slot.pages_left:
            self._slots.reschedule(slot)
        return held

    def end_fetches(self, reports: Sequence[FetchReport], now: float, worker: str) -> list[Slot]:
        """Record fetches that ended. Return the slots whose server asked for fewer requests.

        ``worker``: the one for which slots with a response are kept; empty: for none. Reports of unknown leases and second
        reports are ignored.
        """
        refused = []
        changed: dict[str, Slot] = {}
        for report in reports:
            held = self._leases.get(report.lease_id)
            if held is not None and not held.fetch_ended:
                held.fetch_ended = True
                slot = changed[held.slot.key] = held.slot
                slot.end_fetch(now, held.granted_at, report, worker)
                if report.refused:
                    refused.append(slot)
        for slot in changed.values():
            self._slots.reschedule(slot)
        return refused

    def end(self, lease_id: int) -> HeldLease | None:
        """End a lease, with or without a report of its fetch; ``None`` if it is not in force."""
        held = self._leases.pop(lease_id, None)
        if held is not None:
            slot = held.slot
            slot.leased -= 1
            if not held.fetch_ended:
                slot.end_unreported_fetch()
            if not held.fetch_ended or slot.pages_left < math.inf:
                self._slots.reschedule(slot)
        return held

    def renew(self, worker: str, lease_ids: Sequence[int], now: float) -> list[int]:
        """Extend leases of the worker. Return the ids of leases that it does not hold."""
        lost = []
        for lease_id in lease_ids:
            held = self._leases.get(lease_id)
            if held is None or held.worker != worker:
                lost.append(lease_id)
            else:
                held.deadline = now + self._seconds
        return lost

    def expired(self, now: float) -> list[int]:
        """Return the ids of expired leases."""
        if now < self._next_deadline:
            return []
        expired = [lease_id for lease_id, held in self._leases.items() if held.deadline <= now]
        self._next_deadline = min(
            (held.deadline for held in self._leases.values() if held.deadline > now), default=float("inf")
        )
        return expired

    def of_worker(self, worker: str) -> list[int]:
        """Return the ids of a worker's leases."""
        return [lease_id for lease_id, held in self._leases.items() if held.worker == worker]

    def oldest_age(self, now: float) -> float:
        """Return the age of the oldest lease in seconds; 0 if there is none."""
        return max((now - held.granted_at for held in self._leases.values()), default=0.0)


class SeedLoading:
    """Progress of the seed loader, and the claim of the worker that loads.

    A claim ends when loading is done, or when the worker does not renew it for ``lease_seconds``.
    """

    def __init__(self, lease_seconds: float) -> None:
        self._lease_seconds = lease_seconds
        self.is_done = False
        self.position = 0
        """Number of seeds that were loaded."""
        self._token = 0
        """Token of the claim in force; 0: none."""
        self._worker = ""
        self._deadline = 0.0

    def is_free(self, now: float) -> bool:
        """Return whether loading can be claimed."""
        return not self.is_done and (not self._token or self._deadline <= now)

    def claim(self, token: int, worker: str, now: float) -> None:
        """Give the claim to a worker."""
        self._token, self._worker, self._deadline = token, worker, now + self._lease_seconds

    def advance(self, progress: SeedProgress, now: float) -> bool:
        """Record progress. Return ``False``, without effect, if another claim is in force."""
        if not self._token or self._token != progress.token:
            return False
        self._deadline = now + self._lease_seconds
        self.position = progress.position
        self.is_done = progress.done
        if progress.done:
            self._token = 0
        return True

    def renew(self, worker: str, now: float) -> None:
        """Extend the claim if the worker holds it."""
        if self._token and self._worker == worker:
            self._deadline = now + self._lease_seconds

    def abandon(self, worker: str) -> None:
        """End the claim of a worker that has died or left."""
        if self._worker == worker:
            self._token = 0

    def restart(self) -> None:
        """Load the seeds again from the first one."""
        self.is_done, self.position = False, 0
