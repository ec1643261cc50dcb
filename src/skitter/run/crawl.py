"""Crawl: one run of a job, from opening the frontier to merging the outputs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from skitter._utils.concurrency import cancel_and_wait
from skitter._utils.notes import LAST_REPLAY, NOTE_TTL, RETRY_DUE, SPIDER, STOP_REASON, Notes
from skitter.errors import SkitterError, UsageError, counted, with_article
from skitter.fetch.robots_rules import product_token
from skitter.frontier.contract import Frontier, Liveness
from skitter.frontier.records import AddResult, FrontierStatus, JobInfo, JobState
from skitter.frontier.registry import make_frontier
from skitter.frontier.rpc.server import FrontierServer
from skitter.frontier.workers import (
    PARTICIPANTS,
    WorkerStatus,
    decode_participants,
    has_died,
    queues_without_workers,
    worker_name,
)
from skitter.monitors import Verdict
from skitter.run.builder import JobBuilder, RunOverrides
from skitter.run.job import JobSpec
from skitter.run.outputs import JobOutputs
from skitter.run.page_changes import PassReport, Ranges, read_changes_of_pass, with_kept
from skitter.run.passes import PassRecord, PassTracker
from skitter.run.process import LogOptions
from skitter.run.seeding import RequestAdder
from skitter.run.spider_warnings import warnings_about
from skitter.run.written import WrittenItems, bytes_elsewhere, describe_unwritten
from skitter.scope import DEPTH, HOST, LENGTH, PATTERN, SCHEME, UNPARSABLE
from skitter.secrets import shown_url
from skitter.settings import Settings
from skitter.spider import Spider
from skitter.store.committed import split_by_presence
from skitter.store.contract import parts_folder
from skitter.store.files import is_local
from skitter.worker import DRAIN_SECONDS
from skitter.worker.timings import Throughput

if TYPE_CHECKING:
    from skitter.request import Request
    from skitter.run.supervisor import ForkedProcess, Supervisor

log = logging.getLogger("skitter.crawl")

_SEED_REFUSALS = ("robots", SCHEME, LENGTH, DEPTH, HOST, PATTERN, UNPARSABLE)
"""Reasons for refusing URLs that explain an empty crawl. Hooks refuse on purpose, so they are left out."""
_WATCH_INTERVAL = 0.5
"""Seconds between two status checks, for progress and streaming outputs."""


class RunResult(msgspec.Struct, kw_only=True):
    """How one run of a job ended."""

    job: str
    state: JobState
    reason: str
    """Why the run stopped: a limit, an interruption, a failure, or what is incomplete; empty if the job is finished."""
    seconds: float
    """Duration of this run in seconds."""
    before: FrontierStatus
    """Status of the job at the start of this run."""
    status: FrontierStatus
    """Status of the job at the end of this run."""
    outputs: list[str]
    elsewhere: int = 0
    """Bytes of committed items in part files on other machines, which the output files of this machine lack."""
    already_finished: bool = False
    """Whether the job was finished before the run started."""
    ended_pass: PassRecord | None = None
    """The pass that ended with this run, on any machine, with the verdicts of the monitors. If no pass has ended: an
    earlier pass that was not judged before, because all of its processes were killed."""
    changes: dict[str, int] = {}
    """Number of pages by :class:`~skitter.frontier.records.PageChange` in the present pass, and ``unlinked``, for a job
    with the setting ``changes``."""

    def __repr__(self) -> str:
        """Return one line: the status alone has dozens of counters."""
        state = f"{self.state}, {self.reason}" if self.reason else str(self.state)
        pages, items = self.counters.get("pages", 0), self.counters.get("items", 0)
        return (
            f"<RunResult of job {self.job!r}: {state}; {counted(pages, 'page')}, {counted(items, 'item')}, {self.status.failed:,} failed,"
            f" {self.seconds:.1f} s>"
        )

    @property
    def fetched_nothing(self) -> bool:
        """Whether the job is finished without a single page because its seeds failed or were refused."""
        counters = self.status.counters
        is_refused = any(counters.get(f"refused/{reason}") for reason in _SEED_REFUSALS)
        no_page = self.state is JobState.FINISHED and not counters.get("pages")
        return no_page and bool(self.status.failed or is_refused)

    @property
    def empty_because(self) -> str:
        """A short description of the problem if :attr:`fetched_nothing` is true."""
        fetched = any(name.startswith(("status/2", "failed/store")) for name in self.counters)
        return f"no page could be {'processed' if fetched else 'fetched'}"

    @property
    def counters(self) -> dict[str, int]:
        """Counters of the job, over all its runs."""
        return self.status.counters


class Progress(msgspec.Struct, frozen=True):
    """Status of a running job at one moment."""

    status: FrontierStatus
    seconds: float
    """Seconds since the start of this run."""
    workers: int
    pages_per_second: float = 0.0
    """Pages per second during the last ten seconds."""


Watcher = Callable[[Progress], None]


class Crawl:
    """One run of a job on this machine, with its frontier and its workers.

    ``watcher``
        Called twice a second with the progress of the job, and at the end of the run.
    ``fresh``
        Delete the stored state of the job and start again. Its outputs are replaced, even if another job has written them.
        Nothing is deleted before all other parts of the run have been checked.
    ``recrawl``
        If the job is finished, start it again: its seeds are loaded again, and pages whose visit has expired
        (``visited_ttl``; without it, all pages) are fetched again. Each visit produces its items again, unless the setting
        ``changes`` says which ones.
    ``resume``
        End a pause. Without it, a paused job stays paused, and the run ends at once.
    ``log``
        How worker processes log.
    ``spider_class``
        The spider, if this process has it. Worker processes always load it by its name.
    ``overrides``
        The additions of this process. Hooks and objects require ``workers=1``.
    ``forked``
        Worker processes that were forked for the crawl.
    """

    def __init__(
        self,
        spec: JobSpec,
        *,
        watcher: Watcher | None = None,
        fresh: bool = False,
        recrawl: bool = False,
        resume: bool = False,
        log: LogOptions | None = None,
        spider_class: type[Spider] | None = None,
        overrides: RunOverrides | None = None,
        forked: list[ForkedProcess] | None = None,
    ) -> None:
        if not isinstance(spec, JobSpec):  # such as the settings that CrawlerProcess of Scrapy takes
            raise UsageError(
                f"Crawl takes a JobSpec, not {with_article(type(spec).__name__)}",
                remedy="write Crawl(JobSpec(job=NAME, spider=MySpider, settings={...}))",
                field="spec",
            )
        self._builder = JobBuilder(spec, spider_class, overrides)
        self._forked = forked
        self.spec = spec = self._builder.spec
        self._builder.check_plugins()
        self._watcher = watcher
        self._fresh = fresh
        self._recrawl = recrawl
        self._resume = resume
        self._log = LogOptions() if log is None else log
        self._outputs = JobOutputs(spec, self._builder)
        self._adder = RequestAdder(self._builder)
        self._frontier: Frontier | None = None
        """The frontier of the run, while its workers run."""
        self._frontier_of_run: Frontier | None = None
        """The same frontier, from its creation on. Calls may also wait for its server before and after the work."""
        self._supervisor: Supervisor | None = None
        self._stop_reason = ""
        self._retries_failed = False
        """Whether failed requests are still to be retried at the end."""
        self._last_replay: bytes | None = None
        """The note about the last replay when this run started."""
        self._has_retried = False
        """Whether this run has put failed requests back into the queue at its end."""
        self._passes: PassTracker | None = None
        self._recovered: PassRecord | None = None
        """The pass that had ended before this run, but had not been judged yet."""
        self._reporting: asyncio.Future[Any] | None = None
        self._pass: PassReport | None = None
        """What the pass found. Set at the end of the run."""
        self.has_begun = False
        """Whether the workers have started. Later errors are not caused by the input."""
        self._queues_without_workers = QueuesWithoutWorkers()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._throughput = Throughput()

    @property
    def folder(self) -> Path:
        """Folder of the job."""
        return self._builder.folder.path

    @property
    def spider(self) -> Spider:
        """The spider of this process. Other workers have their own."""
        return self._builder.spider

    @property
    def settings(self) -> Settings:
        """The settings of the job: the settings of the spider, overridden by those of the specification."""
        return self._builder.settings

    # --- running ---------------------------------------------------------------------------------------

    async def run(self) -> RunResult:
        """Run the job until it is finished, stopped or failed. The outputs then hold all committed items.

        Raises :class:`~skitter.errors.SkitterError` if the run cannot start, or if it fails. Committed items are merged
        into the outputs in any case, and the next run resumes the job.
        """
        self._adder.begin()
        self.has_begun = False
        try:
            lock = self._builder.folder.lock()
            await asyncio.to_thread(lock.acquire)
            try:
                await asyncio.to_thread(self._builder.folder.adopt, self.spec)
                return await self._run()
            finally:
                await asyncio.to_thread(lock.release)
        finally:
            self._adder.close()

    async def _run(self) -> RunResult:
        began = time.monotonic()
        folder = self._builder.folder
        if self._fresh:
            self.spec.fingerprint_seed = None
        # In a thread, because this may search the installed packages.
        context = self._builder.frontier_context()
        frontier = await asyncio.to_thread(make_frontier, self.spec.frontier, context)
        self._frontier_of_run = frontier
        if self._builder.settings.seed_keys and frontier.seed_keys is None:
            raise UsageError(
                f"frontier {shown_url(self.spec.frontier)} does not support seed keys",
                remedy="use a Redis frontier, or add seeds with `skitter add`",
                field="seed_keys",
            )
        self._builder.is_fleet = frontier.shared
        self._written = WrittenItems(frontier.notes)
        await self._outputs.check(fresh=self._fresh)
        await asyncio.to_thread(self._builder.open_files_store)
        self._builder.check_parse()
        _warn_about_user_agent(self._builder.settings)
        await asyncio.to_thread(folder.check_frontier_owner, self.spec)
        if self._fresh:
            await asyncio.to_thread(folder.empty)
            await frontier.erase()
            await self._outputs.clear()
        else:
            await asyncio.to_thread(folder.check, self.spec)
        for problem in await asyncio.to_thread(self._warnings):
            log.warning("spider %s: %s", self._builder.spider.name, problem)
        socket = await asyncio.to_thread(lambda: folder.socket)  # reads the disk
        info = await frontier.open()
        if frontier.shared:
            self.spec.fingerprint_seed = info.fingerprint_seed
            await self._warn_about_other_spider(frontier.notes)
        server = None if frontier.shared else FrontierServer(frontier, info, socket)
        try:
            found = (await frontier.status()).counters.get("items", 0)
            await asyncio.to_thread(self._outputs.warn_about_missing_items, found)
            # Written last, so that a run that cannot start leaves no job.
            await asyncio.to_thread(folder.write, self.spec)
            if server is not None:
                await server.start()
            if frontier.shared and self._outputs:
                await self._written.join()
            passes = self._passes = PassTracker(frontier.notes, self._builder.rules, self._builder.passes)
            before = await self._begin(frontier, info, passes)
            await self._run_workers(frontier, info, server, before, began)
            result = await self._result(frontier, before, began, passes)
        except BaseException:
            self._adder.close()  # the frontier is about to close
            await self._end(frontier, server)
            raise
        await self._end(frontier, server, result)
        return result

    async def _warn_about_other_spider(self, notes: Notes) -> None:
        """Log a warning if another spider has run the job, perhaps on another machine: each would get requests of the other."""
        name = self._builder.spider.name
        before = await notes.get(SPIDER)
        if before == name.encode():
            return
        if before is not None:
            log.warning(
                "job %s was run by the spider %s, and this is the spider %s; if they have nothing to do with each other, start"
                " this one with another --job",
                self.spec.job, before.decode(), name,
            )  # fmt: skip
        await notes.put(SPIDER, name.encode(), NOTE_TTL)

    async def _end(
        self, frontier: Frontier, server: FrontierServer | None, result: RunResult | None = None
    ) -> None:
        """Write the outputs, and change the result of the run if they lack items of other machines."""
        if server is not None:
            await server.close()
        try:
            try:
                await self._merge(frontier)
                await self._written.leave()
            finally:
                await self._written.cancel()
            if result is not None and result.state is JobState.FINISHED and self._outputs:
                await self._wait_for_other_machines(frontier, result)
            if result is not None and frontier.shared and self._outputs:
                parts = parts_folder(str(self._builder.folder.path))
                result.elsewhere = await bytes_elsewhere(await frontier.reports.outputs(), parts)
        finally:
            await frontier.close()

    def _warnings(self) -> list[str]:
        """Return the probable mistakes in the spider. Reads its file."""
        try:
            return warnings_about(self._builder.spider, self.spec.arguments)
        except Exception:  # attributes of a spider may be of any kind; its run does not need the warnings
            log.debug("cannot look for mistakes in the spider", exc_info=True)
            return []

    async def _wait_for_other_machines(self, frontier: Frontier, result: RunResult) -> None:
        while True:
            # Read first, because a machine leaves after it has written.
            is_expected = await self._written.is_expected()
            missing = await self._written.unwritten(await frontier.reports.outputs())
            if not missing:
                return
            if self._stop_reason or not is_expected:
                result.state, result.reason = JobState.INCOMPLETE, describe_unwritten(missing)
                return
            await asyncio.sleep(_WATCH_INTERVAL)

    async def _begin(self, frontier: Frontier, info: JobInfo, passes: PassTracker) -> FrontierStatus:
        if frontier.liveness is not None:
            await _reclaim_leases(frontier, frontier.liveness)
        status = await frontier.status()
        # All processes may have been killed after the end of the last pass, before it was judged.
        self._recovered = await _close_pass(frontier, passes, status)
        await self._report(passes)
        # A stop applies to one run. A shared frontier does not know when that run has ended, and still stores the stop.
        resumes = self._resume or (frontier.shared and status.state is JobState.STOPPING)
        if (resumes or not frontier.shared) and await frontier.notes.get(STOP_REASON):
            await frontier.notes.put(STOP_REASON, b"", NOTE_TTL)
        if resumes:
            await frontier.control.set_state(JobState.RUNNING)
            status = await frontier.status()
        if self._recrawl:
            await self._end_last_pass(frontier, status)
            if await frontier.control.recrawl():
                status = await frontier.status()
        if entries := self._builder.first_entries(info):
            await self._builder.guard(frontier.notes).open_for_seeds(entry.url for entry in entries)
            await frontier.add(entries)
            status = await frontier.status()
        return status

    async def _end_last_pass(self, frontier: Frontier, status: FrontierStatus) -> None:
        """Finish what killed runs of the last pass have left undone, before the next pass discards it."""
        await self._drop_superseded(frontier, status)
        remembers = self._builder.settings.changes is not None
        if status.state is not JobState.FINISHED or not (remembers and self._outputs):
            return
        await self._read_changes_of_pass(frontier, status)
        if await self._written.unwritten(await frontier.reports.outputs()):
            await self._merge(frontier)
            if frontier.shared:
                await self._let_others_write(frontier)
        else:
            await self._remove_gone()
        self._pass = None

    async def _let_others_write(self, frontier: Frontier) -> None:
        """Wait for the machines that still write the items of the last pass."""
        # Leave first. Otherwise two machines that begin the next pass would wait for each other.
        await self._written.leave()
        while missing := await self._written.unwritten(await frontier.reports.outputs()):
            if self._stop_reason or not await self._written.is_expected():
                log.warning("the last pass: %s", describe_unwritten(missing))
                break
            await asyncio.sleep(_WATCH_INTERVAL)
        await self._written.join()

    async def _replay(self, frontier: Frontier) -> bool:
        """Put the dead letters back into the queue if the job is finished. Return whether there were any.

        If another machine has done so since this run started, this run does not, so no request gets a second last attempt.
        """
        status = await frontier.status()
        if status.state is not JobState.FINISHED or self._stop_reason:
            return False
        if not status.failed:
            await frontier.notes.put(RETRY_DUE, b"", NOTE_TTL)
            return False
        token = uuid.uuid4().bytes
        is_first = (
            await frontier.notes.compare_and_swap(LAST_REPLAY, self._last_replay, token, NOTE_TTL)
            or await frontier.notes.get(LAST_REPLAY) == token  # only the reply was lost
        )
        if not is_first:
            return False
        self._has_retried = await frontier.dead_letters.replay() > 0
        await frontier.notes.put(RETRY_DUE, b"", NOTE_TTL)
        return self._has_retried

    async def _plan_retry(self, frontier: Frontier, before: FrontierStatus) -> None:
        """Find out whether this run retries the failed requests at its end.

        It also does if the job is finished, but the processes that found this were killed before their retry.
        """
        if not self._builder.settings.retry_failed_at_end:
            return
        if before.state is JobState.RUNNING:
            await frontier.notes.put(RETRY_DUE, b"1", NOTE_TTL)
            self._retries_failed = True
        else:
            self._retries_failed = bool(await frontier.notes.get(RETRY_DUE))
        self._last_replay = await frontier.notes.get(LAST_REPLAY)

    async def _run_workers(
        self,
        frontier: Frontier,
        info: JobInfo,
        server: FrontierServer | None,
        before: FrontierStatus,
        began: float,
    ) -> None:
        """Run the workers. Run them again if requests were added after they had found the job finished.

        At the end, the server and the adder are closed, so that no request is added to a run that does not fetch it.
        """
        await self._plan_retry(frontier, before)
        is_finished = before.state is JobState.FINISHED
        # A worker of another program, such as Scrapy, may add requests to a finished job.
        has_work = before.state is JobState.RUNNING or (is_finished and self._builder.has_foreign_worker)
        if has_work and not self._stop_reason:
            await self._begin_pass(before)
        self._adder.open(frontier, info)
        while True:
            if has_work and not self._stop_reason:
                is_finished = await self._work(frontier, info, began)
            if server is not None:
                await server.close()
            has_work = await self._adder.close_unless(
                partial(self._has_more, frontier, is_finished=is_finished)
            )
            if not has_work:
                return
            if not self.has_begun:
                await self._begin_pass(await frontier.status())
            if server is not None:
                await server.start()

    async def _begin_pass(self, status: FrontierStatus) -> None:
        if not status.reason and self._passes is not None:
            await self._passes.begin(status)

    async def _has_more(self, frontier: Frontier, *, is_finished: bool) -> bool:
        """Return whether the workers have more to do: requests that were added to a finished job, or a last retry."""
        if self._stop_reason:
            return False
        # On a shared frontier, the workers of other machines fetch what other programs add.
        may_have_more = (
            is_finished
            and not self._builder.has_foreign_worker
            and (not frontier.shared or self._adder.has_added)
        )
        if may_have_more and (await frontier.status()).state is JobState.RUNNING:
            return True
        if self._retries_failed:
            self._retries_failed = False
            return await self._replay(frontier)
        return False

    async def _work(self, frontier: Frontier, info: JobInfo, began: float) -> bool:
        """Run the workers until they have ended. Return whether they found the job finished."""
        self.has_begun = True
        self._frontier = frontier
        watching = asyncio.create_task(self._watch(frontier, began))
        limiting = self._stop_at_time_limit(began)
        try:
            queue_lists = self.spec.queues_per_worker()
            if len(queue_lists) == 1:
                name = await asyncio.to_thread(worker_name)  # reads files
                return await self._builder.work(frontier, info, name, queue_lists[0]) is JobState.FINISHED
            from skitter.run.supervisor import Supervisor, WorkerCommand  # noqa: PLC0415 - one worker needs none

            commands = [
                WorkerCommand(self.spec, os.getpid(), shared=frontier.shared, log=self._log, queues=queues)
                for queues in queue_lists
            ]
            self._supervisor = Supervisor(commands, frontier.abandon, self._forked)
            return await self._supervisor.run()
        finally:
            self._frontier = self._supervisor = None  # nothing is left to stop
            if limiting is not None:
                limiting.cancel()
            await cancel_and_wait([watching, *self._tasks])

    async def _report(self, passes: PassTracker) -> None:
        """Report violated monitors that were not reported yet."""
        settings = self._builder.settings
        if not settings.notify or not (records := await passes.unreported()):
            return
        from skitter.run.notify import Notifier  # noqa: PLC0415 - few jobs need it

        notifier = Notifier(self.spec.job, settings)
        for record in records:
            if await notifier.report(record):
                await passes.set_reported(record)

    async def _result(
        self, frontier: Frontier, before: FrontierStatus, began: float, passes: PassTracker
    ) -> RunResult:
        status = await frontier.status()
        # The stop was requested while there were no workers. Other machines may continue with a shared frontier.
        if self._stop_reason and not frontier.shared and status.state is JobState.RUNNING:
            await frontier.control.set_state(JobState.STOPPING)
            status = await frontier.status()
        self._show(status, time.monotonic() - began, workers=0)
        await self._read_changes_of_pass(frontier, status)
        ended_pass = await _close_pass(frontier, passes, status) or self._recovered
        await self._report(passes)
        # After the pass was judged: otherwise the deleted letters would count as failures that the pass has settled.
        status = await self._drop_superseded(frontier, status)
        if status.state is JobState.FINISHED:
            self._outputs.warn_about_missing_classes(status.counters)
        return RunResult(
            job=self.spec.job,
            state=JobState.STOPPED if status.state is JobState.STOPPING else status.state,
            reason="" if status.state is JobState.FINISHED else await self._reason(frontier, status),
            seconds=time.monotonic() - began,
            before=before,
            status=status,
            outputs=[shown_url(target) for target in self._outputs.targets],
            already_finished=before.state is JobState.FINISHED
            and not ((self._adder.has_added or self._has_retried) and self.has_begun),
            ended_pass=ended_pass,
            changes={} if self._pass is None else self._pass.totals,
        )

    async def _drop_superseded(self, frontier: Frontier, status: FrontierStatus) -> FrontierStatus:
        """Delete the dead letters of earlier passes whose pages a finished pass has visited again. Return the new status."""
        may_have_any = status.pass_number > 1 or self._builder.settings.refetch_failed
        if status.state is not JobState.FINISHED or not status.failed or not may_have_any:
            return status
        return await frontier.status() if await frontier.dead_letters.drop_superseded() else status

    async def _read_changes_of_pass(self, frontier: Frontier, status: FrontierStatus) -> None:
        if self._builder.settings.changes is not None:
            self._pass = await read_changes_of_pass(
                frontier.reports.visits, status, may_repeat=frontier.shared
            )

    async def _reason(self, frontier: Frontier, status: FrontierStatus) -> str:
        if status.reason:
            return f"limit reached: {status.reason}"
        if self._stop_reason or status.state is JobState.PAUSED:
            return self._stop_reason or "paused"
        return (await frontier.notes.get(STOP_REASON) or b"").decode() or "stopped"

    # --- adding ----------------------------------------------------------------------------------------

    async def add(self, requests: Iterable[Request | str]) -> AddResult:
        """Add requests or URLs to the run, as ``skitter add`` does: all of them, or none. Return how many were new.

        When this returns, the requests are stored. A run that accepts requests does not end before it has fetched them; if it
        is stopped, paused or fails, they are kept for the next run. If the run has started but has not opened its frontier yet,
        the call waits. The setting ``wait_for_seeds`` keeps a run open that has nothing else to do. In callbacks and hooks, yield
        requests instead: they are stored together with their page, or not at all.

        Raises :class:`~skitter.errors.UsageError` if a request is invalid or outside of the scope, and before and after the
        run; then nothing is added. Raises :class:`~skitter.errors.FrontierError` if the frontier fails. The same call can be
        repeated: it adds the rest, and no request twice except those with ``dont_filter``.
        """
        return await self._adder.add(requests)

    # --- stopping --------------------------------------------------------------------------------------

    def stop(self, reason: str) -> None:
        """Stop gracefully: lease nothing more, finish and commit the requests in progress, and release other leases."""
        if self._stop_reason:
            return
        self._stop_reason = reason
        self._builder.drain()
        if self._frontier_of_run is not None:
            self._frontier_of_run.limit_outages(DRAIN_SECONDS)
        if self._frontier is not None and not self._frontier.shared:  # otherwise only this machine stops
            self._start(self._frontier.control.set_state(JobState.STOPPING))
        if self._supervisor is not None:
            self._start(self._supervisor.stop())

    def release_spider(self) -> None:
        """Release the spider's resources, after the last run of the process."""
        self._builder.release_spider()

    def kill(self) -> None:
        """Kill the worker processes. For a process that must end immediately.

        Committed items are kept, but not merged into the outputs; the next run resumes and merges them.
        """
        for pid in self.worker_pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def status(self) -> FrontierStatus | None:
        """Return the status of the job while its workers run; otherwise ``None``."""
        return None if self._frontier is None else await self._frontier.status()

    async def fleet(self) -> list[WorkerStatus]:
        """Return the live workers of the job on all machines; none while its workers do not run."""
        return [] if self._frontier is None else await self._frontier.reports.workers()

    async def violated(self) -> list[Verdict]:
        """Return the violated monitors of the current pass; none while its workers do not run."""
        if self._frontier is None or self._passes is None:
            return []
        return await self._passes.violated()

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the workers; empty if the worker runs in this process."""
        return [] if self._supervisor is None else self._supervisor.pids

    def _start(self, work: Awaitable[Any]) -> asyncio.Future[Any]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # --- watching --------------------------------------------------------------------------------------

    async def _watch(self, frontier: Frontier, began: float) -> None:
        """Report progress, and stream items to outputs."""
        while True:
            await self._watch_once(frontier, time.monotonic() - began)
            await asyncio.sleep(_WATCH_INTERVAL)

    def _stop_at_time_limit(self, began: float) -> asyncio.TimerHandle | None:
        """Set a timer, because a check of the status may wait for the frontier. Return ``None`` if there is no limit."""
        limit = self._builder.settings.time_limit
        if limit is None:
            return None
        seconds = began + limit - time.monotonic()
        return asyncio.get_running_loop().call_later(seconds, self.stop, f"time limit of {limit:g} s")

    async def _watch_once(self, frontier: Frontier, elapsed: float) -> None:
        try:
            if self._watcher is not None:
                workers = 1 if self._supervisor is None else len(self._supervisor.pids)
                status = await frontier.status()
                self._show(status, elapsed, workers)
                if self.spec.queues:  # workers without queues of their own serve all queues
                    await self._queues_without_workers.check(frontier, status, elapsed)
            await self._emit(frontier)
            await self._judge(frontier)
        except SkitterError:
            pass  # the workers encounter and report the same error
        except Exception:
            log.exception("cannot watch the job")  # the crawl continues without it

    def _show(self, status: FrontierStatus, elapsed: float, workers: int) -> None:
        """Pass the progress to the watcher. Its errors do not end the crawl."""
        if self._watcher is None:
            return
        try:
            pace = self._throughput.record(elapsed, status.counters.get("pages", 0))
            self._watcher(Progress(status, elapsed, workers, pace))
        except Exception:
            log.exception("cannot show the progress")

    async def _judge(self, frontier: Frontier) -> None:
        """Judge the monitors that apply during the run."""
        passes = self._passes
        if passes is None:
            return
        await passes.record_seen()
        if passes.due:
            await passes.judge_running(await frontier.status())
            if self._reporting is None or self._reporting.done():
                self._reporting = self._start(self._report(passes))  # a webhook may be slow
        if passes.stopped_by and not self._stop_reason:
            if frontier.shared:
                await frontier.control.set_state(JobState.STOPPING)  # for all machines
            self.stop(f"monitor {passes.stopped_by}")

    # --- outputs ---------------------------------------------------------------------------------------

    async def _present(self, frontier: Frontier, ranges: Ranges) -> Ranges:
        """Return the ranges of the part files on this machine and of all part files on servers."""
        if not frontier.shared:
            return ranges  # all part files are on this machine
        parts = parts_folder(str(self._builder.folder.path))
        local = {part: spans for part, spans in ranges.items() if is_local(part)}
        present, _ = await asyncio.to_thread(split_by_presence, local, [parts])
        return present | {part: spans for part, spans in ranges.items() if part not in local}

    async def _emit(self, frontier: Frontier) -> None:
        await self._outputs.add_new_outputs()
        ranges = await frontier.reports.outputs() if self._outputs else {}
        for target in await self._outputs.emit(await self._present(frontier, ranges)):
            self.stop(f"the reader of {target} has closed it")

    async def _merge(self, frontier: Frontier) -> None:
        await self._outputs.add_new_outputs()
        if not self._outputs:
            return
        ranges = await frontier.reports.outputs()
        present = await self._present(frontier, ranges)
        if self._builder.settings.changes is None:
            await self._outputs.merge(present)
            await self._written.record(present)
            return
        if self._pass is None:  # the run has failed
            await self._read_changes_of_pass(frontier, await frontier.status())
        assert self._pass is not None
        held = with_kept(ranges, self._pass.kept)
        await self._outputs.merge(present, await self._present(frontier, held))
        await self._remove_gone()
        await self._written.record(present)

    async def _remove_gone(self) -> None:
        """Remove the items of gone pages from databases. May be repeated."""
        if self._pass is not None and self._pass.is_finished and self._builder.settings.changes == "all":
            await self._outputs.remove(self._pass.gone)


async def _close_pass(frontier: Frontier, passes: PassTracker, status: FrontierStatus) -> PassRecord | None:
    """Close the pass like :meth:`PassTracker.close`, unless handlers of another process may still add requests."""
    if status.state is JobState.FINISHED:
        participants = decode_participants(await frontier.notes.get(PARTICIPANTS))
        if participants.idle_at and participants.include_any(await frontier.reports.workers()):
            return None
    return await passes.close(status)


async def _reclaim_leases(frontier: Frontier, liveness: Liveness) -> None:
    """Reclaim the leases of dead workers of this machine, without waiting for their heartbeats to expire."""
    await liveness.open()
    try:
        workers = await liveness.workers()
    finally:
        await liveness.close()
    dead = await asyncio.to_thread(lambda: [worker for worker in workers if has_died(worker)])
    for worker in dead:
        if taken := await frontier.abandon(worker):
            log.info("worker %s died on this machine: reclaimed %s", worker, counted(taken, "lease"))


_QUEUE_GRACE = 10.0
"""Seconds before a queue without a worker is logged: a worker may be about to be replaced, or another machine to join."""


def _warn_about_user_agent(settings: Settings) -> None:
    if settings.robots and not product_token(settings.user_agent):
        log.warning(
            "user_agent %r has no product token, so sites cannot name it in robots.txt and only rules for * apply: "
            "start it with a name of letters, - and _, as in mybot/1.0",
            settings.user_agent,
        )


class QueuesWithoutWorkers:
    """Logs each queue that no worker serves, once."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._logged: set[str] = set()

    async def check(self, frontier: Frontier, status: FrontierStatus, now: float) -> None:
        """Check a status of the job. ``now``: seconds by any clock."""
        if status.state is not JobState.RUNNING or not status.queued:
            return
        waiting = queues_without_workers(status, await frontier.reports.workers())
        self._since = {queue: self._since.get(queue, now) for queue in waiting}
        for queue, since in self._since.items():
            if now - since >= _QUEUE_GRACE and queue not in self._logged:
                self._logged.add(queue)
                log.warning(
                    "no worker serves queue %s, which has %s: start one with --queue %s",
                    queue,
                    counted(waiting[queue], "waiting request"),
                    queue,
                )
