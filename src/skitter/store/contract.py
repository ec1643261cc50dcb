"""The store contract: where items go.

A store makes items durable in ``write``, before the frontier commits the request that gave them. Two kinds
keep every item exactly once although workers die at any moment:

* a *ranged* store appends to a part file of its own and answers with the byte range of each group; the
  range is recorded in the commit, and only committed ranges are ever merged into the named output;
* a *keyed* store writes each item under its deterministic id, so that a second write changes nothing.

An :class:`Output` is the named place, what ``-o`` gives. The parent process checks it before the crawl and
finishes it at every stop; each worker writes through a :class:`Store` of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from skitter.errors import SkitterError, StoreError
from skitter.item import OutputRange
from skitter.secrets import output_variable, secret_outside

RangesByPart = Mapping[str, Sequence[tuple[int, int]]]
"""Committed byte ranges of each part, as ``Frontier.outputs()`` gives them."""


class ItemGroup(msgspec.Struct, frozen=True):
    """The items of one page, in the order in which the callback gave them.

    A page without items is written too: a keyed store then removes what an earlier visit left.
    """

    fingerprint: bytes
    """Of the page's request; 16 bytes."""
    items: Sequence[Any]
    """dict, dataclass, attrs, pydantic or TypedDict instances; see :mod:`skitter.item`."""


class GroupError(msgspec.Struct, frozen=True):
    """Why the items of one page cannot be written: the page fails, all other pages are kept."""

    error: str
    """One line: the position of the item within its page, and what is wrong with it."""

    @classmethod
    def of(cls, error: Exception, index: int) -> GroupError:
        """Describe what went wrong with the item at a position (from 0)."""
        reason = " ".join(str(error).split()) or type(error).__name__
        if not isinstance(error, SkitterError):
            reason = f"{type(error).__name__}: {reason}"
        return cls(f"item {index + 1} of the page: {reason}")


class Buffering(msgspec.Struct, frozen=True):
    """What a store would have the engine gather before it writes. Fewer are written when nothing more can come."""

    items: int
    seconds: float
    """Longest wait of the first page. Its lease is held so long, and its links are not known before."""


class StoreContext(msgspec.Struct, frozen=True):
    """What a store is told when it is opened."""

    job: str
    worker: str
    """Unique among all workers that ever ran the job, also after restarts; fit for a file name."""
    directory: str
    """The job's own folder (exists); part files live below it."""
    durability: str = "process"
    """``process``: survive a killed process; ``machine``: survive power loss (sync before returning)."""
    section: str = ""
    """Part of the job's items that is kept apart from all others, fit for a file name; empty: those of the job's own
    outputs. A ranged store keeps the sections in part files of their own."""


class OutputContext(msgspec.Struct, frozen=True):
    """What an output is told by the parent process of a job."""

    job: str
    directory: str
    """The job's own folder (exists)."""
    durability: str = "process"
    """As in :class:`StoreContext`."""
    sections: tuple[str, ...] = ("",)
    """As in :class:`StoreContext`: which items are this output's."""


class Store(Protocol):
    """Where items go. One instance belongs to one worker.

    A store may have an attribute ``buffering`` (:class:`Buffering` or ``None``).
    """

    async def open(self, context: StoreContext) -> None:
        """Make ready to write. Raises :class:`~skitter.errors.StoreError` with a remedy."""
        ...

    async def write(self, groups: Sequence[ItemGroup]) -> Sequence[OutputRange | GroupError | None]:
        """Make the items durable; answers one entry for each group, in order.

        A byte range from a ranged store; ``None`` from a keyed store, and for a group without items; a
        :class:`GroupError` where an item cannot be written, of which then nothing is kept. Raises
        :class:`~skitter.errors.StoreError` if the store as a whole fails (full disk, say): nothing of the
        call may be committed then, and the call may be repeated.
        """
        ...

    async def close(self) -> None:
        """Flush what is left and let go."""
        ...


def buffering_of(stores: Iterable[Store]) -> Buffering | None:
    """Return what pages are to be gathered for that go to all of these stores; ``None``: none asks for it."""
    wishes = [wish for store in stores if (wish := getattr(store, "buffering", None)) is not None]
    if not wishes:
        return None
    return Buffering(max(wish.items for wish in wishes), max(wish.seconds for wish in wishes))


class Output(Protocol):
    """A named place for items. Only the job's parent process calls it; the workers get ``store()``.

    Every method raises :class:`~skitter.errors.StoreError` with a remedy when the place fails.
    """

    @property
    def target(self) -> str:
        """The name as the user gave it."""
        ...

    @property
    def stream(self) -> str:
        """What the stores write to, fit for a file name: outputs of one stream share one store a worker."""
        ...

    async def check(self, context: OutputContext) -> None:
        """Find out, before anything is crawled, whether the place can be written."""
        ...

    async def occupied(self, context: OutputContext) -> bool:
        """Whether ``merge`` would replace something that this job did not write itself."""
        ...

    async def clear(self, context: OutputContext) -> None:
        """Remove what earlier runs of the job left in a shared place, for a job that starts afresh."""
        ...

    def store(self) -> Store:
        """Return a new store for one worker."""
        ...

    async def emit(self, context: OutputContext, ranges: RangesByPart) -> bool:
        """Pass on newly committed items while the crawl runs; ranges may be given more than once.

        ``False``: nobody takes them any more (a closed pipe). Most outputs do nothing here.
        """
        ...

    async def merge(self, context: OutputContext, ranges: RangesByPart) -> None:
        """Make the named place hold exactly the committed items. Repeatable at every stop."""
        ...


def item_id(job: str, fingerprint: bytes, index: int) -> str:
    """Return the deterministic id of an item: the same page of the same job gives the same ids."""
    return f"{job}:{fingerprint.hex()}:{index}"


def parts_folder(directory: str) -> Path:
    """Return the folder of a job's part files; ``OutputRange.part`` is relative to it."""
    return Path(directory) / "parts"


class OutputAddress(msgspec.Struct, frozen=True):
    """The parts of ``-o NAME``."""

    target: str
    """As the user gave it."""
    kind: str
    """The scheme or the suffix, in lower case."""
    rest: str
    """Without scheme and options: a path, or what follows ``scheme:`` of a service."""
    options: dict[str, str] = {}
    """What follows ``?``, decoded."""

    def secret(self, kind: str, what: str = "password") -> str:
        """Return a secret that stands outside of the name: see :func:`skitter.secrets.output_variable`.

        Empty if there is none. Raises :class:`~skitter.errors.StoreError` for a file that cannot be read.
        """
        return secret_outside(output_variable(kind, what), StoreError)
