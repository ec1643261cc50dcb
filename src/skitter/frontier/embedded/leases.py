"""Leases in force: who holds what until when. Shared by the embedded frontiers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from skitter.frontier.embedded.scheduler import Slot, SlotTable
from skitter.frontier.records import FetchReport, SeedProgress

Held = TypeVar("Held")


class HeldLease(Generic[Held]):
    """One lease in force."""

    __slots__ = ("deadline", "granted_at", "id", "landed", "request", "slot", "worker")

    def __init__(
        self, lease_id: int, request: Held, slot: Slot, worker: str, now: float, deadline: float
    ) -> None:
        self.id = lease_id
        self.request = request
        self.slot = slot
        self.worker = worker
        self.granted_at = now
        self.deadline = deadline
        self.landed = False


class LeaseTable(Generic[Held]):
    """All leases in force, with the places they take in their slots."""

    def __init__(self, slots: SlotTable, seconds: float) -> None:
        self._slots = slots
        self._seconds = seconds
        self._leases: dict[int, HeldLease[Held]] = {}
        self._check_at = float("inf")
        """No lease ends before this time."""

    def __len__(self) -> int:
        return len(self._leases)

    def __iter__(self) -> Iterator[HeldLease[Held]]:
        return iter(self._leases.values())

    def grant(self, lease_id: int, request: Held, slot: Slot, worker: str, now: float) -> HeldLease[Held]:
        """Note a lease; the slot has already counted it."""
        deadline = now + self._seconds
        held = self._leases[lease_id] = HeldLease(lease_id, request, slot, worker, now, deadline)
        self._check_at = min(self._check_at, deadline)
        return held

    def find(self, lease_id: int) -> HeldLease[Held] | None:
        """Return a lease in force."""
        return self._leases.get(lease_id)

    def land(self, landings: Sequence[FetchReport], now: float) -> list[Slot]:
        """Free the places of fetches that ended; returns the slots whose server asked for less.

        Unknown leases and second landings are ignored.
        """
        resting = []
        for landing in landings:
            held = self._leases.get(landing.lease_id)
            if held is not None and not held.landed:
                held.landed = True
                held.slot.land(now, held.granted_at, landing)
                self._slots.arm(held.slot)
                if landing.refused:
                    resting.append(held.slot)
        return resting

    def end(self, lease_id: int) -> HeldLease[Held] | None:
        """End a lease, landed or not; ``None`` if it is not in force."""
        held = self._leases.pop(lease_id, None)
        if held is not None and not held.landed:
            held.slot.free()
            self._slots.arm(held.slot)
        return held

    def renew(self, worker: str, lease_ids: Sequence[int], now: float) -> list[int]:
        """Extend what the worker holds; return the ids that it does not hold."""
        gone = []
        for lease_id in lease_ids:
            held = self._leases.get(lease_id)
            if held is None or held.worker != worker:
                gone.append(lease_id)
            else:
                held.deadline = now + self._seconds
        return gone

    def expired(self, now: float) -> list[int]:
        """Return the leases that ran out."""
        if now < self._check_at:
            return []
        over = [lease_id for lease_id, held in self._leases.items() if held.deadline <= now]
        self._check_at = min(
            (held.deadline for held in self._leases.values() if held.deadline > now), default=float("inf")
        )
        return over

    def of(self, worker: str) -> list[int]:
        """Return the ids of what a worker holds."""
        return [lease_id for lease_id, held in self._leases.items() if held.worker == worker]

    def oldest(self, now: float) -> float:
        """Return the age of the oldest lease in seconds; 0 if there is none."""
        return max((now - held.granted_at for held in self._leases.values()), default=0.0)


class SeedLoading:
    """Held by one worker at a time, until it is done or its holder is silent for ``lease_seconds``."""

    def __init__(self, lease_seconds: float) -> None:
        self._lease_seconds = lease_seconds
        self.is_done = False
        self.position = 0
        """How many seeds were taken in."""
        self._token = 0
        """Of the claim in force; 0: nobody has the duty."""
        self._worker = ""
        self._deadline = 0.0

    def is_free(self, now: float) -> bool:
        """Tell whether it can be claimed."""
        return not self.is_done and (not self._token or self._deadline <= now)

    def claim(self, token: int, worker: str, now: float) -> None:
        """Give it to a worker."""
        self._token, self._worker, self._deadline = token, worker, now + self._lease_seconds

    def advance(self, mark: SeedProgress, now: float) -> bool:
        """Take note of progress; ``False``, and nothing changes, if another claim is in force."""
        if not self._token or self._token != mark.token:
            return False
        self._deadline = now + self._lease_seconds
        self.position = mark.position
        self.is_done = mark.done
        if mark.done:
            self._token = 0
        return True

    def renew(self, worker: str, now: float) -> None:
        """Extend the claim if it is this worker's."""
        if self._token and self._worker == worker:
            self._deadline = now + self._lease_seconds

    def abandon(self, worker: str) -> None:
        """Make it free if its holder is this worker, which is dead."""
        if self._worker == worker:
            self._token = 0

    def start_again(self) -> None:
        """Let the seeds be loaded anew."""
        self.is_done, self.position = False, 0
