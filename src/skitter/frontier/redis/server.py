"""RedisServer: runs scripts on a Valkey or Redis server, and waits for it while it is away."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

from redis.asyncio import Redis
from redis.exceptions import NoScriptError, ReadOnlyError, RedisError
from redis.exceptions import TimeoutError as TooSlow

from skitter.errors import FrontierError
from skitter.frontier.redis.address import RedisAddress
from skitter.frontier.redis.kvrocks import check_kvrocks, in_transaction, is_kvrocks, life_behind
from skitter.frontier.redis.server_errors import ServerErrorRule, broken, explained, said, trouble_of

log = logging.getLogger("skitter.frontier")

Answer = TypeVar("Answer")
Argument = bytes | str | int | float

_OLDEST = (6, 2)
_SCRIPTS = ("EVAL", "EVALSHA")
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
_PRELUDE = ("job", "beginnings", "slots", "seen", "requests")
_ALONE = {"open", "attach"}
"""Scripts without the prelude."""


class LuaScript:
    """One script as the server gets it."""

    __slots__ = ("sha", "source")

    def __init__(self, source: str) -> None:
        self.source = source
        self.sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()


@cache
def all_scripts(*, on_disk: bool = False) -> dict[str, LuaScript]:
    """Read all scripts of ``scripts/redis`` by their names. Blocks at the first call.

    ``on_disk``: as they are for a server that keeps its data on disk.
    """
    folder = files("skitter.frontier.scripts") / "redis"
    parts = [(folder / "prelude" / f"{name}.lua").read_text("utf-8") for name in _PRELUDE]
    prelude = "\n".join([f"local ON_DISK = {'true' if on_disk else 'false'}", *parts])
    scripts = {}
    for file in folder.iterdir():
        name, dot, kind = file.name.partition(".")
        if dot and kind == "lua":
            own = file.read_text("utf-8")
            scripts[name] = LuaScript(own if name in _ALONE else f"{prelude}\n{own}")
    return scripts


class RedisServer:
    """A server with the scripts of the frontier.

    Every call may be repeated: what came of it is unknown when the connection breaks. The scripts are written
    so that a repetition does nothing twice.
    """

    def __init__(self, address: RedisAddress) -> None:
        self._address = address
        self._client: Redis | None = None
        self._sentinels: list[Redis] = []
        self._scripts: dict[str, LuaScript] = {}
        self._run_id = b""
        self._is_kvrocks = False
        self.restarts = 0
        """How often another life of the server, or another server, was met: it may have lost its last second."""
        self._troubled: dict[ServerErrorRule, float] = {}
        """Troubles in force, with their beginnings."""

    @property
    def where(self) -> str:
        """The server's name for people."""
        return self._address.where

    async def connect(self, *, patient: bool) -> None:
        """Find out whether the server can serve. Raises :class:`~skitter.errors.FrontierError`.

        ``patient``: wait for it if it is away.
        """
        self._scripts = await asyncio.to_thread(all_scripts)
        self._client, *self._sentinels = self._address.clients(self._greet)
        try:
            info = await self._greeted(patient=patient)
            self._check(info)
            if is_kvrocks(info):
                self._is_kvrocks = True
                self._scripts = await asyncio.to_thread(all_scripts, on_disk=True)
        except BaseException:
            await self.close()
            raise

    async def _greeted(self, *, patient: bool) -> dict[str, Any]:
        """Return what the server says of itself, once it answers.

        ``patient``: also once it is a primary. Who joins a crawl may come in the middle of a fail-over; who begins
        one has named a replica.
        """

        async def ask(_: bool) -> dict[str, Any]:
            info = await self._info()
            if patient and info.get("role") == "slave":
                raise ReadOnlyError("its role is that of a replica")
            return info

        return await self._trying(ask, patience=self._patience(patient))

    async def _info(self) -> dict[str, Any]:
        info: dict[str, Any] = await self._execute("INFO")
        return info

    def _check(self, info: dict[str, Any]) -> None:
        if is_kvrocks(info):
            check_kvrocks(info, self.where, self._database)
        else:
            self._check_redis(info)
        if info.get("role") == "slave":
            raise FrontierError(
                f"frontier {self.where} is a read-only replica",
                remedy=f"name its primary, {info.get('master_host')}:{info.get('master_port')}",
            )
        if info.get("maxmemory") and str(info.get("maxmemory_policy")).startswith("allkeys"):
            raise FrontierError(
                f"frontier {self.where} throws away keys when its memory is full"
                f" (maxmemory-policy {info['maxmemory_policy']})",
                remedy="set maxmemory-policy noeviction on the server, or use another one",
            )
        if not (info.get("aof_enabled") or is_kvrocks(info)):
            log.info(
                "%s keeps no log of its writes: if it dies, the job goes back to its last snapshot"
                " (set appendonly yes there)",
                self.where,
            )

    def _check_redis(self, info: dict[str, Any]) -> None:
        version = str(info["redis_version"])
        if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST:
            raise FrontierError(
                f"frontier {self.where} is Redis {version}", remedy="use Valkey, or Redis 6.2 or later"
            )
        if info.get("cluster_enabled"):
            raise FrontierError(
                f"frontier {self.where} is a node of a cluster",
                remedy="write redis+cluster://HOST:PORT,HOST:PORT/ with some of its nodes",
            )

    @property
    def _database(self) -> int:
        client = self._client
        return int(client.connection_pool.connection_kwargs.get("db") or 0) if client is not None else 0

    @property
    def _connected(self) -> Redis:
        if self._client is None:
            raise FrontierError("the frontier is not open")
        return self._client

    async def close(self) -> None:
        """Close all connections."""
        if self._client is not None:
            clients, self._client = [self._client, *self._sentinels], None
            for client in clients:
                await client.aclose()

    async def _greet(self, connection: Any) -> None:
        """See a new connection before anybody uses it, and find out whether the server is the same as before."""
        run_id = await run_id_behind(connection)
        if self._run_id and run_id != self._run_id:
            self.restarts += 1
        self._run_id = run_id

    async def run(
        self,
        name: str,
        keys: Sequence[str],
        arguments: Sequence[Argument],
        *,
        repeated: int | None = None,
        patient: bool = True,
    ) -> Any:
        """Run a script. ``repeated``: which argument is to be ``1`` where the call is not the first.

        Raises :class:`~skitter.errors.FrontierError` if the server cannot do it, or is away for longer than
        it is waited for.
        """
        script = self._scripts[name]

        async def attempt(is_again: bool) -> Any:
            given = list(arguments)
            if repeated is not None and is_again:
                given[repeated] = b"1"
            try:
                return await self._execute("EVALSHA", script.sha, len(keys), *keys, *given)
            except NoScriptError:
                return await self._execute("EVAL", script.source, len(keys), *keys, *given)

        return await self._trying(attempt, patience=self._patience(patient))

    async def command(self, *words: Argument) -> Any:
        """Run one command that reads."""
        return await self._trying(lambda _: self._execute(*words), patience=self._address.patience)

    async def _execute(self, *words: Argument) -> Any:
        if self._is_kvrocks and words[0] in _SCRIPTS:
            return await self._answer_to(in_transaction(self._connected, words))
        return await self._answer_to(self._connected.execute_command(*words))  # type: ignore[no-untyped-call]

    async def _answer_to(self, call: Awaitable[Answer]) -> Answer:
        try:
            async with asyncio.timeout(self._address.timeout):
                return await call
        except TimeoutError as error:
            raise TooSlow(f"no answer within {self._address.timeout:g} s") from error
        except RuntimeError as error:
            raise broken(error) from error

    def _patience(self, patient: bool) -> float:
        return self._address.patience if patient else 0.0

    async def _trying(self, attempt: Callable[[bool], Awaitable[Answer]], patience: float) -> Answer:
        """Try until it is done; wait between two attempts while the server cannot do it."""
        trouble: ServerErrorRule | None = None
        begun, pause = 0.0, _FIRST_PAUSE
        while True:
            try:
                answer = await attempt(trouble is not None)
            except RedisError as error:
                now = time.monotonic()
                begun = begun or now
                trouble = trouble_of(error)
                if trouble is None or now - begun >= patience:
                    raise explained(error, self.where) from error
                self._tell(trouble, patience, error)
            else:
                if trouble is not None:
                    self._tell_end()
                return answer
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _tell(self, trouble: ServerErrorRule, patience: float, error: RedisError) -> None:
        if trouble not in self._troubled:
            self._troubled[trouble] = time.monotonic()
            log.warning(
                "frontier %s: %s (%s); it is waited for, at most %.0f s",
                self.where,
                trouble.what,
                said(error),
                patience,
            )

    def _tell_end(self) -> None:
        if self._troubled:
            begun = min(self._troubled.values())
            self._troubled.clear()
            log.warning("frontier %s is back after %.1f s", self.where, time.monotonic() - begun)


async def run_id_behind(connection: Any) -> bytes:
    """Greet the server behind a new connection before anybody uses it; returns what changes with each of its lives."""
    await connection.on_connect()
    await connection.send_command("INFO", "server")
    answer: bytes = await connection.read_response()
    if b"kvrocks_version:" in answer:
        return await life_behind(connection)
    return answer.partition(b"run_id:")[2].partition(b"\r\n")[0]
