"""The frontier contract: what every backend guarantees, and the features that only some backends have.

A frontier is the only durable state of a job. :class:`Frontier` is the queue; its attributes hold everything else:
:class:`Control`, :class:`DeadLetters`, :class:`Notes` and :class:`Reports`. The attribute of a feature that a backend
lacks is ``None``. Every backend passes the same contract suite (``tests/contract``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from skitter._utils.notes import Notes
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
    SlotStatus,
    VisitsPart,
)
from skitter.frontier.stats import StatsDimension, StatsRow
from skitter.frontier.workers import WorkerReport, WorkerStatus
from skitter.politeness import Politeness
from skitter.queues import QueueQuotas

__all__ = [
    "Catalog", "Control", "DeadLetters", "Frontier", "Liveness", "NoSuchJob", "Notes", "Partitions", "Reports", "SeedSource",
]  # fmt: skip


class Control(Protocol):
    """Changes the course of a running job. Every change is durable and holds for all workers."""

    async def set_state(self, state: JobState) -> JobState:
        """Request ``RUNNING``, ``PAUSED`` or ``STOPPING``. Return the state now in force."""

    async def pause_slot(self, slot: str, seconds: float) -> None:
        """Lease nothing from a slot for ``seconds`` from now. A longer pause already in force stays."""

    async def set_delay(self, slot: str, seconds: float) -> None:
        """Set the minimum delay of one slot, in seconds (Crawl-delay)."""

    async def settings_changes(self) -> SettingsChanges:
        """Return the settings that were changed while the job ran. They hold for later runs too."""

    async def change_settings(self, changes: SettingsChanges, *, reset: bool = False) -> SettingsChanges:
        """Change settings at once, on top of earlier changes or (``reset``) in their place. Return all changes in force."""

    async def drop_slot(self, slot: str, *, ban: bool = False) -> int:
        """Remove the waiting requests of a slot. Return their number.

        The slot of a host in the default queue stands for that host in all queues. Dropped requests count as
        ``refused/dropped`` and stay known; leased requests are finished. ``ban``: from now on refuse every request
        for the slot as ``refused/banned``, retries included.
        """

    async def drop_task(self, task: str) -> int:
        """Remove the waiting requests of a task, which their ``cb_kwargs`` name. Return their number.

        They count as ``refused/dropped`` and stay known. Leased requests, and requests added during the call, stay.
        """

    async def unban(self, slot: str) -> bool:
        """Accept requests for a slot again. Return ``False`` if it was not banned.

        Workers notice it by a new :attr:`~skitter.frontier.records.LeaseResult.revision`, and then clear their link
        caches, which still refuse the links to the slot.
        """

    async def banned(self) -> list[str]:
        """List the banned slots."""

    async def recrawl(self) -> bool:
        """Start a finished job again and reload its seeds. Return ``False`` if the job is not finished.

        With a ``visited_ttl``, pages whose visit has expired are fetched again; without one, every page is.
        Counters continue, and each visit produces its items again. A job that remembers pages forgets its output ranges:
        :meth:`Reports.visits` returns those of the remembered pages.
        """


class DeadLetters(Protocol):
    """Failed requests that are no longer retried."""

    async def list(self, after: int = 0, limit: int = 100) -> list[DeadLetter]:
        """List dead letters with ``id`` greater than ``after``, oldest first."""

    async def replay(self, ids: Sequence[int] | None = None) -> int:
        """Put dead letters (all by default) back in the queue with fresh attempts. Return their number.

        A dead letter whose URL has been added again since then (``refetch_failed``, or a later crawl of the job) is
        removed and counted as a refused duplicate instead.
        """

    async def drop(self, ids: Sequence[int] | None = None) -> int:
        """Delete dead letters (all by default). Return their number."""

    async def drop_superseded(self) -> int:
        """Delete dead letters whose URL was added again since, as :meth:`replay` describes. Return their number.

        When a pass is finished, these letters are outdated: their pages were fetched, or have newer letters.
        """


class Reports(Protocol):
    """The statistics and the workers of a job."""

    async def stats(self, dimension: StatsDimension, limit: int = 100) -> list[StatsRow]:
        """Return the counts per worker, host or request group, most pages first."""

    async def slots(self, limit: int) -> list[SlotStatus]:
        """Return the slots with queued or leased requests, most queued first."""

    async def outputs(self) -> dict[str, list[tuple[int, int]]]:
        """Return the committed byte ranges of each part file, in order."""

    async def visits(self, cursor: str = "", limit: int = 1000) -> VisitsPart:
        """Return some of the remembered pages, without those that an earlier pass reported as gone.

        ``cursor``: that of the part before. A page is returned at least once, unless it is removed meanwhile; on some
        backends it may be returned twice, and a part may be empty or exceed ``limit``.
        """

    async def announce(self, report: WorkerReport, ttl: float) -> None:
        """List a worker with its statistics for ``ttl`` seconds. 0: the worker has left, and its claim of the seeds ends."""

    async def workers(self) -> list[WorkerStatus]:
        """List the workers that announced themselves recently, by machine."""


class SeedSource(Protocol):
    """Seeds that other programs write, into keys of the frontier's server or into topics of its broker."""

    async def take(self, worker: str, limit: int) -> SeedBatch | None:
        """Take up to ``limit`` seeds for a worker. Return ``None`` if there are none.

        If the worker dies, leaves, or does not settle them within ``lease_seconds``, the next call takes them.

        Keys are read in the order in which they are configured (``FrontierSettings.seed_keys``). Within a key: a list
        from its right end, a sorted set by score, highest first, a set at random. The job is not finished while a key
        has elements, or a batch of them is not settled. Messages in topics do not delay the end.
        """

    async def settle(
        self, token: int, entries: Sequence[Entry], rejected: Sequence[tuple[Entry, str]]
    ) -> bool:
        """Turn a batch into requests, and its invalid seeds into dead letters of the kind ``seed``, in one step.

        ``rejected``: the invalid seeds, each with the reason.
        Return ``False``, without effect, if the batch was taken from the worker in the meantime.
        """


class Partitions(Protocol):
    """The parts of a frontier that is spread over several servers. One may be unavailable while the others work."""

    def of_lease(self, lease_id: int) -> int:
        """Return the number of the partition that granted a lease."""

    async def unknown(self, fingerprints: Sequence[bytes], slots: Sequence[str]) -> list[bool]:
        """Look up fingerprints like :meth:`Frontier.unknown`, but only in the partitions that hold ``slots``."""


class Liveness(Protocol):
    """Which workers are alive, on a frontier that cannot notice the end of a worker itself.

    It has its own connection, so that it can be used on the event loop of another thread. Use it after the
    frontier was opened, on one event loop at a time.
    """

    async def open(self) -> None:
        """Connect."""

    async def close(self) -> None:
        """Disconnect. :meth:`open` connects again."""

    async def beat(self, worker: str) -> list[str]:
        """Record that a worker is alive. Return dead workers, whose leases the caller must reclaim (``abandon``).

        A worker is dead if its heartbeats are missing for ``LIVENESS_SECONDS``, and after that for
        ``SUSPICION_SECONDS`` while another worker is alive (:mod:`skitter.frontier.workers`). It is returned to one
        caller at a time, repeatedly until its leases are reclaimed. Raises :class:`~skitter.errors.FrontierError` at
        once if the server does not respond.
        """

    async def workers(self) -> list[str]:
        """List all workers, dead or alive, that have neither left nor been abandoned."""


class Catalog(Protocol):
    """The jobs on a server. Works on a frontier that is not open."""

    async def jobs(self) -> list[str]:
        """List all jobs on the server, by name."""


class Frontier(Protocol):
    """The queue of a job, with the known URLs and all counts."""

    @property
    def shared(self) -> bool:
        """Whether every process opens the frontier by its URL. If not, one process owns it and serves the others."""

    @property
    def control(self) -> Control:
        """Changes the course of the job."""

    @property
    def dead_letters(self) -> DeadLetters:
        """Failed requests that are no longer retried."""

    @property
    def notes(self) -> Notes:
        """Small values that the workers share."""

    @property
    def reports(self) -> Reports:
        """Counts, outputs and workers."""

    @property
    def politeness(self) -> Politeness | None:
        """The politeness rules that the job was created with, on a shared frontier that is open; elsewhere ``None``."""

    @property
    def seed_keys(self) -> SeedSource | None:
        """Seeds in the keys that the job names; ``None`` if the backend has no keys that other programs can write to."""

    @property
    def topic_seeds(self) -> SeedSource | None:
        """Seeds that other programs publish to the topics of the job; ``None`` if the backend has no topics."""

    @property
    def liveness(self) -> Liveness | None:
        """Which workers are alive; ``None`` if the frontier itself notices the end of a worker, for example by a closed connection."""

    @property
    def partitions(self) -> Partitions | None:
        """The parts of a frontier on several servers; ``None`` if all requests are on one server."""

    @property
    def catalog(self) -> Catalog | None:
        """The jobs on the server; ``None`` if the backend cannot list them."""

    async def open(self) -> JobInfo:
        """Open or create the job. Raises :class:`~skitter.errors.FrontierError` if that fails."""

    async def close(self) -> None:
        """Release the backend. An owner releases all leases first."""

    def limit_outages(self, seconds: float) -> None:
        """Let calls wait for an unavailable server until ``seconds`` from now, and no longer. Called at the end of a process.

        Calls that already wait are included. Afterwards, each call is tried once.
        """

    async def erase(self) -> None:
        """Delete the job. Call it before :meth:`open`."""

    async def unknown(self, fingerprints: Sequence[bytes]) -> list[bool]:
        """Return for each fingerprint whether it is new, so that callers build and send only new requests.

        This is a hint: another worker may add the same request before the caller does.
        """

    async def add(self, entries: Sequence[Entry], seeds: SeedProgress | None = None) -> AddResult:
        """Add requests with atomic deduplication. Idempotent; durable on return."""

    async def claim_seeds(self, worker: str) -> SeedClaim | None:
        """Claim the loading of the seeds. Return ``None`` if they are loaded or another worker has the claim."""

    async def lease(
        self, worker: str, limit: int, reports: Sequence[FetchReport] = (), quotas: QueueQuotas | None = None
    ) -> LeaseResult:
        """Lease at most ``limit`` requests that may be fetched now.

        Slots are ordered by their next allowed time, the requests of a slot by the queue order. ``reports`` frees the
        slots of fetches that ended since the last call. ``quotas``: which queues to lease from, and the maximum number of
        leases from each; ``None``: any number from any queue. The returned state is always that of the whole job.
        """

    async def renew(self, worker: str, lease_ids: Sequence[int]) -> list[int]:
        """Extend leases. Return the ids of leases that the worker no longer holds."""

    async def commit(self, outcomes: Sequence[Outcome]) -> list[bool]:
        """Close leases, each atomically with its new requests, counters and output ranges.

        The result is durable on return. ``False`` marks a late outcome, which is not stored.
        """

    async def release(self, lease_ids: Sequence[int]) -> None:
        """Return leases unused: the requests keep their place in the queue and no attempt is counted."""

    async def abandon(self, worker: str) -> int:
        """Reclaim all leases and seeds of a dead worker, and count a lost lease for each request. Return the number of leases."""

    async def status(self) -> FrontierStatus:
        """Read all counts at one moment."""


class NoSuchJob(FrontierError):
    """A shared frontier has no job of this name."""
