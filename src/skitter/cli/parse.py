"""``skitter parse`` and ``skitter list``: try one callback on one page; list the spiders of files."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from skitter.cli.console import FAILED, aligned, complain, say
from skitter.cli.fetch import robots_option, single_settings
from skitter.cli.options import argument_option, complete_file, json_option, pairs, setting_option
from skitter.errors import SkitterError, UsageError


def _read_object(_context: click.Context, parameter: click.Parameter, text: str) -> dict[str, Any]:
    """Return the values of a JSON object. Raises :class:`~skitter.errors.UsageError`."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise UsageError(
            f"invalid value for {parameter.opts[0]}: {text!r:.80} ({error})",
            remedy="""write a JSON object, such as '{"page": 2}'""",
            field=parameter.name,
        ) from error


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
    "--meta", "-m", metavar="JSON", default="{}", callback=_read_object,
    help="Values for `meta` of the request, as a JSON object.",
)  # fmt: skip
@click.option(
    "--cbkwargs", metavar="JSON", default="{}", callback=_read_object,
    help="Keyword arguments for the callback (`cb_kwargs`), as a JSON object.",
)  # fmt: skip
@argument_option
@robots_option
@setting_option
@json_option
def parse(
    url: str,
    spider: str,
    callback: str | None,
    meta: dict[str, Any],
    cbkwargs: dict[str, Any],
    arguments: tuple[str, ...],
    robots: bool,
    settings: tuple[str, ...],
    as_json: bool,
) -> int:
    """Call a callback with one page, and show what it yields.

    Items and requests are two tables. Long values of items are cut; --json prints them in full.
    Nothing is stored, and hooks do not run. A request that the crawl would refuse is shown with the reason. Exits with 1 if the fetch or the
    callback fails.
    """
    from skitter.cli.tables import item_lines, to_json
    from skitter.request import Request
    from skitter.run.job import JobSpec
    from skitter.run.loader import find_spider
    from skitter.run.page_fetcher import CallbackFailed, try_callback

    name, _ = find_spider(spider)
    values = single_settings(settings, robots=robots)
    spec = JobSpec(job="single", spider=name, arguments=pairs("-a", arguments), settings=values)
    request = Request(url, callback, meta=meta, cb_kwargs=cbkwargs)
    try:
        response, items, requests = asyncio.run(try_callback(spec, request))
    except CallbackFailed as error:
        complain(str(error), error.remedy)
        return FAILED
    if not response.ok:
        say(f"status {response.status}")
    if as_json:
        click.echo(to_json({"items": items, "requests": [request._asdict() for request in requests]}))
        return 0
    if items:
        click.echo(item_lines(items))
    if items and requests:
        click.echo()
    if requests:
        rows = [("CALLBACK", "METHOD", "REFUSED", "URL")]
        rows += [
            (request.callback, request.method, request.refused or "-", request.url) for request in requests
        ]
        click.echo(aligned(rows))
    say(f"items: {len(items):,}, requests: {len(requests):,}")
    return 0


@click.command("list")
@click.argument("places", metavar="[FILE.py|FOLDER|MODULE]...", nargs=-1, shell_complete=complete_file)
@json_option
def list_spiders(places: tuple[str, ...], as_json: bool) -> int:
    """List the spiders in files, folders and modules.

    They are listed by the names that `skitter run` takes, with recipes.
    Folders are searched with their subfolders, and packages with their modules. A file or module that cannot be imported
    is reported, and the exit status is 1. [default: the current folder]
    """
    from skitter.cli.tables import to_json
    from skitter.run.job import RECIPES
    from skitter.run.loader import spiders_in_file, spiders_in_module

    found: list[dict[str, str]] = []
    broken = False
    paths = [Path(place) for place in places or (".",) if not _is_module(place)]
    waiting: list[Path | str] = [*_files(paths, (".py", *RECIPES)), *filter(_is_module, places)]
    while waiting:
        place = waiting.pop(0)
        inner: list[str] = []
        try:
            if isinstance(place, Path):
                spiders = spiders_in_file(place)
            else:
                spiders, inner = spiders_in_module(place)
        except SkitterError as error:
            complain(str(error) if str(place) in str(error) else f"{place}: {error}", error.remedy)
            broken = True
            continue
        waiting = [*inner, *waiting]
        is_recipe = isinstance(place, Path) and place.suffix != ".py"
        found += [
            {"spider": str(place) if is_recipe else f"{place}:{name}", "about": _about(spider)}
            for name, spider in spiders.items()
        ]
    if as_json:
        click.echo(to_json(found))
    elif found:
        click.echo(aligned([("SPIDER", "DESCRIPTION"), *((row["spider"], row["about"]) for row in found)]))
    return FAILED if broken else 0


def _about(spider: type) -> str:
    return inspect.cleandoc(spider.__dict__.get("__doc__") or "").partition("\n")[0]


def _is_module(place: str) -> bool:
    words = place.split(".")
    return not Path(place).exists() and words[-1] != "py" and all(map(str.isidentifier, words))


def _files(places: Iterable[Path], suffixes: tuple[str, ...]) -> Iterator[Path]:
    for place in places:
        if not place.exists():
            raise UsageError(
                f"no such file, folder or module: {place}",
                remedy="name a file, a folder or a module",
                field="places",
            )
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
    """Return whether a file may contain a spider, so that other files are not imported."""
    text = path.read_bytes()
    return b"skitter" in text if path.suffix == ".py" else b"pages:" in text or b"[pages" in text
