"""``skitter task``: the tasks of a job that holds many, also while it runs."""

from __future__ import annotations

from pathlib import Path

import click

from skitter.cli.options import pairs
from skitter.cli.say import aligned, say
from skitter.errors import UsageError

_book = click.argument("book")


@click.group()
def task() -> None:
    """Work on a book of tasks: `skitter run skitter.tasks.book_spider -a book=BOOK` runs them."""


@task.command()
@_book
@click.argument("files", metavar="RECIPE...", nargs=-1, required=True)
@click.option(
    "--argument", "-a", "arguments", multiple=True, metavar="NAME=VALUE", help="A variable. Repeatable."
)
def add(book: str, files: tuple[str, ...], arguments: tuple[str, ...]) -> None:
    """Add recipes as tasks. A job that watches the book takes them at once."""
    from skitter.tasks.book import TaskBook

    for file in files:
        try:
            text = Path(file).read_text("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{file} cannot be read: {error}", remedy="name a recipe's file") from None
        name = TaskBook(book).add(text, file, dict(pairs("-a", arguments)))
        say(f"added {name}")


@task.command()
@_book
@click.argument("name")
def close(book: str, name: str) -> None:
    """Close a task: what is queued of it is dropped."""
    from skitter.tasks.book import TaskBook

    TaskBook(book).close(name)
    say(f"closed {name}")


@task.command("list")
@_book
def list_tasks(book: str) -> None:
    """List the tasks of a book."""
    from skitter.tasks.book import TaskBook

    entries = TaskBook(book).entries()
    closed = {entry.task for entry in entries if entry.closed}
    rows = [
        (entry.task, "closed" if entry.task in closed else "open", entry.file)
        for entry in entries
        if entry.text
    ]
    if rows:
        click.echo(aligned([("TASK", "STATE", "RECIPE"), *rows]))
