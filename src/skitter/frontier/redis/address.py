"""RedisAddress: from a frontier's URL to a client of its server."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

import msgspec
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

from skitter.errors import FrontierError
from skitter.secrets import FRONTIER_PASSWORD, SENTINEL_PASSWORD, refuse_raw_password, secret_outside

PATIENCE = 3600.0
"""Seconds for which a server that is away is waited for, unless the URL says ``?patience=``."""
_REMEDY = "write redis://[USER:PASSWORD@]HOST[:PORT][/DB], rediss://..., unix:///SOCKET[?db=DB] or redis+sentinel://HOST:PORT,HOST:PORT/SERVICE[/DB]"
_SENTINEL_PORT = 26379
_OPTIONS = {"db", "client_name", "health_check_interval", "socket_connect_timeout", "socket_keepalive"}
TIMEOUT = 20.0
"""Seconds for which the answer to one call is waited for, unless the URL says ``?socket_timeout=``."""
# The client's own limit of time swallows a cancellation now and then (asyncio.wait_for before Python 3.12).
CLIENT_OPTIONS: dict[str, Any] = {"socket_timeout": None, "socket_connect_timeout": 5.0, "protocol": 2}
if find_spec("redis.driver_info") is not None:
    # Else each new connection looks on the disk for the version of the client, to tell it to the server.
    CLIENT_OPTIONS["driver_info"] = None


class RedisAddress(msgspec.Struct, frozen=True):
    """Where a frontier's server is."""

    url: str
    """For the client, without the options that are ours."""
    where: str
    """For people: no password."""
    patience: float = PATIENCE
    timeout: float = TIMEOUT
    sentinels: tuple[tuple[str, int], ...] = ()
    service: str = ""
    access: dict[str, Any] = {}
    """User, password, database and TLS options of the server behind the sentinels."""
    sentinel_access: dict[str, Any] = {}
    """User and password of the sentinels themselves, and TLS options."""
    password: str = ""
    """For ``url``, where it says none."""

    def clients(self, on_connect: Callable[[Any], Any]) -> list[redis.asyncio.Redis]:
        """Return a client that connects when it is used, then those that tell it where, all to be closed.

        ``on_connect`` sees each new connection to the server first. Raises
        :class:`~skitter.errors.FrontierError` for options that the client does not know.
        """
        # A command is repeated by us, who know what may be repeated, and how long to wait.
        options = {
            **CLIENT_OPTIONS,
            "retry": Retry(NoBackoff(), 0),
            "redis_connect_func": on_connect,
        }
        try:
            if self.sentinels:
                return self._behind_sentinels(options)
            if self.password:
                options["password"] = self.password
            client = redis.asyncio.Redis.from_url(self.url, **options)
            pool = client.connection_pool
            pool.connection_class(**pool.connection_kwargs)  # is told only now of options it does not know
            return [client]  # noqa: TRY300 - what can fail is above
        except (ValueError, TypeError, redis.exceptions.RedisError) as error:
            raise FrontierError(f"frontier {self.where}: {error}", remedy=_REMEDY) from error

    def _behind_sentinels(self, options: dict[str, Any]) -> list[redis.asyncio.Redis]:
        for_sentinels = {**CLIENT_OPTIONS, **self.sentinel_access}
        watchers = Sentinel(list(self.sentinels), sentinel_kwargs=for_sentinels, **options)  # type: ignore[no-untyped-call]
        return [watchers.master_for(self.service, **self.access), *watchers.sentinels]


def parse_address(url: str) -> RedisAddress:
    """Read the URL of a frontier. Raises :class:`~skitter.errors.FrontierError` for one that is none."""
    try:
        refuse_raw_password(url)
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
        patience, timeout = times_in(options)
        if parts.scheme.endswith("+sentinel"):
            return _behind_sentinels(parts, options, patience, timeout)
        where = _check_direct(parts.scheme, parts.hostname, parts.port, parts.path, options)
    except ValueError as error:
        raise FrontierError(f"frontier URL is not understood: {error}", remedy=_REMEDY) from error
    url = parts._replace(query=urlencode(options)).geturl()
    return RedisAddress(url, where, patience, timeout, password=secret_outside(FRONTIER_PASSWORD))


def times_in(options: dict[str, str]) -> tuple[float, float]:
    """Take patience and time-out out of a URL's options. Raises :class:`ValueError`."""
    patience = float(options.pop("patience", PATIENCE))
    timeout = float(options.pop("socket_timeout", TIMEOUT))
    if not patience >= 0:
        raise ValueError(f"patience is {patience:g}")
    if not 0 < timeout < math.inf:
        raise ValueError(f"socket_timeout is {timeout:g}")
    return patience, timeout


def host_and_port(place: str, usual: int) -> tuple[str, int]:
    """Read ``HOST``, ``HOST:PORT`` or either with the address in brackets. Raises :class:`ValueError`."""
    host, colon, port = place.rpartition(":")
    if not colon or place.endswith("]"):
        host, port = place, str(usual)
    return host.strip("[]"), int(port)


def _check_direct(
    scheme: str, host: str | None, port: int | None, path: str, options: Mapping[str, str]
) -> str:
    # The client has more, which would let it answer otherwise than the frontier reads.
    if unknown := [name for name in options if name not in _OPTIONS and not name.startswith("ssl_")]:
        raise ValueError(f"there is no option {min(unknown)!r}")
    if scheme == "unix":
        if not path.startswith("/") or host:
            raise ValueError("a socket needs its absolute path, as in unix:///run/redis.sock")
        return f"unix://{path}, database {_database(options.get('db', ''))}"
    if not host:
        raise ValueError("there is no host in it")
    if ":" in host:
        host = f"[{host}]"
    return f"{scheme}://{host}:{port or 6379}/{_database(path.strip('/') or options.get('db', ''))}"


def _database(text: str) -> int:
    if text and not text.isdigit():
        raise ValueError(f"database {text!r} is no number")
    return int(text or 0)


def _behind_sentinels(
    parts: SplitResult, options: dict[str, str], patience: float, timeout: float
) -> RedisAddress:
    credentials, _, hosts = parts.netloc.rpartition("@")
    service, _, database = parts.path.strip("/").partition("/")
    if not hosts or not service:
        raise ValueError("sentinels need HOST:PORT,HOST:PORT/SERVICE[/DB]")
    user, _, password = credentials.partition(":")
    tls: dict[str, Any] = {"ssl": True} if parts.scheme == "rediss+sentinel" else {}
    tls |= {name: options.pop(name) for name in list(options) if name.startswith("ssl_")}
    their_password = options.pop("sentinel_password", "") or secret_outside(SENTINEL_PASSWORD)
    theirs = _credentials(options.pop("sentinel_username", ""), their_password)
    if options:
        raise ValueError(f"sentinels have no option {min(options)!r}")
    sentinels = [host_and_port(host, _SENTINEL_PORT) for host in hosts.split(",")]
    access = {
        "db": _database(database),
        **_credentials(unquote(user), unquote(password) or secret_outside(FRONTIER_PASSWORD)),
        **tls,
    }
    where = f"{parts.scheme}://{hosts}/{service}/{access['db']}"
    return RedisAddress("", where, patience, timeout, tuple(sentinels), service, access, {**theirs, **tls})


def _credentials(user: str, password: str) -> dict[str, Any]:
    return {name: value for name, value in (("username", user), ("password", password)) if value}
