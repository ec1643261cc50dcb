"""``skitter serve``: runs a node of the service."""

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
    help="Storage of jobs, recipes, frontiers and items: redis://HOST/0 for several nodes. [default: files in --folder]",
)  # fmt: skip
@click.option(
    "--folder",
    type=_folder,
    default=Path(".skitter-service"),
    show_default=True,
    help="Folder for the files of this node.",
)
@click.option(
    "--spiders",
    type=_folder,
    metavar="FOLDER",
    help="Folder of the Python spiders that jobs may run. [default: no spiders]",
)
@click.option(
    "--output", "-o", "outputs", multiple=True, metavar="OUT",
    help="Additional output for the items of every job; {job} and {run} are replaced by names. Repeatable.",
)  # fmt: skip
@click.option(
    "--task-output", "task_outputs", multiple=True, metavar="NAME=OUT",
    help="Output that callers may choose for a task by its name; {job}, {run} and {task} are replaced by names. Repeatable.",
)  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8470,
    show_default=True,
    help="Port to listen on. 0: a free port.",
)
@click.option(
    "--token-file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="File of the tokens of the API, one per line. [default: the token in SKITTER_SERVE_TOKEN]",
)  # fmt: skip
@click.option(
    "--max-body", type=click.IntRange(min=1024), default=1 << 20, show_default=True, metavar="BYTES",
    help="Maximum size of a request body.",
)  # fmt: skip
@click.option(
    "--job-log-size", type=click.IntRange(min=10_000), default=1 << 20, show_default=True, metavar="BYTES",
    help="Maximum size of the log of a run. The oldest lines are dropped.",
)  # fmt: skip
@click.option(
    "--job-log-runs", type=click.IntRange(1, 1000), default=5, show_default=True, metavar="N",
    help="Number of runs of a job whose logs are kept.",
)  # fmt: skip
@click.option(
    "--job-log-level", type=click.Choice(LEVELS), default="info", show_default=True,
    help="Minimum severity of messages in the logs of runs.",
)  # fmt: skip
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="warning", show_default=True,
    help="Minimum severity of log messages of the node.",
)  # fmt: skip
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Format of the log.",
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
    """Run a node of a service: an HTTP API for jobs, and the workers that run them.

    Nodes with the same --store share all jobs. On SIGTERM, a node finishes the requests in progress and exits.
    """
    from skitter._utils.redaction import Redactor
    from skitter.plugins import need
    from skitter.run.process import run_async, set_up_logging

    for module in ("fastapi", "uvicorn", "cronsim", "redis", "prometheus_client"):
        need(module, "service", "services")
    from skitter.service.api.auth import ApiTokens
    from skitter.service.config import ServiceConfig
    from skitter.store.outputs import open_output

    tokens = ApiTokens.load(token_file)
    if spiders is not None and not spiders.is_dir():
        raise UsageError(f"folder not found: {spiders}", remedy="check the path of the folder of spiders")
    named = pairs("--task-output", task_outputs)
    for output in (*outputs, *named.values()):
        open_output(output)  # report an unknown kind of output now, not in every job
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
                f"invalid name in --task-output: {name!r}",
                remedy=f"use letters, digits, dashes and underscores; {TASK_ITEMS!r} is reserved",
            )
        if without_secrets(output) != output:
            raise UsageError(
                f"--task-output {name}={shown_url(output)} contains a password, which would be written to disk",
                remedy="remove the password, and set its environment variable; see the guide on outputs",
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
            jobs.checker.close()
    finally:
        await asyncio.to_thread(lock.release)
    return 0
