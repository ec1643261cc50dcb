"""NSQ as a broker: a topic on one or more nsqd, and a channel for the job."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import defaultdict
from collections.abc import Sequence

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
from skitter.errors import FrontierError

log = logging.getLogger("skitter.frontier")

RULES = UrlRules(
    example="nsq://HOST[:PORT][,HOST...]/TOPIC?state=redis://HOST[&channel=NAME][&lookupd=HOST:PORT,...][&tls=yes]",
    port=4150,
    is_name=is_channel,
    options=frozenset({"lookupd", "tls"}),
)
LOOKUPD_PORT = 4161
PUBLISH_TIMEOUT = 3600.0
"""Seconds for which publishing waits while all nsqd are unavailable."""
MAX_MESSAGE_TIMEOUT = 900.0
"""Seconds: nsqd's default ``--max-msg-timeout``; it refuses more."""


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
        self._is_away = False

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
        await self._consumer.close()
        await self._producer.close()

    async def publish(self, messages: Sequence[OutgoingMessage]) -> None:
        """Publish messages without a delay by ``MPUB``, the others by ``DPUB``."""
        by_delay: dict[float, list[bytes]] = defaultdict(list)
        for message in messages:
            by_delay[message.delay and round(message.delay, 1)].append(message.body)
        for delay, bodies in by_delay.items():
            await self._publish(bodies, delay)

    async def _publish(self, bodies: list[bytes], delay: float) -> None:
        deadline = asyncio.get_running_loop().time() + PUBLISH_TIMEOUT
        while True:
            try:
                await self._producer.publish(self._topic, bodies, delay)
            except NsqError as error:
                is_refused = isinstance(error, CommandRefused) and not error.may_succeed_later
                if is_refused or asyncio.get_running_loop().time() >= deadline:
                    raise FrontierError(
                        f"the broker does not accept messages: {error}",
                        field="frontier",
                        remedy="see the log of nsqd, then run the same command again to resume",
                    ) from error
                if not self._is_away:
                    log.warning("%s; waiting for nsqd, at most %.0f s", error, PUBLISH_TIMEOUT)
                self._is_away = True
            else:
                self._is_away = False
                return

    @property
    def is_receiving(self) -> bool:
        """Whether the consumer has subscribed at any nsqd."""
        return bool(self._consumer.connections)

    def allow(self, count: int) -> None:
        """Share ``count`` out among all connections (``RDY``)."""
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
