"""ClusterClient: a Valkey or Redis ClusterClient, and the server that one partition of a job sees of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.exceptions import RedisClusterException, RedisError
from redis.exceptions import TimeoutError as TooSlow

from skitter.errors import FrontierError
from skitter.frontier.redis.address import RedisAddress
from skitter.frontier.redis.cluster_address import ClusterAddress
from skitter.frontier.redis.kvrocks import is_kvrocks
from skitter.frontier.redis.outages import OutageTracker
from skitter.frontier.redis.scripts import all_scripts
from skitter.frontier.redis.server import Argument, RedisServer, run_id_behind
from skitter.frontier.redis.server_errors import ServerErrorRule, broken, explained


class ClusterClient:
    """One client of a cluster, that all partitions of a job share."""

    def __init__(self, address: ClusterAddress) -> None:
        self.address = address
        self._client: RedisCluster | None = None
        self._run_ids: dict[tuple[str, int], bytes] = {}
        self.absences = OutageTracker(address.where)

    @property
    def client(self) -> RedisCluster:
        """The client, connected or not."""
        if self._client is None:
            self._client = self.address.client(self._greet)
        return self._client

    async def close(self) -> None:
        """Close all connections."""
        self.absences.close()
        if self._client is not None:
            client, self._client = self._client, None
            # After an error the client takes itself for closed, and leaves connections open.
            await client.nodes_manager.aclose("nodes_cache")
            await client.nodes_manager.aclose("startup_nodes")
            await client.aclose()

    async def _greet(self, connection: Any) -> None:
        """See a new connection before anybody uses it, and note which life of the node it leads to."""
        self._run_ids[connection.host, connection.port] = await run_id_behind(connection)

    def life_of(self, node: ClusterNode) -> bytes:
        """Return what changes with each life of a node."""
        return self._run_ids.get((node.host, int(node.port)), b"")

    async def node_of(self, key: str) -> ClusterNode:
        """Return the node that serves a key, as far as is known. Raises redis errors."""
        try:
            client = self.client
            if not client.nodes_manager.slots_cache:
                await client.initialize()
            node = client.get_node_from_key(key)
        except RedisClusterException as error:
            raise _plain(error, self.address.where) from error
        except RuntimeError as error:
            raise broken(error) from error
        if node is None:
            raise redis.exceptions.ClusterDownError("a slot is served by nobody")
        return node

    async def execute(self, key: str, *words: Argument) -> Any:
        """Run a command on the node that serves a key. Raises redis errors."""
        node = await self.node_of(key)
        try:
            return await self.client.execute_command(*words, target_nodes=node)
        except (
            RedisClusterException,
            KeyError,
        ) as error:  # KeyError: a slot that has moved was served by nobody
            raise _plain(error, self.address.where) from error
        except AttributeError as error:
            # A slot is on its way to a node that the client has not heard of; it takes that for a node.
            if error.obj is not None:
                raise
            await self.refresh()
            raise redis.exceptions.TryAgainError("a slot goes to a node that is not known yet") from error
        except RuntimeError as error:
            raise broken(error) from error

    async def refresh(self) -> None:
        """Ask the nodes anew who serves what."""
        try:
            await self.client.nodes_manager.initialize()
        except RedisClusterException as error:
            raise _plain(error, self.address.where) from error
        except RuntimeError as error:
            raise broken(error) from error

    async def keys_like(self, pattern: str) -> list[bytes]:
        """List keys of all nodes. Raises :class:`~skitter.errors.FrontierError`."""
        found: list[bytes] = []
        try:
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
        except (RedisClusterException, RedisError) as error:
            plain = error if isinstance(error, RedisError) else _plain(error, self.address.where)
            raise explained(plain, self.address.where) if isinstance(plain, RedisError) else plain from error
        return found


def _plain(error: Exception, where: str) -> Exception:
    """Return an error of the cluster client as one of the kinds that :mod:`troubles` knows."""
    if "ClusterClient mode is not enabled" in str(error):
        return FrontierError(
            f"{where} is no cluster: its server stands alone",
            remedy="write redis://HOST:PORT instead of redis+cluster://",
        )
    if isinstance(error.__cause__, RedisError):
        return error.__cause__
    if "connected" in str(error):
        return redis.exceptions.ConnectionError(str(error.__cause__ or error))
    return redis.exceptions.ClusterDownError(str(error))


class PartitionServer(RedisServer):
    """What one partition sees of the cluster: the node that serves its keys, whichever that is.

    ``key``: any of its keys.
    """

    def __init__(self, cluster: ClusterClient, key: str) -> None:
        address = cluster.address
        super().__init__(RedisAddress("", address.where, address.patience, address.timeout))
        self._cluster = cluster
        self._key = key
        self._life = b""
        self.keeps_log = False
        """Whether the node writes a log of its changes. Known once connected."""

    @property
    def life(self) -> bytes:
        """What changes when another node, or another life of the same one, answers."""
        return self._life

    @property
    def is_away(self) -> bool:
        """Whether it is being waited for."""
        return self._key in self._cluster.absences

    async def connect(self, *, patient: bool) -> None:
        """Find out whether the node can serve. Raises :class:`~skitter.errors.FrontierError`."""
        self._scripts = await asyncio.to_thread(all_scripts)
        info = await self._greeted(patient=patient)
        self.keeps_log = bool(info.get("aof_enabled"))
        is_safe = self.keeps_log or info.get("connected_slaves")
        # A node of a cluster is what is expected here, unless it is one of Kvrocks.
        self._check({**info, "cluster_enabled": is_kvrocks(info), "aof_enabled": is_safe})

    async def _info(self) -> dict[str, Any]:
        """Ask the node; a replica answers where others took the slot over and the client has not heard of it."""
        info = await super()._info()
        if info.get("role") == "slave":
            await self.look_around()
            info = await super()._info()
        return info

    async def close(self) -> None:
        """Do nothing: the connections are the cluster's."""

    async def _execute(self, *words: Argument) -> Any:
        try:
            async with asyncio.timeout(self._address.timeout):
                answer = await self._cluster.execute(self._key, *words)
        except TimeoutError as error:
            raise TooSlow(f"no answer within {self._address.timeout:g} s") from error
        except redis.exceptions.ConnectionError:
            await self.look_around()
            raise
        life = self._cluster.life_of(await self._cluster.node_of(self._key))
        if life != self._life:
            self.restarts += bool(self._life)
            self._life = life
        return answer

    async def look_around(self) -> None:
        """Find out which node serves the keys by now."""
        try:
            async with asyncio.timeout(self._address.timeout):
                await self._cluster.refresh()
        except (TimeoutError, RedisError):
            pass  # the error that led here is told

    async def replication(self) -> Mapping[str, Any]:
        """Return what the node says of its replicas."""
        info: dict[str, Any] = await self.command("INFO", "replication")
        return info

    def _tell(self, trouble: ServerErrorRule, patience: float, error: RedisError) -> None:
        self._cluster.absences.begin(self._key, f"{trouble.what} ({error})", patience)

    def _tell_end(self) -> None:
        self._cluster.absences.end(self._key)


class LoneServer(PartitionServer):
    """What a user of one hash tag sees of a cluster that it shares with nobody in its process."""

    async def close(self) -> None:
        """Close all connections."""
        await self._cluster.close()
