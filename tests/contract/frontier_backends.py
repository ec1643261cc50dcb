"""The backends under test in the frontier contract suite.

If ``SKITTER_TEST_REDIS`` is the URL of a server, the suite also runs on it, as ``own-server``. It uses and removes only the
keys of jobs that it has started itself.

To add a backend, add a subclass of :class:`Backend` to ``BACKENDS``. All times are those of a :class:`Clock`. A backend
that uses a server's clock follows it through an offset.
"""

import contextlib
import os
import shutil
import sys
import uuid
from pathlib import Path

from services import nats_servers, nsq_servers
from services.as_on_disk import AsOnDisk
from services.redis_cluster import running_cluster
from services.redis_servers import KVROCKS, running
from skitter.brokers.address import parse_address
from skitter.brokers.frontier import BrokerFrontier
from skitter.brokers.pending import BrokerTuning
from skitter.errors import FrontierError
from skitter.frontier.embedded.frontier import EmbeddedFrontier
from skitter.frontier.options import FrontierContext, FrontierSettings
from skitter.frontier.rpc.client import remote_frontier
from skitter.frontier.rpc.server import FrontierServer
from skitter.politeness import Politeness

sys.path.insert(0, str(Path(__file__).parents[2] / "examples/plugins"))
import zset_broker

OWN_SERVER = os.environ.get("SKITTER_TEST_REDIS")
LONG = int(os.environ.get("SKITTER_CHAOS_ROUNDS", "1")) > 1
"""Whether the suite also runs on the broker of the examples."""


class Clock:
    """A clock that only moves when a test advances it."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now

    async def advance(self, seconds: float) -> None:
        self.now += seconds


class Backend:
    """Starts and ends a frontier. ``start`` after ``stop`` or ``kill`` is a restart."""

    name = ""
    durable = False
    has_heartbeats = False
    """Whether only heartbeats show that a worker is alive."""
    has_affinity = True
    """Whether a host with a delay is kept for one of several workers that share this frontier object."""

    def __init__(self, folder: Path) -> None:
        self.home = self.folder = folder
        self.life = 1

    async def start(self, politeness: Politeness, options: FrontierSettings, clock: Clock):
        """Return an open frontier."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Close the frontier."""
        raise NotImplementedError

    async def kill(self) -> None:
        """Drop everything that a SIGKILL would lose."""
        raise NotImplementedError

    async def flush_leases(self) -> None:
        """Wait until the deferred writes of leases are durable."""


class InMemory(Backend):
    name = "memory"

    async def start(self, politeness, options, clock):
        self.frontier = EmbeddedFrontier(politeness, options, clock=clock)
        await self.frontier.open()
        return self.frontier

    async def stop(self):
        await self.frontier.close()


class OnSqlite(Backend):
    name = "sqlite"
    durable = True

    async def start(self, politeness, options, clock):
        self.owner = EmbeddedFrontier(politeness, options, clock=clock, path=self.folder / "frontier.db")
        self.info = await self.owner.open()
        return self.owner

    async def stop(self):
        await self.owner.close()

    async def flush_leases(self):
        await self.owner._journal.flush()

    async def kill(self):
        """Continue with a copy of the current files: the state that a killed owner leaves behind."""
        self.life += 1
        after = self.home / f"life{self.life}"
        after.mkdir()
        for file in self.folder.glob("frontier.db*"):
            if not file.name.endswith(("-shm", ".lock")):
                shutil.copy(file, after)
        with contextlib.suppress(FrontierError):  # raises again if the frontier has failed before
            await self.stop()
        self.folder = after


class OverSocket(OnSqlite):
    name = "socket"

    async def start(self, politeness, options, clock):
        owner = await super().start(politeness, options, clock)
        self.server = FrontierServer(owner, self.info, self.folder / "socket")
        await self.server.start()
        self.client = remote_frontier(self.folder / "socket")
        await self.client.open()
        return self.client

    async def stop(self):
        await self.client.close()
        await self.server.close()
        await super().stop()


class OnValkey(Backend):
    name = "valkey"
    has_heartbeats = True

    def place(self):
        return running(self.name).url

    async def start(self, politeness, options, clock):
        from skitter.frontier.redis.frontier import RedisFrontier

        self.job = f"job{uuid.uuid4().hex}"
        self.frontier = RedisFrontier(
            self.place(), FrontierContext(self.job, "", politeness, options, joining=True), clock=clock
        )
        await self.frontier.open()
        return self.frontier

    async def stop(self):
        await self.frontier.close()
        await self.frontier.erase()


class OnRedis(OnValkey):
    name = "redis"


class OnValkeyAsOnDisk(OnValkey):
    name = "valkey-as-on-disk"
    has_affinity = False

    def place(self):
        return AsOnDisk(running("valkey").url)


class OnKvrocks(OnValkey):
    name = "kvrocks"
    has_affinity = False


class OnOwnServer(OnValkey):
    name = "own-server"

    def place(self):
        return OWN_SERVER


class OnCluster(Backend):
    """Three masters with a replica each, which have several partitions each."""

    name = "cluster"
    has_heartbeats = True
    has_affinity = False

    async def start(self, politeness, options, clock):
        from skitter.frontier.redis.cluster_frontier import RedisClusterFrontier

        url = f"{running_cluster('valkey').url}?partitions=3"
        self.frontier = RedisClusterFrontier(
            url, FrontierContext(f"job{uuid.uuid4().hex}", "", politeness, options), clock=clock
        )
        await self.frontier.open()
        return self.frontier

    async def stop(self):
        await self.frontier.close()
        await self.frontier.erase()


# The clock of the tests is not the broker's, so all messages stay pending and are offered at each call.
EAGER = BrokerTuning(
    hold=float("inf"),
    max_pending=1_000_000,
    offer_interval=0.0,
    dry_after=0.5,
    overdue_after=0.0,
    max_wait=20.0,
)


class OverBroker(Backend):
    """A queue in a real broker, with its state in another store."""

    has_affinity = False

    def brokers(self, options):
        """Return a function that creates the broker of a queue."""
        raise NotImplementedError

    def state(self, politeness, options, clock):
        raise NotImplementedError

    async def start(self, politeness, options, clock):
        restore_lost = options.visited_ttl is None and not options.refetch_failed
        self.channel = f"c{uuid.uuid4().hex}"
        self.frontier = BrokerFrontier(
            self.state(politeness, options, clock), self.brokers(options),
            restore_lost=restore_lost, tuning=EAGER, clock=clock,
        )  # fmt: skip
        await self.frontier.open()
        return self.frontier

    async def stop(self):
        await self.frontier.close()


class OverNsq(OverBroker):
    def brokers(self, options):
        from skitter.brokers import nsq

        url = f"nsq://127.0.0.1:{nsq_servers.running().port}/contract?channel={self.channel}&state=sqlite:"
        address = parse_address(url, "job", nsq.RULES)
        return lambda queue: nsq.NsqBroker(address.of_queue(queue), options.lease_seconds)


class OnSqliteState(OverBroker):
    def state(self, politeness, options, clock):
        return EmbeddedFrontier(politeness, options, path=self.folder / "frontier.db", clock=clock)


class OnValkeyState(OverBroker):
    def state(self, politeness, options, clock):
        from skitter.frontier.redis.frontier import RedisFrontier

        return RedisFrontier(
            running("valkey").url,
            FrontierContext(f"job{uuid.uuid4().hex}", "", politeness, options),
            clock=clock,
        )

    async def stop(self):
        await super().stop()
        await self.frontier.erase()


class NsqOnSqlite(OverNsq, OnSqliteState):
    name = "nsq+sqlite"


class NsqOnValkey(OverNsq, OnValkeyState):
    name = "nsq+valkey"
    has_heartbeats = True


class JetStreamOnSqlite(OnSqliteState):
    name = "jetstream+sqlite"

    def brokers(self, options):
        from skitter.brokers import jetstream

        url = f"nats://127.0.0.1:{nats_servers.running().port}/contract?channel={self.channel}&state=sqlite:"
        address = parse_address(url, "job", jetstream.RULES)
        return lambda queue: jetstream.JetStreamBroker(address.of_queue(queue), options.lease_seconds)


class ExampleOnSqlite(OnSqliteState):
    """The broker of the examples, a plug-in."""

    name = "example+sqlite"

    def brokers(self, options):
        port = running("valkey").port
        url = f"zset://127.0.0.1:{port}/contract?channel={self.channel}&state=sqlite:"
        address = parse_address(url, "job", zset_broker.RULES)
        return lambda queue: zset_broker.make_broker(address.of_queue(queue), options.lease_seconds)


BACKENDS = {
    backend.name: backend
    for backend in (
        InMemory, OnSqlite, OverSocket, OnValkey, OnRedis, OnValkeyAsOnDisk, NsqOnSqlite, NsqOnValkey, JetStreamOnSqlite, OnCluster,
        *([ExampleOnSqlite] if LONG else []), *([OnKvrocks] if KVROCKS else []), *([OnOwnServer] if OWN_SERVER else []),
    )
}  # fmt: skip
