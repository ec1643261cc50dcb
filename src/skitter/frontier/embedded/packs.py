"""Packs: waiting links of one page and slot in a single row of the file.

A link behind the head of its slot is not needed soon. A separate row would repeat the record of its page and most of
its URL. A request stays in its pack until it is done, and is read there. The table ``unpacked`` has the numbers of
requests that have left their pack, and a pack is removed with its last request; see
``docs/design/embedded-frontier.md``.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import msgspec

MAX_PACK_SIZE = 128
"""Maximum number of links in one pack."""
MIN_PACK_SIZE = 4
"""Minimum number of links in one pack. A smaller one would save little and take as long to read: slots with few
requests read their packs all the time."""
BATCH_SIZES = (64, 16)
"""Numbers of rows that one statement writes. Up to 16 remaining rows need one more statement."""
CACHED_STATEMENTS = 512
_FINGERPRINT_SIZE = 16

Values = Sequence[Any]
_encode = msgspec.msgpack.Encoder().encode
_decode_urls = msgspec.msgpack.Decoder(list[str]).decode
_decode_packs = msgspec.json.Decoder(list[tuple[int, int]]).decode


def pack(
    seq: int,
    slot: int,
    rank: int,
    priority: int,
    record: bytes,
    urls: Sequence[str],
    fingerprints: Sequence[bytes],
) -> Values:
    """Return the row of a pack: requests that differ only in URL and fingerprint.

    ``seq`` is the number of the first one.
    """
    prefix = os.path.commonprefix([urls[0], urls[-1]])  # noqa: RUF071 - any prefix serves
    if "\n".join(urls).count(f"\n{prefix}") < len(urls) - 1:
        prefix = os.path.commonprefix([min(urls), max(urls)])  # noqa: RUF071 - likewise
    cut = len(prefix)
    packed = _encode([prefix, *[url[cut:] for url in urls]])
    return (seq, slot, rank, len(urls), priority, record, b"".join(fingerprints), packed)


def unpack(row: Values, unpacked: Container[int] = ()) -> Iterator[Values]:
    """Return the requests in a pack as rows of the queue. ``unpacked``: the numbers of requests that have left it.

    Raises :class:`ValueError` or :class:`msgspec.MsgspecError` for a damaged pack.
    """
    seq, amount = row[0], row[3]
    return unpack_numbers(row, [number for number in range(seq, seq + amount) if number not in unpacked])


def unpack_numbers(row: Values, numbers: Iterable[int]) -> Iterator[Values]:
    """Return some of the requests in a pack, by number, as rows of the queue. Raises the same errors."""
    seq, slot, rank, amount, priority, record, fingerprints, packed = row
    prefix, *ends = _decode_urls(packed)
    if len(ends) != amount or len(fingerprints) != amount * _FINGERPRINT_SIZE:
        raise ValueError(f"the pack {seq} is damaged: it has {len(ends)} URLs instead of {amount}")
    for number in numbers:
        index = number - seq
        start = index * _FINGERPRINT_SIZE
        fingerprint = fingerprints[start : start + _FINGERPRINT_SIZE]
        yield (number, slot, rank, fingerprint, prefix + ends[index], record, priority, 1, 0, 0)


PACK_OF = "packs.seq = (SELECT max(seq) FROM packs WHERE seq <= {0}) AND packs.seq + packs.amount > {0}"
"""Condition for the pack in which a request was written, given an expression for its number."""
_ADD_ROW = "INSERT INTO queue VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


def move_to_row(file: sqlite3.Connection, number: int) -> None:
    """Move a request from its pack to a separate row, within a transaction. Does nothing for a request without a pack."""
    query = (
        f"SELECT * FROM packs WHERE {PACK_OF.format('?1')}"  # noqa: S608 - a constant
        " AND NOT EXISTS (SELECT 1 FROM unpacked WHERE seq = ?1)"
    )
    packed = file.execute(query, (number,)).fetchone()
    if packed is not None:
        file.execute(_ADD_ROW, *unpack_numbers(packed, [number]))
        file.execute("INSERT INTO unpacked VALUES (?)", (number,))


def replace_packs_by_rows(file: sqlite3.Connection, numbers: Collection[int]) -> None:
    """Replace packs, given by number, by rows of the requests in them, in one transaction."""
    marks = ", ".join("?" * len(numbers))
    rows: list[Values] = []
    file.execute("BEGIN IMMEDIATE")
    try:
        packs = file.execute(f"SELECT * FROM packs WHERE seq IN ({marks})", tuple(numbers)).fetchall()  # noqa: S608 - marks
        for packed in packs:
            rows += unpack(packed, numbers_unpacked(file, packed[0], packed[3]))
        execute_rows(file, _ADD_ROW, rows)
        remove_packs(file, [(packed[0], packed[3]) for packed in packs])
        file.execute("COMMIT")
    except Exception:
        if file.in_transaction:
            file.execute("ROLLBACK")
        raise


def numbers_unpacked(file: sqlite3.Connection, seq: int, amount: int) -> set[int]:
    """Return the numbers of the requests that have left a pack."""
    query = "SELECT seq FROM unpacked WHERE seq >= ? AND seq < ?"
    return {number for (number,) in file.execute(query, (seq, seq + amount))}


def remove_packs(file: sqlite3.Connection, packs: Iterable[tuple[int, int]]) -> None:
    """Remove packs, given by number and amount, within a transaction."""
    for seq, amount in packs:
        file.execute("DELETE FROM packs WHERE seq = ?", (seq,))
        file.execute("DELETE FROM unpacked WHERE seq >= ? AND seq < ?", (seq, seq + amount))


def remove_empty_packs(file: sqlite3.Connection, numbers: str) -> None:
    """Remove the packs that all requests have left, within a transaction.

    ``numbers``: the table with the numbers of the requests whose packs are checked.
    """
    query = (
        "SELECT json_group_array(json_array(seq, amount)) FROM (SELECT DISTINCT packs.seq, packs.amount"  # noqa: S608 - constants
        f" FROM {numbers} JOIN packs ON {PACK_OF.format(f'{numbers}.seq')}) AS touched WHERE amount ="
        " (SELECT count(*) FROM unpacked WHERE unpacked.seq >= touched.seq AND unpacked.seq < touched.seq + amount)"
    )
    (found,) = file.execute(query).fetchone()
    remove_packs(file, _decode_packs(found))


def execute_rows(connection: sqlite3.Connection, statement: str, rows: Sequence[Values]) -> None:
    """Run a statement for many rows in few steps: each step releases the interpreter lock."""
    start, count = 0, len(rows)
    while start < count:
        left = count - start
        size = next((size for size in BATCH_SIZES if size < left), left)
        chunk = rows[start : start + size]
        connection.execute(_for_rows(statement, size), [*chain.from_iterable(chunk)])
        start += size


@lru_cache(maxsize=CACHED_STATEMENTS)
def _for_rows(statement: str, rows: int) -> str:
    """Repeat the group of placeholders ``(?, ?)`` of a statement."""
    start = statement.index("(?")
    end = statement.index(")", start) + 1
    return statement[:start] + ", ".join([statement[start:end]] * rows) + statement[end:]
