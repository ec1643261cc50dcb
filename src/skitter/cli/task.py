"""``skitter task``: manages the tasks of a job, even while it runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from skitter.cli.console import aligned, say
from skitter.cli.options import complete_file, pairs
from skitter.errors import UsageError

if TYPE_CHECKING:
    from skitter.frontends.tasks.changes import ChangeKind

_task_file = click.argument("task_file", metavar="FILE", shell_complete=complete_file)


@click.group(no_args_is_help=False)
def task() -> None:
    """Manage a task file. The spider skitter.frontends.tasks:TaskFileSpider runs its tasks (argument task_file=FILE)."""


@task.command()
@_task_file
@click.argument("files", metavar="RECIPE...", nargs=-1, required=True, shell_complete=complete_file)
@click.option(
    "--spider", default="", metavar="SPIDER", shell_complete=complete_file,
    help="Add tasks that this TaskSpider defines in Python: FILE.py:Class or package.module:Class. Name the tasks instead of"
    " recipes.",
)  # fmt: skip
@click.option(
    "--argument",
    "-a",
    "arguments",
    multiple=True,
    metavar="NAME=VALUE",
    help="Variable of the recipes. Repeatable.",
)
@click.option(
    "--output", "-o", "outputs", multiple=True, metavar="OUT", shell_complete=complete_file,
    help="Output for the items of the tasks. Repeatable. [default: the outputs of the recipe, or else of the job]",
)  # fmt: skip
@click.option(
    "--schedule",
    default="",
    metavar="CRON",
    help="Start a recrawl at these times only: five cron fields, UTC.",
)
def add(
    task_file: str,
    files: tuple[str, ...],
    spider: str,
    arguments: tuple[str, ...],
    outputs: tuple[str, ...],
    schedule: str,
) -> None:
    """Add recipes, or tasks of a spider, as tasks. A job that watches the task file starts them within a second."""
    from skitter.frontends.tasks.task_file import TaskFile

    if spider and arguments:
        raise UsageError("a task in Python takes no arguments", remedy="leave out -a", field="arguments")
    for file in files:
        if spider:
            TaskFile(task_file).add_python(spider, file, outputs=outputs, schedule=schedule)
            say(f"added {file}")
            continue
        try:
            text = Path(file).read_text("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"{file} cannot be read: {error}", remedy="check the path of the recipe"
            ) from None
        name = TaskFile(task_file).add(text, file, pairs("-a", arguments), outputs=outputs, schedule=schedule)
        say(f"added {name}")


def _change(task_file: str, name: str, change: ChangeKind, done: str) -> None:
    from skitter.frontends.tasks.task_file import TaskFile

    TaskFile(task_file).change(name, change)
    say(f"{done} {name}")


@task.command()
@_task_file
@click.argument("name")
def pause(task_file: str, name: str) -> None:
    """Pause a task: fetch nothing for it until it is resumed. The other tasks continue."""
    _change(task_file, name, "pause", "paused")


@task.command()
@_task_file
@click.argument("name")
def resume(task_file: str, name: str) -> None:
    """End the pause of a task."""
    _change(task_file, name, "resume", "resumed")


@task.command()
@_task_file
@click.argument("name")
def close(task_file: str, name: str) -> None:
    """Close a task and drop its waiting requests. Its name can be used again."""
    _change(task_file, name, "close", "closed")


@task.command("list")
@_task_file
def list_tasks(task_file: str) -> None:
    """List the tasks of a task file."""
    from skitter.frontends.tasks.changes import tasks_by_name
    from skitter.frontends.tasks.task_file import TaskFile
    from skitter.secrets import shown_url

    tasks = TaskFile(task_file)
    tasks.check_exists()
    rows = [
        (name, task.state, task.schedule or "-", ", ".join(map(shown_url, task.outputs)) or "-", task.file)
        for name, task in tasks_by_name(tasks.changes()).items()
    ]
    if rows:
        click.echo(aligned([("TASK", "STATE", "SCHEDULE", "OUTPUT", "SOURCE"), *rows]))
