"""The kinds of output, and how a name given with ``-o`` selects one.

Each kind has a short name that works as a scheme (``csv:items.txt``) and as a suffix (``items.csv``). A package adds
a kind with an entry point of that name in the group ``skitter.stores``. It refers to a callable
``(address: OutputAddress) -> Output``, or to a class with a method ``save`` (see :class:`~skitter.store.saving.Saver`).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Literal, cast, get_args
from urllib.parse import parse_qsl

import msgspec

from skitter.errors import StoreError, close_names
from skitter.plugins import PluginKind, import_path, needing
from skitter.secrets import refuse_raw_password, shown_url
from skitter.store.contract import ArchiveStore, Output, OutputAddress, Store
from skitter.store.file_output import FileOutput
from skitter.store.formats import Compression, CsvCells
from skitter.store.merge import Format
from skitter.store.saving import Saver, SavingOutput
from skitter.store.selection import ITEM_CLASSES, OPTIONS, SelectingOutput, take_item_classes

OutputFactory = Callable[[OutputAddress], Output]


def open_output(target: str) -> Output:
    """Return the output that a name selects. Nothing is opened yet.

    Raises :class:`~skitter.errors.StoreError` for an unknown kind or option; the remedy names similar ones.
    """
    plain, item_classes = take_item_classes(target)
    output = _open_output(plain)
    if item_classes is None:
        return output
    if output.holds_responses:
        raise StoreError(
            f"output {shown_url(target)!r} is an archive, which holds responses and no items",
            remedy=f"remove the option {ITEM_CLASSES}",
            field=ITEM_CLASSES,
        )
    return SelectingOutput(target, output, item_classes)


def _open_output(target: str) -> Output:
    """Return the output of all items that a name selects."""
    if target == "-":
        from skitter.store.stdout import StdoutOutput  # noqa: PLC0415 - most runs do not use this kind of output

        return StdoutOutput()
    try:
        refuse_raw_password(target)
    except ValueError as error:
        raise StoreError(
            f"output {shown_url(target)!r}: {error}", remedy="correct the URL", field="output"
        ) from None
    plain, options = split_options(target)
    scheme, _, rest = plain.partition(":")
    if (factory := OUTPUTS.named(scheme.lower()) if rest else None) is not None:
        return _made(factory, OutputAddress(target, scheme.lower(), rest.removeprefix("//"), options))
    if (plugin := OUTPUTS.at_path(plain)) is not None:  # before suffixes: module:Name:items.db
        return _made(
            plugin[0], OutputAddress(target, plain.removesuffix(f":{plugin[1]}"), plugin[1], options)
        )
    for kind, name, kind_options in _by_suffix(target, plain, options):
        if (factory := OUTPUTS.named(kind)) is not None:
            return _made(factory, OutputAddress(target, kind, name, kind_options))
    kinds = [scheme.lower(), *(kind for kind, _, _ in _by_suffix(target, plain, options))]
    near = [name for kind in kinds for name in close_names(kind, OUTPUTS.known(), most=2, cutoff=0.7)]
    example = " or ".join(dict.fromkeys(near)) or "jsonl, csv, xlsx or postgresql"
    raise StoreError(
        f"unknown kind of output: {shown_url(target)!r}",
        remedy=f"use a suffix or a scheme such as {example}; see the guide on outputs",
        field="output",
    )


def open_item_output(target: str) -> Output:
    """Return the output that a name selects, for the items of a part of a job. Raises the errors of :func:`open_output`.

    An archive is refused, because it holds the responses of a whole job.
    """
    output = open_output(target)
    if output.holds_responses:
        raise StoreError(
            f"output {output.target!r} is an archive, which holds the responses of a whole job",
            remedy="name it as an output of the job, with -o",
            field="output",
        )
    return output


def is_stdout(target: str) -> bool:
    """Return whether the name of an output means standard output. Raises the errors of :func:`open_output`."""
    return take_item_classes(target)[0] == "-"


def format_of(name: str) -> Format | None:
    """Return the format that the suffix of a file name selects, or ``None``."""
    return next((FORMATS[suffix] for suffix in _suffixes(name) if suffix in FORMATS), None)


def with_duplicates(target: str, mode: Literal["mark", "drop"]) -> str:
    """Return the name of an output with the option ``duplicates``, if it is a file of items without this option."""
    output, (plain, options) = _open_output(take_item_classes(target)[0]), split_options(target)
    is_file = isinstance(output, FileOutput) or plain.partition(":")[0].lower() in _FSSPEC
    if not is_file or output.holds_responses or _DUPLICATES in options:
        return target
    return f"{target}{'&' if options else '?'}{_DUPLICATES}={mode}"


def _made(factory: Callable[..., Output | Saver], address: OutputAddress) -> Output:
    """Create an output, or the output of a store that only has the method ``save``."""

    def make() -> Output | Saver:
        return factory(address) if takes_address else factory()

    takes_address = factory in _BUILT_IN.values() or bool(inspect.signature(factory).parameters)
    made = make()
    if isinstance(made, Saver):
        return SavingOutput(address, cast("Callable[[], Saver]", make))
    if not isinstance(made, Output):
        raise StoreError(
            f"output {shown_url(address.target)!r}: {type(made).__qualname__} is not an output",
            remedy="derive it from skitter.store.contract.Output, or give it a method save",
            field="output",
        )
    return made


def stores_for(outputs: Iterable[Output], *, fleet: bool = False) -> list[Store]:
    """Create the stores of one worker: one for all outputs of a stream. ``fleet``: see :class:`StoreContext`."""
    by_stream = {stream_of(output, fleet=fleet): output for output in outputs}
    return [output.fleet_store() if fleet else output.store() for output in by_stream.values()]


def archive_stores_for(outputs: Iterable[Output], *, fleet: bool = False) -> list[ArchiveStore]:
    """Create the stores of one worker for the archives among the outputs, like :func:`stores_for` for the other outputs."""
    archives = [output for output in outputs if output.holds_responses]
    return cast("list[ArchiveStore]", stores_for(archives, fleet=fleet))


def stream_of(output: Output, *, fleet: bool) -> str:
    """Return the name of the target of an output's stores. ``fleet``: see :class:`StoreContext`."""
    return output.fleet_stream if fleet else output.stream


def _by_suffix(target: str, plain: str, options: dict[str, str]) -> Iterable[tuple[str, str, dict[str, str]]]:
    """Yield the possible suffixes of a name, most likely first, with the file and the options that they imply."""
    for suffix in _suffixes(target):
        yield suffix, target, {}
    for suffix in _suffixes(plain):
        yield suffix, plain, options


def split_options(text: str) -> tuple[str, dict[str, str]]:
    """Split a name at the question mark into the name and its options."""
    match = OPTIONS.fullmatch(text)
    if match is None:
        return text, {}
    return match[1], dict(parse_qsl(match[2], keep_blank_values=True))


def _suffixes(name: str) -> list[str]:
    words = name.rpartition("/")[2].lower().split(".")
    return [".".join(words[start:]) for start in range(1, len(words))]


def _file(file_format: Format) -> OutputFactory:
    def make(address: OutputAddress) -> Output:
        known = () if file_format.holds_responses else ("fields", "parts", _DUPLICATES, ITEM_CLASSES)
        if file_format.shape == "csv":
            known = (*known, _SPREADSHEET, _DELIMITER, CSV_CELLS)
        _refuse_unknown_names(address)
        _refuse_options(address, known)
        options = dict(address.options)
        shared = None
        if (url := options.pop("parts", None)) is not None:
            from skitter.store.redis_output import RedisOutput  # noqa: PLC0415 - most runs do not use this kind of output

            shared = RedisOutput.for_parts(address.target, url, address.password("redis"))
        return FileOutput(
            address.target, Path(address.rest), _with_options(file_format, address, options), shared
        )

    return make


def _refuse_unknown_names(address: OutputAddress) -> None:
    """Raise StoreError for a name that nothing replaces, such as ``%(time)s``: it would be part of the name of the file."""
    for name in re.findall(r"%\((\w+)\)s", address.rest):
        if name not in _NAMES:
            raise StoreError(
                f"unknown name %({name})s in output {shown_url(address.target)!r}",
                remedy="use %(name)s for the name of the spider, or %(job)s for the name of the job; for a time, let the shell "
                'insert it, as in -o "items-$(date +%F).jsonl"',
                field="output",
            )


def _take_fields(address: OutputAddress, options: dict[str, str]) -> tuple[str, ...]:
    """Remove the option ``fields``, and return the fields that it selects; none: all. Raises StoreError."""
    if "fields" not in options:
        return ()
    fields = tuple(filter(None, (name.strip() for name in options.pop("fields").split(","))))
    if not fields:
        raise StoreError(
            f"option fields of output {shown_url(address.target)!r} names no field",
            remedy="write the names of fields, such as ?fields=title,url, or remove the option for all fields",
            field="fields",
        )
    return fields


def _redis(address: OutputAddress) -> Output:
    from skitter.store.redis_output import RedisOutput  # noqa: PLC0415 - most runs do not use this kind of output

    return RedisOutput.from_address(address)


def _sqlite(address: OutputAddress) -> Output:
    from skitter.store.sqlite import SqliteOutput  # noqa: PLC0415 - most runs do not use this kind of output

    _refuse_unknown_names(address)
    _refuse_options(address, known=("table", "fields", ITEM_CLASSES))
    options = dict(address.options)
    fields = _take_fields(address, options)
    return SqliteOutput(address.target, Path(address.rest), fields=fields, **options)


def _refuse_options(address: OutputAddress, known: tuple[str, ...]) -> None:
    for option in address.options:
        if option not in known:
            raise StoreError(
                f"unknown option {option!r} of output {shown_url(address.target)!r}",
                remedy=f"remove it, or use one of the options of {address.kind}: {', '.join(known) or '(none)'}",
                field=option,
            )


def _database(name: str, driver: str) -> OutputFactory:
    """Return the factory of a database, whose module and extra have the same name. ``driver``: class of its driver."""

    def make(address: OutputAddress) -> Output:
        from skitter.store.database import BufferOptions, DatabaseOutput, take_options  # noqa: PLC0415 - most runs do not use this kind of output

        options = dict(address.options)
        buffer = take_options(shown_url(address.target), options, BufferOptions)
        with needing(name, f"output kind {address.kind!r}", StoreError):
            new_driver = partial(import_path(f"skitter.store.{name}:{driver}"), address, options, buffer)
        return DatabaseOutput(name, address.target, new_driver, buffer)

    return make


def _remote(address: OutputAddress) -> Output:
    with needing("s3", f"output kind {address.kind!r}", StoreError):
        from skitter.store.database import BufferOptions, take_options  # noqa: PLC0415 - most runs do not use this kind of output
        from skitter.store.remote import (  # noqa: PLC0415 - fsspec is an extra
            RemoteLocation,
            RemoteOutput,
            remote_secrets,
        )
    _refuse_unknown_names(address)
    options = {"flush": "1"} | remote_secrets(address.kind) | address.options
    buffer_options = take_options(shown_url(address.target), options, BufferOptions)
    file_format = format_of(address.rest)
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
            import xlsxwriter  # noqa: F401, PLC0415 - tests whether it is installed
    if file_format.holds_responses:
        return file_format
    fields = _take_fields(address, options)
    duplicates = _take_choice(address, options, _DUPLICATES, ("keep", "mark", "drop"))
    file_format = msgspec.structs.replace(file_format, fields=fields, duplicates=duplicates)
    if file_format.shape != "csv":
        return file_format
    choice = _take_choice(address, options, _SPREADSHEET, ("no", "yes"))
    name = _take_choice(address, options, _DELIMITER, tuple(_DELIMITERS))
    cells = _take_choice(address, options, CSV_CELLS, get_args(CsvCells))
    return msgspec.structs.replace(
        file_format, spreadsheet=choice == "yes", delimiter=_DELIMITERS[name], cells=cells
    )


def _take_choice(address: OutputAddress, options: dict[str, str], name: str, choices: tuple[str, ...]) -> str:
    """Remove an option and return its value; by default the first of its choices. Raises StoreError."""
    choice = options.pop(name, choices[0])
    if choice not in choices:
        raise StoreError(
            f"option {name}={choice} of output {shown_url(address.target)!r}",
            remedy=f"write {', '.join(choices[:-1])} or {choices[-1]}",
            field=name,
        )
    return choice


_NAMES = ("name", "spider", "job")
"""The names that a run replaces in the names of outputs."""
_SPREADSHEET = "spreadsheet"
"""Option of CSV files; see :func:`~skitter.store.formats.csv_chunks`."""
_DELIMITER = "delimiter"
"""Option of CSV files: the name of the character between cells, because the characters have a meaning in shells and URLs."""
CSV_CELLS = "cells"
"""Option of CSV files: the form of values that are not texts."""
_DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t"}
_DUPLICATES = "duplicates"
"""Option of all files of items: what to do with near duplicates."""
_SHAPES: tuple[Literal["jsonl", "json", "csv", "xml"], ...] = ("jsonl", "json", "csv", "xml")
_COMPRESSIONS: tuple[Compression, ...] = ("", "gz", "zst")
FORMATS = {
    f"{shape}.{compression}".rstrip("."): Format(shape, compression)
    for shape in _SHAPES
    for compression in _COMPRESSIONS
} | {
    "jl": Format(),
    "ndjson": Format(),
    "parquet": Format("parquet"),
    "xlsx": Format("xlsx"),
    "warc": Format("warc"),
    "warc.gz": Format("warc", "gz"),
}
_FSSPEC = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "sftp", "smb", "hdfs", "webhdfs", "file")
"""Schemes of fsspec that support atomic writes."""
_BUILT_IN: dict[str, OutputFactory] = {
    **{kind: _file(file_format) for kind, file_format in FORMATS.items()},
    **dict.fromkeys(_FSSPEC, _remote),
    "sqlite": _sqlite,
    "sqlite3": _sqlite,
    "db": _sqlite,
    "mongodb": _database("mongodb", "MongoDriver"),
    "mongodb+srv": _database("mongodb", "MongoDriver"),
    "postgresql": _database("postgresql", "PostgresDriver"),
    "postgres": _database("postgresql", "PostgresDriver"),
    "mysql": _database("mysql", "MySqlDriver"),
    "mariadb": _database("mysql", "MySqlDriver"),
    "kafka": _database("kafka", "KafkaDriver"),
    "opensearch": _database("opensearch", "OpenSearchDriver"),
    "elasticsearch": _database("opensearch", "OpenSearchDriver"),
    "redis": _redis,
    "rediss": _redis,
}
OUTPUTS = PluginKind("output", "skitter.stores", _BUILT_IN, StoreError)
