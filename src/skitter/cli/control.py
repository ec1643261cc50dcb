"""``skitter status``, ``pause``, ``resume``, ``stop`` and ``jobs``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from skitter.cli.options import ShowOptions, job_argument, json_option, with_show_options, workers_option
from skitter.cli.say import say
from skitter.errors import UsageError

if TYPE_CHECKING:
    from skitter.cli.reach import JobStatus
    from skitter.engine.job import JobFolder


def folder_of(job: str) -> JobFolder:
    """Return the folder of a job that was begun. Raises :class:`~skitter.errors.UsageError`."""
    from skitter.engine.job import JobFolder  # noqa: PLC0415 - `skitter --help` needs no engine

    folder = JobFolder(job)
    folder.read()
    return folder


@click.command()
@job_argument
@json_option
def status(job: str, as_json: bool) -> None:
    """Show how far a job is. Changes nothing."""
    from skitter.cli.reach import job_status  # noqa: PLC0415 - `skitter --help` needs no engine
    from skitter.cli.tables import status_lines, to_json  # noqa: PLC0415

    found = asyncio.run(job_status(folder_of(job)))
    click.echo(to_json(found) if as_json else status_lines(found))


@click.command()
@json_option
def jobs(as_json: bool) -> None:
    """List the jobs below this folder."""
    from skitter.cli.tables import job_lines, to_json  # noqa: PLC0415 - `skitter --help` needs no engine

    found = asyncio.run(_all_jobs())
    if as_json:
        click.echo(to_json(found))
    elif found:
        click.echo(job_lines(found))
    else:
        say("no job was begun in this folder; `skitter crawl URL` begins one")


async def _all_jobs() -> list[JobStatus]:
    from skitter.cli.reach import job_status  # noqa: PLC0415 - `skitter --help` needs no engine
    from skitter.engine.job import all_jobs  # noqa: PLC0415

    return [await job_status(folder) for folder in all_jobs()]


@click.command()
@job_argument
def pause(job: str) -> None:
    """Let a job fetch nothing more until it is resumed. Its workers stay."""
    asyncio.run(_pause(job))


async def _pause(job: str) -> None:
    from skitter.cli.reach import open_frontier  # noqa: PLC0415 - `skitter --help` needs no engine
    from skitter.frontier.base import JobState  # noqa: PLC0415

    async with open_frontier(folder_of(job)) as (frontier, _):
        now = await frontier.control(JobState.PAUSED)
    say(f"job {job} is {now}" + (f"; `skitter resume {job}` goes on" if now is JobState.PAUSED else ""))


@click.command()
@job_argument
@workers_option
@with_show_options
def resume(job: str, workers: int | None, show: ShowOptions) -> int:
    """Go on with a job: end its pause, or run it on here as it was begun if nobody runs it."""
    from skitter.cli.running import run_job  # noqa: PLC0415 - `skitter --help` needs no engine

    folder = folder_of(job)
    if asyncio.run(_end_pause(folder)):
        return 0
    spec = folder.read()
    if workers is not None:
        spec.workers = workers
    return run_job(spec, show, resume=True)


async def _end_pause(folder: JobFolder) -> bool:
    """End the pause of a job that is being run; returns whether it is."""
    from skitter.cli.reach import live_frontier  # noqa: PLC0415 - `skitter --help` needs no engine
    from skitter.frontier.base import JobState  # noqa: PLC0415

    async with live_frontier(folder) as frontier:
        if frontier is None:
            return False
        if (await frontier.status()).state is JobState.STOPPING:
            raise UsageError(f"job {folder.job!r} is being stopped", remedy="resume it when it has ended")
        say(f"job {folder.job} is {await frontier.control(JobState.RUNNING)}")
    return True


@click.command()
@job_argument
def stop(job: str) -> None:
    """Let a running job finish what is in hand and end; returns when its outputs are complete."""
    asyncio.run(_stop(folder_of(job)))


async def _stop(folder: JobFolder) -> None:
    from skitter.cli.reach import job_status, live_frontier  # noqa: PLC0415 - `skitter --help` needs no engine
    from skitter.frontier.base import JobState  # noqa: PLC0415
    from skitter.frontier.client import RemoteFrontier  # noqa: PLC0415

    async with live_frontier(folder) as frontier:
        if frontier is None:
            say(f"job {folder.job} is not being run")
            return
        await frontier.control(JobState.STOPPING)
        if isinstance(frontier, RemoteFrontier):
            await frontier.wait_closed()
    await asyncio.to_thread(folder.lock().wait)
    state = (await job_status(folder)).state
    say(
        f"job {folder.job} is {state}"
        + (f"; `skitter resume {folder.job}` goes on" if state == "stopped" else "")
    )
