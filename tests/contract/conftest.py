"""The backends that the contract suite runs over, and the bench that drives one job of a backend.

A new backend joins by a subclass of :class:`Backend` in ``BACKENDS``. All times are those of a
:class:`Clock`; a backend whose clock is a server's follows it through an offset.
"""

import contextlib
import hashlib
import math
import shutil
import uuid
from pathlib import Path

import pytest

from services import nats_servers, nsq_servers
from services.redis_cluster import running_cluster
from services.redis_servers import running
from skitter.errors import FrontierError
from skitter.frontier.broker.address import parse_address
from skitter.frontier.broker.by_queue import BrokerFrontierByQueue
from skitter.frontier.broker.hand import Pace
from skitter.frontier.broker.sqlite_state import SqliteState
from skitter.frontier.client import RemoteFrontier
from skitter.frontier.memory import MemoryFrontier
from skitter.frontier.options import FrontierOptions
from skitter.frontier.records import (
    Entry,
    FrontierStatus,
    JobState,
    Landing,
    Lease,
    LeaseResult,
    Outcome,
    Resolution,
    SeedMark,
)
from skitter.frontier.server import FrontierServer
from skitter.frontier.sqlite import SqliteFrontier
from skitter.politeness import Politeness, SlotPolicy

NO_LIMITS = SlotPolicy(delay=0.0, parallelism=100_000)


class Clock:
    """A clock that moves only when it is told to."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now

    async def advance(self, seconds: float) -> None:
        self.now += seconds


class Backend:
    """How a frontier is started and ended. ``start`` after ``stop`` or ``kill`` is its next life."""

    name = ""
    durable = False

    def __init__(self, folder: Path) -> None:
        self.home = self.folder = folder
        self.life = 1

    async def start(self, politeness: Politeness, options: FrontierOptions, clock: Clock):
        """Return an open frontier."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Close in good order."""
        raise NotImplementedError

    async def kill(self) -> None:
        """Let go of everything that a SIGKILL would take away."""
        raise NotImplementedError

    async def noted(self) -> None:
        """Return when it is durable what a lease leaves to be written a moment later."""


class InMemory(Backend):
    name = "memory"

    async def start(self, politeness, options, clock):
        self.frontier = MemoryFrontier(politeness, options, clock=clock)
        await self.frontier.open()
        return self.frontier

    async def stop(self):
        await self.frontier.close()


class OnSqlite(Backend):
    name = "sqlite"
    durable = True

    async def start(self, politeness, options, clock):
        self.owner = SqliteFrontier(self.folder / "frontier.db", politeness, options, clock=clock)
        self.info = await self.owner.open()
        return self.owner

    async def stop(self):
        await self.owner.close()

    async def noted(self):
        await self.owner._journal.flush()

    async def kill(self):
        """Go on with what the file system held at this moment: what a killed owner leaves behind."""
        self.life += 1
        after = self.home / f"life{self.life}"
        after.mkdir()
        for file in self.folder.glob("frontier.db*"):
            if not file.name.endswith(("-shm", ".lock")):
                shutil.copy(file, after)
        with contextlib.suppress(FrontierError):  # one that has failed says so again
            await self.stop()
        self.folder = after


class OverSocket(OnSqlite):
    name = "socket"

    async def start(self, politeness, options, clock):
        owner = await super().start(politeness, options, clock)
        self.server = FrontierServer(owner, self.info, self.folder / "socket")
        await self.server.start()
        self.client = RemoteFrontier(self.folder / "socket")
        await self.client.open()
        return self.client

    async def stop(self):
        await self.client.close()
        await self.server.close()
        await super().stop()


class OnValkey(Backend):
    name = "valkey"

    async def start(self, politeness, options, clock):
        from skitter.frontier.redis.frontier import RedisFrontier

        url = running(self.name).url
        self.job = f"job{uuid.uuid4().hex}"
        self.frontier = RedisFrontier(url, self.job, politeness, options, clock=clock, patient=True)
        await self.frontier.open()
        return self.frontier

    async def stop(self):
        await self.frontier.close()
        await self.frontier.erase()


class OnRedis(OnValkey):
    name = "redis"


class OnCluster(Backend):
    """Three masters, each with a replica, that have several partitions each."""

    name = "cluster"

    async def start(self, politeness, options, clock):
        from skitter.frontier.redis.cluster_frontier import RedisClusterFrontier

        url = f"{running_cluster('valkey').url}?partitions=3"
        self.frontier = RedisClusterFrontier(url, f"job{uuid.uuid4().hex}", politeness, options, clock=clock)
        await self.frontier.open()
        return self.frontier

    async def stop(self):
        await self.frontier.close()
        await self.frontier.erase()


# Everything stays in hand and is offered at each call, because the clock of the tests is not that of the broker.
EAGER = Pace(hold=float("inf"), room=1_000_000, again=0.0, dry_after=0.05, ready_for=0.0, patience=20.0)


class OverBroker(Backend):
    """A queue in a real broker, with its state beside it."""

    def brokers(self, options):
        """Return what makes the broker of a queue."""
        raise NotImplementedError

    def state(self, politeness, options, clock):
        raise NotImplementedError

    async def start(self, politeness, options, clock):
        known_for_ever = options.visited_ttl is None and options.failed_stay_known
        self.channel = f"c{uuid.uuid4().hex}"
        self.frontier = BrokerFrontierByQueue(
            self.state(politeness, options, clock), self.brokers(options),
            known_for_ever=known_for_ever, pace=EAGER, clock=clock,
        )  # fmt: skip
        await self.frontier.open()
        return self.frontier

    async def stop(self):
        await self.frontier.close()


class OverNsq(OverBroker):
    def brokers(self, options):
        from skitter.frontier.broker import nsq

        url = f"nsq://127.0.0.1:{nsq_servers.running().port}/contract?channel={self.channel}&state=sqlite:"
        address = parse_address(url, "job", nsq.RULE)
        return lambda queue: nsq.NsqBroker(address.of_queue(queue), options.lease_seconds)


class OnSqliteState(OverBroker):
    def state(self, politeness, options, clock):
        return SqliteState(self.folder / "frontier.db", politeness, options, clock=clock)


class OnValkeyState(OverBroker):
    def state(self, politeness, options, clock):
        from skitter.frontier.broker.redis_state import RedisState

        return RedisState(running("valkey").url, f"job{uuid.uuid4().hex}", politeness, options, clock=clock)

    async def stop(self):
        await super().stop()
        await self.frontier.erase()


class NsqOnSqlite(OverNsq, OnSqliteState):
    name = "nsq+sqlite"


class NsqOnValkey(OverNsq, OnValkeyState):
    name = "nsq+valkey"


class JetStreamOnSqlite(OnSqliteState):
    name = "jetstream+sqlite"

    def brokers(self, options):
        from skitter.frontier.broker import jetstream

        url = f"nats://127.0.0.1:{nats_servers.running().port}/contract?channel={self.channel}&state=sqlite:"
        address = parse_address(url, "job", jetstream.RULE)
        return lambda queue: jetstream.JetStreamBroker(address.of_queue(queue), options.lease_seconds)


BACKENDS = {
    backend.name: backend
    for backend in (
        InMemory, OnSqlite, OverSocket, OnValkey, OnRedis, NsqOnSqlite, NsqOnValkey, JetStreamOnSqlite, OnCluster,
    )
}  # fmt: skip


class Sound:
    """A frontier whose counts are checked after each call."""

    def __init__(self, frontier) -> None:
        self.unchecked = frontier

    def __getattr__(self, name):
        method = getattr(self.unchecked, name)

        async def call(*arguments, **named):
            result = await method(*arguments, **named)
            check_counts(await self.unchecked.status())
            return result

        return call


def check_counts(status: FrontierStatus) -> None:
    """``added == queued + delayed + leased + done + failed``, and none is negative."""
    parts = (status.queued, status.delayed, status.leased, status.done, status.failed)
    assert min(parts) >= 0, status
    assert status.added == sum(parts), status
    assert sum(slot.leased for slot in status.busiest) <= status.leased
    if status.slots <= 20:
        assert sum(slot.queued for slot in status.busiest) == status.queued, status


class Job:
    """One job on one backend: short words for what a worker does."""

    def __init__(self, backend: Backend, politeness: Politeness, options: FrontierOptions) -> None:
        self.backend = backend
        self.politeness = politeness
        self.options = options
        self.clock = Clock()

    async def open(self):
        self.frontier = Sound(await self.backend.start(self.politeness, self.options, self.clock))
        return self

    async def reopen(self) -> None:
        await self.backend.stop()
        await self.open()

    async def kill(self) -> None:
        """End as by SIGKILL, and start again."""
        await self.backend.kill()
        await self.open()

    @staticmethod
    def entry(name, host="h.test", **fields) -> Entry:
        url = f"http://{host}/{name}"
        key = hashlib.blake2b(url.encode(), digest_size=16).digest()
        return Entry(key, host, url, fields.pop("record", b"\x01"), **fields)

    def entries(self, *names, host="h.test", **fields) -> list[Entry]:
        return [self.entry(name, host, **fields) for name in names]

    async def add(self, *names, host="h.test", **fields) -> int:
        """Add requests by name; returns how many were new."""
        entries = [n if isinstance(n, Entry) else self.entry(n, host, **fields) for n in names]
        return (await self.frontier.add(entries)).added

    async def ask(self, limit=100_000, worker="w", landed=()) -> LeaseResult:
        return await self.frontier.lease(worker, limit, landed)

    async def lease(self, limit=100_000, worker="w", landed=()) -> list[Lease]:
        return (await self.ask(limit, worker, landed)).leases

    async def one(self, worker="w") -> Lease:
        """Lease exactly one request."""
        (lease,) = await self.lease(1, worker)
        return lease

    async def landed(self, lease: Lease, latency=0.1, **fields) -> None:
        """Report the end of a fetch, and ask for nothing."""
        await self.lease(0, landed=[Landing(lease.id, latency, **fields)])

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
        """Return the states that hold any request, with how many."""
        status = await self.status()
        states = ("queued", "delayed", "leased", "done", "failed")
        return {name: getattr(status, name) for name in states if getattr(status, name)}

    async def wait_for_one(
        self, worker="w", step=0.0625, patience=1000.0, precision=0.0
    ) -> tuple[float, Lease]:
        """Ask again and again until there is something; returns the seconds that took, and the lease.

        Asks every ``step`` seconds, and where that is more, whenever the wait so far has grown by ``precision``.
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
        """Say that there are no seeds (left) to load."""
        claim = await self.frontier.claim_seeds("seeder")
        await self.frontier.add([], SeedMark(claim.token, claim.position, done=True))

    async def is_finished(self) -> bool:
        return (await self.status()).state is JobState.FINISHED

    async def urls_left(self) -> list[str]:
        """Lease and finish everything until nothing comes; returns the last parts of the URLs in order."""
        names = []
        while leases := await self.lease(1):
            names.append(leases[0].url.rpartition("/")[2])
            await self.done(*leases)
        return names


@pytest.fixture(params=BACKENDS)
def backend(request, tmp_path) -> Backend:
    return BACKENDS[request.param](tmp_path)


@pytest.fixture
async def start(backend):
    """Start a job: ``job = await start(policy, rules=(), unit="host", **options)``."""
    jobs = []

    async def start_job(policy=NO_LIMITS, rules=(), unit="host", **options) -> Job:
        assert not jobs, "one job a test"
        job = Job(backend, Politeness(policy, rules, unit), FrontierOptions(**options))
        jobs.append(job)
        return await job.open()

    yield start_job
    for job in jobs:
        await job.backend.stop()


@pytest.fixture
async def job(start):
    """A job without limits."""
    return await start()


@pytest.fixture
def job_kind():
    """The class :class:`Job`, for tests that begin many jobs."""
    return Job
