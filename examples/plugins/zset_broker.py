"""``--frontier 'zset://HOST/TOPIC?state=redis://HOST'``: a broker in a sorted set of Redis, by the time of delivery."""

import asyncio
import uuid
from contextlib import suppress

from redis.asyncio import Redis
from redis.exceptions import RedisError

from skitter.brokers.address import UrlRules
from skitter.brokers.factory import make_broker_frontier
from skitter.errors import FrontierError

RULES = UrlRules("zset://HOST[:PORT]/TOPIC?state=redis://HOST", port=6379, is_name=str.isprintable)
NOW = "local t = redis.call('TIME') local now = t[1] + t[2] / 1e6 "
PUT = NOW + "for i = 2, #ARGV, 2 do redis.call('ZADD', KEYS[1], ARGV[1], now + ARGV[i], ARGV[i + 1]) end"
TAKE = NOW + (  # a message that a worker takes is hidden from all others for ARGV[1] seconds
    "local found = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[2]) "
    "for _, one in ipairs(found) do redis.call('ZADD', KEYS[1], now + ARGV[1], one) end return found"
)


class Message:
    attempts = 1  # this broker does not count deliveries

    def __init__(self, broker, member):
        self.broker, self.member, self.body = broker, member, member[16:]

    def finish(self):
        self.broker.answer(self, self.broker.redis.zrem(self.broker.key, self.member))

    def requeue(self, seconds):
        self.broker.answer(self, self.broker.put("XX", seconds, self.member))

    def touch(self):
        self.broker.send(self.broker.put("XX", self.broker.lease_seconds, self.member))


class ZsetBroker:
    def __init__(self, address, lease_seconds):
        [(host, port)] = address.hosts
        access = {"password": address.secret or None, "socket_timeout": 10}
        self.redis = Redis(host=host, port=port, driver_info=None, **access)  # None: it reads no files
        self.key, self.lease_seconds = f"{address.topic}:{address.channel}", lease_seconds
        self.inbox, self.unanswered, self.room, self.tasks = [], set(), 0, set()
        self.is_receiving, self.arrived, self.wake = False, asyncio.Event(), asyncio.Event()
        self.pollers, self.closing = [], False

    async def open(self):
        try:
            await self.redis.ping()
        except (RedisError, OSError) as error:
            raise FrontierError(f"the broker is away: {error}", remedy="start the Redis server") from error
        self.pollers = [asyncio.create_task(self.poll())]

    async def close(self):
        self.closing = True
        for message in list(self.unanswered):
            message.requeue(0)
        await asyncio.gather(*self.pollers, *self.tasks, return_exceptions=True)
        await self.redis.aclose()

    async def poll(self):
        while not self.closing:
            room, taken = self.room - len(self.unanswered), []
            try:
                if room > 0:
                    taken = await self.redis.eval(TAKE, 1, self.key, self.lease_seconds, room)
                self.is_receiving = True
            except (RedisError, OSError):
                self.is_receiving = False  # ask again
            new = [Message(self, member) for member in taken]
            self.inbox += new
            self.unanswered |= set(new)
            if new:
                self.arrived.set()
            self.wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(0.02):
                    await self.wake.wait()

    async def publish(self, messages):
        pairs = [(message.delay, uuid.uuid4().bytes + message.body) for message in messages]
        for _ in range(3600):
            try:
                await self.put("NX", *(part for pair in pairs for part in pair))
                return self.wake.set()
            except (RedisError, OSError):
                await asyncio.sleep(1)
        raise FrontierError("the broker is away", remedy="start the Redis server")

    async def put(self, which, *pairs):
        await self.redis.eval(PUT, 1, self.key, which, *pairs)

    def answer(self, message, call):
        self.unanswered.discard(message)
        self.send(call)
        self.wake.set()

    def send(self, call):
        task = asyncio.ensure_future(call)
        self.tasks.add(task)
        task.add_done_callback(self.sent)

    def sent(self, task):
        self.tasks.discard(task)
        task.exception()  # a lost answer leads to another delivery

    def allow(self, count):
        if count > self.room:
            self.wake.set()
        self.room = count

    def receive(self):
        arrived, self.inbox = self.inbox, []
        return arrived

    async def wait(self, seconds):
        self.arrived.clear()
        if not self.inbox:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self.arrived.wait()
        return bool(self.inbox)


def zset_frontier(url, context):
    return make_broker_frontier(url, context, RULES, ZsetBroker)
