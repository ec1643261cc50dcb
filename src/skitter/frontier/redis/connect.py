"""Connections to the server of a frontier for other programs of skitter, such as the service."""

from __future__ import annotations

import msgspec

from skitter.frontier.redis.address import parse_address, parse_cluster
from skitter.frontier.redis.cluster import ClusterClient, PartitionConnection, partition_server
from skitter.frontier.redis.server import RedisServer

SCHEMES = frozenset({
    "redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster",
})  # fmt: skip


def server_for(url: str, key: str, *, patience: float | None = None) -> RedisServer:
    """Return the server, or the cluster, for a key and all keys with its hash tag; not yet connected.

    ``patience``: seconds for which calls wait for a server that does not answer; ``None``: as in the URL. Raise
    :class:`~skitter.errors.FrontierError` for an invalid URL.
    """
    change = {} if patience is None else {"patience": patience}
    if url.partition(":")[0].lower().endswith("+cluster"):
        cluster = ClusterClient(msgspec.structs.replace(parse_cluster(url), **change))
        return partition_server(cluster, PartitionConnection(cluster, key, owns_cluster=True), key)
    return RedisServer(msgspec.structs.replace(parse_address(url), **change))
