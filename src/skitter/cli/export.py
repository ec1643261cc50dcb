"""``skitter export``: writes the items of a job to one file, even while the job runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from skitter.cli.console import FAILED, say
from skitter.cli.options import complete_file, with_job
from skitter.errors import UsageError, counted

if TYPE_CHECKING:
    from skitter.run.job import JobFolder
    from skitter.store.committed import CommittedRanges
    from skitter.store.contract import RangesByPart
    from skitter.store.file_output import FileOutput
    from skitter.store.selection import ItemClasses

_SHOWN = 5
"""Number of missing part files that are listed by name. The others are counted."""


@click.command()
@with_job
@click.option(
    "--output",
    "-o",
    metavar="FILE",
    required=True,
    shell_complete=complete_file,
    help="File to write. Its name ends in .jsonl, .json, .csv or .xml (also .gz, .zst), in .parquet or .xlsx, or in .warc (also .gz).",
)
@click.option(
    "--parts", "folders", multiple=True, metavar="FOLDER", type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Copy of the folder .skitter/JOB/parts of another machine. Repeatable.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace an existing file.")
async def export(folder: JobFolder, output: str, folders: tuple[Path, ...], force: bool) -> int:
    """Write the committed items of a job to one file.

    Each item is written exactly once. Items are stored in part files on the machines of their workers. If part files are missing, the items of the others
    are written, the missing files are listed, and the exit status is 1.
    """
    from skitter.run.job_access import outputs
    from skitter.store.committed import CommittedRanges, split_by_presence
    from skitter.store.contract import parts_folder
    from skitter.store.file_output import FileOutput
    from skitter.store.files import is_local
    from skitter.store.outputs import open_output
    from skitter.store.selection import SelectingOutput, classes_of

    target = open_output(output)
    item_classes = classes_of(target)
    if isinstance(target, SelectingOutput):
        target = target.output
    if not isinstance(target, FileOutput):
        raise UsageError(
            f"not a file for items: {output}",
            remedy="name a file that ends in .jsonl, .json, .csv, .xml, .parquet, .xlsx or .warc.gz",
        )
    if not force and await asyncio.to_thread(target.is_nonempty):
        raise UsageError(f"{output} already exists", remedy="name another file, or replace it with --force")
    stored = await outputs(folder)
    if not stored:
        _refuse_if_in_databases(folder)
    found = _of_selection(folder, stored, item_classes)
    if target.shared_parts is not None:
        return await _export_shared(folder, target, found)
    ranges = {
        part: spans for part, spans in found.items() if is_local(part) and part.startswith(target.stream)
    }  # of tasks with outputs of their own, too
    if found and not ranges:
        raise UsageError(
            f"job {folder.job!r} has no part files: its outputs are on servers",
            remedy="read the items there; if its parts are shared, add ?parts=redis://HOST/DATABASE/KEY to the file",
        )
    parts = parts_folder(str(folder.path))
    present, missing = await asyncio.to_thread(split_by_presence, ranges, [parts, *folders])
    committed = CommittedRanges(parts, present, elsewhere=folders, has_lines=not target.holds_responses)
    await target.export(committed)
    held = (
        "responses" if target.holds_responses else counted(await asyncio.to_thread(_count, committed), "item")
    )
    left_out = "; near duplicates among them are left out" if target.leaves_out_duplicates else ""
    say(f"{output}: {held} of {counted(len(present), 'part file')}{left_out}")
    return _say_missing(missing)


def _refuse_if_in_databases(folder: JobFolder) -> None:
    """Raise :class:`~skitter.errors.UsageError` if all outputs of a job are databases, which have no part files."""
    from skitter.store.outputs import open_output

    outputs = [open_output(target) for target in folder.read().outputs]
    if outputs and all(output.is_keyed for output in outputs):
        places = ", ".join(output.target for output in outputs)
        raise UsageError(
            f"job {folder.job!r} has no part files: its items are in {places}", remedy="read the items there"
        )


def _of_selection(
    folder: JobFolder, found: RangesByPart, item_classes: ItemClasses | None
) -> dict[str, list[tuple[int, int]]]:
    """Return the ranges of the parts with the items of certain classes; ``None``: of the parts with all items.

    Raises :class:`~skitter.errors.UsageError` if only other parts exist.
    """
    from skitter.store.outputs import open_output
    from skitter.store.selection import ITEM_CLASSES, classes_of, ranges_of_selection

    chosen = {part: list(spans) for part, spans in ranges_of_selection(found, item_classes).items()}
    selections = [classes_of(open_output(target)) for target in folder.read().outputs]
    options = sorted({f"?{ITEM_CLASSES}={','.join(known.names)}" for known in selections if known})
    if found and not chosen:
        wanted = "all items" if item_classes is None else f"these classes ({', '.join(item_classes.names)})"
        other = f"add {' or '.join(options)} to it" if options else f"remove {ITEM_CLASSES}"
        raise UsageError(
            f"job {folder.job!r} has no output of {wanted}",
            remedy=f"name the file as an output of the job has it: {other}",
            field=ITEM_CLASSES,
        )
    if item_classes is None and options and None not in selections:
        say(f"items of later runs are not in these part files; to export them, add {' or '.join(options)}")
    return chosen


async def _export_shared(folder: JobFolder, output: FileOutput, ranges: RangesByPart) -> int:
    assert output.shared_parts is not None
    from skitter.store.committed import CommittedRanges

    with TemporaryDirectory() as copies:
        copied = await output.shared_parts.copy_staged(folder.read().created_as, ranges, Path(copies))
        committed = CommittedRanges(Path(copies), copied)
        await output.export(committed)
        say(
            f"{output.target}: {counted(_count(committed), 'item')} of the shared parts of {counted(len(copied), 'worker')}"
        )
    return 0


def _count(committed: CommittedRanges) -> int:
    return sum(chunk.count(b"\n") for chunk in committed.chunks())


def _say_missing(missing: dict[str, list[tuple[int, int]]]) -> int:
    if not missing:
        return 0
    size = sum(end - start for spans in missing.values() for start, end in spans)
    names = ", ".join(sorted(missing)[:_SHOWN]) + (", ..." if len(missing) > _SHOWN else "")
    say(
        f"incomplete: other machines have {counted(len(missing), 'part file')} with {size:,} bytes of items ({names});"
        " copy their .skitter/JOB/parts here and name them with --parts"
    )
    return FAILED
