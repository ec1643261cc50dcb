"""``skitter jobs``, ``pause``, ``resume``, ``stop``, ``config``, ``purge``, ``repair`` and ``browser-rules``: control jobs."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from skitter.cli.console import say
from skitter.cli.options import (
    ShowOptions,
    complete_file,
    complete_setting,
    frontier_of_jobs_option,
    job_argument,
    json_option,
    pairs,
    with_job,
    with_show_options,
    workers_option,
)
from skitter.errors import UsageError, counted
from skitter.secrets import shown_url

POLL_INTERVAL = 0.2
"""Seconds between two checks whether the workers of a fleet have ended."""

_SHOWN_URLS = 20
_CONSEQUENCES = {
    "seen_log": "known URLs; their pages may be fetched and stored again",
    "seen_blocks": "known URLs; their pages may be fetched and stored again",
    "removed": "which pages are done; some pages may be fetched and stored again",
    "unpacked": "which pages are done; some pages may be fetched and stored again",
    "outputs": "positions of items; items of pages that are done may be missing in the outputs",
    "slots": "delays of hosts; robots.txt is asked again",
    "counters": "counters of the job",
    "leases": "pages in progress when the job was killed; they are fetched again, and the loss of their worker is not counted",
    "bans": "banned hosts; ban them again with `skitter purge --ban`",
    "settings_changes": "settings that were changed during runs; change them again with `skitter config`",
}
"""What is lost if a table is incomplete."""

if TYPE_CHECKING:
    from skitter.run.job import JobFolder
    from skitter.run.job_access import JobStatus, OpenFrontier


@click.command()
@json_option
@frontier_of_jobs_option
def jobs(as_json: bool, frontier: str | None) -> None:
    """List the jobs in this folder, or on a shared frontier."""
    from skitter.cli.tables import job_lines, problem_lines, to_json
    from skitter.run.job import all_jobs
    from skitter.run.job_access import job_statuses, jobs_on

    async def read_jobs() -> list[JobStatus]:
        return await job_statuses(all_jobs() if frontier is None else await jobs_on(frontier))

    found = asyncio.run(read_jobs())
    if as_json:
        click.echo(to_json(found))
    elif found:
        click.echo(job_lines(found))
    else:
        where = "in this folder" if frontier is None else f"on {shown_url(frontier)}"
        say(f"there are no jobs {where}; start one with `skitter crawl URL`")
    for line in problem_lines(found):
        say(line)


@click.command()
@with_job
async def pause(folder: JobFolder) -> None:
    """Pause a job: fetch nothing until it is resumed. Its workers keep running."""
    from skitter.frontier.records import JobState
    from skitter.run.job_access import open_frontier

    async with open_frontier(folder) as reached:
        before = await reached.frontier.status()
        if reached.live and before.state is JobState.STOPPING and not before.reason:
            raise UsageError(
                f"job {folder.job!r} is being stopped",
                remedy="wait for its end, then pause it",
            )
        now = await reached.frontier.control.set_state(JobState.PAUSED)
        reason = (await reached.frontier.status()).reason
    if now is JobState.FINISHED:
        say(f"job {folder.job} is finished")
    else:
        limit = f", at its limit of {reason}" if reason else ""
        say(f"job {folder.job} is paused{limit}; {folder.how_to_continue()} continues it")


@click.command()
@with_job
@workers_option
@click.option(
    "--spider",
    metavar="SPIDER",
    shell_complete=complete_file,
    help="Continue with this spider, for example if its file was moved.",
)
@with_show_options
def resume(folder: JobFolder, workers: int | None, spider: str | None, show: ShowOptions) -> int:
    """Resume a job.

    Ends its pause or, if it is not running, continues it here.
    """
    from skitter.cli.running import ForegroundRun, fork_if_several
    from skitter.run.job import is_file, split_reference
    from skitter.run.loader import find_spider

    if asyncio.run(_end_pause(folder)):
        return 0
    job, spec = folder.job, folder.read()
    if not spec.spider:
        raise UsageError(
            f"job {job!r} is not running, and its specification is not stored on this machine",
            remedy=f"start it here with `skitter run`, --job {job} and the same --frontier",
        )
    if spec.left_out:
        raise UsageError(
            f"job {job!r} was started with passwords in {' and '.join(spec.left_out)}, which are not stored",
            remedy="repeat the command that started the job; to resume a job without them, give env:NAME or file:PATH in place of each password",
        )
    place, _ = split_reference(spec.spider)
    if spider is None and is_file(place) and not Path(place).exists():
        raise UsageError(
            f"the spider of job {job!r} was not found in {place}",
            remedy=f"name its new place: `skitter resume {job} --spider FILE.py`",
            field="spider",
        )
    if workers is not None:
        spec.workers = workers
    with fork_if_several(len(spec.queues_per_worker()), spec.frontier) as forked:
        if spider is not None:
            spec.spider, _ = find_spider(spider)
            folder.write(spec)
        return ForegroundRun(spec, show, resume=True, forked=forked).run()


async def _end_pause(folder: JobFolder) -> bool:
    """End the pause of a job that a process runs. Return whether a process runs it."""
    from skitter.frontier.records import JobState
    from skitter.run.job_access import live_frontier

    async with live_frontier(folder) as reached:
        if reached is None:
            return False
        frontier = reached.frontier
        if (await frontier.status()).state is JobState.STOPPING:
            raise UsageError(
                f"job {folder.job!r} is being stopped", remedy="wait for its end, then resume it"
            )
        say(f"job {folder.job} is {await frontier.control.set_state(JobState.RUNNING)}")
    return True


@click.command()
@with_job
async def stop(folder: JobFolder) -> None:
    """Stop a running job after its requests in progress. Returns when its outputs are complete.

    On a shared frontier, stops all its workers on every machine.
    """
    from skitter.frontier.records import JobState
    from skitter.frontier.rpc.client import RemoteFrontier
    from skitter.run.job_access import job_status, live_frontier

    async with live_frontier(folder) as reached:
        if reached is None:
            is_finished = (await job_status(folder)).state == JobState.FINISHED
            say(f"job {folder.job} is {'finished' if is_finished else 'not running'}")
            return
        frontier = reached.frontier
        await frontier.control.set_state(JobState.STOPPING)
        if isinstance(frontier, RemoteFrontier):
            await frontier.wait_closed()
        while frontier.shared and await frontier.reports.workers():  # noqa: ASYNC110 - the workers are in other processes
            await asyncio.sleep(POLL_INTERVAL)
    if folder.exists():
        await asyncio.to_thread(folder.lock().wait)
    state = (await job_status(folder)).state
    hint = f"; {folder.how_to_continue()} continues it" if state == "stopped" else ""
    say(f"job {folder.job} is {state}{hint}")


@click.command()
@with_job
@click.argument(
    "assignments", metavar="[NAME=VALUE]...", nargs=-1, shell_complete=partial(complete_setting, live=True)
)
@click.option("--reset", is_flag=True, help="Revert earlier changes of settings that are not given.")
async def config(folder: JobFolder, assignments: tuple[str, ...], reset: bool) -> None:
    """Change settings of a job while it runs.

    They apply to all its workers at once, and to its later runs. Without NAME=VALUE, shows the changes in force.
    The reference of settings marks those that can change during a run.
    """
    from skitter.cli.tables import change_texts
    from skitter.run.job_access import change_settings, changes_of, open_frontier, settings_changes

    changes = changes_of(pairs(f"skitter config {folder.job}", assignments))
    if assignments or reset:
        async with open_frontier(folder) as reached:
            now = await change_settings(reached.frontier, changes, reset=reset)
    else:
        now = await settings_changes(folder)
    say(f"job {folder.job}: {', '.join(change_texts(now.to_dict())) or 'no changes'}")


@click.command()
@with_job
@click.argument("host")
@click.option("--ban", is_flag=True, help="Also refuse new requests for the host from now on.")
@click.option("--unban", is_flag=True, help="Accept requests for a banned host again. Removes nothing.")
async def purge(folder: JobFolder, host: str, ban: bool, unban: bool) -> None:
    """Remove the waiting requests of a host from the queue. Requests in progress are finished.

    Hosts that share their limits (a domain, or a limit rule) are purged together. The URLs stay known.
    """
    from skitter.run.job_access import open_frontier

    if ban and unban:
        raise UsageError("--ban and --unban cannot be combined", remedy="use one of them", field="--unban")
    name = _name_of(host)
    async with open_frontier(folder) as reached:
        slot = _slot_of(folder, reached, name)
        if unban:
            was_banned = await reached.frontier.control.unban(slot)
            say(f"removed the ban of {slot}" if was_banned else f"{slot} was not banned")
            return
        dropped = await reached.frontier.control.drop_slot(slot, ban=ban)
    say(f"{slot}: removed {counted(dropped, 'request')}" + (", banned" if ban else ""))


@click.command()
@job_argument
def repair(job: str) -> int:
    """Find and repair damage in the frontier file of a job.

    The file is rebuilt from everything that can be read.
    The damaged file is kept next to the new one. The command lists what it could not read, and its exit status is then 1.
    """
    from skitter.frontier.embedded.repair import repair_file
    from skitter.frontier.embedded.tables import file_of
    from skitter.run.job_access import find_job

    folder = find_job(job, None)
    frontier = folder.read().frontier
    if not frontier.startswith("sqlite:"):
        raise UsageError(
            f"the frontier of job {job!r} is on a server", remedy="repair it with the tools of the server"
        )
    path = file_of(frontier, folder.path)
    if not path.exists():
        raise UsageError(
            f"the frontier of job {job!r} is missing: {path}", remedy="restore the file from a copy"
        )
    result = repair_file(path)
    if not result.damage:
        say(f"{path} is sound")
        return 0
    kept = result.kept
    say(f"{path} was damaged: {result.damage[0]}; the damaged file is in {path.with_name(result.saved)}")
    say(
        f"kept: {counted(kept['queue'] + kept['delayed'], 'waiting request')}, {counted(kept['dead'], 'dead letter')}"
    )
    if result.lost:
        say(f"lost: {counted(result.lost, 'request')}")
    for url in result.altered[:_SHOWN_URLS]:
        say(f"unreadable request: {url}; if this is its URL, run `skitter add` with it")
    for table in result.incomplete:
        if table in _CONSEQUENCES:
            say(f"incomplete: {_CONSEQUENCES[table]}")
    return 1 if result.lost or result.incomplete else 0


@click.command()
@with_job
@json_option
@click.option("--reset", is_flag=True, help="Delete the rules.")
@click.option("--host", metavar="HOST", default="", help="Host whose rules to show or delete. [default: all]")
async def browser_rules(folder: JobFolder, as_json: bool, reset: bool, host: str) -> None:
    """Show which pages an adaptive crawl loads in the browser.

    The job has the setting fetcher=adaptive. Its workers notice a reset within 30 seconds.
    """
    from skitter.browser.adaptive import read_rules, reset_rules
    from skitter.cli.tables import to_json
    from skitter.run.job_access import open_frontier

    async with open_frontier(folder) as reached:
        notes = reached.frontier.notes
        if reset:
            say(f"deleted {counted(await reset_rules(notes, host), 'rule')}")
            return
        rules = await read_rules(notes)
    found = {key: count for key, count in sorted(rules.items()) if not host or key.partition("/")[0] == host}
    if as_json:
        click.echo(to_json(found))
        return
    if not found:
        say("there are no rules")
    for key, count in found.items():
        click.echo(key if count > 1 else f"{key} (seen once)")


def _slot_of(folder: JobFolder, reached: OpenFrontier, host: str) -> str:
    from skitter.run.builder import JobBuilder

    frontier = reached.frontier
    if frontier.politeness is not None:
        return frontier.politeness.slot_of(host)
    spec = folder.read()
    spec.reads_references = False  # nothing is fetched
    return JobBuilder(spec).settings.politeness().slot_of(host)


def _name_of(host: str) -> str:
    """Return a host in the form that URLs and the keys of slots use."""
    from skitter.web.urls import host_of, normalize

    url = normalize(host if "://" in host else f"http://{host}/")
    if not url or not host_of(url) or url.partition("://")[2].strip("/") != host_of(url):
        raise UsageError(
            f"invalid host {host!r}", remedy="write it as in its URLs, such as example.com", field="host"
        )
    return host_of(url)
