"""Sorting: where the items of a page go, if its spider gives some requests outputs of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec
import xxhash

from skitter.errors import StoreError
from skitter.request import Request
from skitter.store.base import Store, StoreContext
from skitter.store.outputs import open_output

if TYPE_CHECKING:  # the owner of a fleet reads no pages
    from skitter.engine.page import Page

type_of_shelves = list[tuple[Sequence[Store] | StoreError, list[int]]]


@runtime_checkable
class Sorter(Protocol):
    """A spider some of whose requests have outputs of their own."""

    def outputs_of(self, request: Request) -> Sequence[str]:
        """Return where the items of a request go, and only there; empty: to the outputs of the job.

        Called for every page that is written. A request has the same outputs for the life of the job.
        """
        ...

    def own_outputs(self) -> Sequence[str]:
        """Return all such outputs by now. More may come while the job runs. May read files."""
        ...


def section_of(target: str) -> str:
    """Return the section of a job's items that goes to an output of its own."""
    return xxhash.xxh3_64_hexdigest(target.encode())


class Sorting:
    """The stores of one worker for outputs that are not the job's. They are opened with the first page for them."""

    def __init__(self, spider: Sorter, context: StoreContext) -> None:
        self._spider = spider
        self._context = context
        self._stores: dict[str, Store] = {}

    @property
    def opened(self) -> Iterable[Store]:
        """All stores that were opened."""
        return self._stores.values()

    async def sort(
        self, usual: Sequence[Store], pages: Sequence[Page], giving: Iterable[int]
    ) -> type_of_shelves:
        """Divide pages (by their places in the list) by where their items go.

        An error stands for stores that cannot be opened: pages with items for them fail, all others are kept.
        """
        chosen: dict[tuple[str, ...], list[int]] = {}
        for index in giving:
            targets = tuple(dict.fromkeys(self._spider.outputs_of(pages[index].request)))
            chosen.setdefault(targets, []).append(index)
        shelves: type_of_shelves = []
        for targets, indexes in chosen.items():
            try:
                stores = [await self._store(target) for target in targets] if targets else usual
                shelves.append((stores, indexes))
            except StoreError as error:
                shelves.append((error, [index for index in indexes if pages[index].items]))
        return shelves

    async def _store(self, target: str) -> Store:
        store = self._stores.get(target)
        if store is None:
            store = open_output(target).store()
            await store.open(msgspec.structs.replace(self._context, section=section_of(target)))
            self._stores[target] = store
        return store
