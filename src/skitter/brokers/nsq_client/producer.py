"""Publishes to one of several nsqd, and to another one if that fails."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

from skitter.brokers.nsq_client.connection import Connection, NsqMessage, NsqOptions
from skitter.brokers.nsq_client.lookup import NsqdAddress, NsqLookup
from skitter.brokers.nsq_client.pool import ConnectionPool
from skitter.brokers.nsq_client.protocol import CommandRefused, ConnectionFailed, NsqError, is_topic

MAX_BATCH_SIZE = 4 << 20
"""Bytes in one MPUB; nsqd's default ``--max-body-size`` is 5 MB."""
MAX_BATCH_MESSAGES = 1_000
"""Messages in one MPUB."""


class Producer:
    """Publishes over connections to several nsqd.

    If a connection ends before the reply of nsqd arrives, the messages are published again, and may be delivered
    twice. ``timeout``: seconds for which :meth:`publish` waits for an nsqd before it raises.
    """

    def __init__(
        self,
        nsqds: Sequence[NsqdAddress] = (),
        lookups: Sequence[NsqLookup] = (),
        options: NsqOptions | None = None,
        *,
        timeout: float = 30.0,
    ) -> None:
        self._timeout = timeout
        self._pool = ConnectionPool(self, nsqds, lookups, options or NsqOptions())
        self._turn = itertools.count()

    async def open(self) -> None:
        """Connect. Raises :class:`NsqError` if no nsqd can be reached."""
        await self._pool.open()

    async def close(self) -> None:
        """Disconnect."""
        await self._pool.close()

    @property
    def connections(self) -> list[Connection]:
        """The open connections."""
        return list(self._pool.connections)

    # --- callbacks of the pool ---------------------------------------------------------------------------

    async def find_nsqds(self, lookup: NsqLookup) -> list[NsqdAddress]:
        """Return all nsqd."""
        return await lookup.nodes()

    async def on_connect(self, connection: Connection) -> None:
        """Do nothing: publishing needs no preparation."""

    def on_join(self) -> None:
        """Do nothing: :meth:`publish` reads the connections of the pool."""

    def on_message(self, message: NsqMessage) -> None:
        """Do nothing: a producer gets no messages."""

    # --- publishing --------------------------------------------------------------------------------------

    async def publish(self, topic: str, bodies: Sequence[bytes], delay: float = 0.0) -> None:
        """Publish messages, to be delivered after at least ``delay`` seconds. Return when nsqd has them.

        Raises :class:`CommandRefused` for messages that nsqd does not accept, :class:`ConnectionFailed` if no nsqd
        can be reached.
        """
        if not is_topic(topic):
            raise CommandRefused("E_BAD_TOPIC", f"invalid topic name: {topic!r}")
        for batch in _batches(bodies):
            await self._publish(topic, batch, delay)

    async def _publish(self, topic: str, bodies: Sequence[bytes], delay: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        error: NsqError | None = None
        while True:
            # A closed connection stays in the pool until the event loop runs, and this loop may repeat before that.
            connections = [connection for connection in self._pool.connections if connection.is_open]
            if connections:
                connection = connections[next(self._turn) % len(connections)]
                try:
                    return await connection.publish(topic, bodies, delay)
                except ConnectionFailed as failure:
                    error = failure
                except CommandRefused as refusal:
                    if not refusal.may_succeed_later:
                        raise
                    error = refusal
            seconds = deadline - loop.time()
            if seconds <= 0:
                raise error or ConnectionFailed(
                    f"no nsqd is available: {self._pool.last_error or 'none is known'}"
                )
            if not connections:
                await self._pool.wait_for_change(min(seconds, 1.0))


def _batches(bodies: Sequence[bytes]) -> list[list[bytes]]:
    batches: list[list[bytes]] = []
    size = 0
    for body in bodies:
        if not batches or size + len(body) > MAX_BATCH_SIZE or len(batches[-1]) == MAX_BATCH_MESSAGES:
            batches.append([])
            size = 0
        batches[-1].append(body)
        size += len(body) + 4
    return batches
