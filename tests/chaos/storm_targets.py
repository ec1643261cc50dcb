"""Targets of the storm test: a single server or a cluster, and the network in front of it."""

import time

from shared_crawling import ClusterCrawling, SharedCrawling

from services.redis_cluster import ClusterServers, follows
from services.redis_servers import KVROCKS, server_of
from services.relay import relay_thread

TIMEOUT = "socket_timeout=3"


class StormTarget:
    """The servers that store a job, each behind a relay. ``urls``: one URL for each of the first machines."""

    crawling = SharedCrawling
    server = None
    """For tests that query the server themselves."""
    urls = ()
    expected_messages = ()
    """Messages that a machine logs during an outage."""

    def _put_behind_relays(self, stack, servers):
        self.relays, self._command = stack.enter_context(relay_thread(*(server.port for server in servers)))

    def cut(self):
        """Close all connections through a relay."""
        self._command("cut")

    def hold_back(self, seconds):
        """Forward no data through the relays, without closing any connection."""
        self._command("pause")
        time.sleep(seconds)
        self._command("resume")

    def fill_up(self, seconds):
        """Set the memory limit of each server so that it cannot store more."""
        masters = self.masters()
        for limit in ("1mb", "0"):
            for server in masters:
                server.ask("CONFIG", "SET", "maxmemory", limit)
            if limit != "0":
                time.sleep(seconds)


class SingleServer(StormTarget):
    """One server. The first machine connects directly, the second one through a relay."""

    expected_messages = ("it does not respond", "is back after", "its memory is full")

    def __init__(self, kind, stack):
        # With everysec, a server that waits for its disk may lose two seconds, and with them the times of the
        # last requests.
        self.server = server_of(kind, "--appendonly", "yes", "--appendfsync", "always")
        stack.callback(self.server.stop)
        self.server.start()
        self._put_behind_relays(stack, [self.server])
        self.urls = (self.server.url, f"{self.relays[0].url}?{TIMEOUT}")

    def masters(self):
        return [self.server]

    def kill_server(self, _rng):
        """SIGKILL the server, and start it again after half a second."""
        self.server.kill()
        time.sleep(0.5)
        self.server.start()


class DiskServer(SingleServer):
    """A server that keeps its data on disk."""

    expected_messages = SingleServer.expected_messages[:2]

    def fill_up(self, seconds):
        """Do nothing: only the disk limits its data."""


class ClusterTarget(StormTarget):
    """Three masters, each with a replica. All connections use relays, because each node announces the port of its relay."""

    crawling = ClusterCrawling
    expected_messages = (
        "a part of the cluster cannot be used",
        "all parts of the cluster work again",
        "its memory is full",
    )

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
        """SIGKILL a master whose replica is in sync, and start it again after the replica has taken over."""
        masters = self.cluster.serving()
        for replica in self.cluster.nodes:
            if replica not in masters:
                replica.wait_for(lambda node=replica: follows(node), 30)
        victim = rng.choice(masters)
        victim.kill()
        self.cluster.wait_until_whole()
        victim.start()


TARGETS = {
    f"{kind}-{shape}": (make, kind)
    for shape, make in (("lone", SingleServer), ("cluster", ClusterTarget))
    for kind in ("valkey", "redis")
} | ({"kvrocks-lone": (DiskServer, "kvrocks")} if KVROCKS else {})
