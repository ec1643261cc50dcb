"""JobOutputs: every output of a job in its parent process: the job's, and those that its spider has for some requests."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from skitter.engine.job import JobSpec
from skitter.engine.sorting import Sorter, section_of, type_of_route
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
        self._outputs = {target: open_output(target) for target in spec.outputs}
        """By name; those that the spider has for some requests are added when they are known."""
        self._sections: dict[str, dict[str, None]] = {
            _place(output): {"": None} for output in self._outputs.values()
        }
        """Which sections of the items are those of a place."""
        self._routes: set[type_of_route] = set()
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
        for target, output in await self._newly_named():
            self._outputs[target] = output
        for output, context in self._all():
            await self._check(output, context, fresh=fresh)

    async def _newly_named(self) -> list[tuple[str, Output]]:
        """Take up the routes that the spider has by now; returns their outputs that are new."""
        spider = self._assembly.spider
        if not isinstance(spider, Sorter):
            return []
        new: dict[str, Output] = {}
        for route in await asyncio.to_thread(spider.routes):
            if not route or route in self._routes:
                continue
            self._routes.add(route)
            for target in route:
                output = open_output(target)
                place = _place(output)
                if place not in self._sections:
                    new[target] = output
                self._sections.setdefault(place, {})[section_of(route)] = None
        return [*new.items()]

    async def _check(self, output: Output, context: OutputContext, *, fresh: bool) -> None:
        await output.check(context)
        if not fresh and await output.occupied(context):
            raise UsageError(
                f"{output.target} holds something that job {self._spec.job!r} did not write",
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
                    self._outputs[target].target,
                    self._spec.job,
                )

    async def look_for_more(self) -> None:
        """Take up outputs that the spider has by now. One that cannot be written is told, and again by ``merge``."""
        for target, output in await self._newly_named():
            try:
                await self._check(output, self._context(output), fresh=False)
            except (StoreError, UsageError) as error:
                log.error("%s; the items for it are kept with the job", error)  # noqa: TRY400 - one line
                self._unusable[target] = StoreError(
                    str(error), remedy=f"{error.remedy}; the next run of the job then fills it"
                )
            else:
                self._outputs[target] = output

    async def emit(self, ranges: type_of_ranges) -> list[str]:
        """Pass on newly committed items; returns the outputs that nobody takes any more."""
        return [output.target for output, context in self._all() if not await output.emit(context, ranges)]

    async def merge(self, ranges: type_of_ranges) -> None:
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
        for output in self._outputs.values():
            yield output, self._context(output)

    def _context(self, output: Output) -> OutputContext:
        folder, durability = self._assembly.folder, self._assembly.settings.durability
        return OutputContext(
            self._spec.job, str(folder.path), durability, tuple(self._sections[_place(output)])
        )


def _place(output: Output) -> str:
    """Return what two names of one place have in common."""
    return os.path.realpath(output.path) if isinstance(output, FileOutput) else output.target
