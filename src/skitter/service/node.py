"""A node of the service: one process of ``skitter serve`` that runs the active jobs and announces its status.

There is no leader. Every node runs every active job in its own processes. The processes of all nodes share the requests
through the frontier of the job. If a node dies, its leases and its status expire; no handover is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from skitter._utils.backoff import Backoff
from skitter._utils.concurrency import cancel_and_wait, wait_until_set
from skitter._utils.redaction import Redactor, secrets_among
from skitter._version import VERSION
from skitter.errors import SkitterError, UsageError
from skitter.frontier.contract import NoSuchJob
from skitter.frontier.options import FrontierContext
from skitter.frontier.registry import make_frontier
from skitter.politeness import Politeness
from skitter.run.job_access import read_passes
from skitter.run.log_frames import level_name, severity_of
from skitter.service.jobs import JobService
from skitter.service.log_collector import LogBuffer
from skitter.service.models import JobRecord, JobRun, NodeError, NodeStatus, decode
from skitter.service.queries import in_thread
from skitter.service.run_process import RunProcess
from skitter.service.runner import RunCommand, RunOutcome
from skitter.service.storage import AppendLog

log = logging.getLogger("skitter.service")

POLL_INTERVAL = 0.5
"""Time between two reads of the records, in seconds."""
STATUS_TTL = 10.0
"""Time for which the status of a node is valid, in seconds."""
_ANNOUNCE_INTERVAL = 2.0
"""Time between two announcements of an unchanged status, in seconds."""
_LEASE_SECONDS = 10.0
"""Time for which a node holds a duty without renewing it, in seconds. One node at a time performs each duty."""
_CLEANUP_INTERVAL = 5.0
"""Time between two removals of discarded runs, in seconds."""
_FIRST_RESTART, _MAX_RESTART = 1.0, 60.0
"""Delay before a failed run is started again on this node, in seconds: after the first failure, and the maximum."""


class Node:
    """One node.

    ``jobs``: the jobs of the service.
    ``log_level``: lowest level that is kept in the logs of runs.
    ``redactor``: removes secrets from the logs of runs.
    """

    def __init__(
        self, jobs: JobService, *, log_level: str = "info", redactor: Redactor | None = None
    ) -> None:
        host = socket.gethostname()
        self.name = f"{host}-{os.getpid()}-{secrets.token_hex(3)}"
        self._jobs = jobs
        self.leaving = asyncio.Event()
        """Set when the node is asked to end. Responses that follow a log then end, too."""
        self._log_level = log_level
        self._redactor = redactor or Redactor()
        self._batches = itertools.count(1)
        """Numbers of the writes to logs."""
        self._logs: dict[str, LogBuffer] = {}
        """Log buffers of the runs that are starting or running here."""
        self._running: dict[str, RunProcess] = {}
        self._restarts: dict[str, tuple[float, Backoff]] = {}
        """For each failed run: monotonic time of the next start, and the delays after further failures."""
        self._status = NodeStatus(
            host=host,
            pid=os.getpid(),
            version=VERSION,
            began=time.time(),
            spiders=jobs.config.spiders is not None,
        )
        self._waiting: set[str] = set()
        """Runs that wait until other runs on this node have ended."""
        self._cleaned_up = 0.0

    async def work(self, stopping: asyncio.Event) -> None:
        """Work until ``stopping`` is set, then let the runs on this node finish their requests in progress."""
        announcing = asyncio.create_task(self._announce_periodically())
        try:
            while not stopping.is_set():
                try:
                    await self._poll()
                except SkitterError as error:
                    log.warning("cannot use the store: %s", error)
                except Exception:
                    log.exception("reading the store failed")
                await wait_until_set(stopping, POLL_INTERVAL)
        finally:
            for process in self._running.values():
                process.stop()
            await asyncio.gather(*(process.wait() for process in self._running.values()))
            for run in list(self._logs):
                self._logs[run].add_message("info", "this node has left")
                await self._logs.pop(run).close()
            await cancel_and_wait([announcing])
            with contextlib.suppress(SkitterError):
                await self._jobs.store.announce(self.name, b"", 0)

    async def _announce_periodically(self) -> None:
        """Keep the status of this node valid, even while a start or the last requests of its runs take long.

        Otherwise, a run of this node would be shown as stopped, and another node could erase it.
        """
        while True:
            await asyncio.sleep(_ANNOUNCE_INTERVAL)
            try:
                await self._announce()
            except SkitterError:
                pass  # _poll reports it
            except Exception:
                log.exception("announcing this node failed")

    async def _announce(self) -> None:
        await self._jobs.store.announce(self.name, msgspec.json.encode(self._status), STATUS_TTL)

    async def _poll(self) -> None:
        jobs = await self._jobs.records.jobs()
        active = {job.run.id: (job, job.run) for job in jobs if job.is_active and job.run is not None}
        await self._collect_ended()
        for run, process in self._running.items():
            if run not in active:
                process.stop()
        new = self._runs_to_start(active)
        self._restarts = {run: restart for run, restart in self._restarts.items() if run in active}
        self._status.errors = {run: error for run, error in self._status.errors.items() if run in active}
        # A node that erases a run reads the announcements first.
        self._status.running = sorted({*self._running, *new})
        await self._announce()
        for run in new:
            await self._start(active[run][0].name, run)
        for job, current in active.values():
            if job.tasks and current.id in self._running:
                try:  # pass new tasks to the processes of the run
                    await self._jobs.prepare(job, current)
                except UsageError as error:  # this node lacks an output of a task, or its disk is full
                    if current.id not in self._status.errors:
                        self._failed(current.id, str(error), error.remedy)
        await self._perform_duties()

    def _runs_to_start(self, active: Mapping[str, tuple[JobRecord, JobRun]]) -> list[str]:
        """Return the runs that this node should start now, within its limit of processes."""
        limit = self._jobs.config.max_processes
        self._waiting &= active.keys()
        running = sum(active[run][0].processes for run in self._running if run in active)
        new = []
        for run, (job, _) in active.items():
            if run in self._running or time.monotonic() < self._restarts.get(run, (0.0,))[0]:
                continue
            if running + job.processes > limit:
                text = f"the job needs {job.processes} of the {limit} processes of this node, and {running} of them are in use"
                remedy = "stop another job, or ask the operator to raise --max-processes"
                self._status.errors[run] = NodeError(error=text, remedy=remedy, at=time.time())
                self._waiting.add(run)
                continue
            running += job.processes
            if run in self._waiting:
                self._waiting.remove(run)
                self._status.errors.pop(run, None)
            new.append(run)
        return new

    async def _perform_duties(self) -> None:
        store = self._jobs.store
        if await store.acquire_lease("schedule", self.name, _LEASE_SECONDS):
            await self._jobs.start_due(time.time())
        now = time.monotonic()
        if now - self._cleaned_up >= _CLEANUP_INTERVAL:
            self._cleaned_up = now
            await self._clean_up_files()
            if await store.acquire_lease("garbage", self.name, _LEASE_SECONDS):
                await self._erase_discarded()

    # --- runs --------------------------------------------------------------------------------------------

    async def _start(self, name: str, run: str) -> None:
        """Start a run that was announced, if the job is still active."""
        data = await self._jobs.store.get("jobs", name)
        job = None if data is None else decode(data, JobRecord)
        if job is None or job.run is None or job.run.id != run or not job.is_active:
            return
        config = self._jobs.config
        job_secrets = secrets_among({"arguments": job.arguments, "settings": job.settings})
        # A node that erases logs waits until an announced run has ended.
        buffer = self._logs[run] = LogBuffer(
            run,
            config.log(run, self.name),
            self._redactor.knowing(job_secrets),
            self.name,
            self._log_level,
            self._batches,
        )
        try:
            await self._jobs.prepare(job, job.run)
            spec = await asyncio.to_thread(config.spec, job, job.run)
            level = min(self._log_level, level_name(log.getEffectiveLevel()), key=severity_of)
            passes = (await self._jobs.records.passes(job))[0].inherited()
            command = RunCommand(spec, os.getpid(), level, passes)
            items = config.items_location(run)
            self._running[run] = await RunProcess.start(name, job.run.attempt, command, items, buffer.take)
            buffer.add_message("info", "this node runs the job now")
            log.info("started %s", run)
        except SkitterError as error:
            self._failed(run, str(error), error.remedy)
        except OSError as error:
            self._failed(run, str(error))
        finally:
            if run not in self._running:
                await self._logs.pop(run).close()

    async def _collect_ended(self) -> None:
        """Record the end of runs whose process has ended."""
        for run, process in list(self._running.items()):
            if process.status is None:
                process.kill_if_overdue()
                continue
            outcome = await process.wait()
            if outcome is not None:
                await self._keep_passes(run, process)
            if outcome is None:
                self._failed(run, f"its process ended with status {process.status}")
            elif outcome.error and not outcome.final:
                self._failed(run, outcome.error, outcome.remedy)
            elif not process.is_stopping or outcome.state == "finished" or outcome.error:
                await self._jobs.change_run(process.job, run, process.attempt, _record_end(outcome))
                state, reason = outcome.state or "failed", _reason_of(outcome)
                text = f"the run is {state}: {reason}" if reason else f"the run is {state}"
                self._logs[run].add_message("error" if outcome.error else "info", text)
            else:
                self._logs[run].add_message("info", "this node has stopped the run as requested")
            await self._logs.pop(run).close()
            del self._running[run]  # only now, because its end is recorded and its log is complete

    async def _keep_passes(self, run: str, process: RunProcess) -> None:
        """Add the judged passes of a run to the history of its job, before the end of the run allows the next run."""
        try:
            passes = await in_thread(read_passes(process.folder))
            await self._jobs.keep_passes(process.job, run, passes)
        except NoSuchJob:
            return  # the run was erased
        except SkitterError as error:
            self._logs[run].add_message("error", f"cannot keep the history of the monitors: {error}")

    def _failed(self, run: str, error: str, remedy: str = "") -> None:
        """Record that a run failed on this node, and delay its next start."""
        log.warning("%s: %s", run, error)
        self._logs[run].add_message("error", f"{error}; {remedy}" if remedy else error)
        _, backoff = self._restarts.get(run) or (0.0, Backoff(first=_FIRST_RESTART, maximum=_MAX_RESTART))
        self._restarts[run] = (time.monotonic() + backoff.next_delay(), backoff)
        self._status.errors[run] = NodeError(error=error, remedy=remedy, at=time.time())

    # --- removal of discarded runs -----------------------------------------------------------------------

    async def _erase_discarded(self) -> None:
        """Erase discarded runs and logs, except those that a job refers to or a node runs."""
        store, config = self._jobs.store, self._jobs.config
        runs, logs = await store.all("garbage"), await store.all("old-logs")
        if not runs and not logs:
            return
        jobs = await self._jobs.records.jobs()
        nodes = await self._jobs.records.nodes()  # read after the jobs, see docs/design/service.md
        running = {run for status in nodes.values() for run in status.running}
        # Files are removed by _clean_up_files.
        for run in runs.keys() - _runs_of(jobs) - running:
            if config.is_shared:
                context = FrontierContext(run, str(config.runs), Politeness())
                await make_frontier(config.store, context).erase()
                await _erase(config.items(run))
            await store.compare_and_swap("garbage", run, runs[run], None)
        for run in logs.keys() - _logs_of(jobs) - running:
            if config.is_shared:
                await _erase(config.log(run))
            await store.compare_and_swap("old-logs", run, logs[run], None)

    async def _clean_up_files(self) -> None:
        """Remove files from the disk of this node if they belong to runs that no job refers to any more."""
        config = self._jobs.config
        found = await asyncio.to_thread(_files_in, config.runs, config.sources)
        logs = await asyncio.to_thread(_files_in, config.logs)
        if found or logs:
            jobs = await self._jobs.records.jobs()
            unused = _without_runs(found, _runs_of(jobs) | set(self._running))
            unused += _without_runs(logs, _logs_of(jobs) | set(self._logs))
            await asyncio.to_thread(_remove, unused)


async def _erase(stored: AppendLog) -> None:
    try:
        await stored.erase()
    finally:
        await stored.close()


def _files_in(*folders: Path) -> list[Path]:
    return [path for folder in folders if folder.is_dir() for path in folder.iterdir()]


def _without_runs(paths: list[Path], runs: set[str]) -> list[Path]:
    """Return the paths that are not named after one of these runs."""
    return [path for path in paths if ".".join(path.name.split(".")[:2]) not in runs]


def _remove(paths: list[Path]) -> None:
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _runs_of(jobs: list[JobRecord]) -> set[str]:
    return {run.id for job in jobs for run in (job.run, job.previous) if run is not None}


def _logs_of(jobs: list[JobRecord]) -> set[str]:
    return {run for job in jobs for run in ([] if job.run is None else [job.run.id, *job.logs])}


def _reason_of(outcome: RunOutcome) -> str:
    return "; ".join(filter(None, [outcome.error, outcome.remedy])) or outcome.reason


def _record_end(outcome: RunOutcome) -> Callable[[JobRecord, JobRun], None]:
    def edit(job: JobRecord, run: JobRun) -> None:
        if outcome.error or outcome.state == "incomplete":
            run.ended, run.reason, run.ended_at = "failed", _reason_of(outcome), time.time()
        elif outcome.state == "finished":
            run.ended, run.ended_at = "finished", time.time()
        elif job.wanted == "running":  # the run was paused or stopped on its frontier, or reached a limit
            job.wanted, run.reason = ("paused" if outcome.state == "paused" else "stopped"), outcome.reason

    return edit
