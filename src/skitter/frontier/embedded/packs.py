"""Packs: waiting links of one page and slot in a single row of the file, until their slot needs them.

A link behind the head of its slot is not needed soon. A row of its own would repeat the record of its page and most of
its URL.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec

MAX_PACK_SIZE = 128
"""Maximum number of links in one pack, which is also unpacked as a whole."""
MIN_PACK_SIZE = 4
"""Minimum number of links in one pack. A smaller one would save little, but cost as much to unpack: slots with few
requests need theirs all the time."""
BATCH_SIZES = (64, 16)
"""Numbers of rows that one statement writes. Up to 16 remaining rows are one more statement."""
CACHED_STATEMENTS = 512
_FINGERPRINT_SIZE = 16

Values = Sequence[Any]
_encode = msgspec.msgpack.Encoder().encode
_decode_urls = msgspec.msgpack.Decoder(list[str]).decode


def pack(
    seq: int,
    slot: int,
    rank: int,
    priority: int,
    record: bytes,
    urls: Sequence[str],
    fingerprints: Sequence[bytes],
) -> Values:
    """Return the row of a pack: requests that differ only in URL and fingerprint. ``seq`` is the number of the first one."""
    prefix = os.path.commonprefix([urls[0], urls[-1]])  # noqa: RUF071 - any prefix serves
    if "\n".join(urls).count(f"\n{prefix}") < len(urls) - 1:
        prefix = os.path.commonprefix([min(urls), max(urls)])  # noqa: RUF071 - likewise
    cut = len(prefix)
    packed = _encode([prefix, *[url[cut:] for url in urls]])
    return (seq, slot, rank, len(urls), priority, record, b"".join(fingerprints), packed)


def unpack(row: Values) -> Iterator[Values]:
    """Return the rows of the queue that a pack represents.

    Raises :class:`ValueError` or :class:`msgspec.MsgspecError` for a damaged pack.
    """
    seq, slot, rank, amount, priority, record, fingerprints, packed = row
    prefix, *ends = _decode_urls(packed)
    if len(ends) != amount or len(fingerprints) != amount * _FINGERPRINT_SIZE:
        raise ValueError(f"the pack {seq} is damaged: it has {len(ends)} URLs instead of {amount}")
    for index, end in enumerate(ends):
        start = index * _FINGERPRINT_SIZE
        fingerprint = fingerprints[start : start + _FINGERPRINT_SIZE]
        yield (seq + index, slot, rank, fingerprint, prefix + end, record, priority, 1, 0, 0)


def unpack_in_file(file: sqlite3.Connection, numbers: Collection[int]) -> list[Values]:
    """Replace packs by the rows that they represent, in one transaction. Return the rows."""
    marks = ", ".join("?" * len(numbers))
    rows: list[Values] = []
    file.execute("BEGIN IMMEDIATE")
    try:
        for packed in file.execute(f"SELECT * FROM packs WHERE seq IN ({marks})", tuple(numbers)):  # noqa: S608 - marks
            rows += unpack(packed)
        execute_rows(file, "INSERT INTO queue VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        file.execute(f"DELETE FROM packs WHERE seq IN ({marks})", tuple(numbers))  # noqa: S608 - marks
        file.execute("COMMIT")
    except Exception:
        if file.in_transaction:
            file.execute("ROLLBACK")
        raise
    return rows


def execute_rows(connection: sqlite3.Connection, statement: str, rows: Sequence[Values]) -> None:
    """Run a statement for many rows in few steps: each step releases the interpreter lock."""
    start, count = 0, len(rows)
    while start < count:
        left = count - start
        size = next((size for size in BATCH_SIZES if size < left), left)
        chunk = rows[start : start + size]
        connection.execute(_for_rows(statement, size), [value for row in chunk for value in row])
        start += size


@lru_cache(maxsize=CACHED_STATEMENTS)
def _for_rows(statement: str, rows: int) -> str:
    """Repeat the group of placeholders ``(?, ?)`` of a statement."""
    start = statement.index("(?")
    end = statement.index(")", start) + 1
    return statement[:start] + ", ".join([statement[start:end]] * rows) + statement[end:]
