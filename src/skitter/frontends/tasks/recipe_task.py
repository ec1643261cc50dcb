"""RecipeTask: a recipe as one of the tasks of a job."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from skitter.frontends.recipe.compiled_recipe import compile_recipe
from skitter.frontends.recipe.source import RecipeProblem, RecipeSource
from skitter.frontends.recipe.spider import RecipeRunner, request_defaults_of
from skitter.frontends.tasks.changes import TaskChange, check_schedule
from skitter.frontends.tasks.task import Task
from skitter.politeness import HostLimits
from skitter.request import Request
from skitter.response import Response
from skitter.settings import build_settings
from skitter.worker.hooks import HookAction

_LIMITS = HostLimits.__struct_fields__
_TASK_SETTINGS = frozenset(
    [*_LIMITS, "depth_limit", "fetcher", "headers", "proxies", "user_agent", "user_agents"]
)
"""Settings that a single task can have. All others belong to the job."""


class RecipeTask(Task):
    """A task that follows a recipe. Settings of the recipe, such as its delay and proxies, apply to the task only.

    ``outputs``
        Outputs of its items. ``None``: the outputs of the recipe.
    ``scheduled``
        Whether its pages are fetched once in each recrawl of a schedule.

    Raises :class:`~skitter.frontends.recipe.source.RecipeError` for a setting that only a whole job can have.
    """

    def __init__(
        self,
        source: RecipeSource,
        arguments: Mapping[str, Any] | None = None,
        *,
        outputs: Sequence[str] | None = None,
        scheduled: bool = False,
    ) -> None:
        compiled = compile_recipe(source, arguments)
        if problems := [
            RecipeProblem(
                ("settings", name), "is a setting of a job, not of a task", "set it for the job: -s"
            )
            for name in compiled.recipe.settings.keys() - _TASK_SETTINGS
        ]:
            raise source.error(problems)
        own_settings = compiled.recipe.settings
        settings = build_settings(own_settings)
        fetcher = own_settings.get("fetcher", "")
        super().__init__(
            compiled.name,
            start=(),
            rules=dict.fromkeys(compiled.pages, _read_by_recipe),
            limits=HostLimits(**{name: getattr(settings, name) for name in _LIMITS if name in own_settings}),
            fetcher=fetcher,
            user_agents=settings.user_agents,
            proxies=settings.proxies,
            allowed_domains=compiled.allowed_domains,
            reload=compiled.recipe.reload,
            outputs=compiled.recipe.outputs if outputs is None else outputs,
        )
        agent = {"User-Agent": settings.user_agent} if "user_agent" in own_settings else {}
        self.defaults = request_defaults_of(
            compiled,
            name=self.name,
            allowed_domains=compiled.allowed_domains,
            headers={**agent, **settings.headers},
            fetcher=fetcher,
            depth_limit=settings.depth_limit,
            scheduled=scheduled,
        )
        self._runner = RecipeRunner(compiled)

    @classmethod
    def of_file(cls, path: str | Path, arguments: Mapping[str, Any] | None = None) -> RecipeTask:
        """Create the task from a recipe's file."""
        return cls(RecipeSource.of_file(path), arguments)

    @classmethod
    def of_change(cls, change: TaskChange) -> RecipeTask:
        """Create the task that a line of a task file adds."""
        source = RecipeSource.of_text(change.text, change.file)
        task = cls(source, change.variables, outputs=change.outputs, scheduled=bool(change.schedule))
        task.key = change.task
        task.defaults = replace(task.defaults, name=task.key)
        return task

    async def start_requests(self) -> AsyncIterator[Request]:
        """Yield the first requests of the recipe."""
        for request in await self._runner.first():
            yield request

    async def read(
        self,
        response: Response,
        rule: str,
        data: Mapping[str, Any],
        run: Callable[..., Any],
        *,
        page: str = "",
        sitemap: int | None = None,
    ) -> list[Any]:
        """Read a page of the kind that its request names."""
        del run
        return await self._runner.read(response, page or rule, data, sitemap)

    async def step(self, name: str, response: Response) -> Iterable[Request]:
        """Perform a step of the recipe's login."""
        return await self._runner.step(name, response)

    def after_request(self, response: Response) -> HookAction | None:
        """Pass the response to the login form to its callback."""
        return self._runner.after_request(response)

    async def close(self) -> None:
        """Close the resources of the recipe in this process."""
        await self._runner.close()


def new_task_change(
    source: RecipeSource,
    text: str,
    variables: dict[str, Any],
    *,
    outputs: Sequence[str] = (),
    schedule: str = "",
) -> TaskChange:
    """Return the line of a task file that adds a recipe as a task.

    Raises :class:`~skitter.frontends.recipe.source.RecipeError` for a recipe that cannot be a task, and
    :class:`~skitter.errors.UsageError` for an invalid schedule.
    """
    task = RecipeTask(source, variables)
    check_schedule(schedule, task.name, task.reload)
    return TaskChange(
        task=task.name, file=source.name, text=text, variables=variables, outputs=list(outputs or task.outputs),
        reload=task.reload, schedule=schedule, at=time.time(),
    )  # fmt: skip


def _read_by_recipe(_context: object) -> None:
    """Serve as a placeholder for a kind of page among the rules; :meth:`RecipeTask.read` reads the page."""
