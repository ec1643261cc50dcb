"""The live workers of a job, according to their announcements."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import msgspec

from skitter._utils.process_identity import is_provably_dead, process_identity
from skitter.frontier.records import FrontierStatus
from skitter.queues import DEFAULT_QUEUE

HEARTBEAT_SECONDS = 2.0
"""Seconds between two heartbeats of a worker."""
LIVENESS_SECONDS = 6.0
"""Seconds without a heartbeat after which a worker is suspected to be dead."""
SUSPICION_SECONDS = 3.0
"""Seconds that a suspected worker has to report. They begin when another worker notices the silence: after an outage
of the server, all workers are silent, and none of them is dead."""


def worker_name(suffix: str = "", pid: int | None = None) -> str:
    """Return the name of a worker in a process, by default in this one: unique among all workers that ever ran a job.

    ``suffix``: distinguishes the workers of one process; empty: a new one.
    """
    return f"{process_identity(pid)}-{suffix or os.urandom(6).hex()}"


def has_died(worker: str) -> bool:
    """Return whether the process of a worker ran on this machine and has ended. ``False`` if that cannot be proved."""
    return is_provably_dead(worker)


PARTICIPANTS = "skitter:scrapy:processes"
"""Key of the note with the :class:`Participants` of a job."""
_FORMAT = 1


class WorkerReport(msgspec.Struct, frozen=True):
    """The announcement of a worker."""

    name: str
    """Unique among all workers that ever ran the job."""
    host: str
    """Name of the machine."""
    pid: int
    version: str
    """Version of skitter."""
    age: float
    """Seconds since the start of the worker."""
    concurrency: int
    fetching: int
    """Number of fetches in progress."""
    held: int
    """Number of leases: fetches in progress and pages that wait for their commit."""
    pages: int
    """Number of pages committed since the start of the worker; ``items`` and ``bytes`` are counted in the same way."""
    items: int
    bytes: int
    pages_per_second: float
    """Average over the last ten seconds."""
    queues: tuple[str, ...] = ()
    """The queues that it serves; empty: all."""
    waits: str = ""
    """Why its requests wait, such as proxies that do not respond; empty if they do not."""

    def serves(self, queue: str) -> bool:
        """Return whether the worker leases requests of a queue."""
        return not self.queues or queue in self.queues


class WorkerStatus(msgspec.Struct, frozen=True):
    """A worker that announced itself recently."""

    report: WorkerReport
    heard: float
    """Seconds since its last announcement."""


class Participants(msgspec.Struct, frozen=True):
    """The processes of a Scrapy project that have not agreed on the end of the crawl. See ``docs/design/scrapy.md``."""

    format: int = _FORMAT
    idle_at: dict[str, str] = {}
    """For each worker, the reading of the frontier at which its handlers had no request to add. An empty text: they may
    still add some."""

    def include_any(self, workers: Iterable[WorkerStatus]) -> bool:
        """Return whether one of the workers takes part."""
        return any(worker.report.name in self.idle_at for worker in workers)


def decode_participants(note: bytes | None) -> Participants:
    """Read the note of a job; ``None``: there are no participants."""
    return Participants() if note is None else msgspec.msgpack.decode(note, type=Participants)


def in_order(workers: Iterable[WorkerStatus]) -> list[WorkerStatus]:
    """Sort workers by machine, the oldest first."""
    return sorted(workers, key=lambda worker: (worker.report.host, -worker.report.age, worker.report.name))


def queues_without_workers(status: FrontierStatus, workers: Sequence[WorkerStatus]) -> dict[str, int]:
    """Return the number of waiting requests of each queue that no worker serves.

    In a job without named queues and without workers, the result is empty.
    """
    queues = status.queues or ({DEFAULT_QUEUE: status.queued} if workers else {})
    return {
        queue: waiting
        for queue, waiting in queues.items()
        if waiting and not any(worker.report.serves(queue) for worker in workers)
    }
