"""Operations on the tasks of a job."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Container, Sequence
from typing import Any, NamedTuple

import msgspec

from skitter.frontends.tasks.changes import (
    ChangeKind,
    TaskChange,
    TaskState,
    change_for,
    task_states,
    tasks_by_name,
    with_key,
)
from skitter.service.config import ServiceConfig
from skitter.service.errors import ApiError, Conflict, NotFound, too_busy
from skitter.service.models import JobRecord, Records, TaskList, own_size
from skitter.service.recipe_check import RecipeChecker

MAX_TRIES = 20
"""Maximum attempts at a change while other nodes change the same record first."""
_MAX_TEXT = 64 << 20
"""Maximum characters of all recipes that were ever added to a job as tasks. Every node reads them after every change."""


class _ReadTasks(NamedTuple):
    """A snapshot of the stored tasks of a job."""

    job_created: float
    """Time at which the job was created, which distinguishes it from a later job of the same name."""
    size: int
    """Size of the stored tasks in bytes. Lines are only added, so each change changes it."""
    states: dict[str, TaskState]

    def is_current(self, job: JobRecord, size: int) -> bool:
        """Return whether the tasks of a job, whose stored size is ``size`` now, have not changed."""
        return self.job_created == job.created and self.size == size


class TaskService:
    """Operations on tasks. Each operation adds a line to the task file of a job."""

    def __init__(self, config: ServiceConfig, records: Records, checker: RecipeChecker) -> None:
        self._config = config
        self._records = records
        self._checker = checker
        self._last_read: dict[str, _ReadTasks] = {}
        """The tasks of each job, as last read for recrawls."""

    async def all(self, job: str) -> list[TaskState]:
        """Return the tasks of a job. Raises :class:`Conflict` if the job is not a job with tasks."""
        holder = await self._job_with_tasks(job)
        return [*tasks_by_name((await self._records.tasks(holder))[0].entries).values()]

    async def get(self, job: str, task: str) -> TaskState:
        """Return a task of a job. Raises :class:`NotFound`."""
        for state in await self.all(job):
            if state.name == task:
                return state
        raise _no_task(job, task)

    async def add(
        self,
        job: str,
        recipe: str,
        arguments: dict[str, Any],
        schedule: str = "",
        outputs: Sequence[str] = (),
    ) -> str:
        """Add a recipe as a task to a job, which may be running. Return the name of the task.

        ``outputs``: names of task outputs of the service.
        """
        stored = await self._records.recipe(recipe, "recipe")
        return await self._add(job, await self._checker.new_task(stored, arguments, schedule), outputs)

    async def add_python(
        self, job: str, spider: str, task: str, schedule: str = "", outputs: Sequence[str] = ()
    ) -> str:
        """Add a task of a spider in the operator's folder; otherwise like :meth:`add`."""
        path = await asyncio.to_thread(self._config.allowed_spider, spider)
        new = await self._checker.new_python_task(path, task, schedule)
        new.spider = spider  # relative to the folder of each node
        return await self._add(job, new, outputs)

    async def _add(self, job: str, new: TaskChange, outputs: Sequence[str]) -> str:
        holder = await self._job_with_tasks(job)
        self._config.outputs_of_task(new.task, outputs, holder, None)
        new.outputs = list(dict.fromkeys(outputs))

        def entry(known: TaskList) -> TaskChange:
            if sum(len(entry.text) for entry in known.entries) + len(new.text) > _MAX_TEXT:
                raise ApiError(
                    f"the tasks of job {job!r} are too large together",
                    remedy="create another job for more tasks",
                    field="recipe",
                )
            try:
                return with_key(new, known.entries)
            except ValueError:
                raise Conflict(
                    f"job {job!r} already has an open task {new.task!r}",
                    remedy="close it, or use another name",
                    field="task" if new.spider else "recipe",
                ) from None

        await self._add_line(holder, entry)
        return new.task

    async def change(self, job: str, task: str, change: ChangeKind) -> TaskState:
        """Pause, resume or close a task; return its new state.

        Closing a task drops its queued requests; requests in progress are finished. Raises :class:`NotFound`, and
        :class:`Conflict` for a closed task.
        """
        holder = await self._job_with_tasks(job)

        def entry(known: TaskList) -> TaskChange | None:
            try:
                return change_for(task, known.entries, change, time.time())
            except KeyError:
                raise _no_task(job, task) from None
            except ValueError:
                raise Conflict(
                    f"task {task!r} is closed and cannot be opened again",
                    remedy="add it again",
                ) from None

        return tasks_by_name((await self._add_line(holder, entry)).entries)[task]

    async def start_due_recrawls(self, job: JobRecord, now: float) -> None:
        """Add a line for each task whose next recrawl is due."""
        store = self._records.store
        size = await store.size("tasks", job.name)
        last = self._last_read.get(job.name)
        if last is not None and last.is_current(job, size) and not _due(last.states, now):
            return
        known, data = await self._records.tasks(job)
        states = task_states(known.entries)
        self._last_read[job.name] = _ReadTasks(job.created, own_size(known, data), states)
        if due := _due(states, now):
            known.entries += due
            await store.compare_and_swap("tasks", job.name, data, msgspec.json.encode(known))

    def keep_only(self, jobs: Container[str]) -> None:
        """Forget the tasks of jobs that no longer exist. ``jobs``: the existing jobs."""
        self._last_read = {job: known for job, known in self._last_read.items() if job in jobs}

    async def _job_with_tasks(self, name: str) -> JobRecord:
        job = await self._records.job(name)
        if not job.tasks:
            raise Conflict(f"job {name!r} does not hold tasks", remedy='create a job with "tasks": true')
        return job

    async def _add_line(self, job: JobRecord, make: Callable[[TaskList], TaskChange | None]) -> TaskList:
        """Add the line that ``make`` returns for the lines before it. Return all lines."""
        for _ in range(MAX_TRIES):
            known, data = await self._records.tasks(job)
            entry = make(known)
            if entry is None:
                return known
            known.entries.append(entry)
            if await self._records.store.compare_and_swap(
                "tasks", job.name, data, msgspec.json.encode(known)
            ):
                return known
        raise too_busy(job.name)


def _due(states: dict[str, TaskState], now: float) -> list[TaskChange]:
    """Return the lines that start the recrawls that are due."""
    numbers = {task: state.due_recrawl(now) for task, state in states.items()}
    return [TaskChange(task=task, recrawl=number) for task, number in numbers.items() if number is not None]


def _no_task(job: str, task: str) -> NotFound:
    return NotFound(f"job {job!r} has no task {task!r}", remedy=f"list its tasks with GET /jobs/{job}/tasks")
