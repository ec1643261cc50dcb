"""Consumer: one channel of a topic on several nsqd."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Sequence
from functools import partial

from skitter.brokers.nsq_client import wire
from skitter.brokers.nsq_client.connection import Connection
from skitter.brokers.nsq_client.errors import Refused
from skitter.brokers.nsq_client.lookup import Address, NsqLookup
from skitter.brokers.nsq_client.message import Message
from skitter.brokers.nsq_client.options import Options
from skitter.brokers.nsq_client.peers import Peers

log = logging.getLogger(__name__)

_REDISTRIBUTE_EVERY = 1.0
"""Seconds after which what may be in flight is shared out anew."""
_LULL = 0.001
"""Seconds without a message after which, twice in a row, nsqd is made to send what it has gathered."""
_LULLS = 2
"""A process that is busy for longer has not read by the first look what had come long before."""
_FULL = 0.005
"""Seconds between two looks while no more may come."""


class Consumer:
    """Receives messages, at most ``max_in_flight`` unanswered ones over all connections together.

    Each connection may have what it has in flight and a share of the rest. Where there are more connections
    than messages to share out, they take turns.

    ``backoff``: after a message is put back by :meth:`failed` nothing is delivered for a while, then one
    message to try; pauses double with each failure in a row, from one second up to this many. 0: never.

    ``prompt``: have nsqd gather messages while many come, and send each at once while few do. By itself nsqd
    sends what it has gathered when no more may be in flight, and else only after ``output_buffer_timeout``.
    So after a moment without messages only one more is allowed, and all of the share again when one comes.

    ``poll``: seconds between two questions to the lookups.

    Raises, when made, :class:`~skitter.brokers.nsq_client.errors.Refused` for what cannot be the name of a topic or channel.
    """

    def __init__(
        self,
        topic: str,
        channel: str,
        nsqds: Sequence[Address] = (),
        lookups: Sequence[NsqLookup] = (),
        options: Options | None = None,
        *,
        max_in_flight: int = 1,
        poll: float = 60.0,
        backoff: float = 0.0,
        prompt: bool = False,
    ) -> None:
        if not wire.is_topic(topic):
            raise Refused("E_BAD_TOPIC", f"{topic!r} is no name for a topic")
        if not wire.is_channel(channel):
            raise Refused("E_BAD_CHANNEL", f"{channel!r} is no name for a channel")
        self.topic, self.channel = topic, channel
        find = partial(_producers, topic)
        options = options if options is not None else Options()
        self._peers = Peers(nsqds, lookups, find, self._welcome, options, poll)
        self._peers.on_join = self._share
        self._most = max_in_flight
        self._turn = 0
        self._inbox: deque[Message] = deque()
        self._arrived = asyncio.Event()
        self._sharing: asyncio.Task[None] | None = None
        self._backoff = _Backoff(backoff)
        self._resting: asyncio.TimerHandle | None = None
        self._is_prompt = self._is_lull = prompt
        """Whether few messages come, so that no connection may have more than one besides those in flight."""
        self._watching: asyncio.TimerHandle | None = None
        self._came = 0

    # --- life --------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect and subscribe.

        Raises :class:`NsqError` if no nsqd, or no nsqlookupd where no nsqd is named, can be reached.
        """
        await self._peers.open()
        self._sharing = asyncio.create_task(self._share_forever())

    async def close(self) -> None:
        """Put back everything that was not answered, and disconnect.

        nsqd notices no end of a connection by which messages are held: they would have to time out.
        """
        if self._sharing is not None:
            self._sharing.cancel()
        for timer in (self._resting, self._watching):
            if timer is not None:
                timer.cancel()
        for connection in self._peers.connections:
            connection.allow(0)
            for message in list(connection.held.values()):
                message.requeue()
        self._inbox.clear()
        await self._peers.close()

    @property
    def connections(self) -> list[Connection]:
        """Connections open now."""
        return list(self._peers.connections)

    async def _welcome(self, connection: Connection) -> None:
        connection.on_message = self._receive
        await connection.subscribe(self.topic, self.channel)

    # --- messages ----------------------------------------------------------------------------------------

    def _receive(self, message: Message) -> None:
        self._inbox.append(message)
        self._arrived.set()
        if self._is_prompt:
            self._came += 1
            if self._is_lull:
                self._is_lull = False
                asyncio.get_running_loop().call_soon(self._share)  # once all that came together is counted

    async def receive(self, limit: int, timeout: float | None = None) -> list[Message]:
        """Return up to ``limit`` messages that are there; wait ``timeout`` seconds for the first (``None``: ever)."""
        if not self.waiting:
            try:
                async with asyncio.timeout(timeout):
                    await self.wait()
            except TimeoutError:
                return []
        return self.take(limit)

    def take(self, limit: int | None = None) -> list[Message]:
        """Return up to ``limit`` messages that are there, without waiting; ``None``: all."""
        there = {connection for connection in self._peers.connections if connection.is_open}
        messages: list[Message] = []
        while self._inbox and len(messages) != limit:
            message = self._inbox.popleft()
            if message.connection in there:  # else it is delivered again, by another connection
                messages.append(message)
        return messages

    async def wait(self) -> None:
        """Wait until a message is there."""
        while not self.waiting:
            self._arrived.clear()
            await self._arrived.wait()

    @property
    def waiting(self) -> int:
        """How many messages have arrived and were not received yet."""
        while self._inbox and not self._inbox[0].connection.is_open:
            self._inbox.popleft()
        return len(self._inbox)

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Give messages as they come, for ever."""
        while True:
            for message in await self.receive(1):
                yield message

    def succeeded(self, message: Message) -> None:
        """Finish a message, and trust the channel more after failures."""
        message.finish()
        if self._backoff.succeed():
            self._share()

    def failed(self, message: Message, delay: float = 0.0) -> None:
        """Put a message back for ``delay`` seconds, and rest for a while (``backoff``)."""
        message.requeue(delay)
        rest = self._backoff.fail()
        if rest > 0 and self._resting is None:
            log.info("%s/%s rests for %.1f s after a failure", self.topic, self.channel, rest)
            self._resting = asyncio.get_running_loop().call_later(rest, self._end_rest)
            self._share()

    def _end_rest(self) -> None:
        self._resting = None
        self._share()

    # --- sharing out -------------------------------------------------------------------------------------

    @property
    def max_in_flight(self) -> int:
        """Messages that may be unanswered, over all connections; those not received yet count."""
        return self._most

    @max_in_flight.setter
    def max_in_flight(self, count: int) -> None:
        if count != self._most:
            self._most = count
            self._share()

    def _share(self) -> None:
        connections = self._peers.connections
        if not connections:
            return
        if self._is_prompt and not self._is_lull and self._watching is None:
            self._watch(_LULL, _LULLS)
        most = self._most
        if self._backoff.level:
            most = min(most, 0 if self._resting is not None else 1)
        free = most - sum(connection.in_flight for connection in connections)
        if free <= 0:
            for connection in connections:
                connection.allow(min(connection.in_flight, most))
            return
        each, more = divmod(free, len(connections))
        for place, connection in enumerate(connections):
            is_favoured = (place - self._turn) % len(connections) < more
            share = each + is_favoured
            connection.allow(connection.in_flight + (min(share, 1) if self._is_lull else share))

    def _watch(self, pause: float, lulls: int) -> None:
        """Look again whether messages still come, and after so many looks in vain let it be a lull."""
        self._watching = asyncio.get_running_loop().call_later(pause, self._look, lulls, self._came)

    def _look(self, lulls: int, came: int) -> None:
        self._watching = None
        if all(connection.in_flight >= connection.ready for connection in self._peers.connections):
            self._watch(_FULL, _LULLS)  # nsqd has sent all that it may; answers make room for more
        elif came != self._came:
            self._watch(_LULL, _LULLS)
        elif lulls > 1:
            self._watch(_LULL, lulls - 1)
        else:
            self._is_lull = True
            self._share()

    async def _share_forever(self) -> None:
        while True:
            await asyncio.sleep(_REDISTRIBUTE_EVERY)
            self._turn += 1
            if len(self._peers.connections) > 1:
                self._share()


class _Backoff:
    """How much a channel is distrusted."""

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self.level = 0

    def fail(self) -> float:
        """Return the seconds to rest."""
        if not self._longest:
            return 0.0
        self.level += 1
        return float(min(self._longest, 2.0 ** (self.level - 1)))

    def succeed(self) -> bool:
        """Return whether anything has changed."""
        if not self.level:
            return False
        self.level -= 1
        return True


async def _producers(topic: str, lookup: NsqLookup) -> list[Address]:
    return await lookup.producers(topic)
