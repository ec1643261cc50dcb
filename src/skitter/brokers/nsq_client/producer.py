"""Producer: publishes to one nsqd of several, and to another if that fails."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

from skitter.brokers.nsq_client import wire
from skitter.brokers.nsq_client.connection import Connection
from skitter.brokers.nsq_client.errors import ConnectionFailed, NsqError, Refused
from skitter.brokers.nsq_client.lookup import Address, NsqLookup
from skitter.brokers.nsq_client.options import Options
from skitter.brokers.nsq_client.peers import Peers

_LARGEST_BATCH = 4 << 20
"""Bytes of one MPUB; nsqd's default ``--max-body-size`` is 5 MB."""
_MOST_AT_ONCE = 1_000
"""Messages of one MPUB."""


class Producer:
    """A pool of connections to publish over.

    What is published twice, because a connection ended before its answer came, is delivered twice.
    ``patience``: seconds for which :meth:`publish` waits for any nsqd before it raises.
    """

    def __init__(
        self,
        nsqds: Sequence[Address] = (),
        lookups: Sequence[NsqLookup] = (),
        options: Options | None = None,
        *,
        patience: float = 30.0,
        poll: float = 60.0,
    ) -> None:
        options = options if options is not None else Options()
        self._patience = patience
        self._peers = Peers(nsqds, lookups, NsqLookup.nodes, _welcome, options, poll)
        self._turn = itertools.count()

    async def open(self) -> None:
        """Connect. Raises :class:`NsqError` if no nsqd can be reached."""
        await self._peers.open()

    async def close(self) -> None:
        """Disconnect."""
        await self._peers.close()

    @property
    def connections(self) -> list[Connection]:
        """Connections open now."""
        return list(self._peers.connections)

    async def publish(self, topic: str, bodies: Sequence[bytes], delay: float = 0.0) -> None:
        """Publish messages, delivered after ``delay`` seconds at the earliest; returns when nsqd has them.

        Raises :class:`Refused` for what no nsqd will take, :class:`ConnectionFailed` if none is there.
        """
        if not wire.is_topic(topic):
            raise Refused("E_BAD_TOPIC", f"{topic!r} is no name for a topic")
        for batch in _batches(bodies):
            await self._publish(topic, batch, delay)

    async def _publish(self, topic: str, bodies: Sequence[bytes], delay: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience
        error: NsqError | None = None
        while True:
            # One that has ended may not have been told so yet, which it never is while this loop spins.
            connections = [one for one in self._peers.connections if one.is_open]
            if connections:
                connection = connections[next(self._turn) % len(connections)]
                error = await _try(connection, topic, bodies, delay)
                if error is None:
                    return
            left = deadline - loop.time()
            if left <= 0:
                raise error or ConnectionFailed(
                    f"there is no nsqd: {self._peers.last_error or 'none is known'}"
                )
            if not connections:
                await self._peers.wait_for_change(min(left, 1.0))


async def _try(connection: Connection, topic: str, bodies: Sequence[bytes], delay: float) -> NsqError | None:
    """Publish; return an error that another nsqd, or the same one later, need not have."""
    try:
        await connection.publish(topic, bodies, delay)
    except ConnectionFailed as failure:
        return failure
    except Refused as refusal:
        if not refusal.code.endswith("PUB_FAILED"):
            raise
        return refusal
    return None


def _batches(bodies: Sequence[bytes]) -> list[list[bytes]]:
    batches: list[list[bytes]] = []
    size = 0
    for body in bodies:
        if not batches or size + len(body) > _LARGEST_BATCH or len(batches[-1]) == _MOST_AT_ONCE:
            batches.append([])
            size = 0
        batches[-1].append(body)
        size += len(body) + 4
    return batches


async def _welcome(_: Connection) -> None:
    """Nothing is to be said before publishing."""
