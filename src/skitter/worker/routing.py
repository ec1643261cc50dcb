"""ItemWriter: writes the items of pages to the stores of the job, or to the stores that the spider chooses."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec
import xxhash

from skitter.errors import StoreError
from skitter.frontier.records import Resolution
from skitter.item import OutputRange
from skitter.request import Request
from skitter.secrets import without_secrets
from skitter.store.contract import (
    ArchiveStore,
    Capture,
    GroupError,
    ItemGroup,
    Store,
    StoreContext,
    buffering_of,
    close_all,
)
from skitter.store.outputs import open_item_output, stores_for
from skitter.store.selection import SelectingStore, counted_names
from skitter.worker.bounded_counters import CLASSES
from skitter.worker.callbacks import ErrorLog
from skitter.worker.hooks import Hooks
from skitter.worker.page import FILE_CALLBACKS
from skitter.worker.retry import RetryDecision
from skitter.worker.revisit import keeps_items

if TYPE_CHECKING:  # a process without workers does not need it
    from skitter.worker.page import Page

_DONE = Resolution.DONE
_LARGE = 256 * 1024
"""Maximum size in bytes of a body that is encoded on the event loop."""
Route = tuple[str, ...]
"""Names of outputs. An empty route means the outputs of the job."""
RoutedGroups = list[tuple[Sequence[Store] | StoreError, list[int]]]
"""For each route: its stores, or the error of opening them, and the positions of its pages."""


@runtime_checkable
class OutputRouter(Protocol):
    """A spider that chooses outputs by request."""

    def route_of(self, request: Request) -> Route:
        """Return the outputs for the items of a request, instead of those of the job.

        Called for every page. The route of a request must not change as long as its job exists.
        """

    def routes(self) -> Sequence[Route]:
        """Return all routes known so far. More may follow while the job runs. May read files."""


def section_of(route: Route) -> str:
    """Return the section that holds the items of a route; see :class:`~skitter.store.contract.StoreContext`."""
    return xxhash.xxh3_64_hexdigest("\0".join(map(without_secrets, route)).encode()) if route else ""


class RoutedStores:
    """The stores of one worker for the routes of its spider. The stores of a route are opened for its first page."""

    def __init__(self, spider: OutputRouter, context: StoreContext) -> None:
        self._spider = spider
        self._context = context
        self._stores: dict[Route, list[Store]] = {}
        """The open stores of each route."""
        self._unopened: dict[Route, list[Store]] = {}
        """The other stores of each route. If one cannot be opened, the next page of the route tries again."""

    @property
    def stores(self) -> list[Store]:
        """All stores, also those that could not be opened."""
        routes = (*self._stores.values(), *self._unopened.values())
        return [store for stores in routes for store in stores]

    async def group(
        self, default: Sequence[Store], pages: Sequence[Page], done: Iterable[int]
    ) -> RoutedGroups:
        """Group pages by their stores. ``done``: the positions of the pages; ``default``: the stores of the job.

        If the stores of a route cannot be opened, its group has the error, and only its pages with items.
        """
        chosen: dict[Route, list[int]] = {}
        for index in done:
            chosen.setdefault(self._spider.route_of(pages[index].request), []).append(index)
        groups: RoutedGroups = []
        for route, indexes in chosen.items():
            try:
                groups.append((await self._open(route) if route else default, indexes))
            except StoreError as error:
                groups.append((error, [index for index in indexes if pages[index].items]))
        return groups

    async def _open(self, route: Route) -> list[Store]:
        if route not in self._stores:
            outputs = [open_item_output(target) for target in route]
            self._unopened[route] = stores_for(outputs, fleet=self._context.fleet)
            self._stores[route] = []
        stores, unopened = self._stores[route], self._unopened[route]
        if unopened:
            section = section_of(route)
            # Two stores of one worker may have the same target: each writes a separate part file.
            context = msgspec.structs.replace(
                self._context, section=section, worker=f"{self._context.worker}-{section}"
            )
            while unopened:
                await unopened[0].open(context)
                stores.append(unopened.pop(0))
        return stores


class ItemWriter:
    """Writes items to the stores of one worker, and responses to the stores of its archives.

    ``routed``: further stores for items, if the spider chooses outputs.
    """

    def __init__(
        self,
        stores: Sequence[Store],
        hooks: Hooks,
        routed: RoutedStores | None = None,
        archives: Sequence[ArchiveStore] = (),
    ) -> None:
        self._stores = stores
        self._archives = archives
        self._captures: list[Capture | bytes] = []
        """Responses that belong to no page, and wait for the next write."""
        self._hooks = hooks
        self._routed = routed
        self._error_log = ErrorLog()
        self.buffering = buffering_of([*stores, *archives])
        """How the stores collect items before they write; ``None`` if they do not."""

    async def close(self) -> None:
        """Close all stores."""
        routed = () if self._routed is None else self._routed.stores
        await close_all([*self._stores, *self._archives, *routed])

    @property
    def has_archives(self) -> bool:
        """Whether responses are written as well."""
        return bool(self._archives)

    def add_capture(self, capture: Capture) -> None:
        """Write a response that belongs to no page with the next pages."""
        self._captures.append(self._encoded(capture))

    def capture(self, page: Page) -> None:
        """Encode the response of a page for the archives. Bodies of downloaded files went to their own store."""
        response = page.response
        if response is not None and page.request.callback not in FILE_CALLBACKS:
            began = time.time() - (time.monotonic() - page.began)
            page.capture = self._encoded(Capture(response, began))

    def _encoded(self, capture: Capture) -> Capture | bytes:
        response = capture.response
        if len(response.body) > _LARGE:
            return Capture(response.replace(), capture.fetched_at)  # without the tree
        return self._archives[0].encode(capture)

    async def write(self, pages: list[Page]) -> list[list[OutputRange]]:
        """Write the items of pages. A page whose items cannot be written fails; the others are not affected.

        Return the written ranges of each page.
        """
        ranges: list[list[OutputRange]] = [[] for _ in pages]
        # A failed page has items only in a Scrapy project, which keeps them.
        done = [
            index
            for index, page in enumerate(pages)
            if (page.decision.resolution is _DONE or page.items)
            and page.has_output
            and (page.visit is None or page.items or not keeps_items(page))
        ]
        if self._routed is None:
            await self._write(self._stores, pages, done, ranges)
        else:
            for stores, chosen in await self._routed.group(self._stores, pages, done):
                if isinstance(stores, StoreError):
                    for index in chosen:
                        await self._fail(pages[index], str(stores))
                else:
                    await self._write(stores, pages, chosen, ranges)
        if self._archives:
            await self._write_captures(pages, ranges)
        return ranges

    async def _write_captures(self, pages: list[Page], ranges: list[list[OutputRange]]) -> None:
        """Write the response of each page, regardless of its outcome."""
        groups, (captures, self._captures) = [], (self._captures, [])
        for page in pages:
            if page.capture is not None:
                captures.append(page.capture)
            groups.append(ItemGroup(page.item_key, captures))
            captures = []
        for store in self._archives:
            for page_ranges, result in zip(ranges, await store.write(groups), strict=True):
                if isinstance(result, OutputRange):
                    page_ranges.append(result)

    async def _write(
        self, stores: Sequence[Store], pages: list[Page], done: list[int], ranges: list[list[OutputRange]]
    ) -> None:
        """Write the items of some pages to each of their stores."""
        groups = [ItemGroup(pages[index].item_key, pages[index].items) for index in done]
        refused: list[ItemGroup] = []
        for number, store in enumerate(stores):
            for index, result in zip(done, await store.write(groups), strict=True):
                if isinstance(result, OutputRange):
                    ranges[index].append(result)
                elif isinstance(result, GroupError) and pages[index].items:
                    ranges[index] = []
                    refused.append(ItemGroup(pages[index].item_key, []))
                    await self._fail(pages[index], result.error)
            if refused:
                for earlier in stores[:number]:
                    await earlier.write(refused)  # without items, to remove those of an earlier visit
                done = [
                    index for index in done if pages[index].decision.resolution is _DONE or pages[index].items
                ]
                groups = [ItemGroup(pages[index].item_key, pages[index].items) for index in done]
                refused = []
        _count_classes(stores, [pages[index] for index in done])

    async def _fail(self, page: Page, error: str) -> None:
        self._error_log.report(page.lease.url, StoreError(error))
        page.counters.clear()
        page.finish(RetryDecision(Resolution.FAILED, f"store: {error}"))
        if self._hooks["on_error"]:
            await self._hooks.report_error(page.request, StoreError(error))


def _count_classes(stores: Sequence[Store], pages: Iterable[Page]) -> None:
    """Count the written items of each class, if one of the stores selects items by class."""
    selections = [store.item_classes for store in stores if isinstance(store, SelectingStore)]
    for page in pages if selections else ():
        for item in page.items:
            for name in counted_names(item, selections):
                page.count_bounded(CLASSES + name)
