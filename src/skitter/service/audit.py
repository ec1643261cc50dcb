"""The audit log: who changed what in a service, when, and with what result. Entries are never changed or removed."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from skitter._utils.redaction import Redactor
from skitter.service.storage import AppendLog

_BATCH_SIZE = 500
"""Entries in one read."""
_MAX_TEXT = 100
"""Maximum characters of a value or a name in an entry."""
_MAX_FIELDS = 20
"""Maximum fields of a request, and of each object in it, in an entry."""
_redactor = Redactor()


class AuditEntry(msgspec.Struct, kw_only=True):
    """One call that changed something, or was refused."""

    time: float
    """Unix time."""
    caller: str
    """Name of the token."""
    session: bool = False
    """Whether the call came from the console, with a cookie."""
    node: str = ""
    method: str
    path: str
    status: int
    """Status of the response."""
    details: dict[str, Any] = {}
    """The fields of the request, without long values."""


class AuditPage(msgspec.Struct):
    """Some entries of the audit log, newest first, each with its number."""

    entries: list[tuple[int, AuditEntry]]
    next: int | None
    """Value of ``before`` for the next page; ``None`` if there are no older entries."""


class AuditLog:
    """The audit log of a service.

    ``open_log``: opens the stored log.
    ``node``: name of the node that adds entries.
    """

    def __init__(self, open_log: Callable[[], AppendLog], node: str = "") -> None:
        self._open_log = open_log
        self._node = node
        self._batches = itertools.count(1)

    async def add(self, entry: AuditEntry) -> None:
        """Add an entry. Raises :class:`~skitter.errors.SkitterError` if it cannot be stored."""
        entry.node = self._node
        log = self._open_log()
        try:
            await log.append([msgspec.json.encode(entry)], next(self._batches))
        finally:
            await log.close()

    async def page(self, before: int | None, limit: int, contains: str = "") -> AuditPage:
        """Return entries with numbers below ``before`` (default: the newest) whose caller or path contains a text."""
        log = self._open_log()
        found: list[tuple[int, AuditEntry]] = []
        try:
            end = await _end_of(log)
            end = end if before is None else min(end, before - 1)
            while end > 0:
                start = max(0, end - _BATCH_SIZE)
                for number, data in reversed(await log.read(start, end - start)):
                    entry = msgspec.json.decode(data, type=AuditEntry)
                    if contains in entry.caller or contains in entry.path:
                        found.append((number, entry))
                    if len(found) == limit:
                        return AuditPage(found, number if number > 1 else None)
                end = start
        finally:
            await log.close()
        return AuditPage(found, None)


async def _end_of(log: AppendLog) -> int:
    """Return the position of the last entry. Entries are never removed, so there are no gaps before it."""
    low, high = 0, 1
    while await log.read(high - 1, 1):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if await log.read(middle - 1, 1) else (low, middle)
    return low


def details_of(body: bytes, content_type: str) -> dict[str, Any]:
    """Return the fields of a request for an entry. Long values, and values that may be secret, are left out."""
    fields = None
    if "json" in content_type:
        with suppress(msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            fields = msgspec.json.decode(body or b"{}")
    if not isinstance(fields, dict):
        return {"bytes": len(body)} if body else {}
    return {name: _shown(name, value) for name, value in _first_fields(fields)}


def _first_fields(fields: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(name[:_MAX_TEXT], value) for name, value in itertools.islice(fields.items(), _MAX_FIELDS)]


def _shown(name: str, value: Any) -> Any:
    if isinstance(value, str):  # of the URL of a trial, the password is left out
        return _redactor.of_text(value) if len(value) <= _MAX_TEXT else f"{len(value)} characters"
    if isinstance(value, dict):
        if name == "settings":
            return {
                key: setting if isinstance(setting, (int, float)) else "changed"
                for key, setting in _first_fields(value)
            }
        return sorted(key for key, _ in _first_fields(value))  # arguments may hold secrets
    if isinstance(value, list):
        is_short = len(value) <= 10 and all(isinstance(element, int) for element in value)
        return value if is_short else f"{len(value)} entries"
    return value
