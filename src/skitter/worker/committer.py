"""Committer: makes items durable, then commits their pages; many pages at a time.

While one batch is written the next one gathers, so batches grow with the load.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from skitter.frontier.contract import Frontier, Partitions
from skitter.frontier.records import Entry, Outcome, Resolution
from skitter.item import OutputRange
from skitter.store.contract import Buffering, Store, buffering_of
from skitter.worker.backpressure import Overflow, QueueCapacity, SpilledPage
from skitter.worker.callbacks import describe
from skitter.worker.hooks import HookAction, Hooks
from skitter.worker.page import Page
from skitter.worker.retry import Decision
from skitter.worker.routing import ItemWriter, RoutedStores

log = logging.getLogger("skitter.crawl")
_LARGEST_BATCH = 256
_LINGER = 0.001
"""Seconds for which the first pages of a batch wait for more: a commit costs nearly the same for one as for ten."""
_WORTH_A_COMMIT = 16
_PATIENCE = 0.1
"""Seconds for which the slowest part of a divided frontier holds up commits to the others."""
_WORTH_ASKING = 6
"""New links a page, on average, from which on the frontier is asked first which of them it knows."""


def _ignore(_: Sequence[int]) -> None:
    pass


def _tell_late(url: str) -> None:
    log.warning("late: %s was taken over by another worker; nothing of it is kept", url)


class Committer:
    """Takes finished pages and closes their leases."""

    def __init__(
        self,
        frontier: Frontier,
        stores: Sequence[Store],
        hooks: Hooks,
        signal: Callable[[HookAction, str], None],
        learn: Callable[[Sequence[str]], None],
        report_landings: Callable[[], Awaitable[None]],
        room: QueueCapacity,
        in_hand: Callable[[], int] = int,
        group_key: str | None = None,
        sorting: RoutedStores | None = None,
    ) -> None:
        self._frontier = frontier
        self._writing = ItemWriter(stores, hooks, sorting)
        self._hooks, self._after_saving = hooks, hooks["after_save"]
        self._signal = signal
        self._learn = learn
        """Hears of URLs that are in the frontier now."""
        self._report_landings = report_landings
        self._room = room
        self._overflow = Overflow()
        """Pages for whose links there was no room. Their leases go on; see :attr:`set_aside`."""
        self.set_aside: Callable[[Sequence[int]], None] = _ignore
        """Told of leases whose pages have to wait for room."""
        self._in_hand = in_hand
        """How many leases the worker holds, those waiting here included."""
        self._buffering = buffering_of(stores)
        self._since = 0.0
        """Loop time at which the first of those waiting came."""
        self._items = 0
        """Of those waiting."""
        self._task_key = group_key
        """Key of ``meta`` whose value says for which task a page is counted."""
        self.committed = {"pages": 0, "items": 0, "bytes": 0}
        """Sums of what this worker has committed."""
        self._waiting: list[Page] = []
        self._arrived = asyncio.Event()
        self._closing = False
        self._partitions = frontier.partitions
        self._busy: dict[int, asyncio.Task[None]] = {}
        """Commits under way, by the part of a divided frontier that they go to."""
        self._failed: BaseException | None = None
        self._closed: Callable[[Sequence[int]], None] = _ignore

    def put(self, page: Page) -> None:
        """Hand over a page whose verdict stands."""
        if not self._after_saving:
            page.response = None  # many pages may wait, and a body is larger than its items
        if self._buffering is not None and not self._waiting:
            self._since = asyncio.get_running_loop().time()
        self._waiting.append(page)
        self._items += len(page.items)
        self._arrived.set()

    def __len__(self) -> int:
        return len(self._waiting)

    def look_for_room(self) -> None:
        """Try again what was set aside, after the frontier has said how much room there is."""
        if self._overflow:
            self._arrived.set()

    def close(self) -> None:
        """Let :meth:`run` end when everything is committed."""
        self._closing = True
        self._arrived.set()

    async def run(self, closed: Callable[[Sequence[int]], None]) -> None:
        """Commit until closed; ``closed`` hears of the leases that have ended."""
        self._closed = closed
        try:
            await self._run()
            self._check()
        finally:
            for task in self._busy.values():
                task.cancel()
            self._overflow.close()

    async def _run(self) -> None:
        while self._waiting or self._busy or not self._closing:
            if self._overflow:
                self._closed(await self._commit_set_aside())
            if not self._can_go_on():
                self._arrived.clear()
                await self._arrived.wait()
                continue
            await self._linger()
            pages = self._next()
            marks = await self._writing.write(pages)
            for start in range(0, len(pages), _LARGEST_BATCH):
                end = start + _LARGEST_BATCH
                await self._commit(pages[start:end], marks[start:end])

    def _check(self) -> None:
        if self._failed is not None:
            raise self._failed

    def _can_go_on(self) -> bool:
        self._check()
        if not self._busy or self._partitions is None:
            return bool(self._waiting)
        return any(self._partitions.of_lease(page.lease.id) not in self._busy for page in self._waiting)

    def _next(self) -> list[Page]:
        """Take what waits; pages whose part of the frontier is away stay."""
        waiting, self._waiting = self._waiting, []
        if self._busy and self._partitions is not None:
            of_lease, busy = self._partitions.of_lease, self._busy
            self._waiting = [page for page in waiting if of_lease(page.lease.id) in busy]
            waiting = [page for page in waiting if of_lease(page.lease.id) not in busy]
        self._items = sum(len(page.items) for page in self._waiting)
        return waiting

    async def _linger(self) -> None:
        """Wait for more pages if that makes a commit, or a write to a store that buffers, more worth its cost."""
        if self._buffering is not None:
            await self._gather(self._buffering)
        elif len(self._waiting) < _WORTH_A_COMMIT and not self._closing:
            await asyncio.sleep(_LINGER)

    async def _gather(self, buffering: Buffering) -> None:
        """Wait until the buffer is full, or the first page has waited long enough, or no other can come."""
        loop = asyncio.get_running_loop()
        while not self._closing and self._items < buffering.items and len(self._waiting) < self._in_hand():
            left = self._since + buffering.seconds - loop.time()
            if left <= 0:
                return
            self._arrived.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._arrived.wait()

    async def _commit_set_aside(self) -> list[int]:
        """Commit as much of what was set aside as there is room for; returns the leases that ended."""
        pages: list[SpilledPage] = []
        while self._overflow and len(pages) < _LARGEST_BATCH:
            first = await self._overflow.first()
            if not self._room.take(len(first.outcome.entries)):
                break
            self._overflow.drop_first()
            pages.append(first)
        for page, taken in zip(
            pages, await self._frontier.commit([page.outcome for page in pages]), strict=True
        ):
            if taken:
                self._learn([entry.url for entry in page.outcome.entries])
            else:
                _tell_late(page.url)
        return [page.outcome.lease_id for page in pages]

    async def _commit(self, pages: list[Page], marks: list[list[OutputRange]]) -> None:
        """Commit pages, but for those that have to wait for room."""
        for page, page_marks in zip(pages, marks, strict=True):
            if self._after_saving and page.items and not await self._after_save(page):
                page_marks.clear()
        entries = await self._new_entries(pages)
        outcomes = [
            Outcome(
                page.lease.id, page.verdict.resolution, new, page.counters, page_marks,
                page.verdict.error, page.verdict.after, page.verdict.free, None, self._task_of(page),
            )
            for page, new, page_marks in zip(pages, entries, marks, strict=True)
        ]  # fmt: skip
        await self._report_landings()
        waiting = [
            SpilledPage(page.lease.url, outcome)
            for page, outcome in zip(pages, outcomes, strict=True)
            if not self._room.take(len(outcome.entries))
        ]
        if waiting:
            await self._overflow.put(waiting)
            later = {page.outcome.lease_id for page in waiting}
            self.set_aside(list(later))
            outcomes = [outcome for outcome in outcomes if outcome.lease_id not in later]
            pages = [page for page in pages if page.lease.id not in later]
        if self._partitions is None:
            await self._close(pages, outcomes)
        else:
            await self._close_apart(self._partitions, pages, outcomes)

    async def _close_apart(self, partitions: Partitions, pages: list[Page], outcomes: list[Outcome]) -> None:
        """Commit to each part of the frontier by itself, and wait for none that is away."""
        shares: dict[int, tuple[list[Page], list[Outcome]]] = {}
        for page, outcome in zip(pages, outcomes, strict=True):
            share = shares.setdefault(partitions.of_lease(page.lease.id), ([], []))
            share[0].append(page)
            share[1].append(outcome)
        for lane, share in shares.items():
            earlier = self._busy.get(lane)
            task = asyncio.get_running_loop().create_task(self._close(*share, after=earlier))
            self._busy[lane] = task
            task.add_done_callback(partial(self._lane_is_free, lane))
        if shares:
            await asyncio.wait([self._busy[lane] for lane in shares], timeout=_PATIENCE)

    def _lane_is_free(self, lane: int, task: asyncio.Task[None]) -> None:
        if self._busy[lane] is task:
            del self._busy[lane]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed = self._failed or error
        self._arrived.set()

    async def _close(
        self, pages: list[Page], outcomes: list[Outcome], *, after: asyncio.Task[None] | None = None
    ) -> None:
        if after is not None:
            await asyncio.wait([after])
        accepted = await self._frontier.commit(outcomes)
        for page, taken in zip(pages, accepted, strict=True):
            if taken:
                for name in self.committed:
                    self.committed[name] += page.counters.get(name, 0)
                for batch in page.batches:
                    self._learn(batch.urls)
            else:
                _tell_late(page.lease.url)
        self._closed([page.lease.id for page in pages])

    def _task_of(self, page: Page) -> str:
        task = page.request.meta.get(self._task_key) if self._task_key is not None else None
        return "" if task is None else str(task)

    async def _after_save(self, page: Page) -> bool:
        """Ask the hooks; returns whether the page is to be committed."""
        try:
            signal = await self._hooks.ask("after_save", page.response, page.items)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - user code: any error is an outcome of this page
            log.error("%s: hook after_save: %s", page.lease.url, describe(error))  # noqa: TRY400 - one line
            page.count("errors/hook")
            return True
        where = f"hook after_save at {page.lease.url}"
        if signal in {HookAction.STOP, HookAction.FAIL}:
            self._signal(signal, where)
        if signal is HookAction.FAIL:
            page.counters = {}
            page.finish(Decision(Resolution.RETRY, f"{where} failed the crawl", free=True))
        return signal is not HookAction.FAIL

    async def _ask_unknown(self, pages: list[Page], fingerprints: list[bytes]) -> list[bool]:
        if self._partitions is None:
            return await self._frontier.unknown(fingerprints)
        slots = [slot for page in pages for batch in page.batches for slot in batch.slots]
        return await self._partitions.unknown(fingerprints, slots)

    async def _new_entries(self, pages: list[Page]) -> list[list[Entry]]:
        """Build entries for the links that are new; the known ones, most of them, cost only their test."""
        fingerprints = [key for page in pages for batch in page.batches for key in batch.fingerprints]
        if len(fingerprints) > _WORTH_ASKING * len(pages):
            unknown = iter(await self._ask_unknown(pages, fingerprints))
        else:
            unknown = iter([True] * len(fingerprints))  # to send so few costs less than to ask
        entries = []
        for page in pages:
            new = page.entries
            for batch in page.batches:
                fresh = [index for index in range(len(batch.urls)) if next(unknown)]
                if len(fresh) < len(batch.urls):
                    page.count("refused/duplicate", len(batch.urls) - len(fresh))
                new = new + [batch.entry(index) for index in fresh]
            entries.append(new)
        return entries
