"""``skitter doctor``: shows which optional parts are installed, and tries the browser."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec

import click

from skitter.cli.console import FAILED

_REQUIREMENT = re.compile(r"([\w.-]+)[^;]*;.*\bextra == [\"']([\w-]+)[\"']")
_FOR_DEVELOPERS = frozenset({"docs"})


@click.command()
@click.option("--start", is_flag=True, help="Also start the browser once.")
def doctor(start: bool) -> int:
    """Show which optional parts are installed. Exits with 1 if --start is given and the browser does not start."""
    try:
        for extra, packages in _extras().items():
            click.echo(f"{extra:12}{_state(extra, packages)}")
    except PackageNotFoundError:  # run from a source tree
        click.echo(f"{'skitter':12}is not installed; in the clone of skitter: pip install .")
    click.echo(f"{'compiled':12}{_compiled()}")
    ok = True
    for line, good in _browser(start=start):
        click.echo(f"{'chromium':12}{line}")
        ok = ok and good
    return 0 if ok or not start else FAILED


def _extras() -> dict[str, list[str]]:
    """Return the packages of each extra, as the metadata of the installed skitter names them."""
    extras: dict[str, list[str]] = {}
    for requirement in requires("skitter") or ():
        if (found := _REQUIREMENT.match(requirement)) and found[2] not in _FOR_DEVELOPERS:
            extras.setdefault(found[2], []).append(found[1])
    return extras


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


def _state(extra: str, packages: list[str]) -> str:
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
