"""SpillQueue: stores pages on disk while their links exceed the capacity of the queue (``max_queued``)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from skitter.frontier.records import Outcome

if TYPE_CHECKING:  # few crawls exceed the capacity of their queue
    import sqlite3

_MAX_IN_MEMORY = 16 << 20
"""Maximum size in bytes of the part of the queue in memory. The rest is in a temporary file."""


class SpilledPage(msgspec.Struct, array_like=True, frozen=True):
    """A finished page that waits for its commit."""

    url: str
    outcome: Outcome


_encode = msgspec.msgpack.Encoder().encode


@cache
def _decoder() -> msgspec.msgpack.Decoder[SpilledPage]:
    """Return the decoder. Few crawls spill, and creating it takes 0.4 ms."""
    return msgspec.msgpack.Decoder(SpilledPage)


class SpillQueue:
    """A first-in, first-out queue with bounded memory and unbounded disk usage.

    It is a temporary SQLite database. Its file has no name, so the system removes it if the process dies.
    """

    def __init__(self) -> None:
        self._file: sqlite3.Connection | None = None
        self._next: SpilledPage | None = None
        self._count = 0

    def __len__(self) -> int:
        return self._count

    async def put(self, pages: Sequence[SpilledPage]) -> None:
        """Append pages."""
        await asyncio.to_thread(self._append, pages)
        self._count += len(pages)

    def _append(self, pages: Sequence[SpilledPage]) -> None:
        if self._file is None:
            import sqlite3  # noqa: PLC0415 - few crawls exceed the capacity of their queue

            self._file = sqlite3.connect("", isolation_level=None, check_same_thread=False)
            self._file.execute("PRAGMA journal_mode = OFF")
            self._file.execute(f"PRAGMA cache_size = -{_MAX_IN_MEMORY >> 10}")
            self._file.execute("CREATE TABLE pages (id INTEGER PRIMARY KEY, page BLOB NOT NULL)")
        self._file.executemany("INSERT INTO pages (page) VALUES (?)", [(_encode(page),) for page in pages])

    async def first(self) -> SpilledPage:
        """Return the oldest page without removing it. The queue must not be empty."""
        if self._next is None:
            self._next = await asyncio.to_thread(self._read)
        return self._next

    def _read(self) -> SpilledPage:
        assert self._file is not None, "the queue is empty"
        number, page = self._file.execute("SELECT id, page FROM pages ORDER BY id LIMIT 1").fetchone()
        self._file.execute("DELETE FROM pages WHERE id = ?", (number,))
        return _decoder().decode(page)

    def drop_first(self) -> None:
        """Remove the page that :meth:`first` returned."""
        self._next = None
        self._count -= 1

    def close(self) -> None:
        """Remove all pages."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._next, self._count = None, 0
