"""Seeds from users and programs: SeedParser reads and checks them, RequestAdder adds requests of the running program."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from skitter._utils.concurrency import wait_until_set
from skitter.errors import SkitterError, UsageError, counted
from skitter.frontier.records import AddResult, Entry, JobInfo
from skitter.request import Request
from skitter.run.builder import JobBuilder
from skitter.settings import api_settings

if TYPE_CHECKING:  # most runs add no requests
    from skitter.fetch.address_guard import AddressGuard
    from skitter.frontier.contract import Frontier
    from skitter.run.job import JobFolder
    from skitter.run.job_access import OpenFrontier
    from skitter.worker.links import LinkCollector

BATCH_SIZE = 1_000
"""Number of seeds that are sent to the frontier in one call."""
_MAX_QUIET_DELAY = 0.5
"""Seconds for which workers that have nothing to do wait for the calls in progress."""
_MAX_REPORTED = 3
"""Number of invalid requests that are named in the error. The others are counted."""


class SeedParser:
    """Turns the text of seeds into entries for the frontier of a job.

    ``priority``, ``callback`` and ``queue`` are the defaults for seeds that do not set them.
    ``trusted``: whether a seed may name a proxy, whose address the address guard does not check, name a fetcher by the path
    of its code, and exceed the ``max_body`` limit of API users.
    """

    def __init__(
        self,
        folder: JobFolder,
        opened: OpenFrontier,
        *,
        priority: int = 0,
        callback: str | None = None,
        queue: str = "",
        trusted: bool = True,
    ) -> None:
        from skitter.fetch.address_guard import AddressGuard  # noqa: PLC0415 - most runs add no requests
        from skitter.scope import Scope  # noqa: PLC0415 - most runs add no requests
        from skitter.worker.links import LinkCollector  # noqa: PLC0415 - most runs add no requests

        self._priority = priority
        self._callback = callback
        self._queue = queue
        self._is_trusted = trusted
        self._guard = AddressGuard(notes=opened.frontier.notes)
        self._spider: object | None = None
        """``None`` if this machine does not know the spider of the job."""
        spec = folder.read()
        if spec.spider:
            spec.reads_references = False  # nothing is fetched
            builder = JobBuilder(spec)
            self._spider = builder.spider
            self._links = builder.link_collector(opened.info)
            self._guard = builder.guard(opened.frontier.notes)
        else:
            assert opened.frontier.politeness is not None
            self._links = LinkCollector(Scope(), opened.frontier.politeness, opened.info.fingerprint_seed)

    async def open_networks(self, entries: Iterable[Entry]) -> None:
        """Open the networks of seeds for the workers of the job. Call it before adding the entries."""
        await self._guard.open_for_seeds(entry.url for entry in entries)

    def entry(self, text: bytes | str) -> Entry | str:
        """Return the entry of a seed, or the reason to refuse it.

        Raises :class:`~skitter.errors.RequestError` for a seed that cannot be read.
        """
        from skitter.worker.seeds import checked_entry, read_seed  # noqa: PLC0415 - most runs add no requests

        request = read_seed(text, priority=self._priority)
        if not self._is_trusted and (refusal := _refusal(request)) is not None:
            return refusal
        changes = {}
        if request.callback is None and self._callback is not None:
            changes["callback"] = self._callback
        if self._queue and not request.queue:
            changes["queue"] = self._queue
        if changes:
            request = request.replace(**changes)
        return checked_entry(request, self._spider, self._links)


def _refusal(request: Request) -> str | None:
    """Return the reason to refuse a seed that is not trusted."""
    if request.proxy is not None:
        return "a seed cannot name a proxy here"
    if ":" in request.fetcher:
        return "a seed cannot name a fetcher by its path here"
    largest = api_settings()["max_body"]
    if largest is not None and (request.max_body or 0) > largest:
        return f"the max_body of a seed can be at most {largest} here"
    return None


class RequestAdder:
    """Adds requests of the program that runs a job to this run.

    ``docs/design/lifecycle.md`` describes how a run can end without having accepted a request that it does not fetch.
    """

    def __init__(self, builder: JobBuilder) -> None:
        self._builder = builder
        self._frontier: Frontier | None = None
        self._info: JobInfo | None = None
        self._links: LinkCollector | None = None
        self._guard: AddressGuard | None = None
        self._has_begun = False
        self._is_closed = True
        self._is_open = asyncio.Event()
        """Set when the frontier is open, or when the run has ended."""
        self._calls = 0
        """Number of calls in this run."""
        self._in_progress = 0
        self._is_quiet = asyncio.Event()
        """Set while no call is in progress."""

    def begin(self) -> None:
        """Let calls wait for the frontier of a run that begins. Raises :class:`~skitter.errors.UsageError` during another run."""
        if not self._is_closed:
            raise UsageError(
                "this crawl is running already",
                remedy="wait until the run has ended, or make another Crawl with its own job",
            )
        self._has_begun, self._is_closed, self._calls = True, False, 0
        self._is_open, self._is_quiet = asyncio.Event(), asyncio.Event()  # an event belongs to one event loop
        if not self._in_progress:
            self._is_quiet.set()

    def open(self, frontier: Frontier, info: JobInfo) -> None:
        """Let calls add to the frontier from now on."""
        self._frontier, self._info = frontier, info
        self._links = self._guard = None
        self._is_open.set()

    def close(self) -> None:
        """Refuse calls from now on, including calls that already wait."""
        self._frontier = None
        self._is_closed = True
        self._is_open.set()

    async def close_unless(self, has_more: Callable[[], Awaitable[bool]]) -> bool:
        """Close when no call is in progress and there is nothing more to do. Return whether there is more to do.

        ``has_more`` is also called while calls are in progress, because a program may make one after the other.
        """
        while True:
            await wait_until_set(self._is_quiet, _MAX_QUIET_DELAY)
            calls, was_quiet = self._calls, not self._in_progress
            if await has_more():
                return True
            if was_quiet and calls == self._calls:
                self.close()
                return False

    @property
    def has_added(self) -> bool:
        """Whether there was a call in this run."""
        return self._calls > 0

    async def add(self, requests: Iterable[Request | str]) -> AddResult:
        """See :meth:`Crawl.add <skitter.run.crawl.Crawl.add>`."""
        wanted = requests_in(requests)
        if self._is_closed:
            await asyncio.sleep(0)  # let a task start that was just created for the run
        if not self._has_begun:
            raise UsageError(
                "requests cannot be added before the run",
                remedy="start it first, as in asyncio.create_task(crawl.run()), or pass RunOverrides(requests=[...])",
                field="requests",
            )
        self._calls += 1
        self._in_progress += 1
        self._is_quiet.clear()
        try:
            await self._is_open.wait()
            return await self._add(wanted)
        finally:
            self._in_progress -= 1
            if not self._in_progress:
                self._is_quiet.set()

    async def _add(self, wanted: list[Request | str]) -> AddResult:
        frontier = self._frontier
        if frontier is None:
            raise UsageError(
                "requests cannot be added after the run: nothing was added",
                remedy="run the job again with RunOverrides(requests=[...]); "
                "the setting wait_for_seeds keeps a run open until it is stopped",
                field="requests",
            )
        entries = await self._entries(wanted)
        if self._guard is None:
            self._guard = self._builder.guard(frontier.notes)
        total = AddResult(0, 0)
        for start in range(0, len(entries), BATCH_SIZE):
            batch = entries[start : start + BATCH_SIZE]
            await self._guard.open_for_seeds(entry.url for entry in batch)
            total += await frontier.add(batch)
        return total

    async def _entries(self, wanted: list[Request | str]) -> list[Entry]:
        """Return the entries of all requests. Raises :class:`~skitter.errors.UsageError` if one of them is invalid."""
        from skitter.worker.seeds import checked_entry, read_seed  # noqa: PLC0415 - most runs add no requests

        if self._links is None:
            assert self._info is not None, "the frontier is open"
            self._links = self._builder.link_collector(self._info)
        entries, bad = list[Entry](), list[str]()
        for number, seed in enumerate(wanted, 1):
            if not number % BATCH_SIZE:
                await asyncio.sleep(0)  # the workers share the event loop
            try:
                request = read_seed(seed) if isinstance(seed, str) else seed
                entry = checked_entry(request, self._builder.spider, self._links)
            except SkitterError as error:
                entry = str(error)
            if isinstance(entry, str):
                bad.append(f"request {number}: {entry}")
            else:
                entries.append(entry)
        if bad:
            raise UsageError(
                f"nothing was added; invalid: {len(bad)} of {counted(len(wanted), 'request')}: {'; '.join(bad[:_MAX_REPORTED])}",
                remedy="correct them, or leave them out",
                field="requests",
            )
        return entries


def requests_in(requests: Iterable[Request | str]) -> list[Request | str]:
    """Return the requests of a call. Raises :class:`~skitter.errors.UsageError` for anything else."""
    is_list = isinstance(requests, Iterable) and not isinstance(requests, (str, bytes, Mapping))
    wanted = list(requests) if is_list else []
    wrong: list[object] = [seed for seed in wanted if not isinstance(seed, (str, Request))]
    if wrong or not is_list:
        raise UsageError(
            f"requests cannot be {wrong[0] if wrong else requests!r:.100}",
            remedy="pass a list of requests and URLs, as in crawl.add([url])",
            field="requests",
        )
    return wanted
