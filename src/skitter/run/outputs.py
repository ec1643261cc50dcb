"""JobOutputs: all outputs of a job, in the process that owns the job."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from skitter.errors import StoreError, UsageError
from skitter.run.job import JobSpec
from skitter.secrets import shown_url
from skitter.store.contract import ItemGroup, Output, OutputContext, RangesByPart, StoreContext
from skitter.store.outputs import open_output, stream_of
from skitter.store.selection import ITEM_CLASSES, classes_of, locations_of, ranges_of_output
from skitter.worker.bounded_counters import CLASSES, OTHERS
from skitter.worker.routing import OutputRouter, Route, section_of

if TYPE_CHECKING:
    from skitter.run.builder import JobBuilder

log = logging.getLogger("skitter.crawl")
_ALL_ITEMS = "to get all items, start over with --fresh (in Python: fresh=True, in Scrapy: SKITTER_FRESH=1)"
_REMOVED_AT_ONCE = 1000


class JobOutputs:
    """Checks, streams and merges the outputs of one run: the outputs of the job, and the outputs that its spider chooses.

    Raises :class:`~skitter.errors.StoreError` for an output of an unknown kind.
    """

    def __init__(self, spec: JobSpec, builder: JobBuilder) -> None:
        self._spec = spec
        self._builder = builder
        self._outputs = {target: open_output(target) for target in spec.outputs}
        """The outputs by name. Outputs that the spider chooses are added when they are known."""
        self._locations: dict[str, str] = {}
        """The location of each output, by name. Two names may have the same location."""
        self._sections: dict[str, dict[str, None]] = {}
        """The sections of the items that each location contains."""
        self._selections: dict[str, str] = {}
        """The key of the item classes that the output at each location selects; empty: all items."""
        self._routes: set[Route] = set()
        self._unusable: dict[str, StoreError] = {}
        """Outputs that the spider chose during the run and that cannot be written."""

    def __bool__(self) -> bool:
        return bool(self._outputs)

    @property
    def targets(self) -> list[str]:
        """All outputs by name."""
        return [*self._outputs, *self._unusable]

    async def check(self, *, fresh: bool) -> None:
        """Check whether all outputs can be written. Raises :class:`~skitter.errors.SkitterError` if not.

        ``fresh``: their contents will be replaced.
        """
        for target in self._outputs:
            location = await asyncio.to_thread(self._location, target)
            self._sections.setdefault(location, {})[""] = None
            if conflict := await asyncio.to_thread(self._conflict, target):
                raise conflict
        self._outputs |= await self._newly_named()
        if self._unusable:
            raise next(iter(self._unusable.values()))
        for output, context in self._all():
            await self._check(output, context, fresh=fresh)

    async def _newly_named(self) -> dict[str, Output]:
        """Add the routes that the spider knows so far. Return their new outputs."""
        spider = self._builder.spider
        return await asyncio.to_thread(self._add_routes, spider) if isinstance(spider, OutputRouter) else {}

    def _add_routes(self, spider: OutputRouter) -> dict[str, Output]:
        new: dict[str, Output] = {}
        for route in spider.routes():
            if not route or route in self._routes:
                continue
            for target in route:
                location = self._location(target)
                if conflict := self._conflict(target):
                    self._unusable[target] = conflict
                    continue
                if location not in self._sections:
                    new[target] = open_output(target)
                self._sections.setdefault(location, {})[section_of(route)] = None
            self._routes.add(route)
        return new

    def _location(self, target: str) -> str:
        if target not in self._locations:
            self._locations[target] = open_output(target).location
        return self._locations[target]

    def _conflict(self, target: str) -> StoreError | None:
        """Return why an output cannot be written together with the others; ``None`` if it can.

        Two outputs at one location that select different classes would replace each other's items.
        """
        output = open_output(target)
        item_classes = classes_of(output)
        selection = "" if item_classes is None else item_classes.key
        for location in locations_of(output):
            if self._selections.setdefault(location, selection) != selection:
                return StoreError(
                    f"output {output.target!r} selects other classes of items than another output in the same place",
                    remedy="name one output with all of its classes, such as ?item_classes=Book,Author, or choose another place",
                    field=ITEM_CLASSES,
                )
        return None

    async def _check(self, output: Output, context: OutputContext, *, fresh: bool) -> None:
        await output.check(context)
        if not fresh and await output.occupied(context):
            raise UsageError(
                f"{shown_url(output.target)} holds something that job {self._spec.job!r} did not write",
                remedy="choose another output, move it away, or replace it with --fresh (in Python: fresh=True)",
            )

    async def clear(self) -> None:
        """Remove the items of earlier runs of the job from shared locations."""
        for output, context in self._all():
            await output.clear(context)

    def warn_about_missing_items(self, found: int) -> None:
        """Log outputs that will lack items of earlier runs. ``found``: number of items that the job has found so far.

        Record in the specification which streams of the last run are no longer written.
        """
        folder = self._builder.folder
        if not folder.exists():
            return
        fleet = self._builder.is_fleet
        before = {stream_of(open_output(target), fleet=fleet) for target in folder.read().outputs}
        streams = {target: stream_of(self._outputs[target], fleet=fleet) for target in self._spec.outputs}
        left = self._spec.left_streams
        left |= dict.fromkeys(before.difference(streams.values()), found)
        for target, stream in streams.items():
            if stream not in before and left.get(stream, 0) < found:
                text = (
                    "%s was not an output of the last runs of job %s: it will lack the items that they found; %s"
                    if stream in left
                    else "%s is a new output of job %s: it will lack the items that were found before; %s"
                )
                log.warning(text, shown_url(self._outputs[target].target), self._spec.job, _ALL_ITEMS)
        for stream in streams.values():
            left.pop(stream, None)

    def warn_about_missing_classes(self, counters: Mapping[str, int]) -> None:
        """Log classes that outputs select, but that no item of a finished job had. ``counters``: the counters of the job."""
        found = sorted(name.removeprefix(CLASSES) for name in counters if name.startswith(CLASSES))
        if not found or OTHERS in found:
            return
        for output in self._outputs.values():
            selection = classes_of(output)
            if selection is not None and (missing := set(selection.names).difference(found)):
                log.warning(
                    "%s: no item has the class %s; items had the classes %s",
                    output.target, ", ".join(sorted(missing)), ", ".join(found),
                )  # fmt: skip

    async def add_new_outputs(self) -> None:
        """Add outputs that the spider knows so far. Errors are logged here, and raised by :meth:`merge`."""
        before = len(self._unusable)
        for target, output in (await self._newly_named()).items():
            try:
                await self._check(output, self._context(target), fresh=False)
            except (StoreError, UsageError) as error:
                self._unusable[target] = StoreError(
                    str(error), remedy=f"{error.remedy}; then run the job again to write its items"
                )
            else:
                self._outputs[target] = output
        for problem in [*self._unusable.values()][before:]:
            log.error("%s; its items are kept in the folder of the job", problem)

    async def emit(self, ranges: RangesByPart) -> list[str]:
        """Stream newly committed items. Return the outputs whose readers have closed them."""
        return [
            shown_url(output.target)
            for output, context in self._all()
            if not await output.emit(context, ranges_of_output(output, ranges))
        ]

    async def merge(self, ranges: RangesByPart, held: RangesByPart | None = None) -> None:
        """Write exactly the committed items to all outputs. Raises the first error after all have been tried.

        ``held``: the items for outputs that can be replaced, if they contain more than the items of this pass.
        """
        failed = [*self._unusable.values()]
        for output, context in self._all():
            chosen = ranges if held is None or output.is_append_only else held
            try:
                await output.merge(context, ranges_of_output(output, chosen))
            except StoreError as error:
                failed.append(error)
        if failed:
            raise failed[0]

    async def remove(self, fingerprints: Sequence[bytes]) -> None:
        """Remove the items of pages that are gone from all databases. May be repeated."""
        for output, context in self._all():
            if not fingerprints or not output.is_keyed:
                continue
            store = output.store()
            try:
                await store.open(StoreContext(context.job, "parent", context.directory, context.durability))
                for start in range(0, len(fingerprints), _REMOVED_AT_ONCE):
                    gone = fingerprints[start : start + _REMOVED_AT_ONCE]
                    await store.write([ItemGroup(fingerprint, []) for fingerprint in gone])
            finally:
                await store.close()

    def _all(self) -> Iterator[tuple[Output, OutputContext]]:
        for target, output in self._outputs.items():
            yield output, self._context(target)

    def _context(self, target: str) -> OutputContext:
        folder, durability = self._builder.folder, self._builder.settings.durability
        sections = tuple(self._sections[self._locations[target]])
        return OutputContext(
            self._spec.created_as, str(folder.path), durability, sections, fleet=self._builder.is_fleet
        )
