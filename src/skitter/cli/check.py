"""``skitter check``: calls callbacks according to their contracts, and compares their results."""

from __future__ import annotations

import asyncio
import inspect
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from skitter.cli.console import FAILED, painted, say
from skitter.cli.fetch import robots_option, single_settings
from skitter.cli.options import argument_option, complete_file, pairs, setting_option
from skitter.errors import SkitterError, UsageError, counted, did_you_mean

if TYPE_CHECKING:
    from skitter.request import Request
    from skitter.response import Response
    from skitter.run.builder import JobBuilder
    from skitter.run.page_fetcher import PageFetcher

_KINDS = {"items": "items", "item": "items", "requests": "requests", "request": "requests"}


class Contract(msgspec.Struct):
    """What the docstring of a callback promises: lines such as ``@url https://example.com/``."""

    url: str = ""
    body: Path | None = None
    """File with the page; ``None``: the page is fetched."""
    cb_kwargs: dict[str, Any] = {}
    meta: dict[str, Any] = {}
    returns: list[tuple[str, float, float]] = []
    """For ``items`` and ``requests``, the minimum and the maximum number."""
    scrapes: list[str] = []
    """Fields that every item must have, with a value."""


def contract_of(callback: Callable[..., Any], folder: Path) -> Contract | None:
    """Read the contract of a callback; ``None`` if it has no ``@url``.

    ``folder``: folder of the files of pages. Raises :class:`~skitter.errors.UsageError` for an invalid line.
    """
    found = Contract()
    for line in (inspect.getdoc(callback) or "").splitlines():
        name, _, value = line.strip().partition(" ")
        if name.startswith("@"):
            try:
                _add(found, name.removeprefix("@"), value.strip(), folder)
            except (ValueError, msgspec.DecodeError, msgspec.ValidationError) as error:
                raise UsageError(f"invalid contract {line.strip()!r}: {error}", remedy=_REMEDY) from None
    return found if found.url else None


_REMEDY = "the guide on debugging shows the contracts"


def _add(found: Contract, name: str, value: str, folder: Path) -> None:
    if name == "url":
        found.url = value
    elif name == "body":
        found.body = folder / value
    elif name in {"cb_kwargs", "meta"}:
        setattr(found, name, msgspec.json.decode(value, type=dict[str, Any]))
    elif name == "scrapes":
        found.scrapes += value.split()
    elif name == "returns":
        kind, *numbers = value.split()
        if kind not in _KINDS or len(numbers) > 2:
            raise ValueError("write it like `@returns items 1 16`")
        low = float(numbers[0]) if numbers else 1
        found.returns.append((_KINDS[kind], low, float(numbers[1]) if len(numbers) > 1 else math.inf))
    else:
        raise ValueError(did_you_mean(name, ("url", "body", "returns", "scrapes", "cb_kwargs", "meta")))


@click.command()
@click.argument(
    "spiders",
    metavar="FILE.py[:CLASS]|MODULE[:CLASS]...",
    nargs=-1,
    required=True,
    shell_complete=complete_file,
)
@argument_option
@robots_option
@setting_option
def check(
    spiders: tuple[str, ...], arguments: tuple[str, ...], robots: bool, settings: tuple[str, ...]
) -> int:
    """Check callbacks by the contracts in their docstrings.

    Calls the callbacks, and compares their results. Exits with 1 if a contract does not hold. Nothing is stored.
    """
    from skitter.run.builder import JobBuilder
    from skitter.run.job import JobSpec
    from skitter.run.loader import find_spider

    spider_arguments = pairs("-a", arguments)
    values = single_settings(settings, robots=robots)
    checked = failed = 0
    for place in spiders:
        name, _ = find_spider(place)
        builder = JobBuilder(JobSpec(job="single", spider=name, arguments=spider_arguments, settings=values))
        folder = Path(inspect.getfile(type(builder.spider))).parent
        methods = inspect.getmembers(type(builder.spider), inspect.isfunction)
        contracts = [(name, found) for name, method in methods if (found := contract_of(method, folder))]
        for result in asyncio.run(_check_all(builder, contracts)):
            checked += 1
            failed += bool(result.problems)
            word, color = ("FAIL", "red") if result.problems else ("ok  ", "green")
            click.echo(f"{painted(word, color, sys.stdout)} {result.label}: {result.summary}")
            for problem in result.problems:
                click.echo(f"     {problem}")
    say(f"contracts: {checked}, failed: {failed}")
    if not checked:
        raise UsageError("no callback has a contract", remedy=f"write one in a docstring; {_REMEDY}")
    return FAILED if failed else 0


class CheckedContract(NamedTuple):
    """The result of checking a contract."""

    label: str
    """``SPIDER.CALLBACK``."""
    problems: list[str]
    """Empty if the contract holds."""
    summary: str
    """What the callback returned, for display."""


async def _check_all(builder: JobBuilder, contracts: list[tuple[str, Contract]]) -> list[CheckedContract]:
    """Check the contracts of a spider, given with the names of their callbacks."""
    from skitter.run.page_fetcher import PageFetcher

    results = []
    async with PageFetcher(builder) as fetcher:
        for name, contract in contracts:
            problems, summary = await _check_one(builder, fetcher, name, contract)
            label = f"{type(builder.spider).__name__}.{name}"
            results.append(CheckedContract(label, problems, summary))
    return results


async def _check_one(
    builder: JobBuilder, fetcher: PageFetcher, name: str, contract: Contract
) -> tuple[list[str], str]:
    from skitter.request import Request
    from skitter.run.page_fetcher import CallbackFailed, call_back

    request = Request(contract.url, name, meta=contract.meta, cb_kwargs=contract.cb_kwargs)
    try:
        encoded, requests = await call_back(builder, request, await _page(fetcher, contract, request))
    except CallbackFailed as error:
        return [str(error)], "the callback raised an exception"
    except SkitterError as error:
        return [str(error)], error.remedy
    items = [msgspec.json.decode(item) for item in encoded]
    amounts = {"items": len(items), "requests": len(requests)}
    problems = [
        f"{kind}: {amounts[kind]}, expected {_bounds_in_words(low, high)}"
        for kind, low, high in contract.returns
        if not low <= amounts[kind] <= high
    ]
    for field in contract.scrapes:
        lacking = [item for item in items if item.get(field) in (None, "", [], {})]
        if lacking:
            problems.append(
                f"field {field!r} is missing or empty in {counted(len(lacking), 'item')}, such as {lacking[0]}"
            )
    return problems, f"items: {amounts['items']}, requests: {amounts['requests']}"


def _bounds_in_words(low: float, high: float) -> str:
    if high == math.inf:
        return f"at least {low:g}"
    return f"{low:g} to {high:g}" if high > low else f"{low:g}"


async def _page(fetcher: PageFetcher, contract: Contract, request: Request) -> Response:
    from skitter.response import Response

    if contract.body is None:
        return await fetcher.fetch(request)
    try:
        body = await asyncio.to_thread(contract.body.read_bytes)
    except OSError as error:
        raise UsageError(f"cannot read {contract.body}: {error.strerror}", remedy="correct @body") from error
    return Response(contract.url, body=body, request=request)
