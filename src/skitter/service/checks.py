"""Checks of what callers ask for, before any of it is kept."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from cronsim import CronSim, CronSimError

from skitter.errors import SkitterError
from skitter.recipe.plan import make_plan
from skitter.recipe.source import Source
from skitter.service.errors import Refusal
from skitter.service.ground import check_settings
from skitter.service.nouns import Recipe
from skitter.tasks.recipe_task import RecipeTask

_CRON_FIELDS = 5


def next_start(schedule: str, now: float) -> float | None:
    """Return the next time of a schedule after ``now``; ``None`` without one. Raises :class:`Refusal`."""
    if not schedule:
        return None
    try:
        if len(schedule.split()) != _CRON_FIELDS:
            raise CronSimError("it has not five fields")  # noqa: TRY301 - told like any other fault of it
        return next(CronSim(schedule, datetime.fromtimestamp(now, UTC))).timestamp()
    except (CronSimError, StopIteration, ValueError) as error:
        raise Refusal(
            f"{schedule!r:.100} is no schedule: {error or 'it never comes'}",
            remedy="write five cron fields (UTC), such as 30 4 * * 1-5",
            field="schedule",
        ) from None


def file_of(recipe: Recipe) -> str:
    """Return what a recipe is called in messages."""
    return f"{recipe.name}.{recipe.syntax}"


def check_recipe(recipe: Recipe, arguments: dict[str, Any] | None) -> None:
    """Find out whether a recipe can be run by a caller; with ``None``, whatever its variables.

    Raises :class:`~skitter.recipe.problems.RecipeError`, or :class:`Refusal` for what only operators may say.
    """
    plan = make_plan(
        Source.of_text(recipe.text, file_of(recipe)), arguments or {}, complete=arguments is not None
    )
    check_settings(plan.recipe.settings, "settings")
    if plan.recipe.outputs:
        raise Refusal(
            f"recipe {recipe.name!r} names outputs, which belong to whoever runs the nodes",
            remedy="leave outputs out; GET /jobs/NAME/items gives the items",
            field="outputs",
        )


def check_task(recipe: Recipe, arguments: dict[str, Any]) -> str:
    """Return the name of the task that a recipe becomes. Raises as :func:`check_recipe`."""
    check_recipe(recipe, arguments)
    task = RecipeTask(Source.of_text(recipe.text, file_of(recipe)), arguments)
    if task.stamp.reloads:
        raise Refusal(
            f"recipe {recipe.name!r} reloads, which a task of a service cannot",
            remedy="give it a job of its own, with a schedule",
            field="recipe",
        )
    return task.name


def naming(field: str, call: Callable[[], object]) -> None:
    """Call; an error of the user is told with the field that it is about."""
    try:
        call()
    except Refusal:
        raise
    except SkitterError as error:
        raise Refusal(str(error), remedy=error.remedy, field=field[:100]) from None
