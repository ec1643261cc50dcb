"""Serving: a server, or the node of a cluster, for keys that share one hash tag."""

from __future__ import annotations

import msgspec

from skitter.frontier.redis.address import parse_address
from skitter.frontier.redis.cluster import ClusterClient, LoneServer
from skitter.frontier.redis.cluster_address import parse_cluster
from skitter.frontier.redis.server import RedisServer

SCHEMES = frozenset({
    "redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster",
})  # fmt: skip


def server_for(url: str, key: str, *, patience: float | None = None) -> RedisServer:
    """Return what serves a key, and all keys of its hash tag; not yet connected.

    ``patience``: seconds for which it is waited for while it is away; ``None``: as the URL says.

    Raises :class:`~skitter.errors.FrontierError` for a URL that is none.
    """
    change = {} if patience is None else {"patience": patience}
    if url.partition(":")[0].lower().endswith("+cluster"):
        return LoneServer(ClusterClient(msgspec.structs.replace(parse_cluster(url), **change)), key)
    return RedisServer(msgspec.structs.replace(parse_address(url), **change))
