"""A job on one backend, and the counts that must hold after each call."""

import hashlib
import math

from frontier_backends import Backend, Clock
from msgspec.structs import replace

from skitter._version import VERSION
from skitter.frontier.options import FrontierSettings
from skitter.frontier.records import (
    Entry,
    FetchReport,
    FrontierStatus,
    JobState,
    Lease,
    LeaseResult,
    LinkBatch,
    Outcome,
    Resolution,
    SeedProgress,
)
from skitter.frontier.workers import WorkerReport
from skitter.politeness import Politeness

_PARTS = {"control", "dead_letters", "notes", "reports", "seed_keys", "liveness", "partitions", "catalog"}


class CheckedFrontier:
    """A frontier, or one of its parts, that checks the counts after each call."""

    def __init__(self, frontier, part=None) -> None:
        self.unchecked = frontier
        self._called = frontier if part is None else part

    def __getattr__(self, name):
        found = getattr(self._called, name)
        if self._called is self.unchecked and name in _PARTS:
            return None if found is None else CheckedFrontier(self.unchecked, found)
        if not callable(found):
            return found

        async def call(*arguments, **named):
            result = await found(*arguments, **named)
            check_counts(await self.unchecked.status())
            return result

        return call


def check_counts(status: FrontierStatus) -> None:
    """Check that ``added == queued + delayed + leased + done + failed`` and that no count is negative."""
    parts = (status.queued, status.delayed, status.leased, status.done, status.failed)
    assert min(parts) >= 0, status
    assert status.added == sum(parts), status
    assert sum(slot.leased for slot in status.busiest) <= status.leased
    if status.slots <= 20:
        assert sum(slot.queued for slot in status.busiest) == status.queued, status


def report_of(worker: str) -> WorkerReport:
    return WorkerReport(worker, "host", 1, VERSION, 0.0, 1, 0, 0, 0, 0, 0, 0.0)


class Job:
    """A job on one backend, with short methods for the calls of a worker."""

    def __init__(self, backend: Backend, politeness: Politeness, options: FrontierSettings) -> None:
        self.backend = backend
        self.politeness = politeness
        self.options = options
        self.clock = Clock()

    async def open(self):
        self.frontier = CheckedFrontier(await self.backend.start(self.politeness, self.options, self.clock))
        return self

    async def reopen(self) -> None:
        await self.backend.stop()
        await self.open()

    async def kill(self) -> None:
        """End the job as SIGKILL does, and start it again."""
        await self.backend.kill()
        await self.open()

    @staticmethod
    def entry(name, host="h.test", **fields) -> Entry:
        url = f"http://{host}/{name}"
        key = hashlib.blake2b(url.encode(), digest_size=16).digest()
        return Entry(key, host, url, fields.pop("record", b"\x01"), **fields)

    def entries(self, *names, host="h.test", **fields) -> list[Entry]:
        return [self.entry(name, host, **fields) for name in names]

    @staticmethod
    def batch(entries: list[Entry]) -> LinkBatch:
        """Return entries that differ only in URL, fingerprint, slot and priority as a batch."""
        first = entries[0]
        return LinkBatch(
            replace(first, fingerprint=b"", slot="", url=""),
            [entry.url for entry in entries],
            [entry.fingerprint for entry in entries],
            [entry.slot for entry in entries],
            [entry.priority - first.priority for entry in entries],
        )

    async def add(self, *names, host="h.test", **fields) -> int:
        """Add requests by name. Return the number of new ones."""
        entries = [n if isinstance(n, Entry) else self.entry(n, host, **fields) for n in names]
        return (await self.frontier.add(entries)).added

    async def ask(self, limit=100_000, worker="w", reports=()) -> LeaseResult:
        return await self.frontier.lease(worker, limit, reports)

    async def lease(self, limit=100_000, worker="w", reports=()) -> list[Lease]:
        return (await self.ask(limit, worker, reports)).leases

    async def one(self, worker="w") -> Lease:
        """Lease exactly one request."""
        (lease,) = await self.lease(1, worker)
        return lease

    async def end_fetch(self, lease: Lease, latency=0.1, **fields) -> None:
        """Report the end of a fetch without asking for leases."""
        await self.lease(0, reports=[FetchReport(lease.id, latency, **fields)])

    async def done(self, *leases: Lease, **fields) -> list[bool]:
        return await self.frontier.commit([Outcome(n.id, Resolution.DONE, **fields) for n in leases])

    async def retry(self, *leases: Lease, **fields) -> list[bool]:
        fields.setdefault("error", "http/500")
        return await self.frontier.commit([Outcome(n.id, Resolution.RETRY, **fields) for n in leases])

    async def fail(self, *leases: Lease, error="http/404") -> list[bool]:
        return await self.frontier.commit([Outcome(n.id, Resolution.FAILED, error=error) for n in leases])

    async def status(self) -> FrontierStatus:
        return await self.frontier.status()

    async def counts(self) -> dict[str, int]:
        """Return the number of requests in each state, without empty states."""
        status = await self.status()
        states = ("queued", "delayed", "leased", "done", "failed")
        return {name: getattr(status, name) for name in states if getattr(status, name)}

    async def wait_for_one(
        self, worker="w", step=0.0625, patience=1000.0, precision=0.0
    ) -> tuple[float, Lease]:
        """Ask repeatedly until there is a lease. Return the elapsed seconds and the lease.

        Asks every ``step`` seconds, or at intervals of ``precision`` times the elapsed time if these are longer.
        """
        begun = self.clock.now
        while self.clock.now - begun < patience:
            answer = await self.frontier.unchecked.lease(worker, 1)
            if answer.leases:
                check_counts(await self.status())
                return self.clock.now - begun, answer.leases[0]
            waited = self.clock.now - begun
            coarse = 2.0 ** math.frexp(waited * precision)[1] / 2 if precision else 0.0
            await self.clock.advance(max(step, coarse))
        raise AssertionError(f"nothing was handed out within {patience} seconds")

    async def seeds_done(self) -> None:
        """Report that all seeds are loaded."""
        claim = await self.frontier.claim_seeds("seeder")
        await self.frontier.add([], SeedProgress(claim.token, claim.position, done=True))

    async def is_finished(self) -> bool:
        return (await self.status()).state is JobState.FINISHED

    async def urls_left(self) -> list[str]:
        """Lease and finish all requests. Return the last parts of their URLs in order."""
        names = []
        while leases := await self.lease(1):
            names.append(leases[0].url.rpartition("/")[2])
            await self.done(*leases)
        return names
