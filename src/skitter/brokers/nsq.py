"""NSQ as a broker: a topic on one or more nsqd, and a channel for the job."""

from __future__ import annotations

import asyncio
import ssl
from collections import defaultdict
from collections.abc import Sequence
from functools import partial

from skitter.brokers.address import BrokerAddress, UrlRules
from skitter.brokers.contract import Delivery, OutgoingMessage
from skitter.brokers.nsq_client import (
    CommandRefused,
    Consumer,
    NsqError,
    NsqLookup,
    NsqOptions,
    Producer,
    is_channel,
)
from skitter.brokers.waiting import publish_patiently
from skitter.errors import FrontierError

RULES = UrlRules(
    example="nsq://HOST[:PORT][,HOST...]/TOPIC?state=redis://HOST[&channel=NAME][&lookupd=HOST:PORT,...][&tls=yes]",
    port=4150,
    is_name=is_channel,
    options=frozenset({"lookupd", "tls"}),
)
LOOKUPD_PORT = 4161
MAX_MESSAGE_TIMEOUT = 900.0
"""Maximum message timeout in seconds: nsqd's default ``--max-msg-timeout``. nsqd refuses more."""


class NsqBroker:
    """Publishes to any of the nsqd and consumes from all of them. Implements :class:`~skitter.brokers.contract.Broker`."""

    def __init__(self, address: BrokerAddress, lease_seconds: float) -> None:
        self._topic = address.topic
        lookups = [NsqLookup(host, port) for host, port in address.hosts_of("lookupd", LOOKUPD_PORT)]
        if not address.hosts and not lookups:
            raise address.invalid("it names neither an nsqd nor a lookupd", "hosts")
        context = ssl.create_default_context() if address.uses_tls else None
        timeout = min(max(lease_seconds, 1.0), MAX_MESSAGE_TIMEOUT)
        publishing = NsqOptions(tls=context, auth_secret=address.secret)
        consuming = NsqOptions(tls=context, auth_secret=address.secret, msg_timeout=timeout)
        self._producer = Producer(address.hosts, lookups, publishing, timeout=1.0)
        self._consumer = Consumer(
            self._topic, address.channel, address.hosts, lookups, consuming, max_in_flight=0, prompt=True
        )

    async def open(self) -> None:
        try:
            await self._producer.open()
            await self._consumer.open()
        except NsqError as error:
            await self.close()
            raise FrontierError(
                f"cannot use the broker: {error}",
                field="frontier",
                remedy="start nsqd, or name another one in --frontier",
            ) from error

    async def close(self) -> None:
        try:
            await self._consumer.close()
        finally:
            await self._producer.close()

    async def publish(self, messages: Sequence[OutgoingMessage]) -> None:
        """Publish messages without a delay by ``MPUB``, the others by ``DPUB``."""
        by_delay: dict[float, list[bytes]] = defaultdict(list)
        for message in messages:
            by_delay[message.delay and round(message.delay, 1)].append(message.body)
        for delay, bodies in by_delay.items():
            publish = partial(self._producer.publish, self._topic, bodies, delay)
            await publish_patiently(publish, (NsqError,), _is_refused)

    @property
    def is_receiving(self) -> bool:
        """Whether the consumer has subscribed at any nsqd."""
        return bool(self._consumer.connections)

    def allow(self, count: int) -> None:
        """Distribute ``count`` among all connections (``RDY``)."""
        self._consumer.max_in_flight = count

    def receive(self) -> Sequence[Delivery]:
        return self._consumer.take()

    async def wait(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._consumer.wait()
        except TimeoutError:
            return False
        return True


def _is_refused(error: Exception) -> bool:
    return isinstance(error, CommandRefused) and not error.may_succeed_later
