"""RoutedStores: where the items of a page go, if its spider gives some requests outputs of their own."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec
import xxhash

from skitter.errors import StoreError
from skitter.frontier.records import Resolution
from skitter.item import OutputRange
from skitter.request import Request
from skitter.secrets import without_secrets
from skitter.store.contract import GroupError, ItemGroup, Store, StoreContext
from skitter.store.outputs import open_output, stores_for
from skitter.worker.hooks import Hooks
from skitter.worker.retry import Decision

if TYPE_CHECKING:  # the owner of a fleet reads no pages
    from skitter.worker.page import Page

Route = tuple[str, ...]
"""Names of the outputs that some requests have together; empty: those of the job."""
RoutedGroups = list[tuple[Sequence[Store] | StoreError, list[int]]]


@runtime_checkable
class OutputRouter(Protocol):
    """A spider some of whose requests have outputs of their own."""

    def route_of(self, request: Request) -> Route:
        """Return where the items of a request go, and only there.

        Called for every page that is written. A request has the same route for the life of its job.
        """
        ...

    def routes(self) -> Sequence[Route]:
        """Return all routes there are by now. More may come while the job runs. May read files."""
        ...


def section_of(route: Route) -> str:
    """Return the section of a job's items that goes by a route; see :class:`~skitter.store.contract.StoreContext`."""
    return xxhash.xxh3_64_hexdigest("\0".join(map(without_secrets, route)).encode()) if route else ""


class RoutedStores:
    """The stores of one worker for the routes of its spider. They are opened with the first page that goes there."""

    def __init__(self, spider: OutputRouter, context: StoreContext) -> None:
        self._spider = spider
        self._context = context
        self._stores: dict[Route, list[Store]] = {}

    @property
    def opened(self) -> list[Store]:
        """All stores that were opened."""
        return [store for stores in self._stores.values() for store in stores]

    async def sort(
        self, usual: Sequence[Store], pages: Sequence[Page], giving: Iterable[int]
    ) -> RoutedGroups:
        """Divide pages (by their places in the list) by where their items go; ``usual`` are the stores of the job.

        An error stands for stores that cannot be opened: pages with items for them fail, all others are kept.
        """
        chosen: dict[Route, list[int]] = {}
        for index in giving:
            chosen.setdefault(self._spider.route_of(pages[index].request), []).append(index)
        shelves: RoutedGroups = []
        for route, indexes in chosen.items():
            try:
                shelves.append((await self._shelf(route) if route else usual, indexes))
            except StoreError as error:
                shelves.append((error, [index for index in indexes if pages[index].items]))
        return shelves

    async def _shelf(self, route: Route) -> list[Store]:
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


log = logging.getLogger("skitter.crawl")


class ItemWriter:
    """Writes items to the stores of one worker; ``sorting``: where its spider gives some requests outputs of their own."""

    def __init__(self, stores: Sequence[Store], hooks: Hooks, sorting: RoutedStores | None) -> None:
        self._stores = stores
        self._hooks = hooks
        self._sorting = sorting

    async def write(self, pages: list[Page]) -> list[list[OutputRange]]:
        """Write the items of all pages; a page whose items cannot be written fails, the others stay."""
        marks: list[list[OutputRange]] = [[] for _ in pages]
        giving = [index for index, page in enumerate(pages) if page.verdict.resolution is Resolution.DONE]
        if self._sorting is None:
            await self._write(self._stores, pages, giving, marks)
        else:
            for stores, chosen in await self._sorting.sort(self._stores, pages, giving):
                if isinstance(stores, StoreError):
                    for index in chosen:
                        await self._fail(pages[index], str(stores))
                else:
                    await self._write(stores, pages, chosen, marks)
        return [
            kept if page.verdict.resolution is Resolution.DONE else []
            for kept, page in zip(marks, pages, strict=True)
        ]

    async def _write(
        self, stores: Sequence[Store], pages: list[Page], giving: list[int], marks: list[list[OutputRange]]
    ) -> None:
        """Write the items of some pages to all stores of theirs."""
        groups = [ItemGroup(pages[index].lease.fingerprint, pages[index].items) for index in giving]
        refused: list[ItemGroup] = []
        for number, store in enumerate(stores):
            for index, answer in zip(giving, await store.write(groups), strict=True):
                if isinstance(answer, OutputRange):
                    marks[index].append(answer)
                elif isinstance(answer, GroupError) and pages[index].items:
                    marks[index] = []
                    refused.append(ItemGroup(pages[index].lease.fingerprint, []))
                    await self._fail(pages[index], answer.error)
            if refused:
                for earlier in stores[:number]:
                    await earlier.write(refused)  # one page more without items: they keep nothing of it
                giving = [index for index in giving if pages[index].verdict.resolution is Resolution.DONE]
                groups = [ItemGroup(pages[index].lease.fingerprint, pages[index].items) for index in giving]
                refused = []

    async def _fail(self, page: Page, error: str) -> None:
        log.error("%s: store: %s", page.lease.url, error)
        page.counters = {}
        page.finish(Decision(Resolution.FAILED, f"store: {error}"))
        if self._hooks["on_error"]:
            await self._hooks.tell(page.request, StoreError(error))
