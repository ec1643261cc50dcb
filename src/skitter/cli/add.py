"""``skitter add``: adds seeds to a job from outside."""

from __future__ import annotations

import codecs
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from skitter.cli.console import say
from skitter.cli.options import complete_file, with_job
from skitter.errors import SkitterError, UsageError, counted

if TYPE_CHECKING:
    from skitter.frontier.records import AddResult, Entry
    from skitter.run.job import JobFolder
    from skitter.run.job_access import OpenFrontier
    from skitter.run.seeding import SeedParser

MEMORY_LIMIT = 1 << 20
"""Bytes of standard input or a pipe that are kept in memory. More input goes to a temporary file."""
MAX_REPORTED = 3
"""Number of invalid lines that are reported one by one. The others are counted."""


@click.command()
@with_job
@click.argument("urls", metavar="[URL]...", nargs=-1)
@click.option(
    "--file", "-f", "name", metavar="FILE", shell_complete=complete_file,
    help="File of seeds, or - for standard input: one URL or JSON object per line.",
)  # fmt: skip
@click.option(
    "--priority", type=int, default=0, metavar="N", help="Priority of seeds that do not set one. [default: 0]"
)
@click.option(
    "--callback",
    metavar="NAME",
    help="Callback of seeds that do not set one: a method of the spider. [default: parse]",
)
@click.option("--queue", metavar="NAME", help="Queue of seeds that do not set one. [default: default]")
@click.option("--skip-bad", is_flag=True, help="Skip invalid lines instead of adding nothing.")
async def add(
    folder: JobFolder,
    urls: tuple[str, ...],
    name: str | None,
    priority: int,
    callback: str | None,
    queue: str | None,
    skip_bad: bool,
) -> None:
    """Add seeds to a job, whether it is running or not.

    A seed is a URL, or a JSON object with url and optionally method, headers, body, meta, callback, priority, depth and
    the other fields of a request. Empty lines and lines that start with # are skipped. Either all seeds are added, or
    none and the invalid ones are reported. Repeating the command adds no seed twice except those with dont_filter.
    """
    if not urls and name is None:
        raise UsageError(
            "no seeds given", remedy="give URLs, or --file FILE, or --file - for standard input", field="URL"
        )
    _refuse_files(urls)
    with ExitStack() as stack:
        file = None if name is None else stack.enter_context(_open(name))
        await _Adding(urls, file, skip_bad=skip_bad).run(folder, priority, callback, queue or "")


def _refuse_files(urls: Sequence[str]) -> None:
    for url in urls:
        if "://" not in url and os.path.isfile(url):  # noqa: PTH113 - unlike that of Path, it accepts texts of any length
            raise UsageError(f"{url} is a file, not a URL", remedy=f"write --file {url}", field="URL")


def _open(name: str) -> BinaryIO:
    """Open a file that can be read twice."""
    if name == "-":
        return _copy_of(sys.stdin.buffer)
    try:
        file = Path(name).open("rb")  # noqa: SIM115 - the caller closes it
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}", remedy="name a file") from error
    if file.seekable():
        return file
    with file:  # a pipe, as in `--file <(command)`
        return _copy_of(file)


def _copy_of(file: BinaryIO) -> BinaryIO:
    copy = tempfile.SpooledTemporaryFile(MEMORY_LIMIT)  # noqa: SIM115 - the caller closes it
    shutil.copyfileobj(file, copy, MEMORY_LIMIT)
    return copy  # type: ignore[return-value]  # has the same interface


class _Adding:
    """One call of the command."""

    def __init__(self, urls: tuple[str, ...], file: BinaryIO | None, *, skip_bad: bool) -> None:
        self._urls = urls
        self._file = file
        self._skip_bad = skip_bad
        self._bad: list[str] = []
        self._bad_count = 0

    async def run(self, folder: JobFolder, priority: int, callback: str | None, queue: str) -> None:
        from skitter.run.job_access import open_frontier
        from skitter.run.seeding import SeedParser

        async with open_frontier(folder) as reached:
            parser = SeedParser(folder, reached, priority=priority, callback=callback, queue=queue)
            count = sum(1 for _ in self._entries(parser))
            if self._bad_count and not self._skip_bad:
                raise UsageError(
                    f"nothing was added; invalid: {self._bad_count} of {counted(count + self._bad_count, 'seed')}:"
                    f" {'; '.join(self._bad)}",
                    remedy="correct them, or skip them with --skip-bad",
                )
            for line in self._bad:
                say(f"skipped, {line}")
            if self._bad_count > len(self._bad):
                say(f"skipped, and {self._bad_count - len(self._bad)} more")
            result = await self._add(reached, parser)
        parts = [f"added: {result.added}"]
        if result.known:
            parts.append(f"known before: {result.known}")
        if result.banned:
            parts.append(f"of a banned host: {result.banned}")
        go_on = "" if reached.live or not result.added else f"; {folder.how_to_continue()} fetches them"
        say(", ".join(parts) + go_on)

    def _seeds(self) -> Iterator[tuple[str, bytes]]:
        """Yield the text of each seed with its location for error messages, such as ``line 5``."""
        for number, url in enumerate(self._urls, 1):
            yield f"URL {number}", url.encode("utf-8", "surrogateescape")
        if self._file is not None:
            self._file.seek(0)
            for number, line in enumerate(self._file, 1):
                text = line.removeprefix(codecs.BOM_UTF8).strip()  # editors of Windows write a BOM
                if text and not text.startswith(b"#"):
                    yield f"line {number}", text

    def _entries(self, parser: SeedParser) -> Iterator[Entry]:
        """Yield the entries of all seeds, and record the invalid seeds."""
        self._bad, self._bad_count = [], 0
        for place, text in self._seeds():
            try:
                entry = parser.entry(text)
            except SkitterError as error:
                entry = str(error)
            if isinstance(entry, str):
                self._bad_count += 1
                if len(self._bad) < MAX_REPORTED:
                    self._bad.append(f"{place}: {entry}")
            else:
                yield entry

    async def _add(self, reached: OpenFrontier, parser: SeedParser) -> AddResult:
        from skitter.frontier.records import AddResult
        from skitter.run.seeding import BATCH_SIZE

        entries = self._entries(parser)
        total = AddResult(0, 0)
        try:
            while batch := list(islice(entries, BATCH_SIZE)):
                await parser.open_networks(batch)
                total += await reached.frontier.add(batch)
        except SkitterError as error:
            raise UsageError(
                f"stopped after {counted(total.added + total.known + total.banned, 'seed')} ({total.added} new): {error}",
                remedy=f"{error.remedy}; then repeat the command: it adds the rest, and no seed twice except those with"
                " dont_filter".lstrip("; "),
            ) from error
        return total
