"""Operations on jobs and recipes. They change records; the nodes act on the records."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import msgspec

from skitter.frontends.tasks.changes import TaskChange
from skitter.frontends.tasks.task_file import TaskFile
from skitter.run.passes import Passes
from skitter.service.config import ServiceConfig, check_settings
from skitter.service.errors import ApiError, Conflict, NotFound, naming_field, too_busy
from skitter.service.inspection import SteeringAction
from skitter.service.models import (
    JobRecord,
    JobRun,
    PassHistory,
    Records,
    StoredRecipe,
    TaskList,
    decode,
    new_run,
    next_start,
    own_size,
)
from skitter.service.recipe_check import RecipeChecker
from skitter.service.storage import KeyValueStore
from skitter.service.tasks import MAX_TRIES, TaskService
from skitter.settings import build_settings

_MAX_PROCESSES = 64


class JobService:
    """The operations of the API on jobs and recipes, and the changes that nodes make."""

    def __init__(
        self, config: ServiceConfig, store: KeyValueStore, checker: RecipeChecker | None = None
    ) -> None:
        self.config = config
        self.store = store
        self.records = Records(store)
        self.checker = checker or RecipeChecker()
        self.tasks = TaskService(config, self.records, self.checker)
        self._files_lock = asyncio.Lock()
        """Held while files are written, because the node and the callers of its API write the same files."""
        self._copied: dict[str, tuple[str, int, int]] = {}
        """For each job: the run whose task file was written last, with the sizes of the stored tasks and of the file at that time."""
        self._checked_at = math.inf
        """Unix time of the last check for runs that are due."""

    # --- recipes -----------------------------------------------------------------------------------------

    async def put_recipe(self, recipe: StoredRecipe) -> bool:
        """Store a recipe and return whether it is new. Current runs keep the text with which they started.

        Raises :class:`~skitter.frontends.recipe.source.RecipeError` with all mistakes in the recipe.
        """
        await self.checker.check(recipe, None)
        recipe.stored = time.time()
        for _ in range(MAX_TRIES):
            old = await self.store.get("recipes", recipe.name)
            if old is None:
                await self._check_room("recipes", recipe.name)
            if await self.store.compare_and_swap("recipes", recipe.name, old, msgspec.json.encode(recipe)):
                return old is None
        raise too_busy(recipe.name)

    async def delete_recipe(self, name: str) -> None:
        """Delete a recipe. Raises :class:`Conflict` while a job uses it."""
        data = msgspec.json.encode(await self.records.recipe(name))
        if users := [job.name for job in await self.records.jobs() if job.recipe == name]:
            raise Conflict(f"job {users[0]!r} uses recipe {name!r}", remedy="delete the job first")
        if not await self.store.compare_and_swap("recipes", name, data, None):
            raise too_busy(name)

    # --- jobs --------------------------------------------------------------------------------------------

    async def add_job(self, job: JobRecord, *, start: bool) -> JobRecord:
        """Create a job, and start its first run if ``start`` is set. Raises :class:`ApiError` or :class:`Conflict`."""
        await self._check_room("jobs", job.name)
        await self._check(job)
        job.created = time.time()
        job.due = next_start(job.schedule, job.created)
        if start:
            await self._start_run(job)
        if not await self.store.compare_and_swap("jobs", job.name, None, msgspec.json.encode(job)):
            raise Conflict(f"job {job.name!r} already exists", remedy="choose another name", field="name")
        return job

    async def _check_room(self, kind: str, name: str) -> None:
        """Raise :class:`ApiError` if there are too many records of a kind. Concurrent callers may exceed the limit slightly."""
        names = await self.store.all(kind)
        if name not in names and len(names) >= self.config.max_jobs:
            raise ApiError(
                f"the service has {len(names)} {kind}",
                remedy="delete one that is not needed; the operator sets the limit with --max-jobs",
                field="name",
            )

    async def _check(self, job: JobRecord) -> None:
        kinds = [name for name, value in (("recipe", job.recipe), ("spider", job.spider), ("tasks", job.tasks)) if value]  # fmt: skip
        if len(kinds) != 1:
            raise ApiError(
                f"a job needs exactly one of recipe, spider and tasks; this job has {' and '.join(kinds) or 'no such field'}",
                remedy="give exactly one of them",
                field="recipe",
            )
        check_settings(job.settings, "settings")
        for name, value in job.settings.items():
            naming_field(f"settings.{name}", partial(_check_limits, {name: value}))
        if (processes := job.processes) > self.config.max_processes:
            raise ApiError(
                f"the job has {processes} processes in total",
                remedy=f"use at most {self.config.max_processes}; the operator sets the limit with --max-processes",
                field="workers",
            )
        if (processes := sum(job.queues.values())) > _MAX_PROCESSES:
            raise ApiError(
                f"the queues have {processes} processes in total",
                remedy=f"use at most {_MAX_PROCESSES} on each node",
                field="queues",
            )
        _check_schedule(job, job.schedule)
        if job.tasks and job.arguments:
            raise ApiError(
                "a job with tasks takes no arguments",
                remedy="give the arguments to its tasks",
                field="arguments",
            )
        if job.spider:
            await asyncio.to_thread(self.config.allowed_spider, job.spider)
        if job.recipe:
            recipe = await self.records.recipe(job.recipe, "recipe")
            await self.checker.check(recipe, job.arguments)

    async def reschedule(self, name: str, schedule: str) -> JobRecord:
        """Change the schedule of new runs. If it is empty, runs start only on request."""

        async def edit(job: JobRecord) -> None:
            _check_schedule(job, schedule)
            job.schedule = schedule
            job.due = next_start(schedule, time.time())

        return await self._change(name, edit)

    async def start(self, name: str) -> JobRecord:
        """Start a new run. Raises :class:`Conflict` while a run is active."""

        async def edit(job: JobRecord) -> None:
            if job.is_active:
                raise Conflict(f"job {name!r} is running", remedy="stop it first")
            await self._start_run(job)

        return await self._change(name, edit)

    async def _start_run(self, job: JobRecord) -> None:
        """Give a job a new run; the run before the previous one is discarded."""
        recipe = await self.records.recipe(job.recipe, "recipe") if job.recipe else None
        if job.previous is not None:
            await self._discard("garbage", job.previous.id)
        if job.run is not None:
            job.previous = job.run
        job.run = new_run(job.name, recipe)
        logs = [job.run.id, *job.logs]
        job.logs = logs[: self.config.log_runs]
        for run in logs[self.config.log_runs :]:
            await self._discard("old-logs", run)
        job.wanted = "running"

    async def _discard(self, kind: Literal["garbage", "old-logs"], run: str) -> None:
        """Mark a run or its log for removal. A node erases it once no job refers to it and no node uses it."""
        await self.store.compare_and_swap(kind, run, None, b"{}")

    async def steer(self, name: str, action: SteeringAction) -> JobRecord:
        """Pause, stop or resume a job. Raises :class:`NotFound`.

        While a job is paused, nothing is fetched and no scheduled run starts. While it is stopped, scheduled runs start.
        Resuming continues the current run, even a finished run if it has new requests (retried failures, seeds).
        """

        async def edit(job: JobRecord) -> None:
            if action != "resume":
                job.wanted = "paused" if action == "pause" else "stopped"
            elif job.run is None and job.schedule:
                job.wanted = "stopped"
            elif job.run is None:
                await self._start_run(job)
            else:
                job.wanted = "running"
                job.run.ended, job.run.reason, job.run.ended_at = "", "", 0.0
                job.run.attempt += 1

        return await self._change(name, edit)

    async def delete(self, name: str) -> None:
        """Delete a job. Its frontier, items and logs are erased after the nodes have stopped. Raises :class:`NotFound`."""
        for _ in range(MAX_TRIES):
            job, data = await self.records.stored_job(name)
            for run in (job.run, job.previous):
                if run is not None:
                    await self._discard("garbage", run.id)
            for log in job.logs:
                await self._discard("old-logs", log)
            if await self.store.compare_and_swap("jobs", name, data, None):
                await self._delete_of_job("tasks", job, TaskList)
                await self._delete_of_job("passes", job, PassHistory)
                return
        raise too_busy(name)

    async def _delete_of_job(self, kind: str, job: JobRecord, record: type[TaskList | PassHistory]) -> None:
        """Delete a record of a deleted job, which a node may still be changing. The record of a new job of its name is kept."""
        for _ in range(MAX_TRIES):
            data = await self.store.get(kind, job.name)
            if data is None or decode(data, record).job_created != job.created:
                return
            if await self.store.compare_and_swap(kind, job.name, data, None):
                return

    async def _change(self, name: str, edit: Callable[[JobRecord], Any]) -> JobRecord:
        for _ in range(MAX_TRIES):
            job, data = await self.records.stored_job(name)
            await edit(job)
            if await self.store.compare_and_swap("jobs", name, data, msgspec.json.encode(job)):
                return job
        raise too_busy(name)

    # --- changes by nodes --------------------------------------------------------------------------------

    async def change_run(
        self, name: str, run: str, attempt: int, edit: Callable[[JobRecord, JobRun], None]
    ) -> bool:
        """Change the record of a run. Returns ``False`` if the job has another run, another attempt, or is deleted."""

        async def checked(job: JobRecord) -> None:
            if job.run is None or (job.run.id, job.run.attempt) != (run, attempt):
                raise NotFound(run)
            edit(job, job.run)

        try:
            await self._change(name, checked)
        except NotFound:
            return False
        return True

    async def keep_passes(self, name: str, run: str, passes: Passes) -> None:
        """Add the ended passes of a run to the history of its job. Does nothing if the job is deleted."""
        if not passes.own:
            return
        for _ in range(MAX_TRIES):
            try:
                history, data = await self.records.passes(await self.records.job(name))
            except NotFound:
                return
            history.add(run, passes)
            if await self.store.compare_and_swap("passes", name, data, msgspec.json.encode(history)):
                return
        raise too_busy(name)

    async def start_due(self, now: float) -> list[str]:
        """Start the runs that are due, each only once, even if several nodes call this method. Returns the names of the jobs."""
        started = []
        if now < self._checked_at:  # this node has just started, or its clock was set back
            await self._correct_due(now)
        self._checked_at = now
        stored = await self.store.all("jobs")
        self.tasks.keep_only(stored)
        for name, data in stored.items():
            job = decode(data, JobRecord)
            if job.tasks and job.is_active:
                await self.tasks.start_due_recrawls(job, now)
            if job.due is None or job.due > now:
                continue
            starts = not job.is_active and job.wanted != "paused"
            job.due = next_start(job.schedule, now)
            if starts:
                try:
                    await self._start_run(job)
                except ApiError:  # its recipe is deleted
                    starts = False
            if not starts:
                job.skipped += 1
            if await self.store.compare_and_swap("jobs", name, data, msgspec.json.encode(job)) and starts:
                started.append(name)
        return started

    async def _correct_due(self, now: float) -> None:
        """Correct the next starts that were computed while the clock was ahead. Otherwise, no run would start for years."""
        for name, data in (await self.store.all("jobs")).items():
            job = decode(data, JobRecord)
            due = next_start(job.schedule, now)
            if due is not None and job.due is not None and due < job.due:
                job.due = due
                await self.store.compare_and_swap("jobs", name, data, msgspec.json.encode(job))

    # --- files of this node ------------------------------------------------------------------------------

    async def prepare(self, job: JobRecord, run: JobRun) -> None:
        """Write the files that the processes of a run read: its recipe, or its task file with all tasks added so far."""
        if not job.tasks:
            async with self._files_lock:
                await asyncio.to_thread(self._write_recipe, run)
            return
        file = TaskFile(self.config.task_file(run))
        # Lines are only added, so every change shows in the sizes. Reading all tasks twice a second would cost much more.
        stored = await self.store.size("tasks", job.name)
        if self._copied.get(job.name) == (run.id, stored, await asyncio.to_thread(file.size)):
            return
        known, data = await self.records.tasks(job)
        async with self._files_lock:
            await asyncio.to_thread(self._write_tasks, file, job, run, known.entries)
            size = await asyncio.to_thread(file.size)
        self._copied[job.name] = (run.id, own_size(known, data), size)

    def _write_recipe(self, run: JobRun) -> None:
        self.config.sources.mkdir(parents=True, exist_ok=True)
        if run.recipe is not None:
            path = self.config.recipe_file(run)
            if not path.exists():
                draft = path.with_suffix(".tmp")
                draft.write_text(run.recipe.text, "utf-8")
                draft.replace(path)

    def _write_tasks(self, file: TaskFile, job: JobRecord, run: JobRun, entries: list[TaskChange]) -> None:
        def adapt(entry: TaskChange) -> TaskChange:
            outputs = self.config.outputs_of_task(entry.name or entry.task, entry.outputs, job, run)
            spider = entry.spider and self.config.allowed_spider(entry.spider)
            return msgspec.structs.replace(entry, outputs=outputs, spider=spider)

        file.copy(entries, adapt)


def _check_schedule(job: JobRecord, schedule: str) -> None:
    if job.tasks and schedule:
        raise ApiError(
            "a job with tasks takes no schedule", remedy="give a schedule to its tasks", field="schedule"
        )
    naming_field("schedule", lambda: next_start(schedule, time.time()))


def _check_limits(settings: dict[str, Any]) -> None:
    """Check the values of settings. Raises :class:`~skitter.errors.SettingsError`."""
    read = build_settings(settings)
    read.politeness()
    read.queue_sizes()
