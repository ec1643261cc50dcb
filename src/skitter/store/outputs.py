"""Outputs by name: which kind of output ``-o NAME`` means.

A kind has a short name that serves as scheme (``csv:items.txt``) and as suffix (``items.csv``). Another
package adds one by an entry point of the group ``skitter.stores`` with that name, which points to a callable
``(address: Address) -> Output``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import parse_qsl

import msgspec

from skitter.errors import StoreError
from skitter.parts import PartKind
from skitter.store.base import Output, Store
from skitter.store.file_output import FileOutput
from skitter.store.merge import Format
from skitter.store.sqlite_output import SqliteOutput
from skitter.store.stdout import StdoutOutput


class Address(msgspec.Struct, frozen=True):
    """What the name of an output says."""

    target: str
    """As the user gave it."""
    kind: str
    """The scheme or the suffix, in lower case."""
    rest: str
    """Without scheme and options: a path, or what follows ``scheme:`` of a service."""
    options: dict[str, str] = {}
    """What follows ``?``, decoded."""


type_of_factory = Callable[[Address], Output]


def open_output(target: str) -> Output:
    """Return the output that a name means; nothing is opened yet.

    Raises :class:`~skitter.errors.StoreError` for an unknown kind or option, and lists those known.
    """
    if target == "-":
        return StdoutOutput()
    for kind, rest, options in _readings(target):
        factory: type_of_factory | None = OUTPUTS.named(kind)
        if factory is not None:
            return factory(Address(target, kind, rest, options))
    found = OUTPUTS.at_path(target)
    if found is not None:
        at_path: type_of_factory = found[0]
        rest = found[1]
        plain, options = _options(rest)
        return at_path(Address(target, target.removesuffix(f":{rest}"), plain, options))
    raise StoreError(
        f"output {target!r} is of no known kind",
        remedy="use a name that ends in one of these, or write KIND:NAME; known are"
        f" {', '.join(OUTPUTS.known())}; '-' is stdout",
    )


def stores_for(outputs: Iterable[Output]) -> list[Store]:
    """Return the new stores of one worker: one for all outputs of a stream."""
    return [output.store() for output in {output.stream: output for output in outputs}.values()]


def _readings(target: str) -> Iterable[tuple[str, str, dict[str, str]]]:
    """Give the ways to read a name, the likeliest first: kind, rest, options."""
    plain, options = _options(target)
    scheme, colon, rest = plain.partition(":")
    if colon:
        yield scheme.lower(), rest.removeprefix("//"), options
    for suffix in _suffixes(target):
        yield suffix, target, {}
    for suffix in _suffixes(plain):
        yield suffix, plain, options


def _options(text: str) -> tuple[str, dict[str, str]]:
    """Take what follows the question mark apart."""
    found = re.fullmatch(r"(.*)\?(\w+=.*)", text, re.DOTALL)
    if found is None:
        return text, {}
    return found[1], dict(parse_qsl(found[2], keep_blank_values=True))


def _suffixes(name: str) -> list[str]:
    words = name.rpartition("/")[2].lower().split(".")
    return [".".join(words[start:]) for start in range(1, len(words))]


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
}
_BUILT_IN |= {"jl": _BUILT_IN["jsonl"], "ndjson": _BUILT_IN["jsonl"]}
OUTPUTS = PartKind("output", "skitter.stores", _BUILT_IN, StoreError)
