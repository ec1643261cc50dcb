"""TaskDesk: what can be done with the tasks of a job of a service."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from skitter.errors import did_you_mean
from skitter.frontends.tasks.changes import ChangeKind, TaskChange, TaskState, change_for, task_states
from skitter.service.checks import check_task
from skitter.service.errors import TRIES, Conflict, Missing, Refusal, too_busy
from skitter.service.ground import Ground
from skitter.service.nouns import Job, Recipe, TaskList, decode
from skitter.service.records import Records


class TaskDesk:
    """The operations on tasks: lines that are added to the book of a job."""

    ground: Ground
    records: Records

    async def job(self, name: str) -> Job:
        """Return a job. Raises :class:`Missing`."""
        data = await self.records.get("jobs", name)
        if data is None:
            raise Missing(f"there is no job {name!r}", remedy="GET /jobs lists the jobs")
        return decode(data, Job)

    async def recipe(self, name: str, field: str = "") -> Recipe:
        """Return a recipe. Raises :class:`Missing`, or, for a ``field`` of a call, :class:`Refusal`."""
        data = await self.records.get("recipes", name)
        if data is None:
            known = list(await self.records.all("recipes"))
            remedy = did_you_mean(name, known) if known else "upload it with PUT /recipes/NAME"
            kind = Refusal if field else Missing
            raise kind(f"there is no recipe {name!r}", remedy=remedy, field=field)
        return decode(data, Recipe)

    async def tasks(self, name: str) -> list[TaskState]:
        """Return the tasks of a job. Raises :class:`Conflict` for a job of another kind."""
        await self._check_holds_tasks(name)
        return [*task_states((await self.task_list(name))[0].entries).values()]

    async def _check_holds_tasks(self, name: str) -> Job:
        job = await self.job(name)
        if not job.tasks:
            raise Conflict(f"job {name!r} holds no tasks", remedy='add a job with "tasks": true')
        return job

    async def task(self, name: str, task: str) -> TaskState:
        """Return a task of a job. Raises :class:`Missing`."""
        for standing in await self.tasks(name):
            if standing.task == task:
                return standing
        raise _no_task(name, task)

    async def task_list(self, name: str) -> tuple[TaskList, bytes | None]:
        """Return the book of a job, and its record to compare with; an empty one without a record."""
        data = await self.records.get("tasks", name)
        return (TaskList() if data is None else decode(data, TaskList)), data

    async def add_task(
        self,
        name: str,
        recipe_name: str,
        arguments: dict[str, Any],
        schedule: str = "",
        outputs: Sequence[str] = (),
    ) -> str:
        """Give a job a recipe as one more task, also while it runs; returns the name of the task.

        ``outputs``: names of those that the service has for tasks.
        """
        job = await self._check_holds_tasks(name)
        recipe = await self.recipe(recipe_name, "recipe")
        new = await asyncio.to_thread(check_task, recipe, arguments, schedule)
        self.ground.outputs_of_task(new.task, outputs, job, None)
        new.outputs = list(dict.fromkeys(outputs))

        def entry(known: TaskList) -> TaskChange:
            if any(entry.task == new.task for entry in known.entries):
                raise Conflict(
                    f"job {name!r} has had a task {new.task!r} already", remedy="give the recipe another name:",
                    field="recipe",
                )  # fmt: skip
            return new

        await self._add_line(name, entry)
        return new.task

    async def change_task(self, name: str, task: str, change: ChangeKind) -> TaskState:
        """Pause, resume or close a task; returns what it is now.

        Closing drops what is queued of it; what is in hand is finished. Raises :class:`Missing`, and
        :class:`Conflict` for a task that is closed.
        """
        await self._check_holds_tasks(name)

        def entry(known: TaskList) -> TaskChange | None:
            try:
                return change_for(task, known.entries, change, time.time())
            except KeyError:
                raise _no_task(name, task) from None
            except ValueError:
                raise Conflict(
                    f"task {task!r} is closed for good", remedy="add it again under another name"
                ) from None

        return task_states((await self._add_line(name, entry)).entries)[task]

    async def _add_line(self, name: str, make: Callable[[TaskList], TaskChange | None]) -> TaskList:
        """Add a line to a job's book, made from what is in it; returns what is in it then."""
        for _ in range(TRIES):
            known, data = await self.task_list(name)
            entry = make(known)
            if entry is None:
                return known
            known.entries.append(entry)
            if await self.records.swap("tasks", name, data, msgspec.json.encode(known)):
                return known
        raise too_busy(name)

    async def begin_rounds(self, name: str, now: float) -> None:
        """Note the rounds of a job's tasks whose time has come."""
        known, data = await self.task_list(name)
        due = [
            TaskChange(task=task, recrawl=number)
            for task, standing in task_states(known.entries).items()
            if (number := standing.due_recrawl(now)) is not None
        ]
        if due:
            known.entries += due
            await self.records.swap("tasks", name, data, msgspec.json.encode(known))


def _no_task(job: str, task: str) -> Missing:
    return Missing(f"job {job!r} has no task {task!r}", remedy="GET .../tasks lists them")
