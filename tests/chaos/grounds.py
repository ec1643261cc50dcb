"""What a storm may hurt: a lone server or a cluster, and the network in front of it."""

import time

from shared_crawling import ClusterCrawling, SharedCrawling

from services.redis_cluster import ClusterServers, follows
from services.redis_servers import KVROCKS, server_of
from services.relay import relay_thread

TIMEOUT = "socket_timeout=3"


class Ground:
    """The servers that hold a job, each behind a relay. ``urls``: one for each of the machines that begin."""

    crawling = SharedCrawling
    server = None
    """For a crawling that asks it by itself."""
    urls = ()
    told = ()
    """What a machine tells that met an outage."""

    def _put_behind_relays(self, stack, servers):
        self.relays, self._do = stack.enter_context(relay_thread(*(server.port for server in servers)))

    def cut(self):
        """End all connections that go by a relay."""
        self._do("cut")

    def hold_back(self, seconds):
        """Let nothing pass a relay, and end no connection."""
        self._do("pause")
        time.sleep(seconds)
        self._do("resume")

    def fill_up(self, seconds):
        """Let no server have memory left."""
        masters = self.masters()
        for limit in ("1mb", "0"):
            for server in masters:
                server.ask("CONFIG", "SET", "maxmemory", limit)
            if limit != "0":
                time.sleep(seconds)


class LoneServer(Ground):
    """One server. The first machine reaches it directly, the second by a relay."""

    told = ("it does not answer", "is back after", "its memory is full")

    def __init__(self, kind, stack):
        # With everysec a server that waits for its disk may lose two seconds, and with them when hosts were asked.
        self.server = server_of(kind, "--appendonly", "yes", "--appendfsync", "always")
        stack.callback(self.server.stop)
        self.server.start()
        self._put_behind_relays(stack, [self.server])
        self.urls = (self.server.url, f"{self.relays[0].url}?{TIMEOUT}")

    def masters(self):
        return [self.server]

    def kill_server(self, _rng):
        """SIGKILL the server, and start it again half a second later: so long is the outage."""
        self.server.kill()
        time.sleep(0.5)
        self.server.start()


class DiskServer(LoneServer):
    """A server that keeps its data on disk."""

    told = LoneServer.told[:2]

    def fill_up(self, seconds):
        """Do nothing: its data has no bound but its disk."""


class ClusterGround(Ground):
    """Three masters, each with a replica. All go by relays, the replicas as well: a relay's port is what a node announces."""

    crawling = ClusterCrawling
    told = ("is waited for", "all parts of the cluster are there", "its memory is full")

    def __init__(self, kind, stack):
        self.cluster = ClusterServers(kind, "--appendonly", "yes")
        stack.callback(self.cluster.stop)
        self._put_behind_relays(stack, self.cluster.nodes)
        for node, relay in zip(self.cluster.nodes, self.relays, strict=True):
            node.announce(relay.port)
        self.cluster.start()
        hosts = ",".join(f"127.0.0.1:{relay.port}" for relay in self.relays)
        self.urls = (f"redis+cluster://{hosts}/?partitions=6&{TIMEOUT}",) * 2

    def masters(self):
        return self.cluster.serving()

    def kill_server(self, rng):
        """SIGKILL a master whose replica follows it, and start it again once the replica has taken over."""
        masters = self.cluster.serving()
        for replica in self.cluster.nodes:
            if replica not in masters:
                replica.wait_for(lambda node=replica: follows(node), 30)
        victim = rng.choice(masters)
        victim.kill()
        self.cluster.wait_until_whole()
        victim.start()


GROUNDS = {
    f"{kind}-{shape}": (make, kind)
    for shape, make in (("lone", LoneServer), ("cluster", ClusterGround))
    for kind in ("valkey", "redis")
} | ({"kvrocks-lone": (DiskServer, "kvrocks")} if KVROCKS else {})
