"""A simple model of a frontier: one list of requests, each in one state. It implements only the contract.

If a value is random (when a request that was lost twice returns), the model knows its bounds.

"""

from collections import Counter
from dataclasses import dataclass, field

from skitter.queues import queue_of, without_queue
from skitter.request import decode_request

FOREVER = float("inf")


def key_of(request) -> tuple[str, bytes]:
    """Return the identity of a request, given an entry, a lease or a dead letter."""
    return request.url, request.record


def task_of(entry) -> str:
    return decode_request(entry.url, entry.record).cb_kwargs["task"]


@dataclass
class Known:
    """A request that was added."""

    entry: object
    number: int
    due: float
    """It may be leased from this time on ..."""
    surely_due: float
    """... and must be available from this time on."""
    state: str = "waiting"
    attempt: int = 0
    lost: int = 0
    worker: str = ""
    deadline: float = 0.0
    fetch_ended: bool = False
    letter: int = 0

    @property
    def place(self) -> tuple[int, int]:
        return (-self.entry.priority, self.number)


@dataclass
class Model:
    lease_seconds: float
    max_worker_crashes: int
    ttl: float | None
    stay_known: bool
    concurrency_per_slot: int
    now: float = 0.0
    requests: dict[tuple[str, bytes], Known] = field(default_factory=dict)
    """By URL and record, which are unique together."""
    known_until: dict[bytes, float] = field(default_factory=dict)
    leases: dict[int, Known] = field(default_factory=dict)
    """Valid leases."""
    dropped: int = 0
    banned: set[str] = field(default_factory=set)
    """Banned slots."""
    number: int = 0
    lost: int = 0
    pages: int = 0
    paused: bool = False
    seeds_done: bool = False

    def in_state(self, state: str) -> list[Known]:
        return [one for one in self.requests.values() if one.state == state]

    def is_known(self, fingerprint: bytes) -> bool:
        return self.known_until.get(fingerprint, 0.0) > self.now

    def add(self, entries) -> int:
        added = 0
        for entry in entries:
            if self.is_banned(entry.slot):
                continue
            if entry.dedup:
                if self.is_known(entry.fingerprint):
                    continue
                self.known_until[entry.fingerprint] = FOREVER
            self.number += 1
            due = max(entry.not_before, self.now + entry.delay)
            self.requests[key_of(entry)] = Known(entry, self.number, due, due)
            added += 1
        return added

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for lease_id, one in list(self.leases.items()):
            if one.deadline <= self.now:
                self.lose(lease_id)

    def end(self, lease_id: int) -> Known:
        one = self.leases.pop(lease_id)
        one.state, one.worker = "waiting", ""
        one.due = one.surely_due = self.now
        return one

    def refuse_banned(self, one: Known) -> None:
        """Drop a request that returns to a banned slot."""
        if one.state == "waiting" and self.is_banned(one.entry.slot):
            self.drop([one])

    def release(self, lease_id: int) -> None:
        self.refuse_banned(self.end(lease_id))

    def drop_slot(self, slot: str, ban: bool) -> int:
        if ban:
            self.banned.add(slot)
        waiting = [one for one in self.in_state("waiting") if without_queue(one.entry.slot) == slot]
        self.drop(waiting)
        return len(waiting)

    def drop_task(self, task: str) -> int:
        waiting = [one for one in self.in_state("waiting") if task_of(one.entry) == task]
        self.drop(waiting)
        return len(waiting)

    def is_banned(self, slot: str) -> bool:
        """Return whether the host of a slot is banned. A ban holds in all queues."""
        return without_queue(slot) in self.banned

    def lose(self, lease_id: int) -> None:
        one = self.end(lease_id)
        one.lost += 1
        self.lost += 1
        if one.lost > self.max_worker_crashes:
            self.fail(one)
        elif one.lost > 1:
            one.surely_due = self.now + 2.0**one.lost
        self.refuse_banned(one)

    def fail(self, one: Known) -> None:
        one.state = "failed"
        if one.entry.dedup and not self.stay_known:
            self.known_until.pop(one.entry.fingerprint, None)

    def commit(self, lease_id: int, resolution: str, after: float, free: bool, entries) -> bool:
        if lease_id not in self.leases:
            return False
        one = self.end(lease_id)
        if resolution == "done":
            one.state = "done"
            if one.entry.dedup and self.ttl is not None:
                self.known_until[one.entry.fingerprint] = self.now + self.ttl
        elif resolution == "failed":
            self.fail(one)
        else:
            one.attempt += not free
            one.due = one.surely_due = self.now + after
            self.refuse_banned(one)
        self.add(entries)
        self.pages += 1
        return True

    def abandon(self, worker: str) -> int:
        held = [lease_id for lease_id, one in self.leases.items() if one.worker == worker]
        for lease_id in held:
            self.lose(lease_id)
        return len(held)

    def replay(self, letters: list[Known]) -> int:
        replayed = 0
        for one in letters:
            if not self.stay_known and one.entry.dedup and self.is_known(one.entry.fingerprint):
                self.drop([one])  # it was added again in the meantime
                continue
            replayed += 1
            one.state, one.attempt, one.lost = "waiting", 0, 0
            one.due = one.surely_due = self.now
            if one.entry.dedup and not self.is_banned(one.entry.slot):
                self.known_until[one.entry.fingerprint] = FOREVER
            self.refuse_banned(one)
        return replayed

    def drop(self, letters: list[Known]) -> int:
        self.dropped += len(letters)
        for one in letters:
            one.state = "dropped"
        return len(letters)

    def room(self, slot: str) -> int:
        in_flight = sum(one.entry.slot == slot and not one.fetch_ended for one in self.leases.values())
        return self.concurrency_per_slot - in_flight

    def take(self, leases, limit: int, worker: str, shares=None) -> None:
        """Check the leases, and record them."""
        waiting = self.in_state("waiting")
        least, most, given = Counter(), Counter(), Counter(queue_of(lease.slot) for lease in leases)
        for slot in {one.entry.slot for one in waiting}:
            here = [one for one in waiting if one.entry.slot == slot]
            surely = sum(one.surely_due <= self.now for one in here)
            maybe = sum(one.due <= self.now for one in here)
            least[queue_of(slot)] += min(self.room(slot), surely)
            most[queue_of(slot)] += min(self.room(slot), maybe)
            self._check_order(here, [lease for lease in leases if lease.slot == slot])
        share = {
            queue: 0 if self.paused else limit if shares is None else shares.get(queue, shares.get("*", 0))
            for queue in least.keys() | given.keys()
        }
        for queue, count in given.items():
            assert count <= min(share[queue], most[queue])
        assert min(limit, sum(min(share[queue], least[queue]) for queue in share)) <= len(leases) <= limit
        for lease in leases:
            self._hand_out(lease, worker)

    def _check_order(self, waiting: list[Known], leases) -> None:
        places = [self.requests[key_of(lease)].place for lease in leases]
        assert places == sorted(places)
        taken = {key_of(lease) for lease in leases}
        left = [one.place for one in waiting if one.surely_due <= self.now and key_of(one.entry) not in taken]
        if places and left:
            assert places[-1] < min(left)

    def _hand_out(self, lease, worker: str) -> None:
        one = self.requests[key_of(lease)]
        assert one.state == "waiting"
        assert one.due <= self.now
        assert self.room(one.entry.slot) > 0
        assert lease.id not in self.leases
        assert (lease.fingerprint, lease.url, lease.slot) == (
            one.entry.fingerprint,
            one.entry.url,
            one.entry.slot,
        )
        assert (lease.attempt, lease.lost) == (one.attempt, one.lost)
        one.state, one.worker, one.fetch_ended = "leased", worker, False
        one.deadline = self.now + self.lease_seconds
        assert abs(lease.deadline - one.deadline) < 1e-3
        self.leases[lease.id] = one
