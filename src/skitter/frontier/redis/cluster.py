"""Connections to a Valkey or Redis Cluster: the server as one partition of a job sees it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.exceptions import RedisClusterException, RedisError

from skitter.errors import FrontierError
from skitter.frontier.redis.address import ClusterAddress, RedisAddress, parse_address, parse_cluster
from skitter.frontier.redis.kvrocks import is_kvrocks
from skitter.frontier.redis.server import Argument, RedisServer, in_time, server_run_id
from skitter.frontier.redis.server_errors import CLOSED_TRANSPORT_ERRORS, as_connection_error, explained

log = logging.getLogger("skitter.frontier")

STABLE_AFTER = 3.0
"""Seconds without failures after which an outage is over: the other nodes refuse a node that comes back for a moment, and
report that the cluster is down."""


class OutageTracker:
    """The unavailable partitions of one cluster. Logs the start and the end of an outage once for all of them."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._away: set[str] = set()
        self._began = self._ended = 0.0
        self._end: asyncio.TimerHandle | None = None

    def __contains__(self, partition: str) -> bool:
        """Return whether a partition is unavailable."""
        return partition in self._away

    def begin(self, partition: str, problem: str) -> None:
        """Record that a partition is unavailable."""
        if self._end is not None:
            self._end.cancel()
            self._end = None
        elif not self._away:
            self._began = time.monotonic()
            log.warning(
                "frontier %s: a part of the cluster %s; the other parts continue", self._where, problem
            )
        self._away.add(partition)

    def end(self, partition: str) -> None:
        """Record that a partition responds again."""
        if partition in self._away:
            self._away.discard(partition)
            if not self._away:
                self._ended = time.monotonic()
                self._end = asyncio.get_running_loop().call_later(STABLE_AFTER, self._log_end)

    def close(self) -> None:
        """Log the end of an outage that has just ended."""
        if self._end is not None:
            self._end.cancel()
            self._log_end()

    def _log_end(self) -> None:
        self._end = None
        seconds = self._ended - self._began
        log.warning("frontier %s: all parts of the cluster work again after %.1f s", self._where, seconds)


class PartitionOutageLog:
    """The outages of one partition. Implements :class:`~skitter.frontier.redis.server.OutageLog`. ``key``: one of its keys."""

    def __init__(self, tracker: OutageTracker, key: str) -> None:
        self._tracker = tracker
        self._key = key

    def report_failure(self, message: str, reason: object) -> None:
        self._tracker.begin(self._key, message % reason)

    def end(self) -> None:
        self._tracker.end(self._key)


class ClusterClient:
    """One client of a cluster, shared by all partitions of a job."""

    def __init__(self, address: ClusterAddress) -> None:
        self.address = address
        self._client: RedisCluster | None = None
        self._run_ids: dict[tuple[str, int], bytes] = {}
        self.outages = OutageTracker(address.where)

    @property
    def client(self) -> RedisCluster:
        """The client, connected or not."""
        if self._client is None:
            self._client = self.address.client(self._greet)
        return self._client

    async def close(self) -> None:
        """Close all connections."""
        self.outages.close()
        if self._client is not None:
            client, self._client = self._client, None
            # After an error the client believes that it is closed, and leaves connections open.
            await client.nodes_manager.aclose("nodes_cache")
            await client.nodes_manager.aclose("startup_nodes")
            await client.aclose()

    async def _greet(self, connection: Any) -> None:
        """Record, before a new connection is used, to which server process it leads."""
        self._run_ids[connection.host, connection.port] = await server_run_id(connection)

    def run_id_of(self, node: ClusterNode) -> bytes:
        """Return an id that changes when the node restarts."""
        return self._run_ids.get((node.host, int(node.port)), b"")

    async def node_of(self, key: str) -> ClusterNode:
        """Return the node that serves a key, according to the client. Raises redis errors."""
        with self._plain_errors():
            client = self.client
            if not client.nodes_manager.slots_cache:
                await client.initialize()
            node = client.get_node_from_key(key)
        if node is None:
            raise redis.exceptions.ClusterDownError("no node serves a hash slot")
        return node

    async def execute(self, key: str, *words: Argument) -> Any:
        """Run a command on the node that serves a key. Raises redis errors."""
        node = await self.node_of(key)
        try:
            with self._plain_errors():
                return await self.client.execute_command(*words, target_nodes=node)
        except AttributeError as error:
            # A hash slot moves to a node that the client does not know; the client then uses None as the node.
            if error.obj is not None:
                raise
            await self.refresh()
            raise redis.exceptions.TryAgainError(
                "a hash slot moves to a node that is not known yet"
            ) from error

    async def refresh(self) -> None:
        """Ask the nodes again which node serves which keys. Raises redis errors."""
        with self._plain_errors():
            await self.client.nodes_manager.initialize()

    async def keys_like(self, pattern: str) -> list[bytes]:
        """List keys of all nodes. Raises :class:`~skitter.errors.FrontierError`."""
        found: list[bytes] = []
        try:
            with self._plain_errors():
                await self.client.initialize()
                for node in self.client.get_primaries():
                    cursor = 0
                    while True:
                        words = ("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
                        cursors, keys = await self.client.execute_command(*words, target_nodes=node)
                        found += keys
                        cursor = cursors[node.name]
                        if not cursor:
                            break
        except RedisError as error:
            raise explained(error, self.address.where) from error
        return found

    @contextmanager
    def _plain_errors(self) -> Iterator[None]:
        """Convert errors of the cluster client to errors that :mod:`server_errors` knows."""
        try:
            yield
        except (RedisClusterException, KeyError) as error:  # KeyError: a moved hash slot had no node before
            raise self._plain(error) from error
        except CLOSED_TRANSPORT_ERRORS as error:
            raise as_connection_error(error) from error

    def _plain(self, error: Exception) -> Exception:
        if "Cluster mode is not enabled" in str(error):
            return FrontierError(
                f"{self.address.where} is not a cluster but a single server",
                remedy="write redis://HOST:PORT instead of redis+cluster://",
                field="frontier",
            )
        if isinstance(error.__cause__, RedisError):
            return error.__cause__
        if "connected" in str(error):
            return redis.exceptions.ConnectionError(str(error.__cause__ or error))
        return redis.exceptions.ClusterDownError(str(error))


class PartitionConnection:
    """The connection to the node that serves the keys of one partition. ``key``: one of the keys.

    Implements :class:`~skitter.frontier.redis.server.ServerConnection`.
    ``owns_cluster``: no other connection uses the cluster client, so that :meth:`close` closes it.
    """

    def __init__(self, cluster: ClusterClient, key: str, *, owns_cluster: bool = False) -> None:
        self._cluster = cluster
        self.key = key
        self._owns_cluster = owns_cluster
        self._timeout = cluster.address.timeout
        self.restarts = 0
        self.database = 0
        self.run_id = b""
        """Changes when the node restarts, or when another node takes its place."""
        self.keeps_log = False
        """Whether the node has an append-only file. Known after :meth:`info`."""

    def twin(self) -> PartitionConnection:
        return PartitionConnection(ClusterClient(self._cluster.address), self.key, owns_cluster=True)

    @property
    def is_unavailable(self) -> bool:
        """Whether the node does not respond, so that calls wait for it."""
        return self.key in self._cluster.outages

    def open(self) -> None:
        """Do nothing: the cluster client connects on first use."""

    async def close(self) -> None:
        """Close the cluster client if no other connection uses it."""
        if self._owns_cluster:
            await self._cluster.close()

    async def info(self) -> dict[str, Any]:
        """Return what the node reports about itself. A replica replies if the client does not know the new primary."""
        info: dict[str, Any] = await self.execute("INFO")
        if info.get("role") == "slave":
            await self.refresh()
            info = await self.execute("INFO")
        self.keeps_log = bool(info.get("aof_enabled"))
        is_safe = self.keeps_log or info.get("connected_slaves")
        # Cluster mode is expected here, but not on Kvrocks; a replica is as good as an append-only file.
        return {**info, "cluster_enabled": is_kvrocks(info), "aof_enabled": is_safe}

    async def execute(self, *words: Argument) -> Any:
        try:
            reply = await in_time(self._timeout, self._cluster.execute(self.key, *words))
        except redis.exceptions.ConnectionError:
            await self.refresh()
            raise
        run_id = self._cluster.run_id_of(await self._cluster.node_of(self.key))
        if run_id != self.run_id:
            self.restarts += bool(self.run_id)
            self.run_id = run_id
        return reply

    async def refresh(self) -> None:
        """Find out which node serves the keys now, if possible."""
        try:
            async with asyncio.timeout(self._timeout):
                await self._cluster.refresh()
        except (TimeoutError, RedisError):
            pass  # the caller reports the first error


def partition_server(cluster: ClusterClient, connection: PartitionConnection) -> RedisServer:
    """Return the server of one partition."""
    address = RedisAddress("", cluster.address.where, cluster.address.outage_timeout, cluster.address.timeout)
    return RedisServer(address, connection, PartitionOutageLog(cluster.outages, connection.key))


def server_for(url: str, key: str, *, outage_timeout: float | None = None) -> RedisServer:
    """Return the server, or the cluster, for a key and all keys with its hash tag; not yet connected.

    ``outage_timeout``: seconds for which calls wait for a server that does not respond; ``None``: as in the URL. Raises
    :class:`~skitter.errors.FrontierError` for an invalid URL.
    """
    change = {} if outage_timeout is None else {"outage_timeout": outage_timeout}
    if url.partition(":")[0].lower().endswith("+cluster"):
        cluster = ClusterClient(msgspec.structs.replace(parse_cluster(url), **change))
        return partition_server(cluster, PartitionConnection(cluster, key, owns_cluster=True))
    return RedisServer(msgspec.structs.replace(parse_address(url), **change))
