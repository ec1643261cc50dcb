"""Checks of what callers ask for, before any of it is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skitter.errors import SkitterError
from skitter.frontends.recipe.compiled_recipe import compile_recipe
from skitter.frontends.recipe.source import RecipeSource
from skitter.frontends.tasks.changes import Schedule, TaskChange
from skitter.frontends.tasks.recipe_task import new_task_change
from skitter.service.errors import Refusal
from skitter.service.ground import check_settings
from skitter.service.nouns import Recipe


def next_start(schedule: str, now: float) -> float | None:
    """Return the next time of a schedule after ``now``; ``None`` without one.

    Raises :class:`~skitter.errors.UsageError` for a text that is no schedule.
    """
    return Schedule(schedule).next(now) if schedule else None


def file_of(recipe: Recipe) -> str:
    """Return what a recipe is called in messages."""
    return f"{recipe.name}.{recipe.syntax}"


def check_recipe(recipe: Recipe, arguments: dict[str, Any] | None) -> None:
    """Find out whether a recipe can be run by a caller; with ``None``, whatever its variables.

    Raises :class:`~skitter.frontends.recipe.source.RecipeError`, or :class:`Refusal` for what only operators may say.
    """
    plan = compile_recipe(
        RecipeSource.of_text(recipe.text, file_of(recipe)), arguments or {}, complete=arguments is not None
    )
    check_settings(plan.recipe.settings, "settings")
    if plan.recipe.outputs:
        raise Refusal(
            f"recipe {recipe.name!r} names outputs, which belong to whoever runs the nodes",
            remedy="leave outputs out; GET /jobs/NAME/items gives the items",
            field="outputs",
        )


def check_task(recipe: Recipe, arguments: dict[str, Any], schedule: str) -> TaskChange:
    """Return the line that makes a recipe a task. Raises as :func:`check_recipe`."""
    check_recipe(recipe, arguments)
    naming("schedule", lambda: next_start(schedule, 0.0))
    source = RecipeSource.of_text(recipe.text, file_of(recipe))
    return new_task_change(source, recipe.text, arguments, schedule=schedule)


def naming(field: str, call: Callable[[], object]) -> None:
    """Call; an error of the user is told with the field that it is about."""
    try:
        call()
    except Refusal:
        raise
    except SkitterError as error:
        raise Refusal(str(error), remedy=error.remedy, field=field[:100]) from None
