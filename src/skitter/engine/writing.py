"""Writing: the items of finished pages, and the stores that they go to."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from skitter.engine.hooks import Hooks
from skitter.engine.page import Page
from skitter.engine.sorting import Sorting
from skitter.engine.verdict import Verdict
from skitter.errors import StoreError
from skitter.frontier.records import Resolution
from skitter.output_mark import OutputMark
from skitter.store.base import GroupError, ItemGroup, Store

log = logging.getLogger("skitter.engine")


class Writing:
    """Writes items to the stores of one worker; ``sorting``: where its spider gives some requests outputs of their own."""

    def __init__(self, stores: Sequence[Store], hooks: Hooks, sorting: Sorting | None) -> None:
        self._stores = stores
        self._hooks = hooks
        self._sorting = sorting

    async def write(self, pages: list[Page]) -> list[list[OutputMark]]:
        """Write the items of all pages; a page whose items cannot be written fails, the others stay."""
        marks: list[list[OutputMark]] = [[] for _ in pages]
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
        self, stores: Sequence[Store], pages: list[Page], giving: list[int], marks: list[list[OutputMark]]
    ) -> None:
        """Write the items of some pages to all stores of theirs."""
        groups = [ItemGroup(pages[index].lease.fingerprint, pages[index].items) for index in giving]
        refused: list[ItemGroup] = []
        for number, store in enumerate(stores):
            for index, answer in zip(giving, await store.write(groups), strict=True):
                if isinstance(answer, OutputMark):
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
        page.finish(Verdict(Resolution.FAILED, f"store: {error}"))
        if self._hooks["on_error"]:
            await self._hooks.tell(page.request, StoreError(error))
