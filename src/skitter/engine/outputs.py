"""JobOutputs: every output of a job in its parent process: the job's, and those that its spider has for some requests."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from skitter.engine.job import JobSpec
from skitter.engine.sorting import Sorter, section_of
from skitter.errors import StoreError, UsageError
from skitter.store.base import Output, OutputContext, type_of_ranges
from skitter.store.file_output import FileOutput
from skitter.store.outputs import open_output

if TYPE_CHECKING:
    from skitter.engine.assembly import Assembly

log = logging.getLogger("skitter.engine")


class JobOutputs:
    """Checks, follows and finishes the outputs of one run.

    Raises, when made, :class:`~skitter.errors.StoreError` for a name of no known kind.
    """

    def __init__(self, spec: JobSpec, assembly: Assembly) -> None:
        self._spec = spec
        self._assembly = assembly
        self._usual = [open_output(target) for target in spec.outputs]
        self._own: dict[str, Output] = {}
        """By name, those that the spider has for some requests."""
        self._unusable: dict[str, StoreError] = {}
        """Those of them that came later and cannot be written."""

    def __bool__(self) -> bool:
        return bool(self._usual or self._own)

    @property
    def targets(self) -> list[str]:
        """All outputs by name."""
        return [*self._spec.outputs, *self._own, *self._unusable]

    async def check(self, *, fresh: bool) -> None:
        """Find out whether all can be written. Raises :class:`~skitter.errors.SkitterError` for one that cannot.

        ``fresh``: what they hold will be replaced.
        """
        self._own = {target: open_output(target) for target in await self._named_by_spider()}
        for output, context in self._all():
            await self._check(output, context, fresh=fresh)

    async def _named_by_spider(self) -> list[str]:
        spider = self._assembly.spider
        return [*await asyncio.to_thread(spider.own_outputs)] if isinstance(spider, Sorter) else []

    async def _check(self, output: Output, context: OutputContext, *, fresh: bool) -> None:
        await output.check(context)
        if not fresh and await output.occupied(context):
            raise UsageError(
                f"{output.target} holds something that job {self._spec.job!r} did not write",
                remedy="choose another output, move it away, or start anew with --fresh, which replaces it",
            )
        if context.section and _place(output) in {_place(usual) for usual in self._usual}:
            raise UsageError(
                f"{output.target} is an output of the job and one of its tasks'",
                remedy="leave it out in one of the two: items go to the outputs of their task, or else to the job's",
            )

    async def clear(self) -> None:
        """Remove what earlier runs of the job left in shared places."""
        for output, context in self._all():
            await output.clear(context)

    def warn_of_late_ones(self) -> None:
        """Say so if an output is new to a job that has run before: it lacks the items found by then."""
        folder = self._assembly.folder
        if not folder.exists():
            return
        before = {open_output(target).stream for target in folder.read().outputs}
        for output in self._usual:
            if output.stream not in before:
                log.warning(
                    "%s is new to job %s: it will lack the items that were found before",
                    output.target,
                    self._spec.job,
                )

    async def look_for_more(self) -> None:
        """Take up outputs that the spider has by now. One that cannot be written is told, and again by ``merge``."""
        for target in await self._named_by_spider():
            if target in self._own or target in self._unusable:
                continue
            try:
                output = open_output(target)
                await self._check(output, self._context(section_of(target)), fresh=False)
            except (StoreError, UsageError) as error:
                log.error("%s; its items are kept with the job", error)  # noqa: TRY400 - one line
                self._unusable[target] = StoreError(
                    str(error), remedy=f"{error.remedy}; `skitter resume` then fills it"
                )
            else:
                self._own[target] = output

    async def emit(self, ranges: type_of_ranges) -> list[str]:
        """Pass on newly committed items; returns the outputs that nobody takes any more."""
        return [output.target for output, context in self._all() if not await output.emit(context, ranges)]

    async def merge(self, ranges: type_of_ranges) -> None:
        """Make all outputs hold exactly the committed items. Raises the first error after all were tried."""
        failed = [*self._unusable.values()]
        for output, context in self._all():
            try:
                await output.emit(context, ranges)
                await output.merge(context, ranges)
            except StoreError as error:
                failed.append(error)
        if failed:
            raise failed[0]

    def _all(self) -> Iterator[tuple[Output, OutputContext]]:
        for output in self._usual:
            yield output, self._context()
        for target, output in self._own.items():
            yield output, self._context(section_of(target))

    def _context(self, section: str = "") -> OutputContext:
        folder = self._assembly.folder
        return OutputContext(self._spec.job, str(folder.path), self._assembly.settings.durability, section)


def _place(output: Output) -> str:
    return os.path.realpath(output.path) if isinstance(output, FileOutput) else output.target
