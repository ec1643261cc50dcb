"""An output to a list or a stream on a Valkey or Redis server, for consumers that read items during the crawl.

Workers do not push items, because a worker may be killed between a push and its commit.

If all workers are on one machine, they write part files, and the process that runs the job pushes the committed ranges.
The position up to which each part file was pushed is stored on the server and advanced in the same script that pushes
the items.

In a fleet, workers write the items of each page to a hash on the server before they commit the page, so that the items
outlive the machine. The process that runs the job on any machine moves committed pages from the hashes to the list or
stream, in one script for each step.

Either way, each item is pushed exactly once, whichever process is killed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import xxhash

from skitter._utils.backoff import Backoff, Unavailable
from skitter._utils.process_identity import is_of_this_machine
from skitter.errors import StoreError
from skitter.item import OutputRange
from skitter.plugins import needing
from skitter.secrets import output_variable, shown_url
from skitter.store.committed import CommittedRanges
from skitter.store.contract import (
    GroupError,
    ItemGroup,
    OutputAddress,
    OutputContext,
    RangesByPart,
    StoreContext,
    parts_folder,
)
from skitter.store.files import ITEMS_STREAM, PartFileStore, encode_group, ranges_for, ranges_of

if TYPE_CHECKING:
    from redis.asyncio import Redis

_Ranges = Sequence[tuple[int, int]]
_PUSH_BYTES = 1 << 18
_FIRST_DELAY = 0.5
"""Delay before the first retry, in seconds: ``emit`` is called about this often anyway."""

_PUSH = """
-- KEYS: items, positions. ARGV: 1 part, 2 position before, 3 position after, 4 kind, 5 maximum length or '',
-- 6.. items. Returns the current position: the one after, or another one if another process has advanced it.
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


_PUSH_STAGED = """
-- KEYS: items, staged pages of one part by the position of their first byte. ARGV: 1 kind, 2 maximum length or '',
-- 3 maximum number of bytes, 4.. committed ranges, first byte and end by turns.
-- Moves committed pages to the items, in order. Returns whether some are left.
local starts = redis.call('HKEYS', KEYS[2])
for i, start in ipairs(starts) do
  starts[i] = tonumber(start)
end
table.sort(starts)
local range, size = 4, 0
for _, start in ipairs(starts) do
  while ARGV[range] and tonumber(ARGV[range + 1]) <= start do
    range = range + 2
  end
  if not ARGV[range] then
    break
  elseif start >= tonumber(ARGV[range]) then
    if size >= tonumber(ARGV[3]) then
      return 1
    end
    local field = string.format('%.0f', start)
    local page = redis.call('HGET', KEYS[2], field)
    for item in string.gmatch(page, '[^\\n]+') do
      if ARGV[1] == 'list' then
        redis.call('RPUSH', KEYS[1], item)
      elseif ARGV[2] ~= '' then
        redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], '*', 'item', item)
      else
        redis.call('XADD', KEYS[1], '*', 'item', item)
      end
    end
    if ARGV[1] == 'list' and ARGV[2] ~= '' then
      redis.call('LTRIM', KEYS[1], -tonumber(ARGV[2]), -1)
    end
    redis.call('HDEL', KEYS[2], field)
    size = size + #page
  end
end
return 0
"""
_LOOKS_PER_FULL_LOOK = 20
"""One in this number of calls of ``emit`` also pushes the items of other machines, which may be gone."""


@cache
def _client_options() -> dict[str, Any]:
    options: dict[str, Any] = {"socket_timeout": 10.0, "socket_connect_timeout": 10.0, "protocol": 2}
    if find_spec("redis.driver_info") is not None:
        # Otherwise each new connection reads the client's version from disk, to report it to the server.
        options["driver_info"] = None
    return options


def _is_outage(error: BaseException | None) -> bool:
    from redis import exceptions  # noqa: PLC0415 - an extra

    away = (exceptions.ConnectionError, exceptions.TimeoutError, OSError)
    return isinstance(error, away) and not isinstance(error, exceptions.AuthenticationError)


class RedisOutput:
    """``redis://HOST/DB/KEY``: a list, or with ``?type=stream`` a stream. ``maxlen=N`` keeps only the newest items.

    ``patience``: how long the last push waits for an unavailable server, in seconds. The crawl itself never waits.
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
        """Password for a server URL that contains none."""
        self._key = key
        self._positions = f"{key}:pushed"
        self._kind = kind
        self._maxlen = maxlen
        self._backoff = Backoff(self._server_name, patience, first=_FIRST_DELAY)
        self._staging = Backoff(self._server_name, patience, first=_FIRST_DELAY)
        self._next_attempt = 0.0
        """Time of the next attempt after a failure, by the monotonic clock."""
        self._is_away = False
        self._pushing = asyncio.Lock()
        self._known: dict[str, int] = {}
        """Last known position of each part on the server."""
        digest = xxhash.xxh3_64_hexdigest(
            f"{self._server_name} {server.rpartition('/')[2]} {key} {kind}".encode()
        )
        self.staging_stream = f"redis-{digest}"
        """Name of the target of the stores of a fleet, as ``stream``."""
        self._pushed: dict[str, _Ranges] = {}
        """Ranges of each staged part that are known to be pushed."""
        self._looks = 0

    @classmethod
    def from_address(cls, address: OutputAddress) -> RedisOutput:
        """Create the output from its address. Raises :class:`~skitter.errors.StoreError`."""
        options = dict(address.options)
        kind = options.pop("type", "list")
        maxlen = options.pop("maxlen", None)
        patience = options.pop("patience", "600")
        host, _, rest = address.rest.partition("/")
        database, _, key = rest.partition("/")
        if not (host and database.isdigit() and key):
            raise StoreError(
                f"output {shown_url(address.target)!r} does not name a key",
                remedy="write redis://HOST/DATABASE/KEY, such as redis://localhost/0/items",
                field="output",
            )
        if (
            kind not in {"list", "stream"}
            or options
            or not (maxlen is None or (maxlen.isdigit() and int(maxlen)))
            or not patience.isdigit()
        ):
            raise StoreError(
                f"output {shown_url(address.target)!r} has an invalid option",
                remedy="use type=list or type=stream, maxlen=NUMBER and patience=SECONDS",
                field="output",
            )
        server = f"{address.kind}://{host}/{database}"
        max_length = None if maxlen is None else int(maxlen)
        return cls(
            address.target,
            server,
            key,
            kind=kind,
            maxlen=max_length,
            patience=float(patience),
            password=address.secret("redis"),
        )

    async def check(self, context: OutputContext) -> None:  # noqa: ARG002 - does not depend on the job
        """Test whether the server answers and the key can hold items.

        Raises :class:`~skitter.errors.StoreError` with a remedy if not.
        """
        async with self._connected() as client:
            kind: str = (await client.execute_command("TYPE", self._key)).decode()  # type: ignore[no-untyped-call]
            if kind not in {"none", self._kind}:
                raise StoreError(
                    f"{self._key} on {self._server_name} is a {kind}, not a {self._kind}",
                    remedy=f"name another key, or change ?type={self._kind}",
                    field="type",
                )

    async def occupied(self, context: OutputContext) -> bool:  # noqa: ARG002 - items are only appended
        """Return ``False``: jobs share a list or a stream."""
        return False

    async def clear(self, context: OutputContext) -> None:
        """Reset the pushed positions of the job. Items that were pushed already belong to their consumers."""
        async with self._connected() as client:
            fields = [
                field async for field, _ in client.hscan_iter(self._positions, match=f"{context.job}/*")
            ]
            if fields:
                await client.hdel(self._positions, *fields)
            async for staged in client.scan_iter(match=self._staged_key(f"{context.job}/*")):
                await client.unlink(staged)

    def store(self) -> PartFileStore:
        """Return a new part file."""
        return PartFileStore()

    def staging_store(self) -> RedisStagingStore:
        """Return a new store for one worker of a fleet."""
        return RedisStagingStore(self)

    async def emit(self, context: OutputContext, ranges: RangesByPart) -> bool:
        """Push newly committed items. Retry later if the server is unavailable."""
        self._looks += 1
        staged = self._staged_ranges(context, ranges)
        if self._looks % _LOOKS_PER_FULL_LOOK:
            staged = {part: known for part, known in staged.items() if is_of_this_machine(_worker_of(part))}
        if (staged or self._has_unpushed(context, ranges)) and time.monotonic() >= self._next_attempt:
            try:
                await self._push_all(context, ranges, staged)
            except StoreError as error:
                self._delay_next_attempt(error)
            else:
                self._is_away = False
                self._backoff.reset()
                self._backoff.outage.end()
        return True

    def _delay_next_attempt(self, error: StoreError) -> None:
        """Log a failure and delay the next attempt, so that time-outs do not slow down the crawl."""
        # The first failure may be one lost connection: the next call tries at once.
        delay = self._backoff.next_delay() if self._is_away else 0.0
        self._is_away = True
        self._next_attempt = time.monotonic() + delay
        away = "is away" if _is_outage(error.__cause__) else "rejects items"
        self._backoff.outage.meet(
            f"{away} (%s); the crawl continues, and committed items are pushed when it is back",
            error.__cause__ or error,
        )

    async def merge(self, context: OutputContext, ranges: RangesByPart) -> None:
        """Push the remaining items; wait for an unavailable server."""
        await self._backoff.call(lambda: self._push_if_available(context, ranges))

    async def _push_if_available(self, context: OutputContext, ranges: RangesByPart) -> None:
        try:
            await self._push_all(context, ranges, self._staged_ranges(context, ranges))
        except StoreError as error:
            if _is_outage(error.__cause__):
                raise Unavailable(str(error.__cause__)) from error
            raise

    def _has_unpushed(self, context: OutputContext, ranges: RangesByPart) -> bool:
        return not context.fleet and any(
            known and known[-1][1] > self._known.get(f"{context.job}/{part}", 0)
            for part, known in ranges_for(context, ranges).items()
        )

    def _staged_ranges(self, context: OutputContext, ranges: RangesByPart) -> dict[str, _Ranges]:
        """Return the committed ranges of the staged parts of this output that may have items to push."""
        if not context.fleet:
            return {}
        folders = tuple(f"{self.folder_of(section)}/" for section in context.sections)
        return {
            part: known
            for part, known in ranges.items()
            if part.startswith(folders) and known and self._pushed.get(part) != known
        }

    def folder_of(self, section: str) -> str:
        """Return the first part of the names of staged parts."""
        return f"{self.staging_stream}-{section}" if section else self.staging_stream

    def _staged_key(self, name: str) -> str:
        return f"{self._key}:staged:{name}"

    async def _push_all(
        self, context: OutputContext, ranges: RangesByPart, staged: dict[str, _Ranges]
    ) -> None:
        own_ranges = {} if context.fleet else ranges_for(context, ranges)
        async with self._pushing, self._connected() as client:
            for part, known in staged.items():
                keys = (self._key, self._staged_key(f"{context.job}/{part}"))
                flat = [position for one in known for position in one]
                arguments = (self._kind, self._maxlen or "", _PUSH_BYTES, *flat)
                while await client.eval(_PUSH_STAGED, 2, *keys, *arguments):
                    pass
                self._pushed[part] = list(known)
            for part in sorted(own_ranges):
                if own_ranges[part]:
                    await self._push_part(client, context, part, own_ranges[part])

    async def _push_part(self, client: Redis, context: OutputContext, part: str, ranges: _Ranges) -> None:
        field = f"{context.job}/{part}"
        position = int(await client.hget(self._positions, field) or 0)
        # A worker commits its part file in order, so no range before a pushed one can follow.
        while left := [(max(start, position), end) for start, end in ranges if end > max(start, position)]:
            committed = CommittedRanges(parts_folder(context.directory), {part: left})
            position = await self._push_blocks(client, field, position, committed.blocks(_PUSH_BYTES))
        self._known[field] = position

    async def _push_blocks(
        self, client: Redis, field: str, position: int, blocks: Iterator[tuple[list[bytes], int]]
    ) -> int:
        """Push blocks until the position on the server differs from ours (another process, or a lost reply); return it."""
        while (block := await asyncio.to_thread(next, blocks, None)) is not None:
            lines, after = block
            keys = (self._key, self._positions)
            arguments = (field, position, after, self._kind, self._maxlen or "")
            position = int(await client.eval(_PUSH, 2, *keys, *arguments, *lines))
            if position != after:
                break
        return position

    @property
    def _server_name(self) -> str:
        return self._server.rpartition("@")[2] if "@" in self._server else self._server.partition("://")[2]

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Redis]:
        """Yield a client. Every failure becomes a :class:`~skitter.errors.StoreError`."""
        client = self.client()
        try:
            with self.translated_errors():
                yield client
        finally:
            await client.aclose()

    async def stage(self, client: Redis, name: str, pages: Mapping[int, bytes]) -> None:
        """Write the items of pages to the staged part ``name``, by the position of their first byte.

        Waits for an unavailable server. Raises :class:`~skitter.errors.StoreError`.
        """

        async def attempt() -> None:
            try:
                with self.translated_errors():
                    await client.hset(
                        self._staged_key(name), mapping={str(at): page for at, page in pages.items()}
                    )
            except StoreError as error:
                if _is_outage(error.__cause__):
                    raise Unavailable(str(error.__cause__)) from error
                raise

        await self._staging.call(attempt)

    def client(self) -> Redis:
        """Return a client of the server, which connects on first use. Raises :class:`~skitter.errors.StoreError`."""
        with needing("redis", f"output {self.target!r}", StoreError):
            from redis.asyncio import Redis  # noqa: PLC0415 - an extra
        try:
            # A password in the URL takes precedence over this one.
            return Redis.from_url(self._server, password=self._password or None, **_client_options())
        except ValueError as error:
            raise StoreError(
                f"invalid address of output {self.target!r}: {error}",
                remedy="write redis://HOST/DATABASE/KEY",
                field="output",
            ) from error

    @contextmanager
    def translated_errors(self) -> Iterator[None]:
        """Turn every failure into a :class:`~skitter.errors.StoreError`."""
        from redis.exceptions import AuthenticationError, RedisError  # noqa: PLC0415 - an extra

        try:
            yield
        except AuthenticationError as error:
            raise StoreError(
                f"{self._server_name} refuses the user or the password: {error}",
                remedy=f"set {output_variable('redis')}, or write redis://USER:PASSWORD@HOST/DATABASE/KEY",
            ) from error
        except (RedisError, OSError) as error:
            raise StoreError(
                f"cannot push items to {self._server_name}: {error}",
                remedy="run the same command again when the server accepts writes: committed items are kept and pushed then",
            ) from error


def _worker_of(part: str) -> str:
    return part.rpartition("/")[2]


class RedisStagingStore:
    """Writes the items of each page to the server of an output, before the page is committed."""

    buffering = None

    def __init__(self, output: RedisOutput) -> None:
        self._output = output
        self._client: Redis | None = None
        self._job = self._part = ""
        self._end = 0

    async def open(self, context: StoreContext) -> None:
        """Prepare to write. The connection is made with the first write."""
        self._job = context.job
        self._part = f"{self._output.folder_of(context.section)}/{context.worker}"
        self._client = self._output.client()

    async def write(self, groups: Sequence[ItemGroup]) -> list[OutputRange | GroupError | None]:
        """Write the items of all groups; see :meth:`skitter.store.contract.Store.write`."""
        assert self._client is not None, "open() comes first"
        blocks = [encode_group(group) for group in groups]
        ranges = ranges_of(blocks, self._part, self._end)
        pages = {
            written.start: block
            for block, written in zip(blocks, ranges, strict=True)
            if isinstance(written, OutputRange) and isinstance(block, bytes)
        }
        if pages:
            self._end += sum(map(len, pages.values()))  # a position that was tried once is never used again
            await self._output.stage(self._client, f"{self._job}/{self._part}", pages)
        return ranges

    async def close(self) -> None:
        """Disconnect."""
        if self._client is not None:
            await self._client.aclose()
