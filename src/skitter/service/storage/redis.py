"""Storage of a service on a Valkey or Redis server or cluster, for any number of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from skitter.frontier.redis.cluster import server_for
from skitter.service.storage import ENTRY_OVERHEAD

_TIMEOUT = 5.0
"""How long to wait for an unavailable server, in seconds: a caller of the API waits for the response."""
_COMPARE_AND_SWAP = """
-- KEYS: records of a kind. ARGV: name, 1 if there is an old record, old, 1 if there is a new one, new
local current = redis.call('HGET', KEYS[1], ARGV[1])
local is_old = (ARGV[2] == '1' and current == ARGV[3]) or (ARGV[2] == '0' and not current)
local is_new = (ARGV[4] == '1' and current == ARGV[5]) or (ARGV[4] == '0' and not current)
if is_old and ARGV[4] == '1' then redis.call('HSET', KEYS[1], ARGV[1], ARGV[5]) end
if is_old and ARGV[4] == '0' then redis.call('HDEL', KEYS[1], ARGV[1]) end
return (is_old or is_new) and 1 or 0
"""
_ACQUIRE_LEASE = """
-- KEYS: the lease. ARGV: owner, milliseconds
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
_ANNOUNCE = """
-- KEYS: statuses, times of expiry. ARGV: node or '', status, milliseconds. Returns all statuses.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for _, node in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now)) do
  redis.call('HDEL', KEYS[1], node)
  redis.call('ZREM', KEYS[2], node)
end
if tonumber(ARGV[3]) > 0 then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
  redis.call('ZADD', KEYS[2], now + ARGV[3], ARGV[1])
elseif ARGV[1] ~= '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
  redis.call('ZREM', KEYS[2], ARGV[1])
end
return redis.call('HGETALL', KEYS[1])
"""
_APPEND = """
-- KEYS: entries, state. ARGV: largest size or 0, writer, batch, overhead of an entry, entries
local batch = 'batch:' .. ARGV[2]
local done = redis.call('HGET', KEYS[2], batch)
if done and tonumber(done) >= tonumber(ARGV[3]) then return 0 end
local largest, overhead = tonumber(ARGV[1]), tonumber(ARGV[4])
local state = redis.call('HMGET', KEYS[2], 'first', 'last', 'size')
local first, last, size = tonumber(state[1] or 1), tonumber(state[2] or 0), tonumber(state[3] or 0)
for i = 5, #ARGV do
  last = last + 1
  redis.call('HSET', KEYS[1], last, ARGV[i])
  size = size + #ARGV[i] + overhead
end
while largest > 0 and size > largest and first < last do
  size = size - #redis.call('HGET', KEYS[1], first) - overhead
  redis.call('HDEL', KEYS[1], first)
  first = first + 1
end
redis.call('HSET', KEYS[2], 'first', first, 'last', last, 'size', size, batch, ARGV[3])
return 1
"""
_PUT = """
-- KEYS: entries, state, positions of keys, names of groups, positions of the group. ARGV: group or '', keys and entries in turn
for i = 2, #ARGV, 2 do
  local position = redis.call('HGET', KEYS[3], ARGV[i])
  if ARGV[i + 1] ~= '' then
    if not position then
      position = redis.call('HINCRBY', KEYS[2], 'last', 1)
      redis.call('HSET', KEYS[3], ARGV[i], position)
    end
    redis.call('HSET', KEYS[1], position, ARGV[i + 1])
    if ARGV[1] ~= '' then
      redis.call('SADD', KEYS[4], ARGV[1])
      redis.call('ZADD', KEYS[5], position, position)
    end
  elseif position then
    redis.call('HDEL', KEYS[3], ARGV[i])
    redis.call('HDEL', KEYS[1], position)
  end
end
return 1
"""
_READ = """
-- KEYS: entries, state, positions of the group. ARGV: position before the first, entries wanted, 1 if only of the group
-- Returns positions and entries in turn. Removed entries leave gaps.
local state, limit, found = redis.call('HMGET', KEYS[2], 'first', 'last'), tonumber(ARGV[2]), {}
local at, last = math.max(tonumber(ARGV[1]), tonumber(state[1] or 1) - 1), tonumber(state[2] or 0)
while #found < 2 * limit and at < last do
  local positions = {}
  if ARGV[3] == '1' then
    positions = redis.call('ZRANGEBYSCORE', KEYS[3], string.format('(%.0f', at), '+inf', 'LIMIT', 0, math.min(limit, 500))
  else
    for position = at + 1, math.min(at + limit, at + 500, last) do positions[#positions + 1] = position end
  end
  if #positions == 0 then break end
  for i, entry in ipairs(redis.call('HMGET', KEYS[1], unpack(positions))) do
    if entry and #found < 2 * limit then
      found[#found + 1] = tonumber(positions[i])
      found[#found + 1] = entry
    end
  end
  at = tonumber(positions[#positions])
end
return found
"""


class RedisKeyValueStore:
    """One hash for each kind, under ``{skitter-service}:``. Times are taken from the server's clock.

    Implements :class:`~skitter.service.storage.KeyValueStore`.
    """

    def __init__(self, url: str) -> None:
        self._server = server_for(url, _key(""), outage_timeout=_TIMEOUT)

    async def open(self) -> None:
        await self._server.connect(patient=False)

    async def close(self) -> None:
        await self._server.close()

    async def get(self, kind: str, name: str) -> bytes | None:
        found: bytes | None = await self._server.command("HGET", _key(kind), name)
        return found

    async def size(self, kind: str, name: str) -> int:
        return int(await self._server.command("HSTRLEN", _key(kind), name))

    async def all(self, kind: str) -> dict[str, bytes]:
        return _sorted(await self._server.command("HGETALL", _key(kind)))

    async def compare_and_swap(self, kind: str, name: str, old: bytes | None, new: bytes | None) -> bool:
        values = (name, int(old is not None), old or b"", int(new is not None), new or b"")
        return bool(await self._server.command("EVAL", _COMPARE_AND_SWAP, 1, _key(kind), *values))

    async def acquire_lease(self, duty: str, owner: str, seconds: float) -> bool:
        key = _key(f"lease:{duty}")
        return bool(await self._server.command("EVAL", _ACQUIRE_LEASE, 1, key, owner, int(1000 * seconds)))

    async def announce(self, node: str, status: bytes, seconds: float) -> None:
        await self._announce(node, status, seconds)

    async def nodes(self) -> dict[str, bytes]:
        found = await self._announce("", b"", 0)
        return _sorted(dict(zip(found[::2], found[1::2], strict=True)))

    async def _announce(self, node: str, status: bytes, seconds: float) -> Any:
        keys = _key("nodes"), _key("nodes-until")
        return await self._server.command("EVAL", _ANNOUNCE, 2, *keys, node, status, int(1000 * seconds))


class RedisAppendLog:
    """Hashes of entries and state, under ``{skitter-service:RUN}:NAME``. Implements :class:`~skitter.service.storage.AppendLog`.

    ``url``: URL of the server or cluster.
    ``run``: id of the run that the log belongs to; its keys share one hash tag.
    ``name``: what the log holds.
    ``max_bytes``: maximum size; 0 means no limit.
    ``writer``: name of the process that appends, to detect repeated calls.
    ``outage_timeout``: time to wait for an unavailable server, in seconds; ``None``: the value in the URL.
    """

    def __init__(
        self, url: str, run: str, name: str, *,
        max_bytes: int = 0, writer: str = "", outage_timeout: float | None = None,
    ) -> None:  # fmt: skip
        self._prefix = f"{{skitter-service:{run}}}:{name}"
        self._max_bytes = max_bytes
        self._writer = writer
        self._server = server_for(url, self._prefix, outage_timeout=outage_timeout)
        self._is_open = False
        self.name = f"{name} on {self._server.where}"

    def _keys(self, group: str = "") -> list[str]:
        parts = ("entries", "state", "keys", "groups", f"group:{group}")
        return [f"{self._prefix}:{part}" for part in parts]

    async def open(self, *, patient: bool = True) -> None:
        if not self._is_open:
            await self._server.connect(patient=patient)
            self._is_open = True

    async def close(self) -> None:
        self._is_open = False
        await self._server.close()

    async def _command(self, *words: Any) -> Any:
        await self.open(patient=False)
        return await self._server.command(*words)

    async def append(self, entries: Sequence[bytes], batch: int) -> None:
        values = (self._max_bytes, self._writer, batch, ENTRY_OVERHEAD)
        await self._command("EVAL", _APPEND, 2, *self._keys()[:2], *values, *entries)

    async def put(self, entries: Sequence[tuple[str, bytes]], group: str = "") -> None:
        pairs = [part for entry in entries for part in entry]
        await self._command("EVAL", _PUT, 5, *self._keys(group), group, *pairs)

    async def read(self, after: int, limit: int, group: str = "") -> list[tuple[int, bytes]]:
        entries, state, *_, positions = self._keys(group)
        found = await self._command(
            "EVAL", _READ, 3, entries, state, positions, after, limit, int(bool(group))
        )
        return list(zip(found[::2], found[1::2], strict=True))

    async def erase(self) -> None:
        *keys, _ = self._keys()
        groups = await self._command("SMEMBERS", keys[-1])
        await self._command("UNLINK", *keys, *(self._keys(group.decode())[-1] for group in groups))


def _key(name: str) -> str:
    return f"{{skitter-service}}:{name}"


def _sorted(found: dict[bytes, bytes]) -> dict[str, bytes]:
    return {name.decode(): found[name] for name in sorted(found)}
