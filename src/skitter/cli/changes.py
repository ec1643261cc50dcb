"""``skitter changes``: lists what the last pass of a job found about its pages."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from skitter.cli.console import say
from skitter.cli.control import folder_of
from skitter.cli.options import frontier_option, job_argument, json_option

if TYPE_CHECKING:
    from skitter.run.page_changes import PageFinding

_KINDS = ("new", "changed", "gone", "unchecked", "unchanged")
_DEFAULT = ("new", "changed", "gone", "unchecked")


@click.command()
@job_argument
@frontier_option
@click.option(
    "--kind", "kinds", type=click.Choice(_KINDS), multiple=True,
    help="Pages to list. Repeatable. [default: all but unchanged]",
)  # fmt: skip
@json_option
def changes(job: str, frontier: str | None, kinds: tuple[str, ...], as_json: bool) -> None:
    """List pages that the last pass found new, changed or gone.

    Pages that could not be checked are listed, too.
    The job remembers its pages if it was started with --changes. Pages that are no longer linked are listed as gone when
    the pass is finished.
    """
    from skitter.cli.tables import to_json
    from skitter.run.control import page_changes

    found = asyncio.run(page_changes(folder_of(job, frontier), frozenset(kinds or _DEFAULT)))
    found.sort(key=lambda page: (_KINDS.index(page.change), page.url))
    if as_json:
        click.echo(to_json([_fields(page) for page in found]))
        return
    for page in found:
        click.echo(f"{page.change:<10}{page.url}{f'  ({page.reason})' if page.reason else ''}")
    if not found:
        say(f"job {job} has no such page")


def _fields(page: PageFinding) -> dict[str, str]:
    return {"url": page.url, "change": page.change.value, "reason": page.reason}
