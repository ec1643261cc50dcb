"""The frontier contract: what every backend promises, and what some promise beyond it.

A frontier is the only durable truth of a job.
"""

from collections.abc import Sequence
from typing import ClassVar, Protocol, runtime_checkable

from skitter.errors import FrontierError
from skitter.frontier.options import SettingsChanges
from skitter.frontier.records import (
    AddResult,
    DeadLetter,
    Entry,
    FetchReport,
    FrontierStatus,
    JobInfo,
    JobState,
    LeaseResult,
    Outcome,
    SeedBatch,
    SeedClaim,
    SeedProgress,
)
from skitter.frontier.stats import StatsGroup, StatsRow
from skitter.frontier.workers import WorkerReport, WorkerStatus
from skitter.politeness import Politeness
from skitter.queues import QueueQuotas


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

    async def add(self, entries: Sequence[Entry], seeds: SeedProgress | None = None) -> AddResult:
        """Add requests with atomic de-duplication. Idempotent; durable when it returns."""
        ...

    async def claim_seeds(self, worker: str) -> SeedClaim | None:
        """Take the duty of loading the seeds, or ``None`` if it is done or another worker has it."""
        ...

    async def lease(
        self, worker: str, limit: int, landed: Sequence[FetchReport] = (), shares: QueueQuotas | None = None
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
        """Give out nothing of a slot for so many seconds from now; an earlier hold that lasts longer stays."""
        ...

    async def set_delay(self, slot: str, seconds: float) -> None:
        """Set a floor, in seconds, for the delay of one slot (Crawl-delay)."""
        ...

    async def recall(self, key: str) -> bytes | None:
        """Read a small shared note (robots.txt of a host), if it has not run out."""
        ...

    async def remember(self, key: str, value: bytes, ttl: float) -> None:
        """Keep a small shared note for ``ttl`` seconds."""
        ...

    async def swap(self, key: str, old: bytes | None, new: bytes, ttl: float) -> bool:
        """Keep a shared note for ``ttl`` seconds if the one kept now is ``old`` (``None``: there is none), in one step.

        ``False``: the note is another one by now: read it and try again. (Where a call is repeated because its
        answer was lost, that may be the caller's own.)
        """
        ...

    async def dead_letters(self, after: int = 0, limit: int = 100) -> list[DeadLetter]:
        """List requests given up, oldest first, with ``id`` greater than ``after``."""
        ...

    async def replay(self, ids: Sequence[int] | None = None) -> int:
        """Put dead letters (all by default) back in the queue with fresh attempts; returns how many.

        One whose URL was added again since (it may be where failed requests do not stay known, and in a later
        crawl of the job) is taken out, counted as a refused duplicate, and not put back.
        """
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

    async def tallies(self, group: StatsGroup, limit: int = 100) -> list[StatsRow]:
        """Read what was counted per worker, host or task: the most pages first."""
        ...

    async def announce(self, report: WorkerReport, ttl: float) -> None:
        """Tell that a worker is there, which is believed for ``ttl`` seconds; 0: it has left."""
        ...

    async def workers(self) -> list[WorkerStatus]:
        """List the workers of which was heard lately, by machine."""
        ...

    async def changes(self) -> SettingsChanges:
        """Return the settings that were changed while the job ran, and hold for all its workers and runs."""
        ...

    async def change(self, changes: SettingsChanges, reset: bool = False) -> SettingsChanges:
        """Change settings at once, on top of earlier changes or (``reset``) instead of them; returns what holds."""
        ...

    async def drop_slot(self, slot: str, ban: bool = False) -> int:
        """Remove what waits in a slot; returns how many.

        The slot of a host in the default queue stands for the host in all queues. What waited counts as
        ``refused/dropped`` and stays known. What is on lease is finished. ``ban``: from now on every request for the
        slot is refused, as ``refused/banned``, a retry as well.
        """
        ...

    async def drop_task(self, task: str) -> int:
        """Remove what waits of a task (:mod:`skitter.frontier.group_filter`); returns how many.

        They count as ``refused/dropped`` and stay known. What is on lease, or comes while this is at work, is left.
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


@runtime_checkable
class ListsJobs(Protocol):
    """A frontier on a server that knows which jobs it has."""

    async def jobs(self) -> list[str]:
        """List all jobs that are there, by name. For a frontier that is not open."""
        ...


@runtime_checkable
class Partitioned(Protocol):
    """A frontier whose parts lie on several servers, one of which may be away while the others go on."""

    def lane_of(self, lease_id: int) -> int:
        """Return the number of the part that gave a lease."""
        ...

    async def unknown_of(self, fingerprints: Sequence[bytes], slots: Sequence[str]) -> list[bool]:
        """Tell as :meth:`Frontier.unknown` which fingerprints are new, given their slots, but by asking less."""
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
