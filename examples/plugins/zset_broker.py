"""``--frontier 'zset://HOST/TOPIC?state=redis://HOST'``: a broker in a sorted set of Redis, by the time of delivery."""

import uuid

from redis.asyncio import Redis
from redis.exceptions import RedisError

from skitter.brokers.address import UrlRules
from skitter.brokers.factory import make_broker_frontier
from skitter.brokers.polling import PollingBroker, ReceivedMessage

RULES = UrlRules("zset://HOST[:PORT]/TOPIC?state=redis://HOST", port=6379, is_name=str.isprintable)
NOW = "local t = redis.call('TIME') local now = t[1] + t[2] / 1e6 "
PUT = NOW + "for i = 2, #ARGV, 2 do redis.call('ZADD', KEYS[1], ARGV[1], now + ARGV[i], ARGV[i + 1]) end"
TAKE = NOW + (
    "local found = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[2]) "
    "for _, one in ipairs(found) do redis.call('ZADD', KEYS[1], now + ARGV[1], one) end return found"
)


class SortedSet:
    unavailable = (RedisError, OSError)

    def __init__(self, address, lease_seconds):
        [(host, port)] = address.hosts
        access = {"password": address.secret or None, "socket_timeout": 10}
        self.redis = Redis(host=host, port=port, driver_info=None, **access)  # None: it reads no files
        self.key, self.lease_seconds = f"{address.topic}:{address.channel}", lease_seconds

    async def open(self):
        await self.redis.ping()

    async def close(self):
        await self.redis.aclose()

    async def put(self, messages):
        pairs = [(message.delay, uuid.uuid4().bytes + message.body) for message in messages]
        await self.redis.eval(PUT, 1, self.key, "NX", *(part for pair in pairs for part in pair))

    async def take(self, count):
        found = await self.redis.eval(TAKE, 1, self.key, self.lease_seconds, count)
        return [ReceivedMessage(member, member[16:]) for member in found]

    async def delete(self, member):
        await self.redis.zrem(self.key, member)

    async def delay(self, member, seconds):
        await self.redis.eval(PUT, 1, self.key, "XX", seconds, member)


def make_broker(address, lease_seconds):
    return PollingBroker(SortedSet(address, lease_seconds), lease_seconds)


def zset_frontier(url, context):
    return make_broker_frontier(url, context, RULES, make_broker)
