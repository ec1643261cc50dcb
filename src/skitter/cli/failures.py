"""``skitter failures``: look at the requests given up, try them again, or forget them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from skitter.cli.control import AsJson, JobName, folder_of
from skitter.cli.say import say
from skitter.errors import UsageError

if TYPE_CHECKING:
    from skitter.engine.job import JobFolder
    from skitter.frontier.base import DeadLetter

app = typer.Typer(no_args_is_help=True, help="Requests given up: list, show, retry, drop.")

_AT_ONCE = 1_000

Ids = Annotated[
    list[int] | None,
    typer.Option("--id", metavar="N", show_default=False, help="Only this one. May be given several times."),
]
Kind = Annotated[
    str | None,
    typer.Option(
        metavar="KIND",
        help="Only errors of this kind, such as timeout, status/404, or status for all of them.",
    ),
]


@app.command("list")
def list_(job: JobName, *, ids: Ids = None, kind: Kind = None, as_json: AsJson = False) -> None:
    """List the requests that a job gave up, oldest first."""
    from skitter.cli.tables import letter_fields, letter_lines, to_json  # noqa: PLC0415 - as everywhere here

    letters = asyncio.run(_find(folder_of(job), ids, kind))
    if as_json:
        typer.echo(to_json([letter_fields(letter) for letter in letters]))
    elif letters:
        typer.echo(letter_lines(letters))
    else:
        say(f"job {job} has no such failure")


@app.command()
def show(job: JobName, *, ids: Ids = None, kind: Kind = None, as_json: AsJson = False) -> None:
    """Show everything about requests that a job gave up."""
    from skitter.cli.tables import letter_fields, letter_text, to_json  # noqa: PLC0415 - as everywhere here

    letters = asyncio.run(_find(folder_of(job), ids, kind))
    if as_json:
        typer.echo(to_json([letter_fields(letter) for letter in letters]))
    elif letters:
        typer.echo("\n\n".join(letter_text(letter) for letter in letters))
    else:
        say(f"job {job} has no such failure")


@app.command()
def retry(job: JobName, *, ids: Ids = None, kind: Kind = None) -> None:
    """Put requests back in the queue, all by default, with fresh attempts."""
    count, live = asyncio.run(_settle(folder_of(job), ids, kind, again=True))
    go_on = "" if live or not count else f"; `skitter resume {job}` fetches them"
    say(f"{count} requests of job {job} are queued again{go_on}")


@app.command()
def drop(job: JobName, *, ids: Ids = None, kind: Kind = None) -> None:
    """Forget requests, all by default. Links to them are still known and not followed again."""
    count, _ = asyncio.run(_settle(folder_of(job), ids, kind, again=False))
    say(f"{count} failures of job {job} are forgotten")


async def _settle(
    folder: JobFolder, ids: list[int] | None, kind: str | None, *, again: bool
) -> tuple[int, bool]:
    from skitter.cli.reach import open_frontier  # noqa: PLC0415 - `skitter --help` needs no engine

    chosen = None
    if ids or kind is not None:
        chosen = [letter.id for letter in await _find(folder, ids, kind)]
    async with open_frontier(folder) as (frontier, live):
        act = frontier.replay if again else frontier.drop
        return await act(chosen), live


async def _find(folder: JobFolder, ids: list[int] | None, kind: str | None) -> list[DeadLetter]:
    """Read the dead letters that are meant. Raises :class:`~skitter.errors.UsageError` for an unknown id."""
    from skitter.cli.reach import dead_letters  # noqa: PLC0415 - `skitter --help` needs no engine

    found: list[DeadLetter] = []
    after = 0
    while batch := await dead_letters(folder, after, _AT_ONCE):
        found += batch
        after = batch[-1].id
    if unknown := set(ids or ()) - {letter.id for letter in found}:
        raise UsageError(
            f"job {folder.job!r} has no failure {min(unknown)}",
            remedy=f"`skitter failures list {folder.job}` lists them",
        )
    return [letter for letter in found if (not ids or letter.id in ids) and _is_of_kind(letter, kind)]


def _is_of_kind(letter: DeadLetter, kind: str | None) -> bool:
    found = letter.error.partition(":")[0]
    return kind is None or found == kind or found.startswith(f"{kind}/")
