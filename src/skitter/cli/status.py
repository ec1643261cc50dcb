"""``skitter status``, ``top``, ``stats``, ``report`` and ``changes``: show the state, the counters and the pages of jobs."""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from skitter.cli.console import complain, say, write_file
from skitter.cli.options import frontier_of_jobs_option, json_option, with_job
from skitter.errors import SkitterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from skitter.run.job import JobFolder
    from skitter.run.job_access import JobStatus

_interval = click.option(
    "--interval", type=click.FloatRange(min=0.1), default=1.0, show_default=True, metavar="SECONDS",
    help="Interval between updates, in seconds.",
)  # fmt: skip


@click.command()
@with_job
@click.option("--watch", "-w", is_flag=True, help="Update the display until q or Ctrl-C.")
@click.option(
    "--plot",
    is_flag=True,
    help="Also show bar charts of states, depths, statuses, errors, refusals and fetch times.",
)
@_interval
@json_option
def status(folder: JobFolder, watch: bool, plot: bool, interval: float, as_json: bool) -> None:
    """Show the state of a job, its progress and its workers.

    --json prints one JSON object. With --watch, it prints one object per line.
    """
    from skitter.cli.tables import status_lines, to_json, to_json_line
    from skitter.run.job_access import job_status

    if not watch:
        found = asyncio.run(job_status(folder))
        if sys.stdout.isatty() and not as_json:
            from skitter.cli.live_view import print_status

            print_status(status_lines(found))
        else:
            click.echo(to_json(found) if as_json else status_lines(found))
        if plot and not as_json and found.counts is not None:
            from skitter.observe.report import chart_lines, charts

            width = shutil.get_terminal_size().columns
            for title, values in charts(found.counts):
                click.echo(f"\n{chart_lines(title, values, width)}")
        return

    if as_json or not sys.stdout.isatty():
        asyncio.run(_print_repeatedly(folder, interval, to_json_line if as_json else status_lines))
        return
    from skitter.cli.live_view import watch_jobs

    async def read_jobs() -> list[JobStatus]:
        return [await job_status(folder)]

    asyncio.run(watch_jobs(read_jobs, interval, detailed=True))


async def _print_repeatedly(folder: JobFolder, interval: float, write: Callable[[JobStatus], str]) -> None:
    """Print the status of a job repeatedly until the job ends or the user interrupts.

    After the first success, an unavailable server is reported once, and the job is read again.
    """
    from skitter.frontier.contract import NoSuchJob
    from skitter.run.job_access import job_status

    seen, trouble = False, ""
    while True:
        try:
            found = await job_status(folder)
        except SkitterError as error:
            if not seen or isinstance(error, NoSuchJob):
                raise
            if str(error) != trouble:
                trouble = str(error)
                complain(trouble, "trying again; press Ctrl-C to stop")
        else:
            seen, trouble = True, ""
            click.echo(write(found))
            sys.stdout.flush()
            if not found.live:
                return
        await asyncio.sleep(interval)


@click.command()
@_interval
@json_option
@frontier_of_jobs_option
def top(interval: float, as_json: bool, frontier: str | None) -> None:
    """Show a live table of jobs.

    Shows the jobs in this folder or on a shared frontier. Press q or Ctrl-C to end it. If standard output is not a terminal, the table is printed once.
    """
    from skitter.cli.tables import problem_lines, to_json, top_lines

    async def read_jobs() -> list[JobStatus]:
        from skitter.run.job import all_jobs
        from skitter.run.job_access import job_statuses, jobs_on

        return await job_statuses(all_jobs() if frontier is None else await jobs_on(frontier))

    if as_json or not sys.stdout.isatty():
        found = asyncio.run(read_jobs())
        click.echo(to_json(found) if as_json else top_lines(found))
        for line in problem_lines(found):
            say(line)
        return
    from skitter.cli.live_view import watch_jobs

    asyncio.run(watch_jobs(read_jobs, interval, detailed=False))


@click.command()
@with_job
@click.argument("prefix", default="")
@click.option("--by", type=click.Choice(["worker", "host", "group"]), help="Unit of the statistics.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    metavar="N",
    help="Maximum number of rows with --by.",
)
@json_option
async def stats(folder: JobFolder, prefix: str, by: str | None, limit: int, as_json: bool) -> None:
    """Show the counters of a job.

    With PREFIX, shows those whose names start with it. --by shows statistics per worker, host or group.
    """
    from skitter.cli.tables import counter_lines, tally_lines, to_json
    from skitter.frontier.stats import StatsDimension
    from skitter.run.job_access import job_status
    from skitter.run.job_access import stats as read_stats

    if by is not None:
        found = await read_stats(folder, StatsDimension(by), 10**9 if prefix else limit)
        found = [tally for tally in found if tally.key.startswith(prefix)][:limit]
        click.echo(to_json(found) if as_json else tally_lines(by, found))
        return
    counts = (await job_status(folder)).counts
    counters = {} if counts is None else dict(sorted(counts.counters.items()))
    hidden = () if prefix else ("time/", "values/")  # counters of histograms and monitors
    counters = {
        name: value
        for name, value in counters.items()
        if name.startswith(prefix) and not name.startswith(hidden)
    }
    click.echo(to_json(counters) if as_json else counter_lines(counters))


@click.command()
@with_job
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE.html",
    help="File to write.",
)
@click.option(
    "--hosts", type=click.IntRange(min=0), default=50, show_default=True, metavar="N",
    help="Maximum number of hosts to list, those with the most pages.",
)  # fmt: skip
async def report(folder: JobFolder, output: Path, hosts: int) -> None:
    """Write a report on a job to one HTML file.

    It has the figures, charts, hosts and dead letters of the job. The file loads nothing from elsewhere. An existing file is replaced.
    """
    from skitter.frontier.stats import StatsDimension
    from skitter.observe.report import MAX_LETTERS, report_html
    from skitter.run.job_access import dead_letters, job_status
    from skitter.run.job_access import stats as read_stats

    status = await job_status(folder)
    exists = status.counts is not None
    rows = await read_stats(folder, StatsDimension.HOST, hosts) if hosts and exists else []
    letters = await dead_letters(folder, 0, MAX_LETTERS) if exists else []
    write_file(output, report_html(status, rows, letters).encode())
    say(f"{output}: report of job {folder.job}")


_LISTED_CHANGES = ("new", "changed", "gone", "unchecked")
_PAGE_CHANGES = (*_LISTED_CHANGES, "unchanged", "skipped")


@click.command()
@with_job
@click.option(
    "--kind", "kinds", type=click.Choice(_PAGE_CHANGES), multiple=True,
    help="Pages to list. Repeatable. [default: all but unchanged and skipped]",
)  # fmt: skip
@json_option
async def changes(folder: JobFolder, kinds: tuple[str, ...], as_json: bool) -> None:
    """List pages that the last pass found new, changed or gone.

    Pages that could not be checked are listed, too.
    The job remembers its pages if it was started with --changes. Pages that are no longer linked are listed as gone when
    the pass is finished.
    """
    from skitter.cli.tables import to_json
    from skitter.run.job_access import page_changes

    found = await page_changes(folder, frozenset(kinds or _LISTED_CHANGES))
    found.sort(key=lambda page: (_PAGE_CHANGES.index(page.change), page.url))
    if as_json:
        click.echo(to_json(found))
        return
    for page in found:
        click.echo(f"{page.change:<10}{page.url}{f'  ({page.reason})' if page.reason else ''}")
    if not found:
        say(f"job {folder.job} has no such page")
