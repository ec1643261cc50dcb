"""``skitter status`` and ``skitter top``: look at one job, or at all, once or for as long as somebody watches."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from skitter.cli.control import folder_of
from skitter.cli.options import frontier_option, job_argument, json_option
from skitter.cli.say import complain, say
from skitter.errors import SkitterError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from skitter.run.control import JobStatus
    from skitter.run.job import JobFolder

_interval = click.option(
    "--interval", type=click.FloatRange(min=0.1), default=1.0, show_default=True, metavar="SECONDS",
    help="Between two looks.",
)  # fmt: skip


@click.command()
@job_argument
@click.option("--watch", "-w", is_flag=True, help="Look again and again; q or Ctrl-C ends it.")
@_interval
@json_option
@frontier_option
def status(job: str, watch: bool, interval: float, as_json: bool, frontier: str | None) -> None:
    """Show how far a job is, and who works on it. Changes nothing.

    --json prints one JSON object; with --watch, one a line.
    """
    from skitter.cli.tables import status_lines, to_json, to_json_line
    from skitter.run.control import job_status

    folder = folder_of(job, frontier)
    if not watch:
        found = asyncio.run(job_status(folder))
        click.echo(to_json(found) if as_json else status_lines(found))
        return

    async def look() -> list[JobStatus]:
        return [await job_status(folder)]

    if as_json or not sys.stdout.isatty():
        write = to_json_line if as_json else status_lines
        asyncio.run(_lines(look, interval, write))
        return
    from skitter.cli.live import watch_jobs

    asyncio.run(watch_jobs(look, interval, detailed=True))


async def _lines(
    look: Callable[[], Awaitable[list[JobStatus]]], interval: float, write: Callable[[JobStatus], str]
) -> None:
    """Print a look at a job, again and again until it ends or is interrupted.

    Once there was something to see, a server that is away is told once and waited for.
    """
    from skitter.frontier.contract import NoSuchJob

    seen, trouble = False, ""
    while True:
        try:
            jobs = await look()
        except NoSuchJob:
            raise
        except SkitterError as error:
            if not seen:
                raise
            if str(error) != trouble:
                complain(str(error), "looked for again, Ctrl-C ends it")
            jobs, trouble = [], str(error)
        else:
            seen, trouble = True, ""
        for found in jobs:
            click.echo(write(found))
            sys.stdout.flush()
            if not found.live:
                return
        await asyncio.sleep(interval)


@click.command()
@_interval
@json_option
@frontier_option
def top(interval: float, as_json: bool, frontier: str | None) -> None:
    """Watch all jobs of this folder, or of a shared frontier: a live table; q or Ctrl-C ends it.

    Printed once where standard output is no terminal.
    """
    from skitter.cli.tables import problem_lines, to_json, top_lines

    async def look() -> list[JobStatus]:
        from skitter.run.control import job_statuses

        return await job_statuses(await _jobs(frontier))

    if as_json or not sys.stdout.isatty():
        found = asyncio.run(look())
        click.echo(to_json(found) if as_json else top_lines(found))
        for line in problem_lines(found):
            say(line)
        return
    from skitter.cli.live import watch_jobs

    asyncio.run(watch_jobs(look, interval, detailed=False))


async def _jobs(frontier: str | None) -> list[JobFolder]:
    from skitter.run.job import all_jobs

    if frontier is None:
        return list(all_jobs())
    from skitter.run.control import jobs_on

    return await jobs_on(frontier)
