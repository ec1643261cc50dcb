"""Peers: the nsqd that a producer or consumer is to be connected to, named or found by nsqlookupd."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from skitter.brokers.nsq_client.connection import Connection
from skitter.brokers.nsq_client.errors import ConnectionFailed, LookupFailed, NsqError
from skitter.brokers.nsq_client.lookup import Address, NsqLookup
from skitter.brokers.nsq_client.options import Options

log = logging.getLogger(__name__)

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 15.0
"""Seconds between two attempts to connect, doubled after each failure, with jitter."""


def _ignore() -> None:
    pass


class Peers:
    """Keeps a connection to each nsqd, and comes back after an end with growing pauses.

    ``find`` asks one nsqlookupd; every ``poll`` seconds, give or take a third, each of them is asked. An nsqd
    that was only found, and that nobody names any more, is not connected to again.
    """

    def __init__(
        self,
        nsqds: Sequence[Address],
        lookups: Sequence[NsqLookup],
        find: Callable[[NsqLookup], Awaitable[list[Address]]],
        welcome: Callable[[Connection], Awaitable[None]],
        options: Options,
        poll: float,
    ) -> None:
        self._named = tuple(dict.fromkeys(nsqds))
        self._lookups = lookups
        self._find = find
        self._welcome = welcome
        self._options = options
        self._poll = poll
        self._keepers: dict[Address, asyncio.Task[None]] = {}
        self._polling: asyncio.Task[None] | None = None
        self._known: set[Address] = set()
        self._changed = asyncio.Event()
        self.connections: list[Connection] = []
        """Those open now and welcomed."""
        self.on_join: Callable[[], None] = _ignore
        """Called when there is one more."""
        self.last_error: Exception | None = None

    async def open(self) -> None:
        """Connect to at least one nsqd, and to the others in time.

        Raises the :class:`NsqError` of the last attempt if none can be reached.
        """
        addresses = {*self._named, *await self._found(strict=not self._named)}
        outcomes = await asyncio.gather(*map(self._connect, addresses), return_exceptions=True)
        if addresses and not self.connections:
            raise next(outcome for outcome in outcomes if isinstance(outcome, BaseException))
        self._keep(addresses)
        if self._lookups:
            self._polling = asyncio.create_task(self._poll_forever())

    async def close(self) -> None:
        """End all connections."""
        tasks = [*self._keepers.values(), *([self._polling] if self._polling else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._keepers.clear()
        connections = list(self.connections)
        for connection in connections:
            connection.close()
        await asyncio.gather(*(connection.wait_closed() for connection in connections))

    async def wait_for_change(self, timeout: float) -> None:
        """Wait until a connection begins or ends, at most so many seconds."""
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._changed.wait()

    # --- finding -----------------------------------------------------------------------------------------

    async def _found(self, *, strict: bool) -> set[Address]:
        answers = await asyncio.gather(*map(self._find, self._lookups), return_exceptions=True)
        failures = [answer for answer in answers if isinstance(answer, BaseException)]
        if strict and failures and len(failures) == len(answers):
            raise failures[0]
        for failure in failures:
            if not isinstance(failure, LookupFailed):
                raise failure
            log.warning("%s", failure)
        return {address for answer in answers if not isinstance(answer, BaseException) for address in answer}

    async def _poll_forever(self) -> None:
        while True:
            await asyncio.sleep(self._poll * random.uniform(2 / 3, 4 / 3))
            self._keep({*self._named, *await self._found(strict=False)})

    # --- keeping -----------------------------------------------------------------------------------------

    def _keep(self, addresses: set[Address]) -> None:
        self._known = addresses
        for address in addresses - self._keepers.keys():
            keeper = asyncio.create_task(self._stay_connected(address))
            self._keepers[address] = keeper
            keeper.add_done_callback(partial(self._let_go, address))

    def _let_go(self, address: Address, _: asyncio.Task[None]) -> None:
        self._keepers.pop(address, None)

    async def _stay_connected(self, address: Address) -> None:
        pause = FIRST_PAUSE
        while address in self._known:
            connection = self._to(address)
            if connection is not None:
                await connection.wait_closed()
                pause = FIRST_PAUSE
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            else:
                try:
                    await self._connect(address)
                except NsqError as error:
                    self.last_error = error
                    log.log(logging.INFO if pause == FIRST_PAUSE else logging.DEBUG, "%s", error)
                    await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                    pause = min(2 * pause, LONGEST_PAUSE)

    def _to(self, address: Address) -> Connection | None:
        return next((one for one in self.connections if (one.host, one.port) == address), None)

    async def _connect(self, address: Address) -> None:
        connection = await Connection.open(*address, self._options)
        connection.on_close = self._ended
        try:
            await self._welcome(connection)
        except BaseException:
            connection.close()
            raise
        if not connection.is_open:  # it has ended already, when nobody was to be told yet
            raise ConnectionFailed(f"{connection!r}: the connection was closed")
        self.connections.append(connection)
        self._changed.set()
        self.on_join()

    def _ended(self, connection: Connection) -> None:
        if connection in self.connections:
            self.connections.remove(connection)
        self._changed.set()
