"""Address: from a frontier's URL to a client of its server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import msgspec
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

from skitter.errors import FrontierError

PATIENCE = 3600.0
"""Seconds for which a server that is away is waited for, unless the URL says ``?patience=``."""
_REMEDY = "write redis://[USER:PASSWORD@]HOST[:PORT][/DB], rediss://..., unix:///SOCKET[?db=DB] or redis+sentinel://HOST:PORT,HOST:PORT/SERVICE[/DB]"
_SENTINEL_PORT = 26379
TIMEOUT = 20.0
"""Seconds for which the answer to one call is waited for, unless the URL says ``?socket_timeout=``."""
# The client's own limit of time swallows a cancellation now and then (asyncio.wait_for before Python 3.12).
_CLIENT_OPTIONS: dict[str, Any] = {"socket_timeout": None, "socket_connect_timeout": 5.0, "protocol": 2}
if find_spec("redis.driver_info") is not None:
    # Else each new connection looks on the disk for the version of the client, to tell it to the server.
    _CLIENT_OPTIONS["driver_info"] = None


class Address(msgspec.Struct, frozen=True):
    """Where a frontier's server is."""

    url: str
    """For the client, without the options that are ours."""
    where: str
    """For people: no password."""
    patience: float = PATIENCE
    timeout: float = TIMEOUT
    sentinels: tuple[tuple[str, int], ...] = ()
    service: str = ""
    options: dict[str, Any] = {}
    """User, password and database of the server behind the sentinels."""

    def client(self, on_connect: Callable[[Any], Any]) -> redis.asyncio.Redis:
        """Return a client that connects when it is used; ``on_connect`` sees each new connection first.

        Raises :class:`~skitter.errors.FrontierError` for options that the client does not know.
        """
        # A command is repeated by us, who know what may be repeated, and how long to wait.
        options = {
            **_CLIENT_OPTIONS,
            "retry": Retry(NoBackoff(), 0),
            "redis_connect_func": on_connect,
        }
        try:
            if self.sentinels:
                watchers = Sentinel(list(self.sentinels), sentinel_kwargs=_CLIENT_OPTIONS, **options)  # type: ignore[no-untyped-call]
                client: redis.asyncio.Redis = watchers.master_for(self.service, **self.options)
                return client
            client = redis.asyncio.Redis.from_url(self.url, **options)
            pool = client.connection_pool
            pool.connection_class(**pool.connection_kwargs)  # is told only now of options it does not know
            return client  # noqa: TRY300 - what can fail is above
        except (ValueError, TypeError) as error:
            raise FrontierError(f"frontier {self.where}: {error}", remedy=_REMEDY) from error


def parse_address(url: str) -> Address:
    """Read the URL of a frontier. Raises :class:`~skitter.errors.FrontierError` for one that is none."""
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
        patience = float(options.pop("patience", PATIENCE))
        timeout = float(options.pop("socket_timeout", TIMEOUT))
        if parts.scheme == "redis+sentinel":
            return _behind_sentinels(parts.netloc, parts.path, options, patience, timeout)
        where = _check_direct(parts.scheme, parts.hostname, parts.port, parts.path, options)
    except ValueError as error:
        raise FrontierError(f"frontier URL is not understood: {error}", remedy=_REMEDY) from error
    return Address(parts._replace(query=urlencode(options)).geturl(), where, patience, timeout)


def _check_direct(
    scheme: str, host: str | None, port: int | None, path: str, options: Mapping[str, str]
) -> str:
    if scheme == "unix":
        if not path.startswith("/") or host:
            raise ValueError("a socket needs its absolute path, as in unix:///run/redis.sock")
        return f"unix://{path}, database {_database(options.get('db', ''))}"
    if not host:
        raise ValueError("there is no host in it")
    return f"{scheme}://{host}:{port or 6379}/{_database(path.strip('/') or options.get('db', ''))}"


def _database(text: str) -> int:
    if text and not text.isdigit():
        raise ValueError(f"database {text!r} is no number")
    return int(text or 0)


def _behind_sentinels(
    place: str, path: str, options: dict[str, str], patience: float, timeout: float
) -> Address:
    credentials, _, hosts = place.rpartition("@")
    service, _, database = path.strip("/").partition("/")
    if not hosts or not service or options:
        raise ValueError("sentinels need HOST:PORT,HOST:PORT/SERVICE[/DB]")
    access: dict[str, Any] = {"db": _database(database)}
    user, _, password = credentials.partition(":")
    if user:
        access["username"] = unquote(user)
    if password:
        access["password"] = unquote(password)
    sentinels = []
    for host in hosts.split(","):
        name, _, port = host.partition(":")
        sentinels.append((name, int(port or _SENTINEL_PORT)))
    where = f"redis+sentinel://{hosts}/{service}/{access['db']}"
    return Address("", where, patience, timeout, tuple(sentinels), service, access)
