"""The option ``item_classes`` of an output, which limits the output to the items of certain classes.

It is an option of every kind of output. ``docs/design/outputs.md`` describes how it works.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import unquote_plus

import msgspec
import xxhash

from skitter.errors import StoreError
from skitter.item import OutputRange, class_paths
from skitter.secrets import shown_url
from skitter.store.contract import (
    Buffering,
    GroupError,
    ItemGroup,
    Output,
    OutputContext,
    RangesByPart,
    Store,
    StoreContext,
)

ITEM_CLASSES = "item_classes"
"""Name of the option."""
OPTIONS = re.compile(r"(.*)\?(\w+=.*)", re.DOTALL)
"""A name with options: the name, and the options."""
_MARK = "of-"
"""Begins the name of a selection in the names of part files and their folders."""
_OF_SELECTION = re.compile(rf"-{_MARK}([0-9a-f]{{16}})(?=[/.]|$)")


class ItemClasses:
    """A selection of items by class.

    An item is selected if its class or one of its base classes has one of the names. A name is the name of the class
    (``Book``) or its dotted path (``shop.items:Book``, or as in Scrapy ``shop.items.Book``).
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(dict.fromkeys(name.replace(":", ".") for name in names))
        self.key = xxhash.xxh3_64_hexdigest(",".join(sorted(self.names)).encode())
        """Identifies the selection; usable in file names."""
        self._known: dict[tuple[str, ...], tuple[str, ...]] = {}

    def matching(self, item: Any) -> tuple[str, ...]:
        """Return the names that select an item; empty if it is not selected."""
        paths = class_paths(item)
        if (known := self._known.get(paths)) is None:
            own = {*paths, *(path.rpartition(".")[2] for path in paths)}
            known = self._known[paths] = tuple(name for name in self.names if name in own)
        return known


def take_item_classes(target: str) -> tuple[str, ItemClasses | None]:
    """Split the name of an output into the name without the option ``item_classes``, and its value.

    Raises :class:`~skitter.errors.StoreError` for a value that names no class.
    """
    match = OPTIONS.fullmatch(target)
    options = match[2].split("&") if match is not None else []
    values = [option.partition("=")[2] for option in options if option.startswith(f"{ITEM_CLASSES}=")]
    if match is None or not values:
        return target, None
    texts = [name.strip() for value in values for name in unquote_plus(value).split(",")]
    names = [text for text in texts if text]
    wrong = next((name for name in names if not is_class_name(name)), "")
    if wrong or not names:
        raise StoreError(
            f"option {ITEM_CLASSES} of output {shown_url(target)!r} "
            + (f"has an invalid class name: {wrong!r}" if wrong else "names no class"),
            remedy=f"write names or dotted paths of classes, such as ?{ITEM_CLASSES}=Book,shop.items:Author",
            field=ITEM_CLASSES,
        )
    rest = "&".join(option for option in options if not option.startswith(f"{ITEM_CLASSES}="))
    return f"{match[1]}?{rest}" if rest else match[1], ItemClasses(names)


def is_class_name(text: str) -> bool:
    """Return whether a text can be the name or the dotted path of a class."""
    return all(map(str.isidentifier, text.replace(":", ".", 1).split(".")))


class SelectingStore:
    """Passes the selected items of each page to another store. Implements :class:`~skitter.store.contract.Store`."""

    def __init__(self, store: Store, item_classes: ItemClasses) -> None:
        self._store = store
        self.item_classes = item_classes

    @property
    def buffering(self) -> Buffering | None:
        return self._store.buffering

    async def open(self, context: StoreContext) -> None:
        """Open the other store. It writes to separate parts, because a worker may have several stores of a kind."""
        worker = f"{context.worker}-{_MARK}{self.item_classes.key}"
        section = _section(context.section, self.item_classes)
        await self._store.open(msgspec.structs.replace(context, section=section, worker=worker))

    async def write(self, groups: Sequence[ItemGroup]) -> Sequence[OutputRange | GroupError | None]:
        matching = self.item_classes.matching
        return await self._store.write(
            [
                ItemGroup(group.fingerprint, [item for item in group.items if matching(item)])
                for group in groups
            ]
        )

    async def close(self) -> None:
        await self._store.close()


class SelectingOutput(Output):
    """An output that contains only the items of certain classes. ``output``: the same output for all items."""

    def __init__(self, target: str, output: Output, item_classes: ItemClasses) -> None:
        self.target = shown_url(target)
        self.output = output
        self.item_classes = item_classes
        self.stream = self._own(output.stream)
        self.is_keyed = output.is_keyed
        self.is_append_only = output.is_append_only

    @property
    def location(self) -> str:
        """The location of the output for all items."""
        return self.output.location

    @property
    def fleet_stream(self) -> str:
        """The stream for a job on several machines."""
        return self._own(self.output.fleet_stream)

    async def check(self, context: OutputContext) -> None:
        """Check the output for all items."""
        await self.output.check(self._inner(context))

    async def occupied(self, context: OutputContext) -> bool:
        """Whether the destination contains data that this job did not write."""
        return await self.output.occupied(self._inner(context))

    async def clear(self, context: OutputContext) -> None:
        """Clear the output for all items."""
        await self.output.clear(self._inner(context))

    def store(self) -> Store:
        """Return a new store for one worker, which takes only selected items."""
        return SelectingStore(self.output.store(), self.item_classes)

    def fleet_store(self) -> Store:
        """Return the same for a job on several machines."""
        return SelectingStore(self.output.fleet_store(), self.item_classes)

    async def emit(self, context: OutputContext, ranges: RangesByPart) -> bool:
        """Publish newly committed items of the selection."""
        return await self.output.emit(self._inner(context), ranges)

    async def merge(self, context: OutputContext, ranges: RangesByPart) -> None:
        """Make the destination contain exactly the committed items of the selection."""
        await self.output.merge(self._inner(context), ranges)

    def _own(self, stream: str) -> str:
        return f"{stream}-{_MARK}{self.item_classes.key}"

    def _inner(self, context: OutputContext) -> OutputContext:
        sections = tuple(_section(section, self.item_classes) for section in context.sections)
        return msgspec.structs.replace(context, sections=sections)


def ranges_of_selection(ranges: RangesByPart, item_classes: ItemClasses | None) -> RangesByPart:
    """Return the ranges of the parts of a selection; ``None``: of the parts with all items."""
    key = None if item_classes is None else item_classes.key
    found = ((part, _OF_SELECTION.search(part)) for part in ranges)
    return {part: ranges[part] for part, mark in found if (mark and mark[1]) == key}


def classes_of(output: Output) -> ItemClasses | None:
    """Return the classes that an output selects; ``None`` if it contains all items."""
    return output.item_classes if isinstance(output, SelectingOutput) else None


def ranges_of_output(output: Output, ranges: RangesByPart) -> RangesByPart:
    """Return the ranges of the parts with the items that an output selects. Parts on other file systems have no sections."""
    return ranges_of_selection(ranges, classes_of(output))


def locations_of(output: Output) -> set[str]:
    """Return the names of the locations of an output. Two outputs that share a name replace each other's items."""
    plain = output.output if isinstance(output, SelectingOutput) else output
    return {plain.location, plain.stream} if plain.is_keyed else {plain.location}


def counted_names(item: Any, selections: Sequence[ItemClasses]) -> set[str]:
    """Return the name of an item's class, and the names by which selections select the item."""
    own = class_paths(item)[0].rpartition(".")[2]
    return {own[:100], *(name for selection in selections for name in selection.matching(item))}


def _section(section: str, item_classes: ItemClasses) -> str:
    return f"{section}-{_MARK}{item_classes.key}" if section else f"{_MARK}{item_classes.key}"
