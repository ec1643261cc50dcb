"""Tasks: for operators who run many small crawls in one job, each with its own rules, limits, cookies and priority.

Define tasks in Python (:class:`Task`), or as recipes in a task file that can grow while the job runs
(:class:`TaskFileSpider`, ``skitter task``).
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skitter.frontends.tasks.recipe_task import RecipeTask
    from skitter.frontends.tasks.spider import TaskSpider
    from skitter.frontends.tasks.task import RuleContext, Task
    from skitter.frontends.tasks.task_file import TaskFile, TaskFileSpider

__all__ = ["RecipeTask", "RuleContext", "Task", "TaskFile", "TaskFileSpider", "TaskSpider"]

_MODULES = {
    "RecipeTask": "recipe_task",
    "RuleContext": "task",
    "Task": "task",
    "TaskFile": "task_file",
    "TaskFileSpider": "task_file",
    "TaskSpider": "spider",
}


def __getattr__(name: str) -> object:
    """Import a public name on first use: tasks in Python do not need the packages of recipes."""
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
