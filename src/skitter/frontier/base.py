"""The frontier contract: what every backend promises, and the records it deals in.

A frontier is the only durable truth of a job. It never looks inside a request: an :class:`Entry` carries
what it needs (identity, slot, priority, time) beside the encoded request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, runtime_checkable

import msgspec

from skitter.errors import FrontierError
from skitter.politeness import Politeness
from skitter.queues import Shares

if TYPE_CHECKING:  # they are made of what stands here
    from skitter.frontier.changes import Changes
    from skitter.frontier.roster import WorkerReport, WorkerStatus
    from skitter.frontier.tally import Tally, TallyGroup


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
    """Seconds, counted from *asking* for the lease, within which the fetch must begin; a worker that is
    later hands the lease back. ``None`` where the slot keeps no promised distance. This makes the delay
    between two fetches of a host a guarantee over all workers without comparing clocks."""


class Landing(msgspec.Struct, array_like=True, frozen=True):
    """The network part of a lease has ended: its slot's place is free, although the lease goes on."""

    lease_id: int
    latency: float | None = None
    """Seconds to the first byte; ``None`` if nothing was fetched."""
    refused: bool = False
    """The server asked for less (429 or 503)."""
    retry_after: float | None = None
    """Seconds from the ``Retry-After`` header, if there was one."""


class LeaseResult(msgspec.Struct, array_like=True, frozen=True):
    """Answer to a request for work."""

    leases: list[Lease]
    state: JobState
    ask_again: float = 0.0
    """Seconds after which asking again may give more (an upper bound: a commit may bring work sooner)."""
    reason: str = ""
    """Why the job stops, if a limit was reached."""
    setback: bool = False
    """The backend may have lost what it last took (a fail-over, a restart): nothing is known for certain to be in
    it that was not learnt from this answer on."""
    room: int | None = None
    """How many new requests may be sent before the next answer (``max_queued``); ``None``: any number."""
    revision: int = 0
    """Grows whenever settings are changed while the job runs; see ``Frontier.changes``. 0: they never were."""


class Resolution(StrEnum):
    """What becomes of a leased request."""

    DONE = "done"
    RETRY = "retry"
    FAILED = "failed"


class OutputMark(msgspec.Struct, array_like=True, frozen=True):
    """A byte range of a part file that holds the items of one outcome."""

    part: str
    start: int
    end: int


class Outcome(msgspec.Struct, array_like=True, frozen=True):
    """What came of a lease. Committed as a whole or not at all."""

    lease_id: int
    resolution: Resolution
    entries: list[Entry] = []
    """New requests found."""
    counters: dict[str, int] = {}
    outputs: list[OutputMark] = []
    error: str = ""
    """For ``RETRY`` and ``FAILED``: what went wrong, in one line, beginning with its kind."""
    after: float = 0.0
    """For ``RETRY``: seconds to wait."""
    free: bool = False
    """For ``RETRY``: the attempt does not count (the turn was spent on robots.txt, say)."""
    record: bytes | None = None
    """For ``RETRY``: replaces the stored request."""
    task: str = ""
    """Key under which it is counted (``Frontier.tallies``), besides its worker and its host; empty: none."""


class AddResult(msgspec.Struct, array_like=True, frozen=True):
    """How many entries were new, how many known, and how many are of a banned host."""

    added: int
    known: int
    banned: int = 0


class SeedClaim(msgspec.Struct, array_like=True, frozen=True):
    """The duty to load the seeds, held by one worker at a time."""

    token: int
    position: int
    """How many seeds were taken from ``start`` before; the loader skips so many."""


class SeedMark(msgspec.Struct, array_like=True, frozen=True):
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
    held_for: float
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


class OutsideSeed(msgspec.Struct, array_like=True, frozen=True):
    """One element of a seed key, as a foreign program has put it there."""

    key: str
    value: bytes
    priority: int
    """The score in a sorted set; 0 elsewhere."""


class SeedBatch(msgspec.Struct, array_like=True, frozen=True):
    """Elements taken out of the seed keys and not yet settled: if their taker dies, another gets them."""

    token: int
    seeds: list[OutsideSeed]


@runtime_checkable
class Divided(Protocol):
    """A frontier whose parts lie on several servers, one of which may be away while the others go on."""

    def lane_of(self, lease_id: int) -> int:
        """Return the number of the part that gave a lease."""
        ...

    async def unknown_of(self, fingerprints: Sequence[bytes], slots: Sequence[str]) -> list[bool]:
        """Tell as :meth:`Frontier.unknown` which fingerprints are new, given their slots, but by asking less."""
        ...


def steady_clock() -> Callable[[], float]:
    """Return a clock of Unix time that never jumps: the wall clock of now, moved on by the monotonic one."""
    offset = time.time() - time.monotonic()
    return lambda: offset + time.monotonic()


QueueOrder = Literal["priority", "fifo", "lifo", "random"]


class Limits(msgspec.Struct, frozen=True):
    """Amounts at which a job stops, over all its workers and runs; ``None``: no limit."""

    pages: int | None = None
    items: int | None = None
    errors: int | None = None
    """Dead letters."""
    bytes: int | None = None
    """Body bytes fetched."""

    def reached(self, counters: Mapping[str, int], failed: int) -> str:
        """Name the limit that is reached, such as ``100 pages``; empty if none is."""
        if self == _NO_LIMITS:
            return ""
        amounts = {
            "pages": (self.pages, counters.get("pages", 0)),
            "items": (self.items, counters.get("items", 0)),
            "errors": (self.errors, failed),
            "bytes": (self.bytes, counters.get("bytes", 0)),
        }
        for name, (limit, amount) in amounts.items():
            if limit is not None and amount >= limit:
                return f"{limit} {name}"
        return ""

    def room(self, counters: Mapping[str, int], leased: int, wanted: int) -> int:
        """Return how many requests may be leased so that the pages do not pass their limit."""
        if self.pages is None:
            return wanted
        return max(0, min(wanted, self.pages - counters.get("pages", 0) - leased))


_NO_LIMITS = Limits()


class FrontierOptions(msgspec.Struct, frozen=True):
    """How a frontier keeps its job."""

    order: QueueOrder = "priority"
    """Within a slot: ``priority`` (high first, then first come), ``fifo``, ``lifo`` or ``random``."""
    lease_seconds: float = 60.0
    """A lease that is not renewed for so long goes back to the queue."""
    max_lost: int = 5
    """A request whose lease was lost more often than this becomes a dead letter: it kills workers."""
    visited_ttl: float | None = None
    """Seconds after which a *done* request may be added again; ``None``: never, 0: at once (reload).
    A request that is still queued, delayed or leased is known whatever its age."""
    failed_stay_known: bool = True
    """Whether a link to a request given up is refused as known. ``False``: it may be added again."""
    durability: Literal["process", "machine"] = "process"
    """``process``: what was answered survives SIGKILL; ``machine``: it survives power loss too."""
    limits: Limits = Limits()
    """Amounts at which the job stops."""
    seen_in_memory: int = 20_000_000
    """Fingerprints kept in memory (0.1 GB a million) before the seen set moves to disk."""
    max_queued: int | None = None
    """Requests queued, delayed and leased from which on the workers are asked to send no new ones. Softly: what
    is on its way comes in, and where nothing can be leased any more there is always room for a page's links."""
    seen_filter: Literal["exact", "compact"] = "exact"
    """``compact``: a backend in the memory of a server may keep so little of each fingerprint that it takes an
    unknown one for known, and so loses its request, with the probability ``seen_error_rate``. Not with a
    ``visited_ttl``. The embedded backends are exact always."""
    seen_error_rate: float = 1e-6
    wait_for_seeds: float = 0.0
    """Seconds for which a job that has nothing to do waits for seeds from outside before it is finished;
    infinity: for ever."""
    seed_keys: tuple[str, ...] = ()
    """Keys from which seeds are taken; only for a frontier that has :class:`SeedKeys`."""
    task_counter_prefix: str | None = None
    """Of plain counters of items per task, where the backend has some that others can read."""
    task_counter_ttl: float | None = None
    """Seconds for which such a counter outlives its last change."""
    tallies_kept: int = 10_000
    """Workers, hosts and tasks each that are counted one by one; beyond, the smallest are counted together."""

    def room(self, queued: int, delayed: int, leased: int, counters: Mapping[str, int]) -> int | None:
        """Return how many new requests a frontier with so many has room for; ``None``: any number.

        There is always some where nothing more can be leased before something is committed.
        """
        if self.max_queued is None:
            return None
        may_lease = queued > 0 and self.limits.room(counters, leased, 1) > 0
        return max(self.max_queued - queued - delayed - leased, 0 if may_lease else 1)


class FrontierContext(msgspec.Struct, frozen=True):
    """What a backend is told about the job it serves."""

    job: str
    directory: str
    """The job's own folder on this machine; exists."""
    politeness: Politeness
    options: FrontierOptions = FrontierOptions()
    joining: bool = False
    """Others are at work on the job: a backend that is away is waited for, also to open it."""
    attach: bool = False
    """Take the job as it is, its options included, and refuse to begin one; for shared backends."""


class JobInfo(msgspec.Struct, frozen=True):
    """What a worker must know of the job before it begins."""

    fingerprint_seed: int
    """Secret of the job, so that nobody can prepare colliding URLs."""
    fingerprint_version: int
    lease_seconds: float
    """A lease is to be renewed well before so many seconds have passed."""


class Frontier(Protocol):
    """What to fetch next. Every backend passes the same contract suite (``tests/contract``)."""

    shared: ClassVar[bool]
    """Whether every process opens it by its URL. If not, one process owns it and serves the others."""

    async def open(self) -> JobInfo:
        """Open or create the job. Raises :class:`~skitter.errors.FrontierError` with a remedy."""
        ...

    async def close(self) -> None:
        """Give the backend back; an owner hands all leases back first."""
        ...

    async def unknown(self, fingerprints: Sequence[bytes]) -> list[bool]:
        """Tell which fingerprints are new: a hint to build and send only new requests."""
        ...

    async def add(self, entries: Sequence[Entry], seeds: SeedMark | None = None) -> AddResult:
        """Add requests with atomic de-duplication. Idempotent; durable when it returns."""
        ...

    async def claim_seeds(self, worker: str) -> SeedClaim | None:
        """Take the duty of loading the seeds, or ``None`` if it is done or another worker has it."""
        ...

    async def lease(
        self, worker: str, limit: int, landed: Sequence[Landing] = (), shares: Shares | None = None
    ) -> LeaseResult:
        """Hand out at most ``limit`` requests that may be fetched now.

        Ready slots by their next allowed time, within a slot by the queue order. ``landed`` frees
        the places of fetches that ended since the last call. ``shares``: the queues from which to lease, and how many
        at most from each; ``None``: any number of any. The state is that of the whole job in any case.
        """
        ...

    async def renew(self, worker: str, lease_ids: Sequence[int]) -> list[int]:
        """Extend leases; returns the ids that are no longer held."""
        ...

    async def commit(self, outcomes: Sequence[Outcome]) -> list[bool]:
        """Close leases, each atomically with its new requests, counters and output marks.

        Durable when it returns. ``False`` for a late outcome, of which nothing is kept.
        """
        ...

    async def release(self, lease_ids: Sequence[int]) -> None:
        """Hand leases back untouched: same place in the queue, no attempt counted."""
        ...

    async def abandon(self, worker: str) -> int:
        """Take back everything a dead worker held, one loss counted each; returns how many."""
        ...

    async def status(self) -> FrontierStatus:
        """Read all counts at one moment."""
        ...

    async def control(self, state: JobState) -> JobState:
        """Ask for ``RUNNING``, ``PAUSED`` or ``STOPPING``; returns the state that holds now."""
        ...

    async def hold(self, slot: str, seconds: float) -> None:
        """Give out nothing of a slot for so long."""
        ...

    async def set_delay(self, slot: str, seconds: float) -> None:
        """Set a floor for the delay of one slot (Crawl-delay)."""
        ...

    async def recall(self, key: str) -> bytes | None:
        """Read a small shared note (robots.txt of a host), if it has not run out."""
        ...

    async def remember(self, key: str, value: bytes, ttl: float) -> None:
        """Keep a small shared note for ``ttl`` seconds."""
        ...

    async def swap(self, key: str, old: bytes | None, new: bytes, ttl: float) -> bool:
        """Keep a shared note if the one kept now is ``old`` (``None``: there is none), in one step.

        ``False``: the note is another one by now: read it and try again. (Where a call is repeated because its
        answer was lost, that may be the caller's own.)
        """
        ...

    async def dead_letters(self, after: int = 0, limit: int = 100) -> list[DeadLetter]:
        """List requests given up, oldest first, with ``id`` greater than ``after``."""
        ...

    async def replay(self, ids: Sequence[int] | None = None) -> int:
        """Put dead letters (all by default) back in the queue with fresh attempts."""
        ...

    async def drop(self, ids: Sequence[int] | None = None) -> int:
        """Forget dead letters (all by default)."""
        ...

    async def recrawl(self) -> bool:
        """Begin a finished job again: its seeds are loaded anew; ``False`` if it is not finished.

        With a ``visited_ttl`` the pages whose visit has run out are fetched again; without one every page
        is. Counters go on, and each visit gives its items anew.
        """
        ...

    async def tallies(self, group: TallyGroup, limit: int = 100) -> list[Tally]:
        """Read what was counted per worker, host or task: the most pages first."""
        ...

    async def announce(self, report: WorkerReport, ttl: float) -> None:
        """Tell that a worker is there, which is believed for ``ttl`` seconds; 0: it has left."""
        ...

    async def workers(self) -> list[WorkerStatus]:
        """List the workers of which was heard lately, by machine."""
        ...

    async def changes(self) -> Changes:
        """Return the settings that were changed while the job ran, and hold for all its workers and runs."""
        ...

    async def change(self, changes: Changes, reset: bool = False) -> Changes:
        """Change settings at once, on top of earlier changes or (``reset``) instead of them; returns what holds."""
        ...

    async def drop_slot(self, slot: str, ban: bool = False) -> int:
        """Remove what waits in a slot; returns how many.

        That of a host in the default queue stands for the host in all queues. They count as ``refused/dropped`` and stay known. What is on lease is finished. ``ban``: from now on
        every request for the slot is refused, as ``refused/banned``, a retry as well.
        """
        ...

    async def unban(self, slot: str) -> bool:
        """Take requests for a slot again; ``False`` if it was not banned."""
        ...

    async def banned(self) -> list[str]:
        """List the banned slots."""
        ...

    async def outputs(self) -> dict[str, list[tuple[int, int]]]:
        """Return the committed byte ranges of each part file, in order."""
        ...


class NoSuchJob(FrontierError):
    """A shared frontier has no job of this name."""


@runtime_checkable
class SharedRules(Protocol):
    """A frontier that all machines share, and of which each can learn what it must know of a job."""

    @property
    def politeness(self) -> Politeness:
        """Which slot a host is in; known once it is open."""
        ...

    async def jobs(self) -> list[str]:
        """List all jobs that are there, by name. For a frontier that is not open."""
        ...


@runtime_checkable
class SeedKeys(Protocol):
    """A frontier that can take seeds from keys of its server (``FrontierOptions.seed_keys``)."""

    async def take_seeds(self, limit: int) -> SeedBatch | None:
        """Take elements out of the keys, in the order in which the keys are named; ``None``: there are none.

        Within a key: a list from its right end, a sorted set by its scores, high first, a set at random.
        The job is not finished while there is anything in a key, or taken and not settled.
        """
        ...

    async def settle_seeds(
        self, token: int, entries: Sequence[Entry], rejected: Sequence[tuple[Entry, str]]
    ) -> bool:
        """Turn a batch into requests, and what is none into dead letters with their errors, in one step.

        ``False``, and nothing happens, if the batch went to somebody else meanwhile.
        """
        ...
