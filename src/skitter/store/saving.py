"""An output whose store is a user's class with one method, ``save``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import xxhash

from skitter._utils.concurrency import SingleThreadExecutor
from skitter.errors import SkitterError, StoreError
from skitter.secrets import shown_url, without_secrets
from skitter.store.contract import (
    GroupError,
    ItemGroup,
    Output,
    OutputAddress,
    OutputContext,
    StoreContext,
)


@runtime_checkable
class Saver(Protocol):
    """A store with one method. Each worker process creates one.

    The constructor takes an :class:`~skitter.store.contract.OutputAddress`, or nothing. Methods may be coroutine
    functions. Other methods, and the constructor, are called in a separate thread, always the same.
    """

    def save(self, items: list[Any]) -> Any:
        """Make the items of one page durable. The page is committed when this returns.

        It is called again for a page whose worker dies before the commit. A method ``save(self, items, page)`` receives
        the id of the page, and stores each item exactly once if it replaces the items that it stored under this id. It is
        also called for pages without items. An exception fails the page; a :class:`~skitter.errors.StoreError` fails the crawl,
        which can be resumed.
        """


@runtime_checkable
class _Opening(Protocol):
    def open(self) -> Any:
        """Prepare to save. Called before the crawl, to check the output, and in each worker."""


@runtime_checkable
class _Closing(Protocol):
    def close(self) -> Any:
        """Release all resources."""


class SavingStore:
    """Passes the items of each page to a :class:`Saver`. Implements :class:`~skitter.store.contract.Store`."""

    buffering = None

    def __init__(self, target: str, make: Callable[[], Saver]) -> None:
        self._target = target
        self._make = make
        self._thread = SingleThreadExecutor("store")
        self._saver: Saver | None = None
        self._takes_page = False
        self._job = ""

    async def open(self, context: StoreContext) -> None:
        self._job = context.job
        try:
            self._saver = saver = await self._thread.run(self._make)
            self._takes_page = len(inspect.signature(saver.save).parameters) > 1
            if isinstance(saver, _Opening):
                await self._call(saver.open)
        except SkitterError:
            raise
        except Exception as error:
            raise StoreError(
                f"output {self._target} cannot be opened: {_describe(error)}",
                remedy="correct its name, or the class that it names",
                field="output",
            ) from error

    async def write(self, groups: Sequence[ItemGroup]) -> list[GroupError | None]:
        return [await self._save(group) for group in groups]

    async def _save(self, group: ItemGroup) -> GroupError | None:
        assert self._saver is not None, "open() comes first"
        page = (f"{self._job}:{group.fingerprint.hex()}",) if self._takes_page else ()
        if not group.items and not page:
            return None
        try:
            await self._call(self._saver.save, list(group.items), *page)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - the method is user code
            return GroupError(f"{self._target} cannot save the page's items: {_describe(error)}")
        return None

    async def close(self) -> None:
        try:
            saver: object = self._saver
            if isinstance(saver, _Closing):
                await self._call(saver.close)
        finally:
            self._thread.stop()

    async def _call(self, method: Callable[..., Any], *arguments: Any) -> None:
        if inspect.iscoroutinefunction(method):
            await method(*arguments)
        else:
            await self._thread.run(method, *arguments)


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]


class SavingOutput(Output):
    """The output of a :class:`Saver`. There is nothing to merge."""

    def __init__(self, address: OutputAddress, make: Callable[[], Saver]) -> None:
        self.target = shown_url(address.target)
        self.stream = f"saver-{xxhash.xxh3_64_hexdigest(without_secrets(address.target).encode())}"
        self._make = make

    async def check(self, context: OutputContext) -> None:
        """Create the user's store, open and close it."""
        store = self.store()
        try:
            await store.open(StoreContext(context.job, "parent", context.directory, context.durability))
        finally:
            await store.close()

    def store(self) -> SavingStore:
        """Return a new store for one worker."""
        return SavingStore(self.target, self._make)
