"""``skitter serve``: a node of a service that runs jobs."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from skitter.cli.console import say
from skitter.cli.options import pairs
from skitter.errors import UsageError
from skitter.run.log_frames import LEVELS

if TYPE_CHECKING:
    from skitter._utils.redaction import Redactor
    from skitter.service.api.auth import ApiTokens
    from skitter.service.config import ServiceConfig

_folder = click.Path(path_type=Path, file_okay=False)


@click.command()
@click.option(
    "--store", metavar="URL", default="sqlite:", envvar="SKITTER_SERVE_STORE",
    help="Where jobs, recipes, frontiers and items are: redis://HOST/0 for any number of nodes; default: in the folder.",
)  # fmt: skip
@click.option(
    "--folder", type=_folder, default=Path(".skitter-service"), show_default=True, help="Of this node alone."
)
@click.option(
    "--spiders", type=_folder, metavar="FOLDER", help="Spiders in Python that may be run; without it none."
)
@click.option(
    "--output", "-o", "outputs", multiple=True, metavar="OUT",
    help="Additional output for the items of every job; {job} and {run} are replaced by names. Repeatable.",
)  # fmt: skip
@click.option(
    "--task-output", "task_outputs", multiple=True, metavar="NAME=OUT",
    help="An output that callers may give a task, by this name; {job}, {run} and {task} stand for names. Repeatable.",
)  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8470, show_default=True, help="0: any that is free."
)
@click.option(
    "--token-file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Tokens of those who may call, one a line; else SKITTER_SERVE_TOKEN has one.",
)  # fmt: skip
@click.option(
    "--max-body", type=click.IntRange(min=1024), default=1 << 20, show_default=True, metavar="BYTES",
    help="Largest body of a call.",
)  # fmt: skip
@click.option(
    "--job-log-size", type=click.IntRange(min=10_000), default=1 << 20, show_default=True, metavar="BYTES",
    help="How much of the log of a run is kept; the oldest lines go.",
)  # fmt: skip
@click.option(
    "--job-log-runs", type=click.IntRange(1, 1000), default=5, show_default=True, metavar="N",
    help="Runs of a job whose logs are kept.",
)  # fmt: skip
@click.option(
    "--job-log-level", type=click.Choice(LEVELS), default="info", show_default=True,
    help="Least severity that is kept in the logs of runs.",
)  # fmt: skip
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="warning", show_default=True,
    help="Least severity that is logged.",
)  # fmt: skip
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Form of the log.",
)
def serve(
    store: str,
    folder: Path,
    spiders: Path | None,
    outputs: tuple[str, ...],
    task_outputs: tuple[str, ...],
    host: str,
    port: int,
    token_file: Path | None,
    max_body: int,
    job_log_size: int,
    job_log_runs: int,
    job_log_level: str,
    log_level: str,
    log_format: str,
) -> int:
    """Run a node of a service: an HTTP API for jobs, and the workers that do them.

    Nodes with the same --store share all jobs. SIGTERM lets a node finish the requests in progress and exit.
    """
    from skitter._utils.redaction import Redactor
    from skitter.plugins import need
    from skitter.run.process import run_async, set_up_logging

    for module in ("fastapi", "uvicorn", "cronsim", "redis"):
        need(module, "service", "services")
    from skitter.service.api.auth import ApiTokens
    from skitter.service.config import ServiceConfig
    from skitter.store.outputs import open_output

    tokens = ApiTokens.load(token_file)
    if spiders is not None and not spiders.is_dir():
        raise UsageError(f"there is no folder {spiders}", remedy="name the folder of the spiders")
    named = pairs("--task-output", task_outputs)
    for output in (*outputs, *named.values()):
        open_output(output)  # a name of no known kind is told now, not by every job
    _check_task_outputs(named)
    config = ServiceConfig(folder.resolve(), store, spiders, outputs, named, job_log_size, job_log_runs)
    redactor = Redactor.of_process(os.environ, [store, *outputs])
    set_up_logging(log_level, log_format)
    return run_async(_serve(config, tokens, (host, port), max_body, job_log_level, redactor))


def _check_task_outputs(named: dict[str, str]) -> None:
    from skitter.secrets import shown_url, without_secrets
    from skitter.service.config import TASK_ITEMS
    from skitter.service.models import is_name

    for name, output in named.items():
        if name == TASK_ITEMS or not is_name(name):
            raise UsageError(
                f"--task-output {name!r} cannot be called so",
                remedy=f"use letters, digits, dashes and underscores; {TASK_ITEMS!r} is every task's own list",
            )
        if without_secrets(output) != output:
            raise UsageError(
                f"--task-output {name}={shown_url(output)} holds a password, which would be written to a disk",
                remedy="leave it out and set its variable: see the manual, Outputs",
            )


async def _serve(
    config: ServiceConfig,
    tokens: ApiTokens,
    place: tuple[str, int],
    max_body: int,
    log_level: str,
    redactor: Redactor,
) -> int:
    from skitter.frontier.embedded.lock import OwnerLock
    from skitter.service.api.app import make_app
    from skitter.service.api.server import serve_app
    from skitter.service.jobs import JobService
    from skitter.service.node import Node

    lock = OwnerLock(config.folder / "node")
    await asyncio.to_thread(os.makedirs, config.folder, mode=0o700, exist_ok=True)
    await asyncio.to_thread(lock.acquire)
    try:
        jobs = JobService(config, config.key_value_store())
        await jobs.store.open()
        try:
            node = Node(jobs, log_level=log_level, redactor=redactor)
            app = make_app(jobs, node, tokens, max_body=max_body)
            await serve_app(app, *place, lambda url: say(f"node {node.name} listens on {url}"), node.leaving)
        finally:
            await jobs.store.close()
    finally:
        await asyncio.to_thread(lock.release)
    return 0
