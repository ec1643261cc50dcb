"""A real Valkey or Redis Cluster on free loopback ports: three masters, each with a replica."""

import atexit
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from services.processes import free_port
from services.redis_servers import RedisServer

SLOTS = 16384
MASTERS = 3
NODE_TIMEOUT = 1_000
"""Milliseconds after which the other nodes take a node for dead."""
STABLE = 600_000
"""The same for clusters in which no node must be replaced, even if it waits for its turn on a busy machine."""
PATIENCE = 60.0


class ClusterServers:
    """All nodes of a cluster. Each can be killed and started again."""

    def __init__(
        self, kind: str, *options: str, replicas: bool = True, node_timeout: int = NODE_TIMEOUT
    ) -> None:
        self._node_timeout = node_timeout
        self._make = lambda: _node(kind, options)
        self.masters = [_node(kind, options) for _ in range(MASTERS)]
        self.replicas = [_node(kind, options) for _ in range(MASTERS if replicas else 0)]
        self.nodes = self.masters + self.replicas
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        self.url = f"redis+cluster://{hosts}/"

    def start(self) -> "ClusterServers":
        """Start all nodes. Wait until they form a cluster and every replica follows its master."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(RedisServer.start, self.nodes))
        for number, master in enumerate(self.masters):
            first, after = SLOTS * number // MASTERS, SLOTS * (number + 1) // MASTERS
            master.ask("CLUSTER", "ADDSLOTSRANGE", first, after - 1)
            master.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        self._meet()
        for node in self.nodes:
            node.ask("CONFIG", "SET", "cluster-node-timeout", self._node_timeout)
        for master, replica in zip(self.masters, self.replicas, strict=False):
            replica.ask("CLUSTER", "REPLICATE", master.ask("CLUSTER", "MYID"))
        for node in self.nodes:
            node.wait_for(lambda node=node: b"cluster_state:ok" in node.ask("CLUSTER", "INFO"), PATIENCE)
        for replica in self.replicas:
            replica.wait_for(lambda node=replica: follows(node), PATIENCE)
        return self

    def add_master(self) -> RedisServer:
        """Start another node, which has no slots yet."""
        node = self._make()
        self.masters.append(node)
        self.nodes.append(node)
        node.start()
        self._meet()
        node.ask("CONFIG", "SET", "cluster-node-timeout", self._node_timeout)
        node.wait_for(lambda: b"cluster_state:ok" in node.ask("CLUSTER", "INFO"), PATIENCE)
        return node

    def _meet(self) -> None:
        """Wait until each node knows all others. They give up a handshake after a second, so it is repeated."""
        deadline = time.monotonic() + PATIENCE
        while True:
            for node in self.nodes[1:]:
                self.nodes[0].ask("CLUSTER", "MEET", "127.0.0.1", node.port, node.cluster_port)
            attempt_ends = time.monotonic() + 5.0
            while time.monotonic() < attempt_ends:
                if all(self._knows_all(node) for node in self.nodes):
                    return
                time.sleep(0.01)
            assert time.monotonic() < deadline, [node.ask("CLUSTER", "NODES") for node in self.nodes]

    def _knows_all(self, node) -> bool:
        lines = node.ask("CLUSTER", "NODES").splitlines()
        return len(lines) == len(self.nodes) and not any(b"handshake" in line for line in lines)

    def serving(self) -> list[RedisServer]:
        """Return the nodes that currently are masters, according to themselves."""
        return [
            node for node in self.nodes if node.is_alive and b"role:master" in node.ask("INFO", "replication")
        ]

    def wait_until_whole(self) -> None:
        """Wait until all slots are served again, according to every living node."""
        deadline = time.monotonic() + PATIENCE
        alive = [node for node in self.nodes if node.is_alive]
        for node in alive:
            while not _is_whole(node.ask("CLUSTER", "INFO")):
                assert time.monotonic() < deadline, node.log.read_text()
                time.sleep(0.02)

    def stop(self) -> None:
        """End all nodes."""
        for node in self.nodes:
            node.stop()


class _Node(RedisServer):
    cluster_port = 0

    def announce(self, port: int) -> None:
        """Announce this port as the node's from the next start on: that of a relay to it."""
        self._options += ("--cluster-announce-port", str(port))


def _node(kind, options) -> _Node:
    port = free_port()
    node = _Node(
        kind, "--cluster-enabled", "yes", "--cluster-port", str(port), "--cluster-node-timeout", "1000",
        "--cluster-require-full-coverage", "no", "--repl-diskless-sync-delay", "0", *options,
    )  # fmt: skip
    node.cluster_port = port
    return node


def follows(replica) -> bool:
    """Return whether a replica has its master's data and receives every change."""
    return b"master_link_status:up" in replica.ask("INFO", "replication")


def _is_whole(info: bytes) -> bool:
    return b"cluster_state:ok" in info and b"cluster_slots_ok:16384" in info


@cache
def running_cluster(kind: str) -> ClusterServers:
    """Return a cluster for tests that do not stop or kill it, shared by this process. Skips the test with the reason."""
    servers = ClusterServers(kind, node_timeout=STABLE)
    atexit.register(servers.stop)
    return servers.start()
