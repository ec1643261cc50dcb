"""NATS JetStream as a broker: a stream for the topic, a durable consumer for the job."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
from collections import deque
from collections.abc import Awaitable, Sequence
from typing import Any

import nats
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig, DiscardPolicy, RetentionPolicy, StreamConfig
from nats.js.errors import BadRequestError, ServiceUnavailableError

from skitter.brokers.address import BrokerAddress, NameRule
from skitter.brokers.contract import Delivery, OutgoingMessage
from skitter.errors import FrontierError
from skitter.frontier.options import FrontierContext

log = logging.getLogger("skitter.frontier")

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
RULE = NameRule(
    example="nats://HOST[:PORT][,HOST...]/STREAM?state=redis://HOST[&channel=NAME][&tls=yes]",
    port=4222,
    is_name=lambda name: _NAME.fullmatch(name) is not None,
    options=frozenset({"tls"}),
)
PATIENCE = 3600.0
"""Seconds for which servers that are away are waited for."""
_PULL_SECONDS = 2.0
"""How long one question for messages stands."""
_PULLED_TOGETHER = 256
_PUBLISHED_TOGETHER = 500
_PAUSE = 0.5


class JetStreamDelivery:
    """A message of JetStream in hand."""

    __slots__ = ("_broker", "_message", "attempts", "body")

    def __init__(self, broker: JetStreamBroker, message: Msg) -> None:
        self._broker = broker
        self._message = message
        self.body: bytes = message.data
        self.attempts: int = message.metadata.num_delivered or 1

    def finish(self) -> None:
        """``+ACK``."""
        self._broker.answered(self._message.ack())

    def requeue(self, seconds: float) -> None:
        """``-NAK`` with a delay."""
        self._broker.answered(self._message.nak(delay=seconds if seconds > 0 else None))

    def touch(self) -> None:
        """``+WPI``: work in progress."""
        self._broker.undertake(self._message.in_progress())


class JetStreamBroker:
    """Publishes to ``STREAM.CHANNEL``, and pulls from it."""

    def __init__(self, address: BrokerAddress, lease_seconds: float) -> None:
        if not address.hosts:
            raise address.wrong("there is no host in it")
        scheme = "tls" if address.options.get("tls", "no") != "no" else "nats"
        access = f"{address.secret}@" if address.secret else ""
        self._servers = [f"{scheme}://{access}{host}:{port}" for host, port in address.hosts]
        self._where = ",".join(f"{host}:{port}" for host, port in address.hosts)
        self._stream, self._consumer = address.topic, address.channel
        self._subject = f"{address.topic}.{address.channel}"
        self._ack_wait = max(lease_seconds, 1.0)
        self._client: Any = None
        self._js: Any = None
        self._inbox: deque[JetStreamDelivery] = deque()
        self._arrived = asyncio.Event()
        self._may_ask = asyncio.Event()
        self._allowed = 0
        self._in_hand = 0
        self._box = ""
        self._pull = _Pull(0, 0)
        self._pulling: asyncio.Task[None] | None = None
        self._errands: set[asyncio.Task[Any]] = set()

    @classmethod
    def from_address(cls, address: BrokerAddress, context: FrontierContext) -> JetStreamBroker:
        """Build what ``nats:`` names."""
        return cls(address, context.options.lease_seconds)

    # --- life --------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect, and make stream and consumer if they are not there.

        Raises :class:`~skitter.errors.FrontierError` with a remedy if the server is away or refuses.
        """
        try:
            self._client = await nats.connect(
                self._servers, connect_timeout=5, allow_reconnect=True, max_reconnect_attempts=-1,
                reconnect_time_wait=0.2, error_cb=_tell, disconnected_cb=None,
            ) if await self._is_there() else None  # fmt: skip
            if self._client is None:
                raise ConnectionRefusedError("nobody answers")
            self._js = self._client.jetstream(timeout=10)
            await self._make()
        except (OSError, NatsError, TimeoutError) as error:
            await self.close()
            raise FrontierError(
                f"the broker nats://{self._where} cannot be used: {error or type(error).__name__}",
                remedy="start nats-server with JetStream (-js), or name another one in --frontier",
            ) from error
        self._pulling = asyncio.create_task(self._pull_forever())

    async def _is_there(self) -> bool:
        """Find out whether any server listens: the client would go on trying for ever."""
        for server in self._servers:
            host, _, port = server.rpartition("@")[2].rpartition("/")[2].rpartition(":")
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(5):
                    _, writer = await asyncio.open_connection(host, int(port))
                writer.close()
                return True
        return False

    async def _make(self) -> None:
        stream = StreamConfig(
            name=self._stream, subjects=[f"{self._stream}.*"], retention=RetentionPolicy.WORK_QUEUE,
            discard=DiscardPolicy.NEW,
        )  # fmt: skip
        with contextlib.suppress(BadRequestError):  # it is there, perhaps with limits of its owner
            await self._js.add_stream(stream)
        config = ConsumerConfig(
            durable_name=self._consumer, filter_subject=self._subject, ack_policy=AckPolicy.EXPLICIT,
            ack_wait=self._ack_wait, max_deliver=-1, max_ack_pending=-1,
        )  # fmt: skip
        await self._js.add_consumer(self._stream, config)
        self._box = self._client.new_inbox()
        await self._client.subscribe(f"{self._box}.*", cb=self._take)

    async def close(self) -> None:
        """Put back what was not taken, and disconnect."""
        if self._pulling is not None:
            self._pulling.cancel()
            await asyncio.gather(self._pulling, return_exceptions=True)
        for delivery in self._inbox:
            delivery.requeue(0.0)
        await asyncio.gather(*self._errands, return_exceptions=True)
        if self._client is not None:
            with contextlib.suppress(NatsError, OSError, TimeoutError):
                await self._client.flush(2)
            await self._client.close()
            self._client = None

    # --- out ---------------------------------------------------------------------------------------------

    async def publish(self, postings: Sequence[OutgoingMessage]) -> None:
        """Publish; delays are left to the state, which says how early a message is."""
        for start in range(0, len(postings), _PUBLISHED_TOGETHER):
            bodies = [posting.body for posting in postings[start : start + _PUBLISHED_TOGETHER]]
            await self._publish(bodies)

    async def _publish(self, bodies: list[bytes]) -> None:
        deadline = asyncio.get_running_loop().time() + PATIENCE
        is_told = False
        while bodies:
            outcomes = await asyncio.gather(
                *(self._js.publish(self._subject, body) for body in bodies), return_exceptions=True
            )
            failures = [one for one in outcomes if isinstance(one, BaseException)]
            bodies = [
                body for body, one in zip(bodies, outcomes, strict=True) if isinstance(one, BaseException)
            ]
            if not failures:
                return
            if not isinstance(failures[0], (NatsError, OSError, TimeoutError)):
                raise failures[0]
            is_wrong = isinstance(failures[0], BadRequestError) and not isinstance(
                failures[0], ServiceUnavailableError
            )
            if is_wrong or asyncio.get_running_loop().time() >= deadline:
                raise FrontierError(
                    f"the broker takes no messages: {failures[0]}",
                    remedy="see the server's log and the stream's limits; the same command resumes",
                ) from failures[0]
            if not is_told:
                log.warning("broker nats://%s: %s; it is waited for", self._where, failures[0])
                is_told = True
            await asyncio.sleep(_PAUSE)

    def answered(self, answer: Awaitable[None]) -> None:
        """Answer a message, which makes room for another."""
        self._in_hand -= 1
        self.undertake(answer)

    def undertake(self, errand: Awaitable[None]) -> None:
        """Say something to the server that needs no answer; if it is lost the message comes again."""
        task = asyncio.ensure_future(_quietly(errand))
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    # --- in ----------------------------------------------------------------------------------------------

    def allow(self, count: int) -> None:
        """Let so many messages be in hand."""
        self._allowed = count
        if count > self._in_hand:
            self._may_ask.set()

    def receive(self) -> Sequence[Delivery]:
        """Return what has arrived."""
        arrived, self._inbox = list(self._inbox), deque()
        return arrived

    async def wait(self, seconds: float) -> bool:
        """Wait for a message."""
        if not self._inbox:
            self._arrived.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._arrived.wait()
        return bool(self._inbox)

    async def _pull_forever(self) -> None:
        """Keep one question for messages standing while there is room for any.

        Not with the client's own ``fetch``: it keeps the first messages back until all that it asked for are there.
        """
        while True:
            room = self._allowed - self._in_hand
            if room <= 0:
                self._may_ask.clear()
                await self._may_ask.wait()
                continue
            self._pull = _Pull(self._pull.number + 1, min(room, _PULLED_TOGETHER))
            question = json.dumps({"batch": self._pull.left, "expires": round(_PULL_SECONDS * 1e9)})
            subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}"
            try:
                await self._client.publish(subject, question.encode(), f"{self._box}.{self._pull.number}")
                async with asyncio.timeout(_PULL_SECONDS + 1):
                    await self._pull.ended.wait()
            except TimeoutError:
                continue  # the server is away, or has forgotten the question
            except (NatsError, OSError) as error:
                log.debug("nats: %s", error)
                await asyncio.sleep(_PAUSE)

    async def _take(self, message: Msg) -> None:
        """Take a message, or the end of a question."""
        is_of_pull = message.subject.endswith(f".{self._pull.number}") or not message.subject.startswith(
            self._box
        )
        if message.headers and "Status" in message.headers:
            if is_of_pull:
                self._pull.ended.set()
            return
        self._in_hand += 1
        self._inbox.append(JetStreamDelivery(self, message))
        self._arrived.set()
        self._pull.left -= 1
        if self._pull.left <= 0:
            self._pull.ended.set()


class _Pull:
    """One question for messages."""

    def __init__(self, number: int, left: int) -> None:
        self.number = number
        self.left = left
        self.ended = asyncio.Event()


async def _quietly(errand: Awaitable[None]) -> None:
    with contextlib.suppress(NatsError, OSError, TimeoutError):
        await errand


async def _tell(error: Exception) -> None:
    log.debug("nats: %s", error)
