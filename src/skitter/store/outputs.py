"""The kinds of output, and the one that a name given with ``-o`` selects.

Each kind has a short name that works as a scheme (``csv:items.txt``) and as a suffix (``items.csv``). A package adds
a kind with an entry point of that name in the group ``skitter.stores``. It refers to a callable
``(address: OutputAddress) -> Output``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from urllib.parse import parse_qsl

import msgspec

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
    """Return the output that a name selects. Nothing is opened yet.

    Raises :class:`~skitter.errors.StoreError` for an unknown kind or option; the remedy lists the known ones.
    """
    if target == "-":
        return StdoutOutput()
    try:
        refuse_raw_password(target)
    except ValueError as error:
        raise StoreError(
            f"output {shown_url(target)!r}: {error}", remedy="correct the URL", field="output"
        ) from None
    for kind, rest, options in _interpretations(target):
        factory: OutputFactory | None = OUTPUTS.named(kind)
        if factory is not None:
            return factory(OutputAddress(target, kind, rest, options))
    plugin = OUTPUTS.at_path(target)
    if plugin is not None:
        at_path: OutputFactory = plugin[0]
        rest = plugin[1]
        plain, options = split_options(rest)
        return at_path(OutputAddress(target, target.removesuffix(f":{rest}"), plain, options))
    raise StoreError(
        f"unknown kind of output: {shown_url(target)!r}",
        remedy="use a name with one of these suffixes, or write KIND:NAME with one of these kinds:"
        f" {', '.join(OUTPUTS.known())}; '-' is the standard output",
        field="output",
    )


def stores_for(outputs: Iterable[Output], *, fleet: bool = False) -> list[Store]:
    """Create the stores of one worker: one for all outputs of a stream. ``fleet``: see :class:`StoreContext`."""
    by_stream = {stream_of(output, fleet=fleet): output for output in outputs}
    return [
        output.staging_store() if fleet and isinstance(output, RedisOutput) else output.store()
        for output in by_stream.values()
    ]


def stream_of(output: Output, *, fleet: bool) -> str:
    """Return the name of the target of an output's stores. ``fleet``: see :class:`StoreContext`."""
    return output.staging_stream if fleet and isinstance(output, RedisOutput) else output.stream


def _interpretations(target: str) -> Iterable[tuple[str, str, dict[str, str]]]:
    """Yield the possible interpretations of a name, most likely first: kind, rest, options."""
    plain, options = split_options(target)
    scheme, colon, rest = plain.partition(":")
    if colon:
        yield scheme.lower(), rest.removeprefix("//"), options
    for suffix in _suffixes(target):
        yield suffix, target, {}
    for suffix in _suffixes(plain):
        yield suffix, plain, options


def split_options(text: str) -> tuple[str, dict[str, str]]:
    """Split a name at the question mark into the name and its options."""
    match = re.fullmatch(r"(.*)\?(\w+=.*)", text, re.DOTALL)
    if match is None:
        return text, {}
    return match[1], dict(parse_qsl(match[2], keep_blank_values=True))


def _suffixes(name: str) -> list[str]:
    words = name.rpartition("/")[2].lower().split(".")
    return [".".join(words[start:]) for start in range(1, len(words))]


def _file(file_format: Format) -> OutputFactory:
    def make(address: OutputAddress) -> Output:
        known = ("fields", _SPREADSHEET) if file_format.shape == "csv" else ("fields",)
        _refuse_options(address, known)
        chosen = _with_options(file_format, address, dict(address.options))
        return FileOutput(address.target, Path(address.rest), chosen)

    return make


def _fields(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the fields that the option ``fields`` selects; none: all."""
    return tuple(filter(None, (name.strip() for name in options.get("fields", "").split(","))))


def _sqlite(address: OutputAddress) -> Output:
    _refuse_options(address, known=("table",))
    return SqliteOutput(address.target, Path(address.rest), **address.options)


def _refuse_options(address: OutputAddress, known: tuple[str, ...]) -> None:
    for option in address.options:
        if option not in known:
            raise StoreError(
                f"unknown option {option!r} of output {shown_url(address.target)!r}",
                remedy=f"remove it, or use one of the options of {address.kind}: {', '.join(known) or '(none)'}",
                field=option,
            )


def _mongodb(address: OutputAddress) -> Output:
    with needing("mongodb", f"output kind {address.kind!r}", StoreError):
        from skitter.store.mongodb.driver import MongoDriver  # noqa: PLC0415 - its client is an extra
    options = dict(address.options)
    buffer_options = BufferOptions.pop_from(shown_url(address.target), options)
    location = MongoLocation.parse(address.kind, address.rest, options, address.secret("mongodb"))
    plain = buffer_options.buffer == 1
    return DatabaseOutput(
        "mongodb", address.target, lambda: MongoDriver(location, plain=plain), buffer_options
    )


def _postgresql(address: OutputAddress) -> Output:
    with needing("postgresql", f"output kind {address.kind!r}", StoreError):
        from skitter.store.postgresql.driver import PostgresDriver  # noqa: PLC0415 - its client is an extra
    options = dict(address.options)
    buffer_options = BufferOptions.pop_from(shown_url(address.target), options)
    location = PostgresLocation.parse(address.rest, options, address.secret("postgresql"))
    return DatabaseOutput("postgresql", address.target, lambda: PostgresDriver(location), buffer_options)


def _remote(address: OutputAddress) -> Output:
    with needing("s3", f"output kind {address.kind!r}", StoreError):
        from skitter.store.remote import RemoteOutput  # noqa: PLC0415 - fsspec is an extra
        from skitter.store.remote_location import RemoteLocation  # noqa: PLC0415 - as above
    secrets = {what: secret for what in _REMOTE_SECRETS if (secret := address.secret(address.kind, what))}
    options = secrets | address.options
    buffer_options = BufferOptions.pop_from(shown_url(address.target), {"flush": "1"} | options)
    for name in BufferOptions.__struct_fields__:
        options.pop(name, None)
    file_format = next((FORMATS[suffix] for suffix in _suffixes(address.rest) if suffix in FORMATS), None)
    if file_format is None:
        raise StoreError(
            f"output {address.kind}://{address.rest!r} does not name its format",
            remedy=f"use a name that ends in one of {', '.join(FORMATS)}",
            field="output",
        )
    file_format = _with_options(file_format, address, options)
    return RemoteOutput(RemoteLocation(address.kind, address.rest, file_format, options), buffer_options)


def _with_options(file_format: Format, address: OutputAddress, options: dict[str, str]) -> Format:
    """Return a format with its options, which are removed from ``options``. Raises StoreError."""
    if file_format.shape == "parquet":
        with needing("parquet", f"output kind {address.kind!r}", StoreError):
            import pyarrow  # noqa: F401, ICN001, PLC0415 - tests whether it is installed
    if file_format.shape == "xlsx":
        with needing("excel", f"output kind {address.kind!r}", StoreError):
            import xlsxwriter  # noqa: F401, PLC0415 - as above
    file_format = msgspec.structs.replace(file_format, fields=_fields(options))
    options.pop("fields", None)
    if file_format.shape != "csv" or (choice := options.pop(_SPREADSHEET, "no")) == "no":
        return file_format
    if choice != "yes":
        raise StoreError(
            f"option {_SPREADSHEET}={choice} of output {shown_url(address.target)!r}",
            remedy="write yes or no",
            field=_SPREADSHEET,
        )
    return msgspec.structs.replace(file_format, spreadsheet=True)


_SPREADSHEET = "spreadsheet"
"""Option of CSV files; see :func:`~skitter.store.formats.csv_chunks`."""
FORMATS = {
    "jsonl": Format(),
    "jsonl.gz": Format(compression="gz"),
    "jsonl.zst": Format(compression="zst"),
    "json": Format("json"),
    "json.gz": Format("json", "gz"),
    "json.zst": Format("json", "zst"),
    "csv": Format("csv"),
    "csv.gz": Format("csv", "gz"),
    "csv.zst": Format("csv", "zst"),
    "xml": Format("xml"),
    "xml.gz": Format("xml", "gz"),
    "xml.zst": Format("xml", "zst"),
    "parquet": Format("parquet"),
    "xlsx": Format("xlsx"),
}
FORMATS |= {"jl": FORMATS["jsonl"], "ndjson": FORMATS["jsonl"]}
_FSSPEC = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "sftp", "smb", "hdfs", "webhdfs", "file")
"""Schemes of fsspec that support atomic writes."""
_REMOTE_SECRETS = ("key", "secret", "token", "password")
"""Options of these schemes that can be set outside the URL."""
_BUILT_IN: dict[str, OutputFactory] = {
    **{kind: _file(file_format) for kind, file_format in FORMATS.items()},
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
