"""RecipeTask: a recipe as one of the tasks of a job."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from skitter.errors import UsageError
from skitter.frontends.recipe.follower import Follower
from skitter.frontends.recipe.plan import Plan, make_plan
from skitter.frontends.recipe.problems import Problem
from skitter.frontends.recipe.source import Source
from skitter.frontends.recipe.spider import stamp_of
from skitter.frontends.tasks.entry import Entry
from skitter.frontends.tasks.schedule import Schedule
from skitter.frontends.tasks.task import Task
from skitter.politeness import HostLimits
from skitter.request import Request
from skitter.response import Response
from skitter.settings import build_settings
from skitter.worker.hooks import HookAction

_OF_A_TASK = frozenset(
    {"delay", "jitter", "rates", "concurrency_per_slot", "depth_limit", "headers", "user_agent"}
)
"""Settings that can be those of one task; all others are the job's."""


class RecipeTask(Task):
    """Follows a recipe. Its settings for delay, rates, depth and headers become limits of the task alone.

    ``outputs``: where its items go; ``None``: where the recipe says. ``rounds``: it is fetched anew in each round that
    its book begins.

    Raises :class:`~skitter.frontends.recipe.problems.RecipeError` for a setting that only a whole job can have.
    """

    def __init__(
        self,
        source: Source,
        arguments: Mapping[str, Any] | None = None,
        *,
        outputs: Sequence[str] | None = None,
        rounds: bool = False,
    ) -> None:
        plan = make_plan(source, arguments)
        _check(plan, source)
        super().__init__(
            plan.name,
            root=(),
            trunk=dict.fromkeys(plan.pages, _read_by_plan),
            limits=_limits_of(plan),
            outputs=plan.recipe.outputs if outputs is None else outputs,
        )
        settings = build_settings(plan.recipe.settings)
        agent = {"User-Agent": settings.user_agent} if "user_agent" in plan.recipe.settings else {}
        self.allowed_domains = list(plan.allowed_domains)
        self.stamp = stamp_of(
            plan,
            self.name,
            bounds=plan.allowed_domains,
            headers={**agent, **settings.headers},
            depth_limit=settings.depth_limit,
            rounds=rounds,
        )
        self.reload = plan.recipe.reload
        self._follower = Follower(plan)

    @classmethod
    def of_file(cls, path: str | Path, arguments: Mapping[str, Any] | None = None) -> RecipeTask:
        """Return the task of a recipe's file."""
        return cls(Source.of_file(path), arguments)

    @classmethod
    def of_entry(cls, entry: Entry) -> RecipeTask:
        """Return the task that a line of a book adds."""
        source = Source.of_text(entry.text, entry.file)
        task = cls(source, entry.variables, outputs=entry.outputs, rounds=bool(entry.schedule))
        task.paused, task.closed = bool(entry.paused), entry.closed
        return task

    async def roots(self) -> AsyncIterator[Request]:
        """Give the first requests of the recipe."""
        for request in await self._follower.first():
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
        return await self._follower.read(response, page or rule, data, sitemap)

    async def step(self, name: str, response: Response) -> Iterable[Request]:
        """Do a step of the recipe's login."""
        return await self._follower.step(name, response)

    def after_request(self, response: Response) -> HookAction | None:
        """Let the answer to the login form come to its callback."""
        return self._follower.after_request(response)

    async def close(self) -> None:
        """Give back what the recipe holds in this process."""
        await self._follower.close()


def new_entry(
    source: Source,
    text: str,
    variables: dict[str, Any],
    *,
    outputs: Sequence[str] = (),
    schedule: str = "",
) -> Entry:
    """Return the line of a book that adds a recipe as a task.

    Raises :class:`~skitter.frontends.recipe.problems.RecipeError` for a recipe that cannot be one, and
    :class:`~skitter.errors.UsageError` for a schedule that is none.
    """
    if schedule:
        Schedule(schedule)
    task = RecipeTask(source, variables)
    if schedule and task.reload is not None:
        raise UsageError(
            f"task {task.name!r} has both reload and a schedule", remedy="leave out one of the two"
        )
    return Entry(
        task=task.name, file=source.name, text=text, variables=variables, outputs=list(outputs or task.outputs),
        reload=task.reload, schedule=schedule, at=time.time(),
    )  # fmt: skip


def _check(plan: Plan, source: Source) -> None:
    problems = [
        Problem(("settings", name), "is a setting of a whole job, not of one task", "set it for the job: -s")
        for name in plan.recipe.settings.keys() - _OF_A_TASK
    ]
    if problems:
        raise source.refuse(problems)


def _limits_of(plan: Plan) -> HostLimits:
    given = plan.recipe.settings
    settings = build_settings(given)
    return HostLimits(
        delay=settings.delay,
        jitter=settings.jitter if "jitter" in given else None,
        rates=settings.rates,
        concurrency_per_slot=settings.concurrency_per_slot if "concurrency_per_slot" in given else None,
    )


def _read_by_plan(_context: object) -> None:
    """Stand for a kind of page in the trunk; :meth:`RecipeTask.read` reads it."""
