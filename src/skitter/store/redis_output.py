"""An output to a list or a stream on a Valkey or Redis server, for consumers that read items during the crawl.

Workers do not push items, because a worker may be killed between a push and its commit.

If all workers are on one machine, they write part files, and the process that runs the job pushes the committed ranges.
The position up to which each part file was pushed is stored on the server and advanced in the same script that pushes
the items.

In a fleet, workers write the items of each page to a hash on the server before they commit the page, so that the items
outlive the machine. The process that runs the job on any machine moves committed pages from the hashes to the list or
stream, in one script for each step.

In both cases, each item is pushed exactly once, even if any process is killed.
"""

from __future__ import annotations

import asyncio
import re
import time
from bisect import bisect_left
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import msgspec
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
    Output,
    OutputAddress,
    OutputContext,
    RangesByPart,
    StoreContext,
    encode_items,
    parts_folder,
)
from skitter.store.database import MAX_SECONDS, read_options
from skitter.store.files import (
    ITEMS_STREAM,
    PartFileStore,
    encode_group,
    items_stream,
    ranges_for,
    ranges_of,
)
from skitter.store.redis_items import RedisItemFormat, by_key, to_frame, to_line

if TYPE_CHECKING:
    from redis.asyncio import Redis

_Reply = TypeVar("_Reply")
_Ranges = Sequence[tuple[int, int]]
_REPLY_TIMEOUT = 10.0
"""Seconds to wait for the reply to one command."""
_PUSH_BYTES = 1 << 18
_PAGES_PER_READ = 200
_FIRST_DELAY = 0.5
"""Delay before the first retry in seconds. ``emit`` is called at about this interval anyway."""

_ADD = """
local kind, maximum
local function check(key)
  local found = redis.call('TYPE', key)['ok']
  if found ~= 'none' and found ~= kind then
    return redis.error_reply('WRONGTYPE ' .. key .. ' is a ' .. found .. ', not a ' .. kind)
  end
end
local function add(key, item)
  if kind == 'list' then
    redis.call('RPUSH', key, item)
  elseif maximum ~= '' then
    redis.call('XADD', key, 'MAXLEN', '~', maximum, '*', 'item', item)
  else
    redis.call('XADD', key, '*', 'item', item)
  end
end
local function trim(key)
  if kind == 'list' and maximum ~= '' then
    redis.call('LTRIM', key, -tonumber(maximum), -1)
  end
end
"""
"""Functions of the scripts. The types of all keys are checked before anything is added: a script is not undone if it fails."""

_PUSH = f"""
-- KEYS: 1 positions, 2.. items. ARGV: 1 part, 2 position before, 3 position after, 4 kind, 5 maximum length or '',
-- 6.. for each key of items: the number of its items, and the items.
-- Returns the current position: the one after, or another one if another process has advanced it.
{_ADD}
kind, maximum = ARGV[4], ARGV[5]
local at = redis.call('HGET', KEYS[1], ARGV[1]) or '0'
if at ~= ARGV[2] then
  return at
end
for number = 2, #KEYS do
  local wrong = check(KEYS[number])
  if wrong then
    return wrong
  end
end
local next = 6
for number = 2, #KEYS do
  local last = next + tonumber(ARGV[next])
  for i = next + 1, last do
    add(KEYS[number], ARGV[i])
  end
  trim(KEYS[number])
  next = last + 1
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return ARGV[3]
"""


_PUSH_STAGED = f"""
-- KEYS: items, staged pages of one part by the position of their first byte. ARGV: 1 kind, 2 maximum length or '',
-- 3 maximum number of bytes, 4 whether items name their keys, 5.. committed ranges, first byte and end alternately.
-- Moves committed pages to the items, in order. Returns whether some are left.
{_ADD}
kind, maximum = ARGV[1], ARGV[2]
local function push_framed(page)
  local keys, items, is_known = {{}}, {{}}, {{}}
  local at = 1
  while at <= #page do
    local _, head, key_size, item_size = string.find(page, '^(%d+) (%d+)\\n', at)
    local key = string.sub(page, head + 1, head + key_size)
    at = head + key_size + item_size + 1
    keys[#keys + 1] = key
    items[#items + 1] = string.sub(page, at - item_size, at - 1)
    if not is_known[key] then
      local wrong = check(key)
      if wrong then
        return wrong
      end
      is_known[key] = true
    end
  end
  for i, key in ipairs(keys) do
    add(key, items[i])
  end
  for key in pairs(is_known) do
    trim(key)
  end
end
local function push_lines(page)
  local wrong = check(KEYS[1])
  if wrong then
    return wrong
  end
  for item in string.gmatch(page, '[^\\n]+') do
    add(KEYS[1], item)
  end
  trim(KEYS[1])
end
local starts = redis.call('HKEYS', KEYS[2])
for i, start in ipairs(starts) do
  starts[i] = tonumber(start)
end
table.sort(starts)
local range, size = 5, 0
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
    local wrong = (ARGV[4] == '1' and push_framed or push_lines)(page)
    if wrong then
      return wrong
    end
    redis.call('HDEL', KEYS[2], field)
    size = size + #page
  end
end
return 0
"""
_LOOKS_PER_FULL_LOOK = 20
"""Of this number of calls of ``emit``, one also pushes the items of other machines, which may be gone."""


@cache
def _client_options() -> dict[str, Any]:
    options: dict[str, Any] = {
        "socket_timeout": None,  # see _in_time
        "socket_connect_timeout": _REPLY_TIMEOUT,
        "protocol": 2,
    }
    if find_spec("redis.driver_info") is not None:
        # Otherwise each new connection reads the client's version from disk, to report it to the server.
        options["driver_info"] = None
    return options


async def _in_time(call: Awaitable[_Reply]) -> _Reply:
    """Wait for the reply to one command. Raises :class:`TimeoutError`.

    The client's own timeout uses :func:`asyncio.wait_for`, which may lose the cancellation of its task in Python 3.11.
    """
    try:
        async with asyncio.timeout(_REPLY_TIMEOUT):
            return await call
    except TimeoutError as error:
        raise TimeoutError(f"no reply within {_REPLY_TIMEOUT:g} s") from error


async def _scan(call: Callable[[int], Awaitable[tuple[int, Iterable[Any]]]]) -> list[Any]:
    """Return everything that a command such as SCAN finds. ``call`` runs it with a cursor."""
    found: list[Any] = []
    cursor = 0
    while True:
        cursor, part = await _in_time(call(cursor))
        found += part
        if not cursor:
            return found


def _is_outage(error: BaseException | None) -> bool:
    from redis import exceptions  # noqa: PLC0415 - an extra

    away = (exceptions.ConnectionError, exceptions.TimeoutError, OSError)
    return isinstance(error, away) and not isinstance(error, exceptions.AuthenticationError)


@contextmanager
def _outages_as_unavailable() -> Iterator[None]:
    """Convert a :class:`~skitter.errors.StoreError` that an outage has caused to :class:`Unavailable`."""
    try:
        yield
    except StoreError as error:
        if _is_outage(error.__cause__):
            raise Unavailable(str(error.__cause__)) from error
        raise


class RedisOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The options of a ``redis://`` output; see :class:`RedisOutput`."""

    type: Literal["list", "stream"] = "list"
    maxlen: Annotated[int, msgspec.Meta(ge=1)] | None = None
    outage_timeout: Annotated[float, msgspec.Meta(ge=0, le=MAX_SECONDS)] = 600.0
    serializer: str = ""


class RedisOutput(Output):
    """``redis://HOST/DB/KEY``: a list, or with ``?type=stream`` a stream. ``maxlen=N`` keeps only the newest items.

    ``form``: the keys and the bytes of items; see :class:`~skitter.store.redis_items.RedisItemFormat`.

    ``outage_timeout``: how long the last push waits for an unavailable server, in seconds. The crawl itself never waits.
    """

    is_append_only = True

    def __init__(
        self,
        target: str,
        server: str,
        form: RedisItemFormat,
        *,
        kind: str = "list",
        maxlen: int | None = None,
        outage_timeout: float = 600.0,
        password: str = "",
    ) -> None:
        self.target = shown_url(target)
        self._server = server
        self._password = password
        """Password for a server URL that contains none."""
        self._form = form
        self._key = form.key
        self._positions = f"{form.key}:pushed"
        self._kind = kind
        self._maxlen = maxlen
        self._backoff = Backoff(self._server_name, outage_timeout, first=_FIRST_DELAY)
        self._staging = Backoff(self._server_name, outage_timeout, first=_FIRST_DELAY)
        self._next_attempt = 0.0
        """Time of the next attempt after a failure, by the monotonic clock."""
        self._is_away = False
        self._pushing = asyncio.Lock()
        self._known: dict[str, int] = {}
        """Last known position of each part on the server."""
        place = f"{self._server_name} {server.rpartition('/')[2]} {form.key} {kind}"
        digest = xxhash.xxh3_64_hexdigest(
            f"{place} {form.serializer}".encode() if form.serializer else place.encode()
        )
        self._staging_stream = f"redis-{digest}"
        self.stream = ITEMS_STREAM if form.is_plain else self._staging_stream
        self._pushed: dict[str, _Ranges] = {}
        """Ranges of each staged part that are known to be pushed."""
        self._looks = 0

    @classmethod
    def from_address(cls, address: OutputAddress) -> RedisOutput:
        """Create the output from its address. Raises :class:`~skitter.errors.StoreError`."""
        options = read_options(shown_url(address.target), address.options, RedisOptions, others=())
        host, _, rest = address.rest.partition("/")
        database, _, key = rest.partition("/")
        if not (host and database.isdigit() and key):
            raise StoreError(
                f"output {shown_url(address.target)!r} does not name a key",
                remedy="write redis://HOST/DATABASE/KEY, such as redis://localhost/0/items",
                field="output",
            )
        form = RedisItemFormat(key, options.serializer)
        form.function()  # report a missing serializer now
        return cls(
            address.target,
            f"{address.kind}://{host}/{database}",
            form,
            kind=options.type,
            maxlen=options.maxlen,
            outage_timeout=options.outage_timeout,
            password=address.password("redis"),
        )

    @classmethod
    def for_parts(cls, target: str, url: str, password: str) -> RedisOutput:
        """Create the storage for the parts of a file output. Items are staged on the server and stay there.

        Raises :class:`~skitter.errors.StoreError`.
        """
        scheme, _, rest = url.partition("://")
        server, _, key = rest.rpartition("/")
        if scheme not in {"redis", "rediss"} or not key or not server.rpartition("/")[2].isdigit():
            raise StoreError(
                f"output {shown_url(target)!r}: invalid value for parts",
                remedy="write ?parts=redis://HOST/DATABASE/KEY",
                field="parts",
            )
        return cls(target, f"{scheme}://{server}", RedisItemFormat(key), kind="parts", password=password)

    async def check(self, context: OutputContext) -> None:  # noqa: ARG002 - does not depend on the job
        """Test whether the server responds and the key can hold items.

        Raises :class:`~skitter.errors.StoreError` with a remedy if not.
        """
        async with self._connected() as client:
            if self._form.has_fields:
                await _in_time(client.execute_command("PING"))  # type: ignore[no-untyped-call]
                return
            kind: str = (await _in_time(client.execute_command("TYPE", self._key))).decode()  # type: ignore[no-untyped-call]
            if kind not in {"none", self._kind}:
                raise StoreError(
                    f"{self._key} on {self._server_name} is a {kind}, not a {self._kind}",
                    remedy=f"name another key, or change ?type={self._kind}",
                    field="type",
                )

    async def clear(self, context: OutputContext) -> None:
        """Reset the pushed positions of the job. Items that were pushed already belong to their consumers."""
        async with self._connected() as client:
            if fields := await _scan(partial(client.hscan, self._positions, match=f"{context.job}/*")):
                await _in_time(client.hdel(self._positions, *fields))
            # The key may contain characters that have a meaning in patterns.
            pattern = re.sub(r"([*?\[\]\\])", r"\\\1", self._staged_key(f"{context.job}/")) + "*"
            for staged in await _scan(partial(client.scan, match=pattern)):
                await _in_time(client.unlink(staged))

    def store(self) -> PartFileStore:
        """Return a new part file."""
        if self._form.is_plain:
            return PartFileStore()
        encode = self._form.encoder()
        return PartFileStore(self.stream, lambda item: to_line(encode(item)))

    @property
    def fleet_stream(self) -> str:
        """Name of the parts that are staged on the server."""
        return self._staging_stream

    def fleet_store(self) -> RedisStagingStore:
        """Return a new store that stages the items of each page on the server."""
        return RedisStagingStore(self)

    async def emit(self, context: OutputContext, ranges: RangesByPart) -> bool:
        """Push newly committed items. Retry later if the server is unavailable."""
        self._looks += 1
        staged = self._staged_ranges(context, ranges)
        if self._looks % _LOOKS_PER_FULL_LOOK:
            staged = {
                part: known for part, known in staged.items() if is_of_this_machine(part.rpartition("/")[2])
            }
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
        """Log a failure and delay the next attempt, so that timeouts do not slow down the crawl."""
        # The first failure may be just a lost connection, so the next call tries again immediately.
        delay = self._backoff.next_delay() if self._is_away else 0.0
        self._is_away = True
        self._next_attempt = time.monotonic() + delay
        away = "is unavailable" if _is_outage(error.__cause__) else "rejects items"
        self._backoff.outage.report_failure(
            f"{away} (%s); the crawl continues, and committed items are pushed when it is back",
            error.__cause__ or error,
        )

    async def merge(self, context: OutputContext, ranges: RangesByPart) -> None:
        """Push the remaining items, and wait for an unavailable server."""

        async def attempt() -> None:
            with _outages_as_unavailable():
                await self._push_all(context, ranges, self._staged_ranges(context, ranges))

        await self._backoff.call(attempt)

    def _has_unpushed(self, context: OutputContext, ranges: RangesByPart) -> bool:
        return not context.fleet and any(
            known and known[-1][1] > self._known.get(f"{context.job}/{part}", 0)
            for part, known in ranges_for(context, ranges, self.stream).items()
        )

    def _staged_ranges(self, context: OutputContext, ranges: RangesByPart) -> dict[str, _Ranges]:
        """Return the committed ranges of the staged parts of this output that may have items to push."""
        if not context.fleet:
            return {}
        return {
            part: known
            for part, known in ranges_for(context, ranges, self._staging_stream).items()
            if known and self._pushed.get(part) != known
        }

    def _staged_key(self, name: str) -> str:
        return f"{self._key}:staged:{name}"

    async def _push_all(
        self, context: OutputContext, ranges: RangesByPart, staged: dict[str, _Ranges]
    ) -> None:
        own_ranges = {} if context.fleet else ranges_for(context, ranges, self.stream)
        async with self._pushing, self._connected() as client:
            for part, known in staged.items():
                keys = (self._key, self._staged_key(f"{context.job}/{part}"))
                flat = [position for positions in known for position in positions]
                arguments = (self._kind, self._maxlen or "", _PUSH_BYTES, int(not self._form.is_plain), *flat)
                while await _in_time(client.eval(_PUSH_STAGED, 2, *keys, *arguments)):
                    pass
                self._pushed[part] = list(known)
            for part in sorted(own_ranges):
                if own_ranges[part]:
                    await self._push_part(client, context, part, own_ranges[part])

    async def _push_part(self, client: Redis, context: OutputContext, part: str, ranges: _Ranges) -> None:
        field = f"{context.job}/{part}"
        position = int(await _in_time(client.hget(self._positions, field)) or 0)
        # A worker commits its part file in order, so no earlier range can follow a pushed one.
        while left := [(max(start, position), end) for start, end in ranges if end > max(start, position)]:
            committed = CommittedRanges(parts_folder(context.directory), {part: left})
            position = await self._push_blocks(client, field, position, committed.blocks(_PUSH_BYTES))
        self._known[field] = position

    async def _push_blocks(
        self, client: Redis, field: str, position: int, blocks: Iterator[tuple[list[bytes], int]]
    ) -> int:
        """Push blocks until the position on the server is unexpected (another process, or a lost reply). Return it."""
        while (block := await asyncio.to_thread(next, blocks, None)) is not None:
            lines, after = block
            items = {self._key: lines} if self._form.is_plain else by_key(lines)
            keys = (self._positions, *items)
            arguments = (field, position, after, self._kind, self._maxlen or "")
            counted: list[int | bytes] = []
            for added in items.values():
                counted += (len(added), *added)
            position = int(await _in_time(client.eval(_PUSH, len(keys), *keys, *arguments, *counted)))
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
            # A cancellation here would leave the connection open.
            await asyncio.shield(client.aclose())

    def page_encoder(self) -> Callable[[ItemGroup], bytes | GroupError | None]:
        """Return a function that encodes the items of a page for staging."""
        if self._form.is_plain:
            return encode_group
        encode = self._form.encoder()

        def encode_page(group: ItemGroup) -> bytes | GroupError | None:
            frames = encode_items(group, lambda item: to_frame(encode(item)))
            return frames if isinstance(frames, GroupError) else b"".join(frames) or None

        return encode_page

    async def stage(self, client: Redis, name: str, pages: Mapping[int, bytes]) -> None:
        """Write the items of pages to the staged part ``name``, by the position of their first byte.

        Waits for an unavailable server. Raises :class:`~skitter.errors.StoreError`.
        """

        async def attempt() -> None:
            with _outages_as_unavailable(), self.translated_errors():
                await _in_time(
                    client.hset(self._staged_key(name), mapping={str(at): page for at, page in pages.items()})
                )

        await self._staging.call(attempt)

    async def copy_staged(self, job: str, ranges: RangesByPart, folder: Path) -> RangesByPart:
        """Copy the committed items of all staged parts to files in a folder. Return their ranges in these files.

        Waits for an unavailable server. Raises :class:`~skitter.errors.StoreError` if committed items are missing there.
        """
        copied: dict[str, Sequence[tuple[int, int]]] = {}
        for part, known in ranges.items():
            if known and part.startswith(self._staging_stream):
                size = await self._backoff.call(partial(self._copy, job, part, known, folder))
                copied[part] = [(0, size)]
        return copied

    async def _copy(self, job: str, part: str, known: _Ranges, folder: Path) -> int:
        """Copy the committed pages of one part to a file. Return its size."""
        path = folder / part
        committed = sum(end - start for start, end in known)
        with _outages_as_unavailable():
            async with self._connected() as client:
                key = self._staged_key(f"{job}/{part}")
                starts = sorted(int(field) for field in await _in_time(client.hkeys(key)))
                wanted = [
                    at
                    for start, end in sorted(known)
                    for at in starts[bisect_left(starts, start) : bisect_left(starts, end)]
                ]
                size = 0
                await asyncio.to_thread(_create, path)
                for first in range(0, len(wanted), _PAGES_PER_READ):
                    fields = [str(at) for at in wanted[first : first + _PAGES_PER_READ]]
                    reply = await _in_time(client.hmget(key, fields))
                    pages = [page for page in reply if isinstance(page, bytes)]
                    size += await asyncio.to_thread(_append, path, pages)
        if size != committed:
            raise StoreError(
                f"{committed - size:,} of {committed:,} bytes of committed items are missing on {self._server_name} ({part})",
                remedy="restore the data of the server, which needs appendonly yes; or crawl again with --fresh",
                field="parts",
            )
        return size

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
        """Convert all errors to :class:`~skitter.errors.StoreError`."""
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
                f"cannot push items to {self._server_name}: {str(error).rstrip('.')}",
                remedy="start the server, or correct its address, and run the same command again: it pushes the items that are committed",
            ) from error


def _create(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")


def _append(path: Path, pages: Sequence[bytes]) -> int:
    data = b"".join(pages)
    with path.open("ab") as file:
        file.write(data)
    return len(data)


class RedisStagingStore:
    """Writes the items of each page to the server of an output, before the page is committed. Implements :class:`Store`."""

    buffering = None

    def __init__(self, output: RedisOutput) -> None:
        self._output = output
        self._client: Redis | None = None
        self._job = self._part = ""
        self._encode = output.page_encoder()
        self._end = 0

    async def open(self, context: StoreContext) -> None:
        """Prepare to write. The first write connects."""
        self._job = context.job
        self._part = f"{items_stream(context.section, self._output.fleet_stream)}/{context.worker}"
        self._client = self._output.client()

    async def write(self, groups: Sequence[ItemGroup]) -> list[OutputRange | GroupError | None]:
        assert self._client is not None, "open() comes first"
        blocks = [self._encode(group) for group in groups]
        ranges = ranges_of(blocks, self._part, self._end)
        pages = {
            written.start: block
            for block, written in zip(blocks, ranges, strict=True)
            if isinstance(written, OutputRange) and isinstance(block, bytes)
        }
        if pages:
            self._end += sum(map(len, pages.values()))  # even a failed attempt must not reuse its positions
            await self._output.stage(self._client, f"{self._job}/{self._part}", pages)
        return ranges

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
