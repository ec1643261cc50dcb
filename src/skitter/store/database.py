"""DatabaseStore: the buffering core that every database store shares.

The items of many pages go to the server in few writes. What a server cannot take of one page is set aside with
its error while the other pages stand; a server that is away is waited for. ``write`` returns when everything
is in the database, and only then are the pages committed, so a buffer never holds what is already promised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import msgspec
import xxhash

from skitter._utils.backoff import Backoff, Unavailable
from skitter.errors import StoreError
from skitter.secrets import without_secrets
from skitter.store.contract import (
    Buffering,
    GroupError,
    ItemGroup,
    OutputContext,
    RangesByPart,
    StoreContext,
    item_id,
)

LARGEST_BATCH = 8 << 20
"""Bytes of encoded items after which a batch is full, however few they are."""


class BufferOptions(msgspec.Struct, frozen=True):
    """How items are buffered on their way to a database; each is an option of the output's URL."""

    buffer: int = 1000
    """Items in one write to the server. 1: every item is written by itself."""
    flush: float = 0.0
    """Longest time, in seconds, for which pages wait for others so that a write becomes larger. 0: none waits; a write takes what
    has gathered while the one before it was under way."""
    patience: float = 600.0
    """Seconds for which a server that is away is waited for; then the crawl fails, and can be resumed."""

    @classmethod
    def taken_from(cls, target: str, options: dict[str, str]) -> BufferOptions:
        """Take the terms out of the options of a URL. Raises :class:`~skitter.errors.StoreError`."""
        given = {name: options.pop(name) for name in cls.__struct_fields__ if name in options}
        try:
            terms = msgspec.convert(given, cls, strict=False)
        except msgspec.ValidationError as error:
            raise _invalid_buffer_option(target, str(error)) from None
        if terms.buffer < 1 or not 0 <= terms.flush < float("inf") or not 0 <= terms.patience < float("inf"):
            raise _invalid_buffer_option(
                target, "buffer is at least 1; flush and patience are seconds, 0 or more"
            )
        return terms

    @property
    def buffering(self) -> Buffering | None:
        """What the engine is to gather before it writes, if anything."""
        return Buffering(self.buffer, self.flush) if self.flush else None


def _invalid_buffer_option(target: str, problem: str) -> StoreError:
    return StoreError(
        f"output {target!r}: {problem}", remedy="write, for example, ?buffer=1000&flush=0.5&patience=600"
    )


class Encoded(msgspec.Struct, frozen=True):
    """An item as the driver will send it, without its id."""

    data: bytes
    shape: Any = None
    """What the driver wants to know of it besides: its columns, its collection."""


class PageItems(msgspec.Struct, frozen=True):
    """The items of one page, ready to be sent."""

    prefix: str
    """The id of an item is this and its number within the page."""
    items: Sequence[Encoded]


class Driver(Protocol):
    """What is particular to one kind of database. A driver is used by one task at a time."""

    name: str
    """For people: without password."""

    async def open(self, context: StoreContext) -> None:
        """Make ready. Raises :class:`Unavailable`, or :class:`~skitter.errors.StoreError` with a remedy."""
        ...

    def encode(self, item: Any) -> Encoded:
        """Encode an item. Whatever it raises fails the item's page."""
        ...

    async def put(self, pages: Sequence[PageItems]) -> Sequence[str]:
        """Make the database hold exactly these items of these pages, none of which is given twice.

        Answers, for each page, why it is refused, in one line, or an empty text. Nothing of a refused page is added. Raises :class:`Unavailable`
        if the same call may succeed later, and :class:`~skitter.errors.StoreError` if it will not.
        """
        ...

    async def check(self, job: str) -> None:
        """Find out whether a crawl could write: make what is missing. Raises as ``open`` does."""
        ...

    async def clear(self, job: str) -> None:
        """Remove the items of a job, and of no other. Raises as ``open`` does."""
        ...

    async def close(self) -> None:
        """Let go."""
        ...


class DatabaseStore:
    """The keyed store of one worker in a database."""

    def __init__(self, driver: Driver, terms: BufferOptions) -> None:
        self._driver = driver
        self._terms = terms
        self._patience = Backoff(driver.name, terms.patience)
        self._job = ""
        self.buffering = terms.buffering

    async def open(self, context: StoreContext) -> None:
        """Connect; waits for a server that is away."""
        self._job = context.job
        await self._patience.call(lambda: self._driver.open(context))

    async def write(self, groups: Sequence[ItemGroup]) -> list[GroupError | None]:
        """Write the items of all groups; see :meth:`skitter.store.contract.Store.write`."""
        answers: list[GroupError | None] = [None] * len(groups)
        pages: dict[int, PageItems] = {}
        for index, group in enumerate(groups):
            page = self._encode(group)
            if isinstance(page, GroupError):
                answers[index] = page
            else:
                pages[index] = page
        for batch in _batches(pages, self._terms.buffer):
            refusals = await self._patience.call(lambda batch=batch: self._driver.put(list(batch.values())))  # type: ignore[misc]
            for index, refusal in zip(batch, refusals, strict=True):
                if refusal:
                    answers[index] = GroupError(
                        f"{self._driver.name} does not take the page's items: {refusal}"
                    )
        return answers

    async def close(self) -> None:
        """Disconnect."""
        await self._driver.close()

    def _encode(self, group: ItemGroup) -> PageItems | GroupError:
        encoded: list[Encoded] = []
        try:
            for item in group.items:
                encoded.append(self._driver.encode(item))  # noqa: PERF401 - their number tells which item failed
        except Exception as error:  # noqa: BLE001 - items are user code, their serialisers may raise anything
            return GroupError.of(error, len(encoded))
        return PageItems(item_id(self._job, group.fingerprint, 0)[:-1], encoded)


def _batches(pages: dict[int, PageItems], largest: int) -> Iterator[dict[int, PageItems]]:
    """Split into writes: a page is never torn, and a page that is there twice is in two of them."""
    batch: dict[int, PageItems] = {}
    prefixes: set[str] = set()
    items = size = 0
    for index, page in pages.items():
        more, heavier = len(page.items), sum([len(item.data) for item in page.items])
        full = items + more > largest or size + heavier > LARGEST_BATCH
        if batch and (full or page.prefix in prefixes):
            yield batch
            batch, prefixes, items, size = {}, set(), 0, 0
        batch[index] = page
        prefixes.add(page.prefix)
        items += more
        size += heavier
    if batch:
        yield batch


class DatabaseOutput:
    """A keyed output: its rows or documents stand under the ids of the items, so there is nothing to merge."""

    def __init__(self, kind: str, target: str, driver: Callable[[], Driver], terms: BufferOptions) -> None:
        self._new_driver = driver
        self._terms = terms
        self.target = driver().name
        self.stream = f"{kind}-{xxhash.xxh3_64_hexdigest(without_secrets(target).encode())}"

    async def check(self, context: OutputContext) -> None:
        """Reach the server, as the user who may write, and make what is missing."""
        await self._ask(context, lambda driver: driver.check(context.job))

    async def occupied(self, context: OutputContext) -> bool:  # noqa: ARG002 - ids keep jobs apart
        """Never: the place is shared, and items of other jobs stay."""
        return False

    async def clear(self, context: OutputContext) -> None:
        """Remove the items of this job: a fresh start gives its pages other fingerprints."""
        await self._ask(context, lambda driver: driver.clear(context.job))

    def store(self) -> DatabaseStore:
        """Return a new connection for one worker."""
        return DatabaseStore(self._new_driver(), self._terms)

    async def emit(self, context: OutputContext, ranges: RangesByPart) -> bool:  # noqa: ARG002 - see Output
        """Nothing: the items are there."""
        return True

    async def merge(self, context: OutputContext, ranges: RangesByPart) -> None:
        """Nothing: the items are there."""

    async def _ask(self, context: OutputContext, question: Callable[[Driver], object]) -> None:
        driver = self._new_driver()
        try:
            await driver.open(StoreContext(context.job, "parent", context.directory, context.durability))
            await question(driver)  # type: ignore[misc]
        except Unavailable as error:
            raise StoreError(
                f"{driver.name} cannot be reached: {error}",
                remedy="start the server, or correct host and port",
            ) from error
        finally:
            await driver.close()
