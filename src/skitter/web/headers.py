"""Response headers, kept as they came until somebody asks."""

from __future__ import annotations

import math
import re
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import lru_cache

from multidict import CIMultiDict, CIMultiDictProxy

Headers = CIMultiDictProxy[str]
"""Read-only; names without case, in the order received; ``getall`` gives every value of a repeated one."""


def parse_headers(block: bytes) -> Headers:
    """Read a header block (``Name: value`` lines as received; RFC 9112, section 5).

    Bytes are read as Latin-1. A folded line goes on with the one before; a line without colon is passed over.
    """
    fields: CIMultiDict[str] = CIMultiDict()
    text = _FOLD.sub(" ", block.decode("latin-1"))
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon and name:
            fields.add(name.strip(), value.strip())
    return CIMultiDictProxy(fields)


_FOLD = re.compile(r"\r?\n[ \t]+")


def find_header(block: bytes, name: str) -> str | None:
    """Return the first value of one header without reading the others."""
    lines, key = b"\n" + block.lower(), _key_of(name)
    at = lines.find(key)
    if at < 0:  # RFC 9112, 5.1 forbids space before the colon; some send it
        return parse_headers(block).get(name) if b" :" in lines or b"\t:" in lines else None
    start = at + len(key) - 1
    return block[start:].partition(b"\n")[0].strip().decode("latin-1")


@lru_cache(maxsize=256)
def _key_of(name: str) -> bytes:
    """Return how the line of a header begins, with the end of the line before it."""
    return b"\n" + name.lower().encode("latin-1") + b":"


LONGEST = 86_400.0
"""Seconds; a longer wish is cut to this."""

_MAX_DIGITS = 18


def parse_retry_after(value: str | None, now: float) -> float | None:
    """Return the seconds that a ``Retry-After`` value asks for (RFC 9110, 10.2.3).

    ``value``
        Seconds as digits, or an HTTP-date; ``None`` if there is no such header.
    ``now``
        Unix time to which a date is compared.

    The answer lies between 0 (a date gone by) and ``LONGEST``; ``None`` for a value that is neither form.
    """
    if value is None:
        return None
    value = value.strip()
    if value.isascii() and value.isdigit():
        return min(float(value[:_MAX_DIGITS]), LONGEST)
    try:
        moment = parsedate_to_datetime(value)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        seconds = moment.timestamp() - now
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return min(max(math.ceil(seconds), 0.0), LONGEST)
