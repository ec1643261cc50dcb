"""URLs of servers and clusters, and the clients that they describe."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

import msgspec
import redis.asyncio
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

from skitter.errors import FrontierError
from skitter.secrets import FRONTIER_PASSWORD, SENTINEL_PASSWORD, refuse_raw_password, secret_from_environment

OUTAGE_TIMEOUT = 3600.0
"""Default of ``?outage_timeout=``: seconds for which calls wait for a server that does not respond."""
TIMEOUT = 20.0
"""Default of ``?socket_timeout=``: seconds to wait for the reply to one command."""
DEFAULT_PARTITIONS = 8
MAX_PARTITIONS = 128
_PORT = 6379
_SENTINEL_PORT = 26379
_MAX_PORT = 65_535
_URL_REMEDY = (
    "write redis://[USER:PASSWORD@]HOST[:PORT][/DB], rediss://..., unix:///SOCKET[?db=DB]"
    " or redis+sentinel://HOST:PORT,HOST:PORT/SERVICE[/DB]"
)
_CLUSTER_REMEDY = (
    "write redis+cluster://[USER:PASSWORD@]HOST:PORT,HOST:PORT/[?partitions=N], or rediss+cluster://..."
)
_OPTIONS = {"db", "client_name", "health_check_interval", "socket_connect_timeout", "socket_keepalive"}
# The client's own timeout occasionally swallows a cancellation (asyncio.wait_for before Python 3.12).
_CLIENT_OPTIONS: dict[str, Any] = {"socket_timeout": None, "socket_connect_timeout": 5.0, "protocol": 2}
if find_spec("redis.driver_info") is not None:
    # Otherwise each new connection reads the version of the client from disk, to send it to the server.
    _CLIENT_OPTIONS["driver_info"] = None


class RedisAddress(msgspec.Struct, frozen=True):
    """The address of a server, or of the sentinels that know it."""

    url: str
    """For the client, without the options of skitter."""
    where: str
    """For messages and comparisons, with the default values and without passwords."""
    outage_timeout: float = OUTAGE_TIMEOUT
    timeout: float = TIMEOUT
    sentinels: tuple[tuple[str, int], ...] = ()
    service: str = ""
    access: dict[str, Any] = {}
    """User, password, database and TLS options of the server behind the sentinels."""
    sentinel_access: dict[str, Any] = {}
    """User, password and TLS options of the sentinels themselves."""
    password: str = ""
    """Used if ``url`` has no password."""

    def clients(self, on_connect: Callable[[Any], Any]) -> list[redis.asyncio.Redis]:
        """Return the client of the server, then those of the sentinels. They connect on first use; close all of them.

        ``on_connect`` is called with each new connection to the server. Raises
        :class:`~skitter.errors.FrontierError` for options that the client does not know.
        """
        # RedisServer repeats commands itself: it knows which may be repeated, and how long to wait.
        options = {**_CLIENT_OPTIONS, "retry": Retry(NoBackoff(), 0), "redis_connect_func": on_connect}
        try:
            if self.sentinels:
                return self._clients_of_sentinels(options)
            if self.password:
                options["password"] = self.password
            client = redis.asyncio.Redis.from_url(self.url, **options)
            pool = client.connection_pool
            pool.connection_class(**pool.connection_kwargs)  # fails for unknown options
            return [client]  # noqa: TRY300 - what can fail is above
        except (ValueError, TypeError, redis.exceptions.RedisError) as error:
            raise _invalid(f"{self.where}: {error}", _URL_REMEDY) from error

    def _clients_of_sentinels(self, options: dict[str, Any]) -> list[redis.asyncio.Redis]:
        for_sentinels = {**_CLIENT_OPTIONS, **self.sentinel_access}
        sentinel = Sentinel(list(self.sentinels), sentinel_kwargs=for_sentinels, **options)  # type: ignore[no-untyped-call]
        return [sentinel.master_for(self.service, **self.access), *sentinel.sentinels]


class ClusterAddress(msgspec.Struct, frozen=True):
    """The address of a cluster, and the number of partitions of a job on it."""

    nodes: tuple[tuple[str, int], ...]
    """Some nodes, from which the client learns the others."""
    where: str
    """For messages and comparisons, with the default values and without passwords."""
    partitions: int | None = None
    """``None``: the number that the job has, :data:`DEFAULT_PARTITIONS` for a new job."""
    outage_timeout: float = OUTAGE_TIMEOUT
    timeout: float = TIMEOUT
    access: dict[str, Any] = {}
    """User, password and TLS options."""

    def client(self, on_connect: Callable[[Any], Any]) -> RedisCluster:
        """Return a client that connects on first use. ``on_connect`` is called with each new connection.

        Raises :class:`~skitter.errors.FrontierError` for options that the client does not know.
        """
        try:
            client = RedisCluster(
                startup_nodes=[ClusterNode(host, port) for host, port in self.nodes],
                # PartitionServer repeats commands itself. The remaining nodes of a cluster stay in use, and connections
                # to the other nodes stay open when one slot has moved.
                retry=Retry(NoBackoff(), 0),
                require_full_coverage=False,
                reinitialize_steps=0,
                **_CLIENT_OPTIONS,
                **self.access,
            )
        except (ValueError, TypeError, OSError, redis.RedisError) as error:
            raise _invalid(f"{self.where}: {error}", _CLUSTER_REMEDY) from error
        # The client passes these on to every connection, but has no parameter for the callback.
        for options in (client.connection_kwargs, *(node.connection_kwargs for node in client.startup_nodes)):
            options["redis_connect_func"] = on_connect
        return client


def parse_address(url: str) -> RedisAddress:
    """Parse the URL of a server. Raises :class:`~skitter.errors.FrontierError` if it is invalid."""
    try:
        refuse_raw_password(url)
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
        outage_timeout, timeout = _times(options)
        if parts.scheme.endswith("+sentinel"):
            return _sentinel_address(parts, options, outage_timeout, timeout)
        where = _check_server(parts.scheme, parts.hostname, parts.port, parts.path, options)
    except ValueError as error:
        raise _invalid(str(error), _URL_REMEDY) from error
    url = parts._replace(query=urlencode(options)).geturl()
    return RedisAddress(
        url, where, outage_timeout, timeout, password=secret_from_environment(FRONTIER_PASSWORD)
    )


def parse_cluster(url: str) -> ClusterAddress:
    """Parse the URL of a cluster. Raises :class:`~skitter.errors.FrontierError` if it is invalid."""
    try:
        refuse_raw_password(url)
        return _cluster_address(urlsplit(url))
    except ValueError as error:
        raise _invalid(str(error), _CLUSTER_REMEDY) from error


def _invalid(problem: str, remedy: str) -> FrontierError:
    return FrontierError(f"invalid frontier URL: {problem}", remedy=remedy, field="frontier")


def _times(options: dict[str, str]) -> tuple[float, float]:
    """Remove the timeouts for outages and replies from the options of a URL and return them. Raises :class:`ValueError`."""
    outage_timeout = _number(options, "outage_timeout", OUTAGE_TIMEOUT)
    timeout = _number(options, "socket_timeout", TIMEOUT)
    if not outage_timeout >= 0:
        raise ValueError(f"outage_timeout must be at least 0 seconds (got {outage_timeout:g})")
    if not 0 < timeout < math.inf:
        raise ValueError(f"socket_timeout must be a positive number of seconds (got {timeout:g})")
    return outage_timeout, timeout


def _number(options: dict[str, str], name: str, default: float) -> float:
    """Remove an option of a URL and return it. Raises :class:`ValueError`."""
    text = options.pop(name, "")
    try:
        return float(text or default)
    except ValueError:
        raise ValueError(f"{name} must be a number (got {text!r})") from None


def _parse_hosts(text: str, default_port: int) -> tuple[tuple[str, int], ...]:
    """Parse a list such as ``HOST,HOST:PORT``; an IPv6 address is in brackets. Raises :class:`ValueError`."""
    return tuple(_host_and_port(word, default_port) for word in text.split(",") if word)


def _host_and_port(text: str, default_port: int) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(default_port)
    host = host.strip("[]")
    if not host or not port.isdecimal() or int(port) > _MAX_PORT:
        raise ValueError(f"invalid host or port: {text!r}")
    return host, int(port)


def _text_of(hosts: Iterable[tuple[str, int]]) -> str:
    """Return hosts and ports as they are written in a URL."""
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in hosts)


def _check_server(
    scheme: str, host: str | None, port: int | None, path: str, options: Mapping[str, str]
) -> str:
    """Check the URL of a server and return it for messages. Raises :class:`ValueError`."""
    # Further options of the client could change the form of its replies.
    if unknown := [name for name in options if name not in _OPTIONS and not name.startswith("ssl_")]:
        raise ValueError(f"unknown option {min(unknown)!r}")
    if scheme == "unix":
        if not path.startswith("/") or host:
            raise ValueError("a socket needs an absolute path, as in unix:///run/redis.sock")
        return f"unix://{path}, database {_database(options.get('db', ''))}"
    if not host:
        raise ValueError("the host is missing")
    if ":" in host:
        host = f"[{host}]"
    return f"{scheme}://{host}:{port or _PORT}/{_database(path.strip('/') or options.get('db', ''))}"


def _database(text: str) -> int:
    if text and not text.isdigit():
        raise ValueError(f"the database must be a number (got {text!r})")
    return int(text or 0)


def _sentinel_address(
    parts: SplitResult, options: dict[str, str], outage_timeout: float, timeout: float
) -> RedisAddress:
    hosts, access, tls = _access(parts, options)
    service, _, database = parts.path.strip("/").partition("/")
    if not hosts or not service:
        raise ValueError("sentinels need HOST:PORT,HOST:PORT/SERVICE[/DB]")
    sentinel_password = options.pop("sentinel_password", "") or secret_from_environment(SENTINEL_PASSWORD)
    sentinel_access = _credentials(options.pop("sentinel_username", ""), sentinel_password)
    if options:
        raise ValueError(f"unknown option {min(options)!r} for sentinels")
    sentinels = _parse_hosts(hosts, _SENTINEL_PORT)
    access = {"db": _database(database), **access, **tls}
    where = f"{parts.scheme}://{_text_of(sentinels)}/{service}/{access['db']}"
    return RedisAddress(
        "", where, outage_timeout, timeout, sentinels, service, access, {**sentinel_access, **tls}
    )


def _cluster_address(parts: SplitResult) -> ClusterAddress:
    options: dict[str, Any] = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
    partitions = None
    if (text := options.pop("partitions", None)) is not None:
        if not text.isdecimal() or not 1 <= int(text) <= MAX_PARTITIONS:
            raise ValueError(f"partitions must be 1 to {MAX_PARTITIONS} (got {text!r})")
        partitions = int(text)
    outage_timeout, timeout = _times(options)
    if parts.path.strip("/") not in {"", "0"}:
        raise ValueError("a cluster has only database 0")
    hosts, access, tls = _access(parts, options)
    if options:
        raise ValueError(f"unknown option {min(options)!r} for a cluster")
    nodes = _parse_hosts(hosts, _PORT)
    if not nodes:
        raise ValueError("the host is missing")
    return ClusterAddress(
        nodes, f"{parts.scheme}://{_text_of(nodes)}", partitions, outage_timeout, timeout, access | tls
    )


def _access(parts: SplitResult, options: dict[str, Any]) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return the hosts of a URL, its user and password, and its TLS options, which are removed from ``options``."""
    credentials, _, hosts = parts.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    access = _credentials(unquote(user), unquote(password) or secret_from_environment(FRONTIER_PASSWORD))
    is_encrypted = parts.scheme.lower().startswith("rediss")
    tls = {name: options.pop(name) for name in list(options) if is_encrypted and name.startswith("ssl_")}
    return hosts, access, {"ssl": True, **tls} if is_encrypted else {}


def _credentials(user: str, password: str) -> dict[str, Any]:
    return {name: value for name, value in (("username", user), ("password", password)) if value}
