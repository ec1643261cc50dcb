"""The store contract: stores, which write items, and outputs, to which they are written.

A store makes items durable in ``write``, before the frontier commits the request that returned them. Two kinds of
store keep every item exactly once, although a worker may be killed at any moment:

* a *ranged* store appends to its own part file and returns the byte range of each group. The range is recorded in
  the commit, and only committed ranges are merged into the named output;
* a *keyed* store writes each item under a deterministic id, so that writing it again changes nothing.

An :class:`Output` is the named destination that ``-o`` gives. The parent process checks it before the crawl and
completes it at every stop; each worker writes through its own :class:`Store`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from skitter._utils.visible import one_line
from skitter.errors import SkitterError, StoreError
from skitter.item import OutputRange
from skitter.secrets import output_variable, secret_from_environment

if TYPE_CHECKING:  # a process without workers does not parse pages
    from skitter.response import Response

RangesByPart = Mapping[str, Sequence[tuple[int, int]]]
"""Committed byte ranges of each part, as returned by ``Reports.outputs()`` of the frontier."""


class ItemGroup(msgspec.Struct, frozen=True):
    """The items of one page, in the order in which the callback yielded them.

    A page without items is written too: a keyed store then removes the items of an earlier visit.
    """

    fingerprint: bytes
    """Fingerprint of the page's request, 16 bytes."""
    items: Sequence[Any]
    """dict, dataclass, attrs, pydantic or TypedDict instances; see :mod:`skitter.item`."""


class GroupError(msgspec.Struct, frozen=True):
    """The reason why the items of one page cannot be written. That page fails; all other pages are kept."""

    error: str
    """One line: the position of the item within its page, and the problem."""

    @classmethod
    def of(cls, error: Exception, index: int) -> GroupError:
        """Describe the error of the item at a position (from 0)."""
        reason = one_line(error)
        if not isinstance(error, SkitterError):
            reason = f"{type(error).__name__}: {reason}"
        elif error.remedy:
            reason = f"{reason}; {error.remedy}"
        return cls(f"item {index + 1} of the page: {reason}")


_Encoded = TypeVar("_Encoded")


def encode_items(group: ItemGroup, encode: Callable[[Any], _Encoded]) -> list[_Encoded] | GroupError:
    """Return the items of a page in the form of a store, or the error of the first item that ``encode`` refuses."""
    encoded: list[_Encoded] = []
    try:
        for item in group.items:
            encoded.append(encode(item))  # noqa: PERF401 - their count gives the index of a failing item
    except Exception as error:  # noqa: BLE001 - serializers of items are user code and may raise anything
        return GroupError.of(error, len(encoded))
    return encoded


class Capture(msgspec.Struct, frozen=True):
    """The response to one request. An :class:`ArchiveStore` writes captures instead of items."""

    response: Response
    """The response as it was received: hooks that replace it leave ``raw_headers`` and ``wire_body`` unchanged."""
    fetched_at: float
    """Unix time at which the fetch began."""


class Buffering(msgspec.Struct, frozen=True):
    """How many items a store prefers in one write. A worker writes fewer if no more can arrive in time."""

    items: int
    seconds: float
    """Maximum wait of the first page in seconds. Meanwhile, its lease is held and its links stay unknown."""


class StoreContext(msgspec.Struct, frozen=True):
    """What a store needs to know when it is opened."""

    job: str
    worker: str
    """Unique among all workers that ever ran the job, restarts included; usable as a file name."""
    directory: str
    """The job's own folder, which exists; part files are stored below it."""
    durability: str = "process"
    """``process``: items survive a killed process; ``machine``: they also survive a power loss (``write`` syncs)."""
    section: str = ""
    """Part of the job's items that is stored separately from all others; usable as a file name. Empty: the items of
    the job's own outputs. A ranged store keeps each section in separate part files."""
    fleet: bool = False
    """Whether workers on other machines may belong to the job."""
    request_headers: Mapping[str, str] = {}
    """Headers that each request of the job has in addition to its own headers."""


class OutputContext(msgspec.Struct, frozen=True):
    """What the parent process of a job passes to an output."""

    job: str
    directory: str
    """The job's own folder, which exists."""
    durability: str = "process"
    """See :class:`StoreContext`."""
    sections: tuple[str, ...] = ("",)
    """The sections whose items belong to this output; see :class:`StoreContext`."""
    fleet: bool = False
    """See :class:`StoreContext`."""


class Store(Protocol):
    """Writes items. Each instance belongs to one worker."""

    @property
    def buffering(self) -> Buffering | None:
        """How many items the store prefers in one write; ``None`` if no page should wait for others."""

    async def open(self, context: StoreContext) -> None:
        """Prepare to write. May be called again after a failure. Raises :class:`~skitter.errors.StoreError` with a remedy."""

    async def write(self, groups: Sequence[ItemGroup]) -> Sequence[OutputRange | GroupError | None]:
        """Make the items durable; return one entry for each group, in order.

        An entry is a byte range (ranged store), ``None`` (keyed store, or a group without items), or a
        :class:`GroupError` if an item cannot be written; then no item of the group is kept. Raises
        :class:`~skitter.errors.StoreError` if the store as a whole fails, for example because the disk is full:
        then nothing of the call may be committed, and the call may be repeated.
        """

    async def close(self) -> None:
        """Write buffered data and release all resources. Also called if :meth:`open` has failed."""


class ArchiveStore(Store, Protocol):
    """Writes responses. Items of its groups are captures, or captures that :meth:`encode` has encoded."""

    def encode(self, capture: Capture) -> bytes:
        """Return the form in which a response is stored. This takes no longer than parsing the page."""


def buffering_of(stores: Iterable[Store]) -> Buffering | None:
    """Return the largest buffering that any of the stores prefers; ``None`` if none of them buffers."""
    wanted = [store.buffering for store in stores if store.buffering is not None]
    if not wanted:
        return None
    return Buffering(
        max(buffering.items for buffering in wanted), max(buffering.seconds for buffering in wanted)
    )


async def close_all(stores: Iterable[Store]) -> None:
    """Close stores in order. If one of them raises an error, close the others too, and then raise it."""
    async with AsyncExitStack() as closing:
        for store in reversed([*stores]):
            closing.push_async_callback(store.close)


class Output(ABC):
    """A named destination for items. Only the job's parent process calls it; the workers get ``store()``.

    Every method raises :class:`~skitter.errors.StoreError` with a remedy if the destination fails. A keyed output, whose
    items are complete as soon as they are written, inherits most methods.
    """

    target: str
    """The name as the user gave it, without secrets."""
    stream: str
    """Name of the target of the stores, usable as a file name. Outputs with the same name share one store per worker."""
    is_keyed = False
    """Whether a write replaces all items of its page, so that a page without items removes them."""
    is_append_only = False
    """Whether consumers read items during the crawl, so that written items cannot be replaced."""
    holds_responses = False
    """Whether the output is an archive, whose stores are of the kind :class:`ArchiveStore`."""

    @property
    def location(self) -> str:
        """Where the items are stored: equal for two outputs that replace each other. Default: ``target``."""
        return self.target

    @property
    def fleet_stream(self) -> str:
        """``stream`` for a job whose workers are on several machines. Default: ``stream``."""
        return self.stream

    @abstractmethod
    async def check(self, context: OutputContext) -> None:
        """Test, before the crawl starts, whether the destination is writable."""

    async def occupied(self, context: OutputContext) -> bool:  # noqa: ARG002 - for subclasses
        """Whether ``merge`` would replace data that this job did not write itself. Default: ``False``."""
        return False

    async def clear(self, context: OutputContext) -> None:
        """Remove items of earlier runs of the job from a shared destination, for a fresh start. Default: do nothing."""
        del context

    @abstractmethod
    def store(self) -> Store:
        """Return a new store for one worker."""

    def fleet_store(self) -> Store:
        """Return a new store for one worker of a job on several machines. Default: :meth:`store`."""
        return self.store()

    async def emit(self, context: OutputContext, ranges: RangesByPart) -> bool:  # noqa: ARG002 - for subclasses
        """Publish newly committed items while the crawl runs. The same ranges may be passed more than once.

        Return ``False`` when no reader is left, for example when a pipe is closed. Default: do nothing, and return ``True``.
        """
        return True

    async def merge(self, context: OutputContext, ranges: RangesByPart) -> None:
        """Make the destination contain exactly the committed items. Called at every stop, and may be repeated.

        Default: do nothing.
        """
        del context, ranges


def item_id(job: str, fingerprint: bytes, index: int) -> str:
    """Return the deterministic id of an item: the same for the same page of the same job."""
    return f"{job}:{fingerprint.hex()}:{index}"


def parts_folder(directory: str) -> Path:
    """Return the folder of a job's part files; ``OutputRange.part`` is relative to it."""
    return Path(directory) / "parts"


class OutputAddress(msgspec.Struct, frozen=True):
    """The parts of ``-o NAME``."""

    target: str
    """The name as the user gave it."""
    kind: str
    """The scheme or the suffix, in lower case."""
    rest: str
    """The name without scheme and options: a path, or the text after ``scheme:`` of a service."""
    options: dict[str, str] = {}
    """The options after ``?``, decoded."""

    def password(self, kind: str) -> str:
        """Return the password that is set outside the name; see :func:`skitter.secrets.output_variable`.

        Return an empty string if it is not set. Raises :class:`~skitter.errors.StoreError` if its file cannot be read.
        """
        return secret_from_environment(output_variable(kind), StoreError)
