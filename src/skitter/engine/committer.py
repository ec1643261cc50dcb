"""Committer: makes items durable, then commits their pages; many pages at a time.

While one batch is written the next one gathers, so batches grow with the load.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from skitter.engine.callbacks import describe
from skitter.engine.hooks import Hooks, Signal
from skitter.engine.page import Page
from skitter.engine.verdict import Verdict
from skitter.frontier.base import Divided, Entry, Frontier, Outcome, OutputMark, Resolution
from skitter.store.base import GroupError, ItemGroup, Store

log = logging.getLogger("skitter.engine")
_LARGEST_BATCH = 256
_LINGER = 0.001
"""Seconds for which the first pages of a batch wait for more: a commit costs nearly the same for one as for ten."""
_WORTH_A_COMMIT = 16
_PATIENCE = 0.1
"""Seconds for which the slowest part of a divided frontier holds up commits to the others."""
_WORTH_ASKING = 6
"""New links a page, on average, from which on the frontier is asked first which of them it knows."""


class Committer:
    """Takes finished pages and closes their leases."""

    def __init__(
        self,
        frontier: Frontier,
        stores: Sequence[Store],
        hooks: Hooks,
        signal: Callable[[Signal, str], None],
        learn: Callable[[Sequence[str]], None],
        report_landings: Callable[[], Awaitable[None]],
    ) -> None:
        self._frontier = frontier
        self._stores = stores
        self._hooks = hooks
        self._signal = signal
        self._learn = learn
        """Hears of URLs that are in the frontier now."""
        self._report_landings = report_landings
        self._waiting: list[Page] = []
        self._arrived = asyncio.Event()
        self._closing = False
        self._divided = frontier if isinstance(frontier, Divided) else None
        self._busy: dict[int, asyncio.Task[None]] = {}
        """Commits under way, by the part of a divided frontier that they go to."""
        self._failed: BaseException | None = None

    def put(self, page: Page) -> None:
        """Hand over a page whose verdict stands."""
        self._waiting.append(page)
        self._arrived.set()

    def __len__(self) -> int:
        return len(self._waiting)

    def close(self) -> None:
        """Let :meth:`run` end when everything is committed."""
        self._closing = True
        self._arrived.set()

    async def run(self, closed: Callable[[Sequence[Page]], None]) -> None:
        """Commit until closed; ``closed`` hears of the pages whose leases have ended."""
        try:
            while self._waiting or self._busy or not self._closing:
                if not self._can_go_on():
                    self._arrived.clear()
                    await self._arrived.wait()
                    continue
                if len(self._waiting) < _WORTH_A_COMMIT and not self._closing:
                    await asyncio.sleep(_LINGER)
                await self._commit(self._next(), closed)
            self._check()
        finally:
            for task in self._busy.values():
                task.cancel()

    def _check(self) -> None:
        if self._failed is not None:
            raise self._failed

    def _can_go_on(self) -> bool:
        self._check()
        if not self._busy or self._divided is None:
            return bool(self._waiting)
        return any(self._divided.lane_of(page.lease.id) not in self._busy for page in self._waiting)

    def _next(self) -> list[Page]:
        """Take the next batch; pages whose part of the frontier is away stay."""
        if not self._busy or self._divided is None:
            pages, self._waiting = self._waiting[:_LARGEST_BATCH], self._waiting[_LARGEST_BATCH:]
            return pages
        taken: list[Page] = []
        left: list[Page] = []
        for page in self._waiting:
            can_go = self._divided.lane_of(page.lease.id) not in self._busy and len(taken) < _LARGEST_BATCH
            (taken if can_go else left).append(page)
        self._waiting = left
        return taken

    async def _commit(self, pages: list[Page], closed: Callable[[Sequence[Page]], None]) -> None:
        marks = await self._store(pages)
        for page, page_marks in zip(pages, marks, strict=True):
            if page.items and self._hooks["after_save"] and not await self._after_save(page):
                page_marks.clear()
        entries = await self._new_entries(pages)
        outcomes = [
            Outcome(
                page.lease.id, page.verdict.resolution, new, page.counters, page_marks,
                page.verdict.error, page.verdict.after, page.verdict.free,
            )
            for page, new, page_marks in zip(pages, entries, marks, strict=True)
        ]  # fmt: skip
        await self._report_landings()
        if self._divided is None:
            await self._close(pages, outcomes, closed)
        else:
            await self._close_apart(self._divided, pages, outcomes, closed)

    async def _close(
        self, pages: list[Page], outcomes: list[Outcome], closed: Callable[[Sequence[Page]], None]
    ) -> None:
        accepted = await self._frontier.commit(outcomes)
        for page, taken in zip(pages, accepted, strict=True):
            if taken:
                for batch in page.batches:
                    self._learn(batch.urls)
            else:
                log.warning(
                    "late: %s was taken over by another worker; nothing of it is kept", page.lease.url
                )
        closed(pages)

    async def _close_apart(
        self,
        frontier: Divided,
        pages: list[Page],
        outcomes: list[Outcome],
        closed: Callable[[Sequence[Page]], None],
    ) -> None:
        """Commit to each part of the frontier by itself, and wait for none that is away."""
        shares: dict[int, tuple[list[Page], list[Outcome]]] = {}
        for page, outcome in zip(pages, outcomes, strict=True):
            share = shares.setdefault(frontier.lane_of(page.lease.id), ([], []))
            share[0].append(page)
            share[1].append(outcome)
        for lane, share in shares.items():
            task = asyncio.get_running_loop().create_task(self._close(*share, closed))
            self._busy[lane] = task
            task.add_done_callback(partial(self._lane_is_free, lane))
        await asyncio.wait([self._busy[lane] for lane in shares], timeout=_PATIENCE)

    def _lane_is_free(self, lane: int, task: asyncio.Task[None]) -> None:
        del self._busy[lane]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed = self._failed or error
        self._arrived.set()

    async def _store(self, pages: list[Page]) -> list[list[OutputMark]]:
        """Write the items of all pages; a page whose items cannot be written fails, the others stay."""
        marks: list[list[OutputMark]] = [[] for _ in pages]
        giving = [index for index, page in enumerate(pages) if page.verdict.resolution is Resolution.DONE]
        groups = [ItemGroup(pages[index].lease.fingerprint, pages[index].items) for index in giving]
        for store in self._stores:
            for index, answer in zip(giving, await store.write(groups), strict=True):
                if isinstance(answer, OutputMark):
                    marks[index].append(answer)
                elif isinstance(answer, GroupError) and pages[index].items:
                    marks[index] = []
                    self._fail(pages[index], f"store: {answer.error}")
        return [
            kept if page.verdict.resolution is Resolution.DONE else []
            for kept, page in zip(marks, pages, strict=True)
        ]

    def _fail(self, page: Page, error: str) -> None:
        log.error("%s: %s", page.lease.url, error)
        page.counters = {}
        page.finish(Verdict(Resolution.FAILED, error))

    async def _after_save(self, page: Page) -> bool:
        """Ask the hooks; returns whether the page is to be committed."""
        try:
            signal = await self._hooks.ask("after_save", page.response, page.items)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - user code: any error is an outcome of this page
            log.error("%s: hook after_save: %s", page.lease.url, describe(error))  # noqa: TRY400 - one line
            page.count("errors/hook")
            return True
        where = f"hook after_save at {page.lease.url}"
        if signal in {Signal.STOP, Signal.FAIL}:
            self._signal(signal, where)
        if signal is Signal.FAIL:
            page.counters = {}
            page.finish(Verdict(Resolution.RETRY, f"{where} failed the crawl", free=True))
        return signal is not Signal.FAIL

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

    async def _ask_unknown(self, pages: list[Page], fingerprints: list[bytes]) -> list[bool]:
        if self._divided is None:
            return await self._frontier.unknown(fingerprints)
        slots = [slot for page in pages for batch in page.batches for slot in batch.slots]
        return await self._divided.unknown_of(fingerprints, slots)
