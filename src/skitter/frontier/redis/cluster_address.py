"""Cluster address: from a frontier's URL to a client of a Valkey or Redis Cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import msgspec
import redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from skitter.errors import FrontierError
from skitter.frontier.redis.address import CLIENT_OPTIONS, PATIENCE, TIMEOUT, host_and_port, times_in
from skitter.secrets import FRONTIER_PASSWORD, refuse_raw_password, secret_outside

PARTITIONS = 8
MOST_PARTITIONS = 128
_PORT = 6379
_REMEDY = "write redis+cluster://[USER:PASSWORD@]HOST:PORT,HOST:PORT/[?partitions=N], or rediss+cluster://..."


class ClusterAddress(msgspec.Struct, frozen=True):
    """Where a cluster is, and in how many partitions it keeps a job."""

    nodes: tuple[tuple[str, int], ...]
    """Some nodes; they tell of the others."""
    where: str
    """For people: no password."""
    partitions: int | None = None
    """``None``: as many as the job has, :data:`PARTITIONS` if it is new."""
    patience: float = PATIENCE
    timeout: float = TIMEOUT
    access: dict[str, Any] = {}
    """User, password and TLS options."""

    def client(self, on_connect: Callable[[Any], Any]) -> RedisCluster:
        """Return a client that connects when it is used; ``on_connect`` sees each new connection first.

        Raises :class:`~skitter.errors.FrontierError` for options that the client does not know.
        """
        try:
            client = RedisCluster(
                startup_nodes=[ClusterNode(host, port) for host, port in self.nodes],
                # A command is repeated by us, who know what may be repeated. What is left of a cluster is used, and
                # connections to the other nodes stay when one slot has moved.
                retry=Retry(NoBackoff(), 0),
                require_full_coverage=False,
                reinitialize_steps=0,
                **CLIENT_OPTIONS,
                **self.access,
            )
        except (ValueError, TypeError, OSError, redis.RedisError) as error:
            raise FrontierError(f"frontier {self.where}: {error}", remedy=_REMEDY) from error
        # The client hands these on to every connection, but takes no function of ours itself.
        for options in (client.connection_kwargs, *(node.connection_kwargs for node in client.startup_nodes)):
            options["redis_connect_func"] = on_connect
        return client


def parse_cluster(url: str) -> ClusterAddress:
    """Read the URL of a cluster. Raises :class:`~skitter.errors.FrontierError` for one that is none."""
    try:
        refuse_raw_password(url)
        return _parse(urlsplit(url))
    except ValueError as error:
        raise FrontierError(f"frontier URL is not understood: {error}", remedy=_REMEDY) from error


def _parse(parts: SplitResult) -> ClusterAddress:
    options: dict[str, Any] = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
    partitions = int(options.pop("partitions", 0)) if "partitions" in options else None
    if partitions is not None and not 1 <= partitions <= MOST_PARTITIONS:
        raise ValueError(f"partitions is {partitions}, not 1 to {MOST_PARTITIONS}")
    patience, timeout = times_in(options)
    if parts.path.strip("/") not in {"", "0"}:
        raise ValueError("a cluster has one database only, without a name")
    credentials, _, hosts = parts.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    own = unquote(password) or secret_outside(FRONTIER_PASSWORD)
    access: dict[str, Any] = {"username": unquote(user), "password": own}
    access = {name: value for name, value in access.items() if value}
    if parts.scheme.lower() == "rediss+cluster":
        access |= {
            "ssl": True,
            **{name: options.pop(name) for name in list(options) if name.startswith("ssl_")},
        }
    if options:
        raise ValueError(f"a cluster has no option {min(options)!r}")
    nodes = tuple(host_and_port(host, _PORT) for host in hosts.split(",") if host)
    if not nodes:
        raise ValueError("there is no host in it")
    return ClusterAddress(nodes, f"{parts.scheme}://{hosts}", partitions, patience, timeout, access)
