"""``skitter failures``: lists, shows, retries or drops the failed requests of a job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from skitter.cli.console import say
from skitter.cli.options import Command, json_option, with_job
from skitter.errors import UsageError

if TYPE_CHECKING:
    from skitter.frontier.records import DeadLetter
    from skitter.run.job import JobFolder

_BATCH_SIZE = 1_000


def _with_failures(command: Command) -> Command:
    """Add a job, and ids and a kind that select some of its failed requests."""
    ids = click.argument("ids", type=int, nargs=-1, metavar="[ID]...")
    kind = click.option(
        "--kind", metavar="KIND",
        help="Kind of error to select, such as timeout or status/404, or status for all statuses.",
    )  # fmt: skip
    return with_job(ids(kind(command)))


@click.group(no_args_is_help=False)
def failures() -> None:
    """List, show, retry or drop the failed requests of a job."""


@failures.command("list")
@_with_failures
@json_option
async def list_(folder: JobFolder, ids: tuple[int, ...], kind: str | None, as_json: bool) -> None:
    """List the failed requests of a job, oldest first."""
    from skitter.cli.tables import letter_lines

    await _print(folder, ids, kind, as_json=as_json, lines=letter_lines)


@failures.command()
@_with_failures
@json_option
async def show(folder: JobFolder, ids: tuple[int, ...], kind: str | None, as_json: bool) -> None:
    """Show all details of failed requests of a job."""
    from skitter.cli.tables import letter_texts

    await _print(folder, ids, kind, as_json=as_json, lines=letter_texts)


async def _print(
    folder: JobFolder,
    ids: Sequence[int],
    kind: str | None,
    *,
    as_json: bool,
    lines: Callable[[list[DeadLetter]], str],
) -> None:
    from skitter.cli.tables import to_json
    from skitter.observe.dead_letters import letter_fields

    letters, missing = await _find(folder, ids, kind)
    if as_json:
        click.echo(to_json([letter_fields(letter) for letter in letters]))
    elif letters:
        click.echo(lines(letters))
    else:
        say(missing)


@failures.command()
@_with_failures
async def retry(folder: JobFolder, ids: tuple[int, ...], kind: str | None) -> None:
    """Put failed requests (all by default) back into the queue, with new attempts."""
    from skitter.run.job_access import open_frontier

    chosen, missing = await _choose(folder, ids, kind)
    async with open_frontier(folder) as reached:
        count = await reached.frontier.dead_letters.replay(chosen)
    go_on = f"; {folder.how_to_continue()} fetches them" if count and not reached.live else missing
    say(f"queued again: {count}{go_on}")


@failures.command()
@_with_failures
async def drop(folder: JobFolder, ids: tuple[int, ...], kind: str | None) -> None:
    """Drop failed requests, all by default. Their URLs stay known, so links to them are not followed again."""
    from skitter.run.job_access import open_frontier

    chosen, missing = await _choose(folder, ids, kind)
    async with open_frontier(folder) as reached:
        count = await reached.frontier.dead_letters.drop(chosen)
    say(f"dropped: {count}{missing}")


async def _choose(
    folder: JobFolder, ids: Sequence[int], kind: str | None
) -> tuple[Sequence[int] | None, str]:
    """Return the ids of the selected dead letters (``None``: all of the job) and, if there are none, the reason as a suffix."""
    if not ids and kind is None:
        return None, ""
    letters, missing = await _find(folder, ids, kind)
    return [letter.id for letter in letters], missing and f"; {missing}"


async def _find(folder: JobFolder, ids: Sequence[int], kind: str | None) -> tuple[list[DeadLetter], str]:
    """Return the selected dead letters and, if there are none, the reason.

    Raises :class:`~skitter.errors.UsageError` for an unknown id.
    """
    from skitter.observe.dead_letters import DeadLetterFilter
    from skitter.run.job_access import dead_letters

    found: list[DeadLetter] = []
    after = 0
    while batch := await dead_letters(folder, after, _BATCH_SIZE):
        found += batch
        after = batch[-1].id
    if unknown := set(ids) - {letter.id for letter in found}:
        raise UsageError(
            f"job {folder.job!r} has no failure {min(unknown)}",
            remedy=f"`skitter failures list {folder.job}` lists them",
        )
    chosen = DeadLetterFilter(kind)
    letters = [letter for letter in found if (not ids or letter.id in ids) and chosen.includes(letter)]
    if letters:
        return letters, ""
    if not found:
        return [], f"job {folder.job} has no failed request"
    kinds = sorted({letter.error.partition(":")[0] for letter in found})
    return [], f"job {folder.job} has no such failure; its kinds: {', '.join(kinds)}"
