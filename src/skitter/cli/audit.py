"""``skitter audit``: shows the audit log of a service, from its store."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from skitter.cli.console import aligned, say
from skitter.cli.options import json_option, with_storage

if TYPE_CHECKING:
    from skitter.service.audit import AuditPage


@click.command()
@with_storage
@click.option(
    "--last", type=click.IntRange(min=1), default=50, show_default=True, metavar="N",
    help="Maximum number of entries.",
)  # fmt: skip
@click.option(
    "--contains", default="", metavar="TEXT", help="Only entries whose caller or path contains this text."
)
@json_option
def audit(store: str, folder: Path, last: int, contains: str, as_json: bool) -> None:
    """Show who changed what in a service, the newest entry first."""
    import msgspec

    from skitter._utils.visible import visible_line
    from skitter.cli.tables import to_json
    from skitter.observe.dead_letters import moment
    from skitter.plugins import need

    for module in ("fastapi", "cronsim"):
        need(module, "service", "services")
    from skitter.service.audit import AuditLog
    from skitter.service.config import ServiceConfig

    config = ServiceConfig(folder.resolve(), store)

    async def read() -> AuditPage:
        config.key_value_store()  # checks the URL
        return await AuditLog(config.audit).page(None, last, contains)

    page = asyncio.run(read())
    if as_json:
        entries = [{"number": number, **msgspec.to_builtins(entry)} for number, entry in page.entries]
        click.echo(to_json(entries))
        return
    if not page.entries:
        say("the audit log has no such entries")
        return
    rows = [["NUMBER", "TIME (UTC)", "CALLER", "METHOD", "STATUS", "PATH", "DETAILS"]]
    for number, entry in page.entries:
        details = msgspec.json.encode(entry.details).decode() if entry.details else ""
        cells = (moment(entry.time), entry.caller, entry.method, str(entry.status), entry.path, details)
        rows.append([str(number), *(visible_line(cell) for cell in cells)])
    click.echo(aligned(rows, right=frozenset({0, 4})))
