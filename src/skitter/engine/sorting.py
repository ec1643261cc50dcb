"""Sorting: where the items of a page go, if its spider gives some requests outputs of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec
import xxhash

from skitter.errors import StoreError
from skitter.request import Request
from skitter.secrets import without_secrets
from skitter.store.base import Store, StoreContext
from skitter.store.outputs import open_output, stores_for

if TYPE_CHECKING:  # the owner of a fleet reads no pages
    from skitter.engine.page import Page

type_of_route = tuple[str, ...]
"""Names of the outputs that some requests have together; empty: those of the job."""
type_of_shelves = list[tuple[Sequence[Store] | StoreError, list[int]]]


@runtime_checkable
class Sorter(Protocol):
    """A spider some of whose requests have outputs of their own."""

    def route_of(self, request: Request) -> type_of_route:
        """Return where the items of a request go, and only there.

        Called for every page that is written. A request has the same route for the life of its job.
        """
        ...

    def routes(self) -> Sequence[type_of_route]:
        """Return all routes there are by now. More may come while the job runs. May read files."""
        ...


def section_of(route: type_of_route) -> str:
    """Return the section of a job's items that goes by a route; see :class:`~skitter.store.base.StoreContext`."""
    return xxhash.xxh3_64_hexdigest("\0".join(map(without_secrets, route)).encode()) if route else ""


class Sorting:
    """The stores of one worker for the routes of its spider. They are opened with the first page that goes there."""

    def __init__(self, spider: Sorter, context: StoreContext) -> None:
        self._spider = spider
        self._context = context
        self._stores: dict[type_of_route, list[Store]] = {}

    @property
    def opened(self) -> list[Store]:
        """All stores that were opened."""
        return [store for stores in self._stores.values() for store in stores]

    async def sort(
        self, usual: Sequence[Store], pages: Sequence[Page], giving: Iterable[int]
    ) -> type_of_shelves:
        """Divide pages (by their places in the list) by where their items go; ``usual`` are the stores of the job.

        An error stands for stores that cannot be opened: pages with items for them fail, all others are kept.
        """
        chosen: dict[type_of_route, list[int]] = {}
        for index in giving:
            chosen.setdefault(self._spider.route_of(pages[index].request), []).append(index)
        shelves: type_of_shelves = []
        for route, indexes in chosen.items():
            try:
                shelves.append((await self._shelf(route) if route else usual, indexes))
            except StoreError as error:
                shelves.append((error, [index for index in indexes if pages[index].items]))
        return shelves

    async def _shelf(self, route: type_of_route) -> list[Store]:
        stores = self._stores.get(route)
        if stores is None:
            section = section_of(route)
            # Two stores of one worker may write to the same place: each has a part of its own there.
            context = msgspec.structs.replace(
                self._context, section=section, worker=f"{self._context.worker}-{section}"
            )
            stores = stores_for(open_output(target) for target in route)
            for store in stores:
                await store.open(context)
            self._stores[route] = stores
        return stores
