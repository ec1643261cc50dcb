"""Node: one process of ``skitter serve``: runs what the store says is to be run, and tells that it is there.

There is no leader. Every node runs every active job with processes of its own, and these share the requests through
the job's frontier. If a node dies its leases run out and its note is forgotten; nothing has to be handed over.
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
from collections.abc import Callable
from pathlib import Path

import msgspec

from skitter._utils.redaction import Redactor, secrets_among
from skitter._version import VERSION
from skitter.errors import SkitterError
from skitter.frontier.options import FrontierContext
from skitter.frontier.registry import make_frontier
from skitter.politeness import Politeness
from skitter.run.log_frames import level_name
from skitter.service.desk import Desk
from skitter.service.errors import Refusal
from skitter.service.log_keeper import LogKeeper
from skitter.service.log_lines import severity_of
from skitter.service.nouns import Job, NodeNote, Run, Trouble, decode
from skitter.service.runner import RunEnd
from skitter.service.running import Running, RunStart

log = logging.getLogger("skitter.service")

LOOK_EVERY = 0.5
"""Seconds between two looks at the store."""
BELIEVED = 10.0
"""Seconds for which a node that was heard of is believed to be there."""
_DUTY_SECONDS = 10.0
_SWEEP_EVERY = 5.0
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
"""Seconds before a run is tried again that has failed on this node; doubled at each failure."""


class Node:
    """See :mod:`skitter.service.node`."""

    def __init__(self, desk: Desk, *, log_level: str = "info", mask: Redactor | None = None) -> None:
        """``log_level``: least severity of what is kept in the logs of runs. ``mask`` knows what must not stand there."""
        host = socket.gethostname()
        self.name = f"{host}-{os.getpid()}-{secrets.token_hex(3)}"
        self._desk = desk
        self.leaving = asyncio.Event()
        """Set when it is asked to end: what is followed through it ends, too."""
        self._log_level = log_level
        self._mask = Redactor() if mask is None else mask
        self._log_calls = itertools.count(1)
        self._keepers: dict[str, LogKeeper] = {}
        """By run that is being started or runs here, who keeps its log."""
        self._running: dict[str, Running] = {}
        self._pauses: dict[str, tuple[float, float]] = {}
        """By run: not before (monotonic), and the pause after the next failure."""
        self._note = NodeNote(
            host=host,
            pid=os.getpid(),
            version=VERSION,
            began=time.time(),
            spiders=desk.ground.spiders is not None,
        )
        self._swept = 0.0

    async def work(self, stopping: asyncio.Event) -> None:
        """Do the work of a node until it is to stop; then let what runs here finish what is in hand."""
        try:
            while not stopping.is_set():
                try:
                    await self._look()
                except SkitterError as error:
                    log.warning("the store cannot be used: %s", error)
                except Exception:
                    log.exception("a look at the store failed")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stopping.wait(), LOOK_EVERY)
        finally:
            await self._leave()

    async def _leave(self) -> None:
        for running in self._running.values():
            running.stop()
        await asyncio.gather(*(running.wait() for running in self._running.values()))
        for run in list(self._keepers):
            self._keepers[run].note("info", "this node has left")
            await self._keepers.pop(run).close()
        with contextlib.suppress(SkitterError):
            await self._desk.records.announce(self.name, b"", 0)

    # --- one look ----------------------------------------------------------------------------------------

    async def _look(self) -> None:
        jobs = await self._desk.jobs()
        active = {job.run.id: (job, job.run) for job in jobs if job.is_active and job.run is not None}
        await self._reap()
        for run, running in self._running.items():
            if run not in active:
                running.stop()
        new = [run for run in active if run not in self._running and self._may_start(run)]
        self._pauses = {run: pause for run, pause in self._pauses.items() if run in active}
        self._note.troubles = {run: one for run, one in self._note.troubles.items() if run in active}
        await self._announce(new)
        for run in new:
            await self._start(active[run][0].name, run)
        for run, (job, kept) in active.items():
            if job.tasks and run in self._running:
                await self._write_down_tasks(job, kept)
        await self._duties()

    async def _write_down_tasks(self, job: Job, run: Run) -> None:
        """Let the processes of a run know the tasks that were added since."""
        try:
            await self._desk.prepare(job, run)
        except Refusal as error:  # a task has an output that this node lacks
            if run.id not in self._note.troubles:
                self._trouble(run.id, str(error), error.remedy)

    async def _announce(self, new: list[str]) -> None:
        """Tell what runs here and what is about to: whoever erases a run looks here first."""
        self._note.running = sorted({*self._running, *new})
        await self._desk.records.announce(self.name, msgspec.json.encode(self._note), BELIEVED)

    async def _duties(self) -> None:
        if await self._desk.records.hold("schedule", self.name, _DUTY_SECONDS):
            await self._desk.start_due(time.time())
        now = time.monotonic()
        if now - self._swept >= _SWEEP_EVERY:
            self._swept = now
            await self._sweep()
            if await self._desk.records.hold("garbage", self.name, _DUTY_SECONDS):
                await self._erase_discarded()

    # --- runs --------------------------------------------------------------------------------------------

    def _may_start(self, run: str) -> bool:
        return time.monotonic() >= self._pauses.get(run, (0.0, 0.0))[0]

    async def _start(self, name: str, run: str) -> None:
        """Run a job here, if it is still to be run now that everybody can know of it."""
        data = await self._desk.records.get("jobs", name)
        job = None if data is None else decode(data, Job)
        if job is None or job.run is None or job.run.id != run or not job.is_active:
            return
        keeper = self._open_log(run, job)
        try:
            await self._desk.prepare(job, job.run)
            spec = await asyncio.to_thread(self._desk.ground.spec, job, job.run)
            items = self._desk.ground.store_of_items(run)
            level = min(self._log_level, level_name(log.getEffectiveLevel()), key=severity_of)
            self._running[run] = await Running.start(
                RunStart(name, job.run.leg, spec, items, level), keeper.take
            )
            keeper.note("info", "this node runs the job now")
            log.info("runs %s", run)
        except (SkitterError, OSError) as error:
            self._trouble(run, str(error), getattr(error, "remedy", ""))
        finally:
            if run not in self._running:
                await self._keepers.pop(run).close()

    # --- logs --------------------------------------------------------------------------------------------

    def _open_log(self, run: str, job: Job) -> LogKeeper:
        """Return who keeps the log of a run that is announced: whoever erases it waits for that to end."""
        mask = self._mask.knowing(secrets_among({"arguments": job.arguments, "settings": job.settings}))
        kept = self._desk.ground.log(run, self.name)
        self._keepers[run] = LogKeeper(run, kept, mask, self.name, self._log_level, self._log_calls)
        return self._keepers[run]

    # --- ends --------------------------------------------------------------------------------------------

    async def _reap(self) -> None:
        """Look after the runs that have ended here."""
        for run, running in list(self._running.items()):
            if not running.has_ended:
                running.insist()
                continue
            end = await running.wait()
            if end is None:
                self._trouble(run, f"its process ended with status {running.status}")
            elif end.error and not end.final:
                self._trouble(run, end.error, end.remedy)
            elif not running.is_asked_to_stop or end.state == "finished" or end.error:
                await self._desk.change_run(
                    running.job, run, running.leg, _ending(end.state, end.reason, end.error)
                )
                self._note_end(run, end)
            else:
                self._keepers[run].note("info", "this node has let go of the run, as it was asked to")
            await self._keepers.pop(run).close()
            del self._running[run]  # not before its end stands in the store, and all that it said

    def _note_end(self, run: str, end: RunEnd) -> None:
        what, why = f"the run is {end.state or 'failed'}", end.error or end.reason
        self._keepers[run].note("error" if end.error else "info", f"{what}: {why}" if why else what)

    def _trouble(self, run: str, error: str, remedy: str = "") -> None:
        """Note that a run cannot go on here, and let it rest for a while."""
        log.warning("%s: %s", run, error)
        self._keepers[run].note("error", f"{error}; {remedy}" if remedy else error)
        _, pause = self._pauses.get(run, (0.0, _FIRST_PAUSE))
        self._pauses[run] = (time.monotonic() + pause, min(2 * pause, _LONGEST_PAUSE))
        self._note.troubles[run] = Trouble(error=error, remedy=remedy, at=time.time())

    # --- what is left of runs that are gone --------------------------------------------------------------

    async def _erase_discarded(self) -> None:
        """Erase the runs that were given up, unless a job still refers to them or a node still runs them."""
        runs, logs = [await self._desk.records.all(kind) for kind in ("garbage", "old-logs")]
        if not runs and not logs:
            return
        jobs = await self._desk.jobs()
        running = {
            run for note in (await self._desk.nodes()).values() for run in note.running
        }  # after the jobs: see docs/service.md
        for run, data in runs.items():
            if run not in _runs_of(jobs) | running:
                await self._erase(run)
                await self._desk.records.swap("garbage", run, data, None)
        for run, data in logs.items():
            if run not in _logs_of(jobs) | running:
                await self._erase_log(run)
                await self._desk.records.swap("old-logs", run, data, None)

    async def _erase(self, run: str) -> None:
        ground = self._desk.ground
        if ground.is_shared:
            await make_frontier(ground.store, FrontierContext(run, str(ground.runs), Politeness())).erase()
        await ground.pages(run).erase()

    async def _erase_log(self, run: str) -> None:
        kept = self._desk.ground.log(run)
        try:
            await kept.erase()
        finally:
            await kept.close()

    async def _sweep(self) -> None:
        """Remove from this disk what belongs to runs that no job has any more."""
        ground = self._desk.ground
        found = await asyncio.to_thread(_files_in, ground.runs, ground.sources)
        logs = await asyncio.to_thread(_files_in, ground.logs)
        if found or logs:
            jobs = await self._desk.jobs()
            dead = _not_of(found, _runs_of(jobs) | set(self._running))
            dead += _not_of(logs, _logs_of(jobs) | set(self._keepers))
            await asyncio.to_thread(_remove, dead)


def _files_in(*folders: Path) -> list[Path]:
    return [path for folder in folders if folder.is_dir() for path in folder.iterdir()]


def _not_of(paths: list[Path], runs: set[str]) -> list[Path]:
    """Return the paths that are called after other runs."""
    return [path for path in paths if ".".join(path.name.split(".")[:2]) not in runs]


def _remove(paths: list[Path]) -> None:
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _runs_of(jobs: list[Job]) -> set[str]:
    return {run.id for job in jobs for run in (job.run, job.previous) if run is not None}


def _logs_of(jobs: list[Job]) -> set[str]:
    return {run for job in jobs for run in ([] if job.run is None else [job.run.id, *job.logs])}


def _ending(state: str, reason: str, error: str) -> Callable[[Job, Run], None]:
    def edit(job: Job, run: Run) -> None:
        if error:
            run.ended, run.reason, run.ended_at = "failed", error, time.time()
        elif state == "finished":
            run.ended, run.ended_at = "finished", time.time()
        elif job.wanted == "running":  # somebody stopped it at its frontier, or a limit did
            job.wanted, run.reason = ("paused" if state == "paused" else "stopped"), reason

    return edit
