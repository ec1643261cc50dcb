"""Receives the messages of one channel of a topic from several nsqd."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from skitter.brokers.nsq_client.connection import Connection, NsqMessage, NsqOptions
from skitter.brokers.nsq_client.lookup import NsqdAddress, NsqLookup
from skitter.brokers.nsq_client.pool import ConnectionPool
from skitter.brokers.nsq_client.protocol import CommandRefused, is_channel, is_topic

REDISTRIBUTION_INTERVAL = 1.0
"""Seconds between two redistributions of ``max_in_flight`` among the connections."""
IDLE_CHECK_INTERVAL = 0.001
"""Seconds between two checks whether messages still arrive."""
IDLE_CHECKS = 2
"""Consecutive checks without a message after which the topic counts as idle. One is not enough: a busy process may not have
read the message yet."""
FULL_CHECK_INTERVAL = 0.005
"""Seconds between two checks while no more messages may arrive."""


class Consumer:
    """Receives messages, with at most ``max_in_flight`` in flight over all connections together.

    Each connection may have its messages in flight plus a share of the rest. If there are more connections than
    messages to share, the connections take turns.

    ``prompt``: let nsqd buffer messages while many arrive, but send each message immediately while few arrive. nsqd sends
    its buffer when no more messages may be in flight, and otherwise only after ``output_buffer_timeout``. So, after an idle
    time, each connection allows only one more message, and its whole share again when a message arrives.

    The constructor raises :class:`CommandRefused` for an invalid name of the topic or channel.
    """

    def __init__(
        self,
        topic: str,
        channel: str,
        nsqds: Sequence[NsqdAddress] = (),
        lookups: Sequence[NsqLookup] = (),
        options: NsqOptions | None = None,
        *,
        max_in_flight: int = 1,
        prompt: bool = False,
    ) -> None:
        if not is_topic(topic):
            raise CommandRefused("E_BAD_TOPIC", f"invalid topic name: {topic!r}")
        if not is_channel(channel):
            raise CommandRefused("E_BAD_CHANNEL", f"invalid channel name: {channel!r}")
        self.topic, self.channel = topic, channel
        self._pool = ConnectionPool(self, nsqds, lookups, options or NsqOptions())
        self._max_in_flight = max_in_flight
        self._turn = 0
        self._inbox: deque[NsqMessage] = deque()
        self._arrived = asyncio.Event()
        self._sharing: asyncio.Task[None] | None = None
        self._is_prompt = self._is_idle = prompt
        """Whether few messages arrive, so that each connection allows only one besides those in flight."""
        self._idle_timer: asyncio.TimerHandle | None = None
        self._received = 0

    # --- opening and closing -----------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect and subscribe.

        Raises :class:`NsqError` if no nsqd can be reached, or no nsqlookupd where no nsqd is named.
        """
        await self._pool.open()
        self._sharing = asyncio.create_task(self._share_forever())

    async def close(self) -> None:
        """Requeue all messages in flight, and disconnect.

        nsqd does not return the messages of a closed connection by itself: they would have to time out.
        """
        if self._sharing is not None:
            self._sharing.cancel()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        for connection in self._pool.connections:
            connection.allow(0)
            for message in list(connection.in_flight.values()):
                message.requeue()
        self._inbox.clear()
        await self._pool.close()

    @property
    def connections(self) -> list[Connection]:
        """The open connections."""
        return list(self._pool.connections)

    # --- callbacks of the pool ---------------------------------------------------------------------------

    async def find_nsqds(self, lookup: NsqLookup) -> list[NsqdAddress]:
        """Return the nsqd that have the topic."""
        return await lookup.producers(self.topic)

    async def on_connect(self, connection: Connection) -> None:
        """Subscribe to the channel."""
        await connection.subscribe(self.topic, self.channel)

    def on_join(self) -> None:
        """Give the new connection its share."""
        self._share()

    def on_message(self, message: NsqMessage) -> None:
        """Keep a message until it is received."""
        self._inbox.append(message)
        self._arrived.set()
        if self._is_prompt:
            self._received += 1
            if self._is_idle:
                self._is_idle = False
                asyncio.get_running_loop().call_soon(self._share)  # after all messages that arrived together

    # --- messages ----------------------------------------------------------------------------------------

    async def receive(self, limit: int, timeout: float | None = None) -> list[NsqMessage]:
        """Return at most ``limit`` messages that have arrived; wait ``timeout`` seconds (``None``: forever) for the first."""
        if not self.waiting:
            try:
                async with asyncio.timeout(timeout):
                    await self.wait()
            except TimeoutError:
                return []
        return self.take(limit)

    def take(self, limit: int | None = None) -> list[NsqMessage]:
        """Return at most ``limit`` messages (``None``: all) that have arrived, without waiting."""
        open_ones = {connection for connection in self._pool.connections if connection.is_open}
        messages: list[NsqMessage] = []
        while self._inbox and len(messages) != limit:
            message = self._inbox.popleft()
            if message.connection in open_ones:  # else nsqd delivers the message again
                messages.append(message)
        return messages

    async def wait(self) -> None:
        """Wait until a message has arrived."""
        while not self.waiting:
            self._arrived.clear()
            await self._arrived.wait()

    @property
    def waiting(self) -> int:
        """Number of messages that have arrived and were not received yet."""
        while self._inbox and not self._inbox[0].connection.is_open:
            self._inbox.popleft()
        return len(self._inbox)

    # --- distributing max_in_flight -------------------------------------------------------------------------

    @property
    def max_in_flight(self) -> int:
        """Number of messages that may be in flight over all connections, including those not received yet."""
        return self._max_in_flight

    @max_in_flight.setter
    def max_in_flight(self, count: int) -> None:
        if count != self._max_in_flight:
            self._max_in_flight = count
            self._share()

    def _share(self) -> None:
        connections = self._pool.connections
        if not connections:
            return
        if self._is_prompt and not self._is_idle and self._idle_timer is None:
            self._schedule_check(IDLE_CHECK_INTERVAL, IDLE_CHECKS)
        free = self._max_in_flight - sum(len(connection.in_flight) for connection in connections)
        if free <= 0:
            for connection in connections:
                connection.allow(min(len(connection.in_flight), self._max_in_flight))
            return
        per_connection, more = divmod(free, len(connections))
        for place, connection in enumerate(connections):
            is_favoured = (place - self._turn) % len(connections) < more
            share = per_connection + is_favoured
            connection.allow(len(connection.in_flight) + (min(share, 1) if self._is_idle else share))

    def _schedule_check(self, pause: float, checks: int) -> None:
        """Check again after ``pause`` seconds. After ``checks`` checks without a message, the topic counts as idle."""
        self._idle_timer = asyncio.get_running_loop().call_later(
            pause, self._check_idle, checks, self._received
        )

    def _check_idle(self, checks: int, received: int) -> None:
        self._idle_timer = None
        if all(len(connection.in_flight) >= connection.ready for connection in self._pool.connections):
            self._schedule_check(FULL_CHECK_INTERVAL, IDLE_CHECKS)  # nsqd has sent as many messages as it may
        elif received != self._received:
            self._schedule_check(IDLE_CHECK_INTERVAL, IDLE_CHECKS)
        elif checks > 1:
            self._schedule_check(IDLE_CHECK_INTERVAL, checks - 1)
        else:
            self._is_idle = True
            self._share()

    async def _share_forever(self) -> None:
        while True:
            await asyncio.sleep(REDISTRIBUTION_INTERVAL)
            self._turn += 1
            if len(self._pool.connections) > 1:
                self._share()
