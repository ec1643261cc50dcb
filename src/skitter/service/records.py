"""Records: what the nodes of a service share: jobs, recipes, tasks, who is there, and who does the single duties.

A record is bytes under a kind and a name. It is changed only by :meth:`Records.swap`, which compares it with what
the writer has read: two nodes that want the same thing at the same time do it once, without a leader.
"""

from __future__ import annotations

from typing import Protocol


class Records(Protocol):
    """The store of the service. Errors are :class:`~skitter.errors.FrontierError`: it is away, or broken."""

    async def open(self) -> None:
        """Make ready."""
        ...

    async def close(self) -> None:
        """Let go."""
        ...

    async def get(self, kind: str, name: str) -> bytes | None:
        """Read a record; ``None``: there is none."""
        ...

    async def all(self, kind: str) -> dict[str, bytes]:
        """Read all records of a kind, by name."""
        ...

    async def swap(self, kind: str, name: str, old: bytes | None, new: bytes | None) -> bool:
        """Make a record ``new`` if it is ``old``, in one step; ``None`` stands for no record.

        True as well if it is ``new`` already: a call whose answer was lost may be repeated.
        """
        ...

    async def hold(self, duty: str, owner: str, seconds: float) -> bool:
        """Take or renew the lease of a duty for so many seconds; ``False``: another owner has it."""
        ...

    async def announce(self, node: str, note: bytes, seconds: float) -> None:
        """Tell that a node is there, which is believed for so many seconds; 0: it has left."""
        ...

    async def nodes(self) -> dict[str, bytes]:
        """Return the notes of the nodes that are there."""
        ...
