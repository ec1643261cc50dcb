"""The buffering and retries that all database stores share.

The items of many pages are sent to the server in few writes. If a server rejects items of one page, only that page
fails; if a server is unavailable, the store waits for it. ``write`` returns when everything is in the database, and the
pages are committed only then, so a buffer never holds committed items.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Protocol, TypeVar

import msgspec
import xxhash
from msgspec import Meta

from skitter._utils.backoff import Backoff, Unavailable
from skitter._utils.visible import one_line
from skitter.errors import StoreError
from skitter.secrets import without_secrets
from skitter.store.contract import (
    Buffering,
    GroupError,
    ItemGroup,
    Output,
    OutputContext,
    StoreContext,
    encode_items,
    item_id,
)
from skitter.store.selection import ITEM_CLASSES

LARGEST_BATCH = 8 << 20
"""Bytes of encoded items after which a batch is complete, regardless of its number of items."""
MAX_SECONDS = 10**9
"""Maximum number of seconds in an option: about 30 years."""


class BufferOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How items are buffered before they are written to a database. Each field is an option of the output's URL."""

    buffer: Annotated[int, Meta(ge=1)] = 1000
    """Maximum number of items in one write to the server. With 1, each item is written separately."""
    flush: Annotated[float, Meta(ge=0, le=MAX_SECONDS)] = 0.0
    """Maximum time in seconds that pages wait for others, so that writes become larger. With 0, no page waits: a write
    contains the pages that have arrived during the previous write.
    """
    outage_timeout: Annotated[float, Meta(ge=0, le=MAX_SECONDS)] = 600.0
    """How long the store waits for an unavailable server, in seconds. Then the crawl fails and can be resumed."""

    @property
    def buffering(self) -> Buffering | None:
        """The batch size that the worker should collect before it writes; ``None`` if pages do not wait."""
        return Buffering(self.buffer, self.flush) if self.flush else None


_Options = TypeVar("_Options", bound=msgspec.Struct)


def take_options(target: str, options: dict[str, str], kind: type[_Options]) -> _Options:
    """Remove the options that a struct declares from the options of a URL, and return them. Raises the errors of :func:`read_options`."""
    values = {name: options.pop(name) for name in kind.__struct_fields__ if name in options}
    return read_options(target, values, kind)


def read_options(
    target: str,
    options: Mapping[str, str],
    kind: type[_Options],
    others: Sequence[str] = BufferOptions.__struct_fields__,
) -> _Options:
    """Convert the options of a URL to a struct. ``others``: names of its other options, for the message.

    Raises :class:`~skitter.errors.StoreError`.
    """
    known = kind.__struct_fields__
    try:
        return msgspec.convert(options, kind, strict=False)
    except msgspec.ValidationError as error:
        wrong = [name for name in options if name not in known or f"`$.{name}`" in str(error)]
        raise StoreError(
            f"output {target!r}: {error}",
            remedy=f"its options are {', '.join(dict.fromkeys((*known, *others, ITEM_CLASSES)))}",
            field=", ".join(wrong),
        ) from None


def tls_context(target: str, ca_file: str) -> ssl.SSLContext:
    """Return the TLS settings of a client: certificates of the system, or of a PEM file. This blocks.

    Raises :class:`~skitter.errors.StoreError`.
    """
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:
        raise StoreError(
            f"{target}: ca_file {ca_file!r}: {error}", remedy="name a PEM file", field="ca_file"
        ) from error


class Encoded(msgspec.Struct, frozen=True):
    """An item in the form that the driver sends, without its id."""

    data: bytes
    shape: Any = None
    """Further information for the driver, such as the item's columns or collection."""


class PageItems(msgspec.Struct, frozen=True):
    """The encoded items of one page."""

    prefix: str
    """The id of an item is this prefix followed by the item's number within the page."""
    items: Sequence[Encoded]


class Driver(Protocol):
    """The operations of one kind of database. A driver is used by one task at a time."""

    name: str
    """The name for messages, without a password."""

    async def open(self, context: StoreContext) -> None:
        """Prepare to write. Raises :class:`Unavailable`, or :class:`~skitter.errors.StoreError` with a remedy."""

    def encode(self, item: Any) -> Encoded:
        """Encode an item. Any exception fails the item's page."""

    async def put(self, pages: Sequence[PageItems]) -> Sequence[str]:
        """Make the database contain exactly these items of these pages. No page is passed twice.

        Return for each page the reason why it was rejected, in one line, or an empty string. No item of a rejected page
        is added. Raises :class:`Unavailable` if the same call may succeed later, and
        :class:`~skitter.errors.StoreError` otherwise.
        """

    async def check(self, job: str) -> None:
        """Test whether a crawl can write, and create missing tables and indexes. Raises the same errors as ``open``."""

    async def clear(self, job: str) -> None:
        """Remove the items of a job and of no other job. Raises the same errors as ``open``."""

    async def close(self) -> None:
        """Disconnect."""


async def put_or_bisect(
    put: Callable[[Sequence[PageItems]], Awaitable[None]],
    pages: Sequence[PageItems],
    item_errors: tuple[type[Exception], ...],
) -> list[str]:
    """Write all pages, or find the pages that cannot be written by bisection.

    ``put``: writes pages in one transaction.
    ``item_errors``: errors of ``put`` that are caused by the items.
    Return the same as :meth:`Driver.put`.
    """
    try:
        await put(pages)
    except item_errors as error:
        if len(pages) == 1:
            return [one_line(error)[:500]]
        half = len(pages) // 2
        first = await put_or_bisect(put, pages[:half], item_errors)
        return first + await put_or_bisect(put, pages[half:], item_errors)
    return [""] * len(pages)


class DatabaseStore:
    """The keyed store of one worker in a database. Implements :class:`~skitter.store.contract.Store`."""

    def __init__(self, driver: Driver, buffer_options: BufferOptions) -> None:
        self._driver = driver
        self._buffer_options = buffer_options
        self._backoff = Backoff(driver.name, buffer_options.outage_timeout)
        self._job = ""
        self.buffering = buffer_options.buffering

    async def open(self, context: StoreContext) -> None:
        """Connect, and wait for an unavailable server."""
        self._job = context.job
        await self._backoff.call(lambda: self._driver.open(context))

    async def write(self, groups: Sequence[ItemGroup]) -> list[GroupError | None]:
        results: list[GroupError | None] = [None] * len(groups)
        pages: dict[int, PageItems] = {}
        for index, group in enumerate(groups):
            encoded = encode_items(group, self._driver.encode)
            if isinstance(encoded, GroupError):
                results[index] = encoded
            else:
                pages[index] = PageItems(item_id(self._job, group.fingerprint, 0)[:-1], encoded)
        for batch in _batches(pages, self._buffer_options.buffer):
            refusals = await self._backoff.call(partial(self._driver.put, list(batch.values())))
            for index, refusal in zip(batch, refusals, strict=True):
                if refusal:
                    results[index] = GroupError(f"{self._driver.name} rejects the page's items: {refusal}")
        return results

    async def close(self) -> None:
        await self._driver.close()


def _batches(pages: dict[int, PageItems], largest: int) -> Iterator[dict[int, PageItems]]:
    """Split pages into batches. A page is never split, and no batch contains the same page twice."""
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


class DatabaseOutput(Output):
    """A keyed output: items are stored under their ids, so there is nothing to merge."""

    is_keyed = True

    def __init__(
        self, kind: str, target: str, driver: Callable[[], Driver], buffer_options: BufferOptions
    ) -> None:
        self._new_driver = driver
        self._buffer_options = buffer_options
        self.target = driver().name
        self.stream = f"{kind}-{xxhash.xxh3_64_hexdigest(without_secrets(target).encode())}"

    async def check(self, context: OutputContext) -> None:
        """Connect as the user that writes items, and create missing tables and indexes."""
        await self._ask(context, lambda driver: driver.check(context.job))

    async def clear(self, context: OutputContext) -> None:
        """Remove the items of this job, because its pages have other fingerprints after a fresh start."""
        await self._ask(context, lambda driver: driver.clear(context.job))

    def store(self) -> DatabaseStore:
        """Return a new connection for one worker."""
        return DatabaseStore(self._new_driver(), self._buffer_options)

    async def _ask(self, context: OutputContext, question: Callable[[Driver], Awaitable[None]]) -> None:
        driver = self._new_driver()
        try:
            await driver.open(StoreContext(context.job, "parent", context.directory, context.durability))
            await question(driver)
        except Unavailable as error:
            raise StoreError(
                f"{driver.name} cannot be reached: {error}",
                remedy="start the server, or correct the host and the port",
            ) from error
        finally:
            await driver.close()
