"""The items of a run, kept in the storage of the service so that every node can return them page by page.

Items reach the storage through the store contract, like the items of any database output: they are written under the ids
of their pages before these pages are committed, so each item is stored exactly once. One entry holds the items of one
crawled page, one JSON text per line. Its position gives the order in which the pages first arrived.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from skitter.errors import SkitterError, StoreError
from skitter.item import encode_item
from skitter.service.storage import AppendLog
from skitter.service.storage.redis import RedisAppendLog
from skitter.service.storage.sqlite import SqliteAppendLog
from skitter.store.contract import OutputAddress, StoreContext
from skitter.store.database import BufferOptions, DatabaseOutput, Encoded, PageItems

ITEMS_VARIABLE = "SKITTER_SERVICE_ITEMS"
"""Environment variable with the location of a run's items. The location may hold a password, so no file names it."""
_FILE = "file:"
_BATCH_SIZE = 200
"""Maximum pages in one read."""


class ItemPage(msgspec.Struct):
    """Some items of a run."""

    items: list[msgspec.Raw]
    next: str | None
    """Position of the last item; ``None`` if no more items are available yet."""


async def read_items(log: AppendLog, after: tuple[int, int], limit: int, task: str = "") -> ItemPage:
    """Return up to ``limit`` items after a position, given as the number of a page and how many of its items were returned."""
    found: list[msgspec.Raw] = []
    while True:
        rows = await log.read(after[0] - 1, _BATCH_SIZE, task)
        for number, packed in rows:
            lines = packed.split(b"\n")
            skipped = after[1] if number == after[0] else 0
            taken = lines[skipped : skipped + limit - len(found)]
            found += [msgspec.Raw(line) for line in taken]
            after = (number, skipped + len(taken))
            if len(found) >= limit:
                return ItemPage(found, f"{after[0]}.{after[1]}")
        if len(rows) < _BATCH_SIZE:
            return ItemPage(found, f"{after[0]}.{after[1]}" if found else None)
        after = (after[0] + 1, 0)


def open_items(location: str, run: str = "") -> AppendLog:
    """Return the log with the items of a run; ``location`` is ``file:PATH`` or the URL of a server."""
    if location.startswith(_FILE):
        return SqliteAppendLog(Path(location.removeprefix(_FILE)))
    return RedisAppendLog(location, run, "items")


def file_location(path: Path) -> str:
    """Return the location of items that are kept in a file."""
    return f"{_FILE}{path}"


class ItemDriver:
    """Writes items to an append-only log. Implements :class:`~skitter.store.database.Driver`.

    ``make_log``: returns the log of a run, given its id.
    ``task``: name of the task, for the list of items of a single task.
    """

    def __init__(self, make_log: Callable[[str], AppendLog], task: str = "") -> None:
        self._make_log = make_log
        self._log = make_log("")
        self._task = task
        self.name = self._log.name

    async def open(self, context: StoreContext) -> None:
        """Connect to the log of the run."""
        self._log = self._make_log(context.job)
        await self._log.open()

    def encode(self, item: Any) -> Encoded:
        """Encode an item as JSON, without line breaks."""
        return Encoded(encode_item(item))

    async def put(self, pages: Sequence[PageItems]) -> list[str]:
        entries = [(page.prefix, b"\n".join(item.data for item in page.items)) for page in pages]
        try:
            await self._log.put(entries, self._task)
        except StoreError:
            raise
        except SkitterError as error:
            raise StoreError(str(error), remedy=error.remedy) from error
        return [""] * len(pages)

    async def check(self, job: str) -> None:
        """Do nothing: a log that was opened can be written."""

    async def clear(self, job: str) -> None:
        """Remove the items of the run."""
        del job
        await self._log.erase()

    async def close(self) -> None:
        await self._log.close()


def run_items(address: OutputAddress) -> DatabaseOutput:
    """Return the output ``skitter.service.items:run_items:LOCATION``: all items of a run."""
    return _output(address, address.rest, "")


def task_items(address: OutputAddress) -> DatabaseOutput:
    """Return the output ``skitter.service.items:task_items:TASK``, with TASK in hexadecimal: the items of one task."""
    location = os.environ.get(ITEMS_VARIABLE, "")
    if not location:
        raise StoreError(
            f"{ITEMS_VARIABLE} is not set",
            remedy="do not use this output yourself; only the nodes of a service can open it",
            field=ITEMS_VARIABLE,
        )
    return _output(address, location, bytes.fromhex(address.rest).decode())


def _output(address: OutputAddress, location: str, task: str) -> DatabaseOutput:
    def driver() -> ItemDriver:
        return ItemDriver(lambda run: open_items(location, run), task)

    return DatabaseOutput("service", address.target, driver, BufferOptions())


def run_target(location: str) -> str:
    """Return the name of the output with all items of a run."""
    return f"{__name__}:run_items:{location}"


def task_target(task: str) -> str:
    """Return the name of the output with the items of one task."""
    return f"{__name__}:task_items:{task.encode().hex()}"
