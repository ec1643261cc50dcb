"""``skitter parse`` and ``skitter list``: try one callback on one page; list the spiders of files."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from skitter.cli.console import FAILED, aligned, complain, say
from skitter.cli.fetch import robots_option, single_settings
from skitter.cli.options import complete_file, json_option, pairs, setting_option
from skitter.errors import SkitterError, UsageError

if TYPE_CHECKING:
    from skitter.request import Request
    from skitter.run.builder import JobBuilder


@click.command()
@click.argument("url")
@click.option(
    "--spider",
    required=True,
    metavar="FILE.py[:CLASS]|MODULE[:CLASS]|RECIPE.yaml",
    shell_complete=complete_file,
    help="Spider whose callback is called.",
)
@click.option("--callback", "-c", metavar="NAME", help="Callback to call. [default: parse]")
@click.option(
    "--argument", "-a", "arguments", multiple=True, metavar="NAME=VALUE", help="Argument of the spider. Repeatable."
)  # fmt: skip
@robots_option
@setting_option
@json_option
def parse(
    url: str,
    spider: str,
    callback: str | None,
    arguments: tuple[str, ...],
    robots: bool,
    settings: tuple[str, ...],
    as_json: bool,
) -> int:
    """Fetch one page, call a callback of a spider with it, and show its items and requests.

    Nothing is stored, and hooks do not run. A request that the crawl would refuse is shown with the reason. Exits with 1 if the fetch or the
    callback fails.
    """
    from skitter.cli.tables import to_json
    from skitter.fetch.contract import FetchError
    from skitter.run.loader import find_spider

    name, _ = find_spider(spider)
    values = single_settings(settings, robots=robots)
    try:
        items, requests = asyncio.run(_parse(url, name, callback, dict(pairs("-a", arguments)), values))
    except FetchError as error:
        complain(f"{error.kind}: {error}", error.remedy)
        return FAILED
    except _CallbackFailed as error:
        complain(str(error), error.remedy)
        return FAILED
    if as_json:
        click.echo(to_json({"items": items, "requests": [request._asdict() for request in requests]}))
        return 0
    for item in items:
        click.echo(to_json(item))
    if requests:
        rows = [("CALLBACK", "METHOD", "REFUSED", "URL")]
        rows += [
            (request.callback, request.method, request.refused or "-", request.url) for request in requests
        ]
        click.echo(aligned(rows))
    say(f"items: {len(items):,}, requests: {len(requests):,}")
    return 0


class _Requested(NamedTuple):
    url: str
    callback: str
    method: str
    refused: str
    """Reason why the crawl would refuse it; empty if it would not."""


class _CallbackFailed(SkitterError):
    """The callback raised an exception, or returned something unsupported."""


async def _parse(
    url: str, spider: str, callback: str | None, arguments: dict[str, str], settings: dict[str, Any]
) -> tuple[list[Any], list[_Requested]]:
    import msgspec

    from skitter.cli.page_fetcher import PageFetcher
    from skitter.frontier.records import JobInfo
    from skitter.item import encode_item
    from skitter.links import Links, SkippedLinks
    from skitter.request import Request
    from skitter.run.builder import JobBuilder
    from skitter.run.job import JobSpec
    from skitter.worker.callbacks import CallbackRunner, describe

    spec = JobSpec(job="single", spider=spider, arguments=arguments, settings=settings)
    builder = await asyncio.to_thread(JobBuilder, spec)
    runner = CallbackRunner()
    function = runner.find(builder.spider, callback)
    async with PageFetcher(builder) as fetcher:
        response = await fetcher.fetch(Request(url, callback))
        if not response.ok:
            say(f"status {response.status}")
        try:
            results = await runner.run(function, response)
        except Exception as error:
            raise _CallbackFailed(f"callback {callback or 'parse'}: {describe(error)}") from error
    items: list[Any] = []
    requests: list[Request] = []
    for result in results:
        if isinstance(result, Request):
            requests.append(result)
        elif isinstance(result, Links):
            requests += result
        elif not isinstance(result, SkippedLinks):
            items.append(msgspec.Raw(encode_item(result)))
    info = JobInfo(fingerprint_seed=0, fingerprint_version=0, lease_seconds=60.0)
    return items, list(_judged(builder, info, requests))


def _judged(builder: JobBuilder, info: Any, requests: list[Request]) -> Iterator[_Requested]:
    links = builder.link_collector(info)
    known: set[bytes] = set()
    for request in requests:
        entry = links.entry(request)
        refused = entry if isinstance(entry, str) else ""
        if not isinstance(entry, str):
            if entry.dedup and entry.fingerprint in known:
                refused = "duplicate"
            known.add(entry.fingerprint)
        yield _Requested(request.url, str(request.callback or "parse"), request.method, refused)


@click.command("list")
@click.argument(
    "places", metavar="[FILE.py|FOLDER]...", nargs=-1, type=click.Path(path_type=Path, exists=True)
)
@json_option
def list_spiders(places: tuple[Path, ...], as_json: bool) -> int:
    """List the spiders and recipes in files and folders, with the names that `skitter run` takes.

    Folders are searched with their subfolders. A file that cannot be imported is reported, and the exit status is 1.
    [default: the current folder]
    """
    from skitter.cli.tables import to_json
    from skitter.run.job import RECIPES
    from skitter.run.loader import spiders_in_file

    found: list[dict[str, str]] = []
    broken = False
    for path in _files(places or (Path(),), (".py", *RECIPES)):
        try:
            spiders = spiders_in_file(path)
        except SkitterError as error:
            complain(f"{path}: {error}", error.remedy)
            broken = True
            continue
        found += [
            {"spider": f"{path}:{name}" if path.suffix == ".py" else str(path), "about": _about(spider)}
            for name, spider in spiders.items()
        ]
    if as_json:
        click.echo(to_json(found))
    elif found:
        click.echo(aligned([("SPIDER", "DESCRIPTION"), *((one["spider"], one["about"]) for one in found)]))
    return FAILED if broken else 0


def _about(spider: type) -> str:
    return (inspect.cleandoc(spider.__dict__.get("__doc__") or "").splitlines() or [""])[0]


def _files(places: tuple[Path, ...], suffixes: tuple[str, ...]) -> Iterator[Path]:
    for place in places:
        if place.is_dir():
            for path in sorted(place.rglob("*")):
                hidden = any(part.startswith((".", "_")) for part in path.relative_to(place).parts)
                if path.suffix in suffixes and path.is_file() and not hidden and _mentions_skitter(path):
                    yield path
        elif place.suffix in suffixes:
            yield place
        else:
            raise UsageError(f"not a spider or a recipe: {place}", remedy="name a .py, .yaml or .toml file")


def _mentions_skitter(path: Path) -> bool:
    """Return whether a file may hold a spider, so that others are not imported."""
    text = path.read_bytes()
    return b"skitter" in text if path.suffix == ".py" else b"pages:" in text or b"[pages" in text
