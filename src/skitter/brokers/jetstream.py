"""NATS JetStream as a broker: a stream for the topic, and a durable consumer for the job."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
from collections import deque
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import MaxPayloadError
from nats.js.api import AckPolicy, ConsumerConfig, DiscardPolicy, RetentionPolicy, StreamConfig
from nats.js.errors import BadRequestError, NoStreamResponseError, ServiceUnavailableError

from skitter._utils.concurrency import cancel_and_wait, wait_until_set
from skitter.brokers.address import BrokerAddress, UrlRules
from skitter.brokers.contract import Delivery, OutgoingMessage
from skitter.brokers.waiting import RETRY_INTERVAL, publish_patiently
from skitter.errors import FrontierError

log = logging.getLogger("skitter.frontier")

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
RULES = UrlRules(
    example="nats://HOST[:PORT][,HOST...]/STREAM?state=redis://HOST[&channel=NAME][&tls=yes]",
    port=4222,
    is_name=lambda name: _NAME.fullmatch(name) is not None,
    options=frozenset({"tls"}),
)
CONNECT_TIMEOUT = 5.0
"""Seconds."""
PULL_TIMEOUT = 2.0
"""Seconds after which the server ends a pull request."""
PULL_SIZE = 256
"""Number of messages that one pull request asks for."""
PUBLISH_BATCH_SIZE = 500
"""Number of messages that are published before their confirmations are awaited."""
_NO_RESPONDERS = "503"
UNAVAILABLE = (NatsError, OSError, TimeoutError)
"""Errors of an unavailable server."""


class JetStreamDelivery:
    """A delivered message."""

    __slots__ = ("_broker", "_message", "attempts", "body")

    def __init__(self, broker: JetStreamBroker, message: Msg) -> None:
        self._broker = broker
        self._message = message
        self.body: bytes = message.data
        self.attempts: int = message.metadata.num_delivered or 1

    def finish(self) -> None:
        """``+ACK``."""
        self._broker.close_delivery(self._message.ack())

    def requeue(self, seconds: float) -> None:
        """``-NAK`` with a delay."""
        self._broker.close_delivery(self._message.nak(delay=seconds if seconds > 0 else None))

    def touch(self) -> None:
        """``+WPI``: work in progress."""
        self._broker.send_ack(self._message.in_progress())


class JetStreamBroker:
    """Publishes to ``STREAM.CHANNEL``, and pulls from it. Implements :class:`~skitter.brokers.contract.Broker`."""

    def __init__(self, address: BrokerAddress, lease_seconds: float) -> None:
        if not address.hosts:
            raise address.invalid("it names no host", "hosts")
        self._hosts = address.hosts
        self._where = ",".join(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in address.hosts
        )
        scheme = "tls" if address.uses_tls else "nats"
        self._servers = [f"{scheme}://{where}" for where in self._where.split(",")]
        self._user, self._password, self._token = _access(address.secret)
        self._stream, self._consumer = address.topic, address.channel
        self._subject = f"{address.topic}.{address.channel}"
        self._ack_wait = max(lease_seconds, 1.0)
        self._client: Any = None
        self._js: Any = None
        self._inbox: deque[JetStreamDelivery] = deque()
        self._arrived = asyncio.Event()
        self._may_pull = asyncio.Event()
        self._allowed = 0
        self._unacknowledged = 0
        self._reply_subject = ""
        self._pull = _Pull(0, 0)
        self._pulling: asyncio.Task[None] | None = None
        self._acks: set[asyncio.Task[None]] = set()

    @property
    def is_receiving(self) -> bool:
        """Whether there is a connection. Its subscription survives reconnects."""
        return self._client is not None and bool(self._client.is_connected)

    # --- opening and closing -----------------------------------------------------------------------------

    async def open(self) -> None:
        try:
            if not await self._is_listening():
                raise ConnectionRefusedError("no server is listening")
            self._client = await self._connected()
            self._js = self._client.jetstream(timeout=10)
            await self._create()
            self._reply_subject = self._client.new_inbox()
            await self._client.subscribe(f"{self._reply_subject}.*", cb=self._on_message)
        except UNAVAILABLE as error:
            await self.close()
            raise FrontierError(
                f"cannot use the broker nats://{self._where}: {error or type(error).__name__}",
                field="frontier",
                remedy="start nats-server with JetStream (-js), or correct the host, the user or the password in --frontier",
            ) from error
        self._pulling = asyncio.create_task(self._pull_forever())

    async def _connected(self) -> Client:
        """Return a client that has connected, and will reconnect. Raises the error of the server that was tried last."""
        servers_left = len(self._servers)

        async def on_error(error: Exception) -> None:
            nonlocal servers_left
            log.debug("nats: %s", error)
            servers_left -= 1
            # The client itself would repeat its first attempts forever, even with a wrong password.
            if self._client is None and servers_left <= 0:
                raise error

        client = Client()
        try:
            await client.connect(
                self._servers, user=self._user, password=self._password, token=self._token, error_cb=on_error,
                connect_timeout=round(CONNECT_TIMEOUT), allow_reconnect=True, max_reconnect_attempts=-1,
                reconnect_time_wait=0.2,  # type: ignore[arg-type]
            )  # fmt: skip
        except BaseException:
            await client.close()
            raise
        return client

    async def _is_listening(self) -> bool:
        """Return whether any server listens, without the seconds that the client takes for each one."""
        for host, port in self._hosts:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(CONNECT_TIMEOUT):
                    _, writer = await asyncio.open_connection(host, port)
                writer.close()
                return True
        return False

    async def _create(self) -> None:
        """Create the stream and the consumer, unless they exist."""
        stream = StreamConfig(
            name=self._stream, subjects=[f"{self._stream}.*"], retention=RetentionPolicy.WORK_QUEUE,
            discard=DiscardPolicy.NEW,
        )  # fmt: skip
        with contextlib.suppress(BadRequestError):  # it exists already, perhaps with limits set by its owner
            await self._js.add_stream(stream)
        config = ConsumerConfig(
            durable_name=self._consumer, filter_subject=self._subject, ack_policy=AckPolicy.EXPLICIT,
            ack_wait=self._ack_wait, max_deliver=-1, max_ack_pending=-1,
        )  # fmt: skip
        await self._js.add_consumer(self._stream, config)

    async def close(self) -> None:
        if self._pulling is not None:
            await cancel_and_wait([self._pulling])
        for delivery in self._inbox:
            delivery.requeue(0.0)
        await asyncio.gather(*self._acks, return_exceptions=True)
        if self._client is not None:
            with contextlib.suppress(*UNAVAILABLE):
                await self._client.flush(2)
            await self._client.close()
            self._client = None

    # --- publishing --------------------------------------------------------------------------------------

    async def publish(self, messages: Sequence[OutgoingMessage]) -> None:
        """Publish messages immediately. JetStream does not support delays, so the receiver requeues early messages."""
        for start in range(0, len(messages), PUBLISH_BATCH_SIZE):
            bodies = [message.body for message in messages[start : start + PUBLISH_BATCH_SIZE]]
            await publish_patiently(partial(self._publish, bodies), UNAVAILABLE, _is_refused)

    async def _publish(self, bodies: list[bytes]) -> None:
        """Publish messages, and remove those from ``bodies`` that the server has confirmed."""
        results = await asyncio.gather(
            *(self._js.publish(self._subject, body) for body in bodies), return_exceptions=True
        )
        failures = [result for result in results if isinstance(result, BaseException)]
        bodies[:] = [
            body for body, result in zip(bodies, results, strict=True) if isinstance(result, BaseException)
        ]
        if any(isinstance(failure, NoStreamResponseError) for failure in failures):
            await self._create()  # the server has lost its streams, or is still starting
        if failures:
            raise failures[0]

    # --- acknowledging ---------------------------------------------------------------------------------------

    def close_delivery(self, ack: Awaitable[None]) -> None:
        """Send the last acknowledgement of a delivery, which makes room for another."""
        self._unacknowledged -= 1
        self.send_ack(ack)

    def send_ack(self, ack: Awaitable[None]) -> None:
        """Send an acknowledgement without waiting. If it is lost, the message is delivered again."""
        task = asyncio.create_task(_send_quietly(ack))
        self._acks.add(task)
        task.add_done_callback(self._acks.discard)

    # --- receiving ---------------------------------------------------------------------------------------

    def allow(self, count: int) -> None:
        self._allowed = count
        if count > self._unacknowledged:
            self._may_pull.set()

    def receive(self) -> Sequence[Delivery]:
        arrived, self._inbox = list(self._inbox), deque()
        return arrived

    async def wait(self, seconds: float) -> bool:
        if not self._inbox:
            self._arrived.clear()
            await wait_until_set(self._arrived, seconds)
        return bool(self._inbox)

    async def _pull_forever(self) -> None:
        """Keep one pull request open while more messages are allowed.

        The client's own ``fetch`` does not return the first messages before all requested messages have arrived.
        """
        while True:
            room = self._allowed - self._unacknowledged
            if room <= 0:
                self._may_pull.clear()
                await self._may_pull.wait()
                continue
            self._pull = _Pull(self._pull.number + 1, min(room, PULL_SIZE))
            request = json.dumps({"batch": self._pull.remaining, "expires": round(PULL_TIMEOUT * 1e9)})
            subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}"
            reply = f"{self._reply_subject}.{self._pull.number}"
            try:
                await self._client.publish(subject, request.encode(), reply)
                async with asyncio.timeout(PULL_TIMEOUT + 1):
                    await self._pull.ended.wait()
                if self._pull.has_no_consumer:
                    await asyncio.sleep(RETRY_INTERVAL)
                    await self._create()
            except TimeoutError:
                continue  # the server is unavailable, or has lost the pull request
            except UNAVAILABLE as error:
                log.debug("nats: %s", error)
                await asyncio.sleep(RETRY_INTERVAL)

    async def _on_message(self, message: Msg) -> None:
        """Take a message, or the end of a pull request."""
        is_of_pull = message.subject.endswith(f".{self._pull.number}") or not message.subject.startswith(
            self._reply_subject
        )
        if message.headers and "Status" in message.headers:
            if is_of_pull:
                self._pull.has_no_consumer = message.headers["Status"] == _NO_RESPONDERS
                self._pull.ended.set()
            return
        self._unacknowledged += 1
        self._inbox.append(JetStreamDelivery(self, message))
        self._arrived.set()
        self._pull.remaining -= 1
        if self._pull.remaining <= 0:
            self._pull.ended.set()


class _Pull:
    """One pull request."""

    def __init__(self, number: int, remaining: int) -> None:
        self.number = number
        self.remaining = remaining
        """Number of messages that it may still return."""
        self.has_no_consumer = False
        """Whether the server does not know the consumer, because it has lost it or is still starting."""
        self.ended = asyncio.Event()


def _access(secret: str) -> tuple[str | None, str | None, str | None]:
    """Return user, password and token of a client. In the URLs of the client, they could not contain every character."""
    user, colon, password = secret.partition(":")
    return (user, password, None) if colon else (None, None, secret or None)


def _is_refused(error: Exception) -> bool:
    is_bad = isinstance(error, BadRequestError) and not isinstance(error, ServiceUnavailableError)
    return is_bad or isinstance(error, MaxPayloadError)


async def _send_quietly(ack: Awaitable[None]) -> None:
    with contextlib.suppress(*UNAVAILABLE):
        await ack
