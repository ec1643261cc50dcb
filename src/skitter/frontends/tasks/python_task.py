"""Tasks in Python that a task file adds by name, and the task of each line of a task file."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from skitter.errors import SkitterError, SpiderError, did_you_mean
from skitter.frontends.tasks.changes import TaskChange, check_schedule
from skitter.frontends.tasks.recipe_task import RecipeTask
from skitter.frontends.tasks.spider import TaskSpider
from skitter.frontends.tasks.task import Task
from skitter.request import Request
from skitter.run.job import is_file, split_reference
from skitter.run.loader import load_spider_class

log = logging.getLogger("skitter.frontends.tasks")


class UnloadableTask(Task):
    """Replaces a task that this machine cannot load. Its start and its pages fail; other tasks are not affected."""

    def __init__(self, name: str, error: SkitterError) -> None:
        super().__init__(name, start=(), rules={"": lambda _context: None}, allowed_domains=())
        self._error = error

    async def start_requests(self) -> AsyncIterator[Request]:
        """Raise the error."""
        for request in await self.read():
            yield request

    async def read(self, *_: Any, **_fields: Any) -> list[Any]:
        """Raise the error."""
        raise self._error


def load_task(spider: str, name: str) -> Task:
    """Return a task of a :class:`TaskSpider`. Raises :class:`~skitter.errors.SpiderError` if it does not exist."""
    spider_class = load_spider_class(spider)
    if not issubclass(spider_class, TaskSpider):
        raise SpiderError(
            f"{spider} has no tasks", remedy="derive it from skitter.TaskSpider", field="spider"
        )
    tasks = {task.name: task for task in spider_class.tasks}
    if name not in tasks:
        raise SpiderError(
            f"{spider} has no task {name!r}", remedy=did_you_mean(name, tasks or ["-"]), field="task"
        )
    return tasks[name]


def new_python_change(
    spider: str, task: str, *, outputs: Sequence[str] = (), schedule: str = ""
) -> TaskChange:
    """Return the line of a task file that adds a task in Python.

    Raises :class:`~skitter.errors.SpiderError` if it does not exist, and :class:`~skitter.errors.UsageError` for an invalid
    schedule.
    """
    found = load_task(spider, task)
    check_schedule(schedule, task, found.reload)
    place, class_name = split_reference(spider)
    if is_file(place):
        spider = ":".join(filter(None, (str(Path(place).resolve()), class_name)))
    return TaskChange(
        task=task, spider=spider, outputs=list(outputs or found.outputs), reload=found.reload, schedule=schedule,
        at=time.time(),
    )  # fmt: skip


def task_of_change(change: TaskChange) -> Task:
    """Return the task that a line of a task file adds. Blocks."""
    if change.text:
        return RecipeTask.of_change(change)
    name = change.name or change.task
    try:
        task = load_task(change.spider, name)
    except SkitterError as error:
        log.error("task %s cannot be loaded on this machine: %s", name, error)  # noqa: TRY400 - without a traceback
        task = UnloadableTask(name, error)
    return task.added_by(change)
