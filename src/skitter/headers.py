"""Response headers, kept as they came until somebody asks."""

from __future__ import annotations

import re
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
    found = _pattern_of(name).search(block)
    return None if found is None else found[1].strip().decode("latin-1")


@lru_cache(maxsize=256)
def _pattern_of(name: str) -> re.Pattern[bytes]:
    return re.compile(
        rb"^" + re.escape(name.encode("latin-1")) + rb"[ \t]*:([^\r\n]*)", re.IGNORECASE | re.MULTILINE
    )
