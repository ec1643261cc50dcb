"""JobOutputs: every output of a job in its parent process: the job's, and those that its spider has for some requests."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from skitter.errors import StoreError, UsageError
from skitter.run.job import JobSpec
from skitter.secrets import shown_url
from skitter.store.contract import Output, OutputContext, RangesByPart
from skitter.store.file_output import FileOutput
from skitter.store.outputs import open_output
from skitter.worker.routing import OutputRouter, Route, section_of

if TYPE_CHECKING:
    from skitter.run.builder import JobBuilder

log = logging.getLogger("skitter.crawl")


class JobOutputs:
    """Checks, follows and finishes the outputs of one run.

    Raises, when made, :class:`~skitter.errors.StoreError` for a name of no known kind.
    """

    def __init__(self, spec: JobSpec, assembly: JobBuilder) -> None:
        self._spec = spec
        self._assembly = assembly
        self._outputs = {target: open_output(target) for target in spec.outputs}
        """By name; those that the spider has for some requests are added when they are known."""
        self._places: dict[str, str] = {}
        """What two names of one place have in common, by name."""
        self._sections: dict[str, dict[str, None]] = {}
        """Which sections of the items are those of a place."""
        self._routes: set[Route] = set()
        self._unusable: dict[str, StoreError] = {}
        """Outputs that came in the course of the run and cannot be written."""

    def __bool__(self) -> bool:
        return bool(self._outputs)

    @property
    def targets(self) -> list[str]:
        """All outputs by name."""
        return [*self._outputs, *self._unusable]

    async def check(self, *, fresh: bool) -> None:
        """Find out whether all can be written. Raises :class:`~skitter.errors.SkitterError` for one that cannot.

        ``fresh``: what they hold will be replaced.
        """
        for target in self._outputs:
            place = await asyncio.to_thread(self._place, target)
            self._sections.setdefault(place, {})[""] = None
        self._outputs |= await self._newly_named()
        for output, context in self._all():
            await self._check(output, context, fresh=fresh)

    async def _newly_named(self) -> dict[str, Output]:
        """Take up the routes that the spider has by now; returns their outputs that are new."""
        spider = self._assembly.spider
        return await asyncio.to_thread(self._take_up, spider) if isinstance(spider, OutputRouter) else {}

    def _take_up(self, spider: OutputRouter) -> dict[str, Output]:
        new: dict[str, Output] = {}
        for route in spider.routes():
            if not route or route in self._routes:
                continue
            for target in route:
                place = self._place(target)
                if place not in self._sections:
                    new[target] = open_output(target)
                self._sections.setdefault(place, {})[section_of(route)] = None
            self._routes.add(route)
        return new

    def _place(self, target: str) -> str:
        if target not in self._places:
            output = open_output(target)
            self._places[target] = (
                os.path.realpath(output.path) if isinstance(output, FileOutput) else output.target
            )
        return self._places[target]

    async def _check(self, output: Output, context: OutputContext, *, fresh: bool) -> None:
        await output.check(context)
        if not fresh and await output.occupied(context):
            raise UsageError(
                f"{shown_url(output.target)} holds something that job {self._spec.job!r} did not write",
                remedy="choose another output, move it away, or start anew with --fresh, which replaces it",
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
        for target in self._spec.outputs:
            if self._outputs[target].stream not in before:
                log.warning(
                    "%s is new to job %s: it will lack the items that were found before",
                    shown_url(self._outputs[target].target),
                    self._spec.job,
                )

    async def look_for_more(self) -> None:
        """Take up outputs that the spider has by now. One that cannot be written is told, and again by ``merge``."""
        for target, output in (await self._newly_named()).items():
            try:
                await self._check(output, self._context(target), fresh=False)
            except (StoreError, UsageError) as error:
                log.error("%s; the items for it are kept with the job", error)  # noqa: TRY400 - one line
                self._unusable[target] = StoreError(
                    str(error), remedy=f"{error.remedy}; the next run of the job then fills it"
                )
            else:
                self._outputs[target] = output

    async def emit(self, ranges: RangesByPart) -> list[str]:
        """Pass on newly committed items; returns the outputs that nobody takes any more."""
        return [
            shown_url(output.target)
            for output, context in self._all()
            if not await output.emit(context, ranges)
        ]

    async def merge(self, ranges: RangesByPart) -> None:
        """Make all outputs hold exactly the committed items. Raises the first error after all were tried."""
        failed = [*self._unusable.values()]
        for output, context in self._all():
            try:
                await output.merge(context, ranges)
            except StoreError as error:
                failed.append(error)
        if failed:
            raise failed[0]

    def _all(self) -> Iterator[tuple[Output, OutputContext]]:
        for target, output in self._outputs.items():
            yield output, self._context(target)

    def _context(self, target: str) -> OutputContext:
        folder, durability = self._assembly.folder, self._assembly.settings.durability
        sections = tuple(self._sections[self._places[target]])
        return OutputContext(self._spec.job, str(folder.path), durability, sections)
