"""``skitter task``: the tasks of a job that holds many, also while it runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from skitter.cli.console import aligned, say
from skitter.cli.options import pairs
from skitter.errors import UsageError

if TYPE_CHECKING:
    from skitter.frontends.tasks.entry import type_of_change

_book = click.argument("book")


@click.group()
def task() -> None:
    """Work on a book of tasks: `skitter run skitter.frontends.tasks.book_spider -a book=BOOK` runs them."""


@task.command()
@_book
@click.argument("files", metavar="RECIPE...", nargs=-1, required=True)
@click.option(
    "--argument", "-a", "arguments", multiple=True, metavar="NAME=VALUE", help="A variable. Repeatable."
)
@click.option(
    "--output", "-o", "outputs", multiple=True, metavar="OUT",
    help="Where their items go, and only there; default: where the recipe says, or the outputs of the job. Repeatable.",
)  # fmt: skip
@click.option(
    "--schedule",
    default="",
    metavar="CRON",
    help="Begin a round at these times: five cron fields, UTC; none before.",
)
def add(
    book: str, files: tuple[str, ...], arguments: tuple[str, ...], outputs: tuple[str, ...], schedule: str
) -> None:
    """Add recipes as tasks. A job that watches the book takes them at once."""
    from skitter.frontends.tasks.book import TaskBook

    for file in files:
        try:
            text = Path(file).read_text("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{file} cannot be read: {error}", remedy="name a recipe's file") from None
        name = TaskBook(book).add(
            text, file, dict(pairs("-a", arguments)), outputs=outputs, schedule=schedule
        )
        say(f"added {name}")


def _change(book: str, name: str, change: type_of_change, done: str) -> None:
    from skitter.frontends.tasks.book import TaskBook

    TaskBook(book).change(name, change)
    say(f"{done} {name}")


@task.command()
@_book
@click.argument("name")
def pause(book: str, name: str) -> None:
    """Let nothing more of a task be fetched until it is resumed; the other tasks go on."""
    _change(book, name, "pause", "paused")


@task.command()
@_book
@click.argument("name")
def resume(book: str, name: str) -> None:
    """End the pause of a task."""
    _change(book, name, "resume", "resumed")


@task.command()
@_book
@click.argument("name")
def close(book: str, name: str) -> None:
    """Close a task: what is queued of it is dropped."""
    _change(book, name, "close", "closed")


@task.command("list")
@_book
def list_tasks(book: str) -> None:
    """List the tasks of a book."""
    from skitter.frontends.tasks.book import TaskBook
    from skitter.frontends.tasks.entry import standings
    from skitter.secrets import shown_url

    tasks = TaskBook(book)
    tasks.check_exists()
    rows = [
        (name, one.state, one.schedule or "-", ", ".join(map(shown_url, one.outputs)) or "-", one.file)
        for name, one in standings(tasks.entries()).items()
    ]
    if rows:
        click.echo(aligned([("TASK", "STATE", "SCHEDULE", "OUTPUT", "RECIPE"), *rows]))
