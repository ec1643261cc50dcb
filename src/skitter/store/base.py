"""The store contract: where items go.

A store makes items durable in ``write``, before the frontier commits the request that gave them. Two kinds
keep every item exactly once although workers die at any moment:

* a *ranged* store appends to a part file of its own and answers with the byte range of each group; the
  range is recorded in the commit, and only committed ranges are ever merged into the named file;
* a *keyed* store writes each item under its deterministic id, so that a second write changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from skitter.frontier.base import OutputMark


class ItemGroup(msgspec.Struct, frozen=True):
    """The items of one page, in the order in which the callback gave them."""

    fingerprint: bytes
    """Of the page's request; 16 bytes."""
    items: Sequence[Any]
    """dict, dataclass, attrs, pydantic or TypedDict instances; see :mod:`skitter.item`."""


class StoreContext(msgspec.Struct, frozen=True):
    """What a store is told when it is opened."""

    job: str
    worker: str
    """Unique among all workers that ever ran the job, also after restarts; fit for a file name."""
    directory: str
    """The job's own folder (exists); part files live below it."""
    durability: str = "process"
    """``process``: survive a killed process; ``machine``: survive power loss (sync before returning)."""


class Store(Protocol):
    """Where items go. One instance belongs to one worker."""

    async def open(self, context: StoreContext) -> None:
        """Make ready to write. Raises :class:`~skitter.errors.StoreError` with a remedy."""
        ...

    async def write(self, groups: Sequence[ItemGroup]) -> Sequence[OutputMark | None]:
        """Make the items durable; for each group its byte range, or ``None`` in a keyed store."""
        ...

    async def close(self) -> None:
        """Flush what is left and let go."""
        ...


def item_id(job: str, fingerprint: bytes, index: int) -> str:
    """Return the deterministic id of an item: the same page of the same job gives the same ids."""
    return f"{job}:{fingerprint.hex()}:{index}"
