"""Outputs by name: which kind of output ``-o NAME`` means.

A kind has a short name that serves as scheme (``csv:items.txt``) and as suffix (``items.csv``). Another
package adds one by an entry point of the group ``skitter.stores`` with that name, which points to a callable
``(address: OutputAddress) -> Output``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import parse_qsl

from skitter.errors import StoreError
from skitter.plugins import PluginKind, needing
from skitter.secrets import refuse_raw_password, shown_url
from skitter.store.contract import Output, OutputAddress, Store
from skitter.store.database import BufferOptions, DatabaseOutput
from skitter.store.file_output import FileOutput
from skitter.store.merge import Format
from skitter.store.mongodb.location import MongoLocation
from skitter.store.postgresql.location import PostgresLocation
from skitter.store.redis_output import RedisOutput
from skitter.store.sqlite import SqliteOutput
from skitter.store.stdout import StdoutOutput

OutputFactory = Callable[[OutputAddress], Output]


def open_output(target: str) -> Output:
    """Return the output that a name means; nothing is opened yet.

    Raises :class:`~skitter.errors.StoreError` for an unknown kind or option, and lists those known.
    """
    if target == "-":
        return StdoutOutput()
    try:
        refuse_raw_password(target)
    except ValueError as error:
        raise StoreError(f"output {shown_url(target)!r}: {error}", remedy="correct the URL") from None
    for kind, rest, options in _readings(target):
        factory: OutputFactory | None = OUTPUTS.named(kind)
        if factory is not None:
            return factory(OutputAddress(target, kind, rest, options))
    found = OUTPUTS.at_path(target)
    if found is not None:
        at_path: OutputFactory = found[0]
        rest = found[1]
        plain, options = _options(rest)
        return at_path(OutputAddress(target, target.removesuffix(f":{rest}"), plain, options))
    raise StoreError(
        f"output {shown_url(target)!r} is of no known kind",
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


def _file(form: Format) -> OutputFactory:
    def make(address: OutputAddress) -> Output:
        _refuse_options(address, known=())
        _check_format(form, address)
        return FileOutput(address.target, Path(address.rest), form)

    return make


def _sqlite(address: OutputAddress) -> Output:
    _refuse_options(address, known=("table",))
    return SqliteOutput(address.target, Path(address.rest), **address.options)


def _refuse_options(address: OutputAddress, known: tuple[str, ...]) -> None:
    for option in address.options:
        if option not in known:
            raise StoreError(
                f"output {shown_url(address.target)!r} has the unknown option {option!r}",
                remedy=f"known options of {address.kind}: {', '.join(known) or 'none'}",
            )


def _mongodb(address: OutputAddress) -> Output:
    with needing("mongodb", f"output kind {address.kind!r}", StoreError):
        from skitter.store.mongodb.driver import MongoDriver  # noqa: PLC0415 - its client is an extra
    options = dict(address.options)
    terms = BufferOptions.taken_from(shown_url(address.target), options)
    place = MongoLocation.parse(address.kind, address.rest, options, address.secret("mongodb"))
    plain = terms.buffer == 1
    return DatabaseOutput("mongodb", address.target, lambda: MongoDriver(place, plain=plain), terms)


def _postgresql(address: OutputAddress) -> Output:
    with needing("postgresql", f"output kind {address.kind!r}", StoreError):
        from skitter.store.postgresql.driver import PostgresDriver  # noqa: PLC0415 - its client is an extra
    options = dict(address.options)
    terms = BufferOptions.taken_from(shown_url(address.target), options)
    place = PostgresLocation.parse(address.rest, options, address.secret("postgresql"))
    return DatabaseOutput("postgresql", address.target, lambda: PostgresDriver(place), terms)


def _remote(address: OutputAddress) -> Output:
    with needing("s3", f"output kind {address.kind!r}", StoreError):
        from skitter.store.remote import RemoteOutput  # noqa: PLC0415 - fsspec is an extra
        from skitter.store.remote_location import RemoteLocation  # noqa: PLC0415 - as above
    outside = {what: secret for what in _REMOTE_SECRETS if (secret := address.secret(address.kind, what))}
    options = outside | address.options
    terms = BufferOptions.taken_from(shown_url(address.target), {"flush": "1"} | options)
    for name in BufferOptions.__struct_fields__:
        options.pop(name, None)
    form = next((FORMATS[suffix] for suffix in _suffixes(address.rest) if suffix in FORMATS), None)
    if form is None:
        raise StoreError(
            f"output {address.kind}://{address.rest!r} does not say its format",
            remedy=f"use a name that ends in one of {', '.join(FORMATS)}",
        )
    _check_format(form, address)
    return RemoteOutput(RemoteLocation(address.kind, address.rest, form, options), terms)


def _check_format(form: Format, address: OutputAddress) -> None:
    if form.shape == "parquet":
        with needing("parquet", f"output kind {address.kind!r}", StoreError):
            import pyarrow  # noqa: F401, ICN001, PLC0415 - whether it is there


FORMATS = {
    "jsonl": Format(),
    "jsonl.gz": Format(packing="gz"),
    "jsonl.zst": Format(packing="zst"),
    "csv": Format("csv"),
    "csv.gz": Format("csv", "gz"),
    "csv.zst": Format("csv", "zst"),
    "parquet": Format("parquet"),
}
FORMATS |= {"jl": FORMATS["jsonl"], "ndjson": FORMATS["jsonl"]}
_FSSPEC = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "sftp", "smb", "hdfs", "webhdfs", "file")
"""Schemes of fsspec that can be written in one step."""
_REMOTE_SECRETS = ("key", "secret", "token", "password")
"""Options of theirs that may stand outside of the URL."""
_BUILT_IN: dict[str, OutputFactory] = {
    **{kind: _file(form) for kind, form in FORMATS.items()},
    **dict.fromkeys(_FSSPEC, _remote),
    "sqlite": _sqlite,
    "sqlite3": _sqlite,
    "db": _sqlite,
    "mongodb": _mongodb,
    "mongodb+srv": _mongodb,
    "postgresql": _postgresql,
    "postgres": _postgresql,
    "redis": RedisOutput.from_address,
    "rediss": RedisOutput.from_address,
}
OUTPUTS = PluginKind("output", "skitter.stores", _BUILT_IN, StoreError)
