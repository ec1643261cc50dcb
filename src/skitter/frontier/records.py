"""The records a frontier deals in.

A frontier never looks inside a request: an :class:`Entry` carries what it needs (identity, slot, priority,
time) beside the encoded request.
"""

from __future__ import annotations

from enum import Enum, StrEnum

import msgspec

from skitter.item import OutputRange


class JobState(StrEnum):
    """What the fleet of a job is to do."""

    RUNNING = "running"
    PAUSED = "paused"
    """Lease nothing until resumed; work in hand is finished and committed."""
    STOPPING = "stopping"
    """Drain: lease nothing more, finish what is in hand, leave. A later run resumes."""
    FINISHED = "finished"
    """Nothing queued, delayed or leased, and no seeds still loading. Final."""


class Entry(msgspec.Struct, array_like=True, frozen=True):
    """A request as the frontier keeps it."""

    fingerprint: bytes
    """16 bytes."""
    slot: str
    """Key of the unit of politeness, normally the host."""
    url: str
    """For people and dead letters; the request itself is in ``record``."""
    record: bytes
    priority: int = 0
    not_before: float = 0.0
    """Unix time by the frontier's clock; 0 means at once."""
    delay: float = 0.0
    """Seconds from the moment of adding; the later of the two holds."""
    dedup: bool = True
    """False: add it even if its fingerprint is known, and do not make it known."""


class Lease(msgspec.Struct, array_like=True, frozen=True):
    """A request handed to one worker until a deadline."""

    id: int
    """Owner token: unique for the life of the job's frontier, useless to anyone else."""
    fingerprint: bytes
    slot: str
    url: str
    record: bytes
    attempt: int
    """How often it was retried after a failure; 0 the first time."""
    lost: int
    """How often a lease of it ran out or its worker died."""
    deadline: float
    """Unix time (frontier's clock) at which it goes back to the queue unless renewed."""
    start_within: float | None = None
    """Seconds, counted from *asking* for the lease, within which the request must be sent; a worker that is
    later hands the lease back. ``None`` where the slot keeps no promised distance. This makes the delay
    between two fetches of a host a guarantee over all workers without comparing clocks."""


class FetchReport(msgspec.Struct, array_like=True, frozen=True):
    """The network part of a lease has ended: its slot's place is free, although the lease goes on."""

    lease_id: int
    latency: float | None = None
    """Seconds to the first byte; ``None`` if nothing was fetched."""
    refused: bool = False
    """The server asked for less (429 or 503)."""
    retry_after: float | None = None
    """Seconds from the ``Retry-After`` header, if there was one."""
    connecting: float = 0.0
    """Seconds that the connection took to be made, where a distance is promised and a new one was needed."""


class LeaseResult(msgspec.Struct, array_like=True, frozen=True):
    """Answer to a request for work."""

    leases: list[Lease]
    state: JobState
    ask_again: float = 0.0
    """Seconds after which asking again may give more (an upper bound: a commit may bring work sooner)."""
    reason: str = ""
    """Why the job stops, if a limit was reached."""
    data_loss: bool = False
    """The backend may have lost what it last took (a fail-over, a restart): nothing is known for certain to be in
    it that was not learnt from this answer on."""
    capacity: int | None = None
    """How many new requests may be sent before the next answer (``max_queued``); ``None``: any number."""
    revision: int = 0
    """Grows whenever settings are changed while the job runs; see ``Frontier.changes``. 0: they never were."""


class SlotDecision(Enum):
    """What a state decided for one slot that it was asked to lease from, unless the slot becomes ready at a known time."""

    LEASED = "leased"
    LATER = "later"
    """Nothing waits in the slot now, but a leased or delayed request may come back to it."""
    EMPTY = "empty"
    """Nothing waits in the slot, and nothing can come back to it."""


class SlotLeases(msgspec.Struct, frozen=True):
    """Answer to a request for leases of named slots; see ``StateFrontier`` in :mod:`skitter.brokers.contract`."""

    result: LeaseResult
    decisions: list[SlotDecision | float]
    """For each slot, in order. A number: seconds until the slot is ready; 0: its concurrency limit is reached."""
    more_ready: bool
    """Whether more could be leased now from slots that were not named."""


class Resolution(StrEnum):
    """What becomes of a leased request."""

    DONE = "done"
    RETRY = "retry"
    FAILED = "failed"


class Outcome(msgspec.Struct, array_like=True, frozen=True):
    """What came of a lease. Committed as a whole or not at all."""

    lease_id: int
    resolution: Resolution
    entries: list[Entry] = []
    """New requests found."""
    counters: dict[str, int] = {}
    outputs: list[OutputRange] = []
    error: str = ""
    """For ``RETRY`` and ``FAILED``: what went wrong, in one line, beginning with its kind."""
    after: float = 0.0
    """For ``RETRY``: seconds to wait."""
    free: bool = False
    """For ``RETRY``: the attempt does not count (the turn was spent on robots.txt, say)."""
    record: bytes | None = None
    """For ``RETRY``: replaces the stored request."""
    group: str = ""
    """Key under which it is counted (``Frontier.tallies``), besides its worker and its host; empty: none."""


class AddResult(msgspec.Struct, array_like=True, frozen=True):
    """How many entries were new, how many known, and how many are of a banned host."""

    added: int
    known: int
    banned: int = 0

    def __add__(self, other: AddResult) -> AddResult:
        return AddResult(self.added + other.added, self.known + other.known, self.banned + other.banned)


class SeedClaim(msgspec.Struct, array_like=True, frozen=True):
    """The duty to load the seeds, held by one worker at a time."""

    token: int
    position: int
    """How many seeds were taken from ``start`` before; the loader skips so many."""


class SeedProgress(msgspec.Struct, array_like=True, frozen=True):
    """Progress of the seed loader, stored in the same step as the seeds it added."""

    token: int
    position: int
    done: bool = False


class DeadLetter(msgspec.Struct, frozen=True):
    """A request given up, kept with its error."""

    id: int
    fingerprint: bytes
    slot: str
    url: str
    record: bytes
    error: str
    attempts: int
    lost: int
    failed_at: float


class SlotStatus(msgspec.Struct, frozen=True):
    """One slot of a status reading."""

    key: str
    queued: int
    leased: int
    delay: float
    """Seconds between two fetches that hold now (rule, robots.txt or adapted)."""
    paused_for: float
    """Seconds for which nothing is given out (Retry-After, an unreachable robots.txt)."""


class FrontierStatus(msgspec.Struct, frozen=True):
    """One consistent reading. ``added == queued + delayed + leased + done + failed`` always."""

    state: JobState
    added: int
    queued: int
    delayed: int
    leased: int
    done: int
    failed: int
    seeds_loading: bool
    counters: dict[str, int]
    slots: int
    """Number of slots with something queued or leased."""
    busiest: list[SlotStatus]
    """Up to 20 slots with the most waiting requests."""
    oldest_lease: float
    """Age in seconds of the oldest lease; 0 if there is none."""
    reason: str = ""
    """The limit that stops the job, if one was reached."""
    queues: dict[str, int] = {}
    """How many requests are queued in each queue; empty if the job never had another one than ``default``."""


class ExternalSeed(msgspec.Struct, array_like=True, frozen=True):
    """One element of a seed key, as a foreign program has put it there."""

    key: str
    value: bytes
    priority: int
    """The score in a sorted set; 0 elsewhere."""


class SeedBatch(msgspec.Struct, array_like=True, frozen=True):
    """Elements taken out of the seed keys and not yet settled: if their taker dies, another gets them."""

    token: int
    seeds: list[ExternalSeed]


class JobInfo(msgspec.Struct, frozen=True):
    """What a worker must know of the job before it begins."""

    fingerprint_seed: int
    """Secret of the job, so that nobody can prepare colliding URLs."""
    fingerprint_version: int
    lease_seconds: float
    """A lease is to be renewed well before so many seconds have passed."""
