"""``skitter set``, ``drop-host`` and ``counters``: steer a fleet while it runs, and see what it has counted."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from skitter.cli.control import folder_of
from skitter.cli.options import frontier_option, job_argument, json_option, pairs
from skitter.cli.say import say
from skitter.errors import UsageError

if TYPE_CHECKING:
    from skitter.frontier.options import SettingsChanges
    from skitter.run.control import OpenFrontier
    from skitter.run.job import JobFolder


@click.command("set")
@job_argument
@click.argument("pairs_", metavar="[NAME=VALUE]...", nargs=-1)
@click.option(
    "--reset", is_flag=True, help="Forget earlier changes: what is not named is as the job was begun."
)
@frontier_option
def set_(job: str, pairs_: tuple[str, ...], reset: bool, frontier: str | None) -> None:
    """Change settings of a job for all its workers at once, and for its later runs.

    These can be: delay, jitter, concurrency_per_slot, rates, max_pages, max_items, max_errors, max_bytes, wait_for_seeds
    and concurrency. Without any, the changes in force are shown.
    """
    from skitter.run.control import changes_of

    changes = changes_of(pairs("set", pairs_))
    asyncio.run(_set(folder_of(job, frontier), changes, reset=reset, ask=not (pairs_ or reset)))


async def _set(folder: JobFolder, changes: SettingsChanges, *, reset: bool, ask: bool) -> None:
    from skitter.cli.tables import change_texts
    from skitter.run.control import change_settings, open_frontier

    async with open_frontier(folder) as reached:
        frontier = reached.frontier
        now = (
            await frontier.control.settings_changes()
            if ask
            else await change_settings(frontier, changes, reset=reset)
        )
    texts = change_texts(now)
    say(f"job {folder.job}: " + (", ".join(f"{name}={text}" for name, text in texts) or "nothing is changed"))


@click.command("drop-host")
@job_argument
@click.argument("host")
@click.option("--ban", is_flag=True, help="Refuse requests for it from now on.")
@click.option("--unban", is_flag=True, help="Only take requests for it again.")
@frontier_option
def drop_host(job: str, host: str, ban: bool, unban: bool, frontier: str | None) -> None:
    """Remove what waits for a host from the queue; what is in hand is finished.

    Hosts that share their limits (a domain, the pool of a rule) are dropped together. The URLs stay known.
    """
    if ban and unban:
        raise UsageError("--ban and --unban do not go together", remedy="use one of them")
    asyncio.run(_drop_host(folder_of(job, frontier), host, ban=ban, unban=unban))


async def _drop_host(folder: JobFolder, host: str, *, ban: bool, unban: bool) -> None:
    from skitter.run.control import open_frontier

    name = _name_of(host)
    async with open_frontier(folder) as reached:
        slot = _slot_of(folder, reached, name)
        if unban:
            was_banned = await reached.frontier.control.unban(slot)
            say(f"{slot} is banned no more" if was_banned else f"{slot} was not banned")
            return
        dropped = await reached.frontier.control.drop_slot(slot, ban)
    say(f"{slot}: dropped {dropped:,}" + (", and banned" if ban else ""))


def _slot_of(folder: JobFolder, reached: OpenFrontier, host: str) -> str:
    from skitter.run.builder import JobBuilder

    frontier = reached.frontier
    if frontier.politeness is not None:
        return frontier.politeness.slot_of(host)
    return JobBuilder(folder.read()).settings.politeness().slot_of(host)


def _name_of(host: str) -> str:
    """Return a host as URLs name it: slots are named so."""
    from skitter.web.urls import host_of, normalize

    url = normalize(host if "://" in host else f"http://{host}/")
    if not url or not host_of(url) or url.partition("://")[2].strip("/") != host_of(url):
        raise UsageError(f"{host!r} is no host", remedy="write it as in its URLs, such as example.com")
    return host_of(url)


@click.command()
@job_argument
@click.argument("prefix", default="")
@click.option(
    "--by", type=click.Choice(["worker", "host", "task"]), help="What was counted for each of them."
)
@click.option(
    "--limit", type=click.IntRange(min=1), default=50, show_default=True, metavar="N", help="With --by."
)
@json_option
@frontier_option
def counters(job: str, prefix: str, by: str | None, limit: int, as_json: bool, frontier: str | None) -> None:
    """Show the counters of a job whose names begin with PREFIX, or (--by) those per worker, host or task."""
    from skitter.cli.tables import counter_lines, tally_lines, to_json
    from skitter.frontier.stats import StatsGroup
    from skitter.run.control import job_status, stats

    folder = folder_of(job, frontier)
    if by is not None:
        found = asyncio.run(stats(folder, StatsGroup(by), 10**9 if prefix else limit))
        found = [tally for tally in found if tally.key.startswith(prefix)][:limit]
        click.echo(to_json(found) if as_json else tally_lines(by, found))
        return
    counts = asyncio.run(job_status(folder)).counts
    known = {} if counts is None else dict(sorted(counts.counters.items()))
    known = {name: value for name, value in known.items() if name.startswith(prefix)}
    click.echo(to_json(known) if as_json else counter_lines(known))
