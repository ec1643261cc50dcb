"""Leaser: keeps as many leases at work as allowed, and sees each to its end.

A lease ends by its commit, or by being handed back; until then the pump renews it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from skitter.frontier.contract import Frontier
from skitter.frontier.records import FetchReport, JobState, Lease
from skitter.worker import DRAIN_SECONDS
from skitter.worker.page import Page
from skitter.worker.queue_budget import QueueBudget

_LOOK_EVERY = 0.1
"""Seconds between two looks at the job while there is no room for more, or nothing is given out."""

_GATHER_LANDINGS = 0.002
"""Seconds for which ended fetches gather before the frontier is asked for more, unless a quarter of the
concurrency has gathered before: one call for several."""
_UNCOMMITTED_PER_FETCH = 1
"""Pages that may wait for their commit, per fetch in flight, where no store buffers more."""


class InflightRequest:
    """One lease at work in this worker."""

    __slots__ = ("_connecting", "_pump", "asked", "landed", "lease")

    def __init__(self, pump: Leaser, lease: Lease, asked: float) -> None:
        self._pump = pump
        self.lease = lease
        self.asked = asked
        """Loop time at which the frontier was asked for it."""
        self.landed = False
        self._connecting = 0.0

    def may_start(self, connecting: float = 0.0) -> bool:
        """Tell whether the request may still be sent: a promised distance allows little delay.

        Nothing may once the turn has landed, such as a robots.txt that is fetched for others too and outlives it.
        ``connecting``: seconds that were spent on a connection for it.
        """
        if self.landed:
            return False
        self._connecting = max(self._connecting, connecting)
        grace = self.lease.start_within
        return grace is None or asyncio.get_running_loop().time() - self.asked <= grace

    def land(
        self, latency: float | None = None, *, refused: bool = False, retry_after: float | None = None
    ) -> None:
        """Tell that the network part is over; the first call counts."""
        if not self.landed:
            self.landed = True
            if self._pump.appetite is not None:
                self._pump.appetite.end(self.lease.slot)
            self._pump.land(FetchReport(self.lease.id, latency, refused, retry_after, self._connecting))


Work = Callable[[InflightRequest], Awaitable[Page | None]]
"""Walks one request through the loop; ``None`` hands the lease back."""


def _ignore() -> None:
    pass


def _ignore_room(_: int | None) -> None:
    pass


async def _ignore_change() -> None:
    pass


class Leaser:
    """Leases, starts, renews and hands back, for one worker."""

    def __init__(
        self,
        worker: str,
        frontier: Frontier,
        concurrency: int,
        backlog: int = 0,
        appetite: QueueBudget | None = None,
    ) -> None:
        self._worker = worker
        self.appetite = appetite
        """What it may take of each queue; ``None``: whatever there is."""
        self._frontier = frontier
        self.concurrency = concurrency
        """Fetches in flight at most; may be changed at any time."""
        self._backlog = max(backlog, concurrency * _UNCOMMITTED_PER_FETCH)
        """Pages waiting for their commit before nothing more is leased (back-pressure)."""
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._held: set[int] = set()
        """Leases not yet committed or handed back."""
        self._aside: set[int] = set()
        """Leases whose pages wait for room in the frontier: they are kept in force, and in nobody's way here."""
        self._fetching = 0
        self._landings: list[FetchReport] = []
        self._returned: list[int] = []
        """Leases to be handed back."""
        self._wake = asyncio.Event()
        self._answered = asyncio.Event()
        """Set when the call for leases that is next to be answered has been."""
        self._hungry = True
        """Whether the last answer left room: then every commit is a reason to ask again."""
        self._draining = False
        self._revision = 0
        self.on_change: Callable[[], Awaitable[None]] = _ignore_change
        """Told when settings were changed, before a lease given under them is at work."""
        self.on_data_loss: Callable[[], None] = _ignore
        """Told when the frontier may have lost what it last took, before a lease of its new life is at work."""
        self.on_room: Callable[[int | None], None] = _ignore_room
        """Told how many new requests the frontier has room for; ``None``: any number."""

    @property
    def fetching(self) -> int:
        """Fetches in flight."""
        return self._fetching

    @property
    def held(self) -> int:
        """Leases not yet committed or handed back."""
        return len(self._held)

    async def run(self, work: Work, finished: Callable[[Page], None]) -> JobState:
        """Leaser until the job is finished, or stopped and everything in hand has ended here."""
        while True:
            await self.hand_back()
            room = self._room()
            asked = self._loop.time()
            landings, self._landings = self._landings, []
            if self.appetite is None:
                result = await self._frontier.lease(self._worker, room, landings)
            else:
                shares = self.appetite.shares(room)
                result = await self._frontier.lease(self._worker, room, landings, shares)
            answered, self._answered = self._answered, asyncio.Event()
            answered.set()
            if result.data_loss:
                self.on_data_loss()
            self.on_room(result.capacity)
            if result.revision != self._revision:
                self._revision = result.revision
                await self.on_change()
            for lease in result.leases:
                self._begin(InflightRequest(self, lease, asked), work, finished)
            if result.state is JobState.STOPPING:
                self.drain()
            if result.state is JobState.FINISHED or (self._draining and not self._held):
                return result.state
            self._hungry = not room or len(result.leases) < room
            if not self._hungry and self._tasks:
                await self._wait(None)
            else:
                # Nothing given although there is something ready: a pause or a limit, and no cause to ask at once.
                may_come = room > 0 and result.ask_again > 0
                await self._wait(max(result.ask_again, 0.001) if may_come else _LOOK_EVERY)

    def _room(self) -> int:
        if self._draining:
            return 0
        most = self.concurrency + self._backlog
        return max(0, min(self.concurrency - self._fetching, most - len(self._held)))

    async def _wait(self, longest: float | None) -> None:
        """Wait until something ended here, or for so many seconds."""
        timer = None if longest is None else self._loop.call_later(longest, self._wake.set)
        await self._wake.wait()
        if timer is not None:
            timer.cancel()
        self._wake.clear()

    def _begin(self, turn: InflightRequest, work: Work, finished: Callable[[Page], None]) -> None:
        lease_id = turn.lease.id
        self._held.add(lease_id)
        self._fetching += 1
        if self.appetite is not None:
            self.appetite.begin(turn.lease.slot)
        self._tasks[lease_id] = self._loop.create_task(self._see_through(turn, work, finished))

    async def _see_through(self, turn: InflightRequest, work: Work, finished: Callable[[Page], None]) -> None:
        page = None
        try:
            page = await work(turn)
        except asyncio.CancelledError:
            pass  # the lease is handed back below, untouched
        finally:
            turn.land()
            del self._tasks[turn.lease.id]
            if page is None:
                self._returned.append(turn.lease.id)
                self._wake.set()
        if page is not None:
            finished(page)

    def in_hand(self) -> int:
        """Return how many leases are not yet committed or handed back."""
        return len(self._held)

    def land(self, landing: FetchReport) -> None:
        """Take note that a fetch has ended: there is room for another."""
        self._fetching -= 1
        self._landings.append(landing)
        gathered = len(self._landings)
        if gathered * 4 >= self.concurrency:
            self._wake.set()
        elif gathered == 1:
            self._loop.call_later(_GATHER_LANDINGS, self._wake.set)

    async def report_landings(self) -> None:
        """See that the frontier hears how fetches ended before the commit that ends their leases."""
        mine = self._landings
        while mine and self._landings is mine:  # until the call that takes them along has been answered
            answered = self._answered
            self._wake.set()
            await answered.wait()

    async def hand_back(self) -> None:
        """Give up the leases that ended without a page."""
        if self._returned:
            returned, self._returned = self._returned, []
            await self._frontier.release(returned)
            self._held.difference_update(returned)

    def set_aside(self, lease_ids: Sequence[int]) -> None:
        """Take note of leases whose pages have to wait for room: there is place for other work here."""
        self._held.difference_update(lease_ids)
        self._aside.update(lease_ids)
        self._wake.set()

    def closed(self, lease_ids: Sequence[int]) -> None:
        """Take note of leases that ended with their commit."""
        self._held.difference_update(lease_ids)
        if self._aside:
            self._aside.difference_update(lease_ids)
        if self._draining or self._hungry:
            self._wake.set()

    def drain(self) -> None:
        """Lease nothing more; :meth:`run` ends when what is in hand is committed.

        Fetches that take longer than :data:`~skitter.worker.DRAIN_SECONDS` are broken off and their leases handed back.
        """
        if not self._draining:
            self._draining = True
            self._wake.set()
            self._loop.call_later(DRAIN_SECONDS, self.cancel)

    def cancel(self) -> None:
        """Break off everything in flight; the leases are handed back."""
        for task in self._tasks.values():
            task.cancel()

    async def break_off(self) -> None:
        """Cancel what is in flight and hand back whatever is still held."""
        self.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        held, self._held, self._aside = self._held | self._aside, set(), set()
        if held:
            await self._frontier.release(list(held))

    async def renew_forever(self, every: float) -> None:
        """Keep the leases in force while their work goes on."""
        while True:
            await asyncio.sleep(every)
            gone = await self._frontier.renew(self._worker, [*self._held, *self._aside])
            for lease_id in gone:
                if (task := self._tasks.get(lease_id)) is not None:
                    task.cancel()  # another worker has it; whatever came of it here would be refused
