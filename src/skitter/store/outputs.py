"""Outputs by name: which kind of output ``-o NAME`` means.

A kind has a short name that serves as scheme (``csv:items.txt``) and as suffix (``items.csv``). Another
package adds one by an entry point of the group ``skitter.stores`` with that name, which points to a callable
``(address: Address) -> Output``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from pathlib import Path
from urllib.parse import parse_qsl

from skitter.errors import StoreError
from skitter.store.address import Address as Address  # noqa: PLC0414 - other packages know it from here
from skitter.store.base import Output, Store
from skitter.store.file_output import FileOutput
from skitter.store.merge import Format
from skitter.store.redis_output import RedisOutput
from skitter.store.sqlite_output import SqliteOutput
from skitter.store.stdout import StdoutOutput

ENTRY_POINTS = "skitter.stores"


type_of_factory = Callable[[Address], Output]


def open_output(target: str) -> Output:
    """Return the output that a name means; nothing is opened yet.

    Raises :class:`~skitter.errors.StoreError` for an unknown kind or option, and lists those known.
    """
    if target == "-":
        return StdoutOutput()
    for kind, rest, options in _readings(target):
        factory = _factory(kind)
        if factory:
            return factory(Address(target, kind, rest, options))
    known = sorted({*_BUILT_IN, *(point.name for point in entry_points(group=ENTRY_POINTS))})
    raise StoreError(
        f"output {target!r} is of no known kind",
        remedy=f"use a name that ends in one of these, or write KIND:NAME; known are {', '.join(known)}; '-' is stdout",
    )


def stores_for(outputs: Iterable[Output]) -> list[Store]:
    """Return the new stores of one worker: one for all outputs of a stream."""
    return [output.store() for output in {output.stream: output for output in outputs}.values()]


def _readings(target: str) -> Iterable[tuple[str, str, dict[str, str]]]:
    """Give the ways to read a name, the likeliest first: kind, rest, options."""
    plain, options = target, {}
    found = re.fullmatch(r"(.*)\?(\w+=.*)", target, re.DOTALL)
    if found:
        plain, options = found[1], dict(parse_qsl(found[2], keep_blank_values=True))
    scheme, colon, rest = plain.partition(":")
    if colon:
        yield scheme.lower(), rest.removeprefix("//"), options
    for suffix in _suffixes(target):
        yield suffix, target, {}
    for suffix in _suffixes(plain):
        yield suffix, plain, options


def _suffixes(name: str) -> list[str]:
    words = name.rpartition("/")[2].lower().split(".")
    return [".".join(words[start:]) for start in range(1, len(words))]


def _factory(kind: str) -> type_of_factory | None:
    built_in = _BUILT_IN.get(kind)
    if built_in:
        return built_in
    for point in entry_points(group=ENTRY_POINTS, name=kind):
        try:
            factory: type_of_factory = point.load()
        except ImportError as error:
            raise StoreError(
                f"output kind {kind!r} cannot be loaded from {point.value}: {error}",
                remedy="install the package that brings it again, with its dependencies",
            ) from error
        return factory
    return None


def _file(form: Format) -> type_of_factory:
    def make(address: Address) -> Output:
        _refuse_options(address, known=())
        return FileOutput(address.target, Path(address.rest), form)

    return make


def _sqlite(address: Address) -> Output:
    _refuse_options(address, known=("table",))
    return SqliteOutput(address.target, Path(address.rest), **address.options)


def _refuse_options(address: Address, known: tuple[str, ...]) -> None:
    for option in address.options:
        if option not in known:
            raise StoreError(
                f"output {address.target!r} has the unknown option {option!r}",
                remedy=f"known options of {address.kind}: {', '.join(known) or 'none'}",
            )


_BUILT_IN: dict[str, type_of_factory] = {
    "jsonl": _file(Format()),
    "jsonl.gz": _file(Format(packing="gz")),
    "jsonl.zst": _file(Format(packing="zst")),
    "csv": _file(Format("csv")),
    "csv.gz": _file(Format("csv", "gz")),
    "csv.zst": _file(Format("csv", "zst")),
    "sqlite": _sqlite,
    "sqlite3": _sqlite,
    "db": _sqlite,
    "redis": RedisOutput.from_address,
    "rediss": RedisOutput.from_address,
}
_BUILT_IN |= {"jl": _BUILT_IN["jsonl"], "ndjson": _BUILT_IN["jsonl"]}
