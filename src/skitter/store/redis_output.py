"""RedisOutput: a list or a stream on a Valkey or Redis server, for consumers that take items while the crawl runs.

Items are not pushed by the workers, who may die between a push and its commit. They go to part files; what is
committed of these is pushed by the process that runs the job on its machine. How far each part file has been
pushed stands on the server beside the items, and is moved on in the step that pushes them: whoever dies,
each item comes once. ``docs/fleet.md`` has the reasons.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from skitter._utils.backoff import LONGEST_PAUSE, Backoff, Unavailable
from skitter.errors import StoreError
from skitter.plugins import needing
from skitter.secrets import output_variable, shown_url
from skitter.store.committed import CommittedRanges
from skitter.store.contract import OutputAddress, OutputContext, RangesByPart, parts_folder
from skitter.store.files import ITEMS_STREAM, PartFileStore, ranges_for

if TYPE_CHECKING:
    from redis.asyncio import Redis

_Ranges = Sequence[tuple[int, int]]
_BYTES_AT_ONCE = 1 << 18
_FIRST_PAUSE = 1.0
"""Seconds; after the first failure the crawl's next look, half a second later, tries again in any case."""

_PUSH = """
-- KEYS: items, positions. ARGV: 1 part, 2 position before, 3 position after, 4 kind, 5 largest length or '',
-- 6.. items. Returns the position that holds: the one after, or another if somebody else has moved it.
local at = redis.call('HGET', KEYS[2], ARGV[1]) or '0'
if at ~= ARGV[2] then
  return at
end
for i = 6, #ARGV do
  if ARGV[4] == 'list' then
    redis.call('RPUSH', KEYS[1], ARGV[i])
  elseif ARGV[5] ~= '' then
    redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[5], '*', 'item', ARGV[i])
  else
    redis.call('XADD', KEYS[1], '*', 'item', ARGV[i])
  end
end
if ARGV[4] == 'list' and ARGV[5] ~= '' then
  redis.call('LTRIM', KEYS[1], -tonumber(ARGV[5]), -1)
end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
return ARGV[3]
"""


@cache
def _client_options() -> dict[str, Any]:
    options: dict[str, Any] = {"socket_timeout": 10.0, "socket_connect_timeout": 10.0, "protocol": 2}
    if find_spec("redis.driver_info") is not None:
        # Else each new connection looks on the disk for the version of the client, to tell it to the server.
        options["driver_info"] = None
    return options


def _is_outage(error: BaseException | None) -> bool:
    from redis import exceptions  # noqa: PLC0415 - an extra

    away = (exceptions.ConnectionError, exceptions.TimeoutError, OSError)
    return isinstance(error, away) and not isinstance(error, exceptions.AuthenticationError)


class RedisOutput:
    """``redis://HOST/DB/KEY``: a list, or with ``?type=stream`` a stream; ``maxlen=N`` keeps the newest only.

    ``patience``: seconds for which the last push waits for a server that is away. The crawl itself does not.
    """

    def __init__(
        self,
        target: str,
        server: str,
        key: str,
        *,
        kind: str = "list",
        maxlen: int | None = None,
        patience: float = 600.0,
        password: str = "",
    ) -> None:
        self.target = shown_url(target)
        self.stream = ITEMS_STREAM
        self._server = server
        self._password = password
        """For the URL of the server, where it says none."""
        self._key = key
        self._positions = f"{key}:pushed"
        self._kind = kind
        self._maxlen = maxlen
        self._patience = Backoff(self._where, patience)
        self._again_at = 0.0
        """When a server that was away is looked for again."""
        self._pause = 0.0
        self._pushing = asyncio.Lock()
        self._known: dict[str, int] = {}
        """Position of each part as the server said last."""

    @classmethod
    def from_address(cls, address: OutputAddress) -> RedisOutput:
        """Make the output that a name means. Raises :class:`~skitter.errors.StoreError`."""
        options = dict(address.options)
        kind = options.pop("type", "list")
        maxlen = options.pop("maxlen", None)
        patience = options.pop("patience", "600")
        place, _, rest = address.rest.partition("/")
        database, _, key = rest.partition("/")
        if not (place and database.isdigit() and key):
            raise StoreError(
                f"output {shown_url(address.target)!r} names no key",
                remedy="write redis://HOST/DATABASE/KEY, such as redis://localhost/0/items",
            )
        if (
            kind not in {"list", "stream"}
            or options
            or not (maxlen is None or (maxlen.isdigit() and int(maxlen)))
            or not patience.isdigit()
        ):
            raise StoreError(
                f"output {shown_url(address.target)!r} has an option that is not understood",
                remedy="use type=list or type=stream, maxlen=NUMBER and patience=SECONDS",
            )
        server = f"{address.kind}://{place}/{database}"
        most = None if maxlen is None else int(maxlen)
        return cls(
            address.target,
            server,
            key,
            kind=kind,
            maxlen=most,
            patience=float(patience),
            password=address.secret("redis"),
        )

    async def check(self, context: OutputContext) -> None:  # noqa: ARG002 - the key is not the job's
        """Find out whether the server answers and the key can hold items.

        Raises :class:`~skitter.errors.StoreError` with a remedy if not.
        """
        async with self._connected() as client:
            kind: str = (await client.execute_command("TYPE", self._key)).decode()  # type: ignore[no-untyped-call]
            if kind not in {"none", self._kind}:
                raise StoreError(
                    f"{self._key} on {self._where} is a {kind}, not a {self._kind}",
                    remedy="name another key, or ?type=",
                )

    async def occupied(self, context: OutputContext) -> bool:  # noqa: ARG002 - items are only appended
        """Never: jobs share a list or a stream."""
        return False

    async def clear(self, context: OutputContext) -> None:
        """Forget how far the parts of the job were pushed; what was pushed belongs to its consumers."""
        async with self._connected() as client:
            fields = [
                field async for field, _ in client.hscan_iter(self._positions, match=f"{context.job}/*")
            ]
            if fields:
                await client.hdel(self._positions, *fields)

    def store(self) -> PartFileStore:
        """Return a new part file."""
        return PartFileStore()

    async def emit(self, context: OutputContext, ranges: RangesByPart) -> bool:
        """Push what was committed on this machine and is not pushed yet; a server that is away is tried again."""
        if self._is_news(context, ranges) and time.monotonic() >= self._again_at:
            try:
                await self._push_all(context, ranges)
            except StoreError as error:
                self._meet(error)
            else:
                self._pause = 0.0
                self._patience.outage.end()
        return True

    def _meet(self, error: StoreError) -> None:
        """Let the crawl go on without the server; looking for one that does not answer takes its time."""
        self._again_at = time.monotonic() + self._pause
        self._pause = min(2 * self._pause or _FIRST_PAUSE, LONGEST_PAUSE)
        away = "is away" if _is_outage(error.__cause__) else "takes no items"
        self._patience.outage.meet(
            f"{away} (%s); the crawl goes on, and what is committed is pushed when it is back",
            error.__cause__ or error,
        )

    async def merge(self, context: OutputContext, ranges: RangesByPart) -> None:
        """Push what is left; waits for a server that is away."""
        await self._patience.call(lambda: self._push_if_there(context, ranges))

    async def _push_if_there(self, context: OutputContext, ranges: RangesByPart) -> None:
        try:
            await self._push_all(context, ranges)
        except StoreError as error:
            if _is_outage(error.__cause__):
                raise Unavailable(str(error.__cause__)) from error
            raise

    def _is_news(self, context: OutputContext, ranges: RangesByPart) -> bool:
        return any(
            known and known[-1][1] > self._known.get(f"{context.job}/{part}", 0)
            for part, known in ranges_for(context, ranges).items()
        )

    async def _push_all(self, context: OutputContext, ranges: RangesByPart) -> None:
        mine = ranges_for(context, ranges)
        async with self._pushing, self._connected() as client:
            for part in sorted(mine):
                if mine[part]:
                    await self._push_part(client, context, part, mine[part])

    async def _push_part(self, client: Redis, context: OutputContext, part: str, ranges: _Ranges) -> None:
        field = f"{context.job}/{part}"
        position = int(await client.hget(self._positions, field) or 0)
        # A worker commits its part file in order, so that nothing before a pushed range comes later.
        while left := [(max(start, position), end) for start, end in ranges if end > max(start, position)]:
            committed = CommittedRanges(parts_folder(context.directory), {part: left})
            position = await self._push_until_moved(client, field, position, committed.blocks(_BYTES_AT_ONCE))
        self._known[field] = position

    async def _push_until_moved(
        self, client: Redis, field: str, position: int, blocks: Iterator[tuple[list[bytes], int]]
    ) -> int:
        """Push blocks until all are, or somebody else (or a call whose answer was lost) has; return where it is."""
        while (block := await asyncio.to_thread(next, blocks, None)) is not None:
            lines, after = block
            keys = (self._key, self._positions)
            given = (field, position, after, self._kind, self._maxlen or "")
            position = int(await client.eval(_PUSH, 2, *keys, *given, *lines))
            if position != after:
                break
        return position

    @property
    def _where(self) -> str:
        return self._server.rpartition("@")[2] if "@" in self._server else self._server.partition("://")[2]

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Redis]:
        """Give a client. Whatever goes wrong with it is a :class:`~skitter.errors.StoreError`."""
        with needing("redis", f"output {self.target!r}", StoreError):
            from redis.asyncio import Redis  # noqa: PLC0415 - an extra
            from redis.exceptions import AuthenticationError, RedisError  # noqa: PLC0415 - an extra
        try:
            # What the URL says goes before these options.
            client = Redis.from_url(self._server, password=self._password or None, **_client_options())
        except ValueError as error:
            raise StoreError(
                f"output {self.target!r} is no address: {error}", remedy="write redis://HOST/DATABASE/KEY"
            ) from error
        try:
            yield client
        except AuthenticationError as error:
            raise StoreError(
                f"{self._where} refuses the user or the password: {error}",
                remedy=f"set {output_variable('redis')}, or write redis://USER:PASSWORD@HOST/DATABASE/KEY",
            ) from error
        except (RedisError, OSError) as error:
            raise StoreError(
                f"items cannot be pushed to {self._where}: {error}",
                remedy="what was committed is kept: the same command again pushes it when the server can take it",
            ) from error
        finally:
            await client.aclose()
