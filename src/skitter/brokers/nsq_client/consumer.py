"""Receives the messages of one channel of a topic from several nsqd."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Sequence

from skitter.brokers.nsq_client.connection import Connection, NsqMessage, NsqOptions
from skitter.brokers.nsq_client.lookup import NsqdAddress, NsqLookup
from skitter.brokers.nsq_client.pool import ConnectionPool
from skitter.brokers.nsq_client.protocol import CommandRefused, is_channel, is_topic

log = logging.getLogger(__name__)

REDISTRIBUTION_INTERVAL = 1.0
"""Seconds between two redistributions of ``max_in_flight`` among the connections."""
LULL_CHECK_INTERVAL = 0.001
"""Seconds between two checks whether messages still arrive."""
LULL_CHECKS = 2
"""Checks in a row without a message that make a lull. After one, a busy process may just not have read yet."""
FULL_CHECK_INTERVAL = 0.005
"""Seconds between two checks while no more messages may arrive."""


class Consumer:
    """Receives messages, with at most ``max_in_flight`` unanswered ones over all connections together.

    Each connection may have its messages in flight plus a share of the rest. If there are more connections than
    messages to share out, the connections take turns.

    ``prompt``: let nsqd buffer messages while many arrive, and send each at once while few arrive. By itself, nsqd
    sends its buffer when no more messages may be in flight, and else only after ``output_buffer_timeout``. So, after a
    lull, each connection allows only one more message, and its whole share again when one arrives.

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
        options = options if options is not None else NsqOptions()
        self._pool = ConnectionPool(self, nsqds, lookups, options)
        self._max_in_flight = max_in_flight
        self._turn = 0
        self._inbox: deque[NsqMessage] = deque()
        self._arrived = asyncio.Event()
        self._sharing: asyncio.Task[None] | None = None
        self._backoff = _Backoff(options.max_backoff)
        self._pause_timer: asyncio.TimerHandle | None = None
        self._is_prompt = self._is_lull = prompt
        """Whether few messages arrive, so that each connection allows only one besides those in flight."""
        self._lull_timer: asyncio.TimerHandle | None = None
        self._received = 0

    # --- opening and closing -----------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect and subscribe.

        Raise :class:`NsqError` if no nsqd can be reached, or no nsqlookupd where no nsqd is named.
        """
        await self._pool.open()
        self._sharing = asyncio.create_task(self._share_forever())

    async def close(self) -> None:
        """Return all unanswered messages, and disconnect.

        nsqd does not return the messages of a closed connection by itself: they would have to time out.
        """
        if self._sharing is not None:
            self._sharing.cancel()
        for timer in (self._pause_timer, self._lull_timer):
            if timer is not None:
                timer.cancel()
        for connection in self._pool.connections:
            connection.allow(0)
            for message in list(connection.unanswered.values()):
                message.requeue()
        self._inbox.clear()
        await self._pool.close()

    @property
    def connections(self) -> list[Connection]:
        """The open connections."""
        return list(self._pool.connections)

    # --- what the pool asks for --------------------------------------------------------------------------

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
            if self._is_lull:
                self._is_lull = False
                asyncio.get_running_loop().call_soon(self._share)  # after all that arrived together

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

    async def __aiter__(self) -> AsyncIterator[NsqMessage]:
        """Yield messages without end."""
        while True:
            for message in await self.receive(1):
                yield message

    def succeeded(self, message: NsqMessage) -> None:
        """Finish a message. After failures, this shortens the next pause."""
        message.finish()
        if self._backoff.succeed():
            self._share()

    def failed(self, message: NsqMessage, delay: float = 0.0) -> None:
        """Return a message for ``delay`` seconds, and pause the delivery (``NsqOptions.max_backoff``)."""
        message.requeue(delay)
        pause = self._backoff.fail()
        if pause > 0 and self._pause_timer is None:
            log.info("%s/%s pauses for %.1f s after a failure", self.topic, self.channel, pause)
            self._pause_timer = asyncio.get_running_loop().call_later(pause, self._end_pause)
            self._share()

    def _end_pause(self) -> None:
        self._pause_timer = None
        self._share()

    # --- sharing max_in_flight ------------------------------------------------------------------------------

    @property
    def max_in_flight(self) -> int:
        """Number of messages that may be unanswered over all connections, including those not received yet."""
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
        if self._is_prompt and not self._is_lull and self._lull_timer is None:
            self._schedule_check(LULL_CHECK_INTERVAL, LULL_CHECKS)
        most = self._max_in_flight
        if self._backoff.level:
            most = min(most, 0 if self._pause_timer is not None else 1)
        free = most - sum(connection.in_flight for connection in connections)
        if free <= 0:
            for connection in connections:
                connection.allow(min(connection.in_flight, most))
            return
        per_connection, more = divmod(free, len(connections))
        for place, connection in enumerate(connections):
            is_favoured = (place - self._turn) % len(connections) < more
            share = per_connection + is_favoured
            connection.allow(connection.in_flight + (min(share, 1) if self._is_lull else share))

    def _schedule_check(self, pause: float, checks: int) -> None:
        """Check again after ``pause`` seconds; after ``checks`` checks without a message there is a lull."""
        self._lull_timer = asyncio.get_running_loop().call_later(
            pause, self._check_lull, checks, self._received
        )

    def _check_lull(self, checks: int, received: int) -> None:
        self._lull_timer = None
        if all(connection.in_flight >= connection.ready for connection in self._pool.connections):
            self._schedule_check(FULL_CHECK_INTERVAL, LULL_CHECKS)  # nsqd has sent all that it may
        elif received != self._received:
            self._schedule_check(LULL_CHECK_INTERVAL, LULL_CHECKS)
        elif checks > 1:
            self._schedule_check(LULL_CHECK_INTERVAL, checks - 1)
        else:
            self._is_lull = True
            self._share()

    async def _share_forever(self) -> None:
        while True:
            await asyncio.sleep(REDISTRIBUTION_INTERVAL)
            self._turn += 1
            if len(self._pool.connections) > 1:
                self._share()


class _Backoff:
    """Counts failures in a row."""

    def __init__(self, max_pause: float) -> None:
        self._max_pause = max_pause
        self.level = 0

    def fail(self) -> float:
        """Note a failure. Return the seconds to pause."""
        if not self._max_pause:
            return 0.0
        self.level += 1
        return float(min(self._max_pause, 2.0 ** (self.level - 1)))

    def succeed(self) -> bool:
        """Note a success. Return whether the level has changed."""
        if not self.level:
            return False
        self.level -= 1
        return True
