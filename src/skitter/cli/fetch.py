"""``skitter fetch``: fetches one page in the same way as a job."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from skitter.cli.console import FAILED, complain, say, write_file
from skitter.cli.options import pairs, setting_option

if TYPE_CHECKING:
    from skitter.response import Response

url_argument = click.argument("url")
robots_option = click.option(
    "--robots/--no-robots", default=True, help="Obey robots.txt (the default), or ignore it."
)


browser_option = click.option(
    "--browser", is_flag=True, help="Load pages in Chromium, and show the final document."
)


@click.command()
@url_argument
@browser_option
@click.option(
    "--screenshot",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="File for a picture of the whole page (PNG). Implies --browser.",
)
@click.option("--verbose", "-v", is_flag=True, help="Also show the headers, on standard error.")
@robots_option
@setting_option
def fetch(
    url: str, browser: bool, screenshot: Path | None, verbose: bool, robots: bool, settings: tuple[str, ...]
) -> int:
    """Fetch a page, follow its redirects, and print its body. Exits with 1 if the server does not respond.

    With --screenshot, the picture takes the place of the body.
    """
    options = single_settings(settings, robots=robots, browser=browser or screenshot is not None)
    response = asyncio.run(_fetch(url, options, screenshot))
    if verbose:
        _say_headers(response)
    elif not response.ok:
        say(f"status {response.status}")
    if screenshot is not None:
        return _save(response, screenshot)
    sys.stdout.buffer.write(response.body)
    sys.stdout.buffer.flush()
    return 0


def single_settings(texts: Sequence[str], *, robots: bool, browser: bool = False) -> dict[str, Any]:
    """Return the settings with which a single page is fetched."""
    values = pairs("-s", texts)
    return {**({"fetcher": "browser"} if browser else {}), **values, "robots": robots}


async def _fetch(url: str, settings: dict[str, Any], screenshot: Path | None) -> Response:
    from skitter.browsing import Browsing, Screenshot
    from skitter.request import Request
    from skitter.run.page_fetcher import PageFetcher

    browsing = None if screenshot is None else Browsing(actions=(Screenshot(),))
    async with PageFetcher(settings) as fetcher:
        return await fetcher.fetch(Request(url, browsing=browsing))


def _save(response: Response, file: Path) -> int:
    picture = response.captured.get("screenshot")
    if picture is None:
        complain(f"{response.url} is not a page: {response.content_type}", "leave out --screenshot")
        return FAILED
    write_file(file, picture)
    return 0


def _say_headers(response: Response) -> None:
    for hop in response.request.redirects if response.request is not None else ():
        say(f"> {hop} redirects")
    say(f"> {response.url}")
    say(f"< {response.status} {response.protocol} from {response.ip} in {response.latency:.3f} s")
    for name, value in response.headers.items():
        say(f"< {name}: {value}")
