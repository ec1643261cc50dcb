"""``skitter fetch``: one page, as a job would get it."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skitter.cli.options import pairs
from skitter.cli.say import complain, say

if TYPE_CHECKING:
    from skitter.response import Response

Url = Annotated[str, typer.Argument(metavar="URL", show_default=False)]
Robots = Annotated[bool, typer.Option("--robots/--no-robots", help="Obey robots.txt.")]
OneSetting = Annotated[
    list[str] | None,
    typer.Option("--setting", "-s", metavar="NAME=VALUE", show_default=False, help="Any setting."),
]


def fetch(
    url: Url,
    *,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the headers, too, on standard error.")
    ] = False,
    robots: Robots = True,
    settings: OneSetting = None,
) -> None:
    """Fetch a page, with its redirects, and print its body. Exits with 1 if there is no answer."""
    from skitter.fetch.base import FetchError  # noqa: PLC0415 - `skitter --help` needs no engine

    try:
        response = asyncio.run(_fetch(url, single_settings(settings, robots=robots)))
    except FetchError as error:
        complain(f"{error.kind}: {error}", error.remedy)
        raise typer.Exit(1) from None
    if verbose:
        _tell_headers(response)
    elif not response.ok:
        say(f"status {response.status}")
    sys.stdout.buffer.write(response.body)
    sys.stdout.buffer.flush()


def single_settings(texts: list[str] | None, *, robots: bool) -> dict[str, Any]:
    """Return the settings under which a single page is fetched."""
    return {**pairs("-s", texts or []), "robots": robots}


async def _fetch(url: str, settings: dict[str, Any]) -> Response:
    from skitter.cli.courier import Courier  # noqa: PLC0415 - as above

    async with Courier(settings) as courier:
        return await courier.fetch(url)


def _tell_headers(response: Response) -> None:
    for hop in response.request.redirects if response.request is not None else ():
        say(f"> {hop} redirects")
    say(f"> {response.url}")
    say(f"< {response.status} {response.protocol} from {response.ip} in {response.latency:.3f} s")
    for name, value in response.headers.items():
        say(f"< {name}: {value}")
