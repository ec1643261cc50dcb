"""Operations on the tasks of a job, and the checks of recipes and schedules before they are stored."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from skitter.errors import SkitterError
from skitter.frontends.recipe.compiled_recipe import compile_recipe
from skitter.frontends.recipe.source import RecipeSource
from skitter.frontends.tasks.changes import (
    ChangeKind,
    Schedule,
    TaskChange,
    TaskState,
    change_for,
    task_states,
)
from skitter.frontends.tasks.recipe_task import new_task_change
from skitter.service.config import ServiceConfig, check_settings
from skitter.service.errors import Conflict, Missing, Refusal, too_busy
from skitter.service.models import JobRecord, Records, StoredRecipe, TaskList

MAX_TRIES = 20
"""How often a change is tried again because another node changed the same record first."""


class TaskService:
    """Operations on tasks. Each operation adds a line to the task file of a job."""

    def __init__(self, config: ServiceConfig, records: Records) -> None:
        self._config = config
        self._records = records

    async def all(self, job: str) -> list[TaskState]:
        """Return the tasks of a job. Raises :class:`Conflict` if the job does not hold tasks."""
        await self._job_with_tasks(job)
        return [*task_states((await self._records.tasks(job))[0].entries).values()]

    async def get(self, job: str, task: str) -> TaskState:
        """Return a task of a job. Raises :class:`Missing`."""
        for standing in await self.all(job):
            if standing.task == task:
                return standing
        raise _no_task(job, task)

    async def add(
        self,
        job: str,
        recipe: str,
        arguments: dict[str, Any],
        schedule: str = "",
        outputs: Sequence[str] = (),
    ) -> str:
        """Add a recipe to a job as a task, also while the job runs; return the name of the task.

        :param outputs: names of task outputs of the service
        """
        holder = await self._job_with_tasks(job)
        stored = await self._records.recipe(recipe, "recipe")
        new = await asyncio.to_thread(_new_task, stored, arguments, schedule)
        self._config.outputs_of_task(new.task, outputs, holder, None)
        new.outputs = list(dict.fromkeys(outputs))

        def entry(known: TaskList) -> TaskChange:
            if any(entry.task == new.task for entry in known.entries):
                raise Conflict(
                    f"job {job!r} already has, or had, a task {new.task!r}",
                    remedy="change the name of the recipe, in its field `name`",
                    field="recipe",
                )
            return new

        await self._add_line(job, entry)
        return new.task

    async def change(self, job: str, task: str, change: ChangeKind) -> TaskState:
        """Pause, resume or close a task; return its new state.

        Closing a task drops its queued requests; requests in progress are finished. Raises :class:`Missing`, and
        :class:`Conflict` for a closed task.
        """
        await self._job_with_tasks(job)

        def entry(known: TaskList) -> TaskChange | None:
            try:
                return change_for(task, known.entries, change, time.time())
            except KeyError:
                raise _no_task(job, task) from None
            except ValueError:
                raise Conflict(
                    f"task {task!r} is closed and cannot be opened again",
                    remedy="add it again under another name",
                ) from None

        return task_states((await self._add_line(job, entry)).entries)[task]

    async def start_due_rounds(self, job: str, now: float) -> None:
        """Add a line for each task whose next round is due."""
        known, data = await self._records.tasks(job)
        due = [
            TaskChange(task=task, recrawl=number)
            for task, standing in task_states(known.entries).items()
            if (number := standing.due_recrawl(now)) is not None
        ]
        if due:
            known.entries += due
            await self._records.store.compare_and_swap("tasks", job, data, msgspec.json.encode(known))

    async def _job_with_tasks(self, name: str) -> JobRecord:
        job = await self._records.job(name)
        if not job.tasks:
            raise Conflict(f"job {name!r} does not hold tasks", remedy='create a job with "tasks": true')
        return job

    async def _add_line(self, job: str, make: Callable[[TaskList], TaskChange | None]) -> TaskList:
        """Add a line, made from the lines before it; return all lines."""
        for _ in range(MAX_TRIES):
            known, data = await self._records.tasks(job)
            entry = make(known)
            if entry is None:
                return known
            known.entries.append(entry)
            if await self._records.store.compare_and_swap("tasks", job, data, msgspec.json.encode(known)):
                return known
        raise too_busy(job)


def _no_task(job: str, task: str) -> Missing:
    return Missing(f"job {job!r} has no task {task!r}", remedy=f"list its tasks with GET /jobs/{job}/tasks")


def next_start(schedule: str, now: float) -> float | None:
    """Return the next time of a schedule after ``now``; ``None`` without a schedule.

    Raises :class:`~skitter.errors.UsageError` for an invalid schedule.
    """
    return Schedule(schedule).next(now) if schedule else None


def check_recipe(recipe: StoredRecipe, arguments: dict[str, Any] | None) -> None:
    """Check that a caller may run a recipe. With ``None``, the variables are not checked.

    Raises :class:`~skitter.frontends.recipe.source.RecipeError`, or :class:`Refusal` for fields reserved to the operator.
    """
    plan = compile_recipe(_source_of(recipe), arguments or {}, complete=arguments is not None)
    check_settings(plan.recipe.settings, "settings")
    if plan.recipe.outputs:
        raise Refusal(
            f"recipe {recipe.name!r} names outputs, which only the operator of the service may choose",
            remedy="remove `outputs`; read the items with GET /jobs/NAME/items",
            field="outputs",
        )


def _new_task(recipe: StoredRecipe, arguments: dict[str, Any], schedule: str) -> TaskChange:
    """Check a recipe and return the line that makes it a task."""
    check_recipe(recipe, arguments)
    naming_field("schedule", lambda: next_start(schedule, 0.0))
    return new_task_change(_source_of(recipe), recipe.text, arguments, schedule=schedule)


def _source_of(recipe: StoredRecipe) -> RecipeSource:
    return RecipeSource.of_text(recipe.text, f"{recipe.name}.{recipe.syntax}")


def naming_field(field: str, check: Callable[[], object]) -> None:
    """Run a check; turn its error into a :class:`Refusal` that names the field of the request."""
    try:
        check()
    except Refusal:
        raise
    except SkitterError as error:
        raise Refusal(str(error), remedy=error.remedy, field=field[:100]) from None
