"""RedisRecords: the records of a service on a Valkey or Redis server or Cluster, for any number of nodes."""

from __future__ import annotations

from typing import Any

from skitter.frontier.redis.connect import server_for

_PATIENCE = 5.0
"""Seconds for which a server that is away is waited for: a caller of the API wants an answer."""
_SWAP = """
-- KEYS: records of a kind. ARGV: name, 1 if there is an old one, old, 1 if there is a new one, new
local now = redis.call('HGET', KEYS[1], ARGV[1])
local is_old = (ARGV[2] == '1' and now == ARGV[3]) or (ARGV[2] == '0' and not now)
local is_new = (ARGV[4] == '1' and now == ARGV[5]) or (ARGV[4] == '0' and not now)
if is_old and ARGV[4] == '1' then redis.call('HSET', KEYS[1], ARGV[1], ARGV[5]) end
if is_old and ARGV[4] == '0' then redis.call('HDEL', KEYS[1], ARGV[1]) end
return (is_old or is_new) and 1 or 0
"""
_HOLD = """
-- KEYS: the lease. ARGV: owner, milliseconds
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
_ANNOUNCE = """
-- KEYS: notes, times. ARGV: node, note, milliseconds
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


class RedisRecords:
    """Hashes, one a kind, under ``{skitter-service}:``. Its clock is the server's."""

    def __init__(self, url: str) -> None:
        self._server = server_for(url, _key(""), patience=_PATIENCE)

    async def open(self) -> None:
        """Connect. Raises :class:`~skitter.errors.FrontierError`."""
        await self._server.connect(patient=False)

    async def close(self) -> None:
        """Disconnect."""
        await self._server.close()

    async def get(self, kind: str, name: str) -> bytes | None:
        """Read a record."""
        found: bytes | None = await self._server.command("HGET", _key(kind), name)
        return found

    async def all(self, kind: str) -> dict[str, bytes]:
        """Read all records of a kind."""
        return _texts(await self._server.command("HGETALL", _key(kind)))

    async def swap(self, kind: str, name: str, old: bytes | None, new: bytes | None) -> bool:
        """Change a record if it is as it was read."""
        given = (name, int(old is not None), old or b"", int(new is not None), new or b"")
        return bool(await self._server.command("EVAL", _SWAP, 1, _key(kind), *given))

    async def hold(self, duty: str, owner: str, seconds: float) -> bool:
        """Take or renew the lease of a duty."""
        key = _key(f"lease:{duty}")
        return bool(await self._server.command("EVAL", _HOLD, 1, key, owner, int(1000 * seconds)))

    async def announce(self, node: str, note: bytes, seconds: float) -> None:
        """Tell that a node is there."""
        await self._announce(node, note, seconds)

    async def nodes(self) -> dict[str, bytes]:
        """Return the notes of the nodes that are there."""
        found = await self._announce("", b"", 0)
        return _texts(dict(zip(found[::2], found[1::2], strict=True)))

    async def _announce(self, node: str, note: bytes, seconds: float) -> Any:
        keys = _key("nodes"), _key("nodes-until")
        return await self._server.command("EVAL", _ANNOUNCE, 2, *keys, node, note, int(1000 * seconds))


def _key(name: str) -> str:
    return f"{{skitter-service}}:{name}"


def _texts(found: dict[bytes, bytes]) -> dict[str, bytes]:
    return {name.decode(): found[name] for name in sorted(found)}
