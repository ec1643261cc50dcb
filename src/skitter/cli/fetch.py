"""``skitter fetch``: fetches one page in the same way as a job."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from skitter.cli.console import FAILED, complain, say
from skitter.cli.options import pairs, setting_option

if TYPE_CHECKING:
    from skitter.response import Response

url_argument = click.argument("url")
robots_option = click.option(
    "--robots/--no-robots", default=True, help="Obey robots.txt (the default), or ignore it."
)


@click.command()
@url_argument
@click.option("--verbose", "-v", is_flag=True, help="Also show the headers, on standard error.")
@robots_option
@setting_option
def fetch(url: str, verbose: bool, robots: bool, settings: tuple[str, ...]) -> int:
    """Fetch a page, follow its redirects, and print its body. Exits with 1 if the server does not answer."""
    from skitter.fetch.contract import FetchError

    try:
        response = asyncio.run(_fetch(url, single_settings(settings, robots=robots)))
    except FetchError as error:
        complain(f"{error.kind}: {error}", error.remedy)
        return FAILED
    if verbose:
        _tell_headers(response)
    elif not response.ok:
        say(f"status {response.status}")
    sys.stdout.buffer.write(response.body)
    sys.stdout.buffer.flush()
    return 0


def single_settings(texts: Sequence[str], *, robots: bool) -> dict[str, Any]:
    """Return the settings with which a single page is fetched."""
    return {**pairs("-s", texts), "robots": robots}


async def _fetch(url: str, settings: dict[str, Any]) -> Response:
    from skitter.cli.page_fetcher import PageFetcher

    async with PageFetcher(settings) as fetcher:
        return await fetcher.fetch(url)


def _tell_headers(response: Response) -> None:
    for hop in response.request.redirects if response.request is not None else ():
        say(f"> {hop} redirects")
    say(f"> {response.url}")
    say(f"< {response.status} {response.protocol} from {response.ip} in {response.latency:.3f} s")
    for name, value in response.headers.items():
        say(f"< {name}: {value}")
