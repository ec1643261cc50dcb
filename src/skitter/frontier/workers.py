"""WorkerRegistry: the workers of a job that are alive, as they announce themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec


class WorkerReport(msgspec.Struct, frozen=True):
    """What a worker tells of itself."""

    name: str
    """Unique among all workers that ever ran the job."""
    host: str
    """Name of its machine."""
    pid: int
    version: str
    """Of skitter."""
    age: float
    """Seconds since it began."""
    concurrency: int
    fetching: int
    """Fetches in flight."""
    held: int
    """Leases held: in flight, or waiting for their commit."""
    pages: int
    """Since it began, as are ``items`` and ``bytes``; what its commits hold."""
    items: int
    bytes: int
    pages_per_second: float
    """Over the last ten seconds."""
    queues: tuple[str, ...] = ()
    """Those that it serves; empty: all."""

    def serves(self, queue: str) -> bool:
        """Tell whether it takes requests of a queue."""
        return not self.queues or queue in self.queues


class WorkerStatus(msgspec.Struct, frozen=True):
    """A worker of whom was heard lately."""

    report: WorkerReport
    heard: float
    """Seconds since it announced itself last."""


class WorkerRegistry:
    """The workers of one job in the memory of its owner. Shared by the embedded frontiers."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[WorkerReport, float, float]] = {}

    def announce(self, report: WorkerReport, ttl: float, now: float) -> None:
        """Believe that a worker is there, for ``ttl`` seconds; 0: it has left."""
        self._known = {name: entry for name, entry in self._known.items() if entry[2] > now}
        if ttl > 0:
            self._known[report.name] = (report, now, now + ttl)
        else:
            self._known.pop(report.name, None)

    def forget(self, worker: str) -> None:
        """Strike out a dead worker."""
        self._known.pop(worker, None)

    def read(self, now: float) -> list[WorkerStatus]:
        """Return the workers alive."""
        alive = [(report, heard) for report, heard, until in self._known.values() if until > now]
        return in_order(WorkerStatus(report, max(0.0, now - heard)) for report, heard in alive)


def in_order(workers: Iterable[WorkerStatus]) -> list[WorkerStatus]:
    """Return workers as they are read: by machine, then the oldest first."""
    return sorted(workers, key=lambda worker: (worker.report.host, -worker.report.age, worker.report.name))


def unserved(queues: Mapping[str, int], workers: Sequence[WorkerStatus]) -> dict[str, int]:
    """Return how many requests wait in each queue that none of some workers takes from."""
    return {
        queue: waiting
        for queue, waiting in queues.items()
        if waiting and not any(worker.report.serves(queue) for worker in workers)
    }
