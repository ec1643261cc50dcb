"""Scripts on a Valkey or Redis server. Calls wait for a server that does not respond."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Protocol, TypeVar

from redis.asyncio import Redis
from redis.exceptions import NoScriptError, ReadOnlyError, RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from skitter._utils.backoff import Backoff, Outage
from skitter.errors import FrontierError
from skitter.frontier.redis.address import RedisAddress
from skitter.frontier.redis.kvrocks import check_kvrocks, in_transaction, is_kvrocks, kvrocks_run_id
from skitter.frontier.redis.server_errors import (
    CLOSED_TRANSPORT_ERRORS,
    as_connection_error,
    explained,
    rule_of,
    text_of,
)

log = logging.getLogger("skitter.frontier")

Reply = TypeVar("Reply")
Argument = bytes | str | int | float

MIN_VERSION = (6, 2)
FIRST_RETRY = 0.05
MAX_RETRY_DELAY = 2.0
"""Seconds between two attempts of one call."""
_SCRIPT_COMMANDS = ("EVAL", "EVALSHA")
_PRELUDE = ("job", "first_members", "slots", "seen", "requests")
_WITHOUT_PRELUDE = {"open", "attach", "beat"}


class LuaScript:
    """The form of a script that is sent to the server."""

    __slots__ = ("sha", "source")

    def __init__(self, source: str) -> None:
        self.source = source
        self.sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()


@cache
def all_scripts(*, on_disk: bool = False) -> dict[str, LuaScript]:
    """Read all scripts of ``scripts/redis``, by name. The first call blocks.

    ``on_disk``: for a server that keeps its data on disk.
    """
    folder = files("skitter.frontier.scripts") / "redis"
    parts = [(folder / "prelude" / f"{name}.lua").read_text("utf-8") for name in _PRELUDE]
    prelude = "\n".join([f"local ON_DISK = {'true' if on_disk else 'false'}", *parts])
    scripts = {}
    for file in folder.iterdir():
        name, dot, kind = file.name.partition(".")
        if dot and kind == "lua":
            source = file.read_text("utf-8")
            scripts[name] = LuaScript(source if name in _WITHOUT_PRELUDE else f"{prelude}\n{source}")
    return scripts


@cache
def _report_snapshots(where: str) -> None:
    """Log what a server without an append-only file may lose, once per process: a run opens several connections."""
    log.info(
        "frontier %s has no append-only file: if the server dies, the job returns to its last snapshot"
        " (set appendonly yes on the server)",
        where,
    )


class ServerConnection(Protocol):
    """The connection to the server of some keys."""

    restarts: int
    """Number of times that the server was restarted or replaced, and may have lost its last second."""
    database: int

    def twin(self) -> ServerConnection:
        """Return another connection to the same server, not yet open."""

    def open(self) -> None:
        """Make the client. It connects on first use."""

    async def close(self) -> None:
        """Close all connections."""

    async def info(self) -> dict[str, Any]:
        """Return what the server reports about itself. Raises redis errors."""

    async def execute(self, *words: Argument) -> Any:
        """Run a command. Raises redis errors."""


class OutageLog(Protocol):
    """Logs the outages of a server."""

    def report_failure(self, message: str, reason: object) -> None:
        """Record that a call failed and is repeated, as in :class:`~skitter._utils.backoff.Outage`."""

    def end(self) -> None:
        """Record that the server responds again."""


class SingleConnection:
    """Connections to one server, or to the present primary behind sentinels. Implements :class:`ServerConnection`."""

    def __init__(self, address: RedisAddress) -> None:
        self._address = address
        self._client: Redis | None = None
        self._sentinels: list[Redis] = []
        self._run_id = b""
        self.in_transactions = False
        """Whether each script runs in a transaction. :meth:`info` sets it."""
        self.restarts = 0
        self.database = 0

    def twin(self) -> SingleConnection:
        return type(self)(self._address)

    @property
    def client(self) -> Redis:
        """The client. Raises :class:`~skitter.errors.FrontierError` if it is closed."""
        if self._client is None:
            raise FrontierError("the frontier is not open", remedy="call open() first")
        return self._client

    def open(self) -> None:
        self._client, *self._sentinels = self._address.clients(self._greet)
        self.database = int(self._client.connection_pool.connection_kwargs.get("db") or 0)

    async def _greet(self, connection: Any) -> None:
        """Check, before a new connection is used, whether it leads to the same server process as before."""
        run_id = await server_run_id(connection)
        if self._run_id and run_id != self._run_id:
            self.restarts += 1
        self._run_id = run_id

    async def close(self) -> None:
        if self._client is not None:
            clients, self._client = [self._client, *self._sentinels], None
            for client in clients:
                await client.aclose()

    async def info(self) -> dict[str, Any]:
        info: dict[str, Any] = await self.execute("INFO")
        self.in_transactions = is_kvrocks(info)
        return info

    async def execute(self, *words: Argument) -> Any:
        if self.in_transactions and words[0] in _SCRIPT_COMMANDS:
            return await in_time(self._address.timeout, in_transaction(self.client, words))
        return await in_time(self._address.timeout, self.client.execute_command(*words))  # type: ignore[no-untyped-call]


class RedisServer:
    """A server with the scripts of the frontier.

    Every call may be repeated: if a connection breaks, the effect of its last call is unknown. The scripts are written
    so that a repetition has no further effect. ``connection`` and ``outages`` default to those of a single server.
    """

    def __init__(
        self,
        address: RedisAddress,
        connection: ServerConnection | None = None,
        outages: OutageLog | None = None,
    ) -> None:
        self._address = address
        self.connection = connection if connection is not None else SingleConnection(address)
        self._outages = outages if outages is not None else Outage(f"frontier {address.where}", log.name)
        self._scripts: dict[str, LuaScript] = {}
        self._deadline = math.inf
        """Time at which calls stop waiting for the server, regardless of its URL, by :func:`time.monotonic`."""

    def limit_outages(self, seconds: float) -> None:
        """Let calls wait for the server until ``seconds`` from now, and no longer."""
        self._deadline = min(self._deadline, time.monotonic() + seconds)

    def twin(self) -> RedisServer:
        """Return the same server with separate connections, for another event loop. :meth:`limit_outages` does not affect it."""
        return RedisServer(self._address, self.connection.twin())

    @property
    def where(self) -> str:
        """The server in messages."""
        return self._address.where

    @property
    def restarts(self) -> int:
        """Number of times that the server was restarted or replaced, and may have lost its last second."""
        return self.connection.restarts

    # --- connecting --------------------------------------------------------------------------------------

    async def connect(self, *, patient: bool) -> None:
        """Check that the server is suitable. Raises :class:`~skitter.errors.FrontierError` if it is not.

        ``patient``: wait for a server that does not respond.
        """
        self.connection.open()
        try:
            info = await self._first_info(patient=patient)
            self._check(info)
            self._scripts = await asyncio.to_thread(all_scripts, on_disk=is_kvrocks(info))
        except BaseException:
            await self.close()
            raise

    async def _first_info(self, *, patient: bool) -> dict[str, Any]:
        """Return what the server reports about itself as soon as it responds.

        ``patient``: wait also until it is a primary. A worker may join during a failover; without ``patient`` the
        URL names a replica.
        """

        async def ask(_: bool) -> dict[str, Any]:
            info = await self.connection.info()
            if patient and info.get("role") == "slave":
                raise ReadOnlyError("it is a replica")
            return info

        return await self._repeat(ask, outage_timeout=self._address.outage_timeout if patient else 0.0)

    def _check(self, info: dict[str, Any]) -> None:
        if is_kvrocks(info):
            check_kvrocks(info, self.where, self.connection.database)
        else:
            self._check_redis(info)
        if info.get("role") == "slave":
            primary = f"{info.get('master_host')}:{info.get('master_port')}"
            raise FrontierError(
                f"frontier {self.where} is a read-only replica",
                remedy=f"name its primary, {primary}",
                field="frontier",
            )
        if info.get("maxmemory") and str(info.get("maxmemory_policy")).startswith("allkeys"):
            raise FrontierError(
                f"frontier {self.where} deletes keys when its memory is full"
                f" (maxmemory-policy {info['maxmemory_policy']})",
                remedy="set maxmemory-policy noeviction on the server, or use another server",
                field="maxmemory-policy",
            )
        if not (info.get("aof_enabled") or is_kvrocks(info)):
            _report_snapshots(self.where)

    def _check_redis(self, info: dict[str, Any]) -> None:
        version = str(info["redis_version"])
        if tuple(int(part) for part in version.split(".")[:2]) < MIN_VERSION:
            raise FrontierError(
                f"frontier {self.where} is Redis {version}",
                remedy="use Valkey, or Redis 6.2 or later",
                field="version",
            )
        if info.get("cluster_enabled"):
            raise FrontierError(
                f"frontier {self.where} is a node of a cluster",
                remedy="write redis+cluster://HOST:PORT,HOST:PORT/ with some of its nodes",
                field="frontier",
            )

    async def close(self) -> None:
        """Close all connections."""
        await self.connection.close()

    # --- calling -----------------------------------------------------------------------------------------

    async def run(
        self,
        name: str,
        keys: Sequence[str],
        arguments: Sequence[Argument],
        *,
        repeated: int | None = None,
        patient: bool = True,
    ) -> Any:
        """Run a script. ``repeated``: index of the argument that is ``1`` in every attempt after the first.

        Raises :class:`~skitter.errors.FrontierError` if the server refuses the script, or does not respond within the
        ``outage_timeout`` of its URL.
        """
        script = self._scripts[name]

        async def attempt(is_again: bool) -> Any:
            values = list(arguments)
            if repeated is not None and is_again:
                values[repeated] = b"1"
            try:
                return await self.connection.execute("EVALSHA", script.sha, len(keys), *keys, *values)
            except NoScriptError:
                return await self.connection.execute("EVAL", script.source, len(keys), *keys, *values)

        return await self._repeat(attempt, outage_timeout=self._address.outage_timeout if patient else 0.0)

    async def command(self, *words: Argument) -> Any:
        """Run one command that only reads, or may be repeated."""
        return await self._repeat(
            lambda _: self.connection.execute(*words), outage_timeout=self._address.outage_timeout
        )

    async def _repeat(self, attempt: Callable[[bool], Awaitable[Reply]], outage_timeout: float) -> Reply:
        """Repeat a call while the server has a temporary problem. The argument of the call is whether it is repeated."""
        backoff: Backoff | None = None
        first_failure = 0.0
        while True:
            try:
                reply = await attempt(backoff is not None)
            except RedisError as error:
                now = time.monotonic()
                if backoff is None:
                    backoff, first_failure = Backoff(first=FIRST_RETRY, maximum=MAX_RETRY_DELAY), now
                rule = rule_of(error)
                if rule is None or now >= min(first_failure + outage_timeout, self._deadline):
                    raise explained(error, self.where) from error
                limit = f"retrying for at most {outage_timeout:.0f} s"
                self._outages.report_failure(f"cannot be used: {rule.problem} (%s); {limit}", text_of(error))
            else:
                if backoff is not None:
                    self._outages.end()
                return reply
            await backoff.wait()


async def in_time(timeout: float, call: Awaitable[Reply]) -> Reply:
    """Wait for the reply to one command. Raises redis errors."""
    try:
        async with asyncio.timeout(timeout):
            return await call
    except TimeoutError as error:
        raise RedisTimeoutError(f"no reply within {timeout:g} s") from error
    except CLOSED_TRANSPORT_ERRORS as error:
        raise as_connection_error(error) from error


async def server_run_id(connection: Any) -> bytes:
    """Open a new connection, and return an id that changes when the server restarts."""
    await connection.on_connect()
    await connection.send_command("INFO", "server")
    reply: bytes = await connection.read_response()
    if b"kvrocks_version:" in reply:
        return await kvrocks_run_id(connection)
    return reply.partition(b"run_id:")[2].partition(b"\r\n")[0]
