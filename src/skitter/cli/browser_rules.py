"""``skitter browser-rules``: the pages that ``fetcher=adaptive`` loads in the browser."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from skitter.cli.console import say
from skitter.cli.control import folder_of
from skitter.cli.options import frontier_option, job_argument, json_option

if TYPE_CHECKING:
    from skitter.run.job import JobFolder


@click.command()
@job_argument
@frontier_option
@json_option
@click.option("--reset", is_flag=True, help="Delete the rules.")
@click.option("--host", metavar="HOST", default="", help="Host whose rules to show or delete. [default: all]")
def browser_rules(job: str, frontier: str | None, as_json: bool, reset: bool, host: str) -> None:
    """Show which pages an adaptive crawl loads in the browser.

    The job has the setting fetcher=adaptive. Its workers notice a reset within 30 seconds.
    """
    from skitter.cli.tables import to_json

    folder = folder_of(job, frontier)
    if reset:
        say(f"forgot {asyncio.run(_reset(folder, host))} rules")
        return
    rules = asyncio.run(_rules(folder))
    found = {key: count for key, count in sorted(rules.items()) if not host or key.partition("/")[0] == host}
    if as_json:
        click.echo(to_json(found))
    elif not found:
        say("there are no rules")
    for key, count in () if as_json else found.items():
        click.echo(key if count > 1 else f"{key} (seen once)")


async def _rules(folder: JobFolder) -> dict[str, int]:
    from skitter.browser.adaptive import read_rules
    from skitter.run.control import open_frontier

    async with open_frontier(folder) as reached:
        return await read_rules(reached.frontier.notes)


async def _reset(folder: JobFolder, host: str) -> int:
    from skitter.browser.adaptive import reset_rules
    from skitter.run.control import open_frontier

    async with open_frontier(folder) as reached:
        return await reset_rules(reached.frontier.notes, host)
