"""``skitter dedup``: writes the items of several files to one file, without near duplicates."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from skitter.cli.console import say
from skitter.cli.options import complete_file
from skitter.errors import SkitterError, UsageError, counted

if TYPE_CHECKING:
    from skitter.store.file_output import FileOutput
    from skitter.store.formats import Compression

_SUFFIXES = ".jsonl, .jsonl.gz, .jsonl.zst or .parquet"


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--output", "-o", metavar="FILE", required=True, shell_complete=complete_file,
    help="File to write, in any format of items. Add ?duplicates=mark to keep all items and mark the duplicates.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace an existing file.")
def dedup(files: tuple[Path, ...], output: str, force: bool) -> int:
    """Merge files of items, without near duplicates.

    The files hold items with the fields url and content, as a crawl of main content writes them: JSON lines (also .gz, .zst) or Parquet.
    They may come from several jobs. Of each group of near duplicates, the page with the shortest URL is kept.
    """
    from skitter.store import file_output
    from skitter.store.outputs import open_output, with_duplicates
    from skitter.store.selection import ITEM_CLASSES, classes_of

    source = FilesOfItems(files)
    target = open_output(output)
    if classes_of(target) is not None:
        raise UsageError(
            f"items cannot be selected by their class here: {output}",
            remedy=f"remove {ITEM_CLASSES}",
            field=ITEM_CLASSES,
        )
    if (
        not isinstance(target, file_output.FileOutput)
        or target.holds_responses
        or target.shared_parts is not None
    ):
        raise UsageError(f"not a file for items: {output}", remedy=f"name a file that ends in {_SUFFIXES}")
    target = cast("FileOutput", open_output(with_duplicates(output, "drop")))
    if any(Path(target.location) == file.resolve() for file in files):
        raise UsageError(f"{target.path} is also read", remedy="name another file with -o")
    if not force and target.is_nonempty():
        raise UsageError(
            f"{target.path} already exists", remedy="name another file, or replace it with --force"
        )
    asyncio.run(target.export(source))
    left_out = "; near duplicates among them are left out" if target.leaves_out_duplicates else ""
    say(f"{target.path}: {counted(source.items, 'item')} read from {counted(len(files), 'file')}{left_out}")
    return 0


class FilesOfItems:
    """The items of files, one file after the other. Implements :class:`~skitter.store.merge.ItemSource`.

    Raises :class:`~skitter.errors.UsageError` for a file that cannot be read, and for another kind of file.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        from skitter.store.outputs import format_of

        self._files = [(file, format_of(file.name)) for file in files]
        self.items = 0
        """Number of items that were read last."""
        for file, file_format in self._files:
            if file_format is None or file_format.shape not in {"jsonl", "parquet"}:
                raise UsageError(
                    f"cannot read items from {file}", remedy=f"name a file that ends in {_SUFFIXES}"
                )
            if not file.is_file():
                raise UsageError(f"there is no file {file}", remedy="correct the name")

    def lines(self) -> Iterator[bytes]:
        """Yield all items as JSON lines."""
        self.items = 0
        for file, file_format in self._files:
            assert file_format is not None
            try:
                lines = (
                    _rows_of(file)
                    if file_format.shape == "parquet"
                    else _lines_of(file, file_format.compression)
                )
                for line in lines:
                    self.items += 1
                    yield line
            except SkitterError:
                raise
            except Exception as error:  # the decompressors have classes of their own for damaged data
                raise UsageError(
                    f"cannot read {file}: {error}", remedy="check the file, or leave it out"
                ) from error

    def chunks(self) -> Iterator[bytes]:
        """Yield all items as JSON lines with line ends."""
        return (line + b"\n" for line in self.lines())


def _lines_of(file: Path, compression: Compression) -> Iterator[bytes]:
    import msgspec

    from skitter.store.formats import open_compressed

    with open_compressed(file, compression) as content:
        for line in content:
            if line := line.strip():
                if not isinstance(msgspec.json.decode(line), dict):
                    raise ValueError(f"not a JSON object: {line[:60]!r}")
                yield line


def _rows_of(file: Path) -> Iterator[bytes]:
    from skitter.item import encode_item
    from skitter.plugins import need

    parquet = need("pyarrow.parquet", "parquet", f"file {file}")
    with parquet.ParquetFile(file) as table:
        for batch in table.iter_batches(batch_size=1_000):
            yield from map(encode_item, cast("list[dict[str, Any]]", batch.to_pylist()))
