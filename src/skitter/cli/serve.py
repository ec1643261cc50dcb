"""``skitter serve``: runs a node of the service."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from skitter.cli.console import say
from skitter.cli.options import pairs, with_storage
from skitter.errors import UsageError
from skitter.run.log_frames import LEVELS

if TYPE_CHECKING:
    from skitter.fetch.signatures import SigningKey
    from skitter.service.api.access import ApiTokens
    from skitter.service.api.auth import AuthMiddleware
    from skitter.service.api.server import TlsFiles
    from skitter.service.config import ServiceConfig
    from skitter.service.node import Node

_LOCAL_HOSTS = frozenset({"127.0.0.1", "::1", "localhost"})
_folder = click.Path(path_type=Path, file_okay=False)
_file = click.Path(path_type=Path, dir_okay=False)


class ServeOptions(msgspec.Struct, frozen=True):
    """The options of ``skitter serve`` that are not fields of :class:`~skitter.service.config.ServiceConfig`."""

    host: str
    port: int
    grpc_port: int | None
    tls_cert: Path | None
    tls_key: Path | None
    token_file: Path | None
    max_body: int
    max_rate: float
    job_log_level: str
    log_level: str
    log_format: str


@click.command()
@with_storage
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
    "--grpc-port", type=click.IntRange(0, 65535), default=None, metavar="PORT",
    help="Also offer the API over gRPC on this port (extra `grpc`). 0: a free port. [default: HTTP only]",
)  # fmt: skip
@click.option(
    "--print-proto", is_flag=True, help="Print the .proto file of the gRPC service, and exit (extra `grpc`)."
)
@click.option(
    "--tls-cert", type=_file, metavar="FILE",
    help="Certificate of HTTP and gRPC, with its chain, as a PEM file; needs --tls-key. [default: no TLS]",
)  # fmt: skip
@click.option("--tls-key", type=_file, metavar="FILE", help="Private key of the certificate, as a PEM file.")
@click.option(
    "--token-file", type=_file, metavar="FILE",
    help="File of the tokens of the API, one per line, with optional scope=, jobs=, name= and expires=. [default: the token in SKITTER_SERVE_TOKEN]",
)  # fmt: skip
@click.option(
    "--max-body", type=click.IntRange(min=1024), default=1 << 20, show_default=True, metavar="BYTES",
    help="Maximum size of a request body.",
)  # fmt: skip
@click.option(
    "--max-rate", type=click.FloatRange(min=0, min_open=True), default=200.0, show_default=True, metavar="N",
    help="Maximum number of requests per second for each token.",
)  # fmt: skip
@click.option(
    "--max-jobs", type=click.IntRange(min=1), default=1000, show_default=True, metavar="N",
    help="Maximum number of jobs, and of recipes, in the storage.",
)  # fmt: skip
@click.option(
    "--max-processes", type=click.IntRange(min=1), default=256, show_default=True, metavar="N",
    help="Maximum number of worker processes of all jobs on this node. Further jobs wait.",
)  # fmt: skip
@click.option(
    "--allow-network", "allow_networks", multiple=True, metavar="CIDR",
    help="Network outside the public internet to which jobs may connect, such as 10.0.0.0/8. Repeatable.",
)  # fmt: skip
@click.option(
    "--signing-key", default="", metavar="PLACE",
    help="Key that signs the requests of all jobs, as file:PATH or env:NAME; the node publishes its public part. [default: no signatures]",
)  # fmt: skip
@click.option(
    "--signature-agent", default="", metavar="URL",
    help="Address at which sites find the public key of --signing-key, such as https://bot.example.com.",
)  # fmt: skip
@click.option(
    "--job-log-size", "log_size", type=click.IntRange(min=10_000), default=1 << 20, show_default=True, metavar="BYTES",
    help="Maximum size of the log of a run. The oldest lines are dropped.",
)  # fmt: skip
@click.option(
    "--job-log-runs", "log_runs", type=click.IntRange(1, 1000), default=5, show_default=True, metavar="N",
    help="Number of runs of a job whose logs are kept.",
)  # fmt: skip
@click.option(
    "--job-log-level", type=click.Choice(LEVELS, case_sensitive=False), default="info", show_default=True,
    help="Minimum severity of messages in the logs of runs.",
)  # fmt: skip
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False), default="warning", show_default=True,
    help="Minimum severity of log messages of the node.",
)  # fmt: skip
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Format of the log.",
)
def serve(**values: Any) -> int:
    """Run a node of a service with an HTTP API.

    A node accepts jobs, and has workers that run them. Nodes with the same --store share all jobs.
    On SIGTERM, a node finishes the requests in progress and exits.
    """
    from skitter.fetch.address_guard import AddressGuard
    from skitter.plugins import need
    from skitter.run.process import run_async, set_up_logging

    for module in ("fastapi", "uvicorn", "cronsim", "redis", "prometheus_client"):
        need(module, "service", "services")
    prints_proto = values.pop("print_proto")
    if values["grpc_port"] is not None or prints_proto:
        for module in ("grpc", "grpc_reflection"):
            need(module, "grpc", "--print-proto" if prints_proto else "--grpc-port")
    if prints_proto:
        click.echo(_proto(), nl=False)
        return 0
    from skitter.fetch.signatures import make_signer
    from skitter.service.api.access import ApiTokens
    from skitter.service.config import ServiceConfig
    from skitter.settings import Settings
    from skitter.store.outputs import open_output

    values["folder"] = values["folder"].resolve()
    values["task_outputs"] = pairs("--task-output", values["task_outputs"])
    config = ServiceConfig(**{name: values.pop(name) for name in ServiceConfig.__struct_fields__})
    options = ServeOptions(**values)
    tokens, tls = ApiTokens.load(options.token_file), _tls(options.tls_cert, options.tls_key)
    if config.spiders is not None and not config.spiders.is_dir():
        raise UsageError(
            f"folder not found: {config.spiders}", remedy="check the path of the folder of spiders"
        )
    for output in (*config.outputs, *config.task_outputs.values()):
        open_output(output)  # report an unknown kind of output now, not in every job
    _check_task_outputs(config.task_outputs)
    AddressGuard(config.allow_networks)  # reports an invalid network
    signer = make_signer(Settings(signing_key=config.signing_key, signature_agent=config.signature_agent))
    if options.host not in _LOCAL_HOSTS and tls is None:
        say(
            f"the API on {options.host} has no TLS: use --tls-cert, put a proxy with TLS in front of it,"
            " or use a private network"
        )
    set_up_logging(options.log_level, options.log_format)
    return run_async(_serve(options, config, tokens, tls, None if signer is None else signer.key))


def _tls(certificate: Path | None, key: Path | None) -> TlsFiles | None:
    from skitter.service.api.server import TlsFiles

    if certificate is None or key is None:
        if certificate is not key:
            raise UsageError(
                "--tls-cert and --tls-key belong together",
                remedy="name the certificate and its private key",
                field="tls_cert",
            )
        return None
    files = TlsFiles(certificate, key)
    files.check()
    return files


def _proto() -> str:
    from fastapi import FastAPI

    from skitter.service.api.access import ApiTokens
    from skitter.service.api.app import make_app
    from skitter.service.api.grpc_schema import ApiSchema
    from skitter.service.config import ServiceConfig
    from skitter.service.jobs import JobService
    from skitter.service.node import Node

    config = ServiceConfig(Path("unused"))  # nothing is opened
    jobs = JobService(config, config.key_value_store())
    app = make_app(jobs, Node(jobs), ApiTokens(["unused-but-long-enough"]), max_body=1)
    assert isinstance(app.inner, FastAPI)
    return ApiSchema(app.inner).proto()


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


def _make_private(folder: Path) -> None:
    """Create the folder of a node. Only its user may read it, because it contains recipes, items and logs."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_mode & 0o077:
        folder.chmod(0o700)


async def _serve(
    options: ServeOptions,
    config: ServiceConfig,
    tokens: ApiTokens,
    tls: TlsFiles | None,
    signing_key: SigningKey | None,
) -> int:
    from skitter._utils.redaction import Redactor
    from skitter.frontier.embedded.lock import OwnerLock
    from skitter.service.api.app import make_app
    from skitter.service.jobs import JobService
    from skitter.service.node import Node

    lock = OwnerLock(
        config.folder / "node",
        what=f"service in {config.folder}",
        remedy="stop it first, or choose another folder with --folder",
        folder_remedy="check the folder and its permissions, or choose another with --folder",
    )
    await asyncio.to_thread(_make_private, config.folder)
    await asyncio.to_thread(lock.acquire)
    try:
        jobs = JobService(config, config.key_value_store())
        await jobs.store.open()
        try:
            redactor = Redactor.of_process(os.environ, [config.store, *config.outputs])
            node = Node(jobs, log_level=options.job_log_level, redactor=redactor)
            app = make_app(
                jobs,
                node,
                tokens,
                max_body=options.max_body,
                max_rate=options.max_rate,
                signing_key=signing_key,
            )
            await _serve_api(app, node, options, tls)
        finally:
            await jobs.store.close()
            jobs.checker.close()
    finally:
        await asyncio.to_thread(lock.release)
    return 0


async def _serve_api(app: AuthMiddleware, node: Node, options: ServeOptions, tls: TlsFiles | None) -> None:
    """Serve the API of a node over HTTP, and over gRPC if a port is given, until the process is asked to end."""
    from skitter.service.api.server import serve_app

    async with AsyncExitStack() as stack:
        if options.grpc_port is not None:
            from skitter.service.api.grpc_server import grpc_server

            port = await stack.enter_async_context(
                grpc_server(app, options.host, options.grpc_port, options.max_body, tls)
            )
            say(f"node {node.name} offers gRPC on port {port}")
        await serve_app(
            app,
            options.host,
            options.port,
            lambda url: say(f"node {node.name} listens on {url}"),
            node.leaving,
            tls,
        )
