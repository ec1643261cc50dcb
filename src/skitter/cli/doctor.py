"""``skitter doctor``: shows which optional parts are installed, and tries the browser."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

import click

from skitter.cli.console import FAILED

_EXTRAS = {
    "browser": ("playwright",), "recipes": ("pyyaml", "jsonschema", "jmespath"), "scripts": ("quickjs-ng",),
    "agents": ("browserforge",), "redis": ("redis",), "nats": ("nats-py",), "mongodb": ("pymongo",),
    "postgresql": ("asyncpg",), "mysql": ("aiomysql",), "parquet": ("pyarrow",), "warc": ("fastwarc",), "content": ("trafilatura",), "signing": ("cryptography",), "service": ("fastapi", "uvicorn"), "s3": ("s3fs",),
    "shell": ("ipython",), "otel": ("opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http"),
}  # fmt: skip
"""Packages of the extras that show whether an extra is installed."""


@click.command()
@click.option("--start", is_flag=True, help="Also start the browser once.")
def doctor(start: bool) -> int:
    """Show which optional parts are installed. Exits with 1 if --start is given and the browser does not start."""
    for extra, packages in _EXTRAS.items():
        click.echo(f"{extra:12}{_state(extra, packages)}")
    click.echo(f"{'compiled':12}{_compiled()}")
    ok = True
    for line, good in _browser(start=start):
        click.echo(f"{'chromium':12}{line}")
        ok = ok and good
    return 0 if ok or not start else FAILED


def _compiled() -> str:
    names = {
        "skitter.web._url_join": "plain links",
        "skitter.worker._link_table": "known links",
        "skitter.frontier.embedded._key_set": "known URLs",
        "skitter.frontier.embedded._sorted_keys": "known URLs on disk",
        "skitter.html._tags": "HTML tags",
        "skitter.web._utf8": "UTF-8",
    }
    found = [what for module, what in names.items() if find_spec(module) is not None]
    if len(found) == len(names):
        return ", ".join(found)
    return "missing; pages cost a tenth more, and known URLs three times the memory: install a C compiler, and skitter again"


def _state(extra: str, packages: tuple[str, ...]) -> str:
    found, missing = [], []
    for package in packages:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            missing.append(package)
    return f'missing; in the clone of skitter: pip install ".[{extra}]"' if missing else ", ".join(found)


def _browser(*, start: bool) -> Iterator[tuple[str, bool]]:
    from skitter.browser.executable import check_installed, find_executable, sandbox_obstacle
    from skitter.errors import SkitterError
    from skitter.settings import Settings

    settings = Settings()
    try:
        program = find_executable(settings)
    except SkitterError as error:
        yield f"missing; {error.remedy}", False
        return
    shown = subprocess.run(  # noqa: S603 - the browser of the system
        [program, "--version", "--no-sandbox"], capture_output=True, text=True, check=False
    ).stdout
    yield f"{program} ({shown.strip() or 'unknown version'})", True
    obstacle = sandbox_obstacle(settings)
    yield f"sandbox {f'off: {obstacle}' if obstacle else 'on'}", True
    if start:
        try:
            check_installed(settings)
            asyncio.run(_start())
        except SkitterError as error:
            yield f"does not start: {error}; {error.remedy}", False
        else:
            yield "starts", True


async def _start() -> None:
    from skitter.browser.process import BrowserProcess
    from skitter.settings import Settings

    process = await BrowserProcess.start(Settings())
    await process.close()
