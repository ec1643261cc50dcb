"""NSQ as a broker: a topic on one nsqd or several, and a channel of the job's own."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import defaultdict
from collections.abc import Sequence

from skitter.brokers.address import BrokerAddress, NameRule
from skitter.brokers.contract import Delivery, OutgoingMessage
from skitter.brokers.nsq_client import Consumer, NsqError, NsqLookup, Options, Producer, Refused, is_channel
from skitter.errors import FrontierError
from skitter.frontier.options import FrontierContext

log = logging.getLogger("skitter.frontier")

RULE = NameRule(
    example="nsq://HOST[:PORT][,HOST...]/TOPIC?state=redis://HOST[&channel=NAME][&lookupd=HOST:PORT,...][&tls=yes]",
    port=4150,
    is_name=is_channel,
    options=frozenset({"lookupd", "tls"}),
)
_LOOKUPD_PORT = 4161
PATIENCE = 3600.0
"""Seconds for which nsqd that are away are waited for."""
_LONGEST_MSG_TIMEOUT = 900.0
"""nsqd's default ``--max-msg-timeout``; it refuses more."""


class NsqBroker:
    """Publishes to any nsqd, consumes from all."""

    def __init__(self, address: BrokerAddress, lease_seconds: float) -> None:
        self._address = address
        lookups = [NsqLookup(host, port) for host, port in address.hosts_of("lookupd", _LOOKUPD_PORT)]
        if not address.hosts and not lookups:
            raise address.wrong("there is neither an nsqd nor a lookupd in it")
        context = ssl.create_default_context() if address.options.get("tls", "no") != "no" else None
        self._topic = address.topic
        publishing = Options(tls=context, auth_secret=address.secret)
        consuming = Options(
            tls=context,
            auth_secret=address.secret,
            msg_timeout=min(max(lease_seconds, 1.0), _LONGEST_MSG_TIMEOUT),
        )
        self._producer = Producer(address.hosts, lookups, publishing, patience=1.0)
        self._consumer = Consumer(
            address.topic, address.channel, address.hosts, lookups, consuming, max_in_flight=0, prompt=True
        )
        self._away = False

    @classmethod
    def from_address(cls, address: BrokerAddress, context: FrontierContext) -> NsqBroker:
        """Build what ``nsq:`` names."""
        return cls(address, context.options.lease_seconds)

    async def open(self) -> None:
        """Connect. Raises :class:`~skitter.errors.FrontierError`."""
        try:
            await self._producer.open()
            await self._consumer.open()
        except NsqError as error:
            await self._producer.close()
            await self._consumer.close()
            raise FrontierError(
                f"the broker cannot be used: {error}", remedy="start nsqd, or name another one in --frontier"
            ) from error

    async def close(self) -> None:
        """Put back what is in hand, and disconnect."""
        await self._consumer.close()
        await self._producer.close()

    async def publish(self, postings: Sequence[OutgoingMessage]) -> None:
        """Publish: what is not delayed as ``MPUB``, the rest as ``DPUB``."""
        by_delay: dict[float, list[bytes]] = defaultdict(list)
        for posting in postings:
            by_delay[posting.delay and round(posting.delay, 1)].append(posting.body)
        for delay, bodies in by_delay.items():
            await self._publish(bodies, delay)

    async def _publish(self, bodies: list[bytes], delay: float) -> None:
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while True:
            try:
                await self._producer.publish(self._topic, bodies, delay)
            except NsqError as error:
                is_refused = isinstance(error, Refused) and not error.code.endswith("PUB_FAILED")
                if is_refused or asyncio.get_running_loop().time() >= deadline:
                    raise FrontierError(
                        f"the broker takes no messages: {error}",
                        remedy="see nsqd's log; the same command resumes",
                    ) from error
                if not self._away:
                    log.warning("%s; it is waited for, at most %.0f s", error, PATIENCE)
                self._away = True
            else:
                self._away = False
                return

    def allow(self, count: int) -> None:
        """``RDY`` over all connections."""
        self._consumer.max_in_flight = count

    def receive(self) -> Sequence[Delivery]:
        """Return what has arrived."""
        return self._consumer.take()

    async def wait(self, seconds: float) -> bool:
        """Wait for a message."""
        try:
            async with asyncio.timeout(seconds):
                await self._consumer.wait()
        except TimeoutError:
            return False
        return True
