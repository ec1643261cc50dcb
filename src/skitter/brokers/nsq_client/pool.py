"""Keeps connections to all nsqd of a producer or consumer, whether named or found by nsqlookupd."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from skitter.brokers.nsq_client.connection import Connection, NsqMessage, NsqOptions
from skitter.brokers.nsq_client.lookup import NsqdAddress, NsqLookup
from skitter.brokers.nsq_client.protocol import ConnectionFailed, LookupFailed, NsqError

log = logging.getLogger(__name__)

MIN_PAUSE = 0.1
MAX_PAUSE = 15.0
"""Seconds between two attempts to connect; doubled after each failure, with jitter."""
FIRST_LOOKUP_INTERVAL = 0.1
MAX_LOOKUP_INTERVAL_ALONE = 2.0
"""Seconds between two requests to nsqlookupd: at the start, doubled each time; and the maximum without a connection."""


class PoolUser(Protocol):
    """The producer or consumer that a pool serves."""

    async def find_nsqds(self, lookup: NsqLookup) -> list[NsqdAddress]:
        """Ask one nsqlookupd for the nsqd to connect to. Raises :class:`LookupFailed`."""

    async def on_connect(self, connection: Connection) -> None:
        """Prepare a new connection, before it joins the pool."""

    def on_join(self) -> None:
        """Record that a connection has joined the pool."""

    def on_message(self, message: NsqMessage) -> None:
        """Take a message that has arrived."""


class ConnectionPool:
    """Keeps a connection to each nsqd, and reconnects with increasing delays.

    An nsqd that was found by a nsqlookupd, and that none of them lists any more, is not reconnected.
    """

    def __init__(
        self,
        user: PoolUser,
        nsqds: Sequence[NsqdAddress],
        lookups: Sequence[NsqLookup],
        options: NsqOptions,
    ) -> None:
        self._user = user
        self._named = tuple(dict.fromkeys(nsqds))
        self._lookups = lookups
        self._options = options
        self._tasks: dict[NsqdAddress, asyncio.Task[None]] = {}
        self._polling: asyncio.Task[None] | None = None
        self._known: set[NsqdAddress] = set()
        self._changed = asyncio.Event()
        self.connections: list[Connection] = []
        """Open connections, prepared by the user."""
        self.last_error: Exception | None = None

    async def open(self) -> None:
        """Connect to at least one nsqd; the others follow.

        Raises the :class:`NsqError` of the last attempt if none can be reached.
        """
        addresses = {*self._named, *await self._find(required=not self._named)}
        outcomes = await asyncio.gather(*map(self._connect, addresses), return_exceptions=True)
        if addresses and not self.connections:
            failures = (outcome for outcome in outcomes if isinstance(outcome, BaseException))
            where = ", ".join(f"{host}:{port}" for host, port in addresses)
            # Connections may also have been opened and have ended since.
            raise next(failures, ConnectionFailed(f"nsqd {where}: the connection has ended"))
        self._keep(addresses)
        if self._lookups:
            self._polling = asyncio.create_task(self._poll_forever())

    async def close(self) -> None:
        """Close all connections."""
        tasks = [*self._tasks.values(), *([self._polling] if self._polling else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()
        connections = list(self.connections)
        for connection in connections:
            connection.close()
        await asyncio.gather(*(connection.wait_closed() for connection in connections))

    async def wait_for_change(self, timeout: float) -> None:
        """Wait at most ``timeout`` seconds until a connection opens or closes."""
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._changed.wait()

    # --- finding nsqd ------------------------------------------------------------------------------------

    async def _find(self, *, required: bool) -> set[NsqdAddress]:
        results = await asyncio.gather(*map(self._user.find_nsqds, self._lookups), return_exceptions=True)
        failures = [result for result in results if isinstance(result, BaseException)]
        if required and failures and len(failures) == len(results):
            raise failures[0]
        for failure in failures:
            if not isinstance(failure, LookupFailed):
                raise failure
            log.warning("%s", failure)
        return {address for result in results if not isinstance(result, BaseException) for address in result}

    async def _poll_forever(self) -> None:
        """Ask nsqlookupd often at first and while there is no connection: a new topic is about to appear."""
        interval = FIRST_LOOKUP_INTERVAL
        while True:
            most = self._options.lookup_interval
            if not self.connections:
                most = min(most, MAX_LOOKUP_INTERVAL_ALONE)
            interval = min(2 * interval, most)
            await asyncio.sleep(interval * random.uniform(2 / 3, 4 / 3))
            self._keep({*self._named, *await self._find(required=False)})

    # --- connecting --------------------------------------------------------------------------------------

    def _keep(self, addresses: set[NsqdAddress]) -> None:
        self._known = addresses
        for address in addresses - self._tasks.keys():
            task = asyncio.create_task(self._stay_connected(address))
            self._tasks[address] = task
            task.add_done_callback(partial(self._tasks.pop, address))  # the task is the default of pop

    async def _stay_connected(self, address: NsqdAddress) -> None:
        pause = MIN_PAUSE
        while address in self._known:
            there = [found for found in self.connections if (found.host, found.port) == address]
            if there:
                await there[0].wait_closed()
                pause = MIN_PAUSE
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                continue
            try:
                await self._connect(address)
            except NsqError as error:
                self.last_error = error
                log.log(logging.INFO if pause == MIN_PAUSE else logging.DEBUG, "%s", error)
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(2 * pause, MAX_PAUSE)

    async def _connect(self, address: NsqdAddress) -> None:
        user = self._user
        connection = await Connection.open(
            *address, self._options, on_message=user.on_message, on_close=self._on_close
        )
        try:
            await user.on_connect(connection)
        except BaseException:
            connection.close()
            raise
        if not connection.is_open:
            raise ConnectionFailed(f"{connection!r}: the connection was closed")
        self.connections.append(connection)
        self._changed.set()
        user.on_join()

    def _on_close(self, connection: Connection) -> None:
        if connection in self.connections:
            self.connections.remove(connection)
        self._changed.set()
