"""RecipeChecker: checks the recipes of callers in a process with limits, because a recipe can be built to exhaust a parser.

The checks run in ``python -m skitter.service.recipe_check SECONDS``. This process ends with its node.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import Any

import msgspec

from skitter._utils.limited_process import LimitedProcess, ProcessDied, limit_memory, serve
from skitter.errors import SkitterError
from skitter.frontends.recipe.compiled_recipe import compile_recipe
from skitter.frontends.recipe.source import RecipeError, RecipeSource
from skitter.frontends.tasks.changes import TaskChange
from skitter.frontends.tasks.python_task import new_python_change
from skitter.frontends.tasks.recipe_task import new_task_change
from skitter.service.config import check_settings, child_environment
from skitter.service.errors import ApiError, naming_field
from skitter.service.models import StoredRecipe, next_start

_SECONDS = 10.0
"""Seconds of CPU time that a check may take."""
_MEMORY = 1 << 30
"""Memory that the process may use in addition to its code, in bytes."""
_MAX_LINES = 100
"""Maximum number of reported errors of a recipe."""


class RecipeCall(msgspec.Struct):
    """A recipe or a Python task to check. Without arguments, the variables are not checked."""

    recipe: StoredRecipe
    arguments: dict[str, Any] | None = None
    task_schedule: str | None = None
    """If given, make a task with this schedule."""
    spider: str = ""
    """The spider that defines a task named like the recipe."""


class RecipeResult(msgspec.Struct, omit_defaults=True):
    """What the check found: nothing, a new task, or an error."""

    task: TaskChange | None = None
    error: str = ""
    remedy: str = ""
    field: str = ""
    lines: list[str] = []
    """All errors within the recipe, if it is invalid."""


class RecipeChecker:
    """Checks recipes, one at a time."""

    def __init__(self) -> None:
        self._process = LimitedProcess(
            "skitter.service.recipe_check", _SECONDS, environment=child_environment()
        )

    async def check(self, recipe: StoredRecipe, arguments: dict[str, Any] | None) -> None:
        """Check that a caller may run a recipe. With ``None``, the variables are not checked.

        Raises :class:`~skitter.frontends.recipe.source.RecipeError`, and :class:`ApiError` for fields reserved to the
        operator, or a recipe that exceeds the limits.
        """
        await asyncio.to_thread(self._call, RecipeCall(recipe, arguments))

    async def new_task(self, recipe: StoredRecipe, arguments: dict[str, Any], schedule: str) -> TaskChange:
        """Check a recipe and return the line that makes it a task. Raises the same errors."""
        task = await asyncio.to_thread(self._call, RecipeCall(recipe, arguments, schedule))
        assert task is not None
        return task

    async def new_python_task(self, spider: str, task: str, schedule: str) -> TaskChange:
        """Return the line that adds a task of a spider. The spider's code runs in a separate process. Raises :class:`ApiError`."""
        call = RecipeCall(StoredRecipe(name=task, text=""), None, schedule, spider)
        checker = RecipeChecker()  # imports the file as it is now
        try:
            found = await asyncio.to_thread(checker._call, call)
        finally:
            await asyncio.to_thread(checker.close)
        assert found is not None
        return found

    def _call(self, call: RecipeCall) -> TaskChange | None:
        try:
            result = msgspec.json.decode(self._process.call(call), type=RecipeResult)
        except ProcessDied as error:
            if call.spider:
                what, remedy = "spider", "let its file define classes and tasks only, and wait for nothing"
            else:
                what, remedy = "recipe", "make it smaller and simpler"
            raise ApiError(
                f"{what} {call.spider or call.recipe.name!r} cannot be checked: {error}",
                remedy=remedy,
                field=what,
            ) from None
        except (OverflowError, TypeError) as error:
            raise ApiError(str(error), remedy="correct the arguments", field="arguments") from None
        if result.lines:
            raise RecipeError(result.lines, remedy=result.remedy, field=result.field)
        if result.error:
            raise ApiError(result.error, remedy=result.remedy, field=result.field)
        return result.task

    def close(self) -> None:
        """End the process."""
        self._process.close()


# --- in the process ------------------------------------------------------------------------------------------


def _check(data: bytes) -> RecipeResult:
    call = msgspec.json.decode(data, type=RecipeCall)
    try:
        return RecipeResult(_checked(call))
    except RecipeError as error:
        return RecipeResult(remedy=error.remedy, field=error.field, lines=error.lines[:_MAX_LINES])
    except SkitterError as error:
        return RecipeResult(error=str(error), remedy=error.remedy, field=error.field)
    except (RecursionError, MemoryError) as error:
        text = f"the recipe is too large or nested too deeply ({type(error).__name__})"
        return RecipeResult(error=text, remedy="make it smaller and simpler", field="recipe")


def _checked(call: RecipeCall) -> TaskChange | None:
    if call.spider:
        assert call.task_schedule is not None
        with contextlib.redirect_stdout(sys.stderr):  # standard output carries the replies
            return new_python_change(call.spider, call.recipe.name, schedule=call.task_schedule)
    recipe, arguments = call.recipe, call.arguments
    source = RecipeSource.of_text(recipe.text, f"{recipe.name}.{recipe.syntax}")
    plan = compile_recipe(source, arguments or {}, complete=arguments is not None)
    check_settings(plan.recipe.settings, "settings")
    if plan.recipe.outputs:
        raise ApiError(
            f"recipe {recipe.name!r} names outputs, which only the operator of the service may choose",
            remedy="remove `outputs`; read the items with GET /jobs/NAME/items",
            field="outputs",
        )
    schedule = call.task_schedule
    if schedule is None:
        return None
    naming_field("schedule", lambda: next_start(schedule, 0.0))
    return new_task_change(source, recipe.text, arguments or {}, schedule=schedule)


def main() -> None:
    """Check recipes until the end of the input."""
    limit_memory(_MEMORY)
    serve(_check)


if __name__ == "__main__":
    main()
