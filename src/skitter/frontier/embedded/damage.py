"""Finds damage in the file of an embedded frontier: by a checksum of the closed file, by SQLite, and by fingerprints.

It also has the last step of a repair. After a kill, the next process that opens the file finishes it.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import xxhash

from skitter.errors import FrontierError, SkitterError
from skitter.frontier.embedded.packs import unpack
from skitter.frontier.embedded.tables import (
    check_format,
    decode_counters,
    decode_members,
    hide_removed,
    read_only_address,
)
from skitter.request import SCRAPY_KEYS, decode_request, fingerprint, is_rejected

HASHED_BYTES = 2**30
"""For a larger file, only the size is compared: reading it would delay the start of a run by seconds."""
REQUEST_TABLES = ("queue", "delayed", "dead")
_RECORDS: tuple[tuple[str, str, Callable[[Any], object]], ...] = (
    ("job", "SELECT id, counters FROM job", decode_counters),
    ("leases", "SELECT id, members FROM leases", decode_members),
)
_SHOWN = 10
_BLOCK = 2**18
"""Bytes read at once."""


class Checksum(msgspec.Struct):
    """The size and hash of a file that was closed properly."""

    size: int
    xxh3: str
    """Hexadecimal; empty for a file above :data:`HASHED_BYTES`."""


def checksum_path(path: Path) -> Path:
    """Return the file that contains the checksum of a frontier file."""
    return path.with_name(f"{path.name}.sum")


def write_checksum(path: Path) -> None:
    """Record the contents of a file that was just closed. An error is ignored: the file is valid without a checksum."""
    with contextlib.suppress(OSError):
        if not path.with_name(f"{path.name}-wal").exists():
            checksum_path(path).write_bytes(msgspec.json.encode(_checksum_of(path)))


def take_checksum(path: Path) -> None:
    """Check a file before it is opened for writing, and remove its checksum, which becomes outdated.

    A file that has changed since it was closed is searched for damage. Raises :class:`~skitter.errors.FrontierError`
    if there is any; the checksum then stays.
    """
    place = checksum_path(path)
    try:
        stored = msgspec.json.decode(place.read_bytes(), type=Checksum)
    except (OSError, msgspec.MsgspecError):
        return
    has_changed = (
        not path.exists() or path.with_name(f"{path.name}-wal").exists() or stored != _checksum_of(path)
    )
    if has_changed and path.exists() and (damage := find_damage(path)):
        raise FrontierError(
            f"{path} is damaged: {damage[0]}",
            remedy="run `skitter repair JOB`, which keeps everything that can be read, or restore the file",
        )
    place.unlink(missing_ok=True)


def _checksum_of(path: Path) -> Checksum:
    size = path.stat().st_size
    if size > HASHED_BYTES:
        return Checksum(size, "")
    digest = xxhash.xxh3_128()
    with path.open("rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return Checksum(size, digest.hexdigest())


def find_damage(path: Path) -> list[str]:
    """Return the faults of a frontier file, one line each; empty if there is none.

    SQLite checks the structure. A changed byte of a request is detected by its fingerprint. Raises
    :class:`~skitter.errors.FrontierError` for a file that is not a frontier, or of another format.
    """
    try:
        with closing(sqlite3.connect(read_only_address(path), uri=True)) as file:
            file.text_factory = decode_text
            check_format(file, path)
            found = [line for (line,) in file.execute(f"PRAGMA integrity_check({_SHOWN})") if line != "ok"]
            if not found:
                hide_removed(file)
            found = found or [f"a record of {table} cannot be read" for table, _ in unreadable_records(file)]
            return found or _altered_requests(file)
    except sqlite3.DatabaseError as error:
        return [str(error)]


def unreadable_records(file: sqlite3.Connection) -> Iterator[tuple[str, int]]:
    """Yield the table and the id of each row of the job and its leases whose record cannot be decoded."""
    for table, query, decode in _RECORDS:
        for number, packed in file.execute(query):
            try:
                decode(packed)
            except (msgspec.DecodeError, TypeError):
                yield table, number


def _altered_requests(file: sqlite3.Connection) -> list[str]:
    found = file.execute("SELECT fingerprint_seed FROM job").fetchone()
    if found is None:
        return []
    seed = found[0] % 2**64
    damage = [
        f"the request {url!r:.200} does not match its fingerprint"
        for table in REQUEST_TABLES
        for url, record, stored in file.execute(f"SELECT url, record, fingerprint FROM {table}")  # noqa: S608 - constants
        if not matches(url, record, stored, seed)
    ]
    unpacked = {number for (number,) in file.execute("SELECT seq FROM unpacked")}
    for packed in file.execute("SELECT * FROM packs"):
        try:
            rows = list(unpack(packed, unpacked))
        except (ValueError, TypeError, msgspec.MsgspecError):
            damage.append(f"the pack {packed[0]} cannot be read")
            continue
        damage += [
            f"the request {url!r:.200} does not match its fingerprint"
            for _, _, _, stored, url, record, *_ in rows
            if not matches(url, record, stored, seed)
        ]
    return damage


def matches(url: Any, record: Any, stored: Any, seed: int) -> bool:
    """Return whether a stored request has the fingerprint that is stored with it.

    The fingerprint of a Scrapy project is computed by the project and cannot be checked here. Its record only has to be
    readable.
    """
    try:
        if is_rejected(record):
            return True
        request = decode_request(url, record)
        return not SCRAPY_KEYS.isdisjoint(request.meta) or bool(fingerprint(request, seed) == stored)
    except (SkitterError, ValueError, TypeError, AttributeError):
        return False


def decode_text(data: bytes) -> str:
    """Decode a text of a damaged file, which may not be valid UTF-8."""
    return data.decode(errors="replace")


class Repair(msgspec.Struct):
    """The results of a repair."""

    damage: list[str]
    """Empty: the file is not damaged, and nothing was changed."""
    kept: dict[str, int] = {}
    """Number of readable rows of each table."""
    incomplete: list[str] = []
    """Tables that could not be read completely."""
    altered: list[str] = []
    """URLs of requests whose contents do not match their fingerprint. They were removed from the queue."""
    lost: int = 0
    """Number of requests that were counted but are no longer in any table, including the altered ones."""
    saved: str = ""
    """Folder of the damaged files."""


def rebuilt_path(path: Path) -> Path:
    """Return the file to which a repair of a frontier file writes."""
    return path.with_name(f"{path.name}.repaired")


def write_report(path: Path, repair: Repair) -> None:
    """Mark the rebuilt file as complete."""
    report = _report_path(path)
    temporary = report.with_name(f"{report.name}.new")
    with temporary.open("wb") as file:
        file.write(msgspec.json.encode(repair))
        file.flush()
        os.fsync(file.fileno())  # an empty report after a power loss would block the job
    temporary.replace(report)


def finish_repair(path: Path) -> Repair | None:
    """Replace the damaged file by a complete rebuilt one. Return the report; ``None`` if there was no rebuilt file.

    The caller holds the lock of the file.
    """
    report = _report_path(path)
    if not report.exists():
        return None
    repair = msgspec.json.decode(report.read_bytes(), type=Repair)
    rebuilt = rebuilt_path(path)
    if rebuilt.exists():
        # Before the file is replaced: SQLite would apply the log of the damaged file to the rebuilt one.
        for suffix in ("-wal", "-shm", ".sum"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        rebuilt.replace(path)
    report.unlink()
    return repair


def _report_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.repair-report")
